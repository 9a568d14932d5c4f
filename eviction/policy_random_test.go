package eviction_test

import (
	"math"
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/model/modeltest"
)

// random has no second implementation: what it draws is its own affair, but it
// has to be uniform, and different for every seed, layer and head.
func init() { naivePolicies["random"] = nil }

func TestRandomIsUniform(t *testing.T) {
	m := modeltest.Llama{Layers: 2, Hidden: 4, HeadDim: 2, Intermediate: 2}.Open(t, "cpu")
	const n, budget, seeds = 20, 6, 2000
	tokens := modeltest.Tokens(m, 1, n)
	rt := eviction.NewRuntime(m)
	var counts [2][2][n]int
	var alike [3]int
	for seed := range uint64(seeds) {
		p, err := eviction.New("random", seed, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := rt.Prefill(background, p, eviction.Prompt{Tokens: tokens, Budget: budget})
		if err != nil {
			t.Fatal(err)
		}
		for l := range counts {
			for h := range counts[l] {
				for _, j := range s.Kept()[l][h] {
					counts[l][h][j]++
				}
			}
		}
		for i, kept := range [][]int32{s.Kept()[0][1], s.Kept()[1][0], s.Kept()[1][1]} {
			if slices.Equal(s.Kept()[0][0], kept) {
				alike[i]++
			}
		}
	}
	for i, n := range alike { // one in 38760 by chance
		if n > 3 {
			t.Errorf("%s keeps what the first head keeps, for %d of %d seeds", []string{"the second head", "the second layer", "the last head"}[i], n, seeds)
		}
	}
	const share = float64(budget) / n
	for l := range counts {
		for h := range counts[l] {
			for j, got := range counts[l][h] {
				if math.Abs(float64(got)-seeds*share) > 5*math.Sqrt(seeds*share*(1-share)) {
					t.Errorf("layer %d head %d keeps entry %d %d times of %d, want a share of %.2f", l, h, j, got, seeds, share)
				}
			}
		}
	}
}
