package eviction

import "glimpse/kernels"

func init() {
	Policies.Add("pyramidkv", Policy{
		Kind: "prefill", Doc: "snapkv scores; layer budgets fall linearly from the first to the last layer", Source: "PyramidKV (Cai et al. 2024, arXiv:2406.02069) §3",
		Options: append(snapOptions(kernels.GroupMean), Option{Name: "beta", Default: 20, Min: 1, Max: 1e6, Doc: "the last layer's budget, without the window, is the mean's share 1/beta"}),
		New: func(s Settings) (Method, error) {
			return pyramidkv{newSnapKV(s), s.Float("beta")}, nil
		},
	})
}

type pyramidkv struct {
	snapkv
	beta float64
}

func (m pyramidkv) Plan(p Prompt) Plan {
	plan := m.snapkv.Plan(p)
	plan.Layers = pyramid(p, plan.Recent, m.beta)
	return plan
}

// pyramid is layer budgets that fall linearly: with C = B − window, the entries that are not
// protected, layer l of L gets max − l·(max−min)/(L−1)
// entries and the window, where min = C/β and max = 2C − min, or, where the prompt
// has fewer entries before the window, max that many and min = 2C − max. What rounding down
// leaves of L·B goes to the layers with the largest fractions: the published code divides in whole
// numbers and kvpress rounds each layer by itself, after which the sum is
// some entries above or below.
func pyramid(p Prompt, window int, beta float64) []int {
	layers := len(p.layers())
	c := float64(p.Budget - window)
	low := c / beta
	high := 2*c - low
	if most := float64(p.Entries - window); high > most {
		high, low = most, 2*c-most
	}
	shares := make([]float64, layers)
	for l := range shares {
		shares[l] = c // one layer alone
		if layers > 1 {
			shares[l] = high - float64(l)*(high-low)/float64(layers-1)
		}
	}
	out := apportion(shares)
	for l := range out {
		out[l] += window
	}
	return p.spread(out)
}
