package eviction

import (
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/runner"
)

func init() {
	Policies.Add("oracle", Policy{
		Kind: "prefill", Doc: "mean attention of the true response: the upper bound of prefill eviction", Source: "Judge Q (Liu et al. 2025, arXiv:2509.10798) §3",
		Scorer: true,
		New:    func(Settings) (Method, error) { return oracle{}, nil },
	})
}

// oracle scores by the mean attention of the response's rows, y₁…y_m at the positions after
// the prompt (FullKV-gen of Judge Q: Trainable Queries for Optimized Information Retention in
// KV Cache Eviction, Liu et al., arXiv:2509.10798, §3): of all rows, as far as the response may
// go, since what a later token reads must be kept, too.
type oracle struct{}

// Plan replays the response; one that ended at once is replayed as its end
// token.
func (oracle) Plan(p Prompt) Plan {
	rows := model.TokenRows(p.Response)
	if len(rows) == 0 {
		rows = model.TokenRows{0}
		if len(p.Config.EOS) > 0 {
			rows[0] = p.Config.EOS[0]
		}
	}
	return Plan{
		NeedsResponse: true, Capture: runner.Capture{Probes: []model.QueryRows{rows}},
		Score: func(s *Scores, o *runner.Observation) { s.Observe(kernels.ScoreTerm{LogScore: o.Probes[0]}) },
	}
}
