package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"glimpse/checkpoints"
	"glimpse/datasets"
	"glimpse/internal/cli"
	"glimpse/internal/progress"
	"glimpse/internal/train"
	"glimpse/losses"
	"glimpse/model"
	"glimpse/model/hub"

	"github.com/spf13/pflag"
)

// spec is a training run as flags or a file describe it.
type spec struct {
	train.Config
	model, device, data, tasks, out, log string
	tokens, validate                     int
	outs                                 []string // adapter folders, one per adapter
	replace, resume                      bool
	checkpoint                           string
	every                                int  // steps between checkpoints
	initTokenSet, poolingSet             bool // chosen by the user, not by default
}

// bind adds the flags that all single-adapter commands share.
func (s *spec) bind(f *pflag.FlagSet) {
	c := &s.Config
	f.StringVar(&s.model, "model", "", "model folder, or org/name[@revision] of the Hugging Face hub, which is downloaded once; empty is the built-in model")
	f.StringVar(&s.device, "device", "cpu", "where to compute")
	f.StringVar(&s.data, "data", "", "pair file made by train generate; empty draws fresh synthetic prompts (built-in model only)")
	f.StringVar(&s.tasks, "tasks", "default", "synthetic tasks, comma-separated, or default, or all")
	f.IntVar(&s.tokens, "tokens", 512, "prompt length of the synthetic tasks")
	f.IntVar(&c.Steps, "steps", c.Steps, "optimiser steps")
	f.IntVar(&c.Batch, "batch", c.Batch, "samples per step")
	f.Uint64Var(&c.Seed, "seed", 1, "seed of data order and initialisation")
	f.IntVar(&c.MaxResponse, "max-response", c.MaxResponse, "most response tokens used")
	f.IntVar(&c.Warmup, "warmup", c.Warmup, "steps of linear warm-up")
	f.StringVar(&c.Schedule, "schedule", c.Schedule, "learning rate after warm-up: cosine or constant")
	f.Float64Var(&c.WeightDecay, "weight-decay", c.WeightDecay, "decoupled weight decay")
	f.Float64Var(&c.Clip, "clip", c.Clip, "global gradient norm; 0 does not clip")
	f.IntVar(&c.Workers, "workers", 0, "samples worked on at the same time; 0 chooses by the model's size")
	f.Int64Var(&c.CacheMemory, "cache-memory", 0, "bytes of repeated samples' keys, values and targets kept in memory")
	f.Int64Var(&c.CacheDisk, "cache-disk", 0, "bytes of them kept on disk beyond that")
	f.IntVar(&s.validate, "validate", 16, "held-out samples whose loss is measured at the end; 0 measures none")
	f.StringVar(&s.log, "log", "", "JSONL file of every step's numbers")
	f.BoolVar(&s.replace, "replace", false, "replace an adapter folder that exists")
	s.bindCheckpoint(f)
}

func (s *spec) bindCheckpoint(f *pflag.FlagSet) {
	f.StringVar(&s.checkpoint, "checkpoint", "", "file that keeps the state of the run; it is written every --checkpoint-every steps and when the run is stopped")
	f.IntVar(&s.every, "checkpoint-every", 100, "steps between checkpoints")
	f.BoolVar(&s.resume, "resume", false, "go on from the checkpoint, if there is one, with the bits of a run that was never stopped")
}

// run trains, reports and exports.
func (s *spec) run(ctx context.Context, log, out io.Writer) error {
	for i, dir := range s.outs {
		if slices.ContainsFunc(s.outs[:i], func(other string) bool { return sameFolder(other, dir) }) {
			return fmt.Errorf("train: adapter folder %q: named for two adapters, want one each", dir)
		}
		if err := checkpoints.CheckTarget(dir, s.replace); err != nil {
			return err
		}
	}
	m, err := hub.Open(ctx, s.model, log, model.Options{Device: s.device})
	if err != nil {
		return err
	}
	defer m.Close()
	hash, err := m.SHA256(ctx)
	if err != nil {
		return err
	}
	source, held, err := s.sources(m, hash)
	if err != nil {
		return err
	}
	header, err := s.resolve(m, source)
	if err != nil {
		return err
	}
	t, err := train.New(m, s.Config, source)
	if err != nil {
		return err
	}
	defer t.Close()
	if err := s.takeUp(t, hash, log); err != nil {
		return err
	}
	if err := s.train(ctx, t, hash, log); err != nil {
		return err
	}
	metrics, err := s.evaluate(ctx, t, held, log)
	if err != nil {
		return err
	}
	settings, err := json.Marshal(s.Config)
	if err != nil {
		return err
	}
	for i, a := range s.Config.Adapters {
		stored := t.Adapter(i).Export()
		stored.Base = checkpoints.BaseModel{Name: m.Name, SHA256: hash}
		stored.Loss, stored.PoolingKernel, stored.Training, stored.Metrics = a.Loss, a.Pooling, settings, metrics[i]
		stored.Data = checkpoints.DataSource{Description: source.Describe(), Seed: int64(s.Config.Seed)}
		if len(stored.LoRA) > 0 {
			stored.InvocationTokens = header
		}
		if err := checkpoints.WriteAdapter(s.outs[i], stored, s.replace); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %s adapter of %s, %d rows, %d trained numbers\n", s.outs[i], a.Kind, m.Name, a.Rows, parameters(t.Adapter(i)))
	}
	if err := s.timing(ctx, m, t, source, out); err != nil {
		return err
	}
	if peak := cli.PeakMemory(); peak > 0 {
		cache := m.Config.CacheBytesPerToken(m.Backend.Compute().Size()) * int64(longest(source))
		fmt.Fprintf(out, "peak memory %.1f MiB; weights %.1f MiB, one prompt's cache %.1f MiB\n", mib(peak), mib(m.WeightBytes()), mib(cache))
	}
	return nil
}

// sameFolder tells that two names mean one folder, which need not exist yet.
func sameFolder(a, b string) bool {
	absA, errA := filepath.Abs(a)
	absB, errB := filepath.Abs(b)
	return errA == nil && errB == nil && absA == absB
}

func mib(b int64) float64 { return float64(b) / (1 << 20) }

// longest is the longest prompt of the first samples.
func longest(source train.Source) int {
	n := 0
	for i := range 16 {
		if x, err := source.At(i); err == nil {
			n = max(n, len(x.Prompt))
		}
	}
	return n
}

func parameters(a model.Adapter) int {
	n := 0
	for _, p := range a.Parameters() {
		n += p.Tensor.Len()
	}
	return n
}

// sources are the training samples and, where there are any, held-out ones.
func (s *spec) sources(m *model.Model, hash string) (source, held train.Source, err error) {
	if s.data == "" {
		fresh, err := newStream(m, s.model, s.tasks, "train", s.tokens, s.Config.Seed)
		if err != nil {
			return nil, nil, err
		}
		validation, err := newStream(m, s.model, s.tasks, "validation", s.tokens, s.Config.Seed)
		if err != nil {
			return nil, nil, err
		}
		return train.Fresh{Stream: fresh}, train.Fresh{Stream: validation}, nil
	}
	h, pairs, err := datasets.ReadPairs(s.data)
	if err != nil {
		return nil, nil, err
	}
	if h.WeightsSHA256 != hash {
		return nil, nil, fmt.Errorf("%s: responses of model %s (weights %.12s…), want those of %s (weights %.12s…): the target is the attention of the model's own responses", s.data, h.Model, h.WeightsSHA256, m.Name, hash)
	}
	for _, p := range pairs {
		if err := p.CheckIDs(m.Config.Vocab); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", s.data, err)
		}
		if len(p.PromptIDs)+len(p.ResponseIDs) > m.Config.MaxPositions {
			return nil, nil, fmt.Errorf("%s: pair %s: %d prompt and %d response tokens, want at most %d together: %w", s.data, p.ID, len(p.PromptIDs), len(p.ResponseIDs), m.Config.MaxPositions, model.ErrContext)
		}
	}
	return &train.Pairs{Pairs: pairs, Name: s.data, Seed: s.Config.Seed}, nil, nil
}

// resolve fills in the settings that depend on model and data, and returns the
// tokens that end every prompt: the template's assistant header.
func (s *spec) resolve(m *model.Model, source train.Source) ([]int, error) {
	const prompts, longest = 16, 8
	var tail []int32
	for i := range prompts {
		x, err := source.At(i)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			tail = x.Prompt[max(0, len(x.Prompt)-longest):]
		}
		tail = commonTail(tail, x.Prompt)
	}
	first, err := source.At(0)
	if err != nil {
		return nil, err
	}
	end := first.Prompt[len(first.Prompt)-1:]
	if len(tail) == 0 {
		tail = end
	}
	for i := range s.Config.Adapters {
		a := &s.Config.Adapters[i]
		if !s.initTokenSet {
			a.InitToken = end[0]
		}
		if !s.poolingSet && s.model == "" {
			a.Pooling = 1
		}
	}
	header := make([]int, len(tail))
	for i, id := range tail {
		header[i] = int(id)
	}
	return header, nil
}

// commonTail is the longest end that a and b share.
func commonTail(a, b []int32) []int32 {
	n := 0
	for n < min(len(a), len(b)) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return slices.Clone(a[len(a)-n:])
}

// takeUp goes on from the checkpoint where that is asked for.
func (s *spec) takeUp(t *train.Trainer, hash string, log io.Writer) error {
	switch {
	case s.checkpoint == "" && s.resume:
		return fmt.Errorf("train: --resume needs --checkpoint")
	case s.every < 1:
		return fmt.Errorf("train: --checkpoint-every: got %d, want at least 1", s.every)
	case s.checkpoint == "":
		return nil
	}
	_, err := os.Stat(s.checkpoint)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !s.resume:
		return fmt.Errorf("train: checkpoint %s exists: go on from it with --resume, or remove it", s.checkpoint)
	}
	if err := t.Resume(s.checkpoint, hash); err != nil {
		return err
	}
	fmt.Fprintf(log, "going on after step %d of %s\n", t.Done(), s.checkpoint)
	return nil
}

// openLog starts the step log, or goes on with it.
func (s *spec) openLog() (*os.File, error) {
	mode := os.O_TRUNC
	if s.resume {
		mode = os.O_APPEND
	}
	return os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|mode, 0o644)
}

// train runs all steps with progress, log and checkpoints.
func (s *spec) train(ctx context.Context, t *train.Trainer, hash string, log io.Writer) error {
	// A line at a time and not atomically: what a killed run leaves is the record of
	// the steps that it did.
	var lines *os.File
	if s.log != "" {
		var err error
		if lines, err = s.openLog(); err != nil {
			return err
		}
		defer lines.Close()
	}
	bar := progress.New(log, "steps", int64(s.Config.Steps))
	bar.Skip(int64(t.Done()))
	err := t.Run(ctx, func(r train.StepResult) error {
		text := ""
		for _, a := range r.Adapters {
			text += fmt.Sprintf("%s loss %.4g  ", a.Name, a.Loss)
		}
		bar.Describe(text)
		bar.Add(1)
		if lines != nil {
			if err := json.NewEncoder(lines).Encode(r); err != nil {
				return err
			}
		}
		if s.checkpoint != "" && (r.Step%s.every == 0 || r.Step == s.Config.Steps) {
			return t.Save(s.checkpoint, hash)
		}
		return nil
	})
	bar.Done()
	if err != nil {
		if errors.Is(err, context.Canceled) {
			if s.checkpoint == "" {
				return fmt.Errorf("stopped before the last step, no adapter was written: %w", err)
			}
			if err := t.Save(s.checkpoint, hash); err != nil {
				return err
			}
			return fmt.Errorf("stopped after step %d, go on with --resume: %w", t.Done(), err)
		}
		return err
	}
	if t.Skipped() > 0 {
		fmt.Fprintf(log, "%d samples had an empty response and were left out\n", t.Skipped())
	}
	if lines != nil {
		return lines.Close()
	}
	return nil
}

// evaluate measures the loss on held-out samples.
func (s *spec) evaluate(ctx context.Context, t *train.Trainer, held train.Source, log io.Writer) ([]map[string]float64, error) {
	metrics := make([]map[string]float64, len(s.Config.Adapters))
	if held == nil || s.validate <= 0 {
		return metrics, nil
	}
	values, err := t.Evaluate(ctx, held, 0, s.validate)
	if err != nil {
		return nil, err
	}
	for i, v := range values {
		metrics[i] = map[string]float64{"validation_loss": v, "validation_samples": float64(s.validate)}
		fmt.Fprintf(log, "%s: loss %.4g on %d held-out samples\n", s.Config.Adapters[i].Name, v, s.validate)
	}
	return metrics, nil
}

// timing measures a step against the prefill, on the first sample.
func (s *spec) timing(ctx context.Context, m *model.Model, t *train.Trainer, source train.Source, out io.Writer) error {
	first, err := source.At(0)
	if err != nil {
		return err
	}
	response := first.Response
	if len(response) == 0 { // of any tokens: only their number matters here
		response = first.Prompt[:min(16, len(first.Prompt))]
	}
	response = response[:min(len(response), s.Config.MaxResponse, m.Config.MaxPositions-len(first.Prompt))]
	for i, a := range s.Config.Adapters {
		loss, err := losses.Losses.Lookup(a.Loss)
		if err != nil {
			return err
		}
		measured, err := train.Measure(ctx, m, t.Adapter(i), loss, first.Prompt, response, 5)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %v\n", a.Name, measured)
	}
	return nil
}
