package main

import (
	"context"
	"fmt"
	"io"

	"glimpse/datasets"
	"glimpse/internal/generate"
	"glimpse/internal/progress"
	"glimpse/model"
	"glimpse/model/chat"
	"glimpse/model/hub"

	"github.com/spf13/cobra"
)

func newGenerate() *cobra.Command {
	var (
		modelPath, device, prompts, out, tasks, split string
		tokens, samples, maxNew                       int
		raw                                           bool
		seed                                          uint64
		sampling                                      model.Sampling
	)
	cmd := &cobra.Command{
		Use:   "generate",
		Short: "Generate the model's own responses to prompts, as training pairs",
		Long: `Generate the model's own responses to prompts, as training pairs.

Prompts come from a JSONL file (--prompts; each line has "prompt", "text",
"messages" or "prompt_ids") or, without one, from the synthetic long-context
tasks, which only the built-in model understands. "prompt" and "messages" go into
the model's chat template; "text" does not, nor does "prompt" with --raw or for a
model without a template. Responses are greedy unless a temperature is given, and
end at any end token of generation_config.json.

The file appears under its name only when it is complete.`,
		Example: `  train generate --samples 64 --out pairs.jsonl
  train generate --tasks copy,chain --tokens 256 --samples 100 --seed 7 --out pairs.jsonl`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" {
				return fmt.Errorf("generate: --out is missing")
			}
			if err := sampling.Validate(); err != nil {
				return fmt.Errorf("generate: %w", err)
			}
			if maxNew < 1 {
				return fmt.Errorf("generate: --max-new: got %d, want at least 1", maxNew)
			}
			m, err := hub.Open(cmd.Context(), modelPath, cmd.ErrOrStderr(), model.Options{Device: device})
			if err != nil {
				return err
			}
			defer m.Close()
			var next func() (generate.Prompt, error)
			var total int
			if prompts != "" {
				next, total, err = filePrompts(m, prompts, raw, cmd.Flags().Changed("samples"), samples)
			} else {
				next, err = taskPrompts(m, modelPath, tasks, split, tokens, samples, seed)
				total = samples
			}
			if err != nil {
				return err
			}
			return generatePairs(cmd.Context(), cmd.ErrOrStderr(), m, next, total, out, maxNew, sampling)
		},
	}
	f := cmd.Flags()
	f.StringVar(&modelPath, "model", "", "model folder, or org/name[@revision] of the Hugging Face hub, which is downloaded once; empty is the built-in model")
	f.StringVar(&device, "device", "cpu", "where to compute")
	f.StringVar(&prompts, "prompts", "", "JSONL file of prompts")
	f.BoolVar(&raw, "raw", false, "take \"prompt\" as it is, without the model's chat template")
	f.StringVar(&tasks, "tasks", "default", "synthetic tasks, comma-separated, or default, or all")
	f.StringVar(&split, "split", "train", "split of the synthetic tasks: train, validation or test")
	f.IntVar(&tokens, "tokens", 512, "prompt length of the synthetic tasks")
	f.IntVar(&samples, "samples", 1000, "number of prompts; with --prompts, at most so many")
	f.Uint64Var(&seed, "seed", 1, "seed of the synthetic tasks")
	f.IntVar(&maxNew, "max-new", 512, "most tokens of a response")
	f.Float64Var(&sampling.Temperature, "temperature", 0, "sampling temperature; 0 is greedy")
	f.Float64Var(&sampling.TopP, "top-p", 1, "nucleus of the sampling")
	f.IntVar(&sampling.TopK, "top-k", 0, "most likely tokens that are sampled from; 0 is all")
	f.Uint64Var(&sampling.Seed, "sampling-seed", 1, "seed of the sampling")
	f.StringVarP(&out, "out", "o", "", "file to write")
	return cmd
}

// taskPrompts draws prompts of the synthetic tasks.
func taskPrompts(m *model.Model, modelPath, tasks, split string, tokens, samples int, seed uint64) (func() (generate.Prompt, error), error) {
	stream, err := newStream(m, modelPath, tasks, split, tokens, seed)
	if err != nil {
		return nil, err
	}
	if samples < 1 {
		return nil, fmt.Errorf("samples: got %d, want at least 1", samples)
	}
	i := 0
	return func() (generate.Prompt, error) {
		if i == samples {
			return generate.Prompt{}, io.EOF
		}
		i++
		e, err := stream.Next()
		return generate.Prompt{ID: e.ID, Task: e.Task, IDs: e.Prompt}, err
	}, nil
}

// newStream makes a stream of synthetic tasks for the built-in model.
func newStream(m *model.Model, modelPath, tasks, split string, tokens int, seed uint64) (*datasets.Stream, error) {
	if modelPath != "" && m.Config.Vocab != len(datasets.Vocabulary()) {
		return nil, fmt.Errorf("model %s does not know the words of the synthetic tasks; give it prompts of its own", m.Name)
	}
	names, err := datasets.ParseTasks(tasks)
	if err != nil {
		return nil, err
	}
	s, err := datasets.ParseSplit(split)
	if err != nil {
		return nil, err
	}
	return datasets.NewStream(names, s, tokens, seed)
}

// filePrompts reads a JSONL file of prompts.
func filePrompts(m *model.Model, path string, raw, limited bool, limit int) (func() (generate.Prompt, error), int, error) {
	all, err := datasets.ReadPrompts(path)
	if err != nil {
		return nil, 0, err
	}
	if limited {
		all = all[:min(len(all), max(1, limit))]
	}
	i := 0
	return func() (generate.Prompt, error) {
		if i == len(all) {
			return generate.Prompt{}, io.EOF
		}
		p := all[i]
		i++
		ids, err := promptIDs(m, p, raw)
		return generate.Prompt{ID: p.ID, IDs: ids}, err
	}, len(all), nil
}

// promptIDs turns a prompt of a file into token ids: "prompt" and "messages" by the
// model's chat template, "text" as it is. raw, or a model without a template, leaves
// "prompt" as it is, too.
func promptIDs(m *model.Model, p datasets.Prompt, raw bool) ([]int32, error) {
	plain := raw || !m.HasChatTemplate()
	switch {
	case p.Form == datasets.FormIDs:
		return p.IDs, p.CheckIDs(m.Config.Vocab)
	case p.Form == datasets.FormMessages && raw:
		return nil, fmt.Errorf("prompt %s: --raw: messages need the chat template", p.ID)
	case p.Form == datasets.FormText, p.Form == datasets.FormPrompt && plain:
		ids, err := m.Encode(p.Text)
		if err != nil {
			return nil, fmt.Errorf("prompt %s: %w", p.ID, err)
		}
		return ids, nil
	}
	messages := []chat.Message{{Role: "user", Content: p.Text}}
	if p.Form == datasets.FormMessages {
		messages = messages[:0]
		for _, x := range p.Messages {
			messages = append(messages, chat.Message{Role: x.Role, Content: x.Content})
		}
	}
	ids, err := m.EncodeChat(messages)
	if err != nil {
		return nil, fmt.Errorf("prompt %s: %w", p.ID, err)
	}
	return ids, nil
}

func generatePairs(ctx context.Context, log io.Writer, m *model.Model, next func() (generate.Prompt, error), total int, out string, maxNew int, sampling model.Sampling) error {
	hash, err := m.SHA256(ctx)
	if err != nil {
		return err
	}
	topP := sampling.TopP
	if topP == 0 {
		topP = 1
	}
	w, err := datasets.CreatePairs(out, datasets.PairHeader{
		Model: m.Name, WeightsSHA256: hash, Seed: sampling.Seed, Shards: 1,
		Sampling: datasets.Sampling{Temperature: sampling.Temperature, TopP: topP, TopK: sampling.TopK, MaxNewTokens: maxNew},
	})
	if err != nil {
		return err
	}
	bar := progress.New(log, "prompts", int64(total))
	tokens, empty, written := 0, 0, 0
	err = generate.Pairs(ctx, m, next, w, generate.Options{MaxNew: maxNew, Sampling: sampling, OnPair: func(p datasets.Pair) {
		written++
		tokens += len(p.ResponseIDs)
		if len(p.ResponseIDs) == 0 {
			empty++
		}
		bar.Describe(fmt.Sprintf("%d response tokens", tokens))
		bar.Add(1)
	}})
	bar.Done()
	if err != nil {
		w.Abort()
		return err
	}
	if err := w.Commit(); err != nil {
		return err
	}
	fmt.Fprintf(log, "%s: %d pairs, %d response tokens, %d empty responses\n", out, written, tokens, empty)
	return nil
}
