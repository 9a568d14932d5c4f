package costmodel

import (
	"fmt"
	"slices"

	"glimpse/eviction"
	"glimpse/model"
)

// Policies makes policies for counting them: with adapters of the usual size, 32 rows and
// LoRA of rank 8 on all modules where their kind has one (LookaheadKV, arXiv:2603.10899,
// §4.1), and patterns under which all heads are alike. draft, where it is not nil, drafts
// for those that take a draft model. m needs no weights.
func Policies(m *model.Model, names []string, overrides eviction.Overrides, draft *model.Model) ([]*eviction.Configured, error) {
	counted, _ := m.Counted()
	var out []*eviction.Configured
	for _, name := range names {
		needs, err := eviction.NeedsOf(name, overrides)
		if err != nil {
			return nil, err
		}
		var r eviction.Resources
		if needs.Adapter != "" {
			if r.Adapter, err = usualAdapter(counted, needs.Adapter); err != nil {
				return nil, fmt.Errorf("policy %s: %w", name, err)
			}
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

// usualAdapter is an adapter without numbers.
func usualAdapter(counted *model.Model, name string) (model.Adapter, error) {
	kind, err := model.AdapterKinds.Lookup(name)
	if err != nil {
		return nil, err
	}
	c := model.AdapterConfig{Rows: 32, Rank: 8, Alpha: 32, Modules: model.Modules, InitToken: -1}
	if a, err := kind.New(counted, c); err == nil {
		return a, nil
	}
	return kind.New(counted, model.AdapterConfig{Rows: 32, InitToken: -1}) // rows alone
}
