package autodiff

import (
	"errors"
	"fmt"
	"slices"

	"glimpse/kernels"

	"gorgonia.org/tensor"
)

// value is what flows along the edges of the graph: a tensor in a backend's
// memory. It embeds a *tensor.Dense only to be a tensor.Tensor for gorgonia; the
// Dense's own methods would read the memory on the host, so those that gorgonia
// might call are overridden.
type value struct {
	*tensor.Dense
	t     *kernels.Tensor
	on    *engine  // whose memory it is
	at    uintptr  // address of t
	null  bool     // an additive identity that is never read
	saved any      // what the forward pass keeps for the backward pass
	parts []*value // of an operation with several results
}

// tensors are what values hold.
func tensors(vs []*value) []*kernels.Tensor {
	out := make([]*kernels.Tensor, len(vs))
	for i, v := range vs {
		out[i] = v.t
	}
	return out
}

// Materialize keeps gorgonia's Add from unwrapping the value.
func (v *value) Materialize() tensor.Tensor { return v }
func (v *value) Zero()                      { panic("autodiff: Zero on a device tensor") }
func (v *value) Clone() any                 { panic("autodiff: Clone of a device tensor") }
func (v *value) Data() any                  { panic("autodiff: Data of a device tensor") }
func (v *value) Format(s fmt.State, _ rune) { fmt.Fprintf(s, "device%v", v.Shape()) }
func (v *value) String() string             { return fmt.Sprintf("device%v", v.Shape()) }

var _ tensor.Tensor = (*value)(nil)

func denseType(d kernels.DType) tensor.Dtype {
	if d == kernels.F64 {
		return tensor.Float64
	}
	return tensor.Float32
}

// engine gives gorgonia the one operation that it needs itself, adding
// gradients at fan-out, on their own device, and refuses everything else.
type engine struct {
	backend kernels.Backend
	arena   *kernels.Arena
	// values of all runs so far, in the order of a run; the present one has
	// taken some. A run mostly allocates what the one before did, and a Dense takes
	// longer to make than a small operation to compute.
	values []*value
	taken  int
	leaves []*value
	loss   *value
}

var errDevice = errors.New("autodiff: host access to device memory")

func (e *engine) AllocAccessible() bool                           { return false }
func (e *engine) Alloc(int64) (tensor.Memory, error)              { return nil, errDevice }
func (e *engine) Free(tensor.Memory, int64) error                 { return errDevice }
func (e *engine) Memset(tensor.Memory, any) error                 { return errDevice }
func (e *engine) Memclr(tensor.Memory)                            { panic(errDevice) }
func (e *engine) Memcpy(_, _ tensor.Memory) error                 { return errDevice }
func (e *engine) Accessible(tensor.Memory) (tensor.Memory, error) { return nil, errDevice }
func (e *engine) WorksWith(tensor.DataOrder) bool                 { return true }
func (e *engine) NonStdAlloc()                                    {}
func (e *engine) AddScalar(tensor.Tensor, any, bool, ...tensor.FuncOpt) (tensor.Tensor, error) {
	return nil, errDevice
}

// Add implements tensor.Adder, out of place: gorgonia may still need both
// inputs.
func (e *engine) Add(a, b tensor.Tensor, _ ...tensor.FuncOpt) (tensor.Tensor, error) {
	x, okX := a.(*value)
	y, okY := b.(*value)
	switch {
	case !okX || !okY:
		return nil, fmt.Errorf("autodiff: add %T and %T", a, b)
	case y.null:
		return x, nil
	case x.null:
		return y, nil
	case !x.Shape().Eq(y.Shape()):
		return nil, fmt.Errorf("autodiff: add %v and %v", x.Shape(), y.Shape())
	}
	sum := x.on.allocValue(x.Shape()...)
	x.on.backend.Add(sum.t, x.t, y.t)
	return sum, nil
}

// allocValue makes a value of the compute type with undefined contents.
func (e *engine) allocValue(shape ...int) *value {
	t := e.arena.Alloc(e.backend.Compute(), shape...)
	if e.taken == len(e.values) {
		e.values = append(e.values, nil)
	}
	v := e.values[e.taken]
	if v == nil || v.t != t || v.at != t.Addr() || !v.Shape().Eq(tensor.Shape(t.Shape)) {
		v = e.wrap(t)
		e.values[e.taken] = v
	}
	e.taken++
	v.null, v.saved, v.parts = false, nil, nil
	return v
}

// release ends the life of all values.
func (e *engine) release() {
	e.arena.Release(nil)
	e.taken = 0
}

// forget lets go of all memory: gorgonia's own pools refer to values of graphs that are
// gone until they are used again.
func (e *engine) forget() {
	for _, v := range append(slices.Concat(e.values, e.leaves), e.loss) {
		if v != nil {
			*v = value{}
		}
	}
	e.values, e.leaves, e.loss, e.taken, e.arena = nil, nil, nil, 0, kernels.NewArena(e.backend)
}

// wrap makes a value of an existing tensor.
func (e *engine) wrap(t *kernels.Tensor) *value {
	return &value{t: t, on: e, at: t.Addr(), Dense: tensor.New(tensor.Of(denseType(t.DType)), tensor.WithEngine(e),
		tensor.WithShape(t.Shape...), tensor.FromMemory(t.Addr(), uintptr(t.Bytes())))}
}

// null makes an additive identity.
func (e *engine) null(shape tensor.Shape) *value {
	v := e.allocValue(shape...)
	v.null = true
	return v
}
