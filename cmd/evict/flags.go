package main

import (
	"cmp"
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

// modelDetails are what the help of these commands says of their adapters and drafts.
const modelDetails = `--adapter DIR names the folder of one adapter. That of a "train sweep" stands for all of its
adapters, and "shipped" for those of the built-in model, which are its default. Models and
adapters of the hub or a bucket are downloaded once. --draft takes for DIR all that --model
takes, "self", the model itself, "layers:N", its first N layers, or "shipped", the small model
that comes with the built-in one.`

func (s *setup) bind(f *pflag.FlagSet) {
	s.Device = "cpu"
	cli.BindModel(f, &s.Model, &s.Device)
	f.StringVar(&s.CacheDType, "cache-dtype", "auto", model.CacheDTypeUsage)
	f.StringArrayVar(&s.Adapters, "adapter", nil, "adapter folder or s3://BUCKET/NAME, as DIR or NAME=DIR; may be repeated")
	f.StringArrayVar(&s.Drafts, "draft", nil, "draft model of speckv: DIR, NAME=DIR, self, layers:N or shipped; may be repeated; empty is self")
	f.StringVar(&s.Pattern, "pattern", "", "folder with the retrieval heads for duoattention (see evict patterns); empty is the model's own")
	f.StringArrayVar(&s.Set, "set", nil, "option of a policy, as POLICY.OPTION=VALUE; may be repeated")
	f.Uint64Var(&s.Seed, "seed", 1, "seed of all random choices")
	s.S3.Bind(f)
}

// bindChat adds the flags of commands that render a chat template.
func (s *setup) bindChat(f *pflag.FlagSet) { cli.BindChat(f, &s.ChatOptions, &s.ChatDate) }

// bindBudget adds --budget, whose shares are of the whole that is named.
func bindBudget(f *pflag.FlagSet, b *eviction.Budget, whole string) {
	if err := b.Set(defaultBudget); err != nil {
		panic(err)
	}
	f.Var(b, "budget", fmt.Sprintf("KV entries kept per KV head and layer, as 128, or a share of the %s, as 10%%", whole))
}

// What a model of the user's runs with where neither is said. At half of the prompt the policy finds nearly
// what the full cache does, and adds next to no time before the first token (docs/policies.md, Defaults).
const (
	defaultBudget  = "50%"
	withoutAdapter = "snapkv" // the policy of a model without an adapter
)

// bindPolicy adds --policy; more is what else it takes.
func bindPolicy(f *pflag.FlagSet, policy *string, more string) {
	f.StringVar(policy, "policy", "lookaheadkv", "eviction policy (see evict policies)"+more+"; "+withoutAdapter+" without an adapter")
}

// choosePolicy takes withoutAdapter where no adapter is given and no policy is asked for. It refuses
// several, and one that lacks its adapter, before a model is fetched.
func (s *setup) choosePolicy(cmd *cobra.Command, policy *string) error {
	if !cli.GivenFlags(cmd.Flags()).Given("policy") && s.Model != "" && len(s.Adapters) == 0 {
		*policy = withoutAdapter
		fmt.Fprintf(cmd.ErrOrStderr(), "no adapter is given: the policy is %s; \"train lookahead --model %s -o DIR\" makes one, and --adapter DIR takes it\n", *policy, s.Model)
	}
	if err := cmp.Or(lineup.CheckOne(*policy), s.CheckAdapters(*policy)); err != nil {
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
