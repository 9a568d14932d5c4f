package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"glimpse/eviction"

	"github.com/spf13/cobra"
)

func newPolicies() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "policies",
		Short:   "List the eviction policies",
		Example: "  evict policies\n  evict policies --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			type row struct {
				Name    string            `json:"name"`
				Kind    string            `json:"kind"`
				Doc     string            `json:"doc"`
				Source  string            `json:"source"`
				Adapter string            `json:"adapter,omitempty"`
				Options []eviction.Option `json:"options"`
			}
			var rows []row
			for _, name := range eviction.Policies.Names() {
				p, err := eviction.Policies.Lookup(name)
				if err != nil {
					return err
				}
				rows = append(rows, row{name, p.Kind, p.Doc, p.Source, p.Adapter, append([]eviction.Option{}, p.Options...)})
			}
			if asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(rows)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "POLICY\tEVICTS\tRULE\tOPTIONS")
			for _, r := range rows {
				options := ""
				for _, o := range r.Options {
					options += fmt.Sprintf("%s=%v ", o.Name, o.Default)
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Name, r.Kind, r.Doc, options)
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
