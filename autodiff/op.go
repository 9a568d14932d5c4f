package autodiff

import (
	"fmt"
	"hash"
	"hash/fnv"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"glimpse/kernels"

	"github.com/chewxy/hm"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// op is the one operation type of our graphs; forward and backward are closures.
type op struct {
	name    string
	id      uint64
	dtype   tensor.Dtype
	inDims  []int
	out     tensor.Shape // declared; values of length-dependent nodes have others
	forward func(in []*value) *value
	// backward builds the nodes of the inputs' gradients.
	backward func(in G.Nodes, out, grad *G.Node) (G.Nodes, error)
}

var opSerial atomic.Uint64

// applyOperation adds an operation to the graph of its inputs.
func (g *Graph) applyOperation(o op, in ...*G.Node) (*G.Node, error) {
	o.id, o.dtype = opSerial.Add(1), denseType(g.engine.backend.Compute())
	o.inDims = make([]int, len(in))
	for i, n := range in {
		o.inDims[i] = n.Dims()
	}
	return G.ApplyOp(&o, in...)
}

func (o *op) Arity() int { return len(o.inDims) }

// Type returns a fresh function type on every call: gorgonia recycles it.
func (o *op) Type() hm.Type {
	types := make([]hm.Type, 0, len(o.inDims)+1)
	for _, d := range append(slices.Clone(o.inDims), o.out.Dims()) {
		if d == 0 {
			types = append(types, o.dtype)
		} else {
			types = append(types, G.TensorType{Dims: d, Of: o.dtype})
		}
	}
	return hm.NewFnType(types...)
}

func (o *op) InferShape(...G.DimSizer) (tensor.Shape, error) { return o.out.Clone(), nil }

// Do runs on a goroutine of gorgonia's, where a panic could not be recovered by
// the caller of Run.
func (o *op) Do(in ...G.Value) (out G.Value, err error) {
	defer func() {
		r := recover()
		if device, ok := r.(*kernels.DeviceError); ok {
			err = fmt.Errorf("%s: %w", o.name, device)
		} else if r != nil {
			err = fmt.Errorf("%s: panic: %v\n%s", o.name, r, debug.Stack())
		}
	}()
	vs := make([]*value, len(in))
	for i, v := range in {
		vs[i], _ = v.(*value) // gorgonia's own constants are no values; no forward reads them
	}
	return o.forward(vs), nil
}

func (o *op) ReturnsPtr() bool     { return false }
func (o *op) CallsExtern() bool    { return false }
func (o *op) OverwritesInput() int { return -1 }

// WriteHash includes the serial: operations with equal hashes and inputs would
// be merged silently.
func (o *op) WriteHash(h hash.Hash) { fmt.Fprintf(h, "%s#%d", o.name, o.id) }

func (o *op) Hashcode() uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}

func (o *op) String() string { return fmt.Sprintf("%s#%d", o.name, o.id) }

func (o *op) DiffWRT(inputs int) []bool { return slices.Repeat([]bool{true}, inputs) }

func (o *op) SymDiff(in G.Nodes, out, grad *G.Node) (G.Nodes, error) {
	return o.backward(in, out, grad)
}

var _ G.SDOp = (*op)(nil)
