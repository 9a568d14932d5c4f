package eviction

// Compose puts together what other policies bring as a whole: a score s[l][h][j],
// budgets of layers B_l (uniform, or PyramidKV's line of mean B), budgets of heads
// B_lh (uniform, or Ada-KV's with Σ_h B_lh = H·B_l), and the first and last entries
// that are kept whatever they score. Ada-PyramidKV and Ada-SnapKV (Feng et al. 2024, arXiv:2407.11550, §4)
// are two of its settings.
func init() {
	Policies.Add("compose", Policy{
		Kind: "prefill", Doc: "any policy's scores, any budgets of layers and heads, any protected entries", Source: "Ada-Pyramid by default, of Ada-KV (Feng et al. 2024, arXiv:2407.11550) §4",
		Scores: "scorer",
		Options: []Option{
			scorerOption("snapkv"),
			{Name: "layers", Choices: choices("uniform", "pyramid"), Choice: "pyramid", Doc: "budgets of layers: all alike, or pyramidkv's"},
			{Name: "heads", Choices: choices("uniform", "adaptive"), Choice: "adaptive", Doc: "budgets of the heads of a layer: all alike, or adakv's"},
			{Name: "beta", Default: 20, Min: 1, Max: 1e6, Doc: "of pyramidkv's budgets"},
			alphaOption,
			floorOption,
			{Name: "sink", Default: -1, Min: -1, Max: 1 << 20, Whole: true, Doc: "first entries kept; -1 as the scorer does"},
			{Name: "recent", Default: -1, Min: -1, Max: 1 << 20, Whole: true, Doc: "last entries kept; -1 as the scorer does"},
		},
		New: func(s Settings) (Method, error) {
			scorer, err := newScorer(s)
			if err != nil {
				return nil, err
			}
			m := composed{scorer: scorer, sink: s.Int("sink"), recent: s.Int("recent")}
			if s.OptionText("layers") == "pyramid" {
				m.beta = s.Float("beta")
			}
			if s.OptionText("heads") == "adaptive" {
				return adaptive{m, s.Float("alpha"), s.OptionText("floor") == "mix"}, nil
			}
			return m, nil
		},
	})
}
