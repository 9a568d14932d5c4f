package eviction_test

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// samePairs compares what two caches hold, to the bit.
func samePairs(a, b *kvcache.Cache) bool {
	for l := range a.Layers() {
		for h := range a.KVHeads() {
			x, y := a.View(l)[h], b.View(l)[h]
			if !slices.Equal(a.Positions(l, h), b.Positions(l, h)) ||
				!slices.Equal(x.K.Float64s(), y.K.Float64s()) || !slices.Equal(x.V.Float64s(), y.V.Float64s()) {
				return false
			}
		}
	}
	return a.Next() == b.Next()
}

// TestForceIsGenerate: a policy's own response, forced, has the probabilities with which it
// was generated and leaves the session as generating it does: cache, traffic and the
// answer to the next turn are equal to the bit. TestDecodingAgainstNaive has judged them.
func TestForceIsGenerate(t *testing.T) {
	everyPolicy(t, "cpu", func(t *testing.T, m *model.Model, p *eviction.Configured) {
		const n, budget, length = 60, 14, 12
		generated, forced := prefill(t, m, p, modeltest.Tokens(m, 4, n), budget), prefill(t, m, p, modeltest.Tokens(m, 4, n), budget)
		for turn := range 2 {
			var want []float64
			opt := runner.GenerateOptions{
				MaxNew: length, IgnoreEnd: true, Sampling: model.Sampling{Temperature: 1, Seed: 3},
				OnLogProb: func(_ int32, p float64, _ []runner.LogProb) { want = append(want, p) },
			}
			response, _, err := generated.Generate(background, opt)
			if err != nil {
				t.Fatal(err)
			}
			got, err := forced.Force(background, response)
			if err != nil || len(got) != length || !slices.Equal(got, want) {
				t.Fatalf("turn %d: log-probabilities %v, %v, want %v", turn, got, err, want)
			}
			if !samePairs(generated.Cache, forced.Cache) || generated.Traffic != forced.Traffic || generated.Bytes() != forced.Bytes() {
				t.Fatalf("turn %d: traffic %+v and %+v, bytes %d and %d, or other pairs", turn, generated.Traffic, forced.Traffic, generated.Bytes(), forced.Bytes())
			}
			if _, err := forced.Force(background, response); err == nil {
				t.Error("a prompt is answered twice")
			}
			next := modeltest.Tokens(m, 5, 9)
			if err := errors.Join(generated.Turn(background, eviction.Prompt{Tokens: next, Response: response}), forced.Turn(background, eviction.Prompt{Tokens: next, Response: response})); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(generated.Logits(), forced.Logits()) {
				t.Fatalf("turn %d: the next prompt's logits differ", turn)
			}
		}
	})
}

// TestForceRefuses: what cannot run leaves the prompt to be answered.
func TestForceRefuses(t *testing.T) {
	m := modeltest.Llama{MaxPositions: 50}.Open(t, "cpu")
	s := prefill(t, m, policy(t, m, "h2o"), modeltest.Tokens(m, 4, 40), 12)
	if got, err := s.Force(background, make([]int32, 12)); !errors.Is(err, model.ErrContext) || len(got) > 0 {
		t.Errorf("12 tokens after 40 of 50: %v, %v", got, err)
	}
	if got, err := s.Force(background, []int32{3, 40}); err == nil || len(got) > 0 {
		t.Errorf("a foreign id: %v, %v", got, err)
	}
	if _, _, err := s.Generate(background, runner.GenerateOptions{MaxNew: 3, Sampling: model.Sampling{Temperature: -1}}); err == nil {
		t.Error("a negative temperature is accepted")
	}
	if got, err := s.Force(background, make([]int32, 11)); err != nil || len(got) != 11 {
		t.Errorf("11 tokens: %v, %v", got, err)
	}
	for i, p := range []int{0, 1} { // no answer, and one that is one token
		s := prefill(t, m, policy(t, m, "h2o"), modeltest.Tokens(m, 4, 30), 12)
		got, err := s.Force(background, make([]int32, p))
		if err != nil || len(got) != p || s.Cache.Next() != 30 {
			t.Errorf("%d tokens: %v, %v, cache at %d", p, got, err, s.Cache.Next())
		}
		if err := s.Turn(background, eviction.Prompt{Tokens: []int32{5, 6}}); err != nil || int(s.Cache.Next()) != 32+i {
			t.Errorf("%d tokens: the next turn ends at %d, %v", p, s.Cache.Next(), err)
		}
	}
}

// TestForcedTextOfBoundedMemory: thousands of forced tokens take no more memory than their
// log-probabilities and the history, 12 bytes a token, beside what the policy keeps.
func TestForcedTextOfBoundedMemory(t *testing.T) {
	const prompt, budget, length = 24, 16, 3000
	m := modeltest.Llama{}.Open(t, "cpu")
	text := modeltest.Tokens(m, 6, length)
	for _, name := range modeltest.Some(t, []string{"streamingllm", "h2o", "tova", "roco", "d2o", "cam"}) {
		s := prefill(t, m, policy(t, m, name), modeltest.Tokens(m, 4, prompt), budget)
		held, heap := s.Bytes(), heapAfter(func() {})
		var logProbs []float64
		grown := heapAfter(func() {
			var err error
			if logProbs, err = s.Force(background, text); err != nil {
				t.Fatal(err)
			}
		}) - heap
		if len(logProbs) != length || slices.ContainsFunc(logProbs, func(p float64) bool { return !(p <= 0) || math.IsInf(p, 0) }) {
			t.Errorf("%s: %d log-probabilities, want %d finite ones below 0", name, len(logProbs), length)
		}
		for l := range s.Cache.Layers() {
			if n := s.Cache.Entries(l, 0); n > 2*budget {
				t.Errorf("%s: layer %d holds %d entries", name, l, n)
			}
		}
		if s.Bytes() > held+int64(spare*m.Config.Layers*m.Config.KVHeads)*entryBytes(m) {
			t.Errorf("%s: holds %d bytes, %d before", name, s.Bytes(), held)
		}
		// 12 bytes a token, lists that have grown by doubling, and scratch memory.
		if limit := int64(12*length*2 + 32<<10); grown > limit {
			t.Errorf("%s: the heap has grown by %d bytes, want at most %d", name, grown, limit)
		}
		runtime.KeepAlive(s)
	}
}

// heapAfter is the memory in use after f.
func heapAfter(f func()) int64 {
	f()
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
