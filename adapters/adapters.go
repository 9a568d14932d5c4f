// Package adapters holds the adapters and the budgets of heads that ship inside the programs, by the weights of their models. The folder is
// an ordinary registry: "train export RUN adapters/MODEL/KIND --registry adapters" adds to it, and what is built next
// has it.
package adapters

import (
	"embed"
	"io/fs"

	"glimpse/checkpoints"
)

//go:embed registry.json */*
var files embed.FS

// Registry is the registry of all that ships.
func Registry() (*checkpoints.Registry, error) { return checkpoints.ReadRegistry(files) }

// HeadBudgets are the learned budgets of heads that ship, by the paths of their files, MODEL/budgets.json, which name their
// models' weights.
func HeadBudgets() map[string][]byte {
	out := make(map[string][]byte)
	paths, _ := fs.Glob(files, "*/budgets.json") // the pattern is well-formed
	for _, path := range paths {
		out[path], _ = files.ReadFile(path) // which is part of the program
	}
	return out
}
