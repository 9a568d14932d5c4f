package runner_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"glimpse/datasets"
	"glimpse/internal/compare"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// sequences are prefilled prompts of different lengths with their first tokens.
func sequences(t testing.TB, m *model.Model, n, tokens int) ([]*kvcache.Cache, []int32) {
	t.Helper()
	caches, first := make([]*kvcache.Cache, n), make([]int32, n)
	r := runner.New(m)
	for i := range caches {
		s, err := datasets.NewStream([]string{"section"}, datasets.Train, tokens+3*i, 1)
		if err != nil {
			t.Fatal(err)
		}
		e, err := s.At(i)
		if err != nil {
			t.Fatal(err)
		}
		caches[i] = kvcache.New(m)
		logits, err := r.Prefill(context.Background(), caches[i], e.Prompt, runner.PrefillOptions{})
		if err != nil {
			t.Fatal(err)
		}
		greedy, err := runner.NewSampler(model.Sampling{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if first[i], err = greedy.Next(runner.HostLogits(logits)); err != nil {
			t.Fatal(err)
		}
	}
	return caches, first
}

// TestStepBatch: logits are those of single steps, and have the same bits whatever
// else is in a batch of the size.
func TestStepBatch(t *testing.T) {
	m, err := model.Open("", model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ctx := context.Background()
	const n = 5
	batch, tokens := sequences(t, m, n, 64)
	single, _ := sequences(t, m, n, 64)
	r := runner.New(m)
	for step := range 6 {
		got, err := r.StepBatch(ctx, batch, tokens, 0)
		if err != nil {
			t.Fatal(err)
		}
		next := make([]int32, n)
		for i := range n {
			want, err := r.Step(ctx, single[i], tokens[i], runner.Capture{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			compare.CloseToScale(t, fmt.Sprintf("step %d sequence %d", step, i), got[i], want, 1e-2)
			next[i] = int32((int(tokens[i])*7 + step) % m.Config.Vocab)
			if batch[i].Next() != single[i].Next() {
				t.Fatalf("sequence %d is at %d, want %d", i, batch[i].Next(), single[i].Next())
			}
		}
		copy(tokens, next)
	}
	// The same sequence beside others, at another place of the batch.
	a, tokA := sequences(t, m, n, 64)
	b, tokB := sequences(t, m, n, 64)
	b[0], b[3], tokB[0], tokB[3] = b[3], b[0], tokB[3], tokB[0]
	b[1], tokB[1] = b[2], tokB[2]
	b[2] = func() *kvcache.Cache { c, _ := sequences(t, m, 1, 90); return c[0] }()
	x, err := r.StepBatch(ctx, a, tokA, 0)
	if err != nil {
		t.Fatal(err)
	}
	y, err := r.StepBatch(ctx, b, tokB, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range x[0] {
		if math.Float32bits(x[0][i]) != math.Float32bits(y[3][i]) {
			t.Fatalf("logit %d is %v, beside other sequences %v", i, x[0][i], y[3][i])
		}
	}
	// A batch that is filled up has the bits of a full one.
	z, err := r.StepBatch(ctx, a[:2], []int32{7, 9}, n)
	if err != nil {
		t.Fatal(err)
	}
	full, _ := sequences(t, m, n, 64)
	if _, err := r.StepBatch(ctx, full, tokA, n); err != nil {
		t.Fatal(err)
	}
	w, err := r.StepBatch(ctx, full, []int32{7, 9, 8, 8, 8}, n)
	if err != nil {
		t.Fatal(err)
	}
	for i := range z[1] {
		if math.Float32bits(z[1][i]) != math.Float32bits(w[1][i]) {
			t.Fatalf("logit %d is %v in a batch that was filled up, %v in a full one", i, z[1][i], w[1][i])
		}
	}
	if _, err := r.StepBatch(ctx, a, tokA[:2], 0); err == nil {
		t.Error("too few tokens: want an error")
	}
	if _, err := r.StepBatch(ctx, a, []int32{0, 0, 0, 0, 9999}, 0); err == nil {
		t.Error("a token outside the vocabulary: want an error")
	}
}

// TestSameRows: a row has the same bits in a step of any of the numbers of rows that the backend says.
func TestSameRows(t *testing.T) {
	m, err := model.Open("", model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, most := range []int{1, 2, 8, 12, 16, 17, 40} {
		least := m.Backend.SameRows(most)
		if most <= 16 && least > 1 || most > 17 && least >= most {
			t.Errorf("%d rows have the bits of %d at the least", least, most)
		}
		var want []float32
		for rows := least; rows <= most; rows++ {
			caches, tokens := sequences(t, m, 1, 64)
			got, err := runner.New(m).StepBatch(t.Context(), caches, tokens, rows)
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = got[0]
			}
			for i, x := range got[0] {
				if math.Float32bits(x) != math.Float32bits(want[i]) {
					t.Fatalf("logit %d is %v in a step of %d rows, %v in one of %d", i, x, rows, want[i], least)
				}
			}
		}
	}
}

// BenchmarkDecode is the throughput of decoding on the built-in model: batch 8 is to be
// at least 3 times batch 1.
func BenchmarkDecode(b *testing.B) {
	m, err := model.Open("", model.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	const steps = 48
	for _, n := range []int{1, 2, 4, 8, 16} {
		b.Run(fmt.Sprintf("batch=%d", n), func(b *testing.B) {
			caches, tokens := sequences(b, m, n, 128)
			ends := make([]int32, n)
			for i, c := range caches {
				ends[i] = c.Next()
			}
			r := runner.New(m)
			for b.Loop() {
				if n > 1 { // as package generate does
					for _, c := range caches {
						runner.Reserve(c, steps)
					}
				}
				for range steps {
					if n == 1 { // as everyone decodes one sequence
						if _, err := r.Step(context.Background(), caches[0], tokens[0], runner.Capture{}, nil); err != nil {
							b.Fatal(err)
						}
						continue
					}
					if _, err := r.StepBatch(context.Background(), caches, tokens, 0); err != nil {
						b.Fatal(err)
					}
				}
				for i, c := range caches {
					if err := c.Truncate(ends[i]); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.N*steps*n)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
