// Package kernels holds the numerical operations of Glimpse behind one
// interface, [Backend], on dense tensors in a backend's memory.
//
// Two backends live here. "reference" (float32) and "reference64" (float64) are
// plain loops written for reading: they are correct for every shape, serve
// finite differences, and judge every faster kernel. "cpu" is float32 on all
// cores, built on the vector kernels of internal/simd. A backend is one family
// of files that registers itself in [Backends].
//
// A device may do more: a [Selector] scores and selects cache entries in its own
// memory, a [Drawer] samples tokens there. Where a backend is neither, the packages
// above do so on the host.
//
// # Shapes
//
// Activations are row-major: [rows, width] or [rows, heads, headDim], which is
// the same memory. Weights are [out, in] as in a checkpoint and may be stored
// in bf16 or f16; they are widened inside the kernels and never copied. Keys and
// values of one layer are one [KV] per KV head, each [entries, headDim], because
// heads may keep different numbers of entries after eviction.
//
// # Determinism
//
// Work is split by shape and never by the number of threads, and no sum is
// split between threads, so a result has the same bits with 1 thread and with
// all of them.
package kernels
