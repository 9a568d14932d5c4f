package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"glimpse/eviction"

	"github.com/spf13/cobra"
)

// inspection is what a policy keeps of one KV head.
type inspection struct {
	Layer     int       `json:"layer"`
	KVHead    int       `json:"kv_head"`
	Positions []int32   `json:"positions"` // kept, ascending
	Scores    []float32 `json:"scores"`    // of every prompt position; empty where none was needed
}

func newInspect() *cobra.Command {
	var (
		s      setup
		p      promptFlags
		policy string
		budget int
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "inspect",
		Short: "Show which positions a policy keeps, per layer and KV head",
		Example: `  evict inspect --policy snapkv --budget 32 --example needle
  evict inspect --policy lookaheadkv --budget 64 --example chain --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := eviction.CheckBudget(budget); err != nil {
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
			prompt, err := p.read(l.Model, cmd.InOrStdin(), s.seed)
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
			var rows []inspection
			for layer := range session.Kept {
				for h := range session.Kept[layer] {
					r := inspection{Layer: layer, KVHead: h, Positions: session.Kept[layer][h], Scores: []float32{}}
					if session.Scores != nil {
						r.Scores = session.Scores[layer][h]
					}
					rows = append(rows, r)
				}
			}
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
	p.bind(f)
	f.StringVar(&policy, "policy", "lookaheadkv", "eviction policy, see evict policies")
	f.IntVar(&budget, "budget", 128, "key-value pairs kept per KV head and layer")
	f.BoolVar(&asJSON, "json", false, "print JSON: a list with layer, kv_head, positions, scores")
	return cmd
}
