package model

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"glimpse/kernels"
)

// decoderConfig is what the config.json of Llama and of the families that follow
// its layout have in common, and the layout's variants.
type decoderConfig struct {
	HiddenSize            int     `json:"hidden_size"`
	NumHiddenLayers       int     `json:"num_hidden_layers"`
	NumAttentionHeads     int     `json:"num_attention_heads"`
	NumKeyValueHeads      *int    `json:"num_key_value_heads"`
	HeadDim               *int    `json:"head_dim"`
	IntermediateSize      int     `json:"intermediate_size"`
	VocabSize             int     `json:"vocab_size"`
	MaxPositionEmbeddings int     `json:"max_position_embeddings"`
	RMSNormEps            float64 `json:"rms_norm_eps"`
	TieWordEmbeddings     *bool   `json:"tie_word_embeddings"`
	AttentionBias         *bool   `json:"attention_bias"`
	MLPBias               bool    `json:"mlp_bias"`
	HiddenAct             string  `json:"hidden_act"`

	SlidingWindow    *int     `json:"sliding_window"`
	UseSlidingWindow *bool    `json:"use_sliding_window"`
	MaxWindowLayers  *int     `json:"max_window_layers"`
	LayerTypes       []string `json:"layer_types"`

	ropeKeys

	ownActivation bool // the family reads it by another key
}

// decoderFamily is the ParseConfig of a family: defaults are as in transformers, layout takes what the family
// makes of the keys that all have.
func decoderFamily(defaults func() decoderConfig, layout func(c *Config, d *decoderConfig) error) func(raw json.RawMessage) (*Config, error) {
	return func(raw json.RawMessage) (*Config, error) {
		d := defaults()
		c, err := d.parseConfig(raw)
		if err != nil {
			return nil, err
		}
		return c, layout(c, &d)
	}
}

// parseConfig reads config.json over the defaults of transformers that d holds, and then the family's own keys over theirs.
// A null in the place of a value that may be nil is none, or false, whatever the default.
func (d *decoderConfig) parseConfig(raw json.RawMessage, own ...any) (*Config, error) {
	d.HiddenAct = cmp.Or(d.HiddenAct, "silu")
	if err := json.Unmarshal(raw, d); err != nil {
		return nil, err
	}
	if !d.ownActivation && activationOf(d.HiddenAct) != "silu" {
		return nil, fmt.Errorf("hidden_act: got %q, want \"silu\"", d.HiddenAct)
	}
	c := &Config{
		Hidden: d.HiddenSize, Layers: d.NumHiddenLayers, Heads: d.NumAttentionHeads,
		KVHeads: first(d.NumAttentionHeads, d.NumKeyValueHeads), Intermediate: d.IntermediateSize, Vocab: d.VocabSize,
		MaxPositions: d.MaxPositionEmbeddings, RMSNormEps: d.RMSNormEps, TieEmbeddings: isTrue(d.TieWordEmbeddings),
		layout: decoderLayout{},
	}
	switch {
	case d.HeadDim != nil:
		c.HeadDim = *d.HeadDim
	case c.Heads > 0 && c.Hidden%c.Heads == 0:
		c.HeadDim = c.Hidden / c.Heads
	case c.Heads > 0:
		return nil, fmt.Errorf("hidden_size: got %d, want a multiple of num_attention_heads %d", c.Hidden, c.Heads)
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	keys, err := d.ropeKeys.forLayers("full_attention")
	if err != nil {
		return nil, err
	}
	if err := c.setRoPE(keys); err != nil {
		return nil, err
	}
	for _, into := range own {
		if err := json.Unmarshal(raw, into); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// isTrue is the value of a boolean key. Null is false, as it is to transformers.
func isTrue(b *bool) bool { return b != nil && *b }

// fullEvery lets every n-th layer see everything and gives the others a window, unless layer_types says which ones do.
func (d *decoderConfig) fullEvery(n int) {
	if d.LayerTypes != nil {
		return
	}
	for l := range d.NumHiddenLayers {
		kind := "sliding_attention"
		if (l+1)%n == 0 {
			kind = "full_attention"
		}
		d.LayerTypes = append(d.LayerTypes, kind)
	}
}

// slidingLayers sets the window of the layers that layer_types calls sliding, or,
// where the list is not given, of those from first on. window is nil for none.
func (d *decoderConfig) slidingLayers(c *Config, window *int, first int) error {
	if d.LayerTypes != nil && len(d.LayerTypes) != c.Layers {
		return fmt.Errorf("layer_types: got %d, want num_hidden_layers %d of them", len(d.LayerTypes), c.Layers)
	}
	for _, t := range d.LayerTypes {
		if t != "full_attention" && t != "sliding_attention" {
			return fmt.Errorf("layer_types: got %q, want full_attention or sliding_attention", t)
		}
	}
	if window == nil { // sliding_window is null, or windows are off
		if slices.Contains(d.LayerTypes, "sliding_attention") {
			return fmt.Errorf("layer_types: got sliding_attention without a sliding_window")
		}
		return nil
	}
	if *window < 1 {
		return fmt.Errorf("sliding_window: got %d, want at least 1", *window)
	}
	mixers := c.ownMixers()
	for l := range mixers {
		if d.LayerTypes != nil && d.LayerTypes[l] == "sliding_attention" || d.LayerTypes == nil && l >= first {
			mixers[l].Window = *window
		}
	}
	return nil
}

// decoderLayout is what differs between the tensors of families with Llama's
// layout.
type decoderLayout struct {
	qkvBias, outputBias, mlpBias bool
	headNorms                    headNorms // q_norm and k_norm
	fusedQKV, fusedMLP           bool      // qkv_proj, gate_up_proj, without biases
	interleaved                  bool      // rotary pairs are neighbours
	norms                        blockNorms
	normsPlus                    float64 // is added to the stored weights of all norms
	stream                       float64 // what the residual stream is divided by, see scaledStream; 0: 1
	gate                         kernels.Gate
	sinks                        bool // self_attn.sinks
	outputGate                   bool // behind every head's query
	experts                      *expertsLayout
	// valueNorms: values are normalised, too; keysAreValues: layers without a window have no v_proj; scalars: the residual stream
	// is multiplied after every layer.
	valueNorms, keysAreValues, scalars bool
	inputs                             *inputsLayout
	// names makes the names in files of Llama's; nil: they are Llama's.
	names *strings.Replacer
	// wide: the MLP of layers that read the keys and values of another is twice as wide as that of the rest.
	wide bool
}

// expertsLayout are the experts of a network; names are those in a layer.
type expertsLayout struct {
	Routing
	experts, width, shared int    // number, widths of each and of the shared one, 0 for none
	dense                  []bool // layers with an MLP instead; nil: none

	how                          kernels.Gate // what gates do
	biases                       bool         // of router and experts
	router, each, gate, up, down string       // each has a verb for an expert's number
	sharedExpert, sharedGate     string       // "": the shared expert counts in full
	correction                   string       // "": none
	beside                       *besideNames // nil: in the place of an MLP
}

// besideNames are the names where experts lie beside an MLP: of norms of the residual stream for the router, which is divided by the root of its
// width, and for the experts, of the factors of the experts' weights, and of norms of the outputs of MLP and experts.
type besideNames struct{ routerNorm, norm, scales, denseNorm, expertsNorm string }

// bindBeside lays out what experts beside an MLP have more.
func (n *besideNames) bindBeside(c *Config, b *Binder, l *Layer, at string, eps float64) {
	e := l.Experts
	b.affine(at+n.routerNorm, &e.RouterNorm.Weight, c.Hidden, 0, 1/math.Sqrt(float64(c.Hidden)))
	b.Vector(at+n.norm, &e.Norm.Weight, c.Hidden)
	b.Vector(at+n.scales, &e.Scales, len(e.Each))
	b.Vector(at+n.denseNorm, &l.DenseNorm.Weight, c.Hidden)
	b.Vector(at+n.expertsNorm, &l.ExpertsNorm.Weight, c.Hidden)
	e.RouterNorm.Eps, e.Norm.Eps = eps, eps
}

// maxExperts bounds the experts of all layers, beyond any model's.
const maxExperts = 1 << 17

// bindExperts lays out the experts of a layer.
func (x *expertsLayout) bindExperts(c *Config, b *Binder, at string) *Experts {
	e := &Experts{Routing: x.Routing, Gate: x.how, Each: make([]Expert, x.experts)}
	e.few = sync.OnceValue(e.asFew)
	b.Matrix(at+x.router+".weight", &e.Router, x.experts, c.Hidden)
	if x.biases {
		b.Vector(at+x.router+".bias", &e.RouterBias, x.experts)
	}
	if x.correction != "" {
		b.Vector(at+x.correction, &e.Correction, x.experts)
	}
	for i := range e.Each {
		prefix := at + fmt.Sprintf(x.each, i) + "."
		b.Expert(&e.Each[i], prefix+x.gate, prefix+x.up, prefix+x.down, x.width, c.Hidden)
		if x.biases {
			b.Vector(prefix+x.gate+".bias", &e.Each[i].Gate.Bias, x.width)
			b.Vector(prefix+x.up+".bias", &e.Each[i].Up.Bias, x.width)
			b.Vector(prefix+x.down+".bias", &e.Each[i].Down.Bias, c.Hidden)
		}
	}
	if x.shared > 0 {
		e.Shared = new(Expert)
		prefix := at + x.sharedExpert + "."
		b.Expert(e.Shared, prefix+x.gate, prefix+x.up, prefix+x.down, x.shared, c.Hidden)
		if x.sharedGate != "" {
			b.Matrix(at+x.sharedGate+".weight", &e.SharedGate, 1, c.Hidden)
		}
	}
	return e
}

// checkRouter holds the numbers to what a router can do.
func (x *expertsLayout) checkRouter(c *Config) error {
	errs := outside([]bounded{
		{"number of experts", x.experts, 1, 1 << 14}, {"experts per token", x.TopK, 1, x.experts},
		{"width of an expert", x.width, 1, 1 << 22}, {"width of the shared expert", x.shared, 0, 1 << 22},
	})
	if n := x.experts * c.Layers; x.experts > 0 && n > maxExperts {
		errs = append(errs, fmt.Errorf("number of experts: got %d in each of %d layers, want at most %d in all", x.experts, c.Layers, maxExperts))
	}
	if g := x.Groups; g > 1 && (x.experts%g != 0 || x.TopGroups < 1 || x.TopGroups > g || x.TopK > x.TopGroups*(x.experts/g)) {
		errs = append(errs, fmt.Errorf("n_group, topk_group: got %d and %d for %d experts, want groups that divide them and have %d", g, x.TopGroups, x.experts, x.TopK))
	}
	if s := x.Scale; s != 0 && !(s > 0 && s <= 1e6) {
		errs = append(errs, fmt.Errorf("routed_scaling_factor: got %v, want above 0 and at most 1e6", s))
	}
	c.ExpertWidth = max(x.width, x.shared)
	return errors.Join(errs...)
}

// headNorms says what q_norm and k_norm normalise.
type headNorms uint8

const (
	noHeadNorms headNorms = iota
	eachHead              // [headDim]
	allHeads              // [heads·headDim]
)

// blockNorms are the names of the norms around the blocks of a layer; "" is none.
type blockNorms struct{ attention, postAttention, mlp, postMLP string }

// preNorms are the norms of Llama.
var preNorms = blockNorms{attention: "input_layernorm", mlp: "post_attention_layernorm"}

// bind lays out a network with the tensor names of Llama, or those that d.names makes of them.
func (d decoderLayout) bind(c *Config, b *Binder) *Network {
	b.names = d.names
	n, scalars := &Network{Layers: make([]Layer, c.Layers)}, make([]*kernels.Tensor, c.Layers)
	b.Matrix("model.embed_tokens.weight", &n.Embedding, c.Vocab, c.Hidden)
	stream := cmp.Or(d.stream, 1)
	if d.inputs != nil {
		d.inputs.bindInputs(c, n, b, stream)
	}
	if d.norms == (blockNorms{}) {
		d.norms = preNorms
	}
	for i := range n.Layers {
		b.Layer(i)
		x := layerBinder{decoderLayout: &d, Binder: b, c: c, l: &n.Layers[i], at: fmt.Sprintf("model.layers.%d.", i), stream: stream}
		x.l.Gate = d.gate
		x.ofStream(d.norms.attention, &x.l.AttentionNorm)
		if c.Recurrent(i) {
			x.l.Recurrent = c.Recurrence(i).bind(c, b, x.at)
		} else {
			x.attention(i)
		}
		x.ofBlock(d.norms.postAttention, &x.l.PostAttentionNorm)
		x.ofStream(d.norms.mlp, &x.l.MLPNorm)
		x.mlp(i)
		x.ofBlock(d.norms.postMLP, &x.l.PostMLPNorm)
		if d.inputs != nil {
			d.inputs.bindLayer(c, x.l, b, x.at, stream)
		}
		if d.valueNorms && c.HoldsKV(i) {
			b.Ones(i, &x.l.ValueNorm.Weight, c.KV(i).Dim)
		}
		if d.scalars {
			b.Vector(x.at+"layer_scalar", &scalars[i], 1)
		}
	}
	b.Layer(c.Layers)
	b.affine("model.norm.weight", &n.FinalNorm.Weight, c.Hidden, d.normsPlus, 1)
	n.FinalNorm.Eps = c.RMSNormEps / (stream * stream)
	b.bindHead(n, c)
	if d.scalars {
		b.Loaded(func() error { return n.divide(c, stream, scalars) })
	}
	return n
}

// layerBinder lays out one layer, whose tensors' names begin with at.
type layerBinder struct {
	*decoderLayout
	*Binder
	c      *Config
	l      *Layer
	at     string
	stream float64 // that the residual stream is divided by
}

// norm asks for a norm whose output is multiplied; "" is none.
func (x *layerBinder) norm(name string, to *Norm, width int, times float64) {
	if name != "" {
		x.affine(x.at+name+".weight", &to.Weight, width, x.normsPlus, times)
	}
}

// ofStream asks for a norm of the residual stream, ofBlock for one of what is added to it.
func (x *layerBinder) ofStream(name string, to *Norm) {
	x.norm(name, to, x.c.Hidden, 1)
	to.Eps = x.c.RMSNormEps / (x.stream * x.stream)
}

func (x *layerBinder) ofBlock(name string, to *Norm) { x.norm(name, to, x.c.Hidden, 1/x.stream) }

// attention lays out the attention of layer i.
func (x *layerBinder) attention(i int) {
	c, l, shape, holds, at := x.c, x.l, x.c.KV(i), x.c.KVLayer(i) == i, x.at+"self_attn."
	q, kv, linear := c.Heads*shape.Dim, shape.Heads*shape.Dim, func(m Module, out int) { x.Linear(l, m, at+string(m), out, c.Hidden, x.qkvBias) }
	switch {
	case x.outputGate:
		x.GatedQueries(l, at+"q_proj", c, x.qkvBias)
	case x.fusedQKV:
		x.Fused(l, at+"qkv_proj", c.Hidden, false, Part{QProj, q}, Part{KProj, kv}, Part{VProj, kv})
	case x.interleaved:
		rotated := 2 * len(c.RoPEFreqs)
		x.Interleaved(l, QProj, at+"q_proj", c.Heads, c.HeadDim, rotated, c.Hidden, x.qkvBias)
		x.Interleaved(l, KProj, at+"k_proj", c.KVHeads, c.HeadDim, rotated, c.Hidden, x.qkvBias)
	default:
		linear(QProj, q)
	}
	if holds && l.Linear(KProj) == nil {
		linear(KProj, kv)
	}
	if holds && l.Linear(VProj) == nil && (!x.keysAreValues || c.Window(i) > 0) {
		linear(VProj, kv)
	}
	x.Linear(l, OProj, at+"o_proj", c.Hidden, q, x.outputBias)
	if x.sinks {
		x.Vector(at+"sinks", &l.Sinks, c.Heads)
	}
	if x.headNorms == noHeadNorms {
		return
	}
	if x.headNorms == eachHead {
		q, kv = shape.Dim, shape.Dim
	}
	x.norm("self_attn.q_norm", &l.QueryNorm, q, 1)
	if holds {
		x.norm("self_attn.k_norm", &l.KeyNorm, kv, 1)
	}
}

// mlp lays out the MLP of layer i, or its experts, or both.
func (x *layerBinder) mlp(i int) {
	c, l, inner := x.c, x.l, x.c.Intermediate
	if x.wide && c.KVLayer(i) == i {
		inner /= 2 // of the widest
	}
	if e := x.experts; e != nil && (e.dense == nil || !e.dense[i]) {
		if l.Experts = e.bindExperts(c, x.Binder, x.at); e.beside == nil {
			return
		}
		e.beside.bindBeside(c, x.Binder, l, x.at, l.MLPNorm.Eps)
	}
	if x.fusedMLP {
		x.Fused(l, x.at+"mlp.gate_up_proj", c.Hidden, false, Part{GateProj, inner}, Part{UpProj, inner})
	} else {
		x.Linear(l, GateProj, x.at+"mlp.gate_proj", inner, c.Hidden, x.mlpBias)
		x.Linear(l, UpProj, x.at+"mlp.up_proj", inner, c.Hidden, x.mlpBias)
	}
	x.Linear(l, DownProj, x.at+"mlp.down_proj", c.Hidden, inner, x.mlpBias)
}

// divide takes the scalars that multiply the residual stream after the layers out of it: with the stream divided by all
// scalars before a layer, blocks add less, and norms do not see the difference but for their epsilon. stream is what it is divided by
// before the first layer.
func (n *Network) divide(c *Config, stream float64, scalars []*kernels.Tensor) error {
	by := 1.0
	for i := range n.Layers {
		l, eps := &n.Layers[i], c.RMSNormEps/(stream*stream*by*by)
		l.AttentionNorm.Eps, l.MLPNorm.Eps = eps, eps
		if e := l.Experts; e != nil {
			e.RouterNorm.Eps, e.Norm.Eps = eps, eps
		}
		added := []Norm{l.PostAttentionNorm, l.PostMLPNorm}
		if in := l.Input; in != nil {
			in.Unit = stream * by
			added = append(added, in.PostNorm)
		}
		for _, norm := range added {
			values := norm.Weight.Float64s()
			for j := range values {
				values[j] /= by
			}
			kernels.Convert(norm.Weight, kernels.FromF64(values, norm.Weight.Shape...))
		}
		scalar := scalars[i].Float64s()[0]
		if by *= scalar; !(scalar > 0) || !(by >= 1e-30 && by <= 1e30) {
			return fmt.Errorf("model.layers.%d.layer_scalar: got %v, want a positive number, and products of them between 1e-30 and 1e30", i, scalar)
		}
	}
	n.FinalNorm.Eps = c.RMSNormEps / (stream * stream * by * by)
	return nil
}
