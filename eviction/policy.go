package eviction

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"glimpse/internal/registry"
	"glimpse/model"
)

// Policies lists all policies by name.
var Policies = registry.Registry[Policy]{Noun: "policy"}

// Policy is a registered way to evict.
type Policy struct {
	Kind    string // when it evicts: "none", "prefill", "prefill + decode"
	Doc     string // one line: the rule
	Source  string // paper, with section or equation
	Adapter string // kind of the adapter that it needs, or ""
	Options []Option
	// New settles the options. adapter is nil unless Adapter is set.
	New func(s Settings, adapter model.Adapter) (Method, error)
}

// Option is a parameter of a policy.
type Option struct {
	Name    string  `json:"name"`
	Default float64 `json:"default"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
	Whole   bool    `json:"whole"` // only whole numbers
	Odd     bool    `json:"odd"`   // only odd ones
	Doc     string  `json:"doc"`
}

// check refuses values out of range.
func (o Option) check(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || !(v >= o.Min && v <= o.Max):
		return 0, fmt.Errorf("got %q, want a number from %v to %v", text, o.Min, o.Max)
	case o.Whole && v != math.Trunc(v):
		return 0, fmt.Errorf("got %q, want a whole number", text)
	case o.Odd && math.Mod(v, 2) != 1:
		return 0, fmt.Errorf("got %q, want an odd number", text)
	}
	return v, nil
}

// Settings are the values of a policy's options, defaults filled in, and what
// every policy gets.
type Settings struct {
	Seed   uint64 // of policies that draw
	values map[string]float64
}

// Int and Float read an option by name.
func (s Settings) Int(name string) int       { return int(s.values[name]) }
func (s Settings) Float(name string) float64 { return s.values[name] }

// Values are all options with their values.
func (s Settings) Values() map[string]float64 { return maps.Clone(s.values) }

// Overrides are option values by policy and option, as given by flags of the
// form policy.option=value.
type Overrides map[string]map[string]float64

// ParseOverrides reads assignments policy.option=value. An unknown policy or
// option is an error that lists the valid names; so is a value out of range.
func ParseOverrides(assignments []string) (Overrides, error) {
	out := make(Overrides)
	for _, a := range assignments {
		key, value, ok := strings.Cut(a, "=")
		name, option, ok2 := strings.Cut(key, ".")
		if !ok || !ok2 {
			return nil, fmt.Errorf("set %q: want policy.option=value", a)
		}
		p, err := Policies.Lookup(name)
		if err != nil {
			return nil, fmt.Errorf("set %q: %w", a, err)
		}
		i := slices.IndexFunc(p.Options, func(o Option) bool { return o.Name == option })
		if i < 0 {
			return nil, fmt.Errorf("set %q: policy %s has no option %q, %s", a, name, option, p.optionNames())
		}
		v, err := p.Options[i].check(value)
		if err != nil {
			return nil, fmt.Errorf("set %q: %w", a, err)
		}
		if out[name] == nil {
			out[name] = make(map[string]float64)
		}
		out[name][option] = v
	}
	return out, nil
}

func (p Policy) optionNames() string {
	if len(p.Options) == 0 {
		return "it has none"
	}
	names := make([]string, len(p.Options))
	for i, o := range p.Options {
		names[i] = o.Name
	}
	return "want one of: " + strings.Join(names, ", ")
}

// Named is a policy made ready: its method and what it is called in reports.
type Named struct {
	Name     string
	Policy   Policy
	Settings Settings
	Method   Method
	Second   SparseDecoder // of a composition, see [Staged]; else nil
}

// New makes the named policy with its default options and the overrides, or the
// composition "first:second" of two.
func New(name string, seed uint64, overrides Overrides, adapter model.Adapter) (*Named, error) {
	if strings.Contains(name, ":") {
		return newStaged(name, seed, overrides, adapter)
	}
	p, err := Policies.Lookup(name)
	if err != nil {
		return nil, err
	}
	switch {
	case p.Adapter == "" && adapter != nil:
		return nil, fmt.Errorf("policy %s: takes no adapter, got one of kind %q", name, adapter.Kind())
	case p.Adapter != "" && adapter == nil:
		return nil, fmt.Errorf("policy %s: needs an adapter of kind %q, got none", name, p.Adapter)
	case p.Adapter != "" && adapter.Kind() != p.Adapter:
		return nil, fmt.Errorf("policy %s: adapter of kind %q, want %q", name, adapter.Kind(), p.Adapter)
	}
	s := Settings{Seed: seed, values: make(map[string]float64)}
	for _, o := range p.Options {
		s.values[o.Name] = o.Default
	}
	maps.Copy(s.values, overrides[name])
	m, err := p.New(s, adapter)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", name, err)
	}
	return &Named{Name: name, Policy: p, Settings: s, Method: m}, nil
}

// CheckBudget refuses a budget that no cache can be cut to.
func CheckBudget(budget int) error {
	if budget < 1 {
		return fmt.Errorf("budget: got %d, want at least 1 entry per KV head", budget)
	}
	return nil
}
