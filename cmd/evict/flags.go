package main

import (
	"fmt"
	"io"

	"glimpse/console"
	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/internal/cli"
	"glimpse/internal/figures"
	"glimpse/model"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"glimpse/internal/commands"
)

// setup is what all commands that run a model share.
type setup struct {
	engine.Options
	context    contextFlag      // of commands that have it
	calibrated calibratedBudget // the same
}

// modelDetails are what the help of these commands says of their adapters and drafts.
const modelDetails = `--adapter DIR names the folder of one adapter. That of a "train sweep" stands for all of its
adapters, one with a registry.json for those that it lists for the model's weights, and
"shipped" for those that come with this program, which are the default. A registry that is
a default itself ($GLIMPSE_ADAPTER) need not know the model. Models and adapters of the hub
or a bucket are downloaded once. --draft takes for DIR all that --model
takes, "self", the model itself, "layers:N", its first N layers, or "shipped", the small model
that comes with the built-in one. --heads shipped are budgets of heads that were learned for the
model and come with this program: the default, but of eval, which compares policies as their
authors have them.`

func (s *setup) addFlags(f *pflag.FlagSet) {
	s.Device = "cpu"
	cli.BindModel(f, &s.Model, &s.Device)
	f.StringVar(&s.CacheDType, "cache-dtype", "auto", model.CacheDTypeUsage)
	f.BoolVar(&s.Exact, "exact", false, "compute in float32 throughout, on a processor: slower, and the same answers on nearly all machines")
	f.StringArrayVar(&s.Adapters, "adapter", nil, "folder or s3://BUCKET/NAME of an adapter or a registry of them, as DIR or NAME=DIR; may be repeated")
	f.StringArrayVar(&s.Drafts, "draft", nil, "draft model of speckv: DIR, NAME=DIR, self, layers:N or shipped; may be repeated; empty is self")
	f.StringVar(&s.Pattern, "pattern", "", "folder with the retrieval heads for duoattention (see evict patterns); empty is the model's own")
	f.StringVar(&s.Heads, "heads", "", "how KV heads share a budget: equal, layer, global, shipped or FILE of train budgets; empty: shipped or else equal")
	f.StringArrayVar(&s.Set, "set", nil, "option of a policy, as POLICY.OPTION=VALUE; may be repeated")
	f.Uint64Var(&s.Seed, "seed", 1, "seed of all random choices")
	s.S3.Bind(f)
}

// bindChat adds the flags of commands that render a chat template.
func (s *setup) bindChat(f *pflag.FlagSet) {
	cli.BindChat(f, &s.ChatTemplate, &s.ChatOptions, &s.ChatDate)
}

// bindBudget adds --budget, whose shares are of the thing that is named; where none is given, one of fewer than so many tokens is
// kept whole.
func bindBudget(f *pflag.FlagSet, b *eviction.Budget, of string, short int) {
	if err := b.Set(defaultBudget); err != nil {
		panic(err)
	}
	*b = b.WholeBelow(short)
	f.Var(b, "budget", fmt.Sprintf("KV entries kept per KV head and layer, as 128, or a share of the %s, as 10%%", of))
}

// bindKeep adds the flags of what stays of a prompt. Where none is given it is the list start.
func bindKeep(f *pflag.FlagSet, k *engine.KeepRules, start string) {
	if start != "" {
		if err := k.Set(start); err != nil {
			panic(err)
		}
	}
	f.Var(k, "keep", "what stays in every head, within the budget: some of system, tools, last, cache_control, fair, strict; or none")
	f.Var(patternFlag{k}, "keep-pattern", "regular expression of texts that every head keeps, as [0-9]{4,} for figures")
}

// patternFlag is the pattern of KeepRules.
type patternFlag struct{ *engine.KeepRules }

func (p patternFlag) Set(pattern string) error { return p.Match(pattern) }

// Type is what help calls the flag's value: any text may be one.
func (patternFlag) Type() string { return "string" }

func (p patternFlag) String() string {
	if p.KeepRules == nil || p.Pattern == nil {
		return ""
	}
	return p.Pattern.String()
}

// What a model of the user's runs with where neither is said. At half of the prompt the policy finds nearly
// what the full cache does, and adds next to no time before the first token (docs/policies.md, Defaults).
const defaultBudget = "50%"

// shortPrompt is the tokens from which on a prompt is evicted where no budget is given: what a shorter one holds is not worth
// an answer that differs.
const shortPrompt = 256

// bindPolicy adds --policy; more is what else it takes.
func (s *setup) bindPolicy(f *pflag.FlagSet, more string) {
	f.StringVar(&s.Policies, "policy", engine.WithAdapter, "eviction policy (see evict policies)"+more+"; "+engine.WithoutAdapter+" without an adapter")
}

// openPolicy opens the model for one policy. Where none is asked for, that is the one of the adapter that there is for the
// model. before, if any, sees the model before its weights are loaded.
func (s *setup) openPolicy(cmd *cobra.Command, before func(m *model.Model) error) (*engine.Model, engine.Policy, error) {
	s.PolicyByDefault = s.context.file == nil && !cli.GivenFlags(cmd.Flags()).Given("policy")
	m, err := s.openModel(cmd, before)
	if err != nil {
		return nil, engine.Policy{}, err
	}
	policy, err := m.Policy(s.Policies)
	if err == nil {
		err = s.calibrated.checkPolicy(cmd.Context(), m, policy)
	}
	if err != nil {
		m.Close()
	}
	return m, policy, err
}

// openModel opens the model for the policy of s. It refuses several, and one that lacks its adapter, before the weights are
// loaded, and before they are fetched where config.json tells.
func (s *setup) openModel(cmd *cobra.Command, before func(m *model.Model) error) (*engine.Model, error) {
	given := cli.GivenFlags(cmd.Flags())
	s.AdaptersByDefault, s.HeadsByDefault = !given.Given("adapter"), !given.Given("heads") && !s.calibrated.asked
	err := s.applyCalibration(cmd)
	if err == nil {
		err = engine.CheckOne(s.Policies)
	}
	if err == nil {
		err = s.CheckAdapters(cmd.Context())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmd.Name(), err)
	}
	s.Before = func(m *engine.Model) error {
		if s.PolicyByDefault {
			s.announce(cmd.ErrOrStderr(), m)
		}
		if err := s.calibrated.checkModel(cmd.Context(), m.Model); err != nil || before == nil {
			return err
		}
		return before(m.Model)
	}
	return engine.Open(cmd.Context(), &s.Options, cmd.ErrOrStderr())
}

// announce says which policy a model of the user's runs with where none is asked for, and why.
func (s *setup) announce(log io.Writer, m *engine.Model) {
	policy, from := m.DefaultPolicy()
	switch {
	case policy == engine.WithoutAdapter:
		fmt.Fprintf(log, "there is no adapter for the model: the policy is %s; \"%s\" makes samples of your prompts, and \"%s\" an adapter of them for --adapter\n",
			policy, commands.Generate.With("model", s.Model), commands.Lookahead.With("model", s.Model))
	case from == engine.Shipped:
		fmt.Fprintf(log, "an adapter for the model comes with this program: the policy is %s; --policy takes another\n", policy)
	case from != "":
		fmt.Fprintf(log, "%s has an adapter for the model: the policy is %s; --policy takes another\n", from, policy)
	}
}

// answering are the flags of commands that answer under one policy.
type answering struct {
	setup
	o console.Options
}

// addFlags adds the flags; a share of the budget is of the thing that is named.
func (a *answering) addFlags(f *pflag.FlagSet, of, answer string) {
	a.setup.addFlags(f)
	a.bindChat(f)
	a.bindPolicy(f, ", or FIRST:SECOND for two stages, as snapkv:quest")
	a.bindCalibrated(f, &a.o.Budget, of, shortPrompt)
	f.IntVar(&a.o.MaxNew, "max-new", 256, "most tokens of "+answer)
	a.o.Choice.From = model.SamplingOfModel
	a.o.Choice.Bind(f)
}

// openModel opens the model for a prompt of so many tokens as tokens finds, some of which stay; 0: it is not known. An error of tokens is returned as it is.
func (a *answering) openModel(cmd *cobra.Command, tokens func(m *model.Model) (n, stay int, err error)) (*engine.Model, engine.Policy, error) {
	if a.o.MaxNew < 1 {
		return nil, engine.Policy{}, fmt.Errorf("%s: --max-new: got %d, want at least 1", cmd.Name(), a.o.MaxNew)
	}
	if err := a.o.Choice.Check(); err != nil {
		return nil, engine.Policy{}, fmt.Errorf("%s: %w", cmd.Name(), err)
	}
	if err := a.context.openFile(cmd, &a.setup); err != nil {
		return nil, engine.Policy{}, err
	}
	m, policy, err := a.setup.openPolicy(cmd, func(m *model.Model) error {
		n, stay, err := tokens(m)
		if err != nil {
			return err
		}
		pairs, _ := a.o.Budget.Beside(n, stay)
		return a.CheckMemory(cmd.Context(), m, eviction.FootprintOptions{Tokens: n, Budget: pairs, MaxNew: a.o.MaxNew})
	})
	if err != nil {
		return nil, policy, err
	}
	a.o.ContextFile = a.context.file
	if a.o.Context, err = a.context.read(cmd, m.Model); err != nil {
		m.Close()
	}
	return m, policy, err
}

// chooseSampling settles how tokens are sampled, and says so.
func (a *answering) chooseSampling(cmd *cobra.Command, m *model.Model) (err error) {
	if a.o.Sampling, err = a.o.Choice.Resolve(m); err != nil {
		return fmt.Errorf("%s: %w", cmd.Name(), err)
	}
	a.o.Choice.Report(cmd.ErrOrStderr(), m, a.o.Sampling)
	a.o.Sampling.Seed = a.Seed
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
