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

// GatesRun learns linear gates: what a label scores, from what the attention reads of an entry's row.
type GatesRun struct {
	Model *model.Model
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

// heldOut is the share of the contexts that are not learned from: every tenth.
const heldOut = 10

// Run learns the gates, as an adapter that is ready to be written. Its metrics are "tokens", and "explained" of the contexts that
// were held out, the mean over the layers.
func (r *GatesRun) Run(ctx context.Context) (*checkpoints.Adapter, error) {
	sum, err := r.Model.SHA256(ctx)
	if err != nil {
		return nil, err
	}
	fit, rt, tokens := gates.NewFit(r.Model), eviction.NewRuntime(r.Model), 0
	for i := range r.Contexts {
		ids, response, err := r.Next()
		if err != nil {
			return nil, err
		}
		held := i%heldOut == heldOut-1
		if err := scoreContext(ctx, rt, r.Label, fit, ids, response, held); err != nil {
			return nil, fmt.Errorf("context %d: %w", i+1, err)
		}
		tokens += len(ids)
		r.Progress(i + 1)
	}
	learned, err := fit.Solve(r.Ridge)
	if err != nil {
		return nil, err
	}
	settings, err := json.Marshal(struct {
		Label    string  `json:"label"`
		Contexts int     `json:"contexts"`
		Ridge    float64 `json:"ridge"`
	}{r.Text, r.Contexts, r.Ridge})
	if err != nil {
		return nil, err
	}
	metrics := map[string]float64{"tokens": float64(tokens)}
	if explained := learned.Mean(); !math.IsNaN(explained) {
		metrics["explained"] = explained
	}
	return &checkpoints.Adapter{
		Kind: gates.Kind, Gates: learned.Gates, Loss: "mse", PoolingKernel: 1, Training: settings, Metrics: metrics,
		Base: checkpoints.BaseModel{Name: r.Model.Name, SHA256: sum, Format: r.Model.WeightFormat()},
		Data: checkpoints.DataSource{Description: r.From, Seed: int64(r.Seed)},
	}, nil
}

// scoreContext runs a context under the label, whose scores the fit takes in.
func scoreContext(ctx context.Context, rt *eviction.Runtime, label *eviction.Configured, fit *gates.Fit, tokens, response []int32, held bool) error {
	var failed error
	watched := *label
	watched.Method = fittedMethod{label.Method, fit, func(layer int, scores [][]float32) {
		if err := fit.Observe(layer, scores, held); failed == nil {
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
