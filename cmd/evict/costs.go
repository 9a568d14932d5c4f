package main

import (
	"fmt"
	"strings"

	"glimpse/checkpoints/objectstore"
	"glimpse/engine"
	"glimpse/engine/costmodel"
	"glimpse/eviction"
	"glimpse/internal/cli"
	"glimpse/model"
	"glimpse/model/hub"

	"github.com/spf13/cobra"
)

// costsFlags are what the costs are of.
type costsFlags struct {
	model, draft, cacheDType string
	policies, chip, counts   string
	tokens                   []int
	budgets                  string
	maxNew                   int
	set                      []string
	s3                       objectstore.Settings
	asJSON                   bool
}

// maxCosts bounds prompts and responses, which are counted step by step.
const maxCosts = 1 << 24

func newCosts() *cobra.Command {
	var c costsFlags
	cmd := &cobra.Command{
		Use:   "costs",
		Short: "Count what policies cost on a model and a chip, without running them",
		Long: `Count what policies cost: operations and bytes before the first token, the time that a
chip takes for them at best, what of it the policy adds, and what a decoding step takes
on what it keeps. Of the model only config.json is needed. Adapters are of the usual
size: 32 rows, LoRA of rank 8.

--count says what is counted: "paper" as LookaheadKV (arXiv:2603.10899), tables 3 and 15,
whose theoretical columns come out; "causal" the same with causal attention; "runtime"
what this program computes and moves.`,
		Example: `  evict costs
  evict costs --model path/to/llama-8b --draft path/to/llama-1b --tokens 8192,32768
  evict costs --policy all --tokens 512 --budget 64,25% --chip flops=1e12,bandwidth=5e10 --json`,
		Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.runCosts(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&c.model, "model", "", "model whose config.json is read, as a folder, GGUF file, org/name or s3://BUCKET/NAME; empty is the built-in model")
	f.StringVar(&c.draft, "draft", "", "draft model of speckv, given as --model is; empty is the model itself")
	f.StringVar(&c.cacheDType, "cache-dtype", "bf16", "type of cached keys and values: float32 or bf16")
	f.StringVar(&c.policies, "policy", "full,snapkv,lookaheadkv,laq,speckv,h2o,d2o,quest,rocketkv", "policies, comma-separated, or all")
	f.IntSliceVar(&c.tokens, "tokens", []int{512}, "lengths of the prompt in tokens, comma-separated")
	f.StringVar(&c.budgets, "budget", "128", "budgets, comma-separated: KV entries per KV head and layer, or shares of the prompt")
	f.IntVar(&c.maxNew, "max-new", 64, "length of the response in tokens")
	f.StringVar(&c.chip, "chip", "h100-pcie", "chip: "+strings.Join(costmodel.Chips.Names(), ", ")+", or flops=…,bandwidth=… per second")
	f.StringVar(&c.counts, "count", "paper,causal,runtime", "what is counted, comma-separated: paper, causal, runtime")
	f.StringArrayVar(&c.set, "set", nil, "option of a policy, as POLICY.OPTION=VALUE; may be repeated")
	f.BoolVar(&c.asJSON, "json", false, "print JSON: an object with estimates")
	c.s3.Bind(f)
	cli.Everyday(cmd, "model", "policy", "budget", "tokens", "max-new", "chip", "count", "json")
	return cmd
}

func (c *costsFlags) runCosts(cmd *cobra.Command) error {
	budgets, err := eviction.ParseBudgets(c.budgets)
	if err != nil {
		return fmt.Errorf("costs: %w", err)
	}
	names, err := engine.PolicyNames(c.policies)
	if err != nil {
		return fmt.Errorf("costs: %w", err)
	}
	overrides, err := eviction.ParseOverrides(c.set)
	if err != nil {
		return fmt.Errorf("costs: %w", err)
	}
	chip, err := costmodel.ParseChip(c.chip)
	if err != nil {
		return fmt.Errorf("costs: %w", err)
	}
	if c.maxNew < 0 || c.maxNew > maxCosts {
		return fmt.Errorf("costs: --max-new: got %d, want 0 to %d", c.maxNew, maxCosts)
	}
	var runs []costmodel.Run
	for _, n := range c.tokens {
		if n < 1 || n > maxCosts {
			return fmt.Errorf("costs: --tokens: got %d, want 1 to %d", n, maxCosts)
		}
		for _, b := range budgets {
			runs = append(runs, costmodel.Run{Tokens: n, Budget: b.Of(n), MaxNew: c.maxNew})
		}
	}
	m, err := c.openShapes(cmd, c.model)
	if err != nil {
		return err
	}
	var draft *model.Model
	if c.draft != "" {
		if draft, err = c.openShapes(cmd, c.draft); err != nil {
			return err
		}
	}
	policies, err := costmodel.Policies(m, names, overrides, draft)
	if err != nil {
		return fmt.Errorf("costs: %w", err)
	}
	var models []costmodel.Model
	for name := range strings.SplitSeq(c.counts, ",") {
		as, err := costmodel.AllConventions.Lookup(strings.TrimSpace(name))
		if err != nil {
			return fmt.Errorf("costs: --count: %w", err)
		}
		models = append(models, costmodel.New(m, chip, as))
	}
	if !c.asJSON {
		return costmodel.WriteTable(cmd.OutOrStdout(), models, policies, runs)
	}
	var all []costmodel.Estimate
	for _, r := range runs {
		for _, p := range policies {
			for _, m := range models {
				all = append(all, m.Estimate(p, r))
			}
		}
	}
	return cli.WriteJSON(cmd, struct {
		Schema    string               `json:"schema"`
		Estimates []costmodel.Estimate `json:"estimates"`
	}{"glimpse.costs/1", all})
}

// openShapes reads the shapes of a model.
func (c *costsFlags) openShapes(cmd *cobra.Command, spec string) (*model.Model, error) {
	m, err := hub.OpenShapes(cmd.Context(), spec, c.s3, cmd.ErrOrStderr(), "cpu")
	if err != nil {
		return nil, err
	}
	return m, m.SetCacheDType(c.cacheDType)
}
