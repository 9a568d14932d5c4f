package tasks

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"glimpse/engine/costmodel"
	"glimpse/evaluation"
	"glimpse/internal/bytesize"
)

func init() {
	evaluation.Tasks.Add("latency", evaluation.Task{
		Name:   "latency",
		Doc:    "time to first token and what the policy adds to it, speed of decoding, memory, throughput in a fixed memory; beside them what an analytic cost model says",
		Source: "LookaheadKV (Ahn et al. 2026, arXiv:2603.10899) §5.1, tables 3 and 15; D2O (Wan et al. 2025, arXiv:2406.13035) §5.5, table 5",
		Options: []evaluation.Option{
			{Name: "lengths", Doc: "prompt lengths in tokens; none is the one that --tokens gives"},
			{Name: "repeats", Default: "3", Doc: "of which the median counts"},
			{Name: "memory", Doc: "that weights and caches may take, as 24GB: also measures the largest batch that fits, and its throughput"},
			{Name: "most", Default: "16", Doc: "sequences that are decoded together where more would fit"},
			{Name: "chip", Doc: "of the cost model: a name or flops=…,bandwidth=… (default the device, measured where it is not known)"},
		},
		Open: openLatency,
	})
}

// Names of measures beside times. The score is what of the time to first token the
// prompt itself takes: 1 where the policy adds nothing.
const (
	metricPromptShare    = "prompt_share_of_ttft"
	measurePlain         = "plain_ttft_ms"
	measureSpread        = "ttft_spread" // slowest less fastest, as a share of the median
	measurePeakMemory    = "peak_memory_bytes"
	measureModelTTFT     = "model_ttft_ms"
	measureModelOverhead = "model_ttft_overhead"
	measureModelSpeed    = "model_decode_tokens_per_s"
)

// mostShare is below 1, which is what shares of right answers are made of.
var mostShare = math.Nextafter(1, 0)

// latencyTokens are decoded for the speed where nothing else is asked for.
const latencyTokens = 64

// latency is the task ready to make samples.
type latency struct {
	*evaluation.Setting
	repeats, maxNew int
	memory          int64 // 0: no throughput
	most            int   // of a batch
	costs           costmodel.Model
}

func openLatency(_ context.Context, s *evaluation.Setting, _ string) (*evaluation.Samples, error) {
	l := &latency{Setting: s, maxNew: maxNew(s, latencyTokens)}
	lengths, err := lengthsOf(s, []int{min(syntheticTokens, s.MaxTokens(l.maxNew))})
	if err != nil {
		return nil, err
	}
	for _, n := range lengths {
		if most := s.MaxTokens(l.maxNew); n > most || n < 2 {
			return nil, fmt.Errorf("prompts of %d tokens and answers of %d, want prompts of 2 to %d", n, l.maxNew, most)
		}
	}
	if l.repeats, err = strconv.Atoi(s.Options["repeats"]); err != nil || l.repeats < 1 {
		return nil, fmt.Errorf("option repeats: got %q, want a whole number of at least 1", s.Options["repeats"])
	}
	if text := s.Options["memory"]; text != "" {
		if l.memory, err = bytesize.Parse(text); err != nil {
			return nil, fmt.Errorf("option memory: %w", err)
		}
		if l.maxNew < 2 {
			return nil, fmt.Errorf("throughput of answers of %d tokens, want at least 2", l.maxNew)
		}
	}
	if l.most, err = strconv.Atoi(s.Options["most"]); err != nil || l.most < 1 || l.most > 1<<12 {
		return nil, fmt.Errorf("option most: got %q, want a whole number from 1 to %d", s.Options["most"], 1<<12)
	}
	var chip costmodel.Chip
	if name := s.Options["chip"]; name != "" {
		if chip, err = costmodel.ParseChip(name); err != nil {
			return nil, fmt.Errorf("option chip: %w", err)
		}
	} else {
		chip = costmodel.ChipOf(s.Model)
	}
	l.costs = costmodel.New(s.Model, chip, costmodel.Runtime)
	return &evaluation.Samples{Metric: metricPromptShare, Count: len(lengths), Alone: true, Each: itemsOf(slices.Values(lengths), func(n int) evaluation.Item {
		return evaluation.Item{ID: fmt.Sprintf("%d tokens", n), Make: func(context.Context) (*evaluation.Sample, error) {
			return &evaluation.Sample{
				Tokens: n,
				Groups: []evaluation.Group{{Key: "length", Value: strconv.Itoa(n)}},
				Measure: func(ctx context.Context, b *evaluation.Bench) ([]evaluation.Measures, error) {
					return l.measure(ctx, b, n)
				},
			}, nil
		}}
	})}, nil
}

// tokens are a prompt of random tokens that end nothing: times hardly depend on what is said.
func (l *latency) tokens(n int) []int32 {
	c := &l.Model.Config
	r := rand.New(rand.NewPCG(l.Seed, uint64(n)))
	ids := make([]int32, n)
	for i := range ids {
		for {
			ids[i] = int32(r.IntN(c.Vocab))
			if ids[i] != c.BOS && !slices.Contains(c.EOS, ids[i]) {
				break
			}
		}
	}
	if c.BOS >= 0 {
		ids[0] = c.BOS
	}
	return ids
}

func (l *latency) measure(ctx context.Context, b *evaluation.Bench, n int) ([]evaluation.Measures, error) {
	ids := l.tokens(n)
	timings, err := evaluation.Time(ctx, l.Model, "latency", ids, b.Policies, b.Budgets, evaluation.TimeOptions{Repeats: l.repeats, Tokens: l.maxNew})
	if err != nil {
		return nil, err
	}
	full := float64(l.Model.Config.CacheBytes(n, l.Model.CacheDType()))
	var out []evaluation.Measures
	for i, cell := range b.Cells {
		t, budget := timings[i], n
		if !cell.Budget.IsZero() {
			budget = cell.Budget.Of(n)
		}
		e := l.costs.Estimate(cell.Configured, costmodel.Run{Tokens: n, Budget: budget, MaxNew: l.maxNew})
		m := evaluation.Measures{
			metricPromptShare:      min(mostShare, t.PlainMillis/t.TTFTMillis),
			measurePlain:           t.PlainMillis,
			measureSpread:          t.Spread,
			measureModelTTFT:       1e3 * e.TTFT.Seconds,
			measureModelOverhead:   e.Overhead / e.Plain.Seconds,
			measureModelSpeed:      1 / e.Step.Seconds,
			evaluation.MeasureTTFT: t.TTFTMillis, evaluation.MeasureSpeed: t.DecodeTokensPerSecond,
			evaluation.MeasureKept: float64(t.KeptBytes), evaluation.MeasureFull: full, evaluation.MeasurePeakCache: float64(t.PeakCacheBytes),
		}
		if t.TTFTOverhead != nil {
			m[evaluation.MeasureOverhead] = *t.TTFTOverhead
		}
		if t.PeakMemoryBytes > 0 {
			m[measurePeakMemory] = float64(t.PeakMemoryBytes)
		}
		if l.memory > 0 {
			if err := l.throughput(ctx, cell, ids, budget, m); err != nil {
				return nil, fmt.Errorf("policy %s: %w", cell.Title(), err)
			}
		}
		out = append(out, m)
	}
	return out, nil
}

// median of numbers, which it sorts.
func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}
