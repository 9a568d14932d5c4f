package main

import (
	"fmt"
	"strings"

	"glimpse/datasets"
	"glimpse/generation"
	"glimpse/internal/cli"
	"glimpse/internal/collector"
	"glimpse/model"
	"glimpse/training"

	"github.com/spf13/cobra"
)

func newGenerate() *cobra.Command {
	s := generation.DefaultJob()
	var sets []string
	cmd := &cobra.Command{
		Use:   "generate [CONFIG.yaml]",
		Short: "Generate the model's own responses to prompts, as training samples",
		Long: `Generate the model's own responses to prompts, as training samples.

Prompts come from files and folders in any of the usual formats (JSONL, JSON, Parquet,
CSV and TSV with "messages", "conversations", "prompt", "text" or "prompt_ids", plain text): one of
them with --prompts, or several, mixed by weights, with a configuration. Without either
they are drawn from the synthetic tasks, which only the built-in model understands.
Responses are greedy unless a temperature is given.`,
		Annotations: cli.Details(`
A configuration mixes several sources of prompts by weights:

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
  out: samples/

Files with other columns say where the prompt and the answer stand, "fields" in the
configuration and --field with --prompts: by paths (context=doc.body,answer=answers.text),
by templates ('prompt={context}\n\n{question}'), or by the name of a data set:

` + fieldPresets() + `
NAME of --field is id, prompt, text, messages, prompt_ids, context or answer.

A chat is taken with its "tools" and "system" and further fields of messages; an
assistant's turn at its end, or "completion", is its answer and no part of the prompt.
"prompt" and chats go into the model's chat template; "text" does not, nor does "prompt"
with --raw or for a model without a template. --sampling model follows the model's
generation_config.json; --responses source takes the answers of the files, or the right
ones of the synthetic tasks, instead of generating any.

Any number of processes of the same command share the work through the output: each takes
prompts that are free, those of one that was killed are free again, and the last one writes the
file, with the bytes of one process. It appears under its name only when it is complete. What an
interrupted generation has finished is kept: the same command with --resume goes on, with the bits
of one that never stopped. A record that cannot be read is told, counted and left out, unless
--strict is given.

With --shards the output is a folder of files. A finished one is never done again, and processes
leave to others what these are at. --shard I/N does only shard I, from 0; so do workers of an
indexed Kubernetes job (JOB_COMPLETION_INDEX).

The folder may be one of a bucket, --out s3://BUCKET/NAME, with the same promises to
workers anywhere. There the claim of a killed worker is free after 3 minutes.`),
		Example: `  train generate --samples 64 --out out/samples.jsonl --replace
  train generate --task section,hops --tokens 256 --samples 100 --out out/hops.jsonl --replace
  train generate --samples 60 --shards 3 --out out/samples
  train generate path/to/pairs.yaml --model path/to/llama --shard 3/64
  train generate path/to/pairs.yaml --model path/to/llama --shards 64 --out s3://bucket/samples`,
		Args: cli.Args("[CONFIG.yaml]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.SamplesGiven = cli.GivenFlags(cmd.Flags()).Given("samples")
			if len(args) == 1 {
				if err := s.Read(args[0], sets, cli.GivenFlags(cmd.Flags()).Repeat); err != nil {
					return err
				}
			} else if len(sets) > 0 {
				return fmt.Errorf("generate: --set needs a configuration")
			}
			collector.Bound(training.LeastGarbage)
			out := s.Out
			if out == "-" { // each would write there
				out = ""
			}
			if err := cli.ShareOutput(cmd, out); err != nil {
				return err
			}
			return s.Run(cmd.Context(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	cli.BindModel(f, &s.Model, &s.Device)
	s.S3.Bind(f)
	f.StringVar(&s.CacheDType, "cache-dtype", s.CacheDType, model.CacheDTypeUsage)
	f.StringVar(&s.Prompts, "prompts", "", "file, folder or s3://BUCKET/NAME of prompts; \"-\" is standard input; empty makes synthetic ones")
	f.StringArrayVar(&s.PromptFields, "field", nil, "columns of --prompts: NAME=PATH,…, NAME=TEMPLATE or a data set; may be repeated")
	f.StringVar(&s.Recipe, "recipe", s.Recipe, "how conversations and texts become prompts: "+strings.Join(generation.Recipes.Names(), ", "))
	f.BoolVar(&s.Raw, "raw", s.Raw, "take \"prompt\" as it is, without the model's chat template")
	cli.BindChat(f, &s.ChatTemplate, &s.ChatOptions, &s.ChatDate)
	f.StringVar(&s.Responses, "responses", s.Responses, "where responses come from: self, the model, or source, the answers of the prompts' files or tasks")
	f.IntVar(&s.MaxPrompt, "max-prompt", s.MaxPrompt, "most tokens of a prompt; longer prompts are left out")
	f.StringVar(&s.Tasks, "task", s.Tasks, "synthetic tasks, comma-separated, or all")
	f.StringVar(&s.Split, "split", s.Split, "split of the synthetic tasks: train, validation or test")
	f.IntVar(&s.Tokens, "tokens", s.Tokens, "length of the synthetic prompts in tokens")
	f.IntVar(&s.Samples, "samples", s.Samples, "number of samples to make; at most as many as --prompts has")
	f.Uint64Var(&s.Seed, "seed", s.Seed, "seed of the mix of sources, the recipe and the synthetic tasks")
	f.IntVar(&s.MaxNew, "max-new", s.MaxNew, "most tokens of a response")
	s.SamplingChoice.Bind(f)
	f.Uint64Var(&s.SamplingSeed, "sampling-seed", s.SamplingSeed, "seed of the sampling of responses")
	f.IntVar(&s.Batch, "batch", s.Batch, "most responses generated at the same time: as many as memory has room for")
	f.IntVar(&s.Shards, "shards", s.Shards, "files in the folder --out; 0: --out is one file")
	f.StringVar(&s.Shard, "shard", "", "shard to make alone, as I/N with I from 0")
	s.Files.Bind(f)
	f.BoolVar(&s.Resume, "resume", false, "go on with the file --out where it was interrupted; shards always do so")
	f.BoolVar(&s.Strict, "strict", s.Strict, "stop at a record that is no prompt, instead of leaving it out")
	f.StringVarP(&s.Out, "out", "o", "", "file, or with --shards folder or s3://BUCKET/NAME, to write; \"-\" is standard output")
	f.StringArrayVar(&sets, "set", nil, "KEY=VALUE over the configuration, as sources.0.weight=2; may be repeated")
	cli.Everyday(cmd, "model", "device", "prompts", "recipe", "task", "tokens", "samples", "max-prompt", "max-new", "temperature", "shards", "out", "resume", "replace")
	return cmd
}

// fieldPresets is a line for each.
func fieldPresets() string {
	var b strings.Builder
	for name, p := range datasets.FieldPresets.All() {
		fmt.Fprintf(&b, "  %-14s %s\n", name, p.Doc)
	}
	return b.String()
}
