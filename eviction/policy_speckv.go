package eviction

import (
	"fmt"

	"glimpse/kernels"
	"glimpse/model"
)

func init() {
	Policies.Add("speckv", Policy{
		Kind: "prefill", Doc: "a draft model's answer and the last prompt rows; the largest attention of any row and head", Source: "SpecKV (Galim et al. 2025, arXiv:2506.08373) alg. 1; LookaheadKV (Ahn et al. 2026, arXiv:2603.10899) §2",
		Scorer: true, Draft: true,
		Options: append(snapOptions(kernels.GroupMax), Option{Name: "tokens", Default: 32, Min: 1, Max: 4096, Whole: true, Doc: "most tokens of the draft"}),
		New: func(s Settings, _ model.Adapter) (Method, error) {
			return speckv{newSnapKV(s), s.Resources.Draft, s.Int("tokens")}, nil
		},
	})
}

// speckv is snapkv that also observes the rows of a draft which a smaller model
// wrote with its own full cache, up to its end token, and takes the largest
// probability of any row where snapkv takes the mean: s_j = max over the rows r of
// window and draft, and the heads of the group, of softmax(q_r·K/√d)_j, max-pooled.
// The draft's rows run in the target's own pass.
type speckv struct {
	snapkv
	draft  *model.Model // nil: the model itself
	tokens int
}

var (
	_ Speculator = speckv{}
	_ Fitter     = speckv{}
)

func (m speckv) DraftModel() *model.Model { return m.draft }

func (m speckv) DraftTokens() int { return m.tokens }

// Fits: the ids that the draft model writes must mean the same to the target.
func (m speckv) Fits(target *model.Model) error {
	if m.draft == nil || m.draft == target {
		return nil
	}
	if err := target.SameVocabulary(m.draft); err != nil {
		return fmt.Errorf("draft model %s: %w", m.draft.Name, err)
	}
	return nil
}

func (m speckv) Capture(p Prompt) model.Capture {
	c := model.Capture{PeakWindows: []int{windowOf(m.window, p.Budget)}}
	if len(p.Draft) > 0 { // an answer that ends at once leaves the window alone
		c.PeakProbes = []model.QueryRows{model.TokenRows(p.Draft)}
	}
	return c
}

func (m speckv) Score(s *Scores, p Prompt, o *model.Observation) error {
	scores := o.PeakWindows[0]
	if len(o.PeakProbes) > 0 {
		scores = largest(o.Cache, o.Layer, scores, o.PeakProbes[0])
	}
	s.Observe(m.termOf(scores, p))
	return nil
}
