// Package kernels holds the numerical operations of Glimpse behind one
// interface, [Backend], on dense tensors in a backend's memory.
//
// The interface is total: every operation that the product calls is a method of every
// backend. What simpler operations can stand in for is written once, in [Decomposed], which
// backends embed; a backend overrides what it does better. Package kernelstest has cases of
// every operation, and the tests here fail for one without.
//
// # Rooms
//
//   - kernels/reference: "reference" (float32) and "reference64" (float64), plain loops
//     written for reading. They are correct for every shape, serve finite differences, and
//     judge every faster kernel.
//   - kernels/cpu: float32 on all cores, built on the vector kernels of internal/simd.
//   - kernels/cuda: a device of CUDA. Each source has its launchers beside it, which list its
//     kernels and declare what is checked at their first use. cuda/host is a driver that
//     runs the sources on the processor.
//   - kernels/formats: blocks of quantised weights, and how they are widened.
//   - kernels/memcount: counts the memory and the operations of another backend.
//   - kernels/kernelstest: what holds a backend against the float64 reference.
//   - kernels/backends: links all backends, so that [Open] finds them by name.
//
// A backend is a package that adds its constructor to [Backends]. A kernel is added in three
// places: its .cu, the .go of the same name, and a case in kernelstest where it is of a new
// operation.
//
// A device may do more: a [Selector] scores and selects cache entries in its own memory, and
// a [Stepper] reads there what changes from one decoding step to the next. Where a backend
// has neither, the packages above do so on the host.
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
