package runs

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"glimpse/adapters"
	"glimpse/checkpoints"
	"glimpse/datasets"
	"glimpse/eviction"
	"glimpse/losses"
	"glimpse/model"
	"glimpse/training"
)

// resolveSettings fills in the settings that depend on model and data, and returns the
// tokens that end every prompt.
func (s *Spec) resolveSettings(m *model.Model, source training.Source) ([]int, error) {
	tail, err := training.Invocation(source)
	if err != nil {
		return nil, err
	}
	samples := 0
	if p, ok := source.(*training.Pairs); ok {
		samples = len(p.Pairs)
	}
	if err := s.resolveAdapters(m, samples, tail[len(tail)-1]); err != nil {
		return nil, err
	}
	header := make([]int, len(tail))
	for i, id := range tail {
		header[i] = int(id)
	}
	return header, nil
}

// runsAnswers tells that the adapter is trained by what runs behind its rows on an evicted cache.
func (a *Adapter) runsAnswers() bool {
	kind, _ := model.RowsKinds.Lookup(a.Kind) // what is unknown is named by Validate
	loss, err := losses.Losses.Lookup(cmp.Or(a.Loss, kind.Loss))
	return err == nil && loss.Answer > 0
}

// readHeads reads the budgets of heads whose shares weigh them, or by which rows that stay select, where an adapter asks for that.
func (s *Spec) readHeads(ctx context.Context, m *model.Model, contents *datasets.Contents) error {
	if !slices.ContainsFunc(s.Adapters, func(a Adapter) bool { return a.HeadWeights == eviction.LearnedHeads || a.runsAnswers() }) {
		return nil
	}
	path := s.Heads
	if path == adapters.Shipped {
		path = ""
	}
	b, err := adapters.ReadHeads(ctx, m, path)
	if err != nil {
		return fmt.Errorf("train: %w", err)
	}
	if s.Train.Config.HeadBudgets = b.HeadBudgets; b.HeadBudgets != nil {
		contents.Put("budgets of heads", b.FileSHA256)
	}
	return nil
}

// scorers notes the adapters that select in the place of others' rows: with another one a run does not go on.
func (s *Spec) scorers(contents *datasets.Contents) error {
	for _, a := range s.Adapters {
		if a.Scorer == "" {
			continue
		}
		stored, err := checkpoints.ReadAdapter(a.Scorer)
		if err != nil {
			return fmt.Errorf("train: scorer %s: %w", a.Scorer, err)
		}
		contents.Put("scorer "+a.Scorer, stored.SHA256())
	}
	return nil
}

// resolveAdapters fills in what adapters leave to the model, a preset, the number of
// samples (0: without end) or the token that ends the prompts.
func (s *Spec) resolveAdapters(m *model.Model, samples int, end int32) error {
	c := &s.Train.Config
	if s.Epochs < 0 {
		return fmt.Errorf("train: epochs: got %d, want at least 1", s.Epochs)
	}
	if samples > 0 && s.Epochs > 0 {
		c.Steps, s.Epochs = training.StepsOf(s.Epochs, samples, c.Batch), 0
	} else if s.Epochs > 0 && s.preset == nil {
		drawn := "synthetic prompts"
		if s.texts() {
			drawn = "texts"
		}
		return fmt.Errorf("train: epochs: got %d, but %s have no end; want steps", s.Epochs, drawn)
	}
	s.Epochs = 0
	c.Workers, c.CacheMemory, c.CacheDisk = s.Workers, int64(s.CacheMemory), int64(s.CacheDisk)
	c.Adapters = nil
	for i := range s.Adapters {
		a := &s.Adapters[i]
		a.Name = a.name()
		if a.InitToken == initEnd {
			a.InitToken = InitToken(end)
		}
		if a.Pooling == resolvedPooling {
			a.Pooling = 1
			if p, err := training.Presets.Lookup(a.Kind); err == nil && s.Model != "" {
				a.Pooling = p.Adapter.Pooling
			}
		}
		if a.LearningRate == 0 && s.preset != nil {
			p := s.preset
			if own, err := training.Presets.Lookup(a.Kind); err == nil {
				p = &own
			}
			a.LearningRate = p.Rate(m.Config.Architecture)
		}
		if a.Seed == 0 {
			a.Seed = c.Seed
		}
		a.Out = ""
		c.Adapters = append(c.Adapters, a.Config())
	}
	return nil
}
