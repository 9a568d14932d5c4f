package eviction_test

import (
	"testing"

	"glimpse/eviction"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestWorkload: what a session holds after its prompt and while decoding is what the
// policy's workload says, and a prompt within the budget is no work.
func TestWorkload(t *testing.T) {
	const tokens, budget, maxNew = 90, 24, 6
	m := modeltest.Llama{Layers: 3, MaxPositions: 256}.Open(t, "cpu")
	for _, name := range modeltest.Some(t, eviction.Policies.Names()) {
		t.Run(name, func(t *testing.T) {
			p := policy(t, m, name)
			rt := eviction.NewRuntime(m)
			s, err := rt.Prefill(background, p, eviction.Prompt{Tokens: modeltest.Tokens(m, 1, tokens), MaxNew: maxNew, Budget: budget, Response: make([]int32, maxNew)})
			if err != nil {
				t.Fatal(err)
			}
			w := p.Workload(&m.Config, tokens, budget, maxNew)
			held, limit := 0, 0
			for l := range w.Held {
				held += w.Held[l] * m.Config.KVHeads
				if w.Limit != nil {
					limit += w.Limit[l] * m.Config.KVHeads
				}
			}
			// Shares that are rounded down leave entries unused.
			if got := entriesOf(s.Cache); got > held || got < held*9/10 {
				t.Errorf("%d entries are held after the prompt, the workload has %d", got, held)
			}
			if _, _, err := s.Generate(background, runner.GenerateOptions{MaxNew: maxNew, IgnoreEnd: true}); err != nil {
				t.Fatal(err)
			}
			grown := held + (maxNew-1)*m.Config.Layers*m.Config.KVHeads
			if w.Limit != nil {
				grown = min(grown, limit)
			}
			if got := entriesOf(s.Cache); got > grown || got < grown*9/10 {
				t.Errorf("%d entries are held after the response, the workload has %d", got, grown)
			}
			idle := p.Workload(&m.Config, budget, budget, maxNew)
			for l, n := range idle.Held {
				if n != budget {
					t.Errorf("layer %d holds %d of a prompt of %d within the budget", l, n, budget)
				}
			}
			if idle.Draft > 0 || idle.Merges || len(idle.Capture.Probes)+len(idle.Capture.PeakProbes) > 0 {
				t.Errorf("a prompt within the budget is work: %+v", idle)
			}
		})
	}
}

// entriesOf are the pairs in all layers and heads.
func entriesOf(c *kvcache.Cache) (n int) {
	for l := range c.Layers() {
		for h := range c.KVHeads() {
			n += c.Entries(l, h)
		}
	}
	return n
}
