// Command evict runs a model with an evicted key-value cache.
package main

import (
	"glimpse/internal/cli"
	"glimpse/internal/collector"
	"glimpse/internal/version"

	"github.com/spf13/cobra"

	_ "glimpse/gates"
	_ "glimpse/lora"
	_ "glimpse/softtokens"
)

// leastGarbage is the garbage that is never too much, in bytes: models that are small, or mapped
// from their files, are seldom collected; those whose weights were widened are kept from taking
// twice their size.
const leastGarbage = 64 << 20

func main() {
	collector.Bound(leastGarbage)
	cli.Main(newRoot())
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:     "evict",
		Short:   "Run a language model with an evicted KV cache",
		Version: version.String(),
		Long: `Run a language model with an evicted KV cache.

A policy decides which KV entries of the prompt are kept, up to a budget per
KV head and layer; the others are freed before decoding. Learned policies use an
adapter that "train" made. Without --model, the small built-in reference model and
the adapters that ship with it are used.`,
		Example: `  evict run --example section --policy lookaheadkv --budget 128
  evict eval --policy full,snapkv,lookaheadkv --budget 32,128 --samples 4
  evict policies`,
	}
	root.AddCommand(newRun(), newChat(), newCompress(), newServe(), cli.OnRanks(newEval()), newCalibrate(), newJudge(), newCosts(), newPolicies(), newTasks(), newModels(), newPull(), newList(), newRemove(), newInspect(), newPatterns(), newReport(), cli.OnRanks(newDoctor()))
	cli.Setup(root, completions())
	return root
}
