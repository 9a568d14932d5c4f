// Command train makes adapters that predict which prompt entries a frozen model's
// responses will attend to.
package main

import (
	"glimpse/internal/cli"
	"glimpse/internal/version"

	"github.com/spf13/cobra"

	_ "glimpse/gates"
	_ "glimpse/lora"
	_ "glimpse/softtokens"
)

func main() { cli.Main(newRoot()) }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:     "train",
		Short:   "Train learned KV-cache eviction for a frozen language model",
		Version: version.String(),
		Long: `Train learned KV-cache eviction for a frozen language model.

An adapter is a handful of learned rows that are run after a prompt to predict
which of its KV entries the model's response will attend to. The model itself
is never changed. Without --model, the small built-in reference model is used.`,
		Example: `  train generate --samples 64 --out out/samples.jsonl --replace
  train lookahead --steps 4 --out out/lookahead --replace
  train judgeq --steps 4 --data out/samples.jsonl --out out/judgeq --replace`,
	}
	for _, c := range []*cobra.Command{newGenerate(), newAdapter(lookaheadCommand), newAdapter(judgeqCommand), newAdapter(restoreCommand), newRun(), newSweep()} {
		root.AddCommand(cli.OnRanks(c))
	}
	root.AddCommand(newBudgets(), newGates(), newPlan(), newExport())
	cli.Setup(root, completions())
	return root
}
