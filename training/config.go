package training

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"glimpse/eviction"
	"glimpse/internal/parallel"
	"glimpse/internal/suggest"
	"glimpse/kernels"
	"glimpse/losses"
	"glimpse/model"
)

// Config is a resolved training configuration.
type Config struct {
	Adapters []AdapterConfig `json:"adapters"`

	Steps       int     `json:"steps"`        // optimiser steps
	Batch       int     `json:"batch"`        // samples per step, accumulated
	Seed        uint64  `json:"seed"`         // of data order
	MaxResponse int     `json:"max_response"` // most response tokens generated or used
	Warmup      int     `json:"warmup"`       // steps of linear warm-up; 0: WarmupRatio says
	WarmupRatio float64 `json:"warmup_ratio"` // the same as a share of the steps, rounded up
	Schedule    string  `json:"schedule"`     // "cosine" or "constant"
	FinalRatio  float64 `json:"final_ratio"`  // learning rate at the end of the cosine, as a share of the peak
	Beta1       float64 `json:"beta1"`
	Beta2       float64 `json:"beta2"`
	Epsilon     float64 `json:"epsilon"`
	WeightDecay float64 `json:"weight_decay"` // decoupled
	Clip        float64 `json:"clip"`         // global gradient norm; 0: none

	Validation ValidationConfig `json:"validation"`

	HeadBudgets *eviction.HeadBudgets `json:"-"` // whose shares weigh heads where an adapter asks for that

	Workers     int   `json:"-"` // samples worked on at the same time; 0 chooses
	CacheMemory int64 `json:"-"` // bytes of prompts' keys, values and targets kept in memory
	CacheDisk   int64 `json:"-"` // and, beyond that, on disk
}

// ValidationConfig says how a run is watched on samples that it does not train on.
type ValidationConfig struct {
	Every    int              `json:"every"`    // steps between validations; 0: only at the end, and the last parameters are kept, not the best
	Samples  int              `json:"samples"`  // held-out samples; 0: no validation
	Budgets  eviction.Budgets `json:"budgets"`  // at which hit rate and recall are measured
	Patience int              `json:"patience"` // validations without a better loss of any adapter after which the run stops; 0: never
}

// AdapterConfig is one adapter of a run.
type AdapterConfig struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	model.AdapterConfig
	Loss         string  `json:"loss"`                   // "" is the kind's own
	Label        string  `json:"label,omitempty"`        // of labels.Labels; "" is the response's attention
	HeadWeights  string  `json:"head_weights,omitempty"` // of HeadWeights; "" is equal
	InitAdapter  string  `json:"init_adapter,omitempty"` // folder of an adapter whose numbers it begins with
	Scorer       string  `json:"scorer,omitempty"`       // folder of an adapter that selects in the place of its rows, which stay all the same
	LearningRate float64 `json:"learning_rate"`
	Pooling      int     `json:"pooling"` // kernel that the exported adapter asks for
}

// DefaultConfig holds the settings that both papers leave to the trainer.
func DefaultConfig() Config {
	return Config{
		Steps: 1000, Batch: 16, MaxResponse: 512, Warmup: 20, Schedule: "cosine", FinalRatio: 0.02,
		Beta1: 0.9, Beta2: 0.98, Epsilon: 1e-8, Clip: 1,
		Validation: ValidationConfig{Samples: 16, Budgets: eviction.Budgets{eviction.Pairs(32), eviction.Pairs(64), eviction.Pairs(128)}},
	}
}

// Validate fills in defaults that depend on others and checks every range.
func (c *Config) Validate(m *model.Model) error {
	if len(c.Adapters) == 0 {
		return fmt.Errorf("train: no adapter to train")
	}
	names := make(map[string]bool)
	for i := range c.Adapters {
		a := &c.Adapters[i]
		if err := a.resolve(i, m); err != nil {
			return fmt.Errorf("train: %w", err)
		}
		if names[a.Name] {
			return fmt.Errorf("train: two adapters named %q", a.Name)
		}
		names[a.Name] = true
	}
	for _, f := range []struct {
		name           string
		value, min, to float64
	}{
		{"steps", float64(c.Steps), 1, 1e9}, {"batch", float64(c.Batch), 1, 1 << 20}, {"max response", float64(c.MaxResponse), 1, 1 << 20},
		{"warm-up", float64(c.Warmup), 0, 1e9}, {"warm-up ratio", c.WarmupRatio, 0, 1}, {"final ratio", c.FinalRatio, 0, 1},
		{"beta1", c.Beta1, 0, 1 - 1e-9}, {"beta2", c.Beta2, 0, 1 - 1e-9}, {"epsilon", c.Epsilon, 1e-30, 1},
		{"weight decay", c.WeightDecay, 0, 10}, {"clip", c.Clip, 0, 1e9}, {"workers", float64(c.Workers), 0, 1 << 12},
		{"validation: every", float64(c.Validation.Every), 0, 1e9}, {"validation: samples", float64(c.Validation.Samples), 0, 1 << 20},
		{"validation: patience", float64(c.Validation.Patience), 0, 1e9},
	} {
		if !(f.value >= f.min && f.value <= f.to) {
			return fmt.Errorf("train: %s: got %v, want %v to %v", f.name, f.value, f.min, f.to)
		}
	}
	if err := c.Validation.check(); err != nil {
		return fmt.Errorf("train: validation: %w", err)
	}
	if c.Schedule != "cosine" && c.Schedule != "constant" {
		return fmt.Errorf("train: %w", suggest.Unknown("schedule", c.Schedule, []string{"constant", "cosine"}))
	}
	return nil
}

// resolve fills in the defaults of the adapter i and checks it.
func (a *AdapterConfig) resolve(i int, m *model.Model) error {
	kind, err := model.RowsKinds.Lookup(a.Kind)
	if err != nil {
		return fmt.Errorf("adapter %d: %w", i, err)
	}
	a.Name, a.Loss = cmp.Or(a.Name, a.Kind), cmp.Or(a.Loss, kind.Loss)
	if err := CheckName(a.Name); err != nil {
		return err
	}
	_, err = losses.Losses.Lookup(a.Loss)
	if err == nil {
		_, err = newLabel(a.Label)
	}
	if err == nil {
		err = checkHeadWeights(a.HeadWeights)
	}
	if err == nil && (!(a.LearningRate > 0) || a.LearningRate > 10) {
		err = fmt.Errorf("learning rate: got %v, want above 0 to 10", a.LearningRate)
	}
	if err == nil {
		err = kernels.CheckPoolWidth(a.Pooling)
	}
	if err == nil {
		err = a.Validate(m)
	}
	if err != nil {
		return fmt.Errorf("adapter %s: %w", a.Name, err)
	}
	return nil
}

func (v ValidationConfig) check() error {
	switch {
	case v.Every > 0 && v.Samples == 0:
		return fmt.Errorf("every %d steps with 0 samples, want at least 1", v.Every)
	case v.Patience > 0 && v.Every == 0:
		return fmt.Errorf("patience %d without validations during the run, want every of at least 1", v.Patience)
	case v.Samples > 0 && len(v.Budgets) == 0:
		return errors.New("got no budgets, want at least one")
	case len(v.Budgets) > 0:
		if err := eviction.CheckBudgets(v.Budgets); err != nil {
			return fmt.Errorf("budgets: got %v: %w", v.Budgets, err)
		}
	}
	return nil
}

// CheckName is an error unless name can be the name of a run or an adapter, and so of
// its folder: one path element, which does not begin with a dot.
func CheckName(name string) error {
	if name == "" || len(name) > 200 || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\\\x00") || !utf8.ValidString(name) {
		return fmt.Errorf("name: got %.60q, want 1 to 200 bytes without a slash and not beginning with a dot", name)
	}
	return nil
}

// smallModel is the size, in base-model parameters, up to which whole samples
// keep the cores busy better than the operations of one sample can.
const smallModel = 20_000_000

// concurrency is the number of samples worked on at the same time.
func (c *Config) concurrency(m *model.Model) int {
	n := 1
	switch {
	case c.Workers > 0:
		n = c.Workers
	case m.Network.Parameters() <= smallModel:
		n = parallel.Threads()
	}
	return max(1, min(n, c.Batch))
}
