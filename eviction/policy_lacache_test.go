package eviction_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

func init() {
	naivePolicies["lacache"] = func(c *naiveCase) naivePlan {
		scores := make([][][]float64, c.c.Layers)
		for l := range scores {
			for range c.c.KVHeads {
				s := make([]float64, c.n())
				marks := ladder
				if c.text("variant") == "code" {
					marks = thinLadder
				}
				for j, kept := range marks(c, l) {
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

// thinLadder tells which entries layer l keeps by the authors' code: once or twice, an entry
// of what is left stays if it is no part of a ladder or stands on one of its steps.
func thinLadder(c *naiveCase, l int) []bool {
	layers, n, over := c.c.Layers, c.n(), c.n()-c.budget
	span := max(1, min(c.int("span"), layers/2))
	stride := float64(span - min(c.int("overlap"), span-1))
	length := max(2, 1+int(math.Ceil(float64(layers-span)/stride)))
	steps := int(math.Ceil(float64(span) / stride))
	sink := min(c.int("sink"), c.budget/2)
	ladders := max(1, (c.budget-sink-min(layers, max(0, c.budget-sink-steps)))/steps)
	left := make([]int, n)
	for j := range left {
		left[j] = j
	}
	thin := func(length, apart, count int) {
		first := l % (length - steps + 1)
		var stays []int
		for at, j := range left {
			ok := at < sink || at >= sink+length*count
			for k := range steps {
				from := at - sink - first - apart*k
				ok = ok || from >= 0 && from%length == 0 && from/length < count
			}
			if ok {
				stays = append(stays, j)
			}
		}
		left = stays
	}
	each := length - steps
	first := min(ladders, (over+each-1)/each)
	thin(length, 1, first)
	if over -= first * each; over > 0 {
		rounds := (over + ladders*each - 1) / (ladders * each)
		long := length + (rounds-1)*(length-1)
		thin(long, rounds, (over+long-steps-1)/(long-steps))
	}
	alive := make([]bool, n)
	for _, j := range left {
		alive[j] = true
	}
	for j, missing := n-1, c.budget-len(left); missing > 0; j-- {
		if !alive[j] {
			alive[j] = true
			missing--
		}
	}
	return alive
}

// ladderScores are those of n entries of a head.
func ladderScores(t *testing.T, p *eviction.Configured, prompt eviction.Prompt, layer, n int) []float32 {
	t.Helper()
	s := cpuScores(t, n)
	p.Method.Plan(prompt).Score(s, &runner.Observation{Layer: layer})
	return s.Rows()[0]
}

// ladderOf is what a layer keeps of a prompt.
func ladderOf(t *testing.T, p *eviction.Configured, layers, layer, n, budget int) []int32 {
	t.Helper()
	prompt := eviction.Prompt{Entries: n, Budget: budget, Config: &model.Config{Layers: layers}}
	return kernels.TopK(ladderScores(t, p, prompt, layer, n), budget)
}

// TestLaddersOfTheAuthorsCode: what the class LaCache of GATECH-EIC/LaCache (kv_cache.py)
// keeps of a prompt, run without its widening of the cache by half a ladder. Where its last
// ladder drops too much, the newest of that stay here.
func TestLaddersOfTheAuthorsCode(t *testing.T) {
	for _, c := range []struct {
		layers, n, budget, sink, span, overlap int
		want                                   [][]int32 // by layer, from the first
	}{
		{2, 6, 4, 0, 1, 0, [][]int32{{0, 2, 4, 5}, {1, 3, 4, 5}}},
		{2, 16, 8, 2, 1, 0, [][]int32{{0, 1, 2, 6, 10, 12, 14, 15}, {0, 1, 5, 9, 11, 13, 14, 15}}},
		{4, 26, 14, 2, 2, 0, [][]int32{
			{0, 1, 2, 6, 10, 14, 18, 19, 20, 21, 22, 23, 24, 25}, {0, 1, 5, 9, 13, 17, 18, 19, 20, 21, 22, 23, 24, 25},
			{0, 1, 2, 6, 10, 14, 18, 19, 20, 21, 22, 23, 24, 25}, {0, 1, 5, 9, 13, 17, 18, 19, 20, 21, 22, 23, 24, 25}}},
		{4, 40, 12, 2, 2, 0, [][]int32{
			{0, 1, 2, 12, 18, 23, 28, 33, 38, 39}, {0, 1, 5, 14, 19, 24, 29, 34, 38, 39},
			{0, 1, 6, 15, 20, 25, 30, 35, 38, 39}, {0, 1, 9, 16, 21, 26, 31, 36, 38, 39}}},
		{4, 18, 14, 1, 2, 1, [][]int32{
			{0, 1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 15, 16, 17}, {0, 2, 3, 5, 6, 8, 9, 11, 12, 13, 14, 15, 16, 17}}},
		{8, 90, 24, 4, 2, 0, [][]int32{
			{0, 1, 2, 3, 4, 20, 36, 52, 56, 60, 64, 68, 72, 76, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89},
			{0, 1, 2, 3, 9, 25, 41, 53, 57, 61, 65, 69, 73, 77, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89},
			{0, 1, 2, 3, 14, 30, 46, 54, 58, 62, 66, 70, 74, 78, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89}}},
	} {
		name := fmt.Sprintf("%d layers, %d of %d, span %d, overlap %d", c.layers, c.budget, c.n, c.span, c.overlap)
		overrides, err := eviction.ParseOverrides([]string{"lacache.variant=code", fmt.Sprintf("lacache.sink=%d", c.sink), fmt.Sprintf("lacache.span=%d", c.span), fmt.Sprintf("lacache.overlap=%d", c.overlap)})
		if err != nil {
			t.Fatal(err)
		}
		p, err := eviction.New("lacache", 0, overrides, nil)
		if err != nil {
			t.Fatal(err)
		}
		for l, want := range c.want {
			missing := c.budget - len(want)
			for j := int32(c.n - 1); missing > 0; j-- {
				if !slices.Contains(want, j) {
					want, missing = append(want, j), missing-1
				}
			}
			slices.Sort(want)
			if got := ladderOf(t, p, c.layers, l, c.n, c.budget); !slices.Equal(got, want) {
				t.Errorf("%s: layer %d keeps %v, want %v", name, l, got, want)
			}
		}
	}
}

// TestLadderVariantsDiffer: how much of what the layers keep by the paper's ladders they keep
// by the code's, on average over 32 layers.
func TestLadderVariantsDiffer(t *testing.T) {
	m := modeltest.Llama{}.Open(t, "cpu")
	paper, code := policy(t, m, "lacache"), policy(t, m, "lacache", "lacache.variant=code")
	for _, c := range [][2]int{{1024, 512}, {4096, 1024}, {4096, 512}, {4096, 256}} {
		const layers = 32
		n, budget, mean := c[0], c[1], 0.0
		for l := range layers {
			a, b := ladderOf(t, paper, layers, l, n, budget), ladderOf(t, code, layers, l, n, budget)
			both := 0
			for _, j := range a {
				if slices.Contains(b, j) {
					both++
				}
			}
			mean += float64(both) / float64(len(a)+len(b)-both) / layers
		}
		t.Logf("%d of %d: intersection over union %.2f", budget, n, mean)
		if mean < 0.1 || mean > 0.8 {
			t.Errorf("%d of %d: intersection over union %.2f", budget, n, mean)
		}
	}
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
			if got := kernels.TopK(ladderScores(t, p, prompt, l, c.n), c.budget); !slices.Equal(got, want) {
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
		scores := ladderScores(t, p, prompt, l, n)
		kept := 0
		var thirds [3]int
		for j, v := range scores {
			if v == 1 {
				kept++
				together[j] = true
				thirds[3*j/n]++
			}
		}
		if kept != budget {
			t.Fatalf("layer %d keeps %d entries", l, kept)
		}
		if thirds[0] < 4 || thirds[2] <= thirds[0] || fmt.Sprint(scores[n-2:]) != "[1 1]" || fmt.Sprint(scores[:4]) != "[1 1 1 1]" {
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
