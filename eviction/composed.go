package eviction

import "fmt"

// composed scores by one policy and selects by rules of its own: how much each
// layer and each KV head gets, and what is kept whatever its score. It evicts the
// prompt only, also where its scorer would go on while decoding.
type composed struct {
	scorer Method
	// sink and recent entries are kept; where they are negative, as the scorer does.
	sink, recent int
	// beta, where it is positive, gives the layers PyramidKV's budgets.
	beta float64
}

// newScorer makes the policy that the option scorer names, with its own options.
func newScorer(s Settings) (Method, error) {
	name := s.OptionText("scorer")
	p, err := Policies.Lookup(name)
	if err != nil {
		return nil, err
	}
	values, err := p.resolveOptions(name, s.overrides)
	if err != nil {
		return nil, err
	}
	m, err := p.New(Settings{s.Seed, s.Resources, values, p.Options, s.overrides})
	if _, ok := m.(snapPerHead); ok {
		return nil, fmt.Errorf("scorer %s: per=%s selects on its own, want per=kv-head where others select by its scores", name, perQueryHead)
	}
	return m, err
}

// scorerOption chooses among the policies that score.
func scorerOption(start string) Option {
	return Option{Name: "scorer", Choice: start, Choices: scorers, Doc: "policy whose scores select; its options are set under its own name"}
}

func scorers() (names []string) {
	for _, name := range Policies.Names() {
		if p, err := Policies.Lookup(name); err == nil && p.Scorer {
			names = append(names, name)
		}
	}
	return names
}

func (m composed) Plan(p Prompt) Plan {
	of := m.scorer.Plan(p)
	plan := Plan{
		Capture: of.Capture, Score: of.Score, Pooling: of.Pooling,
		NeedsResponse: of.NeedsResponse, Draft: of.Draft, Drafted: of.Drafted,
	}
	sink, recent := of.Sink, of.Recent
	if m.sink >= 0 {
		sink = m.sink
	}
	if m.recent >= 0 {
		recent = m.recent
	}
	plan.Sink = min(sink, p.Budget)
	plan.Recent = min(recent, p.Budget-plan.Sink)
	if m.beta > 0 {
		plan.Layers = pyramid(p, plan.Sink+plan.Recent, m.beta)
	}
	return plan
}

// adaptive is composed with AdaKV's allocation between the heads of a layer.
type adaptive struct {
	composed
	alpha float64 // share of its layer's budget that is a head's own
	mix   bool    // the authors' safeguard, see policy_adakv.go
}

func (m adaptive) Plan(p Prompt) Plan {
	plan := m.composed.Plan(p)
	plan.Heads = func(_, budget int, s *Scores) []int { return m.shares(s, budget, plan.Sink, plan.Recent) }
	return plan
}

// shares: the heads share one pool of their number times budget. Protected
// entries, and of every head the best up to its floor, are safe; the
// rest of the pool goes to the highest scores of all heads. Ties go to the lower
// head, then to the lower position.
func (m adaptive) shares(s *Scores, budget, sink, recent int) []int {
	budgets, own, rest := make([]int, len(s.Entries)), make([]int, len(s.Entries)), budget*len(s.Entries)
	least := sink + recent
	if !m.mix {
		least = max(least, int(m.alpha*float64(budget)))
	}
	for h, n := range s.Entries {
		budgets[h] = min(least, budget, n)
		rest -= budgets[h]
		own[h] = max(0, budgets[h]-sink-recent)
	}
	for h, extra := range s.Ops.ShareBudget(s.Values, s.Entries, own, sink, recent, max(0, rest)) {
		budgets[h] += extra
	}
	if !m.mix {
		return budgets
	}
	shares := make([]float64, len(budgets)) // the budgets, made without a floor, moved by α towards the same for every head
	for h, own := range budgets {
		shares[h] = (1-m.alpha)*float64(own) + m.alpha*float64(min(budget, s.Entries[h]))
	}
	return apportion(shares)
}
