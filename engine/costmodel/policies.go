package costmodel

import (
	"slices"

	"glimpse/eviction"
	"glimpse/model"
)

// Policies makes policies for counting them: with adapters of the usual size
// ([eviction.CountedResources]), and patterns under which all heads are alike. draft, where it is not nil, drafts
// for those that take a draft model. m needs no weights.
func Policies(m *model.Model, names []string, overrides eviction.Overrides, draft *model.Model) ([]*eviction.Configured, error) {
	counted, _ := m.Counted()
	var out []*eviction.Configured
	for _, name := range names {
		needs, err := eviction.NeedsOf(name, overrides)
		if err != nil {
			return nil, err
		}
		r, err := eviction.CountedResources(counted, name, overrides)
		if err != nil {
			return nil, err
		}
		if needs.Draft {
			r.Draft = draft
		}
		if needs.Pattern {
			r.Pattern = &eviction.Pattern{Heads: slices.Repeat([][]float64{make([]float64, m.Config.KVHeads)}, m.Config.Layers)}
		}
		p, err := eviction.NewWith(name, 0, overrides, r)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}
