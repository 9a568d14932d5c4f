package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"glimpse/checkpoints/objectstore"
	"glimpse/datasets"
	"glimpse/model"
	"glimpse/training"

	"github.com/spf13/pflag"
)

// contextsFlags choose the contexts that train budgets and train gates learn from.
type contextsFlags struct {
	data                       []string
	samples, shortest, longest int
	seed                       uint64
}

// bind adds the flags.
func (c *contextsFlags) bind(f *pflag.FlagSet, samples int) {
	f.StringSliceVar(&c.data, "data", nil, "files and folders of text, or a file of samples made by train generate")
	f.IntVar(&c.samples, "samples", samples, "number of contexts")
	f.IntVar(&c.shortest, "shortest", 512, "least tokens of a context, of texts")
	f.IntVar(&c.longest, "longest", 2048, "most tokens of a context, of texts")
	f.Uint64Var(&c.seed, "seed", 1, "seed of what is drawn of the texts")
}

// check refuses settings that nothing can be learned with.
func (c *contextsFlags) check() error {
	switch {
	case len(c.data) == 0:
		return errors.New("--data is missing: texts, or samples of train generate")
	case c.samples < 1:
		return fmt.Errorf("--samples: got %d, want at least 1", c.samples)
	case c.shortest < 16 || c.longest < c.shortest:
		return fmt.Errorf("--shortest and --longest: got %d and %d, want at least 16 tokens, the longest no fewer", c.shortest, c.longest)
	}
	return nil
}

// String says where the contexts come from.
func (c *contextsFlags) String() string {
	return fmt.Sprintf("%s, seed %d, %d to %d tokens", strings.Join(c.data, ", "), c.seed, c.shortest, c.longest)
}

// open are the contexts: the prompts of a file of samples, with their responses, or parts of texts behind what the model's chat template
// begins a message with.
func (c *contextsFlags) open(ctx context.Context, m *model.Model, s3 objectstore.Settings, log io.Writer) (func() (context, response []int32, err error), error) {
	if !slices.ContainsFunc(c.data, func(path string) bool { return filepath.Ext(path) != ".jsonl" }) {
		pairs, err := training.ReadPairs(ctx, m, c.data, new(datasets.Contents), s3, log)
		if err != nil {
			return nil, err
		}
		if len(pairs) < c.samples {
			return nil, fmt.Errorf("--samples: got %d, want at most the %d of %s", c.samples, len(pairs), strings.Join(c.data, ", "))
		}
		at := 0
		return func() ([]int32, []int32, error) {
			at++
			return pairs[at-1].PromptIDs, pairs[at-1].ResponseIDs, nil
		}, nil
	}
	texts, err := training.OpenTexts(m, c.data, c.shortest, c.longest, c.seed)
	if err != nil {
		return nil, err
	}
	return func() ([]int32, []int32, error) {
		ids, err := texts.Next()
		return ids, nil, err
	}, nil
}
