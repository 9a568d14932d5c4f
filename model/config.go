package model

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"glimpse/checkpoints/quantized"
	"glimpse/kernels"
)

// ErrContext is returned when a sequence would grow past the model's context.
var ErrContext = errors.New("longer than the model's context")

// Config is what the forward pass needs to know of a model, whatever its family.
type Config struct {
	Architecture string // config.json architectures[0]

	Hidden       int // width of the residual stream
	Layers       int
	Heads        int // query heads
	KVHeads      int
	HeadDim      int
	Intermediate int // width of the MLP
	ExpertWidth  int // of the widest expert; 0: no layer has experts
	Vocab        int
	MaxPositions int // longest sequence, prompt and response together

	RMSNormEps    float64 // epsilon of all norms, LayerNorm's included
	RoPE                  // of all layers but those whose Mixers have their own
	TieEmbeddings bool    // the head is the embedding table

	QueryScale float64 // of the logits of attention, 0: 1/√HeadDim
	// AttentionCap and LogitCap bound the logits of attention and of tokens softly, see kernels.Attend; 0: they do not.
	AttentionCap, LogitCap float64
	BlockScale             float64 // multiplies what attention and MLP add to the residual stream, 0: 1
	LogitScale             float64 // multiplies logits, 0: 1

	// Mixers say by layer how its rows see other rows; nil: all as the zero Mixer.
	Mixers []Mixer

	BOS int32   // -1: none
	EOS []int32 // every end token

	layout    layout            // of the network
	unused    string            // prefix of tensors that are not used, "": none
	further   int               // layers that follow the last one and predict further tokens: they are not used
	quantized *quantized.Config // how the weights are stored, nil: as they are read
	notes     []string          // see Model.Notes
}

// maxContext bounds the context, far beyond any model's.
const maxContext = 1 << 28

// bounded is a number that a file gives, and what it may be.
type bounded struct {
	key                string
	value, least, most int
}

// outside are the errors of numbers that are not what they may be.
func outside(numbers []bounded) (errs []error) {
	for _, n := range numbers {
		if n.value < n.least || n.value > n.most {
			errs = append(errs, fmt.Errorf("%s: got %d, want %d to %d", n.key, n.value, n.least, n.most))
		}
	}
	return errs
}

// Validate checks the ranges that every family shares; errors name the
// config.json key.
func (c *Config) Validate() error {
	errs := outside([]bounded{
		{"hidden_size", c.Hidden, 1, 1 << 20}, {"num_hidden_layers", c.Layers, 1, 1 << 12},
		{"num_attention_heads", c.Heads, 1, 1 << 14}, {"num_key_value_heads", c.KVHeads, 1, 1 << 14},
		{"head_dim", c.HeadDim, 1, 1 << 12}, {"intermediate_size", c.Intermediate, 1, 1 << 22},
		{"vocab_size", c.Vocab, 1, 1 << 24}, {"max_position_embeddings", c.MaxPositions, 1, maxContext},
	})
	if c.KVHeads > 0 && c.Heads%c.KVHeads != 0 {
		errs = append(errs, fmt.Errorf("num_key_value_heads: got %d, want a divisor of num_attention_heads %d", c.KVHeads, c.Heads))
	}
	if c.HeadDim%2 != 0 {
		errs = append(errs, fmt.Errorf("head_dim: got %d, want an even number", c.HeadDim))
	}
	if !(c.RMSNormEps > 0) || math.IsInf(c.RMSNormEps, 0) {
		errs = append(errs, fmt.Errorf("rms_norm_eps: got %v, want a positive number", c.RMSNormEps))
	}
	return errors.Join(errs...)
}

// Mixer is how the rows of a layer see other rows: they attend to the keys and values of the layer itself, or of one before it, or
// there is a recurrence in the place of attention. The zero Mixer attends to everything.
type Mixer struct {
	// Window is the sliding window: a row sees its own entry and those at the Window−1 positions before it, 0 all of them.
	Window int
	// KV are the KV heads of a layer with a window that has others than KVHeads of HeadDim, which layers without one have.
	KV KVShape
	// Back is how many layers before it the one is whose keys and values the layer attends to, and whose cache it shares; 0: it has
	// its own.
	Back int
	// RoPE is of a layer that is rotated in its own way, or, with no frequencies, not at all; nil: as Config.RoPE.
	RoPE       *RoPE
	Recurrence Recurrence // nil: the layer attends
}

// mixer is that of a layer.
func (c *Config) mixer(layer int) Mixer {
	if c.Mixers == nil {
		return Mixer{}
	}
	return c.Mixers[layer]
}

// ownMixers are Mixers, made where there are none.
func (c *Config) ownMixers() []Mixer {
	if c.Mixers == nil {
		c.Mixers = make([]Mixer, c.Layers)
	}
	return c.Mixers
}

// Window is the sliding window of a layer, 0 for none.
func (c *Config) Window(layer int) int { return c.mixer(layer).Window }

// HasWindows tells that a layer has a sliding window, WindowsAlone that every layer has one.
func (c *Config) HasWindows() bool {
	return slices.ContainsFunc(c.Mixers, func(m Mixer) bool { return m.Window > 0 })
}

func (c *Config) WindowsAlone() bool {
	return c.Mixers != nil && !slices.ContainsFunc(c.Mixers, func(m Mixer) bool { return m.Window == 0 })
}

// SharesKV tells that a layer attends to the keys and values of another.
func (c *Config) SharesKV() bool {
	return slices.ContainsFunc(c.Mixers, func(m Mixer) bool { return m.Back > 0 })
}

// VariesKV tells that layers have other KV heads than the rest.
func (c *Config) VariesKV() bool {
	return slices.ContainsFunc(c.Mixers, func(m Mixer) bool { return m.KV != KVShape{} && m.KV != KVShape{c.KVHeads, c.HeadDim} })
}

// Recurrence is what a layer has in the place of attention; nil: it attends.
func (c *Config) Recurrence(layer int) Recurrence { return c.mixer(layer).Recurrence }

// Recurrent tells that a layer has a state of its rows in the place of attention, and so no keys and values.
func (c *Config) Recurrent(layer int) bool { return c.Recurrence(layer) != nil }

// KVLayer is the layer whose keys and values a layer attends to: itself, or one before it that it shares a cache with.
func (c *Config) KVLayer(layer int) int { return layer - c.mixer(layer).Back }

// HoldsKV tells that a layer has keys and values of its own, and so a cache.
func (c *Config) HoldsKV(layer int) bool { return !c.Recurrent(layer) && c.KVLayer(layer) == layer }

// Readers are the layers that attend to the keys and values of one that holds some, itself first.
func (c *Config) Readers(layer int) (readers []int) {
	for l := layer; l < c.Layers; l++ {
		if c.KVLayer(l) == layer {
			readers = append(readers, l)
		}
	}
	return readers
}

// LastHolder is the last layer that has keys and values, or a state: rows of a prompt go through those after it for themselves alone.
func (c *Config) LastHolder() int {
	l := c.Layers - 1
	for c.KVLayer(l) != l {
		l--
	}
	return l
}

// LastReader is the last of a layer's Readers: until it has run, what the layer holds is needed.
func (c *Config) LastReader(layer int) int {
	last := c.Layers - 1
	for c.KVLayer(last) != layer {
		last--
	}
	return last
}

// FirstAttention is the first layer that attends; 0 where none does.
func (c *Config) FirstAttention() int {
	for l := range c.Layers {
		if !c.Recurrent(l) {
			return l
		}
	}
	return 0
}

// FirstObserved is the layer that is observed first in a pass: the first that attends, unless it shares its cache with later ones.
func (c *Config) FirstObserved() int {
	first := c.FirstAttention()
	for l := range c.Layers {
		if c.HoldsKV(l) && c.LastReader(l) < c.LastReader(first) {
			first = l
		}
	}
	return first
}

// Scored tells whether an adapter is trained by the scores of a layer's cache: of those that hold the whole prompt, which policies
// evict, or of all where every layer has a window.
func (c *Config) Scored(layer int) bool {
	return c.HoldsKV(layer) && (c.Window(layer) == 0 || c.WindowsAlone())
}

// ScoredLayers are the layers up to the last one that is Scored: those after it reach no score.
func (c *Config) ScoredLayers() int {
	n := c.Layers
	for !c.Scored(c.KVLayer(n - 1)) {
		n--
	}
	return n
}

// RoPE is how queries and keys are rotated (Su et al. 2021).
type RoPE struct {
	RoPEFreqs []float32 // radians per position, [HeadDim/2]; fewer leave the last dimensions as they are
	RoPEScale float64   // multiplies cosines and sines
	LongRoPE  *LongRoPE // other frequencies for long prompts, nil for none
	// PositionScale multiplies rotated queries beside that; nil: nothing does.
	PositionScale *PositionScale
}

// Freqs are the frequencies of long prompts or of others.
func (r *RoPE) Freqs(long bool) []float32 {
	if long && r.LongRoPE != nil {
		return r.LongRoPE.Freqs
	}
	return r.RoPEFreqs
}

// PositionScale is the scale of queries that grows with their position beyond the context of the first training, as Llama 4
// has it.
type PositionScale struct {
	Beta    float64
	Context float64 // tokens
}

// At is the scale at a position, 1 in the first context: 1 + Beta · ln(1 + ⌊position/Context⌋).
func (s *PositionScale) At(position int) float64 {
	return 1 + s.Beta*math.Log1p(math.Floor(float64(position)/s.Context))
}

// LongRoPE are the frequencies of prompts that are longer than the context of the first
// training (Ding et al. 2024, arXiv:2402.13753).
type LongRoPE struct {
	Freqs []float32 // [as many as RoPEFreqs]
	After int       // tokens
}

// long tells whether a prompt of so many tokens gets the frequencies of long ones.
func (c *Config) Long(tokens int) bool { return c.LongRoPE != nil && tokens > c.LongRoPE.After }

// RoPEOf is how a layer rotates.
func (c *Config) RoPEOf(layer int) *RoPE {
	return cmp.Or(c.mixer(layer).RoPE, &c.RoPE)
}

// rotateWindows gives the layers with a window a rotation of their own.
func (c *Config) rotateWindows(r *RoPE) {
	for l := range c.Mixers {
		if c.Window(l) > 0 {
			c.Mixers[l].RoPE = r
		}
	}
}

// Rotates tells whether a layer rotates its queries and keys.
func (c *Config) Rotates(layer int) bool { return len(c.RoPEOf(layer).RoPEFreqs) > 0 }

// cutLayers leaves the first layers.
func (c *Config) cutLayers(layers int) {
	c.Layers = layers
	c.Mixers = c.Mixers[:min(layers, len(c.Mixers))]
}

// KVShape is the number of KV heads of a layer and their width.
type KVShape struct{ Heads, Dim int }

// KV is the shape of a layer's keys and values.
func (c *Config) KV(layer int) KVShape {
	return cmp.Or(c.mixer(layer).KV, KVShape{c.KVHeads, c.HeadDim})
}

// widestHead is the widest head of any layer.
func (c *Config) widestHead() int {
	most := c.HeadDim
	for _, m := range c.Mixers {
		most = max(most, m.KV.Dim)
	}
	return most
}

// AttentionScale is the scale of attention's logits.
func (c *Config) AttentionScale() float64 {
	return cmp.Or(c.QueryScale, 1/math.Sqrt(float64(c.HeadDim)))
}

// Group is the number of query heads per KV head.
func (c *Config) Group() int { return c.Heads / c.KVHeads }

// CacheBytes is the memory of the keys and values of a sequence of so many tokens, stored in a type. Layers with a
// sliding window hold that and less than a block of entries more (kernels.WindowBlock), and of the states of recurrent layers.
func (c *Config) CacheBytes(tokens int, stored kernels.DType) (n int64) {
	for l := range c.Layers {
		if r := c.Recurrence(l); r != nil {
			n += StateBytes(r, kernels.F32)
		}
		if !c.HoldsKV(l) {
			continue
		}
		entries := tokens
		if w := c.Window(l); w > 0 {
			entries = min(entries, w-1+kernels.WindowBlock-1)
		}
		kv := c.KV(l)
		n += 2 * int64(kv.Heads) * int64(kernels.StoredBytes(stored, entries, kv.Dim))
	}
	return n
}

// CacheBytesPerToken is the size of one token's keys and values in all layers
// and heads, stored in a type.
func (c *Config) CacheBytesPerToken(stored kernels.DType) (n int64) {
	for l := range c.Layers {
		if !c.HoldsKV(l) {
			continue
		}
		kv := c.KV(l)
		n += 2 * int64(kv.Heads) * int64(stored.Bytes(kv.Dim))
	}
	return n
}

// PlainRoPE returns the unscaled frequencies θ^(−2i/headDim) of RoPE (Su et al.
// 2021), computed in float32 as transformers does.
func PlainRoPE(theta float64, headDim int) []float32 {
	f := ropePowers(theta, headDim)
	for i := range f {
		f[i] = 1 / f[i]
	}
	return f
}

// ropePowers are θ^(2i/headDim).
func ropePowers(theta float64, headDim int) []float32 {
	f := make([]float32, headDim/2)
	for i := range f {
		exponent := float32(2*i) / float32(headDim)
		f[i] = float32(math.Pow(theta, float64(exponent)))
	}
	return f
}

// LogitFactor is what logits are multiplied by.
func (c *Config) LogitFactor() float64 { return cmp.Or(c.LogitScale, 1) }
