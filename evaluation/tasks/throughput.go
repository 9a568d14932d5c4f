package tasks

import (
	"context"
	"fmt"
	"time"

	"glimpse/engine/costmodel"
	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/runner"
)

// Names of measures in a fixed memory (D2O, arXiv:2406.13035, table 5). Throughput is
// that of decoding, prompts apart.
const (
	measureLargest         = "largest_batch" // sequences whose caches fit beside the weights, from the prompt to the end of the response
	measureBatch           = "batch"         // of them, those that were decoded together
	measureThroughput      = "batch_tokens_per_s"
	measureModelLargest    = "model_largest_batch"
	measureModelThroughput = "model_batch_tokens_per_s"
)

// throughput measures how many sequences fit the memory under a policy, and how fast they are
// decoded together.
func (l *latency) throughput(ctx context.Context, cell evaluation.Cell, ids []int32, budget int, m evaluation.Measures) error {
	rt := eviction.NewRuntime(l.Model)
	opt := runner.GenerateOptions{MaxNew: l.maxNew, IgnoreEnd: true}
	prompt := eviction.Prompt{Tokens: ids, Budget: budget, MaxNew: l.maxNew}
	s, err := rt.Prefill(ctx, cell.Configured, prompt)
	if err != nil {
		return err
	}
	prompt.Response, _, err = s.Generate(ctx, opt)
	if err != nil {
		return err
	}
	held := max(s.Bytes(), 1)
	largest := fitting(l.memory-l.Model.WeightBytes(), held, max(held, s.PeakBytes))
	run := costmodel.Run{Tokens: len(ids), Budget: budget, MaxNew: l.maxNew}
	m[measureLargest], m[measureModelLargest] = float64(largest), float64(l.costs.LargestBatch(cell.Configured, run, l.memory))
	batch := min(largest, l.most)
	if m[measureBatch] = float64(batch); batch == 0 {
		return nil
	}
	study, err := rt.Study(ctx, []*eviction.Configured{cell.Configured}, prompt, []int{budget}, opt)
	if err != nil {
		return err
	}
	var speeds []float64
	for range l.repeats {
		speed, err := decodeTogether(ctx, l.Model, study, batch, opt)
		if err != nil {
			return err
		}
		speeds = append(speeds, speed)
	}
	m[measureThroughput] = median(speeds)
	m[measureModelThroughput] = l.costs.TokensPerSecond(cell.Configured, run, batch)
	return nil
}

// fitting is how many sequences fit; each holds so many bytes in the end and needs
// peak while its prompt runs, the last one beside all others.
func fitting(memory, held, peak int64) int {
	if memory < peak {
		return 0
	}
	return int(1 + (memory-peak)/held)
}

// decodeTogether is the tokens per second of so many copies of an evicted prompt.
func decodeTogether(ctx context.Context, m *model.Model, study *eviction.Study, n int, opt runner.GenerateOptions) (float64, error) {
	batch, err := runner.New(m).NewBatch(n)
	if err != nil {
		return 0, err
	}
	var answers []*runner.Sequence
	for range n {
		s, err := study.Session(study.Choices[0])
		if err != nil {
			return 0, err
		}
		a, err := s.Join(batch, opt)
		if err != nil {
			return 0, err
		}
		answers = append(answers, a)
	}
	if _, err := batch.Step(ctx); err != nil { // the first tokens come from the prompts
		return 0, err
	}
	start := time.Now()
	if err := batch.Run(ctx); err != nil {
		return 0, err
	}
	took, tokens := time.Since(start), 0
	for i, a := range answers {
		if err := a.Err(); err != nil {
			return 0, fmt.Errorf("sequence %d of %d: %w", i+1, n, err)
		}
		tokens += len(a.Tokens()) - 1
	}
	return float64(tokens) / took.Seconds(), nil
}
