package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"glimpse/adapters"
	"glimpse/eviction"
)

// headsOf is how the heads of policies share a budget under Options.Heads: the place of a name among eviction.HeadSharings.
// path is the file of budgets that is asked for, "" for none.
func (o *Options) headsOf() (how int, path string) {
	how = max(0, slices.Index(eviction.HeadSharings(), o.Heads))
	if how > 0 || slices.Contains([]string{"", "equal"}, o.Heads) {
		return how, ""
	}
	how = slices.Index(eviction.HeadSharings(), eviction.LearnedHeads)
	if o.Heads == Shipped {
		return how, ""
	}
	return how, o.Heads
}

// configure makes a policy, which shares its budget out over heads as Options.Heads says: unless its own options say it, or it
// shares its budget out itself. learned are the budgets that it may want.
func (o *Options) configure(policy string, overrides eviction.Overrides, r eviction.Resources, learned func() (*eviction.HeadBudgets, error)) (*eviction.Configured, error) {
	how, _ := o.headsOf()
	first, _, _ := strings.Cut(policy, ":")
	shared := merged(eviction.Overrides{first: {eviction.HeadsOption: float64(how)}}, overrides)
	if eviction.HeadSharings()[int(shared[first][eviction.HeadsOption])] == eviction.LearnedHeads {
		var err error
		if r.HeadBudgets, err = learned(); err != nil {
			return nil, err
		}
	}
	named, err := eviction.NewWith(policy, o.Seed, shared, r)
	if errors.Is(err, eviction.ErrSharesHeads) {
		r.HeadBudgets = nil
		return eviction.NewWith(policy, o.Seed, overrides, r)
	}
	return named, err
}

// learnedHeads are the budgets of heads in the file that is asked for, or else those that ship for the model's weights; nil of
// none. They are read once, when the first policy wants them: the weights are hashed.
func (m *Model) learnedHeads() (*eviction.HeadBudgets, error) {
	b, err := m.heads()
	m.headsUsed.Store(b.HeadBudgets != nil)
	return b.HeadBudgets, err
}

// readHeads reads what learnedHeads returns.
func (m *Model) readHeads() (adapters.Heads, error) {
	_, path := m.asked.headsOf()
	return adapters.ReadHeads(context.Background(), m.Model, path)
}

// checkHeads is an error where budgets of heads are asked for that there are not. By default they are those that there are.
func (m *Model) checkHeads() error {
	if m.asked.HeadsByDefault {
		m.asked.Heads = Shipped
		if b, err := m.heads(); err != nil || b.HeadBudgets == nil {
			m.asked.Heads = ""
			return err
		}
	}
	how, _ := m.asked.headsOf()
	if eviction.HeadSharings()[how] != eviction.LearnedHeads {
		return nil
	}
	b, err := m.learnedHeads()
	if err == nil && b == nil {
		err = fmt.Errorf("--heads %s: no budgets of heads come with this program for the weights of %s; \"train budgets\" learns some", m.asked.Heads, m.Name)
	}
	return err
}
