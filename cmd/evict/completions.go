package main

import (
	"glimpse/console"
	"glimpse/datasets"
	"glimpse/engine/costmodel"
	"glimpse/evaluation"
	"glimpse/evaluation/scoring"
	"glimpse/eviction"
	"glimpse/internal/cli"
	"glimpse/internal/listing"
	"glimpse/kernels"
	"glimpse/model/catalog"
)

// completions are what the shell completes, by flag; "COMMAND FLAG" is of one command.
func completions() map[string]cli.Values {
	policies := func() []string { return append(eviction.Policies.Names(), "all") }
	models := func() []string {
		entries, _ := catalog.Read() // what is wrong with the user's own is said when one is used
		return listing.Map(entries, func(e catalog.Entry) string { return e.Name })
	}
	return map[string]cli.Values{
		"model":             {Names: models, Files: true},
		"policy":            {Names: eviction.Policies.Names, Separators: ":"},
		"eval policy":       {Names: policies, Separators: ","},
		"costs policy":      {Names: policies, Separators: ","},
		"baseline":          {Names: eviction.Policies.Names},
		"highlight":         {Names: eviction.Policies.Names, Separators: ","},
		"example":           {Names: console.ExampleNames},
		"task":              {Names: evaluation.TaskNames, Separators: ","},
		"device":            {Names: kernels.DeviceNames},
		"adapter":           {Names: func() []string { return []string{"shipped"} }, Files: true},
		"draft":             {Names: func() []string { return []string{"self", "shipped", "layers:"} }, Files: true},
		"metric":            {Names: scoring.Metrics.Names, Separators: ","},
		"field":             {Names: datasets.FieldPresets.Names},
		"cache-dtype":       cli.ValuesOf("auto", "bf16", "float32"),
		"costs cache-dtype": cli.ValuesOf("bf16", "float32"),
		"split":             cli.ValuesOf(string(datasets.Train), string(datasets.Validation), string(datasets.Test)),
		"sampling":          cli.ValuesOf("greedy", "model"),
		"truncate":          cli.ValuesOf("middle", "left", "none"),
		"agreement":         cli.ValuesOf("on", "off", "auto"),
		"chip":              {Names: costmodel.Chips.Names},
		"count":             {Names: costmodel.AllConventions.Names, Separators: ","},
	}
}
