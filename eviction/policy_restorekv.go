package eviction

import (
	"glimpse/kernels"
	"glimpse/model"
)

func init() {
	Policies.Add("restorekv", Policy{
		Kind: "prefill", Doc: "mean attention of trained rows, max-pooled, or another policy's scores; the keys and values of the last rows, which have seen the whole prompt, stay within the budget", Source: "RestoreKV (arXiv:2608.01247), whose rows do not score; scores as LookaheadKV (Ahn et al. 2026, arXiv:2603.10899) has them",
		Adapter: "restorekv", Scorer: true, Scores: "scorer",
		Options: []Option{scorerOption("restorekv"), kernelOption(1), groupOption(kernels.GroupMean), stayOption},
		New: func(s Settings) (Method, error) {
			rows, err := newLearned(s)
			m := restored{composed: composed{scorer: rows, sink: -1, recent: -1}, rows: rows.adapter, stay: s.Int(stayOption.Name)}
			if err == nil && s.OptionText("scorer") != "restorekv" {
				s.Resources.Adapter, s.Resources.Scorer = s.Resources.Scorer, nil
				m.scorer, err = newScorer(s)
			}
			return m, err
		},
	})
}

// stayOption is how many rows stay, in training, too.
var stayOption = Option{Name: "stay", Default: StayingRows, Min: 0, Max: 1 << 12, Whole: true, Doc: "last rows of the adapter whose keys and values stay; at most half of the budget"}

// StayingRows are the rows of an adapter that stay by default, its last ones (RestoreKV, arXiv:2608.01247, has 8).
const StayingRows = 8

// restored keeps what a policy scores highest: its own rows or another one. Its last rows stay, too: they have attended to the whole
// cache, and what follows attends to them. None stays where their positions leave no room for the response.
type restored struct {
	composed
	rows model.RowsAdapter
	stay int
}

func (m restored) Plan(p Prompt) Plan {
	rows := m.rows.Rows()
	room := p.Config.MaxPositions == 0 || p.From+len(p.Tokens)+rows+p.MaxNew <= p.Config.MaxPositions
	n := min(m.stay, rows, p.Budget/2)
	if n < 1 || !room {
		return m.composed.Plan(p)
	}
	p.Budget -= n
	plan := m.composed.Plan(p)
	plan.Stay, plan.Staying, plan.Budget = m.rows, n, p.Budget
	return plan
}
