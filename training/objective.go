package training

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"glimpse/autodiff"
	"glimpse/checkpoints"
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
	// policy keeps what an answer runs on, by the scores of the adapter's rows; nil where none runs.
	policy *eviction.Configured
	// scored tells that another adapter's rows score for the policy. The label is their scores, and the loss says nothing of it.
	scored bool
}

// label is one of labels.Labels with its policy.
type label struct {
	labels.Label
	name   string
	policy *eviction.Configured
	answer bool // of an objective for which an answer runs, too
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
	return slices.ContainsFunc(all, func(l label) bool { return l.Response })
}

// HeadWeights are the values of AdapterConfig.HeadWeights.
func HeadWeights() []string { return []string{"equal", eviction.LearnedHeads} }

// weighedAt is the budget whose shares of heads are their weights.
const weighedAt = 0.1

// newObjective resolves what an adapter's configuration says of it.
func newObjective(m *model.Model, a model.Adapter, c *AdapterConfig, budgets *eviction.HeadBudgets) (o objective, err error) {
	if o.Loss, err = losses.Losses.Lookup(c.Loss); err != nil {
		return o, err
	}
	if o.label, err = newLabel(c.Label); err != nil {
		return o, err
	}
	if o.label.answer = o.Answer > 0; o.label.answer {
		if o.policy, err = rowsPolicy(m, a, c, budgets); err != nil {
			return o, err
		}
	}
	if o.scored = c.Scorer != ""; o.scored {
		if o.policy == nil {
			return o, fmt.Errorf("scorer %s: loss %s runs nothing on what it selects, want loss distil", c.Scorer, c.Loss)
		}
		o.label.policy, o.label.name = o.policy, o.label.name+" by "+c.Scorer
	}
	if c.HeadWeights != eviction.LearnedHeads {
		return o, nil
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

// rowsPolicy is the policy that runs an adapter, with its pooling and, where there are any, learned budgets of heads. Where another
// adapter scores the pooling is that one's.
func rowsPolicy(m *model.Model, a model.Adapter, c *AdapterConfig, budgets *eviction.HeadBudgets) (*eviction.Configured, error) {
	name := model.PolicyOf(a.Kind())
	set := []string{fmt.Sprintf("%s.kernel=%d", name, c.Pooling)}
	r := eviction.Resources{Adapter: a, HeadBudgets: budgets}
	if budgets != nil {
		set = append(set, fmt.Sprintf("%s.%s=%s", name, eviction.HeadsOption, eviction.LearnedHeads))
	}
	if c.Scorer != "" {
		scorer, err := rowsOf(m, c.Scorer)
		if err != nil {
			return nil, fmt.Errorf("scorer %s: %w", c.Scorer, err)
		}
		by := model.PolicyOf(scorer.Kind())
		r.Scorer, set = scorer, append(set, fmt.Sprintf("%s.scorer=%s", name, by), fmt.Sprintf("%s.kernel=%d", by, c.Pooling))
	}
	overrides, err := eviction.ParseOverrides(set)
	if err != nil {
		return nil, err
	}
	policy, err := eviction.NewWith(name, 0, overrides, r)
	if err == nil && !policy.Stays() {
		err = fmt.Errorf("loss %s: it is for rows that stay, as of kind restorekv, and no row of kind %s does", c.Loss, a.Kind())
	}
	return policy, err
}

// rowsOf opens an adapter of rows that was trained for the model. Of a model that counts it is one of its kind's usual size.
func rowsOf(m *model.Model, folder string) (model.Adapter, error) {
	stored, err := readAdapterFor(m, folder)
	if err != nil {
		return nil, err
	}
	kind, err := model.RowsKinds.Lookup(stored.Kind)
	if err == nil && m.Counts() {
		return kind.Usual(m)
	}
	if err != nil {
		return nil, err
	}
	return kind.Load(m, stored)
}

// readAdapterFor reads the folder of an adapter that was trained for the model.
func readAdapterFor(m *model.Model, folder string) (*checkpoints.Adapter, error) {
	stored, err := checkpoints.ReadAdapter(folder)
	if err != nil || m.Counts() {
		return stored, err
	}
	sum, err := m.KnownAs(context.Background(), stored.Base.SHA256)
	if err == nil {
		err = stored.CheckBase(m.Name, sum)
	}
	return stored, err
}

// addLayer is an autodiff.LossFunc.
func (o *objective) addLayer(b kernels.Backend, loss, dScores, scores, target *kernels.Tensor, layer, layers int) {
	if o.scored {
		b.Fill(dScores, 0)
		return
	}
	of := layers * scores.Dim0()
	if o.weights == nil {
		o.Func(b, loss, dScores, scores, target, of, 1)
		return
	}
	for h, w := range o.weights[layer] {
		o.Func(b, loss, dScores.Rows(h, h+1), scores.Rows(h, h+1), target.Rows(h, h+1), of, w)
	}
}

// answerTokens is how many tokens run behind rows that are trained by what the full cache says of them.
const answerTokens = 96

// answers is how many tokens run behind the rows.
func (o *objective) answers() int {
	if o.Answer > 0 {
		return answerTokens
	}
	return 0
}

// checkModel is an error where the model has what an answer's pass lacks.
func (o *objective) checkModel(m *model.Model) error {
	if o.Answer == 0 {
		return nil
	}
	for l := range m.Network.Layers {
		if layer := &m.Network.Layers[l]; layer.Recurrent != nil || layer.Experts != nil || layer.Input != nil || m.Config.LogitCap > 0 {
			return fmt.Errorf("loss distil: layer %d of %s: it is for models whose layers attend, without experts, inputs of layers and a cap of logits", l, m.Name)
		}
	}
	return nil
}

// addAnswer is an autodiff.AnswerFunc: KL(full cache ‖ evicted cache) of the next token.
func (o *objective) addAnswer(m *model.Model, s *autodiff.Sample) autodiff.AnswerFunc {
	head, norm := m.Network.Head, m.Network.FinalNorm
	return func(b kernels.Backend, memory *kernels.Arena, loss, dx, x *kernels.Tensor) {
		a := s.Answer
		first, n := x.Dim0()-len(a.Tokens), a.To-a.From
		b.Fill(dx, 0)
		rows, dRows := x.Rows(first+a.From, first+a.To), dx.Rows(first+a.From, first+a.To)
		y, dy := memory.Alloc(b.Compute(), n, x.Width()), memory.Alloc(b.Compute(), n, x.Width())
		b.Norm(y, rows, nil, norm.Of(&m.Config))
		logits := func(h *kernels.Tensor) *kernels.Tensor {
			out := memory.Alloc(b.Compute(), n, m.Config.Vocab)
			b.Linear(out, h, head.Weight, head.Bias, m.Config.LogitFactor(), 0)
			return out
		}
		got, want := logits(y), logits(a.Teacher.Rows(a.From, a.To))
		gradient := memory.Alloc(b.Compute(), got.Shape...)
		b.ScoreKL(loss, gradient, got, want, o.Answer/float64(n))
		b.MatMul(dy, gradient, head.Weight, m.Config.LogitFactor(), 0)
		b.NormGrad(dRows, rows, dy, norm.Of(&m.Config))
	}
}

// checkHeadWeights is an error unless the name is one of HeadWeights, or "".
func checkHeadWeights(name string) error {
	if name == "" || slices.Contains(HeadWeights(), name) {
		return nil
	}
	return fmt.Errorf("head weights: got %.60q, want one of: equal, %s", name, eviction.LearnedHeads)
}
