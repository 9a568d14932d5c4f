package training

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"glimpse/eviction"
	"glimpse/kernels"
	"glimpse/labels"
	"glimpse/losses"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// objective is what an adapter is trained towards: a loss against a label, with a weight for each head.
type objective struct {
	losses.Loss
	label   label
	weights [][]float64 // [layer][query head], 1 in the mean; nil: every head has 1
}

// label is one of labels.Labels with its policy.
type label struct {
	labels.Label
	name   string
	policy *eviction.Configured
}

// newLabel is the label of a name, "" for the default.
func newLabel(name string) (l label, err error) {
	l.name = cmp.Or(name, labels.Default)
	if l.Label, err = labels.Labels.Lookup(l.name); err != nil {
		return l, err
	}
	l.policy, err = l.Configure()
	return l, err
}

// shown is the name as files have it: "" is the default.
func (l *label) shown() string {
	if l.name == labels.Default {
		return ""
	}
	return l.name
}

// target is the label of a prompt, whose pairs are in the cache.
func (l *label) target(ctx context.Context, r *runner.Runner, cache *kvcache.Cache, prompt, response []int32) ([]*kernels.Tensor, error) {
	return labels.Observe(ctx, r, cache, l.policy, eviction.Prompt{Tokens: prompt, Response: response})
}

// needResponse tells that one of the labels is of the response.
func needResponse(all []label) bool {
	for _, l := range all {
		if l.Response {
			return true
		}
	}
	return false
}

// HeadWeights are the values of AdapterConfig.HeadWeights.
func HeadWeights() []string { return []string{"equal", eviction.LearnedHeads} }

// weighedAt is the budget whose shares of heads are their weights.
const weighedAt = 0.1

// newObjective resolves what an adapter's configuration says of it.
func newObjective(m *model.Model, c *AdapterConfig, budgets *eviction.HeadBudgets) (o objective, err error) {
	if o.Loss, err = losses.Losses.Lookup(c.Loss); err != nil {
		return o, err
	}
	if o.label, err = newLabel(c.Label); err != nil || c.HeadWeights != eviction.LearnedHeads {
		return o, err
	}
	if budgets == nil {
		return o, errors.New("head weights: the model has no learned budgets of heads; \"train budgets\" learns some, --heads names their file")
	}
	sum, heads := 0.0, 0
	for _, shares := range budgets.At(weighedAt) {
		weights := make([]float64, m.Config.Heads)
		for h := range weights {
			if shares != nil {
				weights[h] = shares[h/m.Config.Group()]
				sum, heads = sum+weights[h], heads+1
			}
		}
		o.weights = append(o.weights, weights)
	}
	for _, weights := range o.weights {
		for h := range weights {
			weights[h] *= float64(heads) / sum
		}
	}
	return o, nil
}

// addLayer is an autodiff.LossFunc.
func (o *objective) addLayer(b kernels.Backend, loss, dScores, scores, target *kernels.Tensor, layer, layers int) {
	of := layers * scores.Dim0()
	if o.weights == nil {
		o.Func(b, loss, dScores, scores, target, of, 1)
		return
	}
	for h, w := range o.weights[layer] {
		o.Func(b, loss, dScores.Rows(h, h+1), scores.Rows(h, h+1), target.Rows(h, h+1), of, w)
	}
}

// checkHeadWeights is an error unless the name is one of HeadWeights, or "".
func checkHeadWeights(name string) error {
	for _, known := range HeadWeights() {
		if name == known || name == "" {
			return nil
		}
	}
	return fmt.Errorf("head weights: got %.60q, want one of: equal, %s", name, eviction.LearnedHeads)
}
