package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"glimpse/checkpoints/objectstore"
	"glimpse/datasets"
	"glimpse/eviction"
	"glimpse/internal/cli"
	"glimpse/labels"
	"glimpse/model"
	"glimpse/model/hub"
	"glimpse/training"

	"github.com/spf13/cobra"
)

// contextsFlags are what train budgets and train gates have in common: the contexts that they learn from, the label, and what they write.
type contextsFlags struct {
	model, device, cacheDType, out, label string
	set, data                             []string
	samples, shortest, longest            int
	seed                                  uint64
	replace                               bool
	s3                                    objectstore.Settings
}

// bindFlags adds the flags, with a number of contexts, a label, and what the label and the output are.
func (c *contextsFlags) bindFlags(cmd *cobra.Command, samples int, label, labelUsage, out string) {
	f := cmd.Flags()
	c.device = "cpu"
	cli.BindModel(f, &c.model, &c.device)
	f.StringVar(&c.cacheDType, "cache-dtype", "auto", model.CacheDTypeUsage)
	f.StringSliceVar(&c.data, "data", nil, "files and folders of text, or a file of samples made by train generate")
	f.IntVar(&c.samples, "samples", samples, "number of contexts")
	f.IntVar(&c.shortest, "shortest", 512, "least tokens of a context, of texts")
	f.IntVar(&c.longest, "longest", 2048, "most tokens of a context, of texts")
	f.Uint64Var(&c.seed, "seed", 1, "seed of what is drawn of the texts")
	f.StringVar(&c.label, "label", label, labelUsage)
	f.StringArrayVar(&c.set, "set", nil, "option of the label's policy, as kvzip.chunk=4096; may be repeated")
	f.StringVarP(&c.out, "out", "o", "", out+" to write")
	f.BoolVar(&c.replace, "replace", false, "replace the "+out)
	c.s3.Bind(f)
	cli.Everyday(cmd, "model", "device", "data", "label", "samples", "out", "replace")
}

// check refuses settings that nothing can be learned with.
func (c *contextsFlags) check() error {
	switch {
	case c.out == "":
		return errors.New("--out is missing: where to write")
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

// labelText is the label with its options.
func (c *contextsFlags) labelText() string {
	return strings.Join(append([]string{c.label}, c.set...), " ")
}

// opened is what is learned from.
type opened struct {
	*model.Model
	label *eviction.Configured
	next  func() (context, response []int32, err error)
}

// open opens the label with its options and others, the model, which the caller closes, and the contexts.
func (c *contextsFlags) open(cmd *cobra.Command, others ...string) (o opened, err error) {
	named, err := labels.Named(c.label)
	if err != nil {
		return o, err
	}
	if o.label, err = named.Configure(append(others, c.set...)...); err != nil {
		return o, err
	}
	if o.Model, err = hub.Open(cmd.Context(), c.model, c.s3, cmd.ErrOrStderr(), model.Options{Device: c.device, CacheDType: c.cacheDType}); err != nil {
		return o, err
	}
	if o.next, err = c.contexts(cmd.Context(), o.Model, cmd.ErrOrStderr()); err != nil {
		o.Close()
	}
	return o, err
}

// contexts are the prompts of files of samples, with their responses, or parts of texts behind what the model's chat template
// begins a message with.
func (c *contextsFlags) contexts(ctx context.Context, m *model.Model, log io.Writer) (func() (context, response []int32, err error), error) {
	if !training.AreTexts(c.data) {
		pairs, err := training.ReadPairs(ctx, m, c.data, new(datasets.Contents), c.s3, log)
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
