package eviction

import (
	"fmt"
	"strings"
)

// TwoStage makes one policy of two, as rocketkv is of snapkv and hsa: first, which
// must evict only the prompt, keeps as much of it as rocketkv's adaptive split says
// (RocketKV, arXiv:2502.14051, §3.6), and second, which must evict nothing, reads as much as the
// budget of the rest. It is called "first:second".
func TwoStage(first, second *Configured) (*Configured, error) {
	name := first.Name + ":" + second.Name
	if evicts, sparse := first.decodes(); evicts || sparse {
		return nil, fmt.Errorf("policy %s: %s goes on while decoding, want a first stage that evicts the prompt only", name, first.Name)
	}
	if _, sparse := second.decodes(); !sparse || second.Policy.Kind != "decode" {
		return nil, fmt.Errorf("policy %s: second stage %s, want a sparse policy of kind decode", name, second.Name)
	}
	if first.refits() {
		return nil, fmt.Errorf("policy %s: %s refits what it keeps, which %s estimates as it was: want %s=none", name, first.Name, second.Name, refitOption.Name)
	}
	out := *first
	out.Name, out.Second = name, second.Method
	out.Policy.Kind = "prefill + decode"
	return &out, nil
}

// LookupPolicy finds a policy by name; of a composition "first:second" it is the
// first, which says what else the composition needs.
func LookupPolicy(name string) (Policy, error) {
	first, second, staged := strings.Cut(name, ":")
	if staged {
		if _, err := Policies.Lookup(second); err != nil {
			return Policy{}, err
		}
	}
	return Policies.Lookup(first)
}

// newTwoStage makes a composition by name.
func newTwoStage(name string, seed uint64, overrides Overrides, r Resources) (*Configured, error) {
	a, b, _ := strings.Cut(name, ":")
	first, err := NewWith(a, seed, overrides, r)
	if err != nil {
		return nil, err
	}
	second, err := New(b, seed, overrides, nil)
	if err != nil {
		return nil, err
	}
	return TwoStage(first, second)
}
