package report

import (
	"fmt"
	"slices"
	"strings"

	"glimpse/evaluation"
	"glimpse/evaluation/runs"
	"glimpse/eviction"
)

// only leaves of the runs the policies and budgets that the report is of. The full cache has
// no budget and stays at all of them.
func (o Options) only(j *runs.Joined) error {
	if len(o.Policies)+len(o.Budgets) == 0 {
		return nil
	}
	wanted := make(map[string]bool, len(o.Policies)) // whether it was found
	for _, name := range o.Policies {
		wanted[name] = false
	}
	keeps := func(policy, adapter, budget string) bool {
		if b, err := eviction.ParseBudget(budget); err == nil && len(o.Budgets) > 0 && !slices.Contains(o.Budgets, b) {
			return false
		}
		found := len(wanted) == 0
		for _, name := range []string{policy, policy + "/" + adapter} {
			if _, ok := wanted[name]; ok {
				wanted[name], found = true, true
			}
		}
		return found
	}
	j.Predictions = slices.DeleteFunc(j.Predictions, func(p *evaluation.Prediction) bool {
		return p.Policy != "" && !keeps(p.Policy, p.Adapter, p.Budget)
	})
	j.Timings = slices.DeleteFunc(j.Timings, func(t evaluation.Timing) bool { return !keeps(t.Policy, t.Adapter, t.Budget) })
	for i, k := range j.Kept {
		less := *k
		less.Cells = slices.DeleteFunc(slices.Clone(k.Cells), func(c evaluation.KeptCell) bool { return !keeps(c.Policy, c.Adapter, c.Budget) })
		j.Kept[i] = &less
	}
	var missing []string
	for _, name := range o.Policies {
		if !wanted[name] {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("no policy %s at these budgets in the runs", strings.Join(missing, ", "))
	}
	return nil
}
