package main

import (
	"errors"
	"fmt"

	"glimpse/console"
	"glimpse/engine"
	"glimpse/evaluation/inspection"
	"glimpse/eviction"
	"glimpse/internal/cli"
	"glimpse/internal/outputs"
	"glimpse/internal/tables"
	"glimpse/kernels"

	"github.com/spf13/cobra"
)

func newInspect() *cobra.Command {
	var (
		s                 setup
		p                 promptFlags
		budget            eviction.Budget
		asJSON            bool
		htmlPath, npzPath string
		files             outputs.Files
		queries           bool
		o                 inspection.QueryOptions
	)
	cmd := &cobra.Command{
		Use:   "inspect " + promptArguments,
		Short: "Show which positions a policy keeps, per layer and KV head",
		Long: `Show which positions of a prompt a policy keeps, per layer and KV head.

--html writes a page that needs no other file: the prompt, every token coloured by
how many heads keep it. --npz writes scores and what is kept for numpy.load. With either
of them only a summary is printed, unless --json is given.`,
		Annotations: cli.Details(`
The page of --html shows all heads, or those of one layer. The arrays of --npz are ids
[tokens], kept [layers, kvHeads, tokens], counts [tokens] (heads that keep the token),
scores [layers, kvHeads, tokens] (what the policy ranks by: higher is kept; those of tova
are logarithms of attention), model and policy. A prompt within the budget is not scored.

--queries shows no policy but why dapq works: how similar the queries of rows that say
something else, or stand elsewhere, are to those of the model's own response (cosines,
means over rows, layers and query heads), after RoPE has turned them and before. Rows with
random tokens are drawn --query-trials times; --json has the quartiles, and means by layer.

` + modelDetails),
		Example: `  evict inspect --policy snapkv --budget 32 --example needle
  evict inspect --policy lookaheadkv --budget 64 --example hops --json
  evict inspect --policy snapkv --budget 64 --example hops --html out/kept.html --replace
  evict inspect --queries --example section --tokens 256`,
		Args: cli.Args("[PROMPT]", "[-]"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			defer kernels.CatchDevice(&err) // what is shown is read from the device now
			if err := p.arguments(args); err != nil {
				return fmt.Errorf("inspect: %w", err)
			}
			for _, flag := range []string{"policy", "budget", "html", "npz"} {
				if queries && cli.GivenFlags(cmd.Flags()).Given(flag) {
					return fmt.Errorf("inspect: --%s: --queries shows no policy", flag)
				}
			}
			defer files.Close()
			html, npz := files.Open("--html", htmlPath), files.Open("--npz", npzPath)
			if err := files.Err(); err != nil {
				return fmt.Errorf("inspect: %w", err)
			}
			if err := s.context.openFile(cmd, &s); err != nil {
				return err
			}
			var m *engine.Model
			var policy engine.Policy
			if queries {
				s.Policies = ""
				m, err = engine.Open(cmd.Context(), &s.Options, cmd.ErrOrStderr())
			} else {
				m, policy, err = s.openPolicy(cmd, nil)
			}
			if err != nil {
				return err
			}
			defer m.Close()
			prompt := new(console.Prompt)
			if f := s.context.file; f != nil {
				prompt.IDs, policy.Label, _ = f.Tokens, f.Policy, budget.Set(f.Budget)
			} else if prompt, err = p.readPrompt(cmd, m.Model); err != nil {
				return err
			}
			if queries {
				o.Seed = s.Seed
				report, err := inspection.NewQueryReport(cmd.Context(), m.Model, prompt.IDs, o)
				if err != nil {
					return fmt.Errorf("inspect: %w", err)
				}
				if asJSON {
					return report.WriteJSON(cmd.OutOrStdout())
				}
				return report.WriteTable(cmd.OutOrStdout())
			}
			rt := eviction.NewRuntime(m.Model)
			session, err := s.inspected(cmd, rt, policy, prompt.IDs, budget)
			if err != nil {
				return err
			}
			x := &inspection.Inspection{Model: m.Model, Policy: policy.Title(), Adapter: policy.Adapter, Budget: budget, IDs: prompt.IDs, Session: session}
			if err := errors.Join(html.Write(x.WriteHTML), npz.Write(x.WriteNPZ)); err != nil {
				return err
			}
			rows := x.Heads()
			if asJSON {
				return cli.WriteJSON(cmd, struct {
					Schema  string            `json:"schema"`
					Model   string            `json:"model"`
					Policy  string            `json:"policy"`
					Adapter string            `json:"adapter,omitempty"`
					Budget  eviction.Budget   `json:"budget"`
					Tokens  int               `json:"tokens"`
					Heads   []inspection.Head `json:"heads"`
				}{"glimpse.inspect/1", m.Name, policy.Title(), policy.Adapter, budget, len(prompt.IDs), rows})
			}
			if html.Wanted() || npz.Wanted() {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), x.Summary())
				return err
			}
			t := tables.New(tables.Column{Head: "LAYER", Right: true}, tables.Column{Head: "KV HEAD", Right: true}, tables.Column{Head: "KEPT", Right: true}, tables.Column{Head: "POSITIONS", Wrap: true})
			for _, r := range rows {
				t.Add(fmt.Sprint(r.Layer), fmt.Sprint(r.KVHead), fmt.Sprint(len(r.Positions)), fmt.Sprint(r.Positions))
			}
			return writeAll(cmd.OutOrStdout(), t)
		},
	}
	f := cmd.Flags()
	s.addFlags(f)
	s.bindChat(f)
	p.addFlags(f)
	s.context.addFlag(f, "is shown, in the place of a prompt")
	files.Bind(f)
	s.bindPolicy(f, "")
	bindBudget(f, &budget, "prompt", 0)
	f.StringVar(&htmlPath, "html", "", "file for a page that colours the prompt by how many heads keep each token")
	f.StringVar(&npzPath, "npz", "", "file for all scores and what is kept, for numpy.load")
	f.BoolVar(&asJSON, "json", false, "print JSON: an object with heads, or with conditions for --queries")
	f.BoolVar(&queries, "queries", false, "compare pseudo-queries with the response's queries, instead of showing a policy")
	f.IntVar(&o.Rows, "query-rows", 32, "how many pseudo-queries, and first tokens of the response, --queries compares")
	f.IntVar(&o.Trials, "query-trials", 8, "how many random draws --queries averages over")
	f.IntSliceVar(&o.Starts, "query-starts", nil, "positions that --queries moves the response to, comma-separated; empty is nine, up to its own")
	cli.Everyday(cmd, "model", "adapter", "device", "example", "tokens", "context", "policy", "budget", "set", "html", "npz", "replace", "json", "queries")
	return cmd
}

// inspected is a session after the eviction of a prompt, or behind the context that was given.
func (s *setup) inspected(cmd *cobra.Command, rt *eviction.Runtime, policy engine.Policy, ids []int32, budget eviction.Budget) (*eviction.Session, error) {
	c, err := s.context.read(cmd, rt.Runner.Model)
	if err != nil {
		return nil, err
	}
	if c == nil {
		return rt.Prefill(cmd.Context(), policy.Configured, eviction.Prompt{Tokens: ids, Budget: budget.Of(len(ids)), Progress: console.ShowPrefill(cmd.ErrOrStderr())})
	}
	session, err := rt.NewSession(policy.Configured, budget)
	if err == nil {
		err = session.Resume(c, 0)
	}
	return session, err
}
