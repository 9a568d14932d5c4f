//go:build gpu && linux && amd64

package eviction_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/modeltest"
)

func init() {
	if slices.Contains(kernels.Backends.Names(), "cuda") {
		keptDevices = append(keptDevices, keptDevice{"cuda", 1e-3})
	}
}

// needCUDA skips a test where there is no device.
func needCUDA(t *testing.T) {
	t.Helper()
	if !slices.Contains(kernels.Backends.Names(), "cuda") {
		t.Skipf("no CUDA device: %v", kernels.Devices().Usable())
	}
}

// readOnHost are the policies whose rules read device memory on the host, and why.
var readOnHost = map[string]string{
	"cam":         "draws by accumulated sums while merging values",
	"d2o":         "layer budgets by variances over all layers, merging by similarity",
	"roco":        "means and deviations per entry, kept while decoding",
	"exact-topk":  "chooses what every step reads",
	"quest":       "page bounds of keys, estimates per step",
	"sparq":       "components of keys, estimates per step",
	"hsa":         "page bounds of keys, estimates per step",
	"rocketkv":    "its second stage is hsa",
	"rocketkv-mt": "its second stage is hsa",
}

// TestCUDAScoresStayOnTheDevice counts what the host reads of the device: ids of tokens,
// indices of what was kept, and, with budgets per head, lengths. Neither scores nor
// logits are among it but for the policies listed above.
func TestCUDAScoresStayOnTheDevice(t *testing.T) {
	needCUDA(t)
	m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2, Seed: 2}.Open(t, "cuda")
	const n, budget, length = 150, 24, 12
	counter := m.Backend.(interface{ HostBytes() int64 })
	c := &m.Config
	for _, name := range eviction.Policies.Names() {
		for _, sampling := range []model.Sampling{{}, {Temperature: 1, TopP: 0.9, TopK: 20}} {
			before := counter.HostBytes()
			s := prefill(t, m, policy(t, m, name), modeltest.Tokens(m, 4, n), budget)
			prefilled := counter.HostBytes()
			tokens, _, err := s.Generate(background, model.GenerateOptions{MaxNew: length, IgnoreEnd: true, Sampling: sampling})
			if err != nil || len(tokens) != length {
				t.Fatal(tokens, err)
			}
			after := counter.HostBytes()
			draft := int64(4 * 33) // of the policies that look ahead
			// A head of an adaptive policy may keep more than the budget, and rows are as wide as the longest.
			ids := int64(4 * c.Layers * c.KVHeads * n)
			if name != "adakv" && name != "compose" {
				ids = int64(4 * c.Layers * c.KVHeads * 2 * budget) // pyramids have twice as many at the base, drafts select twice
			}
			lengths := int64(4 * c.Layers * c.KVHeads)
			scores := int64(4 * c.KVHeads * n) // the least that a layer's scores take
			limit := 4 + draft + ids + lengths
			reads := prefilled-before > limit || after-prefilled > int64(4*length)
			if testing.Verbose() {
				t.Logf("%-14s prefill %6d bytes, %d tokens %6d bytes", name, prefilled-before, length, after-prefilled)
			}
			if reason, listed := readOnHost[name]; reads != listed {
				t.Errorf("%s: the host has read %d bytes in the prefill (at most %d) and %d for %d tokens; scores of a layer have %d; listed: %q", name, prefilled-before, limit, after-prefilled, length, scores, reason)
			}
		}
	}
	for name := range readOnHost {
		if _, err := eviction.Policies.Lookup(name); err != nil {
			t.Error(err)
		}
	}
}

// TestCUDASelectsAsTheHost: bit for bit what the host keeps of the same scores, for
// every policy with random options at random budgets.
func TestCUDASelectsAsTheHost(t *testing.T) {
	needCUDA(t)
	for i, shape := range shapes {
		shape.Seed = uint64(i + 1)
		m := shape.Open(t, "cuda")
		rng := rand.New(rand.NewPCG(uint64(i), 9))
		for _, n := range []int{2, 9, 130} {
			var policies []*eviction.Named
			for _, name := range eviction.Policies.Names() {
				info, _ := eviction.Policies.Lookup(name)
				policies = append(policies, policy(t, m, name, draw(rng, name, info)...))
			}
			study, err := eviction.NewRuntime(m).Study(background, policies, modeltest.Tokens(m, uint64(n), n), []int{1, 1 + rng.IntN(n), max(1, n-1)}, 3)
			if err != nil {
				t.Fatal(err)
			}
			for _, plan := range study.Plans {
				if want := eviction.SelectedOnHost(plan); want != nil && !sameKept(plan.Kept, want) {
					t.Errorf("n=%d/budget=%d %s %v: the device keeps %v, the host %v", n, plan.Budget, plan.Named.Name, plan.Named.Settings.Values(), plan.Kept, want)
				}
			}
		}
	}
}

// TestCUDAConversations: two turns under every policy give the tokens and the cache
// that they give on the processor, also where sums go on from turn to turn and where a
// sliding window reads positions.
func TestCUDAConversations(t *testing.T) {
	needCUDA(t)
	for _, window := range []int{0, 30} {
		talk := func(device, name string) (tokens []int32, positions [][]int32) {
			m := modeltest.Llama{Layers: 2, Heads: 4, KVHeads: 2, Seed: 5}.Open(t, device)
			if window > 0 {
				m.Config.Windows = []int{window, 0}
			}
			s, err := eviction.NewRuntime(m).NewSession(policy(t, m, name), 20)
			if err != nil {
				t.Fatal(err)
			}
			for turn, n := range []int{60, 17} {
				if err := s.Turn(background, modeltest.Tokens(m, uint64(turn+3), n), nil); err != nil {
					t.Fatal(err)
				}
				tokens = append(tokens, generate(t, s, 9)...)
			}
			for l := range m.Config.Layers {
				for h := range m.Config.KVHeads {
					positions = append(positions, slices.Clone(s.Cache.Positions(l, h)))
				}
			}
			return tokens, positions
		}
		for _, name := range eviction.Policies.Names() {
			got, gotAt := talk("cuda", name)
			want, wantAt := talk("cpu", name)
			if !slices.Equal(got, want) || !slices.EqualFunc(gotAt, wantAt, slices.Equal) {
				t.Errorf("%s: tokens %v with positions %v, on the processor %v with %v", fmt.Sprintf("%s window=%d", name, window), got, gotAt, want, wantAt)
			}
		}
	}
}
