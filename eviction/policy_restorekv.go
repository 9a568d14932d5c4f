package eviction

import (
	"glimpse/kernels"
)

func init() {
	Policies.Add("restorekv", Policy{
		Kind: "prefill", Doc: "mean attention of trained rows, max-pooled; the keys and values of the last rows, which have seen the whole prompt, stay within the budget", Source: "RestoreKV (arXiv:2608.01247), whose rows do not score; scores as LookaheadKV (Ahn et al. 2026, arXiv:2603.10899) has them",
		Adapter: "restorekv",
		Options: []Option{kernelOption(1), groupOption(kernels.GroupMean), stayOption},
		New: func(s Settings) (Method, error) {
			rows, err := newLearned(s)
			return restored{rows, s.Int(stayOption.Name)}, err
		},
	})
}

// stayOption is how many rows stay, in training, too.
var stayOption = Option{Name: "stay", Default: StayingRows, Min: 0, Max: 1 << 12, Whole: true, Doc: "last rows of the adapter whose keys and values stay; at most half of the budget"}

// StayingRows are the rows of an adapter that stay by default, its last ones (RestoreKV, arXiv:2608.01247, has 8).
const StayingRows = 8

// restored scores by the rows of an adapter, of which the last ones stay: they have attended to the whole cache, and what follows attends
// to them. None stays where their positions leave no room for the response.
type restored struct {
	learned
	stay int
}

func (m restored) Plan(p Prompt) Plan {
	plan := m.learned.Plan(p)
	rows := m.adapter.Rows()
	room := p.Config.MaxPositions == 0 || p.From+len(p.Tokens)+rows+p.MaxNew <= p.Config.MaxPositions
	if n := min(m.stay, rows, p.Budget/2); n > 0 && room {
		plan.Stay, plan.Staying, plan.Budget = m.adapter, n, p.Budget-n
	}
	return plan
}
