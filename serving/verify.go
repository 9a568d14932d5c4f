package serving

import (
	"context"

	"glimpse/eviction"
	"glimpse/model/runner"
)

// countVerify is verify up to the answer's end, of whatever tokens.
func countVerify(ctx context.Context, rt *eviction.Runtime, a *answered) error {
	_, err := rt.Study(ctx, nil, eviction.Prompt{Tokens: a.prompt}, nil, runner.GenerateOptions{MaxNew: len(a.response) + 1})
	return err
}

// verify answers once more with the full cache, up to the first difference.
func (i *idle) verify(ctx context.Context, a *answered) error {
	opt := runner.GenerateOptions{Sampling: a.generate.Sampling, Stop: a.generate.Stop, IgnoreEnd: a.generate.IgnoreEnd}
	if a.constraint != nil {
		opt.Sampling.Processors.Constraint = a.constraint()
	}
	total := len(a.response)
	if a.ended { // its end counts as a token
		total++
	}
	same, said := 0, 0
	opt.MaxNew = total
	opt.OnToken = func(id int32) error {
		if said++; said > len(a.response) || id != a.response[said-1] {
			return runner.ErrStop
		}
		same++
		return nil
	}
	if _, err := i.runtime.Study(ctx, nil, eviction.Prompt{Tokens: a.prompt}, nil, opt); err != nil {
		return err
	}
	if a.ended && same == len(a.response) && said == same {
		same++
	}
	share, policy := float64(same)/float64(total), a.policy.NameWithAdapter()
	i.metrics.agreement.WithLabelValues(policy, i.label(policy, a.budget)).Observe(share)
	i.log.Info("verified", "id", a.id, "policy", policy, "budget", a.budget, "tokens", total, "agreement", share)
	return nil
}

// label is a budget as metrics tell it: clients may make up any number of them.
func (i *idle) label(policy, budget string) string {
	key := [2]string{policy, budget}
	if _, known := i.budgets[key]; !known && len(i.budgets) >= maxBudgets {
		return "other"
	}
	i.budgets[key] = struct{}{}
	return budget
}
