package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"glimpse/kernels"
)

// Module names a linear layer inside a decoder layer, as PEFT's target_modules
// do. LoRA factors attach to modules.
type Module string

// The linear layers of a decoder layer.
const (
	QProj    Module = "q_proj"
	KProj    Module = "k_proj"
	VProj    Module = "v_proj"
	OProj    Module = "o_proj"
	GateProj Module = "gate_proj"
	UpProj   Module = "up_proj"
	DownProj Module = "down_proj"
)

// The linear layers of every expert that a router chooses, all experts' as one module: factors of expert e are rows
// [e·r, (e+1)·r) of A [experts·r, in] and rows [e·out, (e+1)·out) of B [experts·out, r].
const (
	ExpertGate Module = "experts.gate_proj"
	ExpertUp   Module = "experts.up_proj"
	ExpertDown Module = "experts.down_proj"
)

// The linear layers around a LayerInput, to which no LoRA factors attach.
const (
	InputGate Module = "per_layer_input_gate"
	InputProj Module = "per_layer_projection"
)

// Modules lists the modules to which LoRA factors attach in the order in which a layer runs them.
var Modules = []Module{QProj, KProj, VProj, OProj, GateProj, UpProj, DownProj}

// ExpertModules are the modules of experts, to which factors attach by option.
var ExpertModules = []Module{ExpertGate, ExpertUp, ExpertDown}

// FactorModules are Modules and ExpertModules.
var FactorModules = slices.Concat(Modules, ExpertModules)

// ReachesScores tells whether a module of layer l out of layers (Config.ScoredLayers) has any effect
// on the attention scores: in the last layer only queries and keys have, so
// adapters there would never get a gradient.
func (m Module) ReachesScores(l, layers int) bool {
	return l < layers-1 || l == layers-1 && (m == QProj || m == KProj)
}

// Linear is a frozen linear layer: Weight [out, in] as stored, Bias [out] or nil
// in the backend's compute type.
type Linear struct {
	Weight, Bias *kernels.Tensor
}

// Norm has weights in the backend's compute type. The zero Norm is none.
type Norm struct {
	Weight, Bias *kernels.Tensor
	Eps          float64 // 0: the configuration's
}

// Of is n with the configuration's epsilon where it has none of its own.
func (n Norm) Of(c *Config) kernels.Norm {
	n.Eps = cmp.Or(n.Eps, c.RMSNormEps)
	return kernels.Norm(n)
}

// Layer is one decoder layer. Its MLP is down(Gate(gate, up)), or down(gelu(up)) where it has
// no gate.
type Layer struct {
	Gate kernels.Gate
	// Sinks [heads], in the compute type, are the heads' logits in the softmax's denominator; nil: none.
	Sinks *kernels.Tensor
	// AttentionNorm and MLPNorm are of the rows that the blocks read; without one a block reads the residual stream.
	AttentionNorm, MLPNorm Norm
	// QueryNorm and KeyNorm normalise every head [headDim], or all heads together
	// [heads·headDim], before the rotation.
	QueryNorm, KeyNorm Norm
	ValueNorm          Norm // of the values of every head, with weights of 1
	// PostAttentionNorm and PostMLPNorm are of the rows that the blocks add to the residual stream.
	PostAttentionNorm, PostMLPNorm Norm
	// Parallel: attention and MLP both read the residual stream and both are added to it;
	// without an MLPNorm the MLP, too, reads the rows that AttentionNorm gives.
	Parallel bool
	Experts  *Experts // in the place of the MLP, or beside it where the layer has both; nil: none
	// DenseNorm and ExpertsNorm are of the outputs of the MLP and of the experts where the layer has both, before their sum.
	DenseNorm, ExpertsNorm Norm
	// OutputGate [heads·headDim, hidden] reads what the queries read: its logistic function multiplies what attention gives;
	// the zero Linear is none.
	OutputGate Linear
	Recurrent  Recurrent   // in the place of attention, or nil
	Input      *LayerInput // that the layer reads last, or nil
	linears    map[Module]*Linear
}

// Linear returns the layer's module; nil where the layer has none of that name.
func (l *Layer) Linear(m Module) *Linear { return l.linears[m] }

// Factors says where low-rank factors of a module are: the number of linear layers that it is, all [out, in]; 0 where the layer
// has none. A row goes through active of them.
func (l *Layer) Factors(m Module) (count, active, out, in int) {
	lin := l.linears[m]
	if at := slices.Index(ExpertModules, m); at >= 0 && l.Experts != nil {
		count, active, lin = len(l.Experts.Each), l.Experts.TopK, l.Experts.Each[0].linearLayers()[at]
	} else if lin != nil {
		count, active = 1, 1
	}
	if lin == nil {
		return 0, 0, 0, 0
	}
	return count, active, lin.Weight.Dim0(), lin.Weight.Width()
}

// Shared tells that attention and MLP read the same normalised rows.
func (l *Layer) Shared() bool { return l.Parallel && l.MLPNorm.Weight == nil }

// Network is the weights of a model by their role.
type Network struct {
	Embedding *kernels.Tensor // [vocab, hidden] as stored
	Layers    []Layer
	FinalNorm Norm
	Head      Linear // [vocab, hidden]
}

// Parameters is the number of weights of the decoder layers, without embedding
// and head.
func (n *Network) Parameters() int64 {
	var total int64
	for i := range n.Layers {
		l := &n.Layers[i]
		total += tensorBytes(l.Sinks) + tensorBytes(l.OutputGate.Weight) + tensorBytes(l.OutputGate.Bias)
		if in := l.Input; in != nil {
			total += tensorBytes(in.Projection) + tensorBytes(in.Norm.Weight) + tensorBytes(in.PostNorm.Weight)
		}
		for _, norm := range []Norm{l.AttentionNorm, l.QueryNorm, l.KeyNorm, l.PostAttentionNorm, l.MLPNorm, l.PostMLPNorm, l.DenseNorm, l.ExpertsNorm} {
			total += tensorBytes(norm.Weight) + tensorBytes(norm.Bias)
		}
		for _, lin := range l.linears {
			total += tensorBytes(lin.Weight) + tensorBytes(lin.Bias)
		}
		if l.Experts != nil {
			all, _ := l.Experts.Weights()
			total += all
		}
		if l.Recurrent != nil {
			total += l.Recurrent.WeightCount()
		}
	}
	return total
}

// OnHost tells that the host computes in the middle of a step of so many rows: recurrent layers, or what the routers of experts decide
// where the backend does not.
func (n *Network) OnHost(on kernels.Backend, rows int) bool {
	return slices.ContainsFunc(n.Layers, func(l Layer) bool { return l.Recurrent != nil || l.Experts != nil && !l.Experts.OnDevice(on, rows) })
}

func tensorBytes(t *kernels.Tensor) int64 {
	if t == nil {
		return 0
	}
	return int64(t.Len())
}

// slot is a place for one stored tensor.
type slot struct {
	name  string
	shape []int
	// compute asks for a copy in the compute type (vectors); otherwise the stored
	// bytes are used where they lie.
	compute bool
	times   float64 // multiplies the sum of the numbers and plus; 0: 1
	plus    float64 // is added to a vector's numbers
	set     func(*kernels.Tensor)
	layer   int   // that it belongs to, as Binder.Layer says
	order   []int // of blocks of rows, where it is another one in memory: a copy
}

// Binder collects, while a family lays out its network, which stored tensor goes
// where, so that everything missing, surplus or misshapen is reported at once.
type Binder struct {
	slots []slot
	names *strings.Replacer // of what is asked for, nil: nothing
	layer int               // that slots are of, from 1; 0 for those before the layers
	sites []Site
	tied  []func(*Model) // run once all slots are filled
	// loaded are run after that, where there are numbers.
	loaded []func() error
	gated  bool // asked for by GatedQueries
}

// Site is a module of a layer, to which LoRA factors can attach, and the stored
// tensor that it is, with a range of rows where it is a part of a fused one.
type Site struct {
	Module Module
	Tensor string
	layer  int
}

// Layer tells that what is asked for next belongs to layer l; the number of layers stands for
// what comes after them. Before it is called, it is what comes before them.
func (b *Binder) Layer(l int) { b.layer = l + 1 }

// addSlot takes in a slot.
func (b *Binder) addSlot(s slot) {
	s.name, s.layer = b.fileName(s.name), b.layer-1
	b.slots = append(b.slots, s)
}

// site notes where a module of the present layer is.
func (b *Binder) site(m Module, tensor string) {
	b.sites = append(b.sites, Site{m, b.fileName(tensor), b.layer - 1})
}

// fileName is what files call a tensor.
func (b *Binder) fileName(name string) string {
	if b.names == nil {
		return name
	}
	return b.names.Replace(name)
}

// Matrix asks for a weight [out, in] used as stored.
func (b *Binder) Matrix(name string, dst **kernels.Tensor, out, in int) {
	b.addSlot(slot{name: name, shape: []int{out, in}, set: func(t *kernels.Tensor) { *dst = t }})
}

// Vector asks for a vector [n], converted to the compute type.
func (b *Binder) Vector(name string, dst **kernels.Tensor, n int) {
	b.affine(name, dst, n, 0, 1)
}

// deviceHeadDim is the most numbers of a head that the kernels of a device attend with.
const deviceHeadDim = 256

// computable refuses a network that a device cannot compute whole, before any weight is loaded.
func (c *Config) computable(n *Network, b *Binder, devices []kernels.Backend) error {
	var parts []string
	if dim := c.widestHead(); dim > deviceHeadDim {
		parts = append(parts, fmt.Sprintf("heads of %d numbers, where a device takes %d,", dim, deviceHeadDim))
	}
	if at := slices.IndexFunc(n.Layers, func(l Layer) bool { return l.Recurrent != nil }); at >= 0 {
		parts = append(parts, n.Layers[at].Recurrent.Noun())
	}
	if b.gated {
		parts = append(parts, "gates of what attention gives")
	}
	var together []string // on one device
	if c.SharesKV() {
		together = append(together, "layers that share a KV cache")
	}
	if slices.ContainsFunc(n.Layers, func(l Layer) bool { return l.Input != nil }) {
		together = append(together, "embeddings of layers")
	}
	if len(together) > 0 && len(devices) > 1 {
		return fmt.Errorf("%s on %d devices: it has %s, which one device alone computes", c.Architecture, len(devices), strings.Join(together, " and "))
	}
	parts = append(parts, together...)
	for _, on := range devices {
		if len(parts) > 0 && on.OwnMemory() {
			return fmt.Errorf("%s on %s: it has %s, which a processor alone computes; want --device cpu", c.Architecture, on.Device(), strings.Join(parts, " and "))
		}
	}
	return nil
}

// affine is Vector of (stored + plus) · times; Gemma's norms are stored less 1.
func (b *Binder) affine(name string, dst **kernels.Tensor, n int, plus, times float64) {
	b.addSlot(slot{name: name, shape: []int{n}, compute: true, plus: plus, times: times, set: func(t *kernels.Tensor) { *dst = t }})
}

// Linear asks for prefix.weight [out, in] and, where bias is set, prefix.bias.
func (b *Binder) Linear(l *Layer, m Module, prefix string, out, in int, bias bool) {
	b.reordered(l, m, prefix, out, in, bias, nil)
}

// Interleaved asks for queries or keys whose rotary pairs are neighbours, the first rotated dimensions of every head. They are copied into
// the order of kernels.RoPE, where the halves of the pairs follow each other.
func (b *Binder) Interleaved(l *Layer, m Module, prefix string, heads, headDim, rotated, in int, bias bool) {
	order := make([]int, heads*headDim)
	for i := range order {
		if order[i] = i; i%headDim < rotated {
			half := rotated / 2
			order[i] = i - i%headDim + 2*(i%headDim%half) + i%headDim/half
		}
	}
	b.reordered(l, m, prefix, heads*headDim, in, bias, order)
}

func (b *Binder) reordered(l *Layer, m Module, prefix string, out, in int, bias bool, order []int) {
	lin := l.addModule(m)
	b.site(m, prefix+".weight")
	b.addSlot(slot{name: prefix + ".weight", shape: []int{out, in}, set: func(t *kernels.Tensor) { lin.Weight = t }, order: order})
	if bias {
		b.addSlot(slot{name: prefix + ".bias", shape: []int{out}, compute: true, set: func(t *kernels.Tensor) { lin.Bias = t }, order: order})
	}
}

// GatedQueries asks for queries with an output gate of every head behind its query. The rows are copied so that all queries
// stand together.
func (b *Binder) GatedQueries(l *Layer, prefix string, c *Config, bias bool) {
	b.gated = true
	order := make([]int, 2*c.Heads)
	for h := range c.Heads {
		order[h], order[c.Heads+h] = 2*h, 2*h+1
	}
	q, n := l.addModule(QProj), c.Heads*c.HeadDim
	b.site(QProj, prefix+".weight[heads 0 of every 2]")
	b.addSlot(slot{name: prefix + ".weight", shape: []int{2 * n, c.Hidden}, order: order, set: func(t *kernels.Tensor) {
		q.Weight, l.OutputGate.Weight = t.Rows(0, n), t.Rows(n, 2*n)
	}})
	if bias {
		b.addSlot(slot{name: prefix + ".bias", shape: []int{2 * n}, order: order, compute: true, set: func(t *kernels.Tensor) {
			q.Bias, l.OutputGate.Bias = t.Rows(0, n), t.Rows(n, 2*n)
		}})
	}
}

// Expert asks for the weights of an expert, by the names of gate, up and down.
func (b *Binder) Expert(e *Expert, gate, up, down string, width, hidden int) {
	b.Matrix(gate+".weight", &e.Gate.Weight, width, hidden)
	b.Matrix(up+".weight", &e.Up.Weight, width, hidden)
	b.Matrix(down+".weight", &e.Down.Weight, hidden, width)
}

func (l *Layer) addModule(m Module) *Linear {
	if l.linears == nil {
		l.linears = make(map[Module]*Linear)
	}
	lin := new(Linear)
	l.linears[m] = lin
	return lin
}

// Part is a module that is a range of rows of a fused weight.
type Part struct {
	Module Module
	Out    int
}

// Fused asks for one stored prefix.weight [sum of outs, in], and prefix.bias where
// bias is set, whose rows are the given modules one after another. The modules are
// views: nothing is copied.
func (b *Binder) Fused(l *Layer, prefix string, in int, bias bool, parts ...Part) {
	out := 0
	for _, p := range parts {
		b.site(p.Module, fmt.Sprintf("%s.weight[%d:%d]", prefix, out, out+p.Out))
		out += p.Out
	}
	b.fused(l, prefix, in, bias, nil, parts)
}

// FusedGroups is Fused for queries, keys and values where all heads that share a KV
// head are stored together: its query heads, its key, its value. They are copied into the
// order of Fused.
func (b *Binder) FusedGroups(l *Layer, prefix string, c *Config, bias bool) {
	var order []int
	size := c.Group() + 2
	for m := range 3 {
		for g := range c.KVHeads {
			switch first := g * size; m {
			case 0:
				for h := range c.Group() {
					order = append(order, first+h)
				}
			default:
				order = append(order, first+c.Group()+m-1)
			}
		}
	}
	for m, heads := range []string{fmt.Sprintf("0:%d", c.Group()), fmt.Sprint(c.Group()), fmt.Sprint(c.Group() + 1)} {
		b.site(Modules[m], fmt.Sprintf("%s.weight[heads %s of every %d]", prefix, heads, size))
	}
	b.fused(l, prefix, c.Hidden, bias, order, []Part{{QProj, c.Heads * c.HeadDim}, {KProj, c.KVHeads * c.HeadDim}, {VProj, c.KVHeads * c.HeadDim}})
}

func (b *Binder) fused(l *Layer, prefix string, in int, bias bool, order []int, parts []Part) {
	out := 0
	for _, p := range parts {
		l.addModule(p.Module)
		out += p.Out
	}
	spread := func(set func(*Linear, *kernels.Tensor)) func(*kernels.Tensor) {
		return func(t *kernels.Tensor) {
			from := 0
			for _, p := range parts {
				set(l.Linear(p.Module), t.Rows(from, from+p.Out))
				from += p.Out
			}
		}
	}
	b.addSlot(slot{name: prefix + ".weight", shape: []int{out, in}, set: spread(func(lin *Linear, t *kernels.Tensor) { lin.Weight = t }), order: order})
	if bias {
		b.addSlot(slot{name: prefix + ".bias", shape: []int{out}, compute: true, set: spread(func(lin *Linear, t *kernels.Tensor) { lin.Bias = t }), order: order})
	}
}

// reordered is data of as many equal blocks as order names, which come in that order; data
// itself where it is nil.
func reordered(data []byte, order []int) []byte {
	if order == nil {
		return data
	}
	out, block := make([]byte, 0, len(data)), len(data)/len(order)
	for _, i := range order {
		out = append(out, data[i*block:][:block]...)
	}
	return out
}

// LayerNorm asks for prefix.weight and prefix.bias [n].
func (b *Binder) LayerNorm(prefix string, n *Norm, width int) {
	b.Vector(prefix+".weight", &n.Weight, width)
	b.Vector(prefix+".bias", &n.Bias, width)
}

// bindHead asks for the language model's head, or ties it to the embedding.
func (b *Binder) bindHead(n *Network, c *Config) {
	if c.TieEmbeddings {
		b.After(func(*Model) { n.Head.Weight = n.Embedding })
	} else {
		b.Matrix("lm_head.weight", &n.Head.Weight, c.Vocab, c.Hidden)
	}
}

// After runs f once all tensors are in place, for tied weights.
func (b *Binder) After(f func(*Model)) { b.tied = append(b.tied, f) }

// Loaded runs f where all tensors have their numbers.
func (b *Binder) Loaded(f func() error) { b.loaded = append(b.loaded, f) }

// Ones asks for a vector of ones for a layer, which no file has.
func (b *Binder) Ones(layer int, dst **kernels.Tensor, n int) {
	b.After(func(m *Model) {
		on := m.On(layer)
		*dst = on.Alloc(on.Compute(), n)
		on.Fill(*dst, 1)
	})
}
