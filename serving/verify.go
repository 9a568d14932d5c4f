package serving

import (
	"context"

	"glimpse/eviction"
	"glimpse/model/runner"
)

// watches tells that an answer is one that the promise is about.
func (i *idle) watches(a *answered) bool { return i.watch != nil && a.own && a.policy.Name != "full" }

// verifyWhole is verify of an answer whose prompt was kept as a whole.
func (i *idle) verifyWhole(context.Context, *answered) error {
	i.watch.observe(0)
	return nil
}

func countNothing(context.Context, *eviction.Runtime, *answered) error { return nil }

// countVerify is verify up to the answer's end, of whatever tokens.
func (i *idle) countVerify(ctx context.Context, rt *eviction.Runtime, a *answered) error {
	if i.watches(a) {
		return i.watch.count(ctx, rt, a)
	}
	_, err := rt.Study(ctx, nil, eviction.Prompt{Tokens: a.prompt}, nil, runner.GenerateOptions{MaxNew: len(a.response) + 1})
	return err
}

// verify answers once more with the full cache: up to the first difference, or where a promise is watched, to its end.
func (i *idle) verify(ctx context.Context, a *answered) error {
	if i.watches(a) {
		loss, response, err := i.watch.measure(ctx, i.runtime, a)
		if err != nil {
			return err
		}
		same := 0
		for same < len(response) && same < len(a.response) && response[same] == a.response[same] {
			same++
		}
		total := max(1, min(len(a.response), watchedNew))
		i.watch.observe(loss)
		i.told(a, total, float64(same)/float64(total), "loss", loss*i.watch.Loss.Scale())
		return nil
	}
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
	i.told(a, total, float64(same)/float64(total))
	return nil
}

// told takes down how far an answer agrees with the full cache's.
func (i *idle) told(a *answered, tokens int, share float64, more ...any) {
	policy := a.policy.NameWithAdapter()
	i.metrics.agreement.WithLabelValues(policy, i.label(policy, a.budget)).Observe(share)
	i.log.Info("verified", append([]any{"id", a.id, "policy", policy, "budget", a.budget, "tokens", tokens, "agreement", share}, more...)...)
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
