package collective_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"glimpse/internal/collective"
)

// dealer is rank 0's side of work whose pieces are their numbers' text.
type dealer struct {
	mu     sync.Mutex
	n, at  int
	failAt int // next fails at this piece; -1: never
	got    map[int][]string
}

func (d *dealer) next(context.Context) (int, []byte, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at == d.failAt {
		return 0, nil, false, errors.New("no such file")
	}
	if d.at == d.n {
		return 0, nil, false, nil
	}
	d.at++
	return d.at - 1, fmt.Append(nil, "piece ", d.at-1), true, nil
}

func (d *dealer) done(number int, result []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.got[number] = append(d.got[number], string(result))
	return nil
}

// takeAll works on pieces until there are no more.
func takeAll(ctx context.Context, g collective.Group, work func(number int, piece []byte) ([]byte, error)) error {
	t := collective.Take(ctx, g)
	return t.Finish(func() error {
		for {
			number, piece, more, err := t.Next(true)
			if err != nil || !more {
				return err
			}
			result, err := work(number, piece)
			if err != nil {
				return err
			}
			if err := t.Hand(number, result); err != nil {
				return err
			}
		}
	}())
}

// Every piece is done once, by whoever asks for it: a rank that is slow gets few, and ranks for which there
// are none end well. What follows on the same ranks is work of its own.
func TestDealGivesEveryPieceOnce(t *testing.T) {
	for _, size := range []int{1, 2, 3, 5} {
		for _, pieces := range []int{0, 1, 3, 64} {
			const rounds = 2
			var mu sync.Mutex
			by := make([]int, size)
			onRanks(size, func(g collective.Group) {
				for range rounds {
					if g.Rank() > 0 {
						err := takeAll(t.Context(), g, func(number int, piece []byte) ([]byte, error) {
							if g.Rank() == 1 {
								time.Sleep(3 * time.Millisecond) // the slow one
							}
							mu.Lock()
							by[g.Rank()]++
							mu.Unlock()
							return bytes.ToUpper(piece), nil
						})
						if err != nil {
							t.Errorf("rank %d of %d: %v", g.Rank(), size, err)
						}
						continue
					}
					d := &dealer{n: pieces, failAt: -1, got: make(map[int][]string)}
					if err := collective.Deal(t.Context(), g, d.next, d.done); err != nil {
						t.Errorf("%d ranks: %v", size, err)
					}
					want := pieces
					if size == 1 {
						want = 0 // nobody to deal to
					}
					for i := range want {
						if text := fmt.Sprint("PIECE ", i); !slices.Equal(d.got[i], []string{text}) {
							t.Errorf("%d ranks, %d pieces: of piece %d came %q, want %q once", size, pieces, i, d.got[i], text)
						}
					}
					if len(d.got) != want {
						t.Errorf("%d ranks: results of %d pieces, want %d", size, len(d.got), want)
					}
				}
			})
			if size == 3 && pieces == 64 && by[1] >= by[2] {
				t.Errorf("the slow rank did %d pieces, the fast one %d", by[1], by[2])
			}
		}
	}
}

// Without waiting, Next asks for a piece and comes back, and has it later.
func TestTakerAsksWithoutWaiting(t *testing.T) {
	release := make(chan struct{})
	onRanks(2, func(g collective.Group) {
		if g.Rank() == 0 {
			d := &dealer{n: 1, failAt: -1, got: make(map[int][]string)}
			next := func(ctx context.Context) (int, []byte, bool, error) {
				<-release
				return d.next(ctx)
			}
			if err := collective.Deal(t.Context(), g, next, d.done); err != nil {
				t.Error(err)
			}
			return
		}
		taker := collective.Take(t.Context(), g)
		if _, _, more, err := taker.Next(false); more || err != nil {
			t.Errorf("before there is a piece: %v, %v", more, err)
		}
		close(release)
		number, piece, more, err := taker.Next(true)
		if number != 0 || string(piece) != "piece 0" || !more || err != nil {
			t.Errorf("got %d, %q, %v, %v", number, piece, more, err)
		}
		if err := taker.Hand(number, nil); err != nil { // an empty result is one
			t.Error(err)
		}
		_, _, more, err = taker.Next(true)
		if err := taker.Finish(err); more || err != nil {
			t.Errorf("at the end: %v, %v", more, err)
		}
	})
}

// What goes wrong on a rank, or where pieces come from, ends the work of all, also of a rank that is in the
// midst of a piece.
func TestDealEndsWithAFailure(t *testing.T) {
	for _, c := range []struct {
		name   string
		failAt int
		rank   int // that fails in its second piece
		stops  bool
		waits  bool // rank 0 has nothing more to deal while a rank is at work, which then fails
		want   string
	}{
		{name: "a rank", failAt: -1, rank: 2, want: "device lost"},
		{name: "a rank, while a piece is waited for", failAt: -1, rank: 2, waits: true, want: "device lost"},
		{name: "the source", failAt: 5, want: "no such file"},
		{name: "a signal", failAt: -1, rank: 1, stops: true, want: "context canceled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := time.Now()
			onRanks(4, func(g collective.Group) {
				var err error
				if g.Rank() == 0 {
					d := &dealer{n: 1000, failAt: c.failAt, got: make(map[int][]string)}
					next := d.next
					if c.waits {
						var begun atomic.Int64
						next = func(ctx context.Context) (int, []byte, bool, error) {
							if begun.Add(1) > 4 {
								<-ctx.Done()
								return 0, nil, false, nil
							}
							return d.next(ctx)
						}
					}
					err = collective.Deal(t.Context(), g, next, d.done)
				} else {
					taker := collective.Take(t.Context(), g)
					pieces := 0
					err = taker.Finish(func() error {
						for {
							if c.waits && g.Rank() == c.rank {
								time.Sleep(20 * time.Millisecond) // the others have come to wait
								return errors.New(c.want)
							}
							number, _, more, err := taker.Next(true)
							if err != nil || !more {
								return err
							}
							if pieces++; pieces == 2 && g.Rank() == c.rank {
								if c.stops {
									return context.Canceled
								}
								return errors.New("device lost")
							}
							if g.Rank() == 3 { // as one whose piece takes forever
								<-taker.Context().Done()
								return context.Cause(taker.Context())
							}
							if err := taker.Hand(number, nil); err != nil {
								return err
							}
						}
					}())
				}
				if err != nil {
					g.Fail(err)
				}
				var failure *collective.Failure
				if err == nil || !errors.As(err, &failure) && err.Error() != c.want || failure != nil && failure.Reason != c.want {
					t.Errorf("rank %d: error %v, want %q", g.Rank(), err, c.want)
				}
				if errors.Is(err, context.Canceled) != c.stops {
					t.Errorf("rank %d: %v: is a cancellation: %v, want %v", g.Rank(), err, !c.stops, c.stops)
				}
			})
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}
