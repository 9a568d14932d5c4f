package model

import "glimpse/kernels"

// defaultChunk is the number of prompt rows that go through a layer at once where the
// backend has no opinion: it bounds the memory of activations and is past the point where
// a processor's matrix products get any faster.
const defaultChunk = 512

// chunkRows is the number of prompt rows that go through a layer at once.
func (m *Model) chunkRows() int {
	if n := m.Backend.PrefillChunk(m.rowBytes()); n > 0 {
		return n
	}
	return defaultChunk
}

// rowBytes is the memory that a row takes while it is in a layer: queries, keys, values
// and outputs of attention, what is added to the residual stream, the rows through both
// norms, and the MLP.
func (m *Model) rowBytes() int64 {
	c := &m.Config
	width := 2*c.Heads*c.HeadDim + 2*c.KVHeads*c.HeadDim + 4*c.Hidden + 3*c.Intermediate
	return int64(width) * int64(m.Backend.Compute().Size())
}

// appendsProbes tells that probes go through the layers together with the last rows of a prompt:
// where a pass of their own would wait for the weights.
func (m *Model) appendsProbes() bool {
	return m.Backend.PrefillChunk(m.rowBytes()) > 0
}

// attentionReaders are the modules that read the rows that layer l's first norm gives.
func (m *Model) attentionReaders(l int) []Module {
	if m.Network.Layers[l].shared() {
		return parallelReaders
	}
	return parallelReaders[:3]
}

var parallelReaders = []Module{QProj, KProj, VProj, GateProj, UpProj}

// inputType is the type of rows that modules of layer l read: BF16 where all of them
// would round so many rows, so that they are rounded once.
func (m *Model) inputType(l, rows int, modules ...Module) kernels.DType {
	for _, module := range modules {
		if lin := m.Network.Layers[l].Linear(module); lin != nil && !m.Backend.RoundsToBF16(rows, lin.Weight) {
			return m.Backend.Compute()
		}
	}
	return kernels.BF16
}

// input allocates rows of the given width for modules of layer l to read.
func (r *Runner) input(l, rows, width int, modules ...Module) *kernels.Tensor {
	return r.arena.Alloc(r.Model.inputType(l, rows, modules...), rows, width)
}
