//go:build gpu && linux && (amd64 || arm64)

package eviction_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"glimpse/eviction"
	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// talked is what a conversation left behind.
type talked struct {
	tokens    []int32
	positions [][]int32
	pairs     [][]float64
	choices   [][][][]int32 // by step, layer and head
	traffic   []eviction.Traffic
}

// talk is a conversation of some turns, with the cache changed by hand in between.
func talk(t *testing.T, m *model.Model, p *eviction.Configured, budget int, turns [][2]int) (out talked) {
	t.Helper()
	s, err := eviction.NewRuntime(m).NewSession(p, eviction.Pairs(budget))
	if err != nil {
		t.Fatal(err)
	}
	for i, turn := range turns {
		if err := s.Turn(background, eviction.Prompt{Tokens: modeltest.Tokens(m, uint64(i+3), turn[0]), MaxNew: mostNew(m, p)}); err != nil {
			t.Fatal(err)
		}
		log := eviction.LogChoices(s)
		opt := runner.GenerateOptions{MaxNew: turn[1], IgnoreEnd: true, Sampling: model.Sampling{Temperature: 1.5, Seed: uint64(i)}}
		if log != nil {
			opt.AfterStep = func() error { out.choices = append(out.choices, log.Choices()); return nil }
		}
		tokens, _, err := s.Generate(background, opt)
		if err != nil {
			t.Fatal(err)
		}
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

// decodes are the policies whose decoding steps evict, or read what they choose, and some
// compositions.
func decodes() (names []string) {
	for _, name := range eviction.Policies.Names() {
		if info, _ := eviction.Policies.Lookup(name); strings.Contains(info.Kind, "decode") {
			names = append(names, name)
		}
	}
	return append(names, "snapkv", "snapkv:exact-topk", "snapkv:quest", "knorm:sparq", "snapkv:hsa")
}

// pooledSteps are the policies that pool what their steps evict by.
var pooledSteps = []string{"h2o", "roco", "tova"}

// TestCUDARecordedSteps: under every policy the tokens, positions, choices, bytes read,
// keys and values of a conversation have the same bits whether its steps are recorded or
// not, with caches of either type and sliding windows.
func TestCUDARecordedSteps(t *testing.T) {
	needCUDA(t)
	heads := 0
	for i, name := range modeltest.Some(t, decodes()) {
		for _, window := range []int{0, 40} {
			if strings.Contains(name, ":") && (window > 0) != (i%2 == 0) {
				continue // their parts take both
			}
			m := modeltest.Llama{Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 8, Seed: 5}.Open(t, "cuda")
			dtype := "float32"
			if (window > 0) == (i%2 == 0) {
				dtype = "bf16"
			}
			if err := m.SetCacheDType(dtype); err != nil {
				t.Fatal(err)
			}
			if window > 0 {
				modeltest.SetWindows(m, window, 0)
			}
			turns := [][2]int{{50, 7}, {12, 6}}
			heads += bothWays(t, fmt.Sprintf("%s/window=%d/%s", name, window, dtype), m, name, 20, turns)
			if slices.Contains(pooledSteps, name) {
				heads += bothWays(t, fmt.Sprintf("%s/window=%d/%s/kernel=5", name, window, dtype), m, name, 20, turns, name+".kernel=5")
			}
		}
	}
	t.Logf("%d choices of heads, 0 differ", heads)
}

// TestCUDARecordedBoundedSteps: the same of a model with a soft cap and sinks, whose steps attend, are observed and
// choose what they read by that attention; and such a session holds what it does on the processor.
func TestCUDARecordedBoundedSteps(t *testing.T) {
	needCUDA(t)
	open := func(device string) *model.Model {
		m := modeltest.Llama{Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 8, Seed: 5}.Open(t, device)
		modeltest.SetWindows(m, 40, 0)
		m.Config.AttentionCap, m.Config.LogitCap = 0.5, 2
		for l := range m.Network.Layers {
			sinks := m.Backend.Alloc(m.Backend.Compute(), 4)
			kernels.Convert(sinks, kernels.FromF64([]float64{1, -1, 2, float64(l)}, 4))
			m.Network.Layers[l].Sinks = sinks
		}
		return m
	}
	turns := [][2]int{{50, 7}, {12, 6}}
	for i, name := range []string{"snapkv", "h2o", "tova", "quest", "sparq", "rocketkv", "snapkv:exact-topk"} {
		m := open("cuda")
		if i%2 == 0 {
			if err := m.SetCacheDType("bf16"); err != nil {
				t.Fatal(err)
			}
			bothWays(t, name+"/bf16", m, name, 20, turns)
			continue
		}
		bothWays(t, name, m, name, 20, turns)
		host := open("cpu")
		got, want := talk(t, m, policy(t, m, name), 20, turns), talk(t, host, policy(t, host, name), 20, turns)
		if !slices.Equal(got.tokens, want.tokens) || !reflect.DeepEqual(got.positions, want.positions) {
			t.Errorf("%s: tokens %v at %v, on the processor %v at %v", name, got.tokens, got.positions, want.tokens, want.positions)
		}
		for j := range want.pairs {
			compare.Close(t, fmt.Sprintf("%s: pairs %d", name, j), got.pairs[j], want.pairs[j], 1e-4, compare.Floor(1))
		}
	}
}

func bothWays(t *testing.T, at string, m *model.Model, name string, budget int, turns [][2]int, set ...string) int {
	t.Helper()
	t.Setenv("GLIMPSE_CUDA_GRAPHS", "")
	got := talk(t, m, policy(t, m, name, set...), budget, turns)
	t.Setenv("GLIMPSE_CUDA_GRAPHS", "0")
	return sameTalk(t, at, got, talk(t, m, policy(t, m, name, set...), budget, turns))
}

// TestCUDARecordedBuckets: the same over more entries than one cut of the attention and
// one block of pages serve, and where a cache reaches its budget in the middle of an
// answer.
func TestCUDARecordedBuckets(t *testing.T) {
	needCUDA(t)
	if !modeltest.InArenas(t) {
		return
	}
	m := modeltest.Llama{Hidden: 16, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 8, Intermediate: 16, MaxPositions: 1024, Seed: 3}.Open(t, "cuda")
	heads := 0
	for _, c := range []struct {
		name           string
		budget, prompt int
	}{{"h2o", 255, 250}, {"tova", 20, 17}, {"h2o", 20, 17}, {"quest", 30, 251}, {"sparq", 240, 251}, {"rocketkv", 12, 505}, {"exact-topk", 250, 246}, {"hsa", 255, 249}} {
		heads += bothWays(t, fmt.Sprintf("%s of %d", c.name, c.budget), m, c.name, c.budget, [][2]int{{c.prompt, 12}, {3, 6}})
	}
	t.Logf("%d choices of heads, 0 differ", heads)
}

// TestCUDARecordedBatches: sessions under policies whose steps evict, choose or do neither share recorded steps: with the
// bits of those that are not recorded, while some end and others join, and with calls of the driver that don't grow
// with the layers.
func TestCUDARecordedBatches(t *testing.T) {
	needCUDA(t)
	if !modeltest.InArenas(t) {
		return
	}
	names := []string{"snapkv", "h2o", "quest", "streamingllm", "sparq", "h2o", "knorm", "tova", "h2o"}
	run := func(layers int) (tokens [][]int32, calls int64) {
		m := modeltest.Llama{Layers: layers, Heads: 4, KVHeads: 2, HeadDim: 8, Seed: 5}.Open(t, "cuda")
		var batch *runner.Batch
		var answers []*runner.Sequence
		join := func(i int) {
			p := policy(t, m, names[i%len(names)])
			rt := eviction.NewRuntime(m)
			if batch == nil {
				var err error
				if batch, err = runner.New(m).NewBatch(4); err != nil {
					t.Fatal(err)
				}
			}
			s, err := rt.NewSession(p, eviction.Pairs(20))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Turn(background, eviction.Prompt{Tokens: modeltest.Tokens(m, uint64(i), 30+5*i), MaxNew: mostNew(m, p)}); err != nil {
				t.Fatal(err)
			}
			for l := range s.Cache.Layers() {
				s.Cache.ReserveLayer(l, 24, 1)
			}
			a, err := s.Join(batch, runner.GenerateOptions{MaxNew: 24 - i, IgnoreEnd: true, Sampling: model.Sampling{Temperature: 1, Seed: uint64(i)}})
			if err != nil {
				t.Fatal(err)
			}
			answers = append(answers, a)
		}
		for step := 0; step == 0 || batch.Len() > 0; step++ {
			for next := len(answers); next < len(names) && (next < 3 || step > 4*(next-2)) && (batch == nil || batch.Room() > 0); next++ {
				join(next)
			}
			before := modeltest.Calls(m.Backend)
			ended, err := batch.Step(background)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range ended {
				if a.Err() != nil {
					t.Fatal(a.Err())
				}
			}
			if step > 0 { // the first one is not recorded
				calls += modeltest.Calls(m.Backend) - before
			}
		}
		for _, a := range answers {
			tokens = append(tokens, a.Tokens())
		}
		return tokens, calls
	}
	got, calls := run(2)
	_, deep := run(5)
	t.Setenv("GLIMPSE_CUDA_GRAPHS", "0")
	want, unrecorded := run(2)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("answers %v, unrecorded %v", got, want)
	}
	t.Logf("%d calls of the driver, of 5 layers %d, unrecorded %d", calls, deep, unrecorded)
	if calls*2 > unrecorded || 10*deep > 12*calls {
		t.Errorf("%d calls of the driver, of 5 layers %d, unrecorded %d", calls, deep, unrecorded)
	}
}

// TestCUDACallsPerToken counts what a token costs in calls of the driver while an answer
// goes on, which is the same for any number of layers and within modeltest.LaunchBudget.
func TestCUDACallsPerToken(t *testing.T) {
	needCUDA(t)
	if !modeltest.InArenas(t) {
		return
	}
	for name, most := range modeltest.LaunchBudget.Token {
		var calls []int64
		for _, layers := range []int{2, 5} {
			m := modeltest.Llama{Layers: layers, Heads: 4, KVHeads: 2, Seed: 5}.Open(t, "cuda")
			count := func() int64 {
				s := prefill(t, m, policy(t, m, name), modeltest.Tokens(m, 3, 50), 20)
				for l := range s.Cache.Layers() {
					s.Cache.ReserveLayer(l, 14, 1)
				}
				var at []int64
				opt := runner.GenerateOptions{MaxNew: 11, IgnoreEnd: true} // greedy: drawing takes more calls
				opt.AfterStep = func() error {
					at = append(at, modeltest.Calls(m.Backend))
					return nil
				}
				if _, _, err := s.Generate(background, opt); err != nil {
					t.Fatal(err)
				}
				return at[9] - at[8]
			}
			t.Setenv("GLIMPSE_CUDA_GRAPHS", "")
			calls = append(calls, count())
			t.Setenv("GLIMPSE_CUDA_GRAPHS", "0")
			calls = append(calls, count())
		}
		t.Logf("%-12s %d calls of the driver per token, of 2 layers unrecorded %d, of 5 layers %d", name, calls[0], calls[1], calls[3])
		if calls[0] > most || calls[2] != calls[0] || calls[3] < 5*most {
			t.Errorf("%s: %v calls of the driver per token, of 2 layers recorded and not, and of 5; want at most %d recorded", name, calls, most)
		}
	}
}

// TestCUDARefusedSteps: where the driver refuses to record, a step whose choice is made
// goes on without a graph, and so do those that follow, with the same bits.
func TestCUDARefusedSteps(t *testing.T) {
	needCUDA(t)
	t.Setenv("HOSTCUDA_GRAPHS", "0")
	if !modeltest.InArenas(t) {
		return
	}
	m := modeltest.Llama{Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 8, Seed: 5}.Open(t, "cuda")
	for _, name := range []string{"quest", "h2o", "sparq"} { // the first one meets the refusal
		bothWays(t, name, m, name, 20, [][2]int{{50, 6}, {4, 4}})
	}
}
