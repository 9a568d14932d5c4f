package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"glimpse/adapters"
	"glimpse/internal/bytesize"
	"glimpse/internal/cli"
	"glimpse/internal/tables"
	"glimpse/model/catalog"
	"glimpse/model/hub"

	"github.com/spf13/cobra"
)

// listedModel is a model that can be named.
type listedModel struct {
	Name    string   `json:"name"`
	Model   string   `json:"model"` // what the name stands for
	Bytes   int64    `json:"bytes"` // on disk, or about what a download has; 0: not known
	Path    string   `json:"path"`  // "" where it is not on this machine
	SHA256  string   `json:"sha256"`
	Ships   []string `json:"ships"` // adapters and budgets of heads that come with the program
	Licence string   `json:"licence"`
}

func newList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the models that have short names, and those that were fetched",
		Long: `List the models that have short names, as --model and "evict pull" take them, and those that
lie in the cache of the Hugging Face hub: their size, whether they are on this machine, and
the adapters and budgets of heads that come with this program for them.`,
		Annotations: cli.Details(`
Names of your own stand in models.json in the folder glimpse of the user's configuration, or
in the file that $GLIMPSE_MODELS names:

  {"models": [{"name": "ours:8b", "model": "org/name", "adapter": "path/to/adapter"}]}

"model" is what --model takes; "sha256" (of a GGUF file), "adapter", "heads", "bytes" and
"licence" may be left out.`),
		Example: "  evict list\n  evict list --json",
		Args:    cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			models, err := listModels()
			if err != nil {
				return fmt.Errorf("list: %w", err)
			}
			if asJSON {
				return cli.WriteJSON(cmd, struct {
					Schema string        `json:"schema"`
					Models []listedModel `json:"models"`
				}{"glimpse.list/1", models})
			}
			t := tables.New(tables.Column{Head: "NAME"}, tables.Column{Head: "SIZE"}, tables.Column{Head: "HERE"}, tables.Column{Head: "SHIPS", Optional: 2}, tables.Column{Head: "LICENCE", Optional: 1})
			for _, m := range models {
				size, here := "–", "–"
				if m.Bytes > 0 {
					size = bytesize.FormatSize(m.Bytes)
				}
				if m.Path != "" {
					here = "yes"
				}
				t.Add(m.Name, size, here, cmp.Or(strings.Join(m.Ships, ", "), "–"), cmp.Or(m.Licence, "–"))
			}
			return t.Write(cmd.OutOrStdout(), tables.Columns(cmd.OutOrStdout()))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cli.Everyday(cmd, "json")
	return cmd
}

// listModels are the models with names, then the others of the cache.
func listModels() (models []listedModel, err error) {
	entries, err := catalog.Read()
	if err != nil {
		return nil, err
	}
	ships, err := shippedFor()
	if err != nil {
		return nil, err
	}
	named := make(map[string]bool) // org/name of entries that are here
	for _, e := range entries {
		found, here, err := hub.IsCached(e.Name)
		if err != nil {
			return nil, err
		}
		m := listedModel{Name: e.Name, Model: e.Model, Bytes: e.Bytes, SHA256: e.SHA256, Ships: append([]string{}, ships[e.Weights]...), Licence: e.Licence}
		if here {
			m.Path = found.Path
			id, _, _ := strings.Cut(found.Name, ":")
			named[id] = true
		}
		models = append(models, m)
	}
	cached, err := hub.ListCached()
	if err != nil {
		return nil, err
	}
	for _, c := range cached {
		if !named[c.ID] && c.Bytes > 0 {
			models = append(models, listedModel{Name: c.ID, Model: c.ID, Bytes: c.Bytes, Path: c.Path, Ships: []string{}})
		}
	}
	return models, nil
}

// shippedFor are the adapters and budgets of heads that come with the program, by the hash of the weights.
func shippedFor() (map[string][]string, error) {
	r, err := adapters.Registry()
	if err != nil {
		return nil, err
	}
	out := make(map[string][]string)
	for _, m := range r.Models {
		for _, a := range m.Adapters {
			out[m.SHA256] = append(out[m.SHA256], a.Kind)
		}
	}
	for path, data := range adapters.HeadBudgets() {
		var of struct {
			SHA256 string `json:"sha256"`
		}
		if err := json.Unmarshal(data, &of); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		out[of.SHA256] = append(out[of.SHA256], "budgets of heads")
	}
	return out, nil
}
