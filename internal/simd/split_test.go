package simd

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"glimpse/internal/parallel"
)

// Sizes at which a product takes another path or is cut in another way, per letter of
// its shape; each stands for itself and its neighbours.
var (
	rowEdges    = []int{1, 4, rowUnit, maxDotRows, 2 * rowUnit, minRows, 2 * minRows, maxRows, maxRoundedRows}
	columnEdges = []int{1, dotColumns, maxDotColumns, 2 * dotColumns, maxColumns, 3 * maxColumns, 9 * maxColumns}
	depthEdges  = []int{2, leastTurned, leastDots, maxDepth, 2 * maxDepth, copyStride, turnedDepth, 2 * turnedDepth}
)

// nearEdges draws a shape: sizes close to their edges, and one of them, most of the
// time, such that the work is close to that of a number of tasks.
func nearEdges(r *rand.Rand) (m, n, k int) {
	most := 6
	if r.IntN(20) == 0 {
		most = maxTasks + 2
	}
	near := func(edges []int) int { return max(1, edges[r.IntN(len(edges))]+r.IntN(3)-1) }
	for {
		m, n, k = near(rowEdges), near(columnEdges), near(depthEdges)
		if r.IntN(4) == 0 { // few rows and few columns: what is cut is the depth of others
			m, n = 1+r.IntN(24), 1+r.IntN(24)
		}
		work := (1 + r.IntN(most)) * taskWork
		fit := func(others int) int { return max(1, (work+others-1)/others+r.IntN(3)-1) }
		switch r.IntN(4) {
		case 0:
			m = fit(n * k)
		case 1:
			n = fit(m * k)
		case 2:
			k = fit(m * n)
		}
		if m*n*k <= (most+1)*taskWork {
			return m, n, k
		}
	}
}

// splitCases is the number of shapes that each product is tried with.
func splitCases() int {
	if testing.Short() || raceEnabled {
		return 8
	}
	return 30
}

// TestSplits tries products of random shapes on 1 to 8 threads: their bits are those of
// one thread and of a product that is not split, no task writes outside of its block,
// and nothing is off by 1e-6 of the terms' magnitudes.
func TestSplits(t *testing.T) {
	defer parallel.SetThreads(parallel.Threads())
	everyLevel(t, func(t *testing.T) {
		for i, kind := range gemmKinds {
			t.Run(kind.name, func(t *testing.T) {
				r := newRand(uint64(100 + i))
				for range splitCases() {
					m, n, k := nearEdges(r)
					g := newGemmCase(kind, m, n, k, r)
					parallel.SetThreads(1)
					want := g.run()
					g.within(t, want, 1e-6)
					for _, threads := range []int{2 + r.IntN(3), 5 + r.IntN(4)} {
						parallel.SetThreads(threads)
						if at := sameBits(g.run(), want); at >= 0 {
							t.Fatalf("%v: %d threads: other bits at %d", g, threads, at)
						}
					}
					g.everyBlock(t, want)
				}
			})
		}
	})
}

// within checks that no element of got is off by more than bound times the sum of its
// terms' magnitudes.
func (g *gemmCase) within(t *testing.T, got []float32, bound float64) {
	t.Helper()
	aRow, aDepth, bDepth, bColumn := g.lda, 1, g.ldb, 1
	if g.kind.tn {
		aRow, aDepth = aDepth, aRow
	}
	if g.kind.nt {
		bDepth, bColumn = bColumn, bDepth
	}
	step := 1 + g.m*g.n/2000 // elements enough to see every block
	for e := 0; e < g.m*g.n; e += step {
		i, j := e/g.n, e%g.n
		var sum, magnitude float64
		for p := range g.k {
			x := float64(g.a[i*aRow+p*aDepth]) * float64(g.b[p*bDepth+j*bColumn])
			sum += x
			magnitude += math.Abs(x)
		}
		alpha := float64(g.alpha)
		sum, magnitude = alpha*sum, math.Abs(alpha)*magnitude
		if g.beta != 0 {
			x := float64(g.beta) * float64(g.c[i*g.ldc+j])
			sum += x
			magnitude += math.Abs(x)
		}
		bound := bound + g.kind.off()
		if x := float64(got[i*g.ldc+j]); !(math.Abs(x-sum) <= bound*magnitude) {
			t.Fatalf("%v: c[%d, %d] = %v, want %v within %v", g, i, j, x, sum, bound*magnitude)
		}
	}
}

// everyBlock computes the tasks of a product one by one, each into a matrix of its own.
func (g *gemmCase) everyBlock(t *testing.T, want []float32) {
	t.Helper()
	p := g.product()
	tasks := p.splitTasks()
	if tasks == 1 || tasks*g.m*g.n > 1<<20 || p.terms > 0 && p.k%2 == 1 { // takes too long, or is two products
		return
	}
	if p.terms > 0 {
		p.narrow = new(narrowed)
		p.narrow.layout(&p)
		for task := range blockCount(p.m, narrowRows) {
			p.narrowTask(task)
		}
	}
	if p.usesDots() || p.terms > 0 || p.m <= maxRows { // no more rows fit in scratch memory
		whole := slices.Clone(g.c)
		p.c = unsafe.SliceData(whole)
		p.multiplyBlock(0, p.m, 0, p.n)
		if at := sameBits(whole, want); at >= 0 {
			t.Fatalf("%v: %d tasks: other bits at %d than unsplit", g, tasks, at)
		}
	}
	covered := make([]bool, g.m*g.n)
	for task := range tasks {
		c := slices.Clone(g.c)
		p.c = unsafe.SliceData(c)
		p.task(task)
		i0, j0 := task/p.columnBlocks*p.rows, task%p.columnBlocks*p.columns
		for i := range g.m {
			for j := range g.n {
				at, inside := i*g.ldc+j, i >= i0 && i < i0+p.rows && j >= j0 && j < j0+p.columns
				if inside && covered[i*g.n+j] {
					t.Fatalf("%v: c[%d, %d] is in two tasks", g, i, j)
				}
				covered[i*g.n+j] = covered[i*g.n+j] || inside
				expected := g.c[at]
				if inside {
					expected = want[at]
				}
				if math.Float32bits(c[at]) != math.Float32bits(expected) {
					t.Fatalf("%v: task %d of %d leaves %v in c[%d, %d], want %v", g, task, tasks, c[at], i, j, expected)
				}
			}
		}
	}
	if at := slices.Index(covered, false); at >= 0 {
		t.Fatalf("%v: c[%d, %d] is in no task", g, at/g.n, at%g.n)
	}
}

// product is what the exported function makes of the case.
func (g *gemmCase) product() product {
	p := product{nt: g.kind.nt, tn: g.kind.tn, storage: g.kind.s, level: level, m: g.m, n: g.n, k: g.k, alpha: g.alpha, beta: g.beta,
		a: unsafe.SliceData(g.a), lda: g.lda, b: unsafe.Pointer(unsafe.SliceData(g.b)), ldb: g.ldb, c: unsafe.SliceData(g.c), ldc: g.ldc}
	if g.kind.s != f32 {
		p.b = unsafe.Pointer(unsafe.SliceData(g.h))
	}
	return p.paired(g.kind.how())
}

// TestFewRowsAndColumns: every product of up to 20 rows and columns that is deep enough
// to be split. Where it is made of dot products, rows and columns compete for the cut.
func TestFewRowsAndColumns(t *testing.T) {
	r := newRand(77)
	everyLevel(t, func(t *testing.T) {
		for m := 9; m <= 20; m++ {
			for n := 9; n <= 20; n++ {
				if (testing.Short() || raceEnabled) && (m+n)%3 > 0 {
					continue
				}
				for _, kind := range gemmKinds {
					if kind.s != f32 || level == portable && kind.tn {
						continue
					}
					g := newGemmCase(kind, m, n, 2*taskWork/(m*n)+1, r)
					g.within(t, g.run(), 1e-6)
				}
			}
		}
	})
}
