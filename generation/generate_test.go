package generation_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"glimpse/datasets"
	"glimpse/generation"
	"glimpse/internal/listing"
	"glimpse/internal/parallel"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// shallow is the built-in model's first layers.
func shallow(t testing.TB) *model.Model {
	t.Helper()
	return modeltest.OpenShallow(t, "cpu", 3)
}

// prompts gives examples [from, to) of a stream.
func prompts(t testing.TB, from, to, tokens int) func() (generation.Prompt, error) {
	t.Helper()
	s, err := datasets.NewStream([]string{"needle", "section", "hops"}, datasets.Train, tokens, 1)
	if err != nil {
		t.Fatal(err)
	}
	return func() (generation.Prompt, error) {
		if from == to {
			return generation.Prompt{}, io.EOF
		}
		e, err := s.At(from)
		from++
		return generation.Prompt{ID: e.ID, IDs: e.Prompt}, err
	}
}

func run(t testing.TB, m *model.Model, next func() (generation.Prompt, error), opt generation.Options) []datasets.Pair {
	t.Helper()
	var pairs []*datasets.Pair
	if err := generation.Pairs(context.Background(), m, func() (generation.Prompt, error) {
		p, err := next()
		pair := &datasets.Pair{ID: p.ID, PromptIDs: p.IDs}
		p.Done = func(response []int32) error {
			pair.ResponseIDs = response
			return nil
		}
		if err == nil {
			pairs = append(pairs, pair)
		}
		return p, err
	}, opt); err != nil {
		t.Fatal(err)
	}
	return listing.Map(pairs, func(p *datasets.Pair) datasets.Pair { return *p })
}

// TestResponsesDoNotDependOnCompany: threads, and where a run was taken up, change no
// response; greedy ones are those of decoding one by one.
func TestResponsesDoNotDependOnCompany(t *testing.T) {
	m := shallow(t)
	for _, temperature := range []float64{0, 0.8} {
		opt := generation.Options{MaxNew: 12, Sampling: model.Sampling{Temperature: temperature, Seed: 3}}
		want := run(t, m, prompts(t, 0, 30, 64), opt)
		if len(want) != 30 {
			t.Fatalf("%d pairs", len(want))
		}
		previous := parallel.SetThreads(1)
		got := run(t, m, prompts(t, 0, 30, 64), opt)
		parallel.SetThreads(previous)
		if !reflect.DeepEqual(got, want) {
			t.Error("one thread gives other pairs, or another order")
		}
		if got := run(t, m, prompts(t, 11, 30, 64), opt); !reflect.DeepEqual(got, want[11:]) {
			t.Error("a run that begins at prompt 11 gives other pairs")
		}
		if temperature > 0 {
			continue
		}
		r := runner.New(m)
		for _, p := range want {
			cache := kvcache.New(m)
			logits, err := r.Forward(context.Background(), cache, p.PromptIDs, runner.PrefillOptions{})
			if err != nil {
				t.Fatal(err)
			}
			one, err := r.Respond(context.Background(), cache, logits, runner.GenerateOptions{MaxNew: 12})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(one, p.ResponseIDs) {
				t.Errorf("%s: response %v, decoded alone %v", p.ID, p.ResponseIDs, one)
			}
		}
	}
}

// TestStops: errors of the source, of who takes responses and of the context end the run with their
// cause.
func TestStops(t *testing.T) {
	m := shallow(t)
	broken := errors.New("broken")
	count := 0
	giving := func(next func() (generation.Prompt, error), done error) func() (generation.Prompt, error) {
		return func() (generation.Prompt, error) {
			p, err := next()
			p.Done = func([]int32) error { return done }
			return p, err
		}
	}
	source := prompts(t, 0, 1000, 64)
	err := generation.Pairs(context.Background(), m, giving(func() (generation.Prompt, error) {
		if count++; count > 9 {
			return generation.Prompt{}, broken
		}
		return source()
	}, nil), generation.Options{MaxNew: 4})
	if !errors.Is(err, broken) {
		t.Errorf("error %v, want that of the source", err)
	}
	if err := generation.Pairs(context.Background(), m, giving(prompts(t, 0, 50, 64), broken), generation.Options{MaxNew: 4}); !errors.Is(err, broken) {
		t.Errorf("error %v, want that of who takes responses", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := generation.Pairs(ctx, m, giving(prompts(t, 0, 1<<30, 64), nil), generation.Options{MaxNew: 4}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want that of the context", err)
	}
	long := func() (generation.Prompt, error) { return generation.Prompt{ID: "long", IDs: make([]int32, 5000)}, nil }
	if err := generation.Pairs(context.Background(), m, long, generation.Options{MaxNew: 4}); !errors.Is(err, model.ErrContext) {
		t.Errorf("error %v, want ErrContext", err)
	}
}

// TestRecipes: LookaheadKV, arXiv:2603.10899, §4.1 and Judge Q, arXiv:2509.10798, appendix A.1, on the built-in
// model's words.
func TestRecipes(t *testing.T) {
	m := shallow(t)
	look, err := generation.Recipes.Lookup("lookaheadkv")
	if err != nil {
		t.Fatal(err)
	}
	judge, err := generation.Recipes.Lookup("judgeq")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	ids := make([]int32, 100)
	for i := range ids {
		ids[i] = int32(10 + i)
	}
	item, err := judge.Prepare(t.Context(), m, datasets.Prompt{Form: datasets.FormIDs, IDs: ids}, generation.Limits{MaxPrompt: 1000}, rng)
	if err != nil || !slices.Equal(item.IDs, ids[:90]) || !slices.Equal(item.Source, ids[90:]) {
		t.Errorf("judgeq: %v, prompt of %d tokens, source of %d: want the first 90 and the last 10 of 100", err, len(item.IDs), len(item.Source))
	}
	lengths := make(map[int]bool)
	for range 300 {
		n := judge.Cut(8, rng)
		if n < 1 || n > 8 {
			t.Fatalf("judgeq keeps %d of 8 response tokens", n)
		}
		lengths[n] = true
	}
	if len(lengths) != 8 || judge.Cut(0, rng) != 0 || look.Cut(8, rng) != 8 {
		t.Errorf("judgeq keeps %v of 8, lookaheadkv %d of 8", lengths, look.Cut(8, rng))
	}
	if _, err := look.Prepare(t.Context(), m, datasets.Prompt{Form: datasets.FormIDs, IDs: ids}, generation.Limits{MaxPrompt: 99}, rng); !errors.Is(err, generation.ErrUnusable) {
		t.Errorf("a prompt above the limit: %v, want ErrUnusable", err)
	}
	if _, err := look.Prepare(t.Context(), m, datasets.Prompt{Form: datasets.FormMessages, Messages: []datasets.Message{{Role: "assistant", Content: "x"}}}, generation.Limits{MaxPrompt: 99}, rng); !errors.Is(err, generation.ErrUnusable) {
		t.Errorf("nothing but an answer: %v, want ErrUnusable", err)
	}
	words := datasets.Vocabulary()
	text := ""
	for i := range 40 {
		text += words[100+i] + " "
	}
	whole, err := m.Encode(text)
	if err != nil {
		t.Fatal(err)
	}
	cuts := make(map[int]bool)
	for range 200 {
		item, err := look.Prepare(t.Context(), m, datasets.Prompt{Form: datasets.FormText, Text: text}, generation.Limits{MaxPrompt: 20}, rng)
		if err != nil {
			t.Fatal(err)
		}
		n := len(item.IDs)
		if n < 1 || n > 20 || !slices.Equal(append(slices.Clone(item.IDs), item.Source...), whole) {
			t.Fatalf("text cut into %d and %d tokens, want 1 to 20 and the rest of %d", n, len(item.Source), len(whole))
		}
		cuts[n] = true
	}
	if len(cuts) < 18 {
		t.Errorf("texts are cut at %d places of 20", len(cuts))
	}
}

// BenchmarkGenerate is the throughput of generation on the built-in model: prefills,
// decoding and all. Batch 8 is to be at least 3 times batch 1.
func BenchmarkGenerate(b *testing.B) {
	m := shallow(b)
	m.Config.EOS = nil // responses of a fixed length
	const prompt, response, samples = 48, 128, 64
	for _, batch := range []int{1, 8} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			for b.Loop() {
				if n := len(run(b, m, prompts(b, 0, samples, prompt), generation.Options{MaxNew: response, Batch: batch})); n != samples {
					b.Fatalf("%d pairs", n)
				}
			}
			b.ReportMetric(float64(b.N*samples*response)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
