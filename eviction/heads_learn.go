package eviction

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"glimpse/model"
	"glimpse/model/runner"
)

// SharesOf are what each head keeps of one context under a policy whose heads have one ranking (head-budgets=global), at each of some
// budgets, which are shares of the context above 0 and below 1: [budget][layer][kvHead] shares of the entries that the policy
// does not keep anyway; nil of layers that it does not decide about. response is that of a policy which knows it, nil for
// the model's own.
func (rt *Runtime) SharesOf(ctx context.Context, label *Configured, tokens, response []int32, budgets []float64) ([][][]float64, error) {
	if label.HeadSharing() != HeadSharings()[headsGlobal] {
		return nil, fmt.Errorf("policy %s: option %s: want global, whose one ranking tells what heads need", label.Name, headsOption.Name)
	}
	n := len(tokens)
	_, plan := label.plan(Prompt{Tokens: tokens, Entries: n, Budget: max(1, n-1), Response: response, Config: &rt.model.Config, Tokenizer: rt.model.Tokenizer, Turn: rt.model.UserTurn})
	always := plan.Sink + plan.Recent
	if n <= always {
		return nil, fmt.Errorf("a context of %d tokens, want more than the %d that are always kept", n, always)
	}
	var entries []int
	for _, b := range budgets {
		entries = append(entries, always+max(1, int(math.Round(b*float64(n-always)))))
	}
	if response == nil && !plan.NeedsResponse {
		response = []int32{} // and none is generated
	}
	opt := runner.GenerateOptions{MaxNew: rt.model.Config.MaxPositions}
	study, err := rt.Study(ctx, []*Configured{label}, Prompt{Tokens: tokens, Response: response}, entries, opt)
	if err != nil {
		return nil, err
	}
	out := make([][][]float64, len(budgets))
	for i, choice := range study.Choices {
		for _, heads := range choice.Kept {
			var shares []float64
			for _, kept := range heads {
				shares = append(shares, float64(len(kept)-always)/float64(n-always))
			}
			out[i] = append(out[i], shares)
		}
	}
	return out, nil
}

// MeanShares are learned budgets of a model: the mean of SharesOf over contexts.
func MeanShares(m *model.Model, budgets []float64, contexts [][][][]float64) *HeadBudgets {
	b := &HeadBudgets{Model: m.Name, Samples: len(contexts)}
	for i, budget := range budgets {
		at := HeadShares{Budget: budget, Heads: make([][]float64, m.Config.Layers)}
		for _, shares := range contexts {
			for l, heads := range shares[i] {
				if at.Heads[l] == nil && heads != nil {
					at.Heads[l] = make([]float64, len(heads))
				}
				for h, x := range heads {
					at.Heads[l][h] += x / float64(len(contexts))
				}
			}
		}
		b.Budgets = append(b.Budgets, at)
	}
	return b
}

// Top is the share of all entries that the given share of the heads keeps, those that keep most.
func (s HeadShares) Top(heads float64) float64 {
	all := slices.Concat(s.Heads...)
	slices.SortFunc(all, func(a, b float64) int { return cmp.Compare(b, a) })
	sum, top := 0.0, 0.0
	for i, x := range all {
		if sum += x; i < int(math.Round(heads*float64(len(all)))) {
			top += x
		}
	}
	return top / sum
}
