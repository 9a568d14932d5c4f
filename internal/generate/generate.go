package generate

import (
	"context"
	"fmt"
	"io"

	"glimpse/datasets"
	"glimpse/model"
)

// Prompt is what a response is generated for.
type Prompt struct {
	ID, Task string
	IDs      []int32
}

// Options are the settings of Pairs.
type Options struct {
	MaxNew   int
	Sampling model.Sampling
	// OnPair is told of every pair written.
	OnPair func(p datasets.Pair)
}

// Pairs generates a response for every prompt that next gives, until io.EOF, and
// writes the pairs in order. A prompt that does not fit the context is an error
// that names it.
func Pairs(ctx context.Context, m *model.Model, next func() (Prompt, error), w *datasets.PairWriter, opt Options) error {
	r := m.NewRunner()
	for {
		p, err := next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		cache := m.NewCache()
		logits, err := r.Prefill(ctx, cache, p.IDs, model.PrefillOptions{})
		if err != nil {
			return fmt.Errorf("prompt %s: %w", p.ID, err)
		}
		response, err := r.Respond(ctx, cache, logits, opt.MaxNew, opt.Sampling)
		if err != nil {
			return fmt.Errorf("prompt %s: %w", p.ID, err)
		}
		pair := datasets.Pair{ID: p.ID, Task: p.Task, PromptIDs: p.IDs, ResponseIDs: response}
		if err := w.Write(pair); err != nil {
			return err
		}
		if opt.OnPair != nil {
			opt.OnPair(pair)
		}
	}
}
