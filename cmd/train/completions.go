package main

import (
	"glimpse/datasets"
	"glimpse/generation"
	"glimpse/internal/cli"
	"glimpse/kernels"
	"glimpse/losses"
	"glimpse/training"
)

// completions are what the shell completes, by flag; "COMMAND FLAG" is of one command.
func completions() map[string]cli.Values {
	return map[string]cli.Values{
		"preset":      {Names: training.Presets.Names},
		"device":      {Names: kernels.DeviceNames},
		"cache-dtype": cli.ValuesOf("auto", "bf16", "float32"),
		"task":        {Names: func() []string { return append(datasets.Tasks.Names(), "all") }, Separators: ","},
		"split":       cli.ValuesOf(string(datasets.Train), string(datasets.Validation), string(datasets.Test)),
		"schedule":    cli.ValuesOf("constant", "cosine"),
		"loss":        {Names: losses.Losses.Names},
		"recipe":      {Names: generation.Recipes.Names},
		"responses":   cli.ValuesOf("self", "source"),
		"field":       {Names: datasets.FieldPresets.Names},
		"sampling":    cli.ValuesOf("greedy", "model"),
		"modules": {Names: func() []string {
			return []string{"all", "qv", "none", "experts", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
		}, Separators: ","},
		"init-token": cli.ValuesOf("-1", "end"),
	}
}
