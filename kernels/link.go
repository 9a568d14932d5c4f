package kernels

import (
	"context"

	"glimpse/internal/collective"
)

// Link connects a device with the devices of the other ranks of a run, so that numbers pass between their
// memories without the host's. It is for one goroutine at a time.
type Link interface {
	// Name says what it is, with its version.
	Name() string
	// Move queues tensors to be sent and received, all at the same time, after the operations
	// that were queued before and before those that follow. Ranks call it with moves that fit each
	// other: what passes between two of them is in the same order on both. The error is that
	// of ctx, the *collective.Failure of the rank that ended the run, or the library's;
	// then the link is of no use any more.
	Move(ctx context.Context, moves []LinkMove) error
	// Wait returns when all that was queued is done; errors are as of Move.
	Wait(ctx context.Context) error
	// Close ends it, after a Wait, on all ranks.
	Close()
}

// LinkMove is a contiguous tensor on its way to or from another rank.
type LinkMove struct {
	Peer   int
	Sends  bool
	Tensor *Tensor
}

// NoLinkError is the error of ranks that have devices and no way between them. All ranks have it.
type NoLinkError struct{ Why string }

func (e *NoLinkError) Error() string { return "no link between devices: " + e.Why }

// Connect has nothing to connect: the memory is the host's.
func (Decomposed) Connect(context.Context, collective.Group) (Link, error) { return nil, nil }
