package runs

import (
	"context"
	"fmt"
	"io"

	"glimpse/datasets"
	"glimpse/model"
	"glimpse/training"
)

// Plan resolves a run for a model, whose shapes will do: the configuration, or the configurations of a sweep's
// passes, and how long the samples are. prompt and response are lengths in tokens that
// stand instead of the data's; 0 is none.
func (s *Spec) Plan(ctx context.Context, m *model.Model, prompt, response int, log io.Writer) ([]training.Config, training.PlanOptions, error) {
	o, samples, err := s.lengths(ctx, prompt, response, log)
	if err != nil {
		return nil, o, err
	}
	passes := []*Spec{s}
	if s.Sweep != nil {
		if passes, err = s.passes(); err != nil {
			return nil, o, err
		}
	}
	var configs []training.Config
	for _, run := range passes {
		// The first token is as good as any other for a plan.
		if err := run.resolveAdapters(m, samples, 0); err != nil {
			return nil, o, err
		}
		c := run.Train.Config
		for i := range c.Adapters { // which cost as much however their heads are weighed
			c.Adapters[i].HeadWeights = ""
		}
		configs = append(configs, c)
	}
	return configs, o, nil
}

// lengths are the lengths of the samples, and their number; 0: without end.
func (s *Spec) lengths(ctx context.Context, prompt, response int, log io.Writer) (o training.PlanOptions, samples int, err error) {
	switch {
	case s.texts():
		o.Prompt, o.MeanPrompt, o.Response = s.Longest, (s.Shortest+s.Longest)/2, 1
	case len(s.Data) > 0:
		files, err := training.PairFiles(ctx, s.Data, s.S3, log)
		if err != nil {
			return o, 0, err
		}
		sum := 0
		for _, file := range files {
			_, pairs, err := datasets.ReadPairs(file.Path)
			if err != nil {
				return o, 0, err
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
		return o, 0, fmt.Errorf("no data, want --prompt-tokens")
	}
	if prompt > 0 {
		o.Prompt, o.MeanPrompt = prompt, 0
	}
	if response > 0 {
		o.Response = response
	}
	o.Response = max(1, min(o.Response, s.Train.MaxResponse))
	if o.Prompt < 1 {
		return o, 0, fmt.Errorf("prompt tokens: got %d, want at least 1", o.Prompt)
	}
	return o, samples, nil
}
