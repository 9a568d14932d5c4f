package runner_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// newBatch is an empty batch.
func newBatch(t testing.TB, m *model.Model, rows int) *runner.Batch {
	t.Helper()
	b, err := runner.New(m).NewBatch(rows)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// runBatch steps until every sequence has ended.
func runBatch(t testing.TB, b *runner.Batch) {
	t.Helper()
	for b.Len() > 0 {
		if _, err := b.Step(background); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRowsOfABatchAreAlike: a sequence says the same, to the bit, in every row of a batch of
// any size, on shapes that fill no tile of a kernel.
func TestRowsOfABatchAreAlike(t *testing.T) {
	for _, device := range devices {
		rowsOfABatchAreAlike(t, device, modeltest.Llama{Hidden: 48, Heads: 6, KVHeads: 2, HeadDim: 8, Intermediate: 88, Vocab: 101, Seed: 3}.Open(t, device))
		for _, name := range []string{"mixtral", "qwen2-moe"} { // whose rows are grouped by expert
			rowsOfABatchAreAlike(t, device, modeltest.OpenFolder(t, os.DirFS(modeltest.GoldenNamed(t, name).Folder), device))
		}
	}
}

func rowsOfABatchAreAlike(t *testing.T, device string, m *model.Model) {
	t.Helper()
	sizes := []int{1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 24}
	if device != "cpu" { // every launch takes its time
		sizes = []int{2, 5, 9}
	}
	for _, rows := range sizes {
		var want []float32
		for at := range rows {
			var caches []*kvcache.Cache
			var tokens []int32
			for i := range at + 1 {
				n := 11
				if i != at {
					n = 3 + i
				}
				_, cache, _ := start(t, m, modeltest.Tokens(m, uint64(n), n))
				caches, tokens = append(caches, cache), append(tokens, int32(n))
			}
			got, err := runner.New(m).StepBatch(background, caches, tokens, rows)
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = got[at]
			}
			if !slices.Equal(got[at], want) {
				t.Fatalf("%s: row %d of %d differs from row 0", device, at, rows)
			}
		}
	}
}

// TestBatchIsGenerate: responses of several sequences, with settings of their own, are those
// of Generate in exact arithmetic, and leave the caches as it does.
func TestBatchIsGenerate(t *testing.T) {
	m := modeltest.Llama{Seed: 3}.Open(t, "reference64")
	plain := func() []int32 {
		r, cache, logits := start(t, m, modeltest.Tokens(m, 20, 20))
		out, _, err := r.Continue(background, cache, runner.HostLogits(logits), runner.GenerateOptions{MaxNew: 12, IgnoreEnd: true})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}()
	stopAfter := func(n int) func(int32) error {
		return func(int32) error {
			if n--; n == 0 {
				return runner.ErrStop
			}
			return nil
		}
	}
	settings := []func() runner.GenerateOptions{
		func() runner.GenerateOptions { return runner.GenerateOptions{MaxNew: 12, IgnoreEnd: true} },
		func() runner.GenerateOptions { return runner.GenerateOptions{MaxNew: 1} },
		func() runner.GenerateOptions { return runner.GenerateOptions{} },
		func() runner.GenerateOptions { return runner.GenerateOptions{MaxNew: 12, Stop: plain[4:5]} },
		func() runner.GenerateOptions {
			return runner.GenerateOptions{MaxNew: 12, IgnoreEnd: true, OnToken: stopAfter(5)}
		},
		func() runner.GenerateOptions { return runner.GenerateOptions{Forced: []int32{7, 1, 9, 9}} },
		func() runner.GenerateOptions {
			return runner.GenerateOptions{MaxNew: 9, IgnoreEnd: true, Sampling: model.Sampling{Temperature: 2, Seed: 5}}
		},
		func() runner.GenerateOptions {
			return runner.GenerateOptions{MaxNew: 9, IgnoreEnd: true, Prompt: []int32{3, 4}, Sampling: model.Sampling{Temperature: 1, MinP: 0.01, Processors: model.Processors{NoRepeatNGram: 1}}}
		},
	}
	b := newBatch(t, m, len(settings))
	type result struct {
		logProbs []float64
		steps    int
	}
	var sequences []*runner.Sequence
	var caches []*kvcache.Cache
	batched := make([]result, len(settings))
	watch := func(opt runner.GenerateOptions, to *result) runner.GenerateOptions {
		opt.OnLogProb = func(_ int32, p float64, _ []runner.LogProb) { to.logProbs = append(to.logProbs, p) }
		opt.AfterStep = func() error { to.steps++; return nil }
		return opt
	}
	for i, opt := range settings {
		_, cache, logits := start(t, m, modeltest.Tokens(m, 20, 20))
		s, err := b.Add(cache, runner.HostLogits(logits), watch(opt(), &batched[i]))
		if err != nil {
			t.Fatal(err)
		}
		sequences, caches = append(sequences, s), append(caches, cache)
	}
	if _, err := b.Add(kvcache.New(m), runner.HostLogits(nil), runner.GenerateOptions{}); err == nil || b.Room() != 0 {
		t.Error("a full batch takes one more")
	}
	runBatch(t, b)
	for i, opt := range settings {
		name := fmt.Sprintf("settings %d", i)
		var alone result
		r, cache, logits := start(t, m, modeltest.Tokens(m, 20, 20))
		want, ended, err := r.Continue(background, cache, runner.HostLogits(logits), watch(opt(), &alone))
		if err != nil {
			t.Fatal(err)
		}
		s := sequences[i]
		if !slices.Equal(s.Tokens(), want) || s.Ended() != ended || s.Err() != nil || batched[i].steps != alone.steps {
			t.Errorf("%s: %v, ended %v, %d steps, %v; want %v, %v, %d", name, s.Tokens(), s.Ended(), batched[i].steps, s.Err(), want, ended, alone.steps)
		}
		compare.Close(t, name+": log-probabilities", batched[i].logProbs, alone.logProbs, 1e-9)
		if caches[i].Next() != cache.Next() {
			t.Errorf("%s: cache at %d, want %d", name, caches[i].Next(), cache.Next())
		}
		for l := range m.Config.Layers {
			for h, kv := range cache.View(l) {
				compare.Close(t, name+": keys", caches[i].View(l)[h].K.Float64s(), kv.K.Float64s(), 1e-9)
				compare.Close(t, name+": values", caches[i].View(l)[h].V.Float64s(), kv.V.Float64s(), 1e-9)
			}
		}
	}
}

// TestBatchObserves: what a sequence asks to observe is what it would observe alone, and
// what it chooses is all that it attends to.
func TestBatchObserves(t *testing.T) {
	m := modeltest.Llama{Layers: 3, Seed: 3}.Open(t, "reference64")
	captures := []runner.Capture{
		{}, {Windows: []int{1, 4}}, {AllRows: true, Squares: true}, {PeakWindows: []int{1}, Queries: true}, {Windows: []int{1}, Queries: true},
	}
	type seen struct {
		values [][]float64
		layers []int
	}
	options := func(c runner.Capture, sparse bool, to *seen) runner.GenerateOptions {
		opt := runner.GenerateOptions{MaxNew: 5, IgnoreEnd: true, Capture: c, Observe: func(o *runner.Observation) error {
			to.layers = append(to.layers, o.Layer)
			for _, x := range slices.Concat(o.Windows, o.PeakWindows) {
				to.values = append(to.values, x.Float64s())
			}
			if o.AllRows != nil {
				to.values = append(to.values, o.AllRows.Float64s(), o.Squares.Float64s())
			}
			if o.Queries != nil {
				to.values = append(to.values, o.Queries[0].Float64s(), o.Keys.Float64s())
			}
			if o.Layer == 1 { // as a policy that evicts
				n := o.Cache.Entries(1, 0)
				keep := make([][]int32, o.Cache.KVHeads())
				for h := range keep {
					for j := 1; j < n; j++ {
						keep[h] = append(keep[h], int32(j))
					}
				}
				return o.Cache.Retain(1, keep)
			}
			return nil
		}}
		if sparse {
			opt.Sparse = func(s *runner.SparseStep) error {
				if s.Layer != 2 {
					return nil
				}
				to.values = append(to.values, s.Queries.Float64s(), s.Scores().Float64s())
				for h := range s.Cache.KVHeads() {
					n := int32(s.Cache.Entries(2, h))
					s.Entries = append(s.Entries, []int32{int32(h), n - 3, n - 1})
				}
				s.After = func(out *kernels.Tensor) { to.values = append(to.values, out.Float64s()) }
				return nil
			}
		}
		return opt
	}
	b := newBatch(t, m, 2*len(captures)+1)
	got := make([]seen, 2*len(captures))
	var sequences []*runner.Sequence
	for i := range got {
		_, cache, logits := start(t, m, modeltest.Tokens(m, uint64(i), 14+i))
		s, err := b.Add(cache, runner.HostLogits(logits), options(captures[i/2], i%2 == 1, &got[i]))
		if err != nil {
			t.Fatal(err)
		}
		sequences = append(sequences, s)
	}
	runBatch(t, b)
	for i := range got {
		var want seen
		r, cache, logits := start(t, m, modeltest.Tokens(m, uint64(i), 14+i))
		tokens, _, err := r.Continue(background, cache, runner.HostLogits(logits), options(captures[i/2], i%2 == 1, &want))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(sequences[i].Tokens(), tokens) || sequences[i].Err() != nil || !slices.Equal(got[i].layers, want.layers) || len(got[i].values) != len(want.values) {
			t.Fatalf("sequence %d: %v, %v, observed %v; want %v, %v", i, sequences[i].Tokens(), sequences[i].Err(), got[i].layers, tokens, want.layers)
		}
		for j := range want.values {
			compare.Close(t, fmt.Sprintf("sequence %d: observation %d", i, j), got[i].values[j], want.values[j], 1e-9, compare.EqualInf())
		}
	}
}

// TestErrorsOfOneSequence end it and leave the others alone, to the bit.
func TestErrorsOfOneSequence(t *testing.T) {
	broken := errors.New("the reader went away")
	for _, device := range devices {
		m := modeltest.Llama{MaxPositions: 40, Seed: 3}.Open(t, device)
		prompts := []int{12, 13, 36, 14, 15, 16, 17}
		var alone, beside [][]float64
		run := func(which ...int) (out []*runner.Sequence, logProbs [][]float64) {
			b := newBatch(t, m, len(prompts))
			logProbs = make([][]float64, len(which))
			for j, i := range which {
				_, cache, logits := start(t, m, modeltest.Tokens(m, uint64(i), prompts[i]))
				tokens := 0
				opt := runner.GenerateOptions{MaxNew: 9, IgnoreEnd: true, OnLogProb: func(_ int32, p float64, _ []runner.LogProb) { logProbs[j] = append(logProbs[j], p) }}
				switch i {
				case 1:
					opt.OnToken = func(int32) error {
						if tokens++; tokens == 4 {
							return broken
						}
						return nil
					}
				case 3:
					m.Backend.Fill(cache.View(1)[0].V.Rows(1, 2), math.NaN())
				case 4:
					opt.Observe = func(o *runner.Observation) error {
						if tokens++; tokens == 2*m.Config.Layers {
							return broken
						}
						return nil
					}
				case 5:
					opt.Sparse = func(*runner.SparseStep) error { return broken }
				}
				s, err := b.Add(cache, runner.HostLogits(logits), opt)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, s)
			}
			runBatch(t, b)
			return out, logProbs
		}
		got, values := run(0, 1, 2, 3, 4, 5, 6)
		for i, want := range []struct {
			tokens int
			err    error
		}{{9, nil}, {4, broken}, {5, model.ErrContext}, {1, model.ErrNonFinite}, {2, broken}, {1, broken}, {9, nil}} {
			if len(got[i].Tokens()) != want.tokens || !errors.Is(got[i].Err(), want.err) || want.err == nil && got[i].Err() != nil {
				t.Errorf("%s: sequence %d: %d tokens, error %v, want %d, %v", device, i, len(got[i].Tokens()), got[i].Err(), want.tokens, want.err)
			}
		}
		beside = [][]float64{values[0], values[6]}
		for _, i := range []int{0, 6} {
			_, values := run(i)
			alone = append(alone, values[0])
		}
		for i := range alone {
			if !slices.Equal(alone[i], beside[i]) {
				t.Errorf("%s: beside sequences that fail %v, alone %v", device, beside[i], alone[i])
			}
		}
	}
}

// TestBatchGoesOnAfterCancelling: a step that was cancelled has changed nothing.
func TestBatchGoesOnAfterCancelling(t *testing.T) {
	m := modeltest.Llama{Seed: 3}.Open(t, "cpu")
	run := func(cancelled bool) []int32 {
		b := newBatch(t, m, 3)
		_, cache, logits := start(t, m, modeltest.Tokens(m, 1, 20))
		s, err := b.Add(cache, runner.HostLogits(logits), runner.GenerateOptions{MaxNew: 8, IgnoreEnd: true})
		if err != nil {
			t.Fatal(err)
		}
		for b.Len() > 0 {
			if cancelled {
				ctx, cancel := context.WithCancel(background)
				cancel()
				if _, err := b.Step(ctx); !errors.Is(err, context.Canceled) || s.Err() != nil {
					t.Fatalf("%v, of the sequence %v", err, s.Err())
				}
			}
			if _, err := b.Step(background); err != nil {
				t.Fatal(err)
			}
		}
		return s.Tokens()
	}
	if got, want := run(true), run(false); len(want) != 8 || !slices.Equal(got, want) {
		t.Errorf("%v, never cancelled %v", got, want)
	}
}

// TestBatchRefuses: what no step could run.
func TestBatchRefuses(t *testing.T) {
	m := modeltest.Llama{Seed: 3}.Open(t, "cpu")
	if _, err := runner.New(m).NewBatch(0); err == nil {
		t.Error("a batch of no rows")
	}
	b := newBatch(t, m, 4)
	_, cache, logits := start(t, m, modeltest.Tokens(m, 1, 20))
	add := func(cache *kvcache.Cache, opt runner.GenerateOptions) (*runner.Sequence, error) {
		opt.MaxNew, opt.IgnoreEnd = 4, true
		return b.Add(cache, runner.HostLogits(logits), opt)
	}
	s, err := add(cache, runner.GenerateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, opt := range map[string]runner.GenerateOptions{
		"a cache twice": {},
		"probes":        {Capture: runner.Capture{Probes: []model.QueryRows{model.TokenRows{1}}}},
		"sampling":      {Sampling: model.Sampling{Temperature: -1}},
		"a foreign id":  {Forced: []int32{40}},
	} {
		at := cache
		if name != "a cache twice" {
			at = kvcache.New(m)
		}
		if _, err := add(at, opt); err == nil {
			t.Errorf("%s: want an error", name)
		}
	}
	if b.Len() != 1 || b.Room() != 3 {
		t.Errorf("%d sequences, room for %d", b.Len(), b.Room())
	}
	if _, err := b.Step(background); err != nil || len(s.Tokens()) != 2 {
		t.Fatal(s.Tokens(), err)
	}
	b.Remove(s)
	b.Remove(s)
	if ended, err := b.Step(background); b.Len() != 0 || len(ended) > 0 || err != nil || len(s.Tokens()) != 2 || s.Err() != nil {
		t.Errorf("after it was removed: %v, %v, %v", s.Tokens(), ended, err)
	}
}
