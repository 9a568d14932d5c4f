package collective_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"glimpse/internal/collective"
	"glimpse/internal/collective/collectivetest"
)

// onRanks runs f on n ranks of this process.
func onRanks(n int, f func(g collective.Group)) {
	var wg sync.WaitGroup
	for _, g := range collectivetest.InProcess(n) {
		wg.Go(func() { f(g) })
	}
	wg.Wait()
}

// The sum of a chain has the bits of one process that adds everything in order, for any number
// of ranks, and numbers that do not fill their last piece.
func TestChainHasTheBitsOfOneProcess(t *testing.T) {
	const samples, chunk, n = 13, 700, 16<<10 + 77
	rng := rand.New(rand.NewPCG(1, 2))
	grads := make([][]float32, samples)
	want := make([]float32, n)
	for s := range grads {
		grads[s] = make([]float32, n)
		for i := range grads[s] {
			grads[s][i] = float32(rng.NormFloat64() * math.Exp(8*rng.Float64()))
			want[i] += grads[s][i]
		}
	}
	for _, size := range []int{1, 2, 3, 4, 8, 16} { // 16: more ranks than samples
		onRanks(size, func(g collective.Group) {
			from, to := collective.Share(samples, g.Rank(), size)
			x := make([]float32, n)
			s := &collective.Messages{Group: g}
			var begins []int
			for at := 0; at < n; at += chunk {
				begins = append(begins, at)
				middle, end := min(at+chunk/3, n), min(at+chunk, n)
				s.Memory = append(s.Memory, [][]byte{collective.Bytes(x[at:middle]), collective.Bytes(x[middle:end])})
			}
			s.Put = func(piece int) {
				at := begins[piece]
				for _, grad := range grads[from:to] {
					for i := at; i < min(at+chunk, n); i++ {
						x[i] += grad[i]
					}
				}
			}
			for piece := range begins {
				if g.Rank() == 0 {
					s.Put(piece)
				}
			}
			if err := collective.Chain(context.Background(), g.Rank(), size, s); err != nil {
				t.Errorf("%d ranks: rank %d: %v", size, g.Rank(), err)
			}
			for i := range x {
				if math.Float32bits(x[i]) != math.Float32bits(want[i]) {
					t.Errorf("%d ranks: rank %d has %v at %d, want %v", size, g.Rank(), x[i], i, want[i])
					return
				}
			}
		})
	}
}

func TestShareLeavesNothingOut(t *testing.T) {
	for _, size := range []int{1, 2, 3, 8} {
		for n := range 20 {
			at := 0
			for rank := range size {
				from, to := collective.Share(n, rank, size)
				if from != at || to < from || to-from > n/size+1 {
					t.Errorf("%d of %d: rank %d has [%d, %d), want from %d", n, size, rank, from, to, at)
				}
				at = to
			}
			if at != n {
				t.Errorf("%d of %d ranks: shared out %d", n, size, at)
			}
		}
	}
}

func TestGatherAndBroadcast(t *testing.T) {
	onRanks(5, func(g collective.Group) {
		mine := bytes.Repeat([]byte{byte(g.Rank())}, 3*g.Rank()) // of rank 0 nothing
		all, err := collective.GatherBytes(context.Background(), g, mine)
		if err != nil || len(all) != 5 {
			t.Errorf("gather: %d, %v", len(all), err)
			return
		}
		for rank, b := range all {
			if !bytes.Equal(b, bytes.Repeat([]byte{byte(rank)}, 3*rank)) {
				t.Errorf("rank %d has %v of rank %d", g.Rank(), b, rank)
			}
		}
		got, err := collective.Broadcast(context.Background(), g, []byte(fmt.Sprint("from ", g.Rank())))
		if err != nil || string(got) != "from 0" {
			t.Errorf("rank %d: broadcast: %q, %v", g.Rank(), got, err)
		}
	})
}

// A rank that fails ends what the others wait for, with its number and reason.
func TestFailureEndsWaits(t *testing.T) {
	start := time.Now()
	onRanks(4, func(g collective.Group) {
		if g.Rank() == 2 {
			g.Fail(errors.New("disk full"))
			return
		}
		x := make([]float32, 10)
		err := collective.Chain(context.Background(), g.Rank(), 4, &collective.Messages{Group: g, Memory: [][][]byte{{collective.Bytes(x)}}, Put: func(int) {}})
		var failure *collective.Failure
		if !errors.As(err, &failure) || failure.Rank != 2 || failure.Reason != "disk full" {
			t.Errorf("rank %d: %v, want the failure of rank 2", g.Rank(), err)
		}
	})
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}
