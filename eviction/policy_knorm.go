package eviction

import "glimpse/model/runner"

func init() {
	Policies.Add("knorm", Policy{
		Kind: "prefill", Doc: "the keys of lowest norm, without any attention", Source: "A Simple and Effective L2 Norm-Based Strategy for KV Cache Compression (Devoto et al. 2024, arXiv:2406.11430) §3",
		Scorer: true,
		New:    func(Settings) (Method, error) { return knorm{}, nil },
	})
}

// knorm keeps the B entries of every head with the smallest ‖k_j‖₂ (Devoto et al.
// 2024 §3: keys of small norm get high attention). Rotations leave norms alone. The
// paper leaves some first layers alone; here all layers evict.
type knorm struct{}

// Plan scores by 1/(1 + ‖k‖₂), which falls with the norm and is never negative.
func (knorm) Plan(Prompt) Plan {
	return Plan{Score: func(s *Scores, o *runner.Observation) {
		s.Values = s.Alloc()
		s.Ops.KeyScores(s.Values, o.Cache.View(o.Layer))
	}}
}
