package main

import (
	"fmt"

	"glimpse/evaluation/lineup"
	"glimpse/eviction"
	"glimpse/internal/cli"
	"glimpse/internal/figures"
	"glimpse/model"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// setup is what all commands that run a model share.
type setup struct{ lineup.Options }

func (s *setup) bind(f *pflag.FlagSet) {
	f.StringVar(&s.Model, "model", "", "model folder, org/name[@revision] of the Hugging Face hub or s3://BUCKET/NAME, which are downloaded once; empty is the built-in model")
	f.StringVar(&s.Device, "device", "cpu", "where to compute: cpu, cuda:N, auto for a GPU where there is one (see \"evict doctor\"), or several that share the layers out (cuda:0-3, cpu,cpu)")
	f.StringVar(&s.CacheDType, "cache-dtype", "auto", model.CacheDTypeUsage)
	f.StringArrayVar(&s.Adapters, "adapter", nil, "adapter folder or s3://BUCKET/NAME for the learned policy of its kind, as DIR or NAME=DIR; may be repeated; the folder of \"train sweep\" stands for all of its adapters; \"shipped\" are those of the built-in model, and its default")
	f.StringArrayVar(&s.Drafts, "draft", nil, "model that writes the draft of speckv, as DIR or NAME=DIR, where DIR may be all that --model takes; may be repeated; for DIR, \"self\" is the model itself, the default, \"layers:N\" its first N layers, and \"shipped\" the small model that comes with the built-in one")
	f.StringVar(&s.Pattern, "pattern", "", "folder with a pattern of retrieval heads for duoattention, see evict patterns; empty is that of the model folder")
	f.StringArrayVar(&s.Set, "set", nil, "option of a policy, as policy.option=value; may be repeated")
	f.Uint64Var(&s.Seed, "seed", 1, "seed of everything that draws")
	s.S3.Bind(f)
}

// bindChat adds the flags of commands that render a chat template.
func (s *setup) bindChat(f *pflag.FlagSet) { cli.BindChat(f, &s.ChatOptions, &s.ChatDate) }

// bindBudget adds --budget, whose shares are of the whole that is named.
func bindBudget(f *pflag.FlagSet, b *eviction.Budget, whole string) {
	*b = eviction.Pairs(128)
	f.Var(b, "budget", fmt.Sprintf("pairs kept per KV head and layer, as 128, or a share of the %s, as 10%% or 0.1, rounded down", whole))
}

// bestWithoutAdapter is the best policy on the built-in model, as a mean over budgets, of those
// that hold their budget and need nothing else (docs/policies-results.md).
const bestWithoutAdapter = "laq"

// choosePolicy takes the best policy that needs no adapter where none is given and no policy is
// asked for, and refuses one that lacks its adapter before a model is fetched.
func (s *setup) choosePolicy(cmd *cobra.Command, policy *string) error {
	if !cmd.Flags().Changed("policy") && s.Model != "" && len(s.Adapters) == 0 {
		*policy = bestWithoutAdapter
		fmt.Fprintf(cmd.ErrOrStderr(), "no adapter is given: the policy is %s, the best without one; \"train lookahead --model %s -o DIR\" makes one, and --adapter DIR takes it\n", *policy, s.Model)
	}
	if err := s.CheckAdapters(*policy); err != nil {
		return fmt.Errorf("%s: %w", cmd.Name(), err)
	}
	return nil
}

// pictureFormat is the format of a flag's picture; path may be "".
func pictureFormat(flag, path string) (figures.Format, error) {
	if path == "" {
		return "", nil
	}
	format, err := figures.FormatOf(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	return format, nil
}
