package training

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"glimpse/checkpoints"
	"glimpse/internal/suggest"
	"glimpse/model"
)

// Export returns adapter i of the configuration in its present state, as it is
// stored.
func (t *Trainer) Export(i int, modelSHA256 string, metrics map[string]float64) (*checkpoints.Adapter, error) {
	r, err := t.describeRun(modelSHA256)
	if err != nil {
		return nil, err
	}
	return completeAdapter(t.Adapter(i).Export(), &t.Config, i, &r, metrics)
}

// completeAdapter gives adapter i of a configuration what is stored of it besides its numbers.
func completeAdapter(a *checkpoints.Adapter, c *Config, i int, r *runRecord, metrics map[string]float64) (*checkpoints.Adapter, error) {
	settings, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	a.Base = checkpoints.BaseModel{Name: r.ModelName, SHA256: r.Model, Format: r.Format}
	a.Loss, a.PoolingKernel, a.Training, a.Metrics = c.Adapters[i].Loss, c.Adapters[i].Pooling, settings, metrics
	a.Data = checkpoints.DataSource{Description: r.Source, Seed: int64(c.Seed)}
	if len(a.LoRA) > 0 {
		a.InvocationTokens = r.Invocation
	}
	return a, nil
}

// Checkpoint is a checkpoint as far as an export needs it: without the model, the
// data and the processor that the run goes on with.
type Checkpoint struct {
	path   string
	record runRecord
	config Config
	state  *checkpoints.State
}

// ReadCheckpoint reads and verifies a checkpoint that Save wrote.
func ReadCheckpoint(path string) (*Checkpoint, error) {
	s, err := checkpoints.ReadState(path)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{path: path, state: s}
	if err := json.Unmarshal(s.Run, &c.record); err != nil {
		return nil, fmt.Errorf("checkpoint %s: %w: %w", path, checkpoints.ErrCorrupt, err)
	}
	if err := json.Unmarshal(c.record.Config, &c.config); err != nil || len(c.config.Adapters) == 0 {
		return nil, fmt.Errorf("checkpoint %s: configuration: want one with adapters (%v): %w", path, err, checkpoints.ErrCorrupt)
	}
	return c, nil
}

// Step is the number of optimiser steps done.
func (c *Checkpoint) Step() int { return c.record.Step }

// Names are the adapters' names.
func (c *Checkpoint) Names() []string {
	names := make([]string, len(c.config.Adapters))
	for i, a := range c.config.Adapters {
		names[i] = a.Name
	}
	return names
}

// Export returns an adapter as it was at the best validation so far or, in a run
// without validations, at the checkpoint's step.
func (c *Checkpoint) Export(name string) (*checkpoints.Adapter, error) {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("checkpoint %s: adapter %s: %w: %s", c.path, name, checkpoints.ErrCorrupt, fmt.Sprintf(format, args...))
	}
	i := slices.Index(c.Names(), name)
	if i < 0 {
		return nil, fmt.Errorf("checkpoint %s: no adapter %q, want one of: %s%s", c.path, name, strings.Join(c.Names(), ", "), suggest.DidYouMean(name, c.Names()))
	}
	settings := c.config.Adapters[i]
	kind, err := model.RowsKinds.Lookup(settings.Kind)
	if err != nil {
		return nil, fail("%v", err)
	}
	state, metrics := "", map[string]float64{"step": float64(c.record.Step)}
	if len(c.record.History.Best) > i && c.record.History.Best[i].Step > 0 {
		best := c.record.History.Best[i]
		state, metrics = "best", map[string]float64{"best_step": float64(best.Step), "validation_loss": best.Loss}
	}
	parameters := make(map[string]checkpoints.Matrix)
	for key, t := range c.state.Tensors {
		key, ok := strings.CutPrefix(key, name+"/")
		parameter, of, _ := strings.Cut(key, "/")
		if !ok || of != state {
			continue
		}
		if parameters[parameter], err = matrixOf(t); err != nil {
			return nil, fail("%s: %v", parameter, err)
		}
	}
	a, err := kind.Stored(settings.AdapterConfig, parameters)
	if err != nil {
		return nil, fail("%v", err)
	}
	if a, err = completeAdapter(a, &c.config, i, &c.record, metrics); err != nil {
		return nil, err
	}
	if err := a.Validate(); err != nil {
		return nil, fail("%v", err)
	}
	return a, nil
}

func matrixOf(t checkpoints.StateTensor) (checkpoints.Matrix, error) {
	if len(t.Shape) != 2 {
		return checkpoints.Matrix{}, fmt.Errorf("shape %v, want two dimensions", t.Shape)
	}
	m := checkpoints.Matrix{Rows: t.Shape[0], Cols: t.Shape[1], Data: t.F32}
	if t.F64 != nil {
		m.Data = make([]float32, len(t.F64))
		for i, v := range t.F64 {
			m.Data[i] = float32(v)
		}
	}
	return m, nil
}
