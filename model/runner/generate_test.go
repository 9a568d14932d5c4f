package runner_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

var background = context.Background()

// start runs a prompt on a new cache.
func start(t testing.TB, m *model.Model, prompt []int32) (*runner.Runner, *kvcache.Cache, []float32) {
	t.Helper()
	r, cache := runner.New(m), kvcache.New(m)
	logits, err := r.Prefill(background, cache, prompt, runner.PrefillOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r, cache, logits
}

func argmax(x []float32) int32 {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return int32(best)
}

// TestGreedyIsRepeatedPrefill: a greedy response against the argmax of a new
// prefill of everything so far.
func TestGreedyIsRepeatedPrefill(t *testing.T) {
	for _, device := range devices {
		m := modeltest.Llama{Seed: 3}.Open(t, device)
		prompt := modeltest.Tokens(m, 1, 20)
		r, cache, logits := start(t, m, prompt)
		got, ended, err := r.Continue(background, cache, runner.HostLogits(logits), runner.GenerateOptions{MaxNew: 30, IgnoreEnd: true})
		if err != nil || ended || len(got) != 30 {
			t.Fatalf("%s: %d tokens, ended %v, %v", device, len(got), ended, err)
		}
		all := slices.Clone(prompt)
		for i, id := range got {
			_, _, l := start(t, m, all)
			if want := argmax(l); id != want {
				t.Fatalf("%s: token %d is %d, want %d", device, i, id, want)
			}
			all = append(all, id)
		}
		if want := int32(len(all) - 1); cache.Next() != want {
			t.Errorf("%s: the cache ends at %d, want %d: the last token is not run", device, cache.Next(), want)
		}
	}
}

func TestGenerateStops(t *testing.T) {
	m := modeltest.Llama{Seed: 3}.Open(t, "reference64")
	prompt := modeltest.Tokens(m, 1, 20)
	generate := func(opt runner.GenerateOptions) ([]int32, bool, *kvcache.Cache, error) {
		r, cache, logits := start(t, m, prompt)
		out, ended, err := r.Continue(background, cache, runner.HostLogits(logits), opt)
		return out, ended, cache, err
	}
	plain, _, _, err := generate(runner.GenerateOptions{MaxNew: 12, IgnoreEnd: true})
	if err != nil {
		t.Fatal(err)
	}
	cut := slices.IndexFunc(plain, func(id int32) bool { return id != plain[0] })
	if cut < 0 {
		t.Fatal("the response is one token repeated: the test needs another model")
	}
	end := plain[cut]

	t.Run("end token", func(t *testing.T) {
		defer func(before []int32) { m.Config.EOS = before }(m.Config.EOS)
		m.Config.EOS = []int32{39, end} // any of several
		if slices.Contains(plain[:cut], 39) {
			t.Fatal("the test needs another end token")
		}
		var seen []int32
		got, ended, cache, err := generate(runner.GenerateOptions{MaxNew: 12, OnToken: func(id int32) error { seen = append(seen, id); return nil }})
		if err != nil || !ended || !slices.Equal(got, plain[:cut]) || !slices.Equal(seen, got) {
			t.Errorf("got %v (told of %v), ended %v, %v, want %v and the end", got, seen, ended, err, plain[:cut])
		}
		if want := int32(len(prompt) + cut); cache.Next() != want {
			t.Errorf("cache at %d, want %d", cache.Next(), want)
		}
		got, ended, _, _ = generate(runner.GenerateOptions{MaxNew: 12, IgnoreEnd: true})
		if ended || !slices.Equal(got, plain) {
			t.Errorf("IgnoreEnd: got %v, ended %v", got, ended)
		}
		got, ended, _, _ = generate(runner.GenerateOptions{MaxNew: cut})
		if ended || !slices.Equal(got, plain[:cut]) {
			t.Errorf("MaxNew right before the end token: got %v, ended %v", got, ended)
		}
	})
	t.Run("MaxNew", func(t *testing.T) {
		for _, n := range []int{-1, 0, 1, 5} {
			steps := 0
			got, ended, cache, err := generate(runner.GenerateOptions{MaxNew: n, IgnoreEnd: true, AfterStep: func() error { steps++; return nil }})
			if err != nil || ended || !slices.Equal(got, plain[:max(0, n)]) {
				t.Errorf("MaxNew %d: got %v, ended %v, %v", n, got, ended, err)
			}
			if want := max(0, n-1); steps != want || int(cache.Next()) != len(prompt)+want {
				t.Errorf("MaxNew %d: %d steps to position %d, want %d steps", n, steps, cache.Next(), want)
			}
		}
	})
	stop := errors.New("the reader went away")
	t.Run("OnToken", func(t *testing.T) {
		n := 0
		got, ended, _, err := generate(runner.GenerateOptions{MaxNew: 12, IgnoreEnd: true, OnToken: func(int32) error {
			if n++; n == 4 {
				return stop
			}
			return nil
		}})
		if !errors.Is(err, stop) || ended || !slices.Equal(got, plain[:4]) {
			t.Errorf("got %v, ended %v, %v, want 4 tokens and the error", got, ended, err)
		}
	})
	t.Run("AfterStep", func(t *testing.T) {
		got, _, cache, err := generate(runner.GenerateOptions{MaxNew: 12, IgnoreEnd: true, AfterStep: func() error { return stop }})
		if !errors.Is(err, stop) || !slices.Equal(got, plain[:1]) || int(cache.Next()) != len(prompt)+1 {
			t.Errorf("got %v, cache at %d, %v", got, cache.Next(), err)
		}
	})
	t.Run("observer", func(t *testing.T) {
		layers := 0
		_, _, _, err := generate(runner.GenerateOptions{
			MaxNew: 5, IgnoreEnd: true, Capture: runner.Capture{Windows: []int{1}, Queries: true},
			Observe: func(o *runner.Observation) error {
				layers++
				if o.Queries[0].Dim0() != 1 || o.Keys.Dim0() != 1 || o.Windows[0].Width() != o.Cache.Entries(o.Layer, 0) {
					t.Errorf("layer %d: queries %v, keys %v, window %v", o.Layer, o.Queries[0].Shape, o.Keys.Shape, o.Windows[0].Shape)
				}
				return nil
			},
		})
		if err != nil || layers != 4*m.Config.Layers {
			t.Errorf("%d layers observed, %v, want those of 4 steps", layers, err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		r, cache, logits := start(t, m, prompt)
		ctx, cancel := context.WithCancel(background)
		n := 0
		got, ended, err := r.Continue(ctx, cache, runner.HostLogits(logits), runner.GenerateOptions{MaxNew: 12, IgnoreEnd: true, OnToken: func(int32) error {
			if n++; n == 3 {
				cancel()
			}
			return nil
		}})
		if !errors.Is(err, context.Canceled) || ended || !slices.Equal(got, plain[:3]) {
			t.Errorf("got %v, ended %v, %v", got, ended, err)
		}
	})
	t.Run("sampling is checked", func(t *testing.T) {
		if _, _, _, err := generate(runner.GenerateOptions{MaxNew: 2, Sampling: model.Sampling{Temperature: -1}}); err == nil {
			t.Error("a negative temperature is accepted")
		}
	})
	t.Run("seeds", func(t *testing.T) {
		sample := func(seed uint64) []int32 {
			out, _, _, err := generate(runner.GenerateOptions{MaxNew: 12, IgnoreEnd: true, Sampling: model.Sampling{Temperature: 2, TopP: 0.95, TopK: 30, Seed: seed}})
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		if !slices.Equal(sample(1), sample(1)) || slices.Equal(sample(1), sample(2)) {
			t.Error("a response does not follow its seed")
		}
	})
}

// TestGenerateAtTheContextLimit: the last position is used, the one after it is
// ErrContext, and what was generated until then is returned.
func TestGenerateAtTheContextLimit(t *testing.T) {
	m := modeltest.Llama{MaxPositions: 24}.Open(t, "cpu")
	prompt := modeltest.Tokens(m, 1, 20)
	for maxNew, want := range map[int]int{5: 5, 6: 5, 100: 5} { // 4 tokens are run, the last is not
		r, cache, logits := start(t, m, prompt)
		got, ended, err := r.Continue(background, cache, runner.HostLogits(logits), runner.GenerateOptions{MaxNew: maxNew, IgnoreEnd: true})
		if len(got) != want || ended || errors.Is(err, model.ErrContext) != (maxNew > 5) || cache.Next() != 24 {
			t.Errorf("MaxNew %d: %d tokens, cache at %d, %v", maxNew, len(got), cache.Next(), err)
		}
		if maxNew == 5 && err != nil {
			t.Error(err)
		}
	}
}
