package eviction_test

import (
	"fmt"
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

// TestRandomWhileDecoding: with decode=1 the prompt stays, and of the response what is not recent is drawn from, for every head of
// its own. A prompt that leaves the response no room gives up entries until it has some.
func TestRandomWhileDecoding(t *testing.T) {
	m := modeltest.Llama{Layers: 2, Hidden: 4, HeadDim: 2, Intermediate: 2}.Open(t, "cpu")
	const steps = 30
	for _, c := range []struct {
		name                      string
		n, budget, recent, prompt int // prompt: entries of it that are left
	}{
		{"the prompt fits", 8, 20, 0, 8},
		{"recent entries stay", 8, 20, 5, 8},
		{"the prompt gives room", 20, 20, 0, 15},
		{"a long prompt gives room", 50, 20, 2, 15},
		{"room for more than the response", 3, 40, 4, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			counts, heads := make(map[int32]int), make(map[string]bool)
			const seeds = 200
			for seed := range uint64(seeds) {
				overrides := eviction.Overrides{"random": {"decode": 1, "recent": float64(c.recent)}}
				p, err := eviction.New("random", seed, overrides, nil)
				if err != nil {
					t.Fatal(err)
				}
				s := prefill(t, m, p, modeltest.Tokens(m, 1, c.n), c.budget)
				generate(t, s, steps+1)
				for l := range m.Config.Layers {
					for h := range m.Config.KVHeads {
						held := s.Cache.Positions(l, h)
						first, _ := slices.BinarySearch(held, int32(c.n))
						if len(held) != min(c.budget, c.n+steps) || first != c.prompt {
							t.Fatalf("seed %d layer %d head %d holds %v, want %d entries, %d of them of the prompt", seed, l, h, held, min(c.budget, c.n+steps), c.prompt)
						}
						for j := range int32(c.recent) {
							if last := int32(c.n + steps - 1); !slices.Contains(held, last-j) {
								t.Fatalf("seed %d layer %d head %d holds %v, want the last %d", seed, l, h, held, c.recent)
							}
						}
						for _, pos := range held {
							counts[pos]++
						}
						if seed == 0 {
							heads[fmt.Sprint(held)] = true
						}
					}
				}
			}
			if c.n+steps <= c.budget {
				return
			}
			if len(heads) == 1 {
				t.Error("all heads hold the same entries")
			}
			// An entry that one of k candidates takes the place of at every step survives each with probability 1 − 1/k.
			k, last := c.budget-c.prompt-c.recent+1, c.n+steps-1
			for _, age := range []int{1, 5, 10} {
				pos := last - c.recent - age + 1
				if first := c.n + (c.budget - c.prompt); pos < first { // which came while nothing went
					continue
				}
				const draws = seeds * 4
				want := math.Pow(1-1/float64(k), float64(age))
				if got := float64(counts[int32(pos)]) / draws; math.Abs(got-want) > 5*math.Sqrt(want*(1-want)/draws) {
					t.Errorf("an entry that could go %d times is left in a share of %.3f, want %.3f", age, got, want)
				}
			}
		})
	}
}

// TestRandomDecodesBySeed: what goes depends on the seed and on nothing that is decoded beside it.
func TestRandomDecodesBySeed(t *testing.T) {
	m := modeltest.Llama{Layers: 2, Seed: 1}.Open(t, "cpu")
	held := func(seed uint64) [][][]int32 {
		p, err := eviction.New("random", seed, eviction.Overrides{"random": {"decode": 1}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := prefill(t, m, p, modeltest.Tokens(m, 1, 10), 20)
		generate(t, s, 40)
		return positions(s.Cache)
	}
	if first := held(1); !sameKept(first, held(1)) || sameKept(first, held(2)) {
		t.Errorf("seed 1 holds %v and %v, seed 2 %v: want the same of one seed and others of another", first, held(1), held(2))
	}
}
