package model

import "glimpse/kernels"

// Gate scores the entries of a sequence when they are made, by the rows that keys and values are made of
// (KVzap, Jeblick & Jégou 2026, arXiv:2601.07891; Fast KVzip, Kim et al. 2026, arXiv:2601.17668).
// Implementations are comparable, so that equal gates run once.
type Gate interface {
	// Score writes to scores [kvHeads, rows], of the compute type, logarithms of what the entries of rows h [rows, hidden]
	// of a layer of m will be worth: what its QProj reads, of the compute type or BF16. The layer holds a cache of its own.
	// Results in between are allocated by memory.
	Score(m *Model, layer int, scores, h *kernels.Tensor, memory kernels.Allocator)
	// Weights is how many numbers of a layer each row is multiplied by.
	Weights(layer int) int
}
