package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"

	"glimpse/eviction"
	"glimpse/internal/cli"
	"glimpse/kernels"
	"glimpse/model"

	"github.com/spf13/cobra"
)

// inspection is what a policy keeps of one KV head.
type inspection struct {
	Layer     int       `json:"layer"`
	KVHead    int       `json:"kv_head"`
	Positions []int32   `json:"positions"` // kept, ascending
	Scores    []float32 `json:"scores"`    // of every prompt position; empty where none was needed
}

// inspected is a prompt after its eviction.
type inspected struct {
	model           *model.Model
	policy, adapter string
	budget          int
	ids             []int32
	session         *eviction.Session
}

// counts is the number of heads, of all layers, that keep each token.
func (x *inspected) counts() []int {
	out := make([]int, len(x.ids))
	for _, layer := range x.session.Kept() {
		for _, positions := range layer {
			for _, p := range positions {
				out[p]++
			}
		}
	}
	return out
}

// inspections lists the heads.
func (x *inspected) inspections() []inspection {
	var rows []inspection
	for layer := range x.session.Kept() {
		for h := range x.session.Kept()[layer] {
			r := inspection{Layer: layer, KVHead: h, Positions: x.session.Kept()[layer][h], Scores: []float32{}}
			if x.session.Scores() != nil {
				r.Scores = x.session.Scores()[layer][h]
			}
			rows = append(rows, r)
		}
	}
	return rows
}

func newInspect() *cobra.Command {
	var (
		s                 setup
		p                 promptFlags
		policy            string
		budget            int
		asJSON            bool
		htmlPath, npzPath string
		files             cli.Outputs
	)
	cmd := &cobra.Command{
		Use:   "inspect [PROMPT]",
		Short: "Show which positions a policy keeps, per layer and KV head",
		Long: `Show which positions of a prompt a policy keeps, per layer and KV head.

--html writes a page that needs no other file: the prompt, every token coloured by
how many heads keep it, for all heads or for those of one layer. --npz writes the
scores and what is kept for numpy.load: ids [tokens], kept [layers, kvHeads, tokens],
counts [tokens] (heads that keep the token), scores [layers, kvHeads, tokens] (what the
policy ranks by: higher is kept; those of tova are logarithms of attention), model
and policy. A prompt within the budget is not scored.`,
		Example: `  evict inspect --policy snapkv --budget 32 --example needle
  evict inspect --policy lookaheadkv --budget 64 --example chain --json
  evict inspect --policy snapkv --budget 64 --example chain --html kept.html --npz scores.npz`,
		Args: cli.Args("[PROMPT]"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			defer kernels.CatchDevice(&err) // what is shown is read from the device now
			if err := p.take(args); err != nil {
				return fmt.Errorf("inspect: %w", err)
			}
			if err := eviction.CheckBudget(budget); err != nil {
				return fmt.Errorf("inspect: %w", err)
			}
			defer files.Close()
			html, npz := files.Open("--html", htmlPath), files.Open("--npz", npzPath)
			if err := files.Err(); err != nil {
				return fmt.Errorf("inspect: %w", err)
			}
			l, err := s.open(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer l.Close()
			c, err := l.one(policy)
			if err != nil {
				return err
			}
			prompt, err := p.read(cmd.Context(), l.Model, cli.Input(cmd.Context(), cmd.InOrStdin()), s.seed)
			if err != nil {
				return err
			}
			if err := checkCovers(cmd, budget, prompt); err != nil {
				return err
			}
			session, err := eviction.NewRuntime(l.Model).Prefill(cmd.Context(), c.Named, prompt.ids, budget, nil)
			if err != nil {
				return err
			}
			x := &inspected{l.Model, c.Name, c.Adapter, budget, prompt.ids, session}
			if err := errors.Join(html.Write(x.writeHTML), npz.Write(x.writeNPZ)); err != nil {
				return err
			}
			rows := x.inspections()
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(rows)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "LAYER\tKV HEAD\tKEPT\tPOSITIONS")
			for _, r := range rows {
				fmt.Fprintf(w, "%d\t%d\t%d\t%v\n", r.Layer, r.KVHead, len(r.Positions), r.Positions)
			}
			return w.Flush()
		},
	}
	f := cmd.Flags()
	s.bind(f)
	s.bindChat(f)
	p.bind(f)
	files.Bind(f)
	f.StringVar(&policy, "policy", "lookaheadkv", "eviction policy, see evict policies")
	f.IntVar(&budget, "budget", 128, "key-value pairs kept per KV head and layer")
	f.StringVar(&htmlPath, "html", "", "file for a page that colours the prompt by how many heads keep each token")
	f.StringVar(&npzPath, "npz", "", "file for all scores, for numpy.load")
	f.BoolVar(&asJSON, "json", false, "print JSON: a list with layer, kv_head, positions, scores")
	return cmd
}
