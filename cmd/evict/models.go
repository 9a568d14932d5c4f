package main

import (
	"fmt"
	"strings"

	"glimpse/adapters"
	"glimpse/model"
	"glimpse/model/gguf"

	"glimpse/internal/cli"
	"glimpse/internal/listing"
	"glimpse/internal/tables"

	"github.com/spf13/cobra"
)

func newModels() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "models",
		Short: "List the model architectures that can be loaded, and the models that adapters ship for",
		Long: `List the model architectures that --model can load: the name that stands in
config.json under "architectures", the models that have it, the modules of the first
layer that adapters can train a LoRA update for, and what tests compare with other programs:
logits with transformers, gradients of a training step with PyTorch, gguf: logits of files that
llama.cpp's converter made; then the RoPE scaling types, and the names that
GGUF files have for the architectures; then the models that adapters ship for, which
run with them unless told otherwise. --json also names the stored tensor of every
module, and the weights of these models.`,
		Example: "  evict models\n  evict models --json",
		Args:    cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			type module struct {
				Name   model.Module `json:"name"`
				Tensor string       `json:"tensor"` // of the first layer that attends
			}
			type row struct {
				Architecture string        `json:"architecture"`
				Models       string        `json:"models"`
				Modules      []module      `json:"modules"`
				Checked      []model.Check `json:"checked"`
			}
			var rows []row
			for name, f := range model.Families.All() {
				r := row{Architecture: name, Models: f.Doc, Checked: f.Checked}
				for _, s := range f.Sites(nil) {
					tensor, _, _ := strings.Cut(s.Tensor, "[") // the rows depend on the model's size
					r.Modules = append(r.Modules, module{s.Module, tensor})
				}
				rows = append(rows, r)
			}
			ship, err := adapters.Registry()
			if err != nil {
				return err
			}
			type shipped struct {
				Model  string   `json:"model"`
				SHA256 string   `json:"sha256"` // of its weights
				Kinds  []string `json:"kinds"`
			}
			var with []shipped
			var named []string
			for _, m := range ship.Models {
				s := shipped{Model: m.Name, SHA256: m.SHA256}
				for _, a := range m.Adapters {
					s.Kinds = append(s.Kinds, a.Kind)
				}
				with, named = append(with, s), append(named, m.Name+" ("+strings.Join(s.Kinds, ", ")+")")
			}
			if asJSON {
				return cli.WriteJSON(cmd, struct {
					Schema        string    `json:"schema"`
					Architectures []row     `json:"architectures"`
					RoPEScaling   []string  `json:"rope_scaling"`
					GGUF          []string  `json:"gguf"` // as general.architecture has them
					Adapters      []shipped `json:"adapters"`
				}{"glimpse.models/1", rows, model.RoPETypes(), gguf.Architectures(), with})
			}
			t := tables.New(tables.Column{Head: "ARCHITECTURE"}, tables.Column{Head: "MODULES", Optional: 1}, tables.Column{Head: "CHECKED", Optional: 2}, tables.Column{Head: "MODELS", Wrap: true})
			for _, r := range rows {
				names := listing.Map(r.Modules, func(m module) string { return strings.TrimSuffix(string(m.Name), "_proj") })
				checked := listing.Map(r.Checked, func(c model.Check) string { return string(c) })
				t.Add(r.Architecture, strings.Join(names, ","), strings.Join(checked, ","), r.Models)
			}
			columns := tables.Columns(cmd.OutOrStdout())
			if err := t.Write(cmd.OutOrStdout(), columns); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "\n%s\n%s\n%s\n", tables.Wrap("RoPE scaling types: "+strings.Join(model.RoPETypes(), ", "), columns),
				tables.Wrap("Architectures of GGUF files: "+strings.Join(gguf.Architectures(), ", "), columns),
				tables.Wrap("Models with shipped adapters: "+strings.Join(named, "; "), columns))
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cli.Everyday(cmd, "json")
	return cmd
}
