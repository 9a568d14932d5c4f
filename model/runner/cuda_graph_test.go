//go:build gpu && linux && (amd64 || arm64)

package runner_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// decoded is what a decoding left behind.
type decoded struct {
	logits [][]float32
	pairs  [][]float64
	seen   []int // layers, in the order of the observations
	calls  int64 // of the driver, by the last few steps together
}

const lastSteps = 4

// decode runs prompt and then steps on two caches in turn, with evictions and drops on
// the way.
func decode(t *testing.T, m *model.Model, prompt []int32, steps int) (d decoded) {
	t.Helper()
	calls := func() int64 { return modeltest.Calls(m.Backend) }
	r := runner.New(m)
	caches := []*kvcache.Cache{kvcache.New(m), kvcache.New(m)}
	var tokens []int32
	for i, cache := range caches {
		logits, err := r.Prefill(background, cache, prompt[i:], runner.PrefillOptions{})
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, argmax(logits))
	}
	observe := func(o *runner.Observation) error {
		d.seen = append(d.seen, o.Layer)
		if o.Layer == 1 && o.Cache.Next()%5 == 0 { // as a policy that evicts while decoding
			var keep [][]int32
			for h := range o.Cache.KVHeads() {
				idx := make([]int32, 0, o.Cache.Entries(1, h))
				for j := range o.Cache.Entries(1, h) - h {
					idx = append(idx, int32(j))
				}
				keep = append(keep, idx)
			}
			return o.Cache.Retain(1, keep)
		}
		return nil
	}
	for i := range steps {
		which := 0
		if i%7 == 3 {
			which = 1
		}
		cache := caches[which]
		switch i {
		case 6: // heads that keep different entries
			for l := range m.Config.Layers {
				var keep [][]int32
				for h := range m.Config.KVHeads {
					var idx []int32
					for j := range cache.Entries(l, h) {
						if (j+h+l)%3 != 0 {
							idx = append(idx, int32(j))
						}
					}
					keep = append(keep, idx)
				}
				if err := cache.Retain(l, keep); err != nil {
					t.Fatal(err)
				}
			}
		case 9:
			if err := cache.Truncate(cache.Next() - 2); err != nil {
				t.Fatal(err)
			}
		case steps - lastSteps - 2:
			for _, c := range caches {
				runner.Reserve(c, lastSteps+4)
			}
		}
		if i == steps-lastSteps {
			d.calls = -calls()
		}
		var observer runner.Observer
		if i < steps-lastSteps-2 {
			observer = observe
		}
		logits, err := r.Step(context.Background(), cache, tokens[which], runner.Capture{}, observer)
		if err != nil {
			t.Fatal(err)
		}
		d.logits, tokens[which] = append(d.logits, logits), argmax(logits)
	}
	d.calls += calls()
	for _, cache := range caches {
		for l := range m.Config.Layers {
			for _, kv := range cache.View(l) {
				d.pairs = append(d.pairs, kv.K.Float64s(), kv.V.Float64s())
			}
		}
	}
	return d
}

// TestCUDAReplayedSteps: decoding steps that are replayed have the bits of those that
// are launched one operation after another, in every family, with caches of either
// type, through evictions and changes of the cache; and a token takes a few calls of
// the driver.
func TestCUDAReplayedSteps(t *testing.T) {
	modeltest.NeedCUDA(t)
	for i, g := range modeltest.Goldens(t) {
		for _, dtype := range []string{"float32", "bf16"} {
			if slices.Contains(modeltest.OnProcessorsAlone, g.Name) || slices.Contains([]string{"gemma4", "gemma4-moe", "gemma4-unified", "llama2", "longchat", "mistral-v0.3", "qwen2", "qwen2-yarn"}, g.Name) ||
				(dtype == "bf16") != (i%2 == 0) && g.Name != "llama3.1" && g.Name != "mistral-window" {
				continue // as others, or not recorded, where layers have other KV heads or experts scales; every launch takes its time here
			}
			t.Run(g.Name+"/"+dtype, func(t *testing.T) {
				m := modeltest.OpenFolder(t, rounded(t, g.Folder), "cuda")
				if err := m.SetCacheDType(dtype); err != nil {
					t.Fatal(err)
				}
				const steps = 20
				prompt := g.Prompts[len(g.Prompts)-1].IDs
				prompt = prompt[:min(len(prompt), 40)]
				got := decode(t, m, prompt, steps)
				t.Setenv("GLIMPSE_CUDA_GRAPHS", "0")
				want := decode(t, m, prompt, steps)
				for i := range want.logits {
					compare.Close(t, fmt.Sprintf("step %d: logits", i), got.logits[i], want.logits[i], 0)
				}
				for i := range want.pairs {
					compare.Close(t, fmt.Sprintf("pairs %d", i), got.pairs[i], want.pairs[i], 0)
				}
				if !slices.Equal(got.seen, want.seen) {
					t.Errorf("observed layers %v, want %v", got.seen, want.seen)
				}
				t.Logf("%.1f calls of the driver per token, %.1f without graphs", float64(got.calls)/lastSteps, float64(want.calls)/lastSteps)
				// The token, the graph and the logits, and one new table for the other cache.
				if got.calls > 3*lastSteps+4 || want.calls < 10*got.calls/2 {
					t.Errorf("%d calls of the driver for %d tokens, %d without graphs", got.calls, lastSteps, want.calls)
				}
			})
		}
	}
}

// TestCUDAGeneratesTheSame: responses with sampling, with and without graphs, over
// more tokens than one cut of the attention and one table of angles serve.
func TestCUDAGeneratesTheSame(t *testing.T) {
	modeltest.NeedCUDA(t)
	m := modeltest.Llama{Hidden: 16, Heads: 2, KVHeads: 1, HeadDim: 8, Intermediate: 16, Layers: 1, MaxPositions: 2048, Seed: 3}.Open(t, "cuda")
	respond := func(prompt int) (logits [][]float32, response []int32) {
		r, cache, l := start(t, m, modeltest.Tokens(m, 1, prompt))
		again := kvcache.New(r.Model)
		if _, err := r.Prefill(background, again, modeltest.Tokens(m, 1, prompt), runner.PrefillOptions{}); err != nil {
			t.Fatal(err)
		}
		if prompt > 1000 { // a table of angles ends where no cut does
			half := make([]int32, prompt/2)
			for i := range half {
				half[i] = int32(2 * i)
			}
			if err := errors.Join(cache.Retain(0, [][]int32{half}), again.Retain(0, [][]int32{half})); err != nil {
				t.Fatal(err)
			}
		}
		response, _, err := r.Continue(background, cache, runner.HostLogits(l), runner.GenerateOptions{MaxNew: 9, IgnoreEnd: true, Sampling: model.Sampling{Temperature: 1, Seed: 4}})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range response {
			l, err := r.Step(background, again, id, runner.Capture{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			logits = append(logits, l)
		}
		return logits, response
	}
	for _, prompt := range []int{252, 1019} {
		t.Setenv("GLIMPSE_CUDA_GRAPHS", "")
		logits, response := respond(prompt)
		t.Setenv("GLIMPSE_CUDA_GRAPHS", "0")
		wantLogits, wantResponse := respond(prompt)
		if !slices.Equal(response, wantResponse) {
			t.Errorf("prompt of %d tokens: response %v, without graphs %v", prompt, response, wantResponse)
		}
		for i, want := range wantLogits {
			compare.Close(t, fmt.Sprintf("prompt of %d tokens: logits %d", prompt, i), logits[i], want, 0)
		}
	}
}

// TestCUDAReplayedBatches: steps of several sequences, of which some end and others
// take their place, have the bits of those without graphs.
func TestCUDAReplayedBatches(t *testing.T) {
	for _, name := range []string{"mistral-window", "qwen3-moe", "qwen2-moe"} {
		t.Run(name, func(t *testing.T) { replayedBatches(t, name) })
	}
}

func replayedBatches(t *testing.T, name string) {
	modeltest.NeedCUDA(t)
	m := modeltest.OpenFolder(t, rounded(t, modeltest.GoldenNamed(t, name).Folder), "cuda")
	if err := m.SetCacheDType("bf16"); err != nil {
		t.Fatal(err)
	}
	calls := func() int64 { return modeltest.Calls(m.Backend) }
	run := func() (logits [][]float32, used int64) {
		r := runner.New(m)
		var caches []*kvcache.Cache
		var tokens []int32
		add := func(n int) {
			cache := kvcache.New(m)
			l, err := r.Prefill(background, cache, modeltest.Tokens(m, uint64(n), n), runner.PrefillOptions{})
			if err != nil {
				t.Fatal(err)
			}
			caches, tokens = append(caches, cache), append(tokens, argmax(l))
		}
		for n := range 3 {
			add(5 + 6*n)
		}
		for step := range 12 {
			switch step {
			case 3: // one ends, and the others move up
				caches, tokens = slices.Delete(caches, 1, 2), slices.Delete(tokens, 1, 2)
			case 5:
				add(9)
				add(2)
			case 9:
				caches, tokens = caches[1:2], tokens[1:2]
			}
			for _, c := range caches {
				runner.Reserve(c, 1)
			}
			used -= calls()
			got, err := r.StepBatch(background, caches, tokens, 4)
			if err != nil {
				t.Fatal(err)
			}
			used += calls()
			for i := range got {
				logits, tokens[i] = append(logits, got[i]), argmax(got[i])
			}
		}
		return logits, used
	}
	got, with := run()
	t.Setenv("GLIMPSE_CUDA_GRAPHS", "0")
	want, without := run()
	for i := range want {
		compare.Close(t, fmt.Sprintf("logits %d", i), got[i], want[i], 0)
	}
	t.Logf("%d calls of the driver, %d without graphs", with, without)
	if with*5 > without {
		t.Errorf("%d calls of the driver, %d without graphs", with, without)
	}
}
