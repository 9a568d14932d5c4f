package eviction

import "glimpse/model"

// AdaKV (Ada-KV, Feng et al. 2024, algorithm 1): with A[h][j] the scores of a layer's
// H KV heads, the budgets are the numbers of entries that each head has among the
// B·H largest of all A, Σ_h B_h = B·H, and every head keeps its own B_h largest. Its
// safeguard (§3.2) leaves every head at least α·B.
func init() {
	Policies.Add("adakv", Policy{
		Kind: "prefill", Doc: "any policy's scores; the KV heads of a layer share one pool, with a floor for each", Source: "Ada-KV (Feng et al. 2024) alg. 1, §3.2",
		Scores:  "scorer",
		Options: []Option{scorerOption(), alphaOption},
		New: func(s Settings, adapter model.Adapter) (Method, error) {
			scorer, err := newScorer(s, adapter)
			if err != nil {
				return nil, err
			}
			return adaptive{composed{scorer: scorer, sink: -1, recent: -1}, s.Float("alpha")}, nil
		},
	})
}

var alphaOption = Option{Name: "alpha", Default: 0.2, Min: 0, Max: 1, Doc: "every head keeps at least this share of the budget"}
