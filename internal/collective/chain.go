package collective

import (
	"context"
	"errors"
	"sync"
	"unsafe"
)

// chunk is how many numbers pass the chain at a time: small enough that all ranks are soon at
// work, large enough that a message's cost is little (256 KB of float32).
const chunk = 64 << 10

// Chain adds over all ranks, in their order. x is what rank 0 begins with; on the other
// ranks its values are of no account. Every rank but the first has add put what it has
// onto the sum at [from, from+len(sum)), in the order in which one process would. When
// it returns, x is the sum of all on every rank, with the same bits.
func Chain[T float32 | float64](ctx context.Context, g Group, x []T, add func(sum []T, from int)) error {
	rank, last := g.Rank(), g.Size()-1
	if last == 0 || len(x) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var there, back error
	var wg sync.WaitGroup
	// Sums go from rank to rank; the last has the whole and sends it to the first, from where it
	// goes the same way. Both are under way at the same time, in memory of their own.
	wg.Go(func() {
		if there = partial(ctx, g, x, rank, last, add); there != nil {
			cancel()
		}
	})
	if rank != last {
		wg.Go(func() {
			if back = total(ctx, g, x, rank, last); back != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	if errors.Is(there, context.Canceled) && back != nil {
		return back
	}
	return errors.Join(there, back)
}

// partial passes the sums on. A chunk of x is overwritten by total only after the last rank has had it.
func partial[T float32 | float64](ctx context.Context, g Group, x []T, rank, last int, add func(sum []T, from int)) error {
	buffer := make([]T, min(chunk, len(x)))
	for from := 0; from < len(x); from += chunk {
		sum := x[from:min(from+chunk, len(x))]
		if rank > 0 {
			if rank < last {
				sum = buffer[:len(sum)]
			}
			if err := g.Recv(ctx, rank-1, tagPartial, Bytes(sum)); err != nil {
				return err
			}
			add(sum, from)
		}
		to, tag := rank+1, tagPartial
		if rank == last {
			to, tag = 0, tagTotal
		}
		if err := g.Send(ctx, to, tag, Bytes(sum)); err != nil {
			return err
		}
	}
	return nil
}

// total takes the whole sums and passes them on to who has none yet.
func total[T float32 | float64](ctx context.Context, g Group, x []T, rank, last int) error {
	before := rank - 1
	if rank == 0 {
		before = last
	}
	for from := 0; from < len(x); from += chunk {
		sum := x[from:min(from+chunk, len(x))]
		if err := g.Recv(ctx, before, tagTotal, Bytes(sum)); err != nil {
			return err
		}
		if rank+1 < last {
			if err := g.Send(ctx, rank+1, tagTotal, Bytes(sum)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Bytes is the memory of numbers as it is. All ranks have the same byte order: they run one program.
func Bytes[T float32 | float64](x []T) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), len(x)*int(unsafe.Sizeof(x[0])))
}
