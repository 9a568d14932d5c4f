//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"glimpse/internal/collective"
	"glimpse/internal/collective/collectivetest"
	"glimpse/kernels"
)

// linked runs f on n ranks of this process, on a device each.
func linked(t *testing.T, n int, f func(g collective.Group, b kernels.Backend, link kernels.Link, err error)) {
	t.Helper()
	openCUDA(t)
	t.Setenv("HOSTCUDA_DEVICES", fmt.Sprint(n))
	if have := len(kernels.Devices().Devices); have < n {
		t.Skipf("%d devices, want %d", have, n)
	}
	var wg sync.WaitGroup
	for rank, g := range collectivetest.InProcess(n) {
		b, err := kernels.Open(fmt.Sprintf("cuda:%d", rank))
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			link, err := b.Connect(t.Context(), g)
			f(g, b, link, err)
			if link != nil {
				link.Close()
			}
		})
	}
	wg.Wait()
}

// rowSums are sums whose pieces are rows of a tensor.
type rowSums struct {
	b        kernels.Backend
	link     kernels.Link
	sum, own *kernels.Tensor // [pieces, n]
}

func (s *rowSums) Pieces() int { return s.sum.Dim0() }
func (s *rowSums) Add(piece int) {
	s.b.Axpy(s.sum.Rows(piece, piece+1), 1, s.own.Rows(piece, piece+1))
}
func (s *rowSums) Exchange(ctx context.Context, moves []collective.Move) error {
	var list []kernels.LinkMove
	for _, m := range moves {
		row := s.sum.Rows(m.Piece, m.Piece+1).Reshape(s.sum.Width())
		half := s.sum.Width() / 2
		for _, part := range []*kernels.Tensor{row.Rows(0, half), row.Rows(half, s.sum.Width())} {
			list = append(list, kernels.LinkMove{Peer: m.Peer, Sends: m.Sends, Tensor: part})
		}
	}
	return s.link.Move(ctx, list)
}

// TestCUDALinkAddsInOrder: the chain between devices has the bits of sums in the order of the ranks,
// for more pieces than ranks, fewer, and more than are queued without a wait.
func TestCUDALinkAddsInOrder(t *testing.T) {
	for _, c := range []struct{ ranks, pieces int }{{2, 1}, {2, 150}, {3, 7}, {4, 2}, {4, 9}} {
		const n = 17
		rng := rand.New(rand.NewPCG(3, uint64(c.pieces)))
		values := make([][]float32, c.ranks)
		want := make([]float32, c.pieces*n)
		for rank := range values {
			for i := range want {
				values[rank] = append(values[rank], float32(rng.NormFloat64()*math.Exp(8*rng.Float64())))
				want[i] += values[rank][i]
			}
		}
		linked(t, c.ranks, func(g collective.Group, b kernels.Backend, link kernels.Link, err error) {
			if err != nil || !strings.HasPrefix(link.Name(), "NCCL ") {
				t.Errorf("rank %d: %v", g.Rank(), err)
				return
			}
			x := b.Place(kernels.FromF32(values[g.Rank()], c.pieces, n))
			s := &rowSums{b, link, x, x}
			if g.Rank() > 0 {
				s.sum = b.Alloc(kernels.F32, c.pieces, n)
				b.Fill(s.sum, math.NaN())
			}
			if err := collective.Chain(t.Context(), g.Rank(), g.Size(), s); err != nil {
				t.Errorf("rank %d: %v", g.Rank(), err)
			}
			if err := link.Wait(t.Context()); err != nil {
				t.Errorf("rank %d: %v", g.Rank(), err)
			}
			for i, v := range s.sum.OnHost().F32() {
				if math.Float32bits(v) != math.Float32bits(want[i]) {
					t.Errorf("%d ranks, %d pieces: rank %d has %v at %d, want %v", c.ranks, c.pieces, g.Rank(), v, i, want[i])
					return
				}
			}
		})
	}
}

// TestCUDALinkOfRanksThatAreGone: what waits for a rank that has failed ends with its number and reason,
// and the device can be used as before.
func TestCUDALinkOfRanksThatAreGone(t *testing.T) {
	start := time.Now()
	var connected sync.WaitGroup
	connected.Add(3)
	linked(t, 3, func(g collective.Group, b kernels.Backend, link kernels.Link, err error) {
		connected.Done()
		if err != nil {
			t.Errorf("rank %d: %v", g.Rank(), err)
			return
		}
		if g.Rank() == 1 {
			connected.Wait()
			g.Fail(errors.New("disk full"))
			return
		}
		x := b.Place(kernels.FromF32([]float32{1, 2}, 1, 2))
		s := &rowSums{b, link, x, x}
		err = collective.Chain(t.Context(), g.Rank(), g.Size(), s)
		if err == nil {
			err = link.Wait(t.Context())
		}
		var failure *collective.Failure
		if !errors.As(err, &failure) || failure.Rank != 1 || failure.Reason != "disk full" {
			t.Errorf("rank %d: %v, want the failure of rank 1", g.Rank(), err)
		}
		b.Fill(x, 3)
		if got := x.OnHost().F32(); got[0] != 3 || got[1] != 3 {
			t.Errorf("rank %d: the device has %v after the failure, want 3, 3", g.Rank(), got)
		}
	})
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

// TestCUDALinkRefused: what NCCL refuses on one rank is an error there, with what NCCL says, and ends
// the others.
func TestCUDALinkRefused(t *testing.T) {
	needTwin(t)
	for _, call := range []string{"ncclCommInitRankConfig", "ncclSend", "ncclRecv"} {
		t.Run(call, func(t *testing.T) {
			t.Setenv("HOSTCUDA_NCCL", "1:"+call)
			linked(t, 2, func(g collective.Group, b kernels.Backend, link kernels.Link, err error) {
				if err == nil {
					x := b.Alloc(kernels.F32, 3, 2)
					if err = collective.Chain(t.Context(), g.Rank(), g.Size(), &rowSums{b, link, x, x}); err == nil {
						err = link.Wait(t.Context())
					}
				}
				if err == nil || !strings.Contains(err.Error(), "unhandled cuda error: HOSTCUDA_NCCL (result 1)") {
					t.Errorf("rank %d: %v", g.Rank(), err)
				}
				if g.Rank() == 0 && !strings.Contains(fmt.Sprint(err), "rank 1 (") {
					t.Errorf("rank 0: %v, want the rank", err)
				}
				if err != nil {
					g.Fail(err)
				}
			})
		})
	}
	t.Run("never ready", func(t *testing.T) {
		t.Setenv("HOSTCUDA_NCCL", "stuck")
		b := openCUDA(t).B
		g := collectivetest.InProcess(1)[0]
		time.AfterFunc(100*time.Millisecond, func() { g.Fail(errors.New("told to end")) })
		if _, err := b.Connect(t.Context(), g); err == nil || !strings.Contains(err.Error(), "told to end") {
			t.Errorf("%v, want the failure", err)
		}
	})
}

// needTwin skips where the library is not the host driver's.
func needTwin(t *testing.T) {
	t.Helper()
	if !strings.Contains(os.Getenv("GLIMPSE_NCCL"), "hostcuda") {
		t.Skip("not on the host driver")
	}
}

// TestCUDALinkMissing: ranks that cannot be connected have the same reason, and no error that ends them.
func TestCUDALinkMissing(t *testing.T) {
	openCUDA(t)
	const variable = "LINK_MISSING"
	if os.Getenv(variable) == "" {
		needTwin(t)
	}
	why := func(t *testing.T) string {
		b, err := kernels.Open("cuda:0")
		if err != nil {
			t.Fatal(err)
		}
		reasons := make([]string, 2)
		var wg sync.WaitGroup
		for rank, g := range collectivetest.InProcess(2) {
			wg.Go(func() {
				var none *kernels.NoLinkError
				if _, err := b.Connect(t.Context(), g); errors.As(err, &none) {
					reasons[rank] = none.Why
				} else {
					t.Errorf("rank %d: %v, want no link", rank, err)
				}
			})
		}
		wg.Wait()
		if reasons[0] != reasons[1] {
			t.Errorf("reasons %q", reasons)
		}
		return reasons[0]
	}
	if os.Getenv(variable) != "" {
		fmt.Println("why:", why(t))
		return
	}
	if got, want := why(t), "ranks 0 and 1 share cuda:0, which NCCL does not allow"; got != want {
		t.Errorf("two ranks on a device: %q, want %q", got, want)
	}
	for library, want := range map[string]string{
		"off":         "rank 0: NCCL is switched off by GLIMPSE_NCCL=off",
		"/nowhere.so": "rank 0: NCCL was not found; install it",
		"libm.so.6":   "libm.so.6: no function ncclGetVersion, want NCCL 2.14 or later",
	} {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestCUDALinkMissing$", "-test.v")
		cmd.Env = append(os.Environ(), variable+"=1", "GLIMPSE_NCCL="+library)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("GLIMPSE_NCCL=%s: %v: %s, want %q", library, err, out, want)
		}
	}
}
