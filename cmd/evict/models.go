package main

import (
	"fmt"
	"strings"

	"glimpse/model"
	"glimpse/model/gguf"

	"glimpse/internal/cli"
	"glimpse/internal/tables"

	"github.com/spf13/cobra"
)

func newModels() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "models",
		Short: "List the model architectures and RoPE scaling types that can be loaded",
		Long: `List the model architectures that --model can load: the name that stands in
config.json under "architectures", the models that have it and the modules that
adapters can train a LoRA update for; then the RoPE scaling types, and the names that
GGUF files have for the architectures. --json also names the stored tensor of every
module.`,
		Example: "  evict models\n  evict models --json",
		Args:    cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			type module struct {
				Name   model.Module `json:"name"`
				Tensor string       `json:"tensor"` // of layer 0
			}
			type row struct {
				Architecture string   `json:"architecture"`
				Models       string   `json:"models"`
				Modules      []module `json:"modules"`
			}
			var rows []row
			for _, name := range model.Families.Names() {
				f, err := model.Families.Lookup(name)
				if err != nil {
					return err
				}
				r := row{Architecture: name, Models: f.Doc}
				for _, s := range f.Sites(nil) {
					tensor, _, _ := strings.Cut(s.Tensor, "[") // the rows depend on the model's size
					r.Modules = append(r.Modules, module{s.Module, tensor})
				}
				rows = append(rows, r)
			}
			if asJSON {
				return writeObject(cmd, struct {
					Schema        string   `json:"schema"`
					Architectures []row    `json:"architectures"`
					RoPEScaling   []string `json:"rope_scaling"`
					GGUF          []string `json:"gguf"` // as general.architecture has them
				}{"glimpse.models/1", rows, model.RoPETypes(), gguf.Architectures()})
			}
			t := tables.New(tables.Column{Head: "ARCHITECTURE"}, tables.Column{Head: "MODULES", Optional: 1}, tables.Column{Head: "MODELS", Wrap: true})
			for _, r := range rows {
				var names []string
				for _, m := range r.Modules {
					names = append(names, strings.TrimSuffix(string(m.Name), "_proj"))
				}
				t.Add(r.Architecture, strings.Join(names, ","), r.Models)
			}
			columns := tables.Columns(cmd.OutOrStdout())
			if err := t.Write(cmd.OutOrStdout(), columns); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "\n%s\n%s\n", tables.Wrap("RoPE scaling types: "+strings.Join(model.RoPETypes(), ", "), columns),
				tables.Wrap("Architectures of GGUF files: "+strings.Join(gguf.Architectures(), ", "), columns))
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cli.Everyday(cmd, "json")
	return cmd
}
