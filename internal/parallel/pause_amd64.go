package parallel

// pause tells the processor that this is a spinning loop: it lasts tens of cycles,
// saves power and leaves a shared core to the other hyper-thread.
//
//go:noescape
func pause()
