//go:build gpu && linux && (amd64 || arm64)

package cudadriver_test

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"glimpse/kernels/cudadriver"

	"gorgonia.org/cu"
)

// TestPlansAreBounded: the plans of many shapes are forgotten, the last used last.
func TestPlansAreBounded(t *testing.T) {
	if !strings.Contains(os.Getenv(cudadriver.DriverVariable), "hostcuda") {
		t.Skip("not on the host driver")
	}
	blas, err := cudadriver.OpenBlas()
	if err != nil {
		t.Fatal(err)
	}
	if err := blas.Create(cu.CUContext{}); err != nil {
		t.Fatal(err)
	}
	plan := func(n int) *cudadriver.ProductPlan {
		p, err := blas.Plan(cu.CUContext{}, cudadriver.Product{M: n, N: 1, K: 1, LdA: n, LdB: 1, LdC: n, AlignA: 4, AlignB: 4, AlignC: 4})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := plan(1)
	for n := range 3 * cudadriver.MaxPlans {
		plan(n + 2)
		if plan(1) != first {
			t.Fatalf("after %d others a plan is forgotten that was used since", n+1)
		}
	}
	const some = 8 // that the stack may still refer to
	for deadline := time.Now().Add(10 * time.Second); cudadriver.Plans() > cudadriver.MaxPlans+some; time.Sleep(time.Millisecond) {
		runtime.GC()
		if time.Now().After(deadline) {
			t.Fatalf("%d plans are held, want %d at most", cudadriver.Plans(), cudadriver.MaxPlans+some)
		}
	}
	runtime.KeepAlive(first)
}
