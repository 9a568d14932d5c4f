package model

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"

	"glimpse/internal/listing"
	"glimpse/kernels"
)

// RoundedKeys is what rounding the keys of a cache does to attention. Some models have keys with channels whose mean is a hundred times what the others
// vary by (Qwen2.5, from the biases of its projection): one scale for 32 channels of a key leaves nothing of the small ones, and the model writes
// garbage.
type RoundedKeys struct {
	CacheDType string
	// Divergence is that of attention over rounded keys from attention over the computed ones (Kullback and Leibler),
	// in nats: that of the worst layer, the mean over its query heads, for the last row of the first prompt.
	Divergence float64
	// Others are types that keep it tolerable, those with the fewest bits first.
	Others []OtherKeys
}

// OtherKeys is a type of caches that was measured beside the model's.
type OtherKeys struct {
	CacheDType string
	Divergence float64
}

// TolerableDivergence is the most that rounded keys may do. What SmolLM2-135M, Gemma 3 270M and Qwen2.5-Coder-0.5B answer as well with as
// with float32 has 0.7 at most, and 1.1 for the built-in model; q4_0, q4_1 and q5_1, with which Qwen answers otherwise or writes garbage,
// have 10 to 20, and q5_0, with which it repeats itself, 3.3 (docs/models.md).
const TolerableDivergence = 2

// Tolerable tells whether answers can be expected to be right.
func (k *RoundedKeys) Tolerable() bool { return k.Divergence <= TolerableDivergence }

// Warning says what is wrong with the type of the cache and what to take; "" if nothing is.
func (k *RoundedKeys) Warning() string {
	if k.Tolerable() {
		return ""
	}
	take := "bf16"
	if len(k.Others) > 0 {
		take = strings.Join(listing.Map(k.Others, func(o OtherKeys) string { return fmt.Sprintf("%s (%.2g)", o.CacheDType, o.Divergence) }), ", ")
	}
	return fmt.Sprintf("--cache-dtype %s rounds away what this model's keys differ by: a layer's attention is off by %.2g nats, want at most %d: expect wrong answers, and take %s",
		k.CacheDType, k.Divergence, TolerableDivergence, take)
}

// keyRounding gathers RoundedKeys layer by layer.
type keyRounding struct {
	mu       sync.Mutex
	types    []keyType             // the first is that of the cache
	measured map[int][]float64     // of layers: the means over their query heads, of types
	found    *RoundedKeys          // when all layers are measured
	tell     func(of *RoundedKeys) // or nil
}

// keyType is a type of keys with its name.
type keyType struct {
	name  string
	dtype kernels.DType
}

// newKeyRounding is for caches of a type that rounds keys by a scale for several; nil for others, and for models that compute nothing.
func (m *Model) newKeyRounding() *keyRounding {
	if _, blocks := m.cacheDType.Format(); m.counter != nil || !blocks && !m.cacheDType.Grouped() {
		return nil
	}
	types := []keyType{{m.cacheName, m.cacheDType}}
	for _, name := range cacheBlocks() {
		if d, err := m.blockCache(name); err == nil && name != m.cacheName {
			types = append(types, keyType{name, d})
		}
	}
	return &keyRounding{types: types, measured: make(map[int][]float64)}
}

// OnRoundedKeys sets what is called once, when the first prompt has shown what rounding its keys does. It is not called where
// keys are not rounded in blocks.
func (m *Model) OnRoundedKeys(tell func(of *RoundedKeys)) {
	k := m.keys
	if k == nil {
		return
	}
	k.mu.Lock()
	k.tell = tell
	found := k.found
	k.mu.Unlock()
	if found != nil {
		tell(found)
	}
}

// WarnOfRoundedKeys writes the warning of OnRoundedKeys to a log, if there is one.
func (m *Model) WarnOfRoundedKeys(log io.Writer) {
	m.OnRoundedKeys(func(of *RoundedKeys) {
		if text := of.Warning(); text != "" {
			fmt.Fprintln(log, "warning: "+text)
		}
	})
}

// RoundedKeys is what the first prompt has shown; nil until then.
func (m *Model) RoundedKeys() *RoundedKeys {
	k := m.keys
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.found
}

// fewestRounded is the number of rows of a prompt from which on it shows what rounding does to its keys; of longer ones the last
// mostRounded are looked at.
const fewestRounded, mostRounded = 16, 256

// MeasureKeys measures what rounding a prompt's keys k [rows, kvHeads, headDim] does to the attention a of its last row, in every layer
// once. It does nothing where keys are not rounded in blocks, or all is measured.
func (m *Model) MeasureKeys(layer int, on kernels.Backend, a *kernels.Attend, k, v *kernels.Tensor) {
	n := k.Dim0()
	if n < fewestRounded {
		return
	}
	types := m.keys.missing(layer)
	if types == nil {
		return
	}
	if w := m.Config.Window(layer); w > 0 {
		n = min(n, w)
	}
	n = min(n, mostRounded)
	k, v = k.Rows(k.Dim0()-n, k.Dim0()), v.Rows(v.Dim0()-n, v.Dim0())
	last := a.Q.Rows(a.Rows()-1, a.Rows()).Float64s()
	computed, heads := byHead(k), a.Q.Shape[1]
	divergences := make([]float64, len(types)) // the means over the layer's query heads
	for i, t := range types {
		rounded := roundedKeys(on, t.dtype, k, v)
		for h := range heads {
			q, g := last[h*a.HeadDim():][:a.HeadDim()], h/(heads/len(computed))
			divergences[i] += divergence(attentionOver(a, q, computed[g]), attentionOver(a, q, rounded[g])) / float64(heads)
		}
	}
	m.keys.add(&m.Config, layer, divergences)
}

// missing are the types that are to be measured in a layer, the cache's first; nil if there is nothing more to measure there.
func (k *keyRounding) missing(layer int) []keyType {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.found != nil || k.measured[layer] != nil {
		return nil
	}
	return k.types
}

// add takes the divergences of a layer for each of types.
func (k *keyRounding) add(c *Config, layer int, divergences []float64) {
	k.mu.Lock()
	k.measured[layer] = divergences
	want := 0
	for l := range c.Layers {
		if c.HoldsKV(l) {
			want++
		}
	}
	if k.found != nil || len(k.measured) < want {
		k.mu.Unlock()
		return
	}
	worst := make([]float64, len(k.types))
	for _, layer := range k.measured {
		for i, d := range layer {
			worst[i] = max(worst[i], d)
		}
	}
	k.found = &RoundedKeys{CacheDType: k.types[0].name, Divergence: worst[0]}
	bits := make(map[string]int)
	for i, t := range k.types {
		if bits[t.name] = t.dtype.Bytes(256); i > 0 && worst[i] <= TolerableDivergence {
			k.found.Others = append(k.found.Others, OtherKeys{t.name, worst[i]})
		}
	}
	slices.SortStableFunc(k.found.Others, func(a, b OtherKeys) int { return cmp.Compare(bits[a.CacheDType], bits[b.CacheDType]) })
	tell := k.tell
	k.mu.Unlock()
	if tell != nil {
		tell(k.found)
	}
}

// byHead is k [rows, kvHeads, headDim] as [rows, headDim] of each head.
func byHead(k *kernels.Tensor) [][]float64 {
	rows, heads, dim := k.Shape[0], k.Shape[1], k.Shape[2]
	all, out := k.Float64s(), make([][]float64, heads)
	for i := range rows {
		for g := range heads {
			out[g] = append(out[g], all[(i*heads+g)*dim:][:dim]...)
		}
	}
	return out
}

// roundedKeys are the keys [rows, headDim] of each head as a cache of the type holds them. In groups they are as when others
// have followed: none in BF16.
func roundedKeys(on kernels.Backend, t kernels.DType, k, v *kernels.Tensor) [][]float64 {
	rows, heads, times := k.Dim0(), k.Shape[1], 1
	if t.Grouped() {
		times += (kernels.MostRecent + rows - 1) / rows
	}
	to, part := make([]kernels.KV, heads), make([]kernels.KV, heads)
	for g := range to {
		to[g] = kernels.KV{K: on.Alloc(t, rows*times, k.Shape[2]), V: on.Alloc(t.OfValues(), rows*times, v.Shape[2])}
	}
	for i := range times {
		for g := range part {
			part[g] = kernels.KV{K: to[g].K.Rows(i*rows, (i+1)*rows), V: to[g].V.Rows(i*rows, (i+1)*rows)}
		}
		on.CopyPairs(part, k, v)
	}
	out := make([][]float64, heads)
	for g := range out {
		out[g] = to[g].K.Rows(0, rows).Float64s()
	}
	return out
}

// attentionOver are the logarithms of the probabilities with which query q attends to keys, without sinks.
func attentionOver(a *kernels.Attend, q, keys []float64) []float64 {
	out := make([]float64, len(keys)/len(q))
	most, sum := math.Inf(-1), 0.0
	for i := range out {
		for c, x := range keys[i*len(q):][:len(q)] {
			out[i] += q[c] * x * a.Scale
		}
		if a.SoftCap > 0 {
			out[i] = a.SoftCap * math.Tanh(out[i]/a.SoftCap)
		}
		most = max(most, out[i])
	}
	for _, x := range out {
		sum += math.Exp(x - most)
	}
	for i := range out {
		out[i] -= most + math.Log(sum)
	}
	return out
}

// divergence is that of q from p, of logarithms of probabilities (Kullback and Leibler), in nats.
func divergence(p, q []float64) (d float64) {
	for i, x := range p {
		d += math.Exp(x) * (x - q[i])
	}
	return d
}
