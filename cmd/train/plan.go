package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"glimpse/datasets"
	"glimpse/internal/cli"
	"glimpse/internal/curves"
	"glimpse/model"
	"glimpse/model/hub"
	"glimpse/training"

	"github.com/spf13/cobra"
)

func newPlan() *cobra.Command {
	var (
		s                = defaultSpec()
		prompt, response int
		asJSON           bool
	)
	cmd := &cobra.Command{
		Use:   "plan CONFIG.yaml",
		Short: "Say what a run will take, before it runs and without its weights",
		Long: `Say what a run will take, before it runs and without its weights.

Prints how long the run takes on this machine and, computed, on one H100, every adapter's
number of parameters, the memory by purpose, the time of a step, and what to change where
the run takes more than a day or more memory than there is. The model's folder needs no
weights: config.json is enough, and all that is fetched of a model of the hub or of a
bucket. It takes about a second, whatever the model's size: memory is counted without
weights, and the times are computed from rates that are measured on this machine.

Lengths are those of the data, of the synthetic tasks, or of --prompt-tokens and
--response-tokens; without any of them, those of the preset.`,
		Example: `  train plan scripts/examples/run.yaml
  train plan --preset lookaheadkv --prompt-tokens 512 --response-tokens 16 --json
  train plan --preset lookaheadkv --model path/to/llama --prompt-tokens 16384`,
		Args: cli.Args("[CONFIG.yaml]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			flags := givenFlags(cmd.Flags())
			path := "train plan"
			if len(args) == 1 {
				path = args[0]
				if err := s.read(path, flags); err != nil {
					return err
				}
			} else {
				if s.Preset == "" {
					return fmt.Errorf("%s: got neither a configuration nor --preset, want one", path)
				}
				if err := s.presetAlone(flags); err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
			}
			training.BoundMemory()
			m, err := hub.OpenShapes(cmd.Context(), s.Model, s.S3, cmd.ErrOrStderr(), s.Device)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if err := m.SetCacheDType(s.CacheDType); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			o, err := s.lengths(cmd.Context(), m, prompt, response, cmd.ErrOrStderr())
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			o.Resident, o.Available = cli.ResidentMemory, cli.AvailableMemory
			o.Draw = func() error { return curves.WritePNG(io.Discard, panels(exampleSteps(&s.Train.Config))) }
			p, err := training.NewPlan(cmd.Context(), m, s.Train.Config, o)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(p)
			}
			return writePlan(cmd.OutOrStdout(), p, &s.Train.Config)
		},
	}
	f := cmd.Flags()
	s.bind(f)
	s.bindSet(f)
	f.IntVar(&prompt, "prompt-tokens", 0, "tokens of the longest prompt; 0 is as the data or the preset have them")
	f.IntVar(&response, "response-tokens", 0, "tokens of the longest response; 0 likewise")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// exampleSteps are steps of a run, with validations if it has any, for drawing.
func exampleSteps(c *training.Config) []training.StepResult {
	steps := make([]training.StepResult, min(c.Steps, 1000))
	for i := range steps {
		s := &steps[i]
		s.Step = i + 1
		y := 1 / float64(i+1)
		for _, a := range c.Adapters {
			s.Adapters = append(s.Adapters, training.AdapterResult{Name: a.Name, Loss: y, GradNorm: y, LearningRate: y})
		}
		if v := c.Validation; v.Every > 0 && i%v.Every == 0 {
			q := training.Quality{Loss: y, HitRate: []training.Number{training.Number(y)}}
			s.Validation = &training.Validation{SnapKV: q, Budgets: v.Budgets}
			for range c.Adapters {
				s.Validation.Adapters = append(s.Validation.Adapters, q)
			}
		}
	}
	return steps
}

// lengths settles the adapters for a model, of which shapes will do, and how long the
// samples are.
func (s *spec) lengths(ctx context.Context, m *model.Model, prompt, response int, log io.Writer) (training.PlanOptions, error) {
	var o training.PlanOptions
	samples := 0
	switch {
	case len(s.Data) > 0:
		files, err := s.pairFiles(ctx, s.Data, log)
		if err != nil {
			return o, err
		}
		sum := 0
		for _, file := range files {
			_, pairs, err := datasets.ReadPairs(file)
			if err != nil {
				return o, err
			}
			for _, p := range pairs {
				o.Prompt, o.Response = max(o.Prompt, len(p.PromptIDs)), max(o.Response, len(p.ResponseIDs))
				sum += len(p.PromptIDs)
			}
			samples += len(pairs)
		}
		o.MeanPrompt = sum / max(1, samples)
	case s.Model == "":
		o.Prompt, o.Response, o.Generated = s.Tokens, 16, true
	case s.preset != nil:
		o.Prompt, o.Response = s.preset.MaxPrompt, s.Train.MaxResponse
	case prompt == 0:
		return o, fmt.Errorf("no data, want --prompt-tokens")
	}
	if prompt > 0 {
		o.Prompt, o.MeanPrompt = prompt, 0
	}
	if response > 0 {
		o.Response = response
	}
	o.Response = max(1, min(o.Response, s.Train.MaxResponse))
	if o.Prompt < 1 {
		return o, fmt.Errorf("prompt tokens: got %d, want at least 1", o.Prompt)
	}
	// The first token is as good as any other for a plan.
	return o, s.resolveAdapters(m, samples, 0)
}
