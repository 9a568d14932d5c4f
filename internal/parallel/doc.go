// Package parallel runs the independent tasks of one numerical operation on all
// cores.
//
// [For] is a loop whose iterations may run at the same time:
//
//	parallel.For(blocks, func(block int) {
//		lo, hi := block*size, min((block+1)*size, n)
//		simd.Exp(dst[lo:hi], src[lo:hi])
//	})
//
// # Determinism
//
// Which worker runs a task, and in which order, is not defined; so a result has
// the same bits for every thread count exactly if each task writes its own
// outputs and the number of tasks depends on the problem alone. Split by shape,
// never by [Threads].
//
// # Cost
//
// A transformer layer is a few dozen operations of some microseconds each, so the
// package is built for latency. Workers are started once and stay. After its last
// task a worker watches for the next loop for 50 µs, or 300 where that has been long
// enough nearly every time, and only then sleeps: loops that follow each other closely
// start in well under a microsecond, and an idle program uses no processor time. Each goroutine has
// an equal share of the tasks, one after the other, which it claims one by one, in order, so that it reads
// on in memory; then it claims what is left of the shares of others, so uneven tasks balance themselves.
// The caller works too, so a loop never waits for a worker to wake up.
//
// # Nesting
//
// There is one set of workers and one loop at a time owns it. A For inside a task,
// or one that starts while another goroutine's For is running, runs its tasks on
// the calling goroutine in order. Nothing waits for the workers to become free, so
// no combination of calls can deadlock, and the processors are not
// oversubscribed.
package parallel
