package eviction

// AdaKV (Ada-KV: Optimizing KV Cache Eviction by Adaptive Budget Allocation for Efficient
// LLM Inference, Feng et al., arXiv:2407.11550, algorithm 1): with A[h][j] the scores of a
// layer's H KV heads, the budgets are the numbers of entries B*_h that each head has among
// the B·H largest of all A, and every head keeps its own B_h largest. Two safeguards are in
// use against heads that would lose everything:
//
//   - "least", kvpress's AdaKVPress: the best ⌊α·B⌋ of every head are safe, and the rest of
//     the pool goes to the highest scores that are left.
//   - "mix", the authors' own (§3.2 and their code): B_h = (1−α)·B*_h + α·B. They round every
//     B_h for itself, which may miss the pool by half an entry per head; here the largest
//     fractions are rounded up until Σ_h B_h = B·H.
func init() {
	Policies.Add("adakv", Policy{
		Kind: "prefill", Doc: "any policy's scores; the KV heads of a layer share one pool, with a floor for each", Source: "Ada-KV (Feng et al. 2024, arXiv:2407.11550) alg. 1; floor of kvpress (github.com/NVIDIA/kvpress)",
		Scores:  "scorer",
		Options: []Option{scorerOption("snapkv"), alphaOption, floorOption},
		New: func(s Settings) (Method, error) {
			scorer, err := newScorer(s)
			if err != nil {
				return nil, err
			}
			return adaptive{composed{scorer: scorer, sink: -1, recent: -1}, s.Float("alpha"), s.OptionText("floor") == "mix"}, nil
		},
	})
}

var (
	alphaOption = Option{Name: "alpha", Default: 0.2, Min: 0, Max: 1, Doc: "share of the budget that is every head's own, see floor"}
	floorOption = Option{Name: "floor", Choices: choices("least", "mix"), Doc: "least: every head keeps alpha of the budget or more (kvpress); mix: alpha of the budget and the rest of what it has in the pool (the authors)"}
)
