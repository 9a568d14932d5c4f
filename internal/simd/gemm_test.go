package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"glimpse/internal/parallel"
)

// gemmKind is one exported product, its operands given as float32.
type gemmKind struct {
	name   string
	nt, tn bool
	s      storage
	run    func(m, n, k int, alpha float32, a []float32, lda int, b []float32, h []uint16, ldb int, beta float32, c []float32, ldc int)
}

type gemm32 func(m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int)
type gemm16 func(m, n, k int, alpha float32, a []float32, lda int, b []uint16, ldb int, beta float32, c []float32, ldc int)

// by is a product by pairs.
func by(how Rounding, f func(how Rounding, m, n, k int, alpha float32, a []float32, lda int, b []uint16, ldb int, beta float32, c []float32, ldc int)) gemm16 {
	return func(m, n, k int, alpha float32, a []float32, lda int, b []uint16, ldb int, beta float32, c []float32, ldc int) {
		f(how, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
	}
}

// how is what the product may make of its numbers.
func (k gemmKind) how() Rounding {
	switch {
	case strings.HasSuffix(k.name, "Rounded"):
		return Rounded
	case strings.HasSuffix(k.name, "Split"):
		return Split
	}
	return Exact
}

// rounds reports whether the product may round a to bfloat16.
func (k gemmKind) rounds() bool { return k.how() == Rounded }

// off is the part of a product of two numbers that it may be off by.
func (k gemmKind) off() float64 {
	if k.how() == Split && tiles {
		return 0x1p-16
	}
	return 0
}

var gemmKinds = func() []gemmKind {
	wide := func(f gemm32) func(m, n, k int, alpha float32, a []float32, lda int, b []float32, h []uint16, ldb int, beta float32, c []float32, ldc int) {
		return func(m, n, k int, alpha float32, a []float32, lda int, b []float32, _ []uint16, ldb int, beta float32, c []float32, ldc int) {
			f(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		}
	}
	half := func(f gemm16) func(m, n, k int, alpha float32, a []float32, lda int, b []float32, h []uint16, ldb int, beta float32, c []float32, ldc int) {
		return func(m, n, k int, alpha float32, a []float32, lda int, _ []float32, h []uint16, ldb int, beta float32, c []float32, ldc int) {
			f(m, n, k, alpha, a, lda, h, ldb, beta, c, ldc)
		}
	}
	return []gemmKind{
		{"NT", true, false, f32, wide(GemmNT)},
		{"NTBF16", true, false, bf16, half(by(Exact, GemmNTBF16))},
		{"NTF16", true, false, f16, half(GemmNTF16)},
		{"NN", false, false, f32, wide(GemmNN)},
		{"NNBF16", false, false, bf16, half(by(Exact, GemmNNBF16))},
		{"NNF16", false, false, f16, half(GemmNNF16)},
		{"TN", false, true, f32, wide(GemmTN)},
		{"NTBF16Rounded", true, false, bf16, half(by(Rounded, GemmNTBF16))},
		{"NNBF16Rounded", false, false, bf16, half(by(Rounded, GemmNNBF16))},
		{"NTBF16Split", true, false, bf16, half(by(Split, GemmNTBF16))},
		{"NNBF16Split", false, false, bf16, half(by(Split, GemmNNBF16))},
	}
}()

// gemmCase is a product with its operands, laid out for one kind. Gaps between rows
// and everything after the last row hold NaN.
type gemmCase struct {
	kind          gemmKind
	m, n, k       int
	alpha, beta   float32
	lda, ldb, ldc int
	a, b, c       []float32
	h             []uint16
}

func newGemmCase(kind gemmKind, m, n, k int, r *rand.Rand) *gemmCase {
	g := &gemmCase{kind: kind, m: m, n: n, k: k, alpha: 1}
	if r.IntN(2) == 0 {
		g.alpha = float32(r.NormFloat64())
	}
	if r.IntN(2) == 0 {
		g.beta = float32(r.NormFloat64())
	}
	gap := func() int { return r.IntN(3) * r.IntN(5) }
	aRows, aCols, bRows, bCols := m, k, k, n
	if kind.tn {
		aRows, aCols = k, m
	}
	if kind.nt {
		bRows, bCols = n, k
	}
	g.lda, g.ldb, g.ldc = aCols+gap(), bCols+gap(), n+gap()
	fill := func(rows, cols, stride int) []float32 {
		x := make([]float32, max((rows-1)*stride+cols, 0)+3) // the end may be any alignment
		for i := range x {
			x[i] = float32(math.NaN())
		}
		values := normal(r, rows*cols)
		for i := range rows {
			copy(x[i*stride:][:cols], values[i*cols:])
		}
		return x
	}
	g.a, g.b, g.c = fill(aRows, aCols, g.lda), fill(bRows, bCols, g.ldb), fill(m, n, g.ldc)
	if kind.rounds() { // nothing is left to round
		for i, x := range g.a {
			g.a[i] = math.Float32frombits(math.Float32bits(x) &^ 0xffff)
		}
	}
	switch kind.s {
	case bf16:
		g.h = make([]uint16, len(g.b))
		NarrowBF16(g.h, g.b)
		WidenBF16(g.b, g.h)
	case f16:
		g.h = make([]uint16, len(g.b))
		NarrowF16(g.h, g.b)
		WidenF16(g.b, g.h)
	}
	if g.beta == 0 {
		for i := range g.c {
			g.c[i] = float32(math.NaN())
		}
	}
	return g
}

func (g *gemmCase) String() string {
	return fmt.Sprintf("Gemm%s m=%d n=%d k=%d alpha=%v beta=%v lda=%d ldb=%d ldc=%d",
		g.kind.name, g.m, g.n, g.k, g.alpha, g.beta, g.lda, g.ldb, g.ldc)
}

// run computes the product into a copy of c.
func (g *gemmCase) run() []float32 {
	c := append([]float32(nil), g.c...)
	g.kind.run(g.m, g.n, g.k, g.alpha, g.a, g.lda, g.b, g.h, g.ldb, g.beta, c, g.ldc)
	return c
}

// check compares with a float64 loop. A sum of k products in float32, in any order,
// is off by at most (k+2)·2⁻²⁴ times the sum of magnitudes, to first order.
func (g *gemmCase) check(t *testing.T, got []float32) {
	t.Helper()
	for i := range g.c {
		if g.n > 0 && i/g.ldc < g.m && i%g.ldc < g.n {
			continue
		}
		if math.Float32bits(got[i]) != math.Float32bits(g.c[i]) {
			t.Fatalf("%v: wrote element %d outside c", g, i)
		}
	}
	sampled := 1
	if raceEnabled && g.m*g.n*g.k > 1<<17 {
		sampled = 11
	}
	aRow, aDepth, bDepth, bColumn := g.lda, 1, g.ldb, 1
	if g.kind.tn {
		aRow, aDepth = aDepth, aRow
	}
	if g.kind.nt {
		bDepth, bColumn = bColumn, bDepth
	}
	// dots are the sums, and the sums of magnitudes, of row i and four columns, in order of k.
	dots := func(i int, columns [4]int) (sum, magnitude [4]float64) {
		if g.k == 0 {
			return
		}
		b0, b1, b2, b3 := g.b[columns[0]*bColumn:], g.b[columns[1]*bColumn:], g.b[columns[2]*bColumn:], g.b[columns[3]*bColumn:]
		for p := range g.k {
			x, at := float64(g.a[i*aRow+p*aDepth]), p*bDepth
			x0, x1, x2, x3 := x*float64(b0[at]), x*float64(b1[at]), x*float64(b2[at]), x*float64(b3[at])
			sum[0] += x0
			sum[1] += x1
			sum[2] += x2
			sum[3] += x3
			magnitude[0] += math.Abs(x0)
			magnitude[1] += math.Abs(x1)
			magnitude[2] += math.Abs(x2)
			magnitude[3] += math.Abs(x3)
		}
		return sum, magnitude
	}
	for i := range g.m {
		var sums, magnitudes [4]float64
		for at, j := 0, i%sampled; j < g.n; at, j = at+1, j+sampled {
			if at%4 == 0 {
				last := j + (g.n-1-j)/sampled*sampled
				sums, magnitudes = dots(i, [4]int{j, min(j+sampled, last), min(j+2*sampled, last), min(j+3*sampled, last)})
			}
			sum, magnitude := sums[at%4], magnitudes[at%4]
			want, bound := float64(g.alpha)*sum, math.Abs(float64(g.alpha))*magnitude
			if g.beta != 0 {
				x := float64(g.beta) * float64(g.c[i*g.ldc+j])
				want += x
				bound += math.Abs(x)
			}
			x := float64(got[i*g.ldc+j])
			if e := math.Abs(x - want); !(e <= bound*(float64(g.k+4)*0x1p-24+g.kind.off())) {
				t.Fatalf("%v: c[%d, %d] = %v, want %v", g, i, j, x, want)
			}
		}
	}
}

func TestGemmSmallShapes(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		for i, kind := range gemmKinds {
			t.Run(kind.name, func(t *testing.T) {
				r := newRand(uint64(i))
				for range iterations(400) {
					g := newGemmCase(kind, r.IntN(71), r.IntN(71), r.IntN(71), r)
					g.check(t, g.run())
				}
				// Every number of rows and columns of a tile, every tail of k.
				apart := 70 / iterations(70)
				for size := i % apart; size < 70; size += apart {
					for _, m := range []int{1, 2, 3, 4, 5, 8, 9, 13} {
						g := newGemmCase(kind, m, size, r.IntN(40), r)
						g.check(t, g.run())
						g = newGemmCase(kind, m, r.IntN(40), size, r)
						g.check(t, g.run())
						g = newGemmCase(kind, m, 32+size/8*32, size, r)
						g.check(t, g.run())
					}
					g := newGemmCase(kind, size, r.IntN(40), r.IntN(40), r)
					g.check(t, g.run())
				}
			})
		}
	})
}

func TestGemmLargeShapes(t *testing.T) {
	shapes := [][3]int{ // m, n, k
		{1, 700, 1030}, {3, 130, 641}, {7, 96, 2000}, {16, 640, 128}, {33, 100, 961},
		{100, 200, 300}, {130, 35, 320}, {130, 64, 321}, {600, 40, 50}, {200, 300, 40},
		{60, 40, 1100}, {1100, 40, 60}, // rows of a, or of its transpose, far apart
		{70, 8, 4500}, {300, 16, 100}, {33, 9, 17}, {13, 3, 7}, // few columns
	}
	everyLevel(t, func(t *testing.T) {
		for i, kind := range gemmKinds {
			t.Run(kind.name, func(t *testing.T) {
				r := newRand(uint64(i))
				for _, s := range shapes {
					g := newGemmCase(kind, s[0], s[1], s[2], r)
					g.check(t, g.run())
				}
			})
		}
	})
}

// The bits of a product depend neither on the number of threads, nor on whether it
// runs inside a task, nor on alignment.
func TestGemmBits(t *testing.T) {
	shapes := [][3]int{{1, 2000, 515}, {6, 333, 515}, {40, 333, 515}, {500, 70, 129}, {1100, 33, 20}, {500, 8, 4500}}
	if testing.Short() {
		shapes = [][3]int{{6, 333, 515}, {500, 70, 129}} // few rows and many: each way of sharing work
	}
	everyLevel(t, func(t *testing.T) {
		for i, kind := range gemmKinds {
			t.Run(kind.name, func(t *testing.T) {
				r := newRand(uint64(i))
				for _, s := range shapes {
					g := newGemmCase(kind, s[0], s[1], s[2], r)
					previous := parallel.SetThreads(1)
					want := g.run()
					for _, threads := range []int{2, 3} {
						parallel.SetThreads(threads)
						if at := sameBits(g.run(), want); at >= 0 {
							t.Errorf("%v: %d threads: other bits at %d", g, threads, at)
						}
					}
					parallel.For(2, func(task int) {
						if at := sameBits(g.run(), want); at >= 0 {
							t.Errorf("%v: task: other bits at %d", g, at)
						}
					})
					parallel.SetThreads(previous)
					moved := *g
					moved.a = append(make([]float32, 1, len(g.a)+1), g.a...)[1:]
					moved.b = append(make([]float32, 3, len(g.b)+3), g.b...)[3:]
					moved.h = append(make([]uint16, 5, len(g.h)+5), g.h...)[5:]
					if at := sameBits(moved.run(), want); at >= 0 {
						t.Errorf("%v: moved operands: other bits at %d", g, at)
					}
				}
			})
		}
	})
}

// One row of a has the same products alone and among others of the same path, and by b as it lies and by panels of it, so a
// panel's width and the rows of a tile leave no trace.
func TestGemmTilesAgree(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		for _, kind := range gemmKinds {
			if kind.tn || kind.nt || kind.how() != Exact {
				continue
			}
			r := newRand(9)
			for _, k := range []int{50, 300} { // one share of it, and two
				all := newGemmCase(kind, 100, 160, k, r)
				all.alpha, all.beta = 1, 0
				want := all.run()
				dots := *all // of which the first columns are made of dot products
				dots.n = maxDotColumns
				few := dots.run()
				for _, m := range []int{1, 2, 5, 11, 12, 13, 16, 31} {
					for _, n := range []int{1, 7, 16, 31, 32, 33, 64, 90, 96, 160} {
						part := *all
						part.m, part.n = m, n
						c, want := part.run(), want
						if n <= maxDotColumns && m > rowUnit {
							want = few
						}
						for i := range m {
							if at := sameBits(c[i*all.ldc:][:n], want[i*all.ldc:]); at >= 0 {
								t.Fatalf("%v: c[%d, %d] has other bits than in a larger product", &part, i, at)
							}
						}
					}
				}
			}
		}
	})
}

// The rows of a product have the same bits where they are the same in a: a sequence of a
// batch may be in any row.
func TestGemmRowsAreAlike(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := newRand(10)
		for _, kind := range gemmKinds {
			if kind.tn { // whose a has no rows
				continue
			}
			for _, m := range []int{2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 25} {
				for _, s := range [][2]int{{5, 9}, {16, 7000}, {33, 70}, {90, 64}} {
					if s[1] > 1000 && (kind.s != f32 || testing.Short() || raceEnabled) {
						continue // deep enough to be cut into blocks of rows
					}
					g := newGemmCase(kind, m, s[0], s[1], r)
					for i := 1; i < m; i++ {
						copy(g.a[i*g.lda:][:g.k], g.a[:g.k])
						copy(g.c[i*g.ldc:][:g.n], g.c[:g.n])
					}
					c := g.run()
					for i := 1; i < m; i++ {
						if at := sameBits(c[i*g.ldc:][:g.n], c[:g.n]); at >= 0 {
							t.Fatalf("%v: row %d has other bits than row 0 in column %d", g, i, at)
						}
					}
				}
			}
		}
	})
}

func randomFloats(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// randomHalves is random bfloat16.
func randomHalves(r *rand.Rand, n int) []uint16 {
	h := make([]uint16, n)
	for i, x := range randomFloats(r, n) {
		h[i] = uint16(math.Float32bits(x) >> 16)
	}
	return h
}

// Products of few rows have the same bits wherever rows of weights begin in a cache line.
func TestDotsAnywhereInALine(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := newRand(11)
		for _, k := range []int{8, 16, 32, 33, 64, 80, 96, 576, 2048} {
			for _, n := range []int{1, 3, 4, 9} {
				const most = 5
				ldb := max(32, k) // rows begin at the same place of a line each where k is a multiple of 32, or below
				x, h := randomFloats(r, most*k), randomHalves(r, n*ldb)
				memory := make([]uint16, n*ldb+64)
				line := int(64-uintptr(unsafe.Pointer(&memory[0]))%64) % 64 / 2
				var want []float32
				for shift := range 32 {
					b := memory[line+shift:][:n*ldb]
					copy(b, h)
					for m := 1; m <= most; m++ {
						y := make([]float32, m*n)
						GemmNTBF16(Exact, m, n, k, 1, x, k, b, ldb, 0, y, n)
						if shift == 0 && m == 1 {
							want = y
						}
						if at := sameBits(y[:n], want); at >= 0 {
							t.Fatalf("%d rows by [%d, %d], %d bytes after a line's begin: other bits in column %d", m, n, k, 2*shift, at)
						}
					}
				}
			}
		}
	})
}

func TestGemmDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector empties pools at random")
	}
	everyLevel(t, func(t *testing.T) {
		r := newRand(3)
		for _, kind := range gemmKinds {
			for _, s := range [][3]int{{1, 64, 64}, {20, 64, 64}, {64, 256, 128}} {
				g := newGemmCase(kind, s[0], s[1], s[2], r)
				c := make([]float32, len(g.c))
				run := func() { kind.run(g.m, g.n, g.k, 1, g.a, g.lda, g.b, g.h, g.ldb, 0, c, g.ldc) }
				run()
				if n := testing.AllocsPerRun(100, run); n >= 1 {
					t.Errorf("%v: %v allocations", g, n)
				}
			}
		}
	})
}

func TestGemmPanics(t *testing.T) {
	x, h := make([]float32, 100), make([]uint16, 100)
	for _, c := range []struct {
		name, want string
		run        func()
	}{
		{"negative", "simd.GemmNT: shape m=-1 n=2 k=3, want none negative",
			func() { GemmNT(-1, 2, 3, 1, x, 3, x, 3, 0, x, 3) }},
		{"a too short", "simd.GemmNN: length of a is 5, want at least 2×3 with row stride 3",
			func() { GemmNN(2, 2, 3, 1, x[:5], 3, x, 3, 0, x, 3) }},
		{"a transposed", "simd.GemmTN: length of a is 5, want at least 3×2 with row stride 2",
			func() { GemmTN(2, 2, 3, 1, x[:5], 2, x, 3, 0, x, 3) }},
		{"b too short", "simd.GemmNTBF16: length of b is 100, want at least 34×3 with row stride 3",
			func() { GemmNTBF16(Exact, 2, 34, 3, 1, x, 3, h, 3, 0, x, 34) }},
		{"b empty", "simd.GemmNNF16: length of b is 0, want at least 3×1 with row stride 1",
			func() { GemmNNF16(2, 1, 3, 1, x, 3, nil, 1, 0, x, 34) }},
		{"stride", "simd.GemmNN: row stride of b is 1, want at least its 2 columns",
			func() { GemmNN(2, 2, 3, 1, x, 3, x, 1, 0, x, 3) }},
		{"c too short", "simd.GemmNN: length of c is 3, want at least 2×2 with row stride 2",
			func() { GemmNN(2, 2, 3, 1, x, 3, x, 2, 0, x[:3], 2) }},
		{"huge stride", "simd.GemmNN: length of a is 100, want at least 5×3 with row stride 4611686018427387904",
			func() { GemmNN(5, 2, 3, 1, x, 1<<62, x, 2, 0, x, 2) }},
	} {
		t.Run(c.name, func(t *testing.T) { mustPanic(t, c.want, c.run) })
	}
}

// TestGemmRounds: what a Rounded product rounds, and how: to nearest, ties to even.
func TestGemmRounds(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		const m, n, k = 20, 40, 600
		r := newRand(5)
		a, h := normal(r, m*k), make([]uint16, n*k)
		NarrowBF16(h, normal(r, len(h)))
		for i := range k { // ties, to both sides
			a[i] = math.Float32frombits(math.Float32bits(a[i])&^0xffff | 0x8000)
		}
		nearest, narrow := make([]float32, len(a)), make([]uint16, len(a))
		NarrowBF16(narrow, a)
		WidenBF16(nearest, narrow)
		if !RoundsBF16() {
			nearest = a
		}
		for _, kind := range gemmKinds {
			if !kind.rounds() {
				continue
			}
			ldb := n
			if kind.nt {
				ldb = k
			}
			g := &gemmCase{kind: kind, m: m, n: n, k: k, alpha: 1, lda: k, ldb: ldb, ldc: n, a: a, b: make([]float32, n*k), h: h, c: make([]float32, m*n)}
			WidenBF16(g.b, h)
			got := g.run()
			g.a = nearest
			g.check(t, got)
			g.a, g.m = a, maxDotRows // few rows are never rounded
			g.c = g.c[:g.m*n]
			g.check(t, g.run())
		}
	})
}

// TestRoundedAfterNaN: what a product of pairs leaves in the memory that the next one takes is not multiplied, not even by 0.
func TestRoundedAfterNaN(t *testing.T) {
	defer parallel.SetThreads(parallel.SetThreads(1))
	everyLevel(t, func(t *testing.T) {
		const m, n, deep, k = 40, 40, 128, 106
		nan, ones := make([]float32, m*deep), make([]float32, m*k)
		for i := range nan {
			nan[i] = float32(math.NaN())
		}
		for i := range ones {
			ones[i] = 1
		}
		nanB, onesB, c := make([]uint16, n*deep), make([]uint16, n*k), make([]float32, m*n)
		NarrowBF16(nanB, nan)
		NarrowBF16(onesB, ones)
		for range 20 { // memory comes from a pool
			for _, nt := range []bool{true, false} {
				if nt {
					GemmNTBF16(Rounded, m, n, deep, 1, nan, deep, nanB, deep, 0, c, n)
					GemmNTBF16(Rounded, m, n, k, 1, ones, k, onesB, k, 0, c, n)
				} else {
					GemmNNBF16(Rounded, m, n, deep, 1, nan, deep, nanB, n, 0, c, n)
					GemmNNBF16(Rounded, m, n, k, 1, ones, k, onesB, n, 0, c, n)
				}
				if at := slices.IndexFunc(c, func(x float32) bool { return x != k }); at >= 0 {
					t.Fatalf("nt=%v: c[%d] = %v, want %d", nt, at, c[at], k)
				}
			}
		}
	})
}
