package model

import (
	"fmt"
	"slices"

	"glimpse/kernels"
)

// Recurrence is a mixer in the place of attention, as a configuration has it: what a layer knows of the rows before is a state,
// whatever their number. A kind of it is one file; caches, passes, the student's graph and forecasts ask no more than this.
type Recurrence interface {
	// Noun names the mixers in errors, in the plural.
	Noun() string
	// StateShapes are the extents of the tensors that a state is.
	StateShapes() [][]int
	// RowWidth is how many numbers of a row are there at a time on its way through.
	RowWidth() int
	// Operations are the floating-point operations of a row beside its products with the Matrices.
	Operations() float64

	// bind asks for the weights of a layer, whose names begin with at.
	bind(c *Config, b *Binder, at string) Recurrent
}

// Recurrent is a Recurrence with the weights of a layer.
type Recurrent interface {
	Recurrence
	// Matrices are the weights that rows are multiplied by, WeightCount the number of all weights.
	Matrices() []*kernels.Tensor
	WeightCount() int64
	// Forward writes to y [rows, hidden] scale times what the rows of a pass give, zeros of those after its runs, and moves the
	// states of the runs on. A row has the same bits however the rows of its run are cut into passes of few rows.
	Forward(y *kernels.Tensor, p MixerPass, scale float64)
	// Backward writes to dh [rows, hidden] the gradient of the rows from that of Forward's output, dy [rows, hidden], in a pass of
	// one run, whose state is that before the run and stays as it is. The weights and the state are constants.
	Backward(dh *kernels.Tensor, p MixerPass, dy *kernels.Tensor, scale float64)
}

// MixerPass is rows H [rows, hidden], in the compute type, that go through a recurrent layer: the rows of the runs, one after the
// other, and rows that only fill up. Temporary memory is taken from the arena.
type MixerPass struct {
	On    kernels.Backend
	Arena *kernels.Arena
	H     *kernels.Tensor
	Runs  []Run
	// Counts tells that there are no numbers ([Model.Counts]).
	Counts bool
}

// Run is rows of a pass that follow each other in one sequence, whose state they move on.
type Run struct {
	Rows  int
	State State
	// From, where it is set, is the state that State begins as once the runs before have moved theirs.
	From State
}

// State is what a recurrent layer knows of the rows of a sequence so far: tensors of its StateShapes in the compute type.
type State []*kernels.Tensor

// NewState is that before the first row, in memory of from, or with undefined numbers where zero is not set.
func NewState(on kernels.Backend, from kernels.Allocator, r Recurrence, zero bool) (x State) {
	for _, shape := range r.StateShapes() {
		t := from.Alloc(on.Compute(), shape...)
		if zero {
			on.Fill(t, 0)
		}
		x = append(x, t)
	}
	return x
}

// Set makes x the state that from is.
func (x State) Set(on kernels.Backend, from State) {
	for i, t := range x {
		on.Copy(t, from[i])
	}
}

// Bytes is the memory of x.
func (x State) Bytes() (n int64) {
	for _, t := range x {
		n += int64(t.Bytes())
	}
	return n
}

// StateBytes is the memory of a layer's state in a type.
func StateBytes(r Recurrence, d kernels.DType) (n int64) {
	for _, shape := range r.StateShapes() {
		n += int64(d.Bytes(kernels.ShapeLen(shape)))
	}
	return n
}

// recurrentLayers gives the layers that layer_types calls by a name a recurrence. The others attend, at least one of them.
func (c *Config) recurrentLayers(types []string, name string, r Recurrence) error {
	if len(types) != c.Layers {
		return fmt.Errorf("layer_types: got %d, want num_hidden_layers %d of them", len(types), c.Layers)
	}
	for l, kind := range types {
		if kind != "full_attention" && kind != name {
			return fmt.Errorf("layer_types: got %q, want full_attention or %s", kind, name)
		}
		if kind == name {
			c.ownMixers()[l].Recurrence = r
		}
	}
	if !slices.Contains(types, "full_attention") {
		return fmt.Errorf("layer_types: got %s alone, want a layer with full_attention", name)
	}
	return nil
}

// recurrentWidth is the largest RowWidth of any layer.
func (c *Config) recurrentWidth() (n int) {
	for _, m := range c.Mixers {
		if m.Recurrence != nil {
			n = max(n, m.Recurrence.RowWidth())
		}
	}
	return n
}
