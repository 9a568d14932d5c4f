package simd

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
	"unsafe"

	"glimpse/internal/benchclock"
	"glimpse/internal/parallel"
)

// peerRest is the time after which the peer's threads no longer watch for work, and so
// leave the processors to us: OpenBLAS's do for some ten milliseconds.
const peerRest = 60 * time.Millisecond

// warmUp is the time after which threads that have slept run on processors of their own:
// the system moves them there only after some milliseconds. The peer has it, too.
const warmUp = 50 * time.Millisecond

// peer is a program that answers "m n k times" with the seconds of one product.
type peer struct {
	in  io.Writer
	out *bufio.Reader
}

func startPeer(b *testing.B) *peer {
	path := os.Getenv("GLIMPSE_BLAS_PEER")
	if path == "" {
		b.Skip("GLIMPSE_BLAS_PEER names no program; lab/bench/bench_cpu.sh builds one")
	}
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), fmt.Sprintf("OPENBLAS_NUM_THREADS=%d", parallel.Threads()))
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			b.Errorf("%s: %v", path, err)
		}
	})
	return &peer{in, bufio.NewReader(out)}
}

func (p *peer) seconds(b *testing.B, m, n, k, times int) float64 {
	fmt.Fprintln(p.in, m, n, k, times)
	var s float64
	if _, err := fmt.Fscanln(p.out, &s); err != nil {
		b.Fatalf("peer: %v", err)
	}
	time.Sleep(peerRest)
	return s
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// BenchmarkAgainstBLAS compares products by the rows of b with those of another
// library, in turn within one run: the rate of each, and the median of the ratios of
// neighbours (above 1: faster than the library), for weights in float32 and bfloat16,
// the latter also with the other operand rounded to bfloat16. As in a prefill, products
// follow each other: each is measured over some milliseconds, after a warm-up.
func BenchmarkAgainstBLAS(b *testing.B) {
	for _, s := range []struct{ m, n, k int }{
		{512, 128, 384}, {512, 2048, 2048}, {2048, 2048, 8192}, {2048, 8192, 2048}, // prefill
		{32, 2048, 8192}, {32, 8192, 2048}, // thin
	} {
		b.Run(fmt.Sprintf("m=%d/n=%d/k=%d", s.m, s.n, s.k), func(b *testing.B) {
			p := startPeer(b)
			r := newRand(1)
			x, w, y := normal(r, s.m*s.k), normal(r, s.n*s.k), make([]float32, s.m*s.n)
			h := make([]uint16, len(w))
			NarrowBF16(h, w)
			ours := func() { GemmNT(s.m, s.n, s.k, 1, x, s.k, w, s.k, 0, y, s.n) }
			rounded := func() { GemmNTBF16(Rounded, s.m, s.n, s.k, 1, x, s.k, h, s.k, 0, y, s.n) }
			half := func() { GemmNTBF16(Exact, s.m, s.n, s.k, 1, x, s.k, h, s.k, 0, y, s.n) }
			times := max(1, int(1e9/(float64(s.m)*float64(s.n)*float64(s.k))))
			timed := func(f func()) float64 {
				for began := time.Now(); time.Since(began) < warmUp; {
					f()
				}
				start := benchclock.Now()
				for range times {
					f()
				}
				return (benchclock.Now() - start).Seconds() / float64(times)
			}
			var f32s, bf16s, pairs, peers, ratios, ratiosBF16 []float64
			for b.Loop() {
				f, g, q := timed(ours), timed(half), p.seconds(b, s.m, s.n, s.k, times)
				pairs = append(pairs, timed(rounded))
				f32s, bf16s, peers = append(f32s, f), append(bf16s, g), append(peers, q)
				ratios, ratiosBF16 = append(ratios, q/f), append(ratiosBF16, f/g)
			}
			work := 2 * float64(s.m) * float64(s.n) * float64(s.k) / 1e9
			b.ReportMetric(work/median(f32s), "f32-GFLOP/s")
			b.ReportMetric(work/median(bf16s), "bf16-GFLOP/s")
			b.ReportMetric(work/median(pairs), "rounded-GFLOP/s")
			b.ReportMetric(work/median(peers), "BLAS-GFLOP/s")
			b.ReportMetric(median(ratios), "f32/BLAS")
			b.ReportMetric(median(ratiosBF16), "bf16/f32")
		})
	}
}

// BenchmarkDecodeBandwidth compares the rate at which products of one to eight rows by
// bfloat16 weights of 256 MiB read them with that of a streaming sum over the same
// memory, in turn within one run.
func BenchmarkDecodeBandwidth(b *testing.B) {
	const n, k = 64 << 10, 2048
	h := make([]uint16, n*k)
	r := newRand(1)
	part := make([]uint16, 1<<16)
	NarrowBF16(part, normal(r, len(part)))
	for i := 0; i < len(h); i += len(part) {
		copy(h[i:], part)
	}
	// Two neighbours are a float32 with the exponent of the second: a normal number.
	words := unsafe.Slice((*float32)(unsafe.Pointer(&h[0])), len(h)/2)
	const blocks = 256
	var sums [blocks]float32
	stream := func() {
		parallel.For(blocks, func(i int) {
			size := len(words) / blocks
			sums[i] = Sum(words[i*size:][:size])
		})
	}
	for _, m := range []int{1, 4, 8} {
		b.Run(fmt.Sprintf("m=%d/n=%d/k=%d", m, n, k), func(b *testing.B) {
			x, y := normal(r, m*k), make([]float32, m*n)
			var products, streams, ratios []float64
			for b.Loop() {
				start := benchclock.Now()
				GemmNTBF16(Exact, m, n, k, 1, x, k, h, k, 0, y, n)
				product := (benchclock.Now() - start).Seconds()
				start = benchclock.Now()
				stream()
				sum := (benchclock.Now() - start).Seconds()
				products, streams, ratios = append(products, product), append(streams, sum), append(ratios, sum/product)
			}
			b.ReportMetric(2*n*k/median(products)/1e9, "product-GB/s")
			b.ReportMetric(2*n*k/median(streams)/1e9, "sum-GB/s")
			b.ReportMetric(median(ratios), "product/sum")
		})
	}
}
