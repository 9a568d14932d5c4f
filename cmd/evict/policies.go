package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"glimpse/adapters"
	"glimpse/checkpoints"
	"glimpse/eviction"
	"glimpse/internal/cli"
	"glimpse/internal/commands"
	"glimpse/internal/listing"
	"glimpse/internal/tables"
	"glimpse/model/builtin"

	"github.com/spf13/cobra"
)

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
		Use:   "policies [NAME]",
		Short: "List the eviction policies, or describe one",
		Long: `List the eviction policies: when they evict, their rules, their sources and their
options with the defaults. Options are set with --set policy.option=value. With the name
of a policy: its options with their defaults, ranges and meanings, what else it needs, and
a command that tries it.`,
		Example:   "  evict policies\n  evict policies snapkv\n  evict policies --json",
		Args:      cli.Args("[NAME]"),
		ValidArgs: eviction.Policies.Names(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if asJSON && asMarkdown {
				return fmt.Errorf("policies: --json and --markdown are two forms, want one")
			}
			names := eviction.Policies.Names()
			if len(args) == 1 {
				names = args
			}
			var rows []policyRow
			for _, name := range names {
				p, err := eviction.Policies.Lookup(name)
				if err != nil {
					return fmt.Errorf("policies: %w", err)
				}
				rows = append(rows, policyRow{name, p.Kind, p.Doc, p.Source, p.Adapter, p.Draft, p.Pattern, p.Scorer, append([]eviction.Option{}, p.Options...)})
			}
			switch {
			case asJSON:
				return cli.WriteJSON(cmd, struct {
					Schema   string      `json:"schema"`
					Policies []policyRow `json:"policies"`
				}{"glimpse.policies/1", rows})
			case asMarkdown:
				return writePolicies(cmd.OutOrStdout(), rows)
			case len(args) == 1:
				return rows[0].describe(cmd.OutOrStdout())
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

// needs is what the policy takes beside its options; "" for nothing.
func (r policyRow) needs() string {
	switch {
	case r.Adapter != "":
		return "needs an adapter"
	case r.Draft:
		return "takes a draft model"
	case r.Pattern:
		return "needs a pattern"
	}
	return ""
}

// ownAdapter stands for an adapter of a kind that does not come with the program.
const ownAdapter = "path/to/adapter"

// ships tells whether an adapter of a kind comes with the program for the built-in model.
func ships(kind string) bool {
	registry, err := adapters.Registry()
	if err != nil {
		return false
	}
	for _, m := range registry.Models {
		if m.Name == builtin.Name && slices.ContainsFunc(m.Adapters, func(a checkpoints.RegisteredAdapter) bool { return a.Kind == kind }) {
			return true
		}
	}
	return false
}

// describe tells all of one policy.
func (r policyRow) describe(w io.Writer) error {
	try := commands.TryPolicy.With("policy", r.Name)
	for _, o := range r.Options[:min(1, len(r.Options))] {
		try += fmt.Sprintf(" --set %s.%s=%s", r.Name, o.Name, o.FormatValue(o.Start()))
	}
	if r.Adapter != "" && !ships(r.Adapter) {
		try += " --adapter " + ownAdapter
	}
	about := details([][2]string{{"policy", r.Name}, {"evicts", r.Kind}, {"rule", r.Doc}, {"source", r.Source}, {"", r.needs()}, {"example", try}})
	if len(r.Options) == 0 {
		return writeAll(w, about)
	}
	options := tables.New(tables.Column{Head: "OPTION"}, tables.Column{Head: "DEFAULT"}, tables.Column{Head: "TAKES", Wrap: true}, tables.Column{Head: "WHAT", Wrap: true})
	for _, o := range r.Options {
		options.Add(r.Name+"."+o.Name, o.FormatValue(o.Start()), o.Range(), o.Doc)
	}
	return writeAll(w, about, options)
}

// defaults are the options as they would be set.
func (r policyRow) defaults() []string {
	return listing.Map(r.Options, func(o eviction.Option) string { return o.Name + "=" + o.FormatValue(o.Start()) })
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
		if needs := r.needs(); needs != "" {
			rule += "; " + needs
		}
		options := listing.Map(r.defaults(), func(o string) string { return "`" + o + "`" })
		cells := []string{"`" + r.Name + "`", r.Kind, rule, strings.Join(options, " "), linked(r.Source)}
		for i, c := range cells {
			cells[i] = strings.ReplaceAll(c, "|", `\|`)
		}
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
