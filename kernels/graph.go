package kernels

// Graph is work of a device that is recorded, to be started at the price of one
// launch instead of one for every kernel. The results have the same bits either way.
// A Graph is used by one goroutine at a time; others may use the device meanwhile.
//
// What is recorded must not depend on numbers that only the device knows, and must
// not wait for it: what reads results on the host, or ends in an error, is not
// recorded. Then, and where the driver cannot record, one warning says why, no graph
// of the device is recorded any more, and everything goes on without.
type Graph interface {
	// Backend is the device as the recorded operations must use it, with what decoding steps need. Outside
	// of Run and Record it is like any other.
	Backend() Stepper
	// Run runs f, whose operations start together when it returns: as a graph, or one
	// by one where that fails, for which f may be called a second time.
	Run(f func() error) error
	// Record runs f, whose operations do not start but are kept for Replay; it returns
	// false where that fails, and there is nothing to replay. The operations must not
	// take lists from the host, such as positions: they would always be the first ones.
	Record(f func()) bool
	// Replay starts the recorded operations, on the tensors that they were given.
	Replay()

	// Prepare runs f, whose operations become segment i of the next recording: in them
	// lists of the host may change from one replay to the next. All segments are prepared
	// in order before every replay, and nothing of them starts before it. What f
	// allocates holds until it is prepared again. f multiplies no matrices and reads
	// nothing of the device.
	Prepare(i int, f func() error) error
	// Prepared tells whether what is recorded serves for what was prepared: whether
	// nothing but lists differs.
	Prepared() bool
	// Segment puts a prepared segment in its place, within Record. Outside, it starts it.
	Segment(i int)
	// Close frees the graph's memory. Without it, the garbage collector does.
	Close()
}
