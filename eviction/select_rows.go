package eviction

import (
	"glimpse/kernels"
	"glimpse/model/runner"
)

// Stays tells that rows of the policy's adapter stay in the cache (Plan.Stay).
func (n *Configured) Stays() bool {
	p := tinyPrompt()
	p.Budget = 2 // one row may stay, of half a budget
	return n.Method.Plan(p).Stay != nil
}

// SelectRows is what a policy whose scores are of one probe keeps of a layer's past by given scores of that, logarithms [heads, entries]:
// indices by KV head, nil of a layer that it does not decide about. In training there is no session to ask.
func (n *Configured) SelectRows(p Prompt, layer int, past []kernels.KV, on kernels.Backend, logScore *kernels.Tensor) [][]int32 {
	if !p.decides(layer) {
		return nil
	}
	p, plan := n.plan(p)
	s := &Scores{Ops: on.Selector()}
	for _, kv := range past {
		s.Entries = append(s.Entries, kv.Entries())
	}
	plan.Score(s, &runner.Observation{Layer: layer, Probes: []*kernels.Tensor{logScore}})
	return plan.selectLayer(plan.Pooling.Of(s), layer, plan.layerBudget(layer, p.Budget)).Indices()
}
