package lineup

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/model"
)

// errNeeds is of a policy that lacks what only a user can give.
var errNeeds = errors.New("needs")

// policySpec is one item of a list of policies: a name, and options that this contender
// alone has: "d2o(beta=0.5, merge=mean)".
type policySpec struct {
	name string
	text string // as it is reported; "" for the policy's name
	set  eviction.Overrides
	may  bool // it may be left out, as one of all, or with "?" behind it
}

// splitPolicies splits a list with commas between.
func splitPolicies(list string) (items []string, err error) {
	for list != "" {
		end, depth := len(list), 0
		for i, c := range list {
			if c == '(' {
				depth++
			} else if c == ')' {
				depth--
			} else if c == ',' && depth == 0 {
				end = i
				break
			}
		}
		item, rest := list[:end], strings.TrimPrefix(list[end:], ",")
		if depth != 0 {
			return nil, fmt.Errorf("policy %q: a parenthesis is not closed, or not opened", strings.TrimSpace(item))
		}
		list, items = rest, append(items, strings.TrimSpace(item))
	}
	return items, nil
}

// parsePolicies reads a list with commas between; "all" are all policies that do not stand before it. Those, and
// one with "?" behind it, are left out where there is no adapter or pattern that they need.
func parsePolicies(list string) ([]policySpec, error) {
	items, err := splitPolicies(list)
	if err != nil {
		return nil, err
	}
	var out []policySpec
	for _, item := range items {
		if item == "all" {
			for _, name := range eviction.Policies.Names() {
				if s := (policySpec{name: name, may: true}); !slices.ContainsFunc(out, s.same) {
					out = append(out, s)
				}
			}
			continue
		}
		item, may := strings.CutSuffix(item, "?")
		spec, err := parsePolicy(item)
		if err != nil {
			return nil, err
		}
		spec.may = may
		out = append(out, spec)
	}
	for i, s := range out {
		if _, err := eviction.LookupPolicy(s.name); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out[:i], s.same) {
			return nil, fmt.Errorf("policy %s twice", cmp.Or(s.text, s.name))
		}
	}
	if len(out) == 0 {
		_, err := eviction.LookupPolicy("")
		return nil, err
	}
	return out, nil
}

// same tells that two items are reported by one name.
func (s policySpec) same(o policySpec) bool { return o.name == s.name && o.text == s.text }

// Union is a list of policies with what it lacks of another behind it.
func Union(list, more string) (string, error) {
	if more == "" {
		return list, nil
	}
	if list == "" {
		return more, nil
	}
	there, err := parsePolicies(list)
	if err != nil {
		return "", err
	}
	items, err := splitPolicies(more)
	if err != nil {
		return "", err
	}
	for _, item := range items {
		specs, err := parsePolicies(item)
		if err != nil {
			return "", err
		}
		if slices.ContainsFunc(specs, func(s policySpec) bool { return !slices.ContainsFunc(there, s.same) }) {
			list += "," + item
		}
	}
	return list, nil
}

func parsePolicy(item string) (policySpec, error) {
	name, options, ok := strings.Cut(item, "(")
	name = strings.TrimSpace(name)
	if !ok {
		return policySpec{name: name}, nil
	}
	options, ok = strings.CutSuffix(options, ")")
	if !ok || strings.ContainsAny(options, "()") {
		return policySpec{}, fmt.Errorf("policy %q: want NAME(OPTION=VALUE, …)", item)
	}
	var assignments, shown []string
	for o := range strings.SplitSeq(options, ",") {
		o = strings.TrimSpace(o)
		shown = append(shown, o)
		if key, _, _ := strings.Cut(o, "="); !strings.Contains(key, ".") {
			o = name + "." + o
		}
		assignments = append(assignments, o)
	}
	set, err := eviction.ParseOverrides(assignments)
	if err != nil {
		return policySpec{}, fmt.Errorf("policy %q: %w", item, err)
	}
	return policySpec{name: name, text: name + "(" + strings.Join(shown, ",") + ")", set: set}, nil
}

// CheckPolicies is an error for a list that no model can make right.
func CheckPolicies(list string) error {
	_, err := parsePolicies(list)
	return err
}

// CheckOne is an error unless the text is one policy.
func CheckOne(policy string) error {
	specs, err := parsePolicies(policy)
	if err == nil && len(specs) != 1 {
		err = fmt.Errorf("policy: got the %d policies %s, want one; evict eval --policy A,B --out DIR measures several, and evict report DIR shows what each keeps", len(specs), policy)
	}
	return err
}

// PolicyNames are the names in a list of policies, without their options.
func PolicyNames(list string) ([]string, error) {
	specs, err := parsePolicies(list)
	var out []string
	for _, s := range specs {
		out = append(out, s.name)
	}
	return out, err
}

// merged is options over others.
func merged(under, over eviction.Overrides) eviction.Overrides {
	out := make(eviction.Overrides, len(under))
	for policy, options := range under {
		out[policy] = maps.Clone(options)
	}
	for policy, options := range over {
		if out[policy] == nil {
			out[policy] = make(map[string]float64)
		}
		maps.Copy(out[policy], options)
	}
	return out
}

// Contenders makes the named policies; a learned one once per adapter of its kind,
// one that takes a draft once per draft model. A name may have options of its own:
// "snapkv,snapkv(kernel=1)" are two. What was given on the command line and no policy takes
// is an error, and so is what does not fit the model. Of "all", and of those with "?" behind them,
// are left out what needs an adapter or a pattern that there is none of; LeftOut says which.
func (l *Lineup) Contenders(list string) ([]evaluation.Contender, error) {
	out, names, err := l.contenders(list)
	if err != nil {
		return nil, err
	}
	return out, l.checkUsed(names, out)
}

// contenders makes policies, and tells the name of each.
func (l *Lineup) contenders(list string) (out []evaluation.Contender, names []string, err error) {
	specs, err := parsePolicies(list)
	if err != nil {
		return nil, nil, err
	}
	l.LeftOut = nil
	for _, spec := range specs {
		own := *l
		own.overrides, own.set = merged(l.overrides, spec.set), merged(l.set, spec.set)
		more, err := own.variants(spec.name)
		if errors.Is(err, errNeeds) && spec.may {
			l.LeftOut = append(l.LeftOut, err.Error())
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		for i := range more {
			more[i].Label = spec.text
		}
		out, names = append(out, more...), append(names, spec.name)
	}
	return out, names, nil
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
			return nil, needsAdapter(name, needs.Adapter)
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
				return nil, fmt.Errorf("policy %s: %w a pattern of retrieval heads; find one with evict patterns and give it with --pattern", name, errNeeds)
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
		if a.asked != "" && !used(func(r eviction.Resources) bool { // one of those of a registry is enough
			return slices.ContainsFunc(l.adapters, func(o adapter) bool { return o.asked == a.asked && r.Adapter == o.Adapter })
		}) {
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
	return single(policy, c, err)
}

// Another is One for a policy that takes the place of one: what the command line gave for
// that one is not asked for.
func (l *Lineup) Another(policy string) (evaluation.Contender, error) {
	c, _, err := l.contenders(policy)
	return single(policy, c, err)
}

func single(policy string, c []evaluation.Contender, err error) (evaluation.Contender, error) {
	if err = cmp.Or(err, CheckOne(policy)); err != nil {
		return evaluation.Contender{}, err
	}
	if len(c) != 1 {
		var names []string
		for _, v := range c {
			names = append(names, v.Adapter)
		}
		return evaluation.Contender{}, fmt.Errorf("policy %s: got %d adapters or drafts for it, %s, want one; evict eval measures each of several", policy, len(c), strings.Join(names, " and "))
	}
	return c[0], nil
}
