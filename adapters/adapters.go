// Package adapters holds the adapters that ship inside the programs, by the weights of their models. The folder is
// an ordinary registry: "train export RUN adapters/MODEL/KIND --registry adapters" adds to it, and what is built next
// has it.
package adapters

import (
	"embed"

	"glimpse/checkpoints"
)

//go:embed registry.json */*
var files embed.FS

// Registry is the registry of all that ships.
func Registry() (*checkpoints.Registry, error) { return checkpoints.ReadRegistry(files) }
