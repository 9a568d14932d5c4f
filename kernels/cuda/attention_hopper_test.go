//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/cuda"
	"glimpse/kernels/kernelstest"
)

// openHopper skips a test where the device has no kernels for Hopper.
func openHopper(t *testing.T) kernelstest.Device {
	t.Helper()
	d := openCUDA(t)
	undo, ok := cuda.SetHopper(d.B, true)
	if !ok {
		if report := kernels.Devices().Devices[0]; report.Capability == "9.0" {
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
	checkPrefill(t, d, 1e-6, []kernelstest.AttendShape{
		{Name: "one tile", Rows: 64, Heads: 1, Dim: 64, Entries: []int{64}},
		{Name: "tails of rows and entries", Rows: 131, Heads: 1, Dim: 64, Entries: []int{263}},
		{Name: "ragged group", Rows: 45, Heads: 6, Dim: 128, Entries: []int{45, 260}},
		{Name: "more tiles than stages", Rows: 64, Heads: 1, Dim: 64, Entries: []int{640}},
		{Name: "MQA", Rows: 19, Heads: 7, Dim: 128, Entries: []int{400}},
		{Name: "wide head", Rows: 66, Heads: 1, Dim: 256, Entries: []int{199}},
		{Name: "window", Rows: 130, Heads: 2, Dim: 64, Entries: []int{300, 300}, Window: 37},
		{Name: "window, evicted", Rows: 80, Heads: 4, Dim: 128, Entries: []int{350, 90}, Window: 50, Evicted: true},
		{Name: "sharp logits", Rows: 70, Heads: 2, Dim: 64, Entries: []int{190, 90}, Logits: 40},
	})
}

// TestCUDAHopperRandom: random shapes of the kernels for Hopper give the portable
// kernels' results up to the rounding of both, twice the same bits, and are what ran.
func TestCUDAHopperRandom(t *testing.T) {
	d := openHopper(t)
	rng := rand.New(rand.NewPCG(3, 90))
	for i := range 9 {
		s := kernelstest.AttendShape{Dim: []int{64, 128, 256}[i%3], Rows: 64 + rng.IntN(70), Heads: 1 + rng.IntN(2)}
		if i >= 6 { // the fewest rows of a group
			s.Heads = 2 * (2 + rng.IntN(3))
			s.Rows = (128+s.Heads-1)/s.Heads + rng.IntN(9)
		}
		heads := 1
		if s.Heads%2 == 0 {
			heads = 2
		}
		for range heads {
			s.Entries = append(s.Entries, s.Rows+rng.IntN(300))
		}
		if rng.IntN(3) == 0 {
			s.Window, s.Evicted = 1+rng.IntN(200), true
		}
		s.Name = fmt.Sprintf("random %d: rows=%d/heads=%d/dim=%d/entries=%v/window=%d", i, s.Rows, s.Heads, s.Dim, s.Entries, s.Window)
		a := kernelstest.Halved(d, s.Attend(d, rng), true)
		run := func() (out, lse []float64, hopper bool) {
			o, l := d.Garbage(s.Rows, s.Heads*s.Dim), d.Garbage(s.Heads, s.Rows)
			d.B.Attention(o, l, a)
			hopper = cuda.Launched(d.B, fmt.Sprint("attend_hopper_", s.Dim))
			return o.Float64s(), l.Float64s(), hopper
		}
		out, lse, hopper := run()
		if !hopper {
			t.Errorf("%s: not the kernel for Hopper", s.Name)
		}
		again, lseAgain, _ := run()
		compare.Close(t, s.Name+": out again", again, out, 0)
		compare.Close(t, s.Name+": lse again", lseAgain, lse, 0)
		undo, _ := cuda.SetHopper(d.B, false)
		want, wantLSE, hopper := run()
		undo()
		if hopper {
			t.Errorf("%s: the portable kernel was asked for", s.Name)
		}
		compare.Close(t, s.Name+": out", out, want, 1.0/128, compare.Floor(kernelstest.Magnitude(want)))
		compare.Close(t, s.Name+": lse", lse, wantLSE, 1e-5, compare.Floor(1))
	}
}

// TestCUDAHopperReport: what prompts run on is reported.
func TestCUDAHopperReport(t *testing.T) {
	d := openHopper(t)
	for on, want := range map[bool]string{true: "wgmma", false: "mma.sync"} {
		undo, _ := cuda.SetHopper(d.B, on)
		if got := kernels.Devices().Devices[0].Attention; got != want {
			t.Errorf("attention is %q, want %q", got, want)
		}
		undo()
	}
}
