package runs

import (
	"context"
	"fmt"
	"io"

	"glimpse/datasets"
	"glimpse/model"
	"glimpse/training"
)

// Lengths resolves the adapters for a model, of which shapes will do, and how long the samples are.
func (s *Spec) Lengths(ctx context.Context, m *model.Model, prompt, response int, log io.Writer) (training.PlanOptions, error) {
	var o training.PlanOptions
	samples := 0
	switch {
	case len(s.Data) > 0:
		files, err := training.PairFiles(ctx, s.Data, s.S3, log)
		if err != nil {
			return o, err
		}
		sum := 0
		for _, file := range files {
			_, pairs, err := datasets.ReadPairs(file.Path)
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
