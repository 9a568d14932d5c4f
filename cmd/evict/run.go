package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"glimpse/datasets"
	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/internal/cli"
	"glimpse/model"
	"glimpse/model/tokenizer"

	"github.com/spf13/cobra"
)

func newRun() *cobra.Command {
	var (
		s      setup
		p      promptFlags
		policy string
		o      runOptions
	)
	cmd := &cobra.Command{
		Use:   "run [PROMPT]",
		Short: "Answer a prompt with the cache evicted to a budget",
		Long: `Answer a prompt with the cache evicted to a budget.

The answer streams to standard output; what was kept and what it cost follows on
standard error. The text goes into the model's chat template, if it has one, unless
--raw is given. Tokens are sampled as the model's generation_config.json says, unless
flags say otherwise; --sampling greedy takes the best ones. The built-in model, which is
greedy, knows 384 words only: --example makes prompts that it can answer.`,
		Example: `  evict run --example needle --policy snapkv --budget 32
  evict run --example copy --policy lookaheadkv --budget 128
  evict run --model path/to/llama --adapter adapters/llama --budget 256 "Summarise: ..."`,
		Args: cli.Args("[PROMPT]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.take(args); err != nil {
				return fmt.Errorf("run: %w", err)
			}
			if err := eviction.CheckBudget(o.budget); err != nil {
				return fmt.Errorf("run: %w", err)
			}
			if o.maxNew < 1 {
				return fmt.Errorf("run: --max-new: got %d, want at least 1", o.maxNew)
			}
			if err := o.choice.Check(); err != nil {
				return fmt.Errorf("run: %w", err)
			}
			if _, err := eviction.LookupPolicy(policy); err != nil {
				return fmt.Errorf("run: %w", err)
			}
			var prompt *prompt
			var unreadable error // told once the policy is known to be right
			s.before = func(m *model.Model) error {
				if prompt, unreadable = p.read(cmd.Context(), m, cli.Input(cmd.Context(), cmd.InOrStdin()), s.seed); unreadable != nil {
					return nil
				}
				return s.checkMemory(cmd.Context(), m, []string{policy}, eviction.FootprintOptions{Tokens: len(prompt.ids), Budget: o.budget, MaxNew: o.maxNew})
			}
			l, err := s.open(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer l.Close()
			c, err := l.one(policy)
			if err != nil {
				return err
			}
			if unreadable != nil {
				return unreadable
			}
			if err := checkCovers(cmd, o.budget, prompt); err != nil {
				return err
			}
			if o.sampling, err = o.choice.Resolve(l.Model); err != nil {
				return fmt.Errorf("run: %w", err)
			}
			o.choice.Report(cmd.ErrOrStderr(), l.Model, o.sampling)
			o.sampling.Seed = s.seed
			return answer(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), l, c, prompt, o)
		},
	}
	f := cmd.Flags()
	s.bind(f)
	s.bindChat(f)
	p.bind(f)
	f.StringVar(&policy, "policy", "lookaheadkv", "eviction policy, see evict policies; FIRST:SECOND reads sparsely what the first keeps, as snapkv:quest")
	f.IntVar(&o.budget, "budget", 128, "key-value pairs kept per KV head and layer")
	f.IntVar(&o.maxNew, "max-new", 256, "most tokens of the answer; rocketkv and hsa divide the budget by it")
	o.choice.From = model.SamplingOfModel
	o.choice.Bind(f)
	f.BoolVar(&o.compare, "compare", false, "also time a prefill without eviction")
	return cmd
}

// runOptions are the settings of one answer.
type runOptions struct {
	budget, maxNew int
	choice         model.SamplingChoice
	sampling       model.Sampling // what comes of it
	compare        bool
}

// checkCovers refuses a budget that the user chose larger than the prompt, where
// nothing would be evicted; the default budget may be.
func checkCovers(cmd *cobra.Command, budget int, p *prompt) error {
	if cmd.Flags().Changed("budget") && budget > len(p.ids) {
		return fmt.Errorf("%s: budget: got %d, want at most the prompt's %d tokens", cmd.Name(), budget, len(p.ids))
	}
	return nil
}

// one is the single contender of a policy name.
func (l *loaded) one(policy string) (evaluation.Contender, error) {
	c, err := l.contenders(policy)
	if err != nil {
		return evaluation.Contender{}, err
	}
	if len(c) != 1 {
		return evaluation.Contender{}, fmt.Errorf("policy %s: %d variants by adapter or draft, want one", policy, len(c))
	}
	return c[0], nil
}

func answer(ctx context.Context, out, info io.Writer, l *loaded, c evaluation.Contender, p *prompt, o runOptions) error {
	t, tokenizerErr := l.NeedTokenizer()
	if p.task != "" {
		if err := showExample(info, p); err != nil {
			return err
		}
	}
	rt := eviction.NewRuntime(l.Model)
	rt.MaxNew = o.maxNew
	var plain time.Duration
	if o.compare {
		full, err := eviction.New("full", 0, nil, nil)
		if err != nil {
			return err
		}
		for range 2 { // the first warms up
			s, err := rt.Prefill(ctx, full, p.ids, len(p.ids), nil)
			if err != nil {
				return err
			}
			plain = s.PrefillTime
		}
	}
	s, err := rt.Prefill(ctx, c.Named, p.ids, o.budget, nil)
	if err != nil {
		return err
	}
	prefilled, kept := s.Bytes(), 0
	for layer := range s.Cache.Layers() {
		for h := range s.Cache.KVHeads() {
			kept += s.Cache.Entries(layer, h)
		}
	}
	var stream *tokenizer.Stream
	if tokenizerErr == nil {
		stream = t.NewStream(true)
	}
	start, room := time.Now(), l.Config.MaxPositions-len(p.ids)+1
	tokens, ended, err := s.Generate(ctx, model.GenerateOptions{MaxNew: min(o.maxNew, room), Sampling: o.sampling, OnToken: func(id int32) error {
		text := fmt.Sprint(id, " ")
		if stream != nil {
			text = stream.Push(id)
		}
		_, err := io.WriteString(out, text)
		return err
	}})
	elapsed := time.Since(start)
	if err != nil {
		return err
	}
	if stream != nil {
		if _, err := io.WriteString(out, stream.Flush()); err != nil {
			return err
		}
	}
	fmt.Fprintln(out)
	if p.task != "" {
		verdict := "wrong"
		if ended && slices.Equal(tokens, p.answer) {
			verdict = "right"
		}
		fmt.Fprintf(info, "the answer is %s\n", verdict)
	}
	heads := l.Config.Layers * l.Config.KVHeads
	fmt.Fprintf(info, "policy %s, budget %d: kept %d of %d pairs per KV head on average, %.1f of %.1f KiB (%.1f%%)\n",
		c.Name, o.budget, kept/heads, len(p.ids), kib(prefilled), kib(s.FullBytes), 100*float64(prefilled)/float64(s.FullBytes))
	fmt.Fprintf(info, "time to first token %.1f ms", ms(s.PrefillTime))
	if o.compare {
		fmt.Fprintf(info, ", plain prefill %.1f ms", ms(plain))
	}
	fmt.Fprintf(info, "; peak of the cache during prefill %.1f KiB\n", kib(s.PeakBytes))
	fmt.Fprintf(info, "%d tokens at %.0f tokens/s%s\n", len(tokens), float64(len(tokens))/elapsed.Seconds(), trafficNote(s.Traffic))
	return nil
}

// trafficNote says what a decoding step has read, if there was any.
func trafficNote(t eviction.Traffic) string {
	if t.Steps == 0 {
		return ""
	}
	note := fmt.Sprintf("; attention reads %.1f KiB per step", t.PerStep()/1024)
	if t.Estimation > 0 {
		note += fmt.Sprintf(", %.1f of them to choose", float64(t.Estimation)/float64(t.Steps)/1024)
	}
	return note
}

func kib(b int64) float64        { return float64(b) / 1024 }
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// showExample prints the ends of an example's prompt, and its answer.
func showExample(w io.Writer, p *prompt) error {
	const shown = 24
	head, err := datasets.Text(p.ids[:min(len(p.ids), shown)])
	if err != nil {
		return err
	}
	tail, err := datasets.Text(p.ids[max(0, len(p.ids)-shown):])
	if err != nil {
		return err
	}
	want, err := datasets.Text(p.answer)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "prompt of task %s, %d tokens: %s … %s\nright answer: %s\n", p.task, len(p.ids), head, tail, want)
	return nil
}
