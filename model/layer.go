package model

import (
	"cmp"
	"glimpse/kernels"
)

// LayerOps are the operations of a decoder layer. T is a tensor of a backend, which
// computes at once, or a node of a graph that is differentiated later. The residual stream
// is kept by the implementation, which also knows the rows of the pass and what of them is
// read later: nothing else is computed.
type LayerOps[T any] interface {
	headOps[T]

	// Projections are the queries, keys and values of the rows through AttentionNorm: zero
	// where nothing reads them, and keys and values where the layer reads another one's (Config.KVLayer).
	Projections() (q, k, v T)
	// NormRotate is Norm and Rotate of queries and keys in place, where they can be
	// done at once; otherwise it returns false and changes nothing.
	NormRotate(q, k T) bool
	// Recur is scale times what a recurrent layer's mixer gives of the rows through AttentionNorm; false where nothing reads
	// what the layer leaves.
	Recur(r Recurrent, scale float64) (delta T, ok bool, err error)
	// OutputGate is x times the logistic function of the gate's outputs for Normalised rows.
	OutputGate(gate Linear, x T) T
	// Attend takes in keys and values, if the layer has its own, and lets the queries attend. It returns false where
	// nothing reads what the layer leaves.
	Attend(q, k, v T) (out T, ok bool, err error)

	// Linear is scale · x Wᵀ + bias of a module, with its low-rank update.
	Linear(m Module, x T, scale float64) T
	// Normalised is the rows that Projections have read, for the MLP to read too.
	Normalised() T
	// Read is the residual stream through n, for modules to read; with the zero Norm as it is.
	Read(n Norm, readers []Module) T
	// Add adds delta to the residual stream.
	Add(delta T)
	// AddRead is Add and then Read.
	AddRead(delta T, n Norm, readers []Module) T
	// Leave is the Add that ends the layer; next is the norm that will read the sum.
	Leave(delta T, next Norm)

	// Gated is SiLUMul of GateProj and UpProj of h where they can be computed at once;
	// false where not.
	Gated(h T) (act T, ok bool)
	// GateMul is what a gate lets through of up, for a module to read.
	GateMul(act kernels.Gate, gate, up T, reader Module) T
	// GELU is gelu(x), for DownProj to read.
	GELU(x T) T
	// Experts is scale times what experts give of rows h.
	Experts(e *Experts, h T, scale float64) T
	// Sum is a plus b, in the place of a.
	Sum(a, b T) T
	// Input is the rows' own embedding for the layer.
	Input(in *LayerInput) T
}

// headOps are those that queries and keys go through before they attend.
type headOps[T any] interface {
	// Norm normalises the rows of x, or parts of them as wide as n's weight, as every head; with the zero Norm it
	// returns x.
	Norm(x T, n Norm) T
	// Rotate rotates queries (QProj) or keys (KProj) to the positions of their rows.
	Rotate(m Module, x T) T
}

// mlpReaders are the modules that read the rows through MLPNorm.
var mlpReaders = []Module{UpProj, GateProj}

// inputReaders are those that read the residual stream where a layer has an Input.
var inputReaders = []Module{InputGate}

// RunLayer runs the rows of a pass through layer l: what a decoder layer computes is said
// here and nowhere else. Where the rows come from and how they attend is o's.
func RunLayer[T any](o LayerOps[T], m *Model, l int) error {
	layer, scale := &m.Network.Layers[l], cmp.Or(m.Config.BlockScale, 1)
	delta, ok, err := mix(o, m, l, scale)
	if !ok || err != nil {
		return err
	}
	delta = o.Norm(delta, layer.PostAttentionNorm)
	var h T
	switch {
	case !layer.Parallel:
		h = o.AddRead(delta, layer.MLPNorm, mlpReaders)
	case layer.Shared():
		h = o.Normalised()
		o.Add(delta)
	default: // the norm reads rows that attention has not been added to
		h = o.Read(layer.MLPNorm, mlpReaders)
		o.Add(delta)
	}
	switch dense := layer.Linear(DownProj) != nil; {
	case layer.Experts != nil && dense:
		delta = o.Norm(o.Linear(DownProj, activation(o, layer, h), scale), layer.DenseNorm)
		delta = o.Sum(delta, o.Norm(o.Experts(layer.Experts, o.Read(Norm{}, nil), scale), layer.ExpertsNorm))
	case layer.Experts != nil:
		delta = o.Experts(layer.Experts, h, scale)
	default:
		delta = o.Linear(DownProj, activation(o, layer, h), scale)
	}
	delta = o.Norm(delta, layer.PostMLPNorm)
	if in := layer.Input; in != nil {
		o.Add(delta)
		gate := o.Linear(InputGate, o.Read(Norm{}, inputReaders), in.Unit)
		delta = o.Norm(o.Linear(InputProj, o.GateMul(layer.Gate, gate, o.Input(in), InputProj), scale), in.PostNorm)
	}
	o.Leave(delta, m.normAfter(l))
	return nil
}

// mix is scale times the output of the block in which rows see other rows.
func mix[T any](o LayerOps[T], m *Model, l int, scale float64) (delta T, ok bool, err error) {
	layer := &m.Network.Layers[l]
	if layer.Recurrent != nil {
		return o.Recur(layer.Recurrent, scale)
	}
	q, k, v := o.Projections()
	switch {
	case m.Config.KVLayer(l) != l:
		q = NormRotate(o, m, l, QProj, q)
	case !o.NormRotate(q, k):
		q, k = NormRotate(o, m, l, QProj, q), NormRotate(o, m, l, KProj, k)
	}
	if layer.ValueNorm.Weight != nil {
		v = o.Norm(v, layer.ValueNorm)
	}
	attention, ok, err := o.Attend(q, k, v)
	if !ok || err != nil {
		return delta, false, err
	}
	if layer.OutputGate.Weight != nil {
		attention = o.OutputGate(layer.OutputGate, attention)
	}
	return o.Linear(OProj, attention, scale), true, nil
}

// NormRotate is queries or keys, as their module gives them, as attention reads them.
func NormRotate[T any](o headOps[T], m *Model, l int, module Module, x T) T {
	n := m.Network.Layers[l].QueryNorm
	if module == KProj {
		n = m.Network.Layers[l].KeyNorm
	}
	if x = o.Norm(x, n); m.Config.Rotates(l) {
		x = o.Rotate(module, x)
	}
	return x
}

// activation is what the MLP's last module reads.
func activation[T any](o LayerOps[T], layer *Layer, h T) T {
	if layer.Linear(GateProj) == nil {
		return o.GELU(o.Linear(UpProj, h, 1))
	}
	if layer.Gate == kernels.SiLU {
		if act, ok := o.Gated(h); ok {
			return act
		}
	}
	up := o.Linear(UpProj, h, 1)
	return o.GateMul(layer.Gate, o.Linear(GateProj, h, 1), up, DownProj)
}

// normAfter is the norm that reads what layer l leaves: the next layer's, or the final
// one.
func (m *Model) normAfter(l int) Norm {
	if l+1 < len(m.Network.Layers) {
		return m.Network.Layers[l+1].AttentionNorm
	}
	return m.Network.FinalNorm
}
