package evaluation

import (
	"context"
	"fmt"
	"slices"

	"glimpse/datasets"
	"glimpse/eviction"
	"glimpse/model"
)

// Needle measures, at the smallest budget, how often every contender but "full"
// and the oracle finds the one fact of a haystack, by the fact's depth in the
// prompt, in fifths, and by the prompt's length, in quarters of o.Tokens. It asks
// o.Samples prompts per length.
func Needle(ctx context.Context, m *model.Model, o Options) ([]NeedleCell, error) {
	const task, depths, lengths = "single", 5, 4
	if err := o.validate(m); err != nil {
		return nil, fmt.Errorf("needle: %w", err)
	}
	o.Budgets = []int{slices.Min(o.Budgets)}
	o.Contenders = slices.DeleteFunc(slices.Clone(o.Contenders), func(c Contender) bool { return c.Name == full || c.Name == oracle })
	type count struct{ right, all int }
	rt := eviction.NewRuntime(m)
	var cells []NeedleCell
	for quarter := 1; quarter <= lengths; quarter++ {
		tokens := o.Tokens * quarter / lengths
		if tokens < max(datasets.MinTokens, o.Budgets[0]) {
			continue
		}
		stream, err := datasets.NewStream([]string{task}, o.Split, tokens, o.Seed)
		if err != nil {
			return nil, fmt.Errorf("needle: %w", err)
		}
		counts := make([][depths]count, len(o.Contenders))
		for i := range o.Samples {
			e, err := stream.At(i)
			if err != nil {
				return nil, fmt.Errorf("needle: %w", err)
			}
			outcomes, _, err := o.runSample(ctx, rt, stream, i)
			if err != nil {
				return nil, fmt.Errorf("needle: %w", err)
			}
			at := slices.Index(e.Prompt, e.Answer[0])
			depth := min(depths-1, depths*at/len(e.Prompt))
			for c, x := range outcomes {
				counts[c][depth].all++
				if x.right {
					counts[c][depth].right++
				}
			}
		}
		for c, contender := range o.Contenders {
			for d, n := range counts[c] {
				if n.all == 0 {
					continue
				}
				cells = append(cells, NeedleCell{
					Policy: label(contender.Name, contender.Adapter), Depth: (float64(d) + 0.5) / depths, Tokens: tokens,
					Accuracy: float64(n.right) / float64(n.all), Samples: n.all,
				})
			}
		}
	}
	return cells, nil
}
