package cli

import (
	"fmt"
	"os"

	"glimpse/internal/tables"

	"github.com/spf13/cobra"
)

func newConfig() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show which defaults of flags are in force, and where they come from",
		Long: `Show which defaults of flags are in force, and where they come from: a file, or a
variable of the environment, which wins over it. A flag and the configuration of a
command win over both. The file is YAML with the names below as keys, with underscores:

  model: path/to/llama
  device: auto
  cache_dtype: bf16

It lies where $GLIMPSE_CONFIG says, or else in the folder glimpse of the user's
configuration. Unknown keys are errors.`,
		Args: Args(),
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := readDefaults()
			if err != nil {
				return err
			}
			path, err := defaultsPath()
			if err != nil {
				path = ""
			}
			_, missing := os.Stat(path)
			var all []setting
			for _, s := range new(defaultsFile).settings() {
				all = append(all, d[s.Name])
			}
			if asJSON {
				return WriteJSON(c, struct {
					Schema   string    `json:"schema"`
					File     string    `json:"file"`
					Exists   bool      `json:"exists"`
					Settings []setting `json:"settings"`
				}{"glimpse.config/1", path, missing == nil, all})
			}
			note := ""
			if missing != nil {
				note = ", which is not there"
			}
			out := c.OutOrStdout()
			fmt.Fprintf(out, "file: %s%s\n\n", path, note)
			t := tables.New(tables.Column{Head: "FLAG"}, tables.Column{Head: "VALUE"}, tables.Column{Head: "FROM"})
			for _, s := range all {
				value, from := s.Value, s.From
				if from == "" {
					value, from = "–", "the command's own default"
				}
				t.Add("--"+s.Name, value, from)
			}
			return t.Write(out, tables.Columns(out))
		},
	}
	cmd.Example = "  evict config\n  train config --json"
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	Everyday(cmd, "json")
	return cmd
}
