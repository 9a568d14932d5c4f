package eviction

import "glimpse/model"

func init() {
	Policies.Add("snapkv", Policy{
		Kind: "prefill", Doc: "mean attention of the last prompt rows on what is before them, max-pooled; the window is kept", Source: "SnapKV (Li et al. 2024, arXiv:2404.14469) §4; LookaheadKV (Ahn et al. 2026, arXiv:2603.10899) §2",
		Scorer:  true,
		Options: snapOptions(groupMean),
		New:     func(s Settings, _ model.Adapter) (Method, error) { return newSnapKV(s), nil },
	})
}

func snapOptions(group grouping) []Option {
	return []Option{
		{Name: "window", Default: 32, Min: 1, Max: 1 << 20, Whole: true, Doc: "last prompt rows observed and kept; at most half the budget"},
		kernelOption(7),
		groupOption(group),
	}
}

func newSnapKV(s Settings) snapkv {
	return snapkv{window: s.Int("window"), kernel: s.Int("kernel"), group: groupingOf(s)}
}

type snapkv struct {
	window, kernel int
	group          grouping
}

func (m snapkv) Capture(p Prompt) model.Capture {
	return model.Capture{Windows: []int{windowOf(m.window, p.Budget)}}
}

func (m snapkv) Score(dst [][]float32, p Prompt, o *model.Observation) error {
	return scoreBy(m, dst, p, o)
}

// formula must not leak the window's own scores into what is before it.
func (m snapkv) formula(p Prompt, o *model.Observation) (formula, bool) {
	return one(o.Windows[0], m.group).pooled(m.kernel, windowOf(m.window, p.Budget)), true
}

func (m snapkv) Protect(p Prompt) (sink, recent int) { return 0, windowOf(m.window, p.Budget) }
