package modeltest

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"glimpse/kernels"
)

// NeedCUDA skips a test where there is no device, and fails it where
// GLIMPSE_CUDA_DRIVER promised one.
func NeedCUDA(t testing.TB) {
	t.Helper()
	if slices.Contains(kernels.Backends.Names(), "cuda") {
		return
	}
	if driver := os.Getenv("GLIMPSE_CUDA_DRIVER"); driver != "" {
		t.Fatalf("GLIMPSE_CUDA_DRIVER=%s cannot be used: %v", driver, kernels.Devices().Usable())
	}
	t.Skipf("no CUDA device: %v", kernels.Devices().Usable())
}

// InArenas tells whether device memory is handed out as for users, in pieces of larger
// blocks that are used again. Where every tensor has an allocation of its own, it lets
// another process run the test so, and fails as that does; the caller then has nothing
// more to do.
func InArenas(t *testing.T) bool {
	t.Helper()
	if os.Getenv("GLIMPSE_CUDA_EXACT") == "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "GLIMPSE_CUDA_EXACT=")
	out, err := cmd.CombinedOutput()
	if t.Logf("in arenas:\n%s", out); err != nil {
		t.Error(err)
	}
	return false
}
