package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"glimpse/internal/simd"
	"glimpse/kernels"
	"glimpse/kernels/kernelstest"
)

// TestEntriesThatLeftTheWindow: on host memory out, lse and scores of the entries that stay are the same to the bit
// whether whole blocks of entries that no row sees are there or not.
func TestEntriesThatLeftTheWindow(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 6 // as many as there are of soft caps and own entries together
	}
	for i, level := range simd.Levels() {
		devices := []string{"cpu", "reference"}
		if i > 0 {
			devices = devices[:1] // the reference knows no level
		}
		restore, err := simd.Use(level)
		if err != nil {
			t.Fatal(err)
		}
		for seed := range seeds {
			rng := rand.New(rand.NewPCG(seed, 47))
			s := kernelstest.AttendShape{Rows: 1 + rng.IntN(90), Heads: 4, Dim: 8 * (1 + rng.IntN(8)), Window: 1 + rng.IntN(700), Own: seed%3 == 0}
			if seed%2 == 0 {
				s.SoftCap, s.Sinks = 5, 1
			}
			n := s.Rows + s.Window + rng.IntN(2500)
			s.Entries = []int{n, n}
			s.Name = fmt.Sprintf("%s: rows=%d/dim=%d/entries=%d/window=%d/own=%v", level, s.Rows, s.Dim, n, s.Window, s.Own)
			for _, name := range devices {
				d := kernelstest.Open(t, name)
				a := s.Attend(d, rng)
				unseen, _ := a.Visible(0, 0)
				gone := unseen / kernels.WindowBlock * kernels.WindowBlock
				less := *a
				less.Past = nil
				for _, kv := range a.Past {
					var pos []int32
					for j := gone; j < n; j++ {
						pos = append(pos, int32(j))
					}
					less.Past = append(less.Past, kernels.KV{K: kv.K.Rows(gone, n), V: kv.V.Rows(gone, n), Positions: pos})
				}
				out, lse, scores := s.Observe(d, a)
				outLess, lseLess, scoresLess := s.Observe(d, &less)
				if at := otherBits(outLess.Float64s(), out.Float64s()); at >= 0 {
					t.Fatalf("%s: %s: without %d entries out[%d] is another", name, s.Name, gone, at)
				}
				if at := otherBits(lseLess.Float64s(), lse.Float64s()); at >= 0 {
					t.Fatalf("%s: %s: without %d entries lse[%d] is another", name, s.Name, gone, at)
				}
				for h := range s.Heads {
					all, some := scores.Float64s()[h*scores.Width():], scoresLess.Float64s()[h*scoresLess.Width():]
					if at := otherBits(some[:n-gone], all[gone:n]); at >= 0 {
						t.Fatalf("%s: %s: without %d entries score %d of head %d is another", name, s.Name, gone, at, h)
					}
				}
			}
		}
		restore()
	}
}
