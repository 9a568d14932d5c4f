package engine

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"glimpse/eviction"
	"glimpse/internal/commands"
	"glimpse/model"
)

// Policy is a policy made ready for a model, with the name of the adapter that it takes.
type Policy struct {
	*eviction.Configured
	Label   string // that it is reported by; "" is the policy's name
	Adapter string // or draft model; "" for policies without one
	sum     string // SHA-256 of the adapter
}

// Title is what results are reported by.
func (p Policy) Title() string { return cmp.Or(p.Label, p.Configured.Name) }

// AdapterSHA256 is that of the policy's adapter, "" where it has none.
func (p Policy) AdapterSHA256() string { return p.sum }

// NameWithAdapter is the policy's name, with a slash and the adapter's behind it where it takes one.
func (p Policy) NameWithAdapter() string { return NameWithAdapter(p.Configured.Name, p.Adapter) }

// NameWithAdapter is a policy's name, with a slash and the adapter's behind it unless that is "".
func NameWithAdapter(policy, adapter string) string {
	if adapter == "" {
		return policy
	}
	return policy + "/" + adapter
}

// errNeeds is of a policy that lacks what only a user can give.
var errNeeds = errors.New("needs")

// policySpec is one item of a list of policies: a name, and options that it
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

// CheckOne is an error unless the text is one policy.
func CheckOne(policy string) error {
	specs, err := parsePolicies(policy)
	if err == nil && len(specs) != 1 {
		err = fmt.Errorf("policy: got the %d policies %s, want one; \"%s\" measures several, and \"%s\" shows what each keeps", len(specs), policy,
			commands.Compare.With("policies", policy), commands.Report.With())
	}
	return err
}

// PolicyNames are the names in a list of policies, without their options. A list that no model can make right is an error.
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

// Policies makes the policies of a list; a learned one once per adapter of its kind,
// one that takes a draft once per draft model. A name may have options of its own:
// "snapkv,snapkv(kernel=1)" are two. What was given on the command line and no policy takes
// is an error, and so is what does not fit the model. Of "all", and of those with "?" behind them,
// are left out what needs an adapter or a pattern that there is none of; leftOut says which, and why.
func (m *Model) Policies(list string) (out []Policy, leftOut []string, err error) {
	if out, leftOut, err = m.policies(list); err == nil {
		err = m.checkUsed(out)
	}
	return out, leftOut, err
}

// policies makes the policies of a list, which need not take all that was given.
func (m *Model) policies(list string) (out []Policy, leftOut []string, err error) {
	specs, err := parsePolicies(list)
	if err != nil {
		return nil, nil, err
	}
	for _, spec := range specs {
		more, err := m.variants(spec)
		if errors.Is(err, errNeeds) && spec.may {
			leftOut = append(leftOut, err.Error())
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		out = append(out, more...)
	}
	return out, leftOut, nil
}

// variants are one policy with each adapter or draft that it takes.
func (m *Model) variants(spec policySpec) ([]Policy, error) {
	overrides, set := merged(m.overrides, spec.set), merged(m.set, spec.set)
	needs, err := eviction.NeedsOf(spec.name, overrides)
	if err != nil {
		return nil, err
	}
	if needs.Pattern && m.pattern == nil {
		return nil, fmt.Errorf("policy %s: %w a pattern of retrieval heads; \"%s\" finds one, and --pattern takes it", spec.name, errNeeds,
			commands.Patterns.With("model", m.asked.Model))
	}
	var out []Policy
	add := func(adapter, sum string, overrides eviction.Overrides, r eviction.Resources) error {
		if needs.Pattern {
			r.Pattern = m.pattern
		}
		named, err := m.asked.configure(spec.name, overrides, r, m.learnedHeads)
		if err == nil {
			err = named.Fits(m.Model)
		}
		out = append(out, Policy{named, spec.text, adapter, sum})
		return err
	}
	switch {
	case needs.Adapter != "":
		for _, a := range m.adapters {
			if model.PolicyOf(a.Kind()) != needs.Adapter {
				continue
			}
			scorer, r := a, eviction.Resources{Adapter: a.Adapter}
			if needs.ScorerAdapter != "" {
				i := slices.IndexFunc(m.adapters, func(o adapter) bool { return model.PolicyOf(o.Kind()) == needs.ScorerAdapter })
				if i < 0 {
					return nil, Lack{spec.name, needs.ScorerAdapter}.error()
				}
				scorer = m.adapters[i]
				r.Scorer = scorer.Adapter
			}
			own := overrides
			if _, chosen := set[needs.Scorer]["kernel"]; !chosen { // else as the adapter asks for
				own = merged(overrides, eviction.Overrides{needs.Scorer: {"kernel": float64(scorer.stored.PoolingKernel)}})
			}
			if err := add(a.name, a.sum, own, r); err != nil {
				return nil, err
			}
		}
		if out == nil {
			return nil, Lack{spec.name, needs.Adapter}.error()
		}
	case needs.Draft && len(m.drafts) > 0:
		for _, d := range m.drafts {
			if err := add(d.name, "", overrides, eviction.Resources{Draft: d.model}); err != nil {
				return nil, err
			}
		}
	default:
		err = add("", "", overrides, eviction.Resources{})
	}
	return out, err
}

// checkUsed refuses resources of the command line that none of the policies takes:
// whoever gave them expects them to matter.
func (m *Model) checkUsed(policies []Policy) error {
	used := func(takes func(eviction.Resources) bool) bool {
		return slices.ContainsFunc(policies, func(p Policy) bool { return takes(p.Settings.Resources) })
	}
	var names []string
	for i, p := range policies {
		if i == 0 || p.Title() != policies[i-1].Title() { // once for all adapters
			names = append(names, p.Configured.Name)
		}
	}
	list := strings.Join(names, ", ")
	for _, a := range m.adapters {
		if a.asked != "" && !used(func(r eviction.Resources) bool { // one of a registry's is enough
			return slices.ContainsFunc(m.adapters, func(o adapter) bool { return o.asked == a.asked && (r.Adapter == o.Adapter || r.Scorer == o.Adapter) })
		}) {
			return fmt.Errorf("adapter %q of kind %q: no policy of %s takes it", a.name, a.Kind(), list)
		}
	}
	for _, d := range m.drafts {
		if !used(func(r eviction.Resources) bool { return r.Draft == d.model }) {
			return fmt.Errorf("draft %q: no policy of %s takes it", d.name, list)
		}
	}
	if how, _ := m.asked.headsOf(); how > 0 && !m.asked.HeadsByDefault && !slices.ContainsFunc(policies, func(p Policy) bool { return p.HeadSharing() != eviction.HeadSharings()[0] }) {
		return fmt.Errorf("--heads %s: %s: %w", m.asked.Heads, list, eviction.ErrSharesHeads)
	}
	if m.asked.Pattern != "" && !used(func(r eviction.Resources) bool { return r.Pattern != nil }) {
		return fmt.Errorf("pattern %q: no policy of %s takes it", m.asked.Pattern, list)
	}
	return nil
}

// Policy is the single policy of a name.
func (m *Model) Policy(name string) (Policy, error) {
	all, _, err := m.Policies(name)
	return single(name, all, err)
}

// PolicyWith is Policy for one that takes the place of one, so that what the command line gave for that one is not asked
// for. It takes an adapter or a draft of the name; "" takes any, and there must be exactly one.
func (m *Model) PolicyWith(name, adapter string) (Policy, error) {
	all, _, err := m.policies(name)
	if adapter != "" && err == nil {
		all = slices.DeleteFunc(all, func(p Policy) bool { return p.Adapter != adapter })
		if len(all) == 0 {
			return Policy{}, fmt.Errorf("policy %s: no adapter or draft named %q", name, adapter)
		}
	}
	return single(name, all, err)
}

// FirstPolicy is PolicyWith for any adapter or draft, of several the one that has been there longest: it stays when others come.
func (m *Model) FirstPolicy(name string) (Policy, error) {
	all, _, err := m.policies(name)
	if err == nil && len(all) > 1 && CheckOne(name) == nil {
		all = all[:1]
	}
	return single(name, all, err)
}

func single(name string, all []Policy, err error) (Policy, error) {
	if err = cmp.Or(err, CheckOne(name)); err != nil {
		return Policy{}, err
	}
	if len(all) != 1 {
		var names []string
		for _, p := range all {
			names = append(names, p.Adapter)
		}
		return Policy{}, fmt.Errorf("policy %s: got %d adapters or drafts for it, %s, want one; evict eval measures each of several", name, len(all), strings.Join(names, " and "))
	}
	return all[0], nil
}
