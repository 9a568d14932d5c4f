package jobs

import (
	"glimpse/internal/outputs"
	"glimpse/internal/yamlconfig"
)

// Read takes a configuration over the defaults in spec, with KEY=VALUE of sets in the place of its values. repeat puts the
// flags that were given over both. The file is an input, which no output replaces.
func Read(path string, sets []string, spec any, files *outputs.Files, repeat func() error) error {
	data, err := yamlconfig.Read(path)
	if err != nil {
		return err
	}
	if err := yamlconfig.Decode(path, data, sets, spec); err != nil {
		return err
	}
	files.Input(path)
	return repeat()
}
