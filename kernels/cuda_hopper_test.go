//go:build gpu && linux && amd64

package kernels_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
)

// openHopper skips a test where the device has no kernels for Hopper.
func openHopper(t *testing.T) device {
	t.Helper()
	d := openCUDA(t)
	undo, ok := kernels.SetHopper(d.b, true)
	if !ok {
		if report := kernels.Devices().Devices[0]; report.Capability == "9.0" && !strings.Contains(os.Getenv("GLIMPSE_CUDA_OFF"), "prefill_hopper") {
			t.Fatalf("the kernels for Hopper are not used: %s", report.Attention)
		}
		t.Skip("the device is not of compute capability 9.0")
	}
	t.Cleanup(undo)
	return d
}

// TestCUDAHopperPrefill: the kernels for Hopper as TestCUDAPrefillAttention holds the
// portable ones.
func TestCUDAHopperPrefill(t *testing.T) {
	d := openHopper(t)
	// lse alone is the portable kernel's work
	checkPrefill(t, d, 1e-6, []attendShape{
		{name: "one tile", rows: 64, heads: 1, dim: 64, entries: []int{64}},
		{name: "tails of rows and entries", rows: 131, heads: 1, dim: 64, entries: []int{263}},
		{name: "ragged group", rows: 45, heads: 6, dim: 128, entries: []int{45, 260}},
		{name: "more tiles than stages", rows: 64, heads: 1, dim: 64, entries: []int{640}},
		{name: "MQA", rows: 19, heads: 7, dim: 128, entries: []int{400}},
		{name: "wide head", rows: 66, heads: 1, dim: 256, entries: []int{199}},
		{name: "window", rows: 130, heads: 2, dim: 64, entries: []int{300, 300}, window: 37},
		{name: "window, evicted", rows: 80, heads: 4, dim: 128, entries: []int{350, 90}, window: 50, evicted: true},
		{name: "sharp logits", rows: 70, heads: 2, dim: 64, entries: []int{190, 90}, logits: 40},
	})
}

// TestCUDAHopperRandom: random shapes of the kernels for Hopper give the portable
// kernels' results up to the rounding of both, twice the same bits, and are what ran.
func TestCUDAHopperRandom(t *testing.T) {
	d := openHopper(t)
	rng := rand.New(rand.NewPCG(3, 90))
	for i := range 9 {
		s := attendShape{dim: []int{64, 128, 256}[i%3], rows: 64 + rng.IntN(70), heads: 1 + rng.IntN(2)}
		if i >= 6 { // the fewest rows of a group
			s.heads = 2 * (2 + rng.IntN(3))
			s.rows = (128+s.heads-1)/s.heads + rng.IntN(9)
		}
		heads := 1
		if s.heads%2 == 0 {
			heads = 2
		}
		for range heads {
			s.entries = append(s.entries, s.rows+rng.IntN(300))
		}
		if rng.IntN(3) == 0 {
			s.window, s.evicted = 1+rng.IntN(200), true
		}
		s.name = fmt.Sprintf("random %d: rows=%d/heads=%d/dim=%d/entries=%v/window=%d", i, s.rows, s.heads, s.dim, s.entries, s.window)
		a := halved(d, s.attend(d, rng), true)
		run := func() (out, lse []float64, hopper bool) {
			o, l := d.garbage(s.rows, s.heads*s.dim), d.garbage(s.heads, s.rows)
			d.b.Attention(o, l, a)
			hopper = kernels.Launched(d.b, fmt.Sprint("attend_hopper_", s.dim))
			return o.Float64s(), l.Float64s(), hopper
		}
		out, lse, hopper := run()
		if !hopper {
			t.Errorf("%s: not the kernel for Hopper", s.name)
		}
		again, lseAgain, _ := run()
		compare.Close(t, s.name+": out again", again, out, 0)
		compare.Close(t, s.name+": lse again", lseAgain, lse, 0)
		undo, _ := kernels.SetHopper(d.b, false)
		want, wantLSE, hopper := run()
		undo()
		if hopper {
			t.Errorf("%s: the portable kernel was asked for", s.name)
		}
		compare.Close(t, s.name+": out", out, want, 1.0/128, compare.Floor(magnitude(want)))
		compare.Close(t, s.name+": lse", lse, wantLSE, 1e-5, compare.Floor(1))
	}
}

// TestCUDAHopperCheck: the check before the first use passes, and where it fails the
// portable kernel is used and the report says why.
func TestCUDAHopperCheck(t *testing.T) {
	d := openHopper(t)
	if err := kernels.CheckFamily(d.b, "prefill_hopper"); err != nil {
		t.Error(err)
	}
	if err := kernels.CheckDevice(0); err != nil {
		t.Fatal(err)
	}
	if got, want := kernels.Devices().Devices[0].Attention, "wgmma, checked for heads of 64 128 256"; got != want {
		t.Errorf("attention is %q, want %q", got, want)
	}
	defer kernels.RefuseFamily(d.b, "prefill_hopper", errors.New("output 3 is 1, want 2"))()
	if got, want := kernels.Devices().Devices[0].Attention, "mma.sync: output 3 is 1, want 2"; got != want {
		t.Errorf("attention is %q, want %q", got, want)
	}
	s := attendShape{rows: 64, heads: 1, dim: 64, entries: []int{64}}
	d.b.Attention(d.garbage(64, 64), nil, halved(d, s.attend(d, rand.New(rand.NewPCG(1, 1))), true))
	if kernels.Launched(d.b, "attend_hopper_64") || !kernels.Launched(d.b, "attend_mma_64") {
		t.Error("a kernel is used that failed its check")
	}
}
