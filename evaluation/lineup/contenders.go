package lineup

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/model"
)

// Contenders makes the named policies; a learned one once per adapter of its kind,
// one that takes a draft once per draft model. What was given on the command line
// and no policy takes is an error, and so is what does not fit the model.
func (l *Lineup) Contenders(list string) ([]evaluation.Contender, error) {
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if name == "all" {
			names = append(names, eviction.Policies.Names()...)
		} else {
			names = append(names, name)
		}
	}
	var out []evaluation.Contender
	for i, name := range names {
		if _, err := eviction.LookupPolicy(name); err != nil {
			return nil, err
		}
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("policy %s twice", name)
		}
		more, err := l.variants(name)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, l.checkUsed(names, out)
}

// variants are the contenders of one policy.
func (l *Lineup) variants(name string) ([]evaluation.Contender, error) {
	needs, err := eviction.NeedsOf(name, l.overrides)
	if err != nil {
		return nil, err
	}
	type variant struct {
		label     string
		overrides eviction.Overrides
		resources eviction.Resources
	}
	var variants []variant
	switch {
	case needs.Adapter != "":
		for _, a := range l.adapters {
			if model.PolicyOf(a.Kind()) == needs.Adapter {
				variants = append(variants, variant{a.name, l.withPooling(needs.Scorer, a.pooling), eviction.Resources{Adapter: a.Adapter}})
			}
		}
		if len(variants) == 0 {
			return nil, fmt.Errorf("policy %s: needs an adapter of kind %q; train one and give it with --adapter", name, needs.Adapter)
		}
	case needs.Draft && len(l.drafts) > 0:
		for _, d := range l.drafts {
			variants = append(variants, variant{d.name, l.overrides, eviction.Resources{Draft: d.model}})
		}
	default:
		variants = []variant{{overrides: l.overrides}}
	}
	var out []evaluation.Contender
	for _, v := range variants {
		if needs.Pattern {
			if v.resources.Pattern = l.pattern; l.pattern == nil {
				return nil, fmt.Errorf("policy %s: needs a pattern of retrieval heads; find one with evict patterns and give it with --pattern", name)
			}
		}
		named, err := eviction.NewWith(name, l.seed, v.overrides, v.resources)
		if err != nil {
			return nil, err
		}
		if err := named.Fits(l.Model); err != nil {
			return nil, err
		}
		out = append(out, evaluation.Contender{Configured: named, Adapter: v.label})
	}
	return out, nil
}

// checkUsed refuses resources of the command line that none of the policies takes:
// whoever gave them expects them to matter.
func (l *Lineup) checkUsed(names []string, contenders []evaluation.Contender) error {
	used := func(takes func(eviction.Resources) bool) bool {
		return slices.ContainsFunc(contenders, func(c evaluation.Contender) bool { return takes(c.Settings.Resources) })
	}
	list := strings.Join(names, ", ")
	for _, a := range l.adapters {
		if a.asked && !used(func(r eviction.Resources) bool { return r.Adapter == a.Adapter }) {
			return fmt.Errorf("adapter %q of kind %q: no policy of %s takes it", a.name, a.Kind(), list)
		}
	}
	for _, d := range l.drafts {
		if !used(func(r eviction.Resources) bool { return r.Draft == d.model }) {
			return fmt.Errorf("draft %q: no policy of %s takes it", d.name, list)
		}
	}
	if l.asked.Pattern != "" && !used(func(r eviction.Resources) bool { return r.Pattern != nil }) {
		return fmt.Errorf("pattern %q: no policy of %s takes it", l.asked.Pattern, list)
	}
	return nil
}

// withPooling sets the kernel that the adapter asks for, unless the command line
// chose one.
func (l *Lineup) withPooling(policy string, kernel int) eviction.Overrides {
	out := maps.Clone(l.overrides)
	out[policy] = maps.Clone(out[policy])
	if out[policy] == nil {
		out[policy] = make(map[string]float64)
	}
	if _, chosen := l.set[policy]["kernel"]; !chosen {
		out[policy]["kernel"] = float64(kernel)
	}
	return out
}

// One is the single contender of a policy name.
func (l *Lineup) One(policy string) (evaluation.Contender, error) {
	c, err := l.Contenders(policy)
	if err != nil {
		return evaluation.Contender{}, err
	}
	if len(c) != 1 {
		return evaluation.Contender{}, fmt.Errorf("policy %s: %d variants by adapter or draft, want one", policy, len(c))
	}
	return c[0], nil
}
