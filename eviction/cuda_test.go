//go:build gpu && linux && (amd64 || arm64)

package eviction_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"glimpse/eviction"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// The other backends run without the build tag.
func init() {
	if slices.Contains(kernels.Backends.Names(), "cuda") {
		halfDevices = []string{"cuda"}
		keptDevices = []keptDevice{{"cuda", 1e-3}}
		finiteDevices = []string{"cuda"}
		batchDevices = []string{"cuda"}
	}
}

// needCUDA skips a test where there is no device.
func needCUDA(t *testing.T) {
	t.Helper()
	if !slices.Contains(kernels.Backends.Names(), "cuda") {
		t.Skipf("no CUDA device: %v", kernels.Devices().Usable())
	}
}

// readMore is what policies read in the prefill of the test below beside the indices of
// budget entries per head: what a draft or a response says and where the draft's cache
// stands, of heads with budgets of their own those budgets and wider rows, and of layers whose
// budgets depend on each other a number per layer and query head. Of rows of the policy's
// own it is also the one by which they are known to be finite.
var readMore = map[string]int64{"d2o": 8 * 3 * 4, "laq": 708, "laq++": 708, "oracle": 256 + 8, "speckv": 128 + 8, "adakv": 240, "compose": 240,
	"dapq": 8, "judgeq": 8, "lookaheadkv": 8, "kvzip": 8, "kvzip+": 8}

// readWhileDecoding is what policies read beside tokens while the test below decodes: how
// much the estimate of a step has read, in every layer.
var readWhileDecoding = map[string]int64{"quest": 4 * 3 * 7}

// TestCUDAScoresStayOnTheDevice counts what the host reads of the device: an id per
// token, the indices of what was kept, and the numbers above. Of no policy are scores,
// logits, keys or values among it, but of policies for which there is no kernel what they score by.
func TestCUDAScoresStayOnTheDevice(t *testing.T) {
	needCUDA(t)
	m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2, Seed: 2}.Open(t, "cuda")
	const n, budget, length = 180, 24, 8
	counter := m.Backend.(interface{ HostBytes() int64 })
	c := &m.Config
	scores := int64(4 * c.KVHeads * n) // the least that a layer's scores take
	for i, name := range eviction.Policies.Names() {
		var sampling model.Sampling // greedy: the first token is known from the prefill
		if i%2 == 1 {
			sampling = model.Sampling{Temperature: 1, TopP: 0.9, TopK: 20}
		}
		before := counter.HostBytes()
		s := prefill(t, m, policy(t, m, name), modeltest.Tokens(m, 4, n), budget)
		prefilled := counter.HostBytes()
		tokens, _, err := s.Generate(background, runner.GenerateOptions{MaxNew: length, IgnoreEnd: true, Sampling: sampling})
		if err != nil || len(tokens) != length {
			t.Fatal(tokens, err)
		}
		decoded := counter.HostBytes() - prefilled
		prefilled -= before
		indices := int64(4 * c.Layers * c.KVHeads * budget)
		if name == "rocketkv" || name == "rocketkv-mt" { // whose first stage keeps more
			indices = 0
			for _, heads := range s.Kept() {
				for _, idx := range heads {
					indices += int64(4 * len(idx))
				}
			}
		}
		limit := 4 + indices + readMore[name]
		if limit-indices >= scores || limit >= scores && indices <= int64(4*c.Layers*c.KVHeads*budget) {
			t.Fatalf("%s may read %d bytes, as much as the scores of a layer", name, limit)
		}
		later := readWhileDecoding[name]
		switch pairs := int64(c.Layers*c.KVHeads*n) * s.Cache.LayerPairBytes(0); name {
		case "keydiff":
			limit += pairs / 2
		case "expectedattention": // queries and pairs
			limit += int64(4*c.Layers*n*c.Heads*c.HeadDim) + pairs
		case "triattention": // queries and keys, and keys again when the prompt gives room and when the response has it
			limit += int64(4*c.Layers*n*c.Heads*c.HeadDim) + pairs/2
			later += 2 * int64(c.Layers*c.KVHeads*(budget+1)) * s.Cache.LayerPairBytes(0) / 2
		case "kvzap": // rows, which gates widen
			limit += int64(4 * c.Layers * n * c.Hidden)
		case "kvzip+": // weights, rows and values
			limit += int64(c.Layers)*(int64(m.Network.Layers[0].Linear(model.OProj).Weight.Bytes())+int64(4*n*c.Hidden)) + pairs/2
		}
		t.Logf("%-14s prefill %6d bytes, %d tokens %6d bytes", name, prefilled, length, decoded)
		if prefilled > limit || decoded > 4*length+later {
			t.Errorf("%s: the host has read %d bytes in the prefill (at most %d) and %d for %d tokens", name, prefilled, limit, decoded, length)
		}
	}
}

// fewShapes are shapes, and with -short as many heads of keys as of queries, and fewer.
func fewShapes() []modeltest.Llama {
	if testing.Short() {
		return shapes[:2]
	}
	return shapes
}

// TestCUDASelectsAsTheHost: bit for bit what the host keeps of the same scores, for
// every policy with random options at random budgets.
func TestCUDASelectsAsTheHost(t *testing.T) {
	needCUDA(t)
	for i, shape := range fewShapes() {
		shape.Seed = uint64(i + 1)
		m := shape.Open(t, "cuda")
		rng := rand.New(rand.NewPCG(uint64(i), 9))
		for _, n := range []int{2, 9, 90} {
			var policies []*eviction.Configured
			for _, name := range eviction.Policies.Names() {
				info, _ := eviction.Policies.Lookup(name)
				policies = append(policies, policy(t, m, name, draw(rng, name, info)...))
			}
			study, err := eviction.NewRuntime(m).Study(background, policies, eviction.Prompt{Tokens: modeltest.Tokens(m, uint64(n), n)}, []int{1, 1 + rng.IntN(n), max(1, n-1)}, runner.GenerateOptions{MaxNew: 3})
			if err != nil {
				t.Fatal(err)
			}
			for _, plan := range study.Choices {
				if want := eviction.SelectedOnHost(plan); want != nil && !sameKept(plan.Kept, want) {
					t.Errorf("n=%d/budget=%d %s %v: the device keeps %v, the host %v", n, plan.Budget, plan.Configured.Name, plan.Configured.Settings.Values(), plan.Kept, want)
				}
			}
		}
	}
}

// TestCUDASparseChoices: at every step of every sparse policy, alone and as a second
// stage, with random options and budgets and sliding windows, the device chooses what the
// host chooses of the same queries and keys, and has read as much for it. Pages of almost
// equal score may change places.
func TestCUDASparseChoices(t *testing.T) {
	needCUDA(t)
	heads, others := 0, 0
	for i, shape := range fewShapes() {
		shape.Seed = uint64(i + 1)
		m := shape.Open(t, "cuda")
		rng := rand.New(rand.NewPCG(uint64(i), 31))
		for _, name := range []string{"exact-topk", "quest", "sparq", "hsa", "rocketkv", "rocketkv-mt", "snapkv:exact-topk", "snapkv:quest", "knorm:sparq", "snapkv:hsa"} {
			window := 40 * rng.IntN(2)
			modeltest.SetWindows(m)
			if window > 0 {
				modeltest.SetWindows(m, slices.Repeat([]int{window, 0}, m.Config.Layers)...)
			}
			var set []string
			if info, err := eviction.Policies.Lookup(name); err == nil {
				set = draw(rng, name, info)
			}
			for _, budget := range []int{1, 2 + rng.IntN(9), 2 + rng.IntN(9), 10 + rng.IntN(60), 10 + rng.IntN(60)} {
				s := prefill(t, m, policy(t, m, name, set...), modeltest.Tokens(m, 4, 20+rng.IntN(180)), budget)
				choices := eviction.HostSelectsToo(s)
				if choices == nil {
					t.Fatalf("%s: the host chooses", name)
				}
				choices.Compare = func(layer int, device, host [][]int32) {
					if len(device) != len(host) {
						t.Fatalf("%s %v window=%d budget=%d layer %d: the device chooses %v, the host %v", name, set, window, budget, layer, device, host)
					}
					for h, want := range host {
						heads++
						if len(device[h]) != len(want) {
							t.Fatalf("%s %v window=%d budget=%d layer %d head %d: the device chooses %v, the host %v", name, set, window, budget, layer, h, device[h], want)
						}
						if !slices.Equal(device[h], want) {
							others++
							t.Logf("%s %v window=%d budget=%d layer %d head %d: the device chooses %v, the host %v", name, set, window, budget, layer, h, device[h], want)
						}
					}
				}
				if _, _, err := s.Generate(background, runner.GenerateOptions{MaxNew: 12, IgnoreEnd: true}); err != nil {
					t.Fatal(err)
				}
				if s.Traffic.Estimation != choices.Estimation {
					t.Errorf("%s %v window=%d budget=%d: the device has read %d bytes to choose, the host %d", name, set, window, budget, s.Traffic.Estimation, choices.Estimation)
				}
			}
		}
	}
	least := 4000
	if testing.Short() {
		least = 3000
	}
	if t.Logf("%d of %d choices differ", others, heads); others*1000 > heads || heads < least {
		t.Errorf("%d of %d choices differ, want at most one in a thousand of %d", others, heads, least)
	}
}

// TestCUDAConversations: two turns under every policy give the tokens and the cache
// that they give on the processor, also where sums go on from turn to turn and where a
// sliding window reads positions. Two entries of almost equal score may change places,
// in one head of one conversation of a policy.
func TestCUDAConversations(t *testing.T) {
	needCUDA(t)
	swapped := make(map[string]int)
	for _, window := range []int{0, 30} {
		talk := func(device, name string, set ...string) (tokens []int32, positions [][]int32) {
			m := modeltest.Llama{Layers: 2, Heads: 4, KVHeads: 2, Seed: 5}.Open(t, device)
			if window > 0 {
				modeltest.SetWindows(m, window, 0)
			}
			p := policy(t, m, name, set...)
			s, err := eviction.NewRuntime(m).NewSession(p, eviction.Pairs(20))
			if err != nil {
				t.Fatal(err)
			}
			for turn, n := range []int{45, 12} {
				if err := s.Turn(background, eviction.Prompt{Tokens: modeltest.Tokens(m, uint64(turn+3), n), MaxNew: mostNew(m, p)}); err != nil {
					t.Fatal(err)
				}
				tokens = append(tokens, generate(t, s, 6)...)
			}
			for l := range m.Config.Layers {
				for h := range m.Config.KVHeads {
					positions = append(positions, slices.Clone(s.Cache.Positions(l, h)))
				}
			}
			return tokens, positions
		}
		var all [][]string // name and options
		for _, name := range eviction.Policies.Names() {
			all = append(all, []string{name})
		}
		for _, name := range pooledSteps {
			all = append(all, []string{name, name + ".kernel=5"})
		}
		for _, p := range modeltest.Some(t, all) {
			name := strings.Join(p, " ")
			got, gotAt := talk("cuda", p[0], p[1:]...)
			want, wantAt := talk("cpu", p[0], p[1:]...)
			heads := 0
			for i, at := range gotAt {
				others := 0
				for _, pos := range at {
					if !slices.Contains(wantAt[i], pos) {
						others++
					}
				}
				if heads += min(others, 1); others > 1 || len(at) != len(wantAt[i]) {
					heads = len(gotAt)
				}
			}
			swapped[name] += heads
			if swapped[name] > 1 || heads == 0 && !slices.Equal(got, want) {
				t.Errorf("%s window=%d: tokens %v with positions %v, on the processor %v with %v", name, window, got, gotAt, want, wantAt)
			}
		}
	}
	all := 0
	for _, n := range swapped {
		all += n
	}
	if t.Logf("%d heads differ", all); all > 2 {
		t.Errorf("%d heads differ by an entry, want at most 2", all)
	}
}

// TestCUDAMergesAsInFloat64: what the policies that merge or keep moments evict at every
// step on the device, and every key and value in the end, against the second implementation
// in float64.
func TestCUDAMergesAsInFloat64(t *testing.T) {
	needCUDA(t)
	heads, close := 0, 0
	for i, shape := range shapes {
		shape.Seed = uint64(i + 11)
		m := shape.Open(t, "cuda")
		exact, rng := newNaive(m), rand.New(rand.NewPCG(uint64(i), 61))
		for _, n := range []int{2, 40 + rng.IntN(50)} {
			c := &naiveCase{naive: exact, tokens: modeltest.Tokens(m, uint64(n), n), tol: 1e-3}
			c.prompt = exact.run(exact.empty(), exact.embed(c.tokens), 0, nil)
			c.full = exact.empty().with(c.prompt)
			for _, name := range []string{"roco", "d2o", "cam"} {
				info, _ := eviction.Policies.Lookup(name)
				for _, budget := range []int{1 + rng.IntN(4), 2 + n/4, n + rng.IntN(5)} {
					set := draw(rng, name, info)
					c.budget = budget
					h, ties := replay(t, fmt.Sprintf("%s %d/%d n=%d/budget=%d %v", name, shape.Heads, shape.KVHeads, n, budget, set), m, policy(t, m, name, set...), naiveDecoders[name], c)
					heads, close = heads+h, close+ties
				}
			}
		}
	}
	if t.Logf("%d of %d evictions differ by entries of almost equal score", close, heads); close*100 > heads || heads < 2000 {
		t.Errorf("%d of %d evictions differ by entries of almost equal score, want at most one in a hundred of 2,000", close, heads)
	}
}

// TestCUDAKeepsSpans: what has to stay does on a device, too, in the prompt and while tokens are decoded.
func TestCUDAKeepsSpans(t *testing.T) {
	needCUDA(t)
	m := modeltest.Llama{Layers: 4, Heads: 4, KVHeads: 2, Seed: 2}.Open(t, "cuda")
	for _, name := range []string{"snapkv", "h2o", "tova", "roco", "d2o", "streamingllm", "laq"} {
		p := policy(t, m, name)
		s := sessionWith(t, m, p, keepBudget, eviction.Keep{Spans: spans})
		turn(t, m, p, s, modeltest.Tokens(m, 4, 60))
		for _, when := range []string{"prompt", "answer"} {
			if l, h, position := lost(s, spans); position >= 0 {
				t.Errorf("%s, %s: layer %d, head %d: position %d is gone", name, when, l, h, position)
			}
			if got, most := s.Cache.Pairs(), 4*2*keepBudget; got > most && (when == "prompt" || planOf(m, p).Decode != nil) {
				t.Errorf("%s, %s: %d pairs, want at most %d", name, when, got, most)
			}
			if when == "prompt" {
				generate(t, s, 10)
			}
		}
	}
}
