package eviction_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/kernels"
	"glimpse/model"
)

func init() {
	naivePolicies["lacache"] = func(c *naiveCase) naivePlan {
		scores := make([][][]float64, c.c.Layers)
		for l := range scores {
			for range c.c.KVHeads {
				s := make([]float64, c.n())
				for j, kept := range ladder(c, l) {
					if kept {
						s[j] = 1
					}
				}
				scores[l] = append(scores[l], s)
			}
		}
		return naivePlan{scores: scores, budgets: c.uniform(c.budget)}
	}
}

// ladder tells which entries layer l keeps: entries are marked off one by one as
// later ones come, the mark going over what is left in order of position.
func ladder(c *naiveCase, l int) []bool {
	layers := c.c.Layers
	span := max(1, min(c.int("span"), layers/2))
	stride := span - min(c.int("overlap"), span-1)
	length := max(2, 1+int(math.Ceil(float64(layers-span)/float64(stride))))
	sink, recent := min(c.int("sink"), c.budget/2), max(1, min(layers, c.budget/2))
	alive := make([]bool, c.n())
	mark, count, lost := -1, 0, true // the last entry looked at, how many in this round, whether it lost any
	for end := range alive {
		alive[end] = true
		for {
			var left []int // what is left of the entries so far
			for j := range end + 1 {
				if alive[j] {
					left = append(left, j)
				}
			}
			if len(left) <= c.budget {
				break
			}
			at := -1
			for _, j := range left[sink : len(left)-recent] {
				if j > mark {
					at = j
					break
				}
			}
			if at < 0 {
				at = left[sink]
				if lost {
					count, lost = 0, false
				}
			}
			// Step j of a ladder is kept by the layers from j·stride on, span of them.
			step := count % length
			if l < step*stride || l >= step*stride+span {
				alive[at], lost = false, true
			}
			mark = at
			count++
		}
	}
	return alive
}

// TestLadders: small ladders worked out by hand.
func TestLadders(t *testing.T) {
	for _, c := range []struct {
		name      string
		layers    int
		n, budget int
		set       []string
		want      [][]int32 // by layer
	}{
		// T = 2: of every two entries the shallow layer keeps the first, the deep one the
		// second. Entry 4 makes layer 0 drop 1, entry 5 makes it drop 3.
		{"two layers", 2, 6, 4, []string{"lacache.span=1", "lacache.sink=0"}, [][]int32{{0, 2, 4, 5}, {1, 3, 4, 5}}},
		{"two layers, sinks", 2, 8, 6, []string{"lacache.span=1", "lacache.sink=2"}, [][]int32{{0, 1, 2, 4, 6, 7}, {0, 1, 3, 5, 6, 7}}},
		// S = 2, O = 0: the first two layers share a step.
		{"four layers", 4, 10, 8, []string{"lacache.span=2", "lacache.sink=0"}, [][]int32{
			{0, 2, 4, 5, 6, 7, 8, 9}, {0, 2, 4, 5, 6, 7, 8, 9}, {1, 3, 4, 5, 6, 7, 8, 9}, {1, 3, 4, 5, 6, 7, 8, 9}}},
		// S = 2, O = 1: T = 3, steps {0,1}, {1,2}, {2,3}; layers 0 and 3 keep one of three.
		{"overlap", 4, 9, 8, []string{"lacache.span=2", "lacache.overlap=1", "lacache.sink=0"}, [][]int32{
			{0, 2, 3, 4, 5, 6, 7, 8}, {0, 1, 3, 4, 5, 6, 7, 8}, {1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 3, 4, 5, 6, 7, 8}}},
	} {
		overrides, err := eviction.ParseOverrides(c.set)
		if err != nil {
			t.Fatal(err)
		}
		p, err := eviction.New("lacache", 0, overrides, nil)
		if err != nil {
			t.Fatal(err)
		}
		prompt := eviction.Prompt{Entries: c.n, Budget: c.budget, Config: &model.Config{Layers: c.layers}}
		for l, want := range c.want {
			scores := [][]float32{make([]float32, c.n)}
			if err := p.Method.Score(scores, prompt, &model.Observation{Layer: l}); err != nil {
				t.Fatal(err)
			}
			if got := kernels.TopK(scores[0], c.budget); !slices.Equal(got, want) {
				t.Errorf("%s: layer %d keeps %v, want %v", c.name, l, got, want)
			}
		}
	}
}

// TestLaddersThinOldEntriesOut: over a long prompt together the layers keep more
// different entries than one layer, newer ones more densely, and the newest all.
func TestLaddersThinOldEntriesOut(t *testing.T) {
	p, err := eviction.New("lacache", 0, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	const n, budget, layers = 4096, 256, 32
	prompt := eviction.Prompt{Entries: n, Budget: budget, Config: &model.Config{Layers: layers}}
	together := make([]bool, n)
	for l := range layers {
		scores := [][]float32{make([]float32, n)}
		if err := p.Method.Score(scores, prompt, &model.Observation{Layer: l}); err != nil {
			t.Fatal(err)
		}
		kept := 0
		var thirds [3]int
		for j, v := range scores[0] {
			if v == 1 {
				kept++
				together[j] = true
				thirds[3*j/n]++
			}
		}
		if kept != budget {
			t.Fatalf("layer %d keeps %d entries", l, kept)
		}
		if thirds[0] < 4 || thirds[2] <= thirds[0] || fmt.Sprint(scores[0][n-2:]) != "[1 1]" || fmt.Sprint(scores[0][:4]) != "[1 1 1 1]" {
			t.Errorf("layer %d: %v entries in the thirds of the prompt", l, thirds)
		}
	}
	union := 0
	for _, kept := range together {
		if kept {
			union++
		}
	}
	if union < budget*5/4 {
		t.Errorf("all layers together keep %d different entries, one alone %d", union, budget)
	}
}
