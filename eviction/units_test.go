package eviction_test

import (
	"errors"
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestUnitsAfterThePrompt: what a policy does after the last layer, over all of them, is done layer by layer: between two units
// none has selected or evicted more than one, and a prompt may be ended there.
func TestUnitsAfterThePrompt(t *testing.T) {
	m := modeltest.Llama{Layers: 4, Heads: 4, KVHeads: 2, MaxPositions: 256}.Open(t, "cpu")
	const tokens, budget = 90, 24
	for _, c := range []struct {
		policy string
		least  int // units beside those of the prompt's layers, of which the last ends the turn
	}{{"snapkv", 0}, {"d2o", 2 * m.Config.Layers}, {"laq", 2*m.Config.Layers - 1}} {
		units := func(p *eviction.Configured, last int) (units int, held []int, err error) {
			s, err := eviction.NewRuntime(m).NewSession(p, eviction.Pairs(budget))
			if err != nil {
				t.Fatal(err)
			}
			stop := errors.New("stop")
			err = s.Turn(runner.WithPause(background, func() error {
				held = append(held, s.Cache.Pairs())
				if units++; units == last {
					return stop
				}
				return nil
			}), eviction.Prompt{Tokens: modeltest.Tokens(m, 1, tokens), MaxNew: 4})
			if err != nil && !errors.Is(err, stop) {
				t.Fatal(err)
			}
			return units, held, err
		}
		p := policy(t, m, c.policy)
		n, held, _ := units(p, -1)
		if n < m.Config.Layers+c.least {
			t.Errorf("%s: %d units, want at least %d and %d", c.policy, n, m.Config.Layers, c.least)
		}
		layer := tokens * m.Config.KVHeads
		for i := range held[1:] {
			if held[i]-held[i+1] > layer {
				t.Errorf("%s: in unit %d %d pairs go, want at most %d, a layer's", c.policy, i+1, held[i]-held[i+1], layer)
			}
		}
		if c.least > 0 && slices.Max(held) != tokens*m.Config.Layers*m.Config.KVHeads {
			t.Errorf("%s: %d pairs at most, want those of all layers", c.policy, slices.Max(held))
		}
		for last := 1; last <= n; last++ {
			if _, _, err := units(p, last); err == nil {
				t.Errorf("%s: a prompt that is ended in unit %d goes on", c.policy, last)
			}
		}
	}
}
