//go:build gpu && linux && amd64

package eviction_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/internal/compare"
	"glimpse/model"
	"glimpse/model/modeltest"
)

// talked is what a conversation left behind.
type talked struct {
	tokens    []int32
	positions [][]int32
	pairs     [][]float64
	choices   [][][][]int32 // by step, layer and head
	traffic   []eviction.Traffic
	calls     int64 // of the driver, by the last turn
}

// talk is a conversation of some turns, with the cache changed by hand in between.
func talk(t *testing.T, m *model.Model, p *eviction.Named, budget int, turns [][2]int) (out talked) {
	t.Helper()
	calls := m.Backend.(interface{ Calls() int64 }).Calls
	s, err := eviction.NewRuntime(m).NewSession(p, budget)
	if err != nil {
		t.Fatal(err)
	}
	for i, turn := range turns {
		if err := s.Turn(background, modeltest.Tokens(m, uint64(i+3), turn[0]), nil); err != nil {
			t.Fatal(err)
		}
		log := eviction.LogChoices(s)
		opt := model.GenerateOptions{MaxNew: turn[1], IgnoreEnd: true, Sampling: model.Sampling{Temperature: 1.5, Seed: uint64(i)}}
		if log != nil {
			opt.AfterStep = func() error { out.choices = append(out.choices, log.Choices()); return nil }
		}
		out.calls = -calls()
		tokens, _, err := s.Generate(background, opt)
		if err != nil {
			t.Fatal(err)
		}
		out.calls += calls()
		out.tokens, out.traffic = append(out.tokens, tokens...), append(out.traffic, s.Traffic)
	}
	for l := range m.Config.Layers {
		for h, kv := range s.Cache.View(l) {
			out.positions = append(out.positions, slices.Clone(s.Cache.Positions(l, h)))
			out.pairs = append(out.pairs, kv.K.Float64s(), kv.V.Float64s())
		}
	}
	return out
}

func sameTalk(t *testing.T, name string, got, want talked) (heads int) {
	t.Helper()
	if !slices.Equal(got.tokens, want.tokens) {
		t.Errorf("%s: tokens %v, unrecorded %v", name, got.tokens, want.tokens)
	}
	if !reflect.DeepEqual(got.positions, want.positions) {
		t.Errorf("%s: positions %v, unrecorded %v", name, got.positions, want.positions)
	}
	if !reflect.DeepEqual(got.traffic, want.traffic) {
		t.Errorf("%s: traffic %+v, unrecorded %+v", name, got.traffic, want.traffic)
	}
	for i := range want.pairs {
		compare.Close(t, fmt.Sprintf("%s: pairs %d", name, i), got.pairs[i], want.pairs[i], 0)
	}
	if len(got.choices) != len(want.choices) {
		t.Fatalf("%s: choices of %d steps, unrecorded %d", name, len(got.choices), len(want.choices))
	}
	for i, layers := range want.choices {
		for l, w := range layers {
			heads += len(w)
			if !reflect.DeepEqual(got.choices[i][l], w) {
				t.Errorf("%s: step %d layer %d chooses %v, unrecorded %v", name, i, l, got.choices[i][l], w)
			}
		}
	}
	return heads
}

// TestCUDARecordedSteps: under every policy the tokens, positions, choices, bytes read,
// keys and values of a conversation have the same bits whether its steps are recorded or
// not, with caches of either type and sliding windows.
func TestCUDARecordedSteps(t *testing.T) {
	needCUDA(t)
	names := append(eviction.Policies.Names(), "snapkv:exact-topk", "snapkv:quest", "knorm:sparq", "snapkv:hsa")
	heads := 0
	for i, name := range names {
		for _, window := range []int{0, 40} {
			m := modeltest.Llama{Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 8, Seed: 5}.Open(t, "cuda")
			dtype := "float32"
			if (window > 0) == (i%2 == 0) {
				dtype = "bf16"
			}
			if err := m.SetCacheDType(dtype); err != nil {
				t.Fatal(err)
			}
			if window > 0 {
				m.Config.Windows = []int{window, 0}
			}
			at := fmt.Sprintf("%s/window=%d/%s", name, window, dtype)
			turns := [][2]int{{50, 9}, {12, 8}}
			t.Setenv("GLIMPSE_CUDA_GRAPHS", "")
			got := talk(t, m, policy(t, m, name), 20, turns)
			t.Setenv("GLIMPSE_CUDA_GRAPHS", "0")
			want := talk(t, m, policy(t, m, name), 20, turns)
			heads += sameTalk(t, at, got, want)
			t.Logf("%s: %d calls of the driver for %d tokens, %d unrecorded", at, got.calls, turns[1][1]-1, want.calls)
		}
	}
	t.Logf("%d choices of heads", heads)
}
