package collective

import (
	"context"
	"slices"
	"sync"
	"unsafe"
)

// Sums is what a rank has of the numbers that all ranks add up, in pieces that are the same on every
// rank. On rank 0 they begin with what it has; on the others their values are of no account.
type Sums interface {
	Pieces() int
	// Exchange sends and receives pieces, all at the same time. What passes between two ranks
	// is in the same order on both. It may return before the pieces have come where Add
	// waits for them.
	Exchange(ctx context.Context, moves []Move) error
	// Add puts what this rank has onto a piece that has come, in the order in which one process would.
	Add(piece int)
}

// Move is a piece on its way to or from another rank.
type Move struct {
	Peer  int
	Sends bool
	Total bool // the piece is the sum over all ranks, on its way back
	Piece int
}

// Chain adds over all ranks, in their order. When it returns, s is the sum of all on every rank
// (or will be, as its Exchange says), with the bits of one process that adds everything in that order.
//
// It goes in ticks, which are the same on all ranks: what one sends in a tick another
// receives in the same tick, so that nobody waits in a circle. A piece goes from rank to rank, one a
// tick; the last rank has the whole and sends it to the first, from where it goes the same way. A
// rank's memory of a piece has its partial sum, and later the whole.
func Chain(ctx context.Context, rank, size int, s Sums) error {
	pieces, last := s.Pieces(), size-1
	if last == 0 || pieces == 0 {
		return nil
	}
	moves := make([]Move, 0, 4)
	move := func(peer int, sends, total bool, piece int) {
		if piece >= 0 && piece < pieces {
			moves = append(moves, Move{peer, sends, total, piece})
		}
	}
	for tick := 1; tick < pieces+2*last; tick++ {
		moves = moves[:0]
		came := tick - rank
		if rank > 0 {
			move(rank-1, false, false, came)
		}
		if rank == last {
			move(0, true, true, came-1)
		} else {
			before := (rank + last) % (last + 1) // the last has the whole, before the first
			move(rank+1, true, false, came-1)
			move(before, false, true, came-last-1)
			if rank+1 < last {
				move(rank+1, true, true, came-last-2)
			}
		}
		if err := s.Exchange(ctx, moves); err != nil {
			return err
		}
		if rank > 0 && came >= 0 && came < pieces {
			s.Add(came)
		}
	}
	return nil
}

// PieceLen is how many of n numbers in the host's memory a piece should have: an eighth of a rank's
// share, so that all ranks are soon at work, but 65,536 at least and a million at most, since each message
// costs its sender and its receiver a wait.
func PieceLen(n, size int) int { return max(64<<10, min(1<<20, n/(8*size))) }

// Messages are sums in the memory of the host, which pass as messages of a group.
type Messages struct {
	Group  Group
	Memory [][][]byte // of the pieces, each of one or more parts
	Put    func(piece int)
}

// Pieces implements Sums.
func (m *Messages) Pieces() int { return len(m.Memory) }

// Add implements Sums.
func (m *Messages) Add(piece int) { m.Put(piece) }

// joined are the parts of a piece as one message: each message costs a wait.
var joined = sync.Pool{New: func() any { return new([]byte) }}

// Exchange implements Sums. It returns when the pieces have come.
func (m *Messages) Exchange(ctx context.Context, moves []Move) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, move := range moves {
		tag, pass := tagPartial, m.Group.Recv
		if move.Total {
			tag = tagTotal
		}
		if move.Sends {
			pass = m.Group.Send
		}
		wg.Go(func() {
			parts := m.Memory[move.Piece]
			if len(parts) == 1 {
				if err := pass(ctx, move.Peer, tag, parts[0]); err != nil {
					cancel(err) // the first says why
				}
				return
			}
			n := 0
			for _, part := range parts {
				n += len(part)
			}
			buffer := joined.Get().(*[]byte)
			defer joined.Put(buffer)
			*buffer = slices.Grow((*buffer)[:0], n)[:n]
			whole := *buffer
			if move.Sends {
				for _, part := range parts {
					whole = whole[copy(whole, part):]
				}
			}
			if err := pass(ctx, move.Peer, tag, *buffer); err != nil {
				cancel(err)
				return
			}
			if !move.Sends {
				for _, part := range parts {
					whole = whole[copy(part, whole):]
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// Bytes is the memory of numbers as it is. All ranks have the same byte order: they run one program.
func Bytes[T float32 | float64](x []T) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), len(x)*int(unsafe.Sizeof(x[0])))
}
