package training

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"glimpse/checkpoints"
	"glimpse/eviction"
	"glimpse/gates"
	"glimpse/model"
	"glimpse/model/runner"
)

// GatesRun learns gates: what a label scores, from what the attention reads of an entry's row.
type GatesRun struct {
	Model *model.Model
	MLP   *GateMLPs // nil: the gates stay linear
	// Label is the policy whose scores are learned.
	Label    *eviction.Configured
	Text     string // of the label, with its options
	Contexts int
	Ridge    float64                                       // as gates.Fit.Solve has it
	Next     func() (context, response []int32, err error) // response may be nil
	From     string                                        // where contexts come from
	Seed     uint64                                        // of what is drawn there
	Progress func(done int)
}

// useOf is what a context is for: every tenth is held out. MLPs, which learn by steps, are watched by another.
func (r *GatesRun) useOf(context int) gates.Use {
	switch {
	case context%10 == 9:
		return gates.HoldOut
	case context%10 == 4 && r.MLP != nil:
		return gates.Watch
	}
	return gates.Learn
}

// Run learns the gates, as an adapter that is ready to be written. Its metrics are "tokens", and "explained" of the contexts that
// were held out, the mean over the layers; of MLPs "explained_linear", too, which is that of the linear gates that they began as.
func (r *GatesRun) Run(ctx context.Context) (*checkpoints.Adapter, error) {
	sum, err := r.Model.SHA256(ctx)
	if err != nil {
		return nil, err
	}
	fit, rt, tokens := gates.NewFit(r.Model), eviction.NewRuntime(r.Model), 0
	if r.MLP != nil {
		if err := r.MLP.check(r.Model); err != nil {
			return nil, err
		}
		fit.Keep(r.MLP.Rows, r.Seed)
	}
	for i := range r.Contexts {
		ids, response, err := r.Next()
		if err != nil {
			return nil, err
		}
		if err := scoreContext(ctx, rt, r.Label, fit, ids, response, r.useOf(i)); err != nil {
			return nil, fmt.Errorf("context %d: %w", i+1, err)
		}
		tokens += len(ids)
		r.Progress(i + 1)
	}
	learned, err := fit.Solve(r.Ridge)
	if err != nil {
		return nil, err
	}
	metrics := map[string]float64{"tokens": float64(tokens)}
	settings := gatesSettings{Label: r.Text, Contexts: r.Contexts, Ridge: r.Ridge}
	if g := r.MLP; g != nil {
		settings.Hidden, settings.Steps, settings.Batch, settings.Rows, settings.LearningRate = g.Hidden, g.Steps, g.Batch, g.Rows, g.LearningRate
		setFinite(metrics, "explained_linear", learned.Mean())
		if learned, err = g.train(ctx, r.Model, fit, learned.Gates, r.Seed); err != nil {
			return nil, err
		}
	}
	setFinite(metrics, "explained", learned.Mean())
	raw, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	return &checkpoints.Adapter{
		Kind: gates.Kind, Gates: learned.Gates, Loss: "mse", PoolingKernel: 1, Training: raw, Metrics: metrics,
		Base: checkpoints.BaseModel{Name: r.Model.Name, SHA256: sum, Format: r.Model.WeightFormat()},
		Data: checkpoints.DataSource{Description: r.From, Seed: int64(r.Seed)},
	}, nil
}

// gatesSettings are what an adapter's metadata say of the training of its gates.
type gatesSettings struct {
	Label        string  `json:"label"`
	Contexts     int     `json:"contexts"`
	Ridge        float64 `json:"ridge"`
	Hidden       int     `json:"hidden,omitempty"`
	Steps        int     `json:"steps,omitempty"`
	Batch        int     `json:"batch,omitempty"`
	Rows         int     `json:"rows,omitempty"`
	LearningRate float64 `json:"learning_rate,omitempty"`
}

// setFinite adds a metric unless it is NaN, which JSON has not.
func setFinite(metrics map[string]float64, name string, x float64) {
	if !math.IsNaN(x) {
		metrics[name] = x
	}
}

// scoreContext runs a context under the label, whose scores the fit takes in.
func scoreContext(ctx context.Context, rt *eviction.Runtime, label *eviction.Configured, fit *gates.Fit, tokens, response []int32, use gates.Use) error {
	var failed error
	watched := *label
	watched.Method = fittedMethod{label.Method, fit, func(layer int, scores [][]float32) {
		if err := fit.Observe(layer, scores, use); failed == nil {
			failed = err
		}
	}}
	prompt := eviction.Prompt{Tokens: tokens, Budget: max(1, len(tokens)-1), Response: response}
	if _, err := rt.Prefill(ctx, &watched, prompt); err != nil {
		return err
	}
	return failed
}

// fittedMethod is a method whose scores are told, beside the rows that they are of.
type fittedMethod struct {
	eviction.Method
	fit     *gates.Fit
	observe func(layer int, scores [][]float32)
}

// Plan implements eviction.Method.
func (m fittedMethod) Plan(p eviction.Prompt) eviction.Plan {
	plan := m.Method.Plan(p)
	plan.Capture.Gates = append(slices.Clip(plan.Capture.Gates), model.Gate(m.fit))
	if score := plan.Score; score != nil {
		plan.Score = func(s *eviction.Scores, o *runner.Observation) {
			score(s, o)
			m.observe(o.Layer, s.Rows())
		}
	}
	return plan
}
