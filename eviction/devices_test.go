package eviction_test

import (
	"math"
	"slices"
	"testing"

	"glimpse/eviction"

	"glimpse/model/modeltest"
)

// onDevices is what a conversation of two turns says and keeps.
type onDevices struct {
	Kept     [][][]int32
	Scores   [][][]float32
	Logits   []float32
	Tokens   []int32
	Traffic  eviction.Traffic
	Bytes    int64
	Position [][]int32
}

func turns(t *testing.T, device, name string, shape modeltest.Llama, lengths []int, budget int) (out []onDevices) {
	m := shape.Open(t, device)
	p := policy(t, m, name)
	s, err := eviction.NewRuntime(m).NewSession(p, eviction.Pairs(budget))
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range lengths {
		if err := s.Turn(background, eviction.Prompt{Tokens: modeltest.Tokens(m, uint64(i), n), MaxNew: mostNew(m, p)}); err != nil {
			t.Fatal(err)
		}
		o := onDevices{Kept: s.Kept(), Scores: s.Scores(), Logits: s.Logits(), Bytes: s.FullBytes}
		o.Tokens = generate(t, s, 12)
		o.Traffic = s.Traffic
		for l := range s.Cache.Layers() {
			for h := range s.Cache.KVHeads() {
				o.Position = append(o.Position, slices.Clone(s.Cache.Positions(l, h)))
			}
		}
		out = append(out, o)
	}
	return out
}

// sameBits compares numbers by their bits.
func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// TestPoliciesOverSeveralDevices: a model whose layers are on several devices keeps the same
// entries by the same scores, and says the same, bit for bit, under every policy, in prompts
// of several chunks, too, which follow each other through the devices.
func TestPoliciesOverSeveralDevices(t *testing.T) {
	shape := modeltest.Llama{Layers: 4, Heads: 4, KVHeads: 2, Seed: 2, Tied: true}
	devices := []string{"cpu,cpu", "cpu,cpu,cpu,cpu"}
	if testing.Short() {
		devices = devices[1:]
	}
	for i, name := range eviction.Policies.Names() {
		if testing.Short() && i%4 > 0 { // what runs at a time is the same for all
			continue
		}
		t.Run(name, func(t *testing.T) {
			lengths := []int{600, 40}
			want := turns(t, "cpu", name, shape, lengths, 40)
			for _, device := range devices {
				for i, got := range turns(t, device, name, shape, lengths, 40) {
					w := want[i]
					same := slices.EqualFunc(got.Scores, w.Scores, func(a, b [][]float32) bool { return slices.EqualFunc(a, b, sameBits) })
					switch {
					case !sameKept(got.Kept, w.Kept):
						t.Errorf("%s: turn %d keeps other entries", device, i)
					case !same || !sameBits(got.Logits, w.Logits):
						t.Errorf("%s: turn %d has other scores or logits", device, i)
					case !slices.Equal(got.Tokens, w.Tokens) || !slices.EqualFunc(got.Position, w.Position, slices.Equal):
						t.Errorf("%s: turn %d says %v, want %v, or holds other positions", device, i, got.Tokens, w.Tokens)
					case got.Traffic != w.Traffic || got.Bytes != w.Bytes:
						t.Errorf("%s: turn %d counts %+v and %d bytes, want %+v and %d", device, i, got.Traffic, got.Bytes, w.Traffic, w.Bytes)
					}
				}
			}
		})
	}
}
