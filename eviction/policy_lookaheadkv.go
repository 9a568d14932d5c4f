package eviction

import "glimpse/model"

func init() {
	Policies.Add("lookaheadkv", Policy{
		Kind: "prefill", Doc: "mean attention of trained lookahead rows with Lookahead LoRA, max-pooled", Source: "lookaheadkv.txt §3, app. A, F",
		Adapter: "lookaheadkv",
		Options: []Option{kernelOption(7)},
		New: func(s Settings, a model.Adapter) (Method, error) {
			return learned{a, s.Int("kernel")}, nil
		},
	})
}
