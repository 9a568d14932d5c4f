package jobs

import (
	"fmt"

	"glimpse/internal/outputs"
	"glimpse/internal/yamlconfig"
)

// Read takes a configuration over the defaults in spec, with KEY=VALUE of sets in the place of its values. Ground, unless it is
// nil, puts the defaults in place that depend on what the file says. Repeat puts the flags that were given over all. The file is
// an input, which no output replaces.
func Read[S any](path string, sets []string, spec *S, files *outputs.Files, ground func(said *S) error, repeat func() error) error {
	data, err := yamlconfig.Read(path)
	if err != nil {
		return err
	}
	if ground != nil {
		said := *spec
		if err := yamlconfig.Decode(path, data, sets, &said); err != nil {
			return err
		}
		if err := ground(&said); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if err := yamlconfig.Decode(path, data, sets, spec); err != nil {
		return err
	}
	files.Input(path)
	return repeat()
}
