package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"glimpse/datasets"
	"glimpse/internal/commands"
	"glimpse/labels"
	"glimpse/model"
	"glimpse/training"
)

// sources are the training samples and, where there are any, held-out ones, and what they are
// drawn from.
func (s *Spec) sources(ctx context.Context, m *model.Model, log io.Writer) (source, held training.Source, contents datasets.Contents, err error) {
	v := &s.Train.Validation
	if len(s.Data) == 0 {
		if len(s.HeldOut) > 0 {
			return nil, nil, nil, fmt.Errorf("train: --held-out needs --data: synthetic prompts have held-out ones of their own")
		}
		fresh, err := s.fresh(m, "train")
		if err != nil {
			return nil, nil, nil, err
		}
		validation, err := s.fresh(m, "validation")
		if err != nil {
			return nil, nil, nil, err
		}
		if err := errors.Join(contents.AddStream(fresh), contents.AddStream(validation)); err != nil {
			return nil, nil, nil, err
		}
		return training.Fresh{Stream: fresh}, training.Fresh{Stream: validation}, contents, nil
	}
	if s.texts() {
		return s.textSources(ctx, m)
	}
	pairs, err := training.ReadPairs(ctx, m, s.Data, &contents, s.S3, log)
	if err != nil {
		return nil, nil, nil, err
	}
	name := strings.Join(s.Data, ", ")
	var heldPairs []datasets.Pair
	if len(s.HeldOut) > 0 {
		if heldPairs, err = training.ReadPairs(ctx, m, s.HeldOut, &contents, s.S3, log); err != nil {
			return nil, nil, nil, err
		}
		v.Samples = min(v.Samples, len(heldPairs))
	} else {
		pairs, heldPairs = training.HoldOutPairs(pairs, min(v.Samples, len(pairs)/10))
		if v.Every > 0 && len(heldPairs) == 0 {
			return nil, nil, nil, fmt.Errorf("train: validation every %d steps: got %d samples of which one in ten can be held out, want at least 10, or --held-out", v.Every, len(pairs))
		}
		v.Samples = len(heldPairs)
	}
	source = &training.Pairs{Pairs: pairs, Name: name, Seed: s.Train.Seed}
	if len(heldPairs) == 0 {
		return source, nil, contents, nil
	}
	return source, &training.Pairs{Pairs: heldPairs, Name: "held out of " + name, Seed: s.Train.Seed}, contents, nil
}

// texts tells that the data are any texts: no label of an adapter is of a response, and a path is no file of samples.
func (s *Spec) texts() bool {
	if len(s.Adapters) == 0 {
		return false
	}
	for _, a := range s.Adapters {
		if l, err := labels.Labels.Lookup(cmp.Or(a.Label, labels.Default)); err != nil || l.Response {
			return false
		}
	}
	return training.AreTexts(s.Data)
}

// textSources are the sources of texts.
func (s *Spec) textSources(ctx context.Context, m *model.Model) (source, held training.Source, contents datasets.Contents, err error) {
	for _, path := range slices.Concat(s.Data, s.HeldOut) {
		if err := contents.Add(ctx, path, path); err != nil {
			return nil, nil, nil, err
		}
	}
	texts, err := training.OpenTexts(m, s.Data, s.Shortest, s.Longest, s.Train.Seed)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("train: %w", err)
	}
	if len(s.HeldOut) == 0 {
		rest, held := texts.HoldOut()
		return rest, held, contents, nil
	}
	others, err := training.OpenTexts(m, s.HeldOut, s.Shortest, s.Longest, s.Train.Seed)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("train: --held-out: %w", err)
	}
	return texts, others, contents, nil
}

// fresh is the stream of synthetic prompts where no data are given. A model that does not know their words needs data.
func (s *Spec) fresh(m *model.Model, split string) (*datasets.Stream, error) {
	stream, err := datasets.StreamFor(m.Name, m.Config.Vocab, s.Tasks, split, s.Tokens, s.Train.Seed)
	if err != nil && !datasets.Knows(m.Config.Vocab) {
		err = fmt.Errorf("train: %w; --data takes samples of its own, which \"%s\" makes", err, commands.Generate.With("model", s.Model))
	}
	return stream, err
}
