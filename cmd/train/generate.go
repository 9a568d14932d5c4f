package main

import (
	"fmt"
	"strings"

	"glimpse/datasets"
	"glimpse/generation"
	"glimpse/internal/cli"
	"glimpse/internal/collective"
	"glimpse/model"
	"glimpse/training"

	"github.com/spf13/cobra"
)

func newGenerate() *cobra.Command {
	s := generation.DefaultJob()
	var sets []string
	cmd := &cobra.Command{
		Use:   "generate [CONFIG.yaml]",
		Short: "Generate the model's own responses to prompts, as training pairs",
		Long: `Generate the model's own responses to prompts, as training pairs.

Prompts come from files and folders in any of the usual formats (JSONL and JSON with
"messages", "conversations", "conversation", "prompt", "text" or "prompt_ids", Parquet
with such columns, plain text): one of them with --prompts, or several, mixed by
weights, with a configuration:

  model: path/to/llama
  recipe: lookaheadkv            # drop the last answer; cut texts at a random place
  sources:
    - {path: chat.jsonl, weight: 50}
    - {path: s3://data/long_sft, weight: 50, fields: {preset: chatqa2}}
    - {path: code/, format: text, weight: 7, limit: 7000}
  samples: 80000
  max_prompt: 16384
  max_new: 512
  shards: 64
  out: pairs/

Files with other fields say where the prompt and the answer stand, "fields" in the
configuration and --field with --prompts: by paths (context=doc.body,answer=answers.text),
by templates ('prompt={context}\n\n{question}'), or by the name of a data set:

` + fieldPresets() + `
A chat is taken with its "tools" and "system" and further fields of messages; an
assistant's turn at its end, or "completion", is its answer and no part of the prompt.
"prompt" and chats go into the model's chat template; "text" does not, nor does "prompt"
with --raw or for a model without a template. Without either they are drawn from the synthetic long-context tasks, which only the
built-in model understands. Responses are greedy unless a temperature is given, or
--sampling model follows the model's generation_config.json;
--responses source takes the answers of the files, or the right ones of the synthetic
tasks, instead of generating any.

With --shards the output is a folder of files, of which any number of workers on a
shared folder each take those that are free; a finished one is never done again, and
one whose worker was killed goes on where it stopped. --shard I/N does only shard
I, from 0; so do workers of an indexed Kubernetes job (JOB_COMPLETION_INDEX).
Without --shards the output is one file, which appears under its name only when it
is complete. One that was interrupted keeps its finished pairs: the same command
with --resume goes on, with the bits of a run that never stopped. A record that
cannot be read is told, counted and left out, unless --strict is given.

Processes that mpirun or srun --mpi=pmix start answer the prompts together: who is
done gets the next. The first one writes, with the bytes of one process.

The folder may be one of a bucket, --out s3://BUCKET/NAME, with the same promises to
workers anywhere. There the claim of a killed worker is free after 3 minutes.`,
		Example: `  train generate --samples 64 --out out/pairs.jsonl --replace
  train generate --task section,hops --tokens 256 --samples 100 --seed 7 --out out/pairs7.jsonl --replace
  train generate --samples 60 --shards 3 --out out/pairs
  train generate path/to/config.yaml --model path/to/llama --shard 3/64
  train generate path/to/config.yaml --model path/to/llama --shards 64 --out s3://bucket/pairs`,
		Args: cli.Args("[CONFIG.yaml]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.SamplesGiven = cmd.Flags().Changed("samples")
			if len(args) == 1 {
				if err := s.Read(args[0], sets, cli.GivenFlags(cmd.Flags()).Repeat); err != nil {
					return err
				}
			} else if len(sets) > 0 {
				return fmt.Errorf("generate: --set needs a configuration")
			}
			training.BoundMemory()
			run := collective.OnRanks
			if s.Shards > 0 || s.Shard != "" { // which processes share out by claims, too
				run = collective.OnRanksOrAlone
			}
			return run(func(g collective.Group) error {
				s.Ranks = g
				return s.Run(cmd.Context(), cmd.ErrOrStderr())
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.Model, "model", s.Model, "model folder, org/name[@revision] of the Hugging Face hub or s3://BUCKET/NAME, which are downloaded once; empty is the built-in model")
	s.S3.Bind(f)
	f.StringVar(&s.Device, "device", s.Device, "where to compute: cpu, cuda:N, auto for a GPU where there is one (see \"evict doctor\"), or several that share the layers out (cuda:0-3, cpu,cpu)")
	f.StringVar(&s.CacheDType, "cache-dtype", s.CacheDType, model.CacheDTypeUsage)
	f.StringVar(&s.Prompts, "prompts", "", "file, folder or s3://BUCKET/NAME of prompts; \"-\" is standard input")
	f.StringArrayVar(&s.PromptFields, "field", nil, "where their rows hold the prompt and the answer: NAME=PATH,…, NAME=TEMPLATE or the name of a data set; NAME is id, prompt, text, messages, prompt_ids, context or answer; may be repeated")
	f.StringVar(&s.Recipe, "recipe", s.Recipe, "what is done with them: "+strings.Join(generation.Recipes.Names(), ", "))
	f.BoolVar(&s.Raw, "raw", s.Raw, "take \"prompt\" as it is, without the model's chat template")
	cli.BindChat(f, &s.ChatOptions, &s.ChatDate)
	f.StringVar(&s.Responses, "responses", s.Responses, "self: the model's own; source: the answers of the files, or the right ones of the synthetic tasks")
	f.IntVar(&s.MaxPrompt, "max-prompt", s.MaxPrompt, "most tokens of a prompt; longer ones are left out")
	f.StringVar(&s.Tasks, "task", s.Tasks, "synthetic tasks, comma-separated, or all")
	f.StringVar(&s.Split, "split", s.Split, "split of the synthetic tasks: train, validation or test")
	f.IntVar(&s.Tokens, "tokens", s.Tokens, "prompt length of the synthetic tasks")
	f.IntVar(&s.Samples, "samples", s.Samples, "number of prompts; with files, at most so many")
	f.Uint64Var(&s.Seed, "seed", s.Seed, "seed of the mix, the recipe and the synthetic tasks")
	f.IntVar(&s.MaxNew, "max-new", s.MaxNew, "most tokens of a response")
	s.SamplingChoice.Bind(f)
	f.Uint64Var(&s.SamplingSeed, "sampling-seed", s.SamplingSeed, "seed of the sampling")
	f.IntVar(&s.Batch, "batch", s.Batch, "sequences decoded at the same time")
	f.IntVar(&s.Shards, "shards", s.Shards, "files that the output is split into; 0 is one file instead of a folder")
	f.StringVar(&s.Shard, "shard", "", "I/N: only shard I of N, from 0")
	s.Files.Bind(f)
	f.BoolVar(&s.Resume, "resume", false, "go on with the file of --out where it was interrupted; shards always do so")
	f.BoolVar(&s.Strict, "strict", s.Strict, "stop at a record that is no prompt, in the place of leaving it out")
	f.StringVarP(&s.Out, "out", "o", "", "file, \"-\" for standard output, or with --shards folder or s3://BUCKET/NAME, to write")
	f.StringArrayVar(&sets, "set", nil, "KEY=VALUE in the place of what the file says, with a dotted key; may be repeated")
	return cmd
}

// fieldPresets is a line for each.
func fieldPresets() string {
	var b strings.Builder
	for _, name := range datasets.FieldPresets.Names() {
		p, err := datasets.FieldPresets.Lookup(name)
		if err != nil {
			panic(err) // it is one of the names
		}
		fmt.Fprintf(&b, "  %-14s %s\n", name, p.Doc)
	}
	return b.String()
}
