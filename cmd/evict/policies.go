package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"

	"glimpse/eviction"

	"glimpse/internal/cli"
	"glimpse/internal/tables"

	"github.com/spf13/cobra"
)

// policyRow describes a policy.
type policyRow struct {
	Name    string            `json:"name"`
	Kind    string            `json:"kind"`
	Doc     string            `json:"doc"`
	Source  string            `json:"source"`
	Adapter string            `json:"adapter,omitempty"` // kind of the adapter that it needs
	Draft   bool              `json:"draft"`             // takes a draft model
	Pattern bool              `json:"pattern"`           // needs a pattern of retrieval heads
	Scorer  bool              `json:"scorer"`            // can score for adakv and compose
	Options []eviction.Option `json:"options"`
}

func newPolicies() *cobra.Command {
	var asJSON, asMarkdown bool
	cmd := &cobra.Command{
		Use:   "policies",
		Short: "List the eviction policies",
		Long: `List the eviction policies: when they evict, their rules, their sources and their
options with the defaults. Options are set with --set policy.option=value; --json also
has their ranges and what they mean.`,
		Example: "  evict policies\n  evict policies --json\n  evict policies --markdown",
		Args:    cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON && asMarkdown {
				return fmt.Errorf("policies: --json and --markdown are two forms, want one")
			}
			var rows []policyRow
			for _, name := range eviction.Policies.Names() {
				p, err := eviction.Policies.Lookup(name)
				if err != nil {
					return err
				}
				rows = append(rows, policyRow{name, p.Kind, p.Doc, p.Source, p.Adapter, p.Draft, p.Pattern, p.Scorer, append([]eviction.Option{}, p.Options...)})
			}
			switch {
			case asJSON:
				return writeObject(cmd, struct {
					Schema   string      `json:"schema"`
					Policies []policyRow `json:"policies"`
				}{"glimpse.policies/1", rows})
			case asMarkdown:
				return writePolicies(cmd.OutOrStdout(), rows)
			}
			t := tables.New(tables.Column{Head: "POLICY"}, tables.Column{Head: "EVICTS"}, tables.Column{Head: "RULE", Wrap: true}, tables.Column{Head: "OPTIONS", Wrap: true, Optional: 1})
			for _, r := range rows {
				t.Add(r.Name, r.Kind, r.Doc, strings.Join(r.defaults(), " "))
			}
			return t.Write(cmd.OutOrStdout(), tables.Columns(cmd.OutOrStdout()))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&asMarkdown, "markdown", false, "print a Markdown table")
	cli.Everyday(cmd, "json", "markdown")
	return cmd
}

// defaults are the options as they would be set.
func (r policyRow) defaults() (out []string) {
	for _, o := range r.Options {
		out = append(out, o.Name+"="+o.Text(o.Start()))
	}
	return out
}

// inSources is what a source names that has an address.
var inSources = regexp.MustCompile(`arXiv:(\d{4}\.\d{5})|(?:openreview\.net|github\.com)/[^) ]+`)

// linked is a source whose papers are Markdown links.
func linked(source string) string {
	return inSources.ReplaceAllStringFunc(source, func(name string) string {
		if number, ok := strings.CutPrefix(name, "arXiv:"); ok {
			return "[" + name + "](https://arxiv.org/abs/" + number + ")"
		}
		return "[" + name + "](https://" + name + ")"
	})
}

// writePolicies writes the table of docs/policies.md.
func writePolicies(w io.Writer, rows []policyRow) error {
	var b strings.Builder
	b.WriteString("| policy | evicts | rule | options with defaults | source |\n|:---|:---|:---|:---|:---|\n")
	for _, r := range rows {
		rule := r.Doc
		switch {
		case r.Adapter != "":
			rule += "; needs an adapter"
		case r.Draft:
			rule += "; takes a draft model"
		case r.Pattern:
			rule += "; needs a pattern"
		}
		var options []string
		for _, o := range r.defaults() {
			options = append(options, "`"+o+"`")
		}
		cells := []string{"`" + r.Name + "`", r.Kind, rule, strings.Join(options, " "), linked(r.Source)}
		for i, c := range cells {
			cells[i] = strings.ReplaceAll(c, "|", `\|`)
		}
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
