package eviction_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/model"
)

func init() {
	// snapkv's scores, and budgets on a straight line from the first layer to the
	// last whose mean is the budget.
	naivePolicies["pyramidkv"] = func(c *naiveCase) naivePlan {
		p := snapkvPlan(c)
		p.budgets = c.pyramid(p.recent, c.option("beta"))
		return p
	}
}

// pyramid is the layers' budgets where so many entries are protected.
func (c *naiveCase) pyramid(protected int, beta float64) []int {
	budgets := c.uniform(0)
	layers, mean := float64(c.c.Layers), float64(c.budget-protected)
	last := mean / beta
	first := min(2*mean-last, float64(c.n()-protected)) // no layer needs more than there is
	last = 2*mean - first
	shares := make([]float64, len(budgets))
	for l := range budgets {
		shares[l] = mean
		if layers > 1 {
			shares[l] = first + (last-first)*float64(l)/(layers-1)
		}
	}
	for l, b := range wholes(shares) {
		budgets[l] = protected + b
	}
	return budgets
}

// wholes are whole numbers for shares with their sum: one entry after the other goes to the
// first of those that lack most.
func wholes(shares []float64) []int {
	out, left := make([]int, len(shares)), 0.0
	for i, x := range shares {
		out[i] = int(math.Floor(x + 1e-9))
		left += x - float64(out[i])
	}
	for ; left > 1-1e-6; left-- {
		most := 0
		for i, x := range shares {
			if x-float64(out[i]) > shares[most]-float64(out[most])+1e-9 {
				most = i
			}
		}
		out[most]++
	}
	return out
}

// TestPyramidBudgets: tables worked out on paper from policies.md: C = B − window,
// min = C/β, max = 2C − min, layer l gets max − l·(max − min)/(L − 1), plus the
// window.
func TestPyramidBudgets(t *testing.T) {
	for _, c := range []struct {
		name              string
		layers, n, budget int
		window, beta      string
		want              []int
	}{
		// C = 96, min = 4.8, max = 187.2, steps of 60.8: 187.2, 126.4, 65.6, 4.8, of which the last two
		// have the largest fractions.
		{name: "defaults", layers: 4, n: 1000, budget: 128, window: "32", beta: "20", want: []int{219, 158, 98, 37}},
		// C = 100, min = 20, max = 180, steps of 40.
		{name: "whole numbers", layers: 5, n: 1000, budget: 120, window: "20", beta: "5", want: []int{200, 160, 120, 80, 40}},
		// β = 1: min = max = C.
		{name: "flat", layers: 3, n: 1000, budget: 70, window: "10", beta: "1", want: []int{70, 70, 70}},
		// The window is 16, half of 32; C = 16, min = 0.8, max = 31.2, steps of 30.4.
		{name: "window of half the budget", layers: 2, n: 1000, budget: 32, window: "32", beta: "20", want: []int{47, 17}},
		// C = 90, max would be 171, but only 110 entries are before the window: then
		// min = 180 − 110 = 70, steps of 20.
		{name: "short prompt", layers: 3, n: 120, budget: 100, window: "10", beta: "10", want: []int{120, 100, 80}},
		{name: "one layer", layers: 1, n: 1000, budget: 100, window: "10", beta: "20", want: []int{100}},
		// C = 0.
		{name: "one entry", layers: 3, n: 9, budget: 1, window: "32", beta: "20", want: []int{1, 1, 1}},
	} {
		overrides, err := eviction.ParseOverrides([]string{"pyramidkv.window=" + c.window, "pyramidkv.beta=" + c.beta})
		if err != nil {
			t.Fatal(err)
		}
		p, err := eviction.New("pyramidkv", 0, overrides, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := p.Method.Plan(eviction.Prompt{Entries: c.n, Budget: c.budget, Config: &model.Config{Layers: c.layers}}).Layers
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		sum := 0
		for _, b := range got {
			sum += b
		}
		if sum != c.layers*c.budget {
			t.Errorf("%s: %d entries of %d", c.name, sum, c.layers*c.budget)
		}
	}
}

// TestPyramidBudgetsHaveTheMean: for any shape the layers together get what uniform
// budgets would, no layer more than the
// prompt, and none less than its window.
func TestPyramidBudgetsHaveTheMean(t *testing.T) {
	p, err := eviction.New("pyramidkv", 0, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for layers := 1; layers <= 40; layers++ {
		for _, budget := range []int{1, 2, 3, 31, 32, 63, 64, 65, 100, 128, 1024} {
			for _, n := range []int{budget + 1, budget + 2, 2 * budget, 2*budget + 33, 50 * budget} {
				got := p.Method.Plan(eviction.Prompt{Entries: n, Budget: budget, Config: &model.Config{Layers: layers}}).Layers
				name := fmt.Sprintf("layers=%d/budget=%d/n=%d", layers, budget, n)
				sum := 0
				for l, b := range got {
					sum += b
					if b < 1 || b > n || l > 0 && b > got[l-1] {
						t.Fatalf("%s: %v", name, got)
					}
				}
				if sum != layers*budget {
					t.Fatalf("%s: %d entries in all, want %d: %v", name, sum, layers*budget, got)
				}
			}
		}
	}
}
