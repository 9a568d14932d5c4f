package kernelstest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
)

// mergeCase is pairs of ragged heads and what is kept of them.
type mergeCase struct {
	past []kernels.KV
	k, v [][]float64
	dim  int
	tol  float64
}

// newMergeCase draws pairs, some of them equal; keys of small whole numbers, whose
// products and norms are exact, give many equal similarities.
func newMergeCase(d Device, rng *rand.Rand, entries []int, dim int, dtype kernels.DType, whole bool) *mergeCase {
	c := &mergeCase{dim: dim, tol: 5e-6}
	if dtype == kernels.BF16 {
		c.tol = 1.0 / 256
	}
	for _, n := range entries {
		k, v := Random(rng, n*dim, 1), Random(rng, n*dim, 1)
		for i := range k {
			if whole {
				k[i] = float64(rng.IntN(5) - 2)
			}
		}
		for j := range n {
			switch rng.IntN(12) {
			case 0: // nothing
				clear(k[j*dim:][:dim])
			case 1: // another one
				copy(k[j*dim:][:dim], k[rng.IntN(n)*dim:][:dim])
			}
		}
		kv := kernels.KV{K: d.Stored(dtype, k, n, dim), V: d.Stored(dtype, v, n, dim)}
		c.past, c.k, c.v = append(c.past, kv), append(c.k, kv.K.Float64s()), append(c.v, kv.V.Float64s())
	}
	return c
}

func (c *mergeCase) key(h, j int) []float64 { return c.k[h][j*c.dim:][:c.dim] }

func (c *mergeCase) cosine(h, i, j int) float64 {
	var ab, aa, bb float64
	for d, x := range c.key(h, i) {
		y := c.key(h, j)[d]
		ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
	}
	if n := math.Sqrt(aa) * math.Sqrt(bb); n > 0 {
		return ab / n
	}
	return 0
}

// nearest is the most similar of others, the first of equal ones.
func (c *mergeCase) nearest(h, i int, others []int32) (at int, u float64) {
	at, u = -1, math.Inf(-1)
	for _, j := range others {
		if v := c.cosine(h, i, int(j)); int(j) != i && v > u {
			at, u = int(j), v
		}
	}
	return at, u
}

// merge merges rows with similarities u into j.
func (c *mergeCase) merge(h, j int, rows []int, u []float64) {
	z := math.E
	for _, s := range u {
		z += math.Exp(s)
	}
	for _, x := range [][]float64{c.k[h], c.v[h]} {
		for d := range c.dim {
			sum := math.E * x[j*c.dim+d]
			for n, r := range rows {
				sum += math.Exp(u[n]) * x[r*c.dim+d]
			}
			x[j*c.dim+d] = sum / z
		}
	}
}

// compare holds the pairs against the device's. What was not merged has its own bits.
func (c *mergeCase) compare(t *testing.T, name string, merged map[[2]int]bool) {
	t.Helper()
	for h, kv := range c.past {
		for i, got := range [][]float64{kv.K.Float64s(), kv.V.Float64s()} {
			want := [][]float64{c.k[h], c.v[h]}[i]
			for j := range kv.Entries() {
				a, b := got[j*c.dim:][:c.dim], want[j*c.dim:][:c.dim]
				if merged[[2]int{h, j}] {
					compare.Close(t, fmt.Sprintf("%s: head %d entry %d", name, h, j), a, b, c.tol, compare.Floor(0.1))
				} else if !slices.Equal(a, b) {
					t.Fatalf("%s: head %d entry %d is %v, was %v", name, h, j, a, b)
				}
			}
		}
	}
}

// testMergeEvicted: what is evicted goes into the most similar key, of equal ones the
// first, as in float64; long prompts take several tiles of everything.
func testMergeEvicted(t *testing.T, d Device, sel kernels.Selector) {
	merges, ties := 0, 0
	for seed, rng := range seeds(48, 52) {
		entries := Ragged(rng, []int{3, 30, 90, 200}[seed%4])
		dim := []int{1 + rng.IntN(9), 16, 40, 256}[rng.IntN(4)]
		if seed%12 == 0 {
			entries, dim = []int{1300, 70}, 5
		}
		whole := seed%2 == 0 || dim < 4 // of a few dimensions all similarities are almost equal
		dtype := []kernels.DType{kernels.F32, kernels.BF16}[rng.IntN(2)]
		c := newMergeCase(d, rng, entries, dim, dtype, whole)
		keep, merged, want := make([][]int32, len(entries)), map[[2]int]bool{}, make([]float64, len(entries))
		for h, n := range entries {
			keep[h] = nil
			for _, j := range rng.Perm(n)[:rng.IntN(n+1)] {
				keep[h] = append(keep[h], int32(j))
			}
			slices.Sort(keep[h])
		}
		name := fmt.Sprintf("seed %d: %v of %v entries of %d in %s", seed, lensOf(keep), entries, dim, dtype)
		got := sel.MergeEvicted(c.past, kernels.HostSelection(keep)).Float64s()
		for h, n := range entries {
			var evicted, at []int
			var u []float64
			for j := range n {
				if !slices.Contains(keep[h], int32(j)) && len(keep[h]) > 0 {
					to, similar := c.nearest(h, j, keep[h])
					evicted, at, u = append(evicted, j), append(at, to), append(u, similar)
				}
			}
			mean := math.NaN()
			if len(evicted) > 0 {
				mean = 0
			}
			for _, similar := range u {
				mean += similar / float64(len(u))
			}
			if want[h] = mean; whole && want[h] != got[h] && !(want[h] != want[h] && got[h] != got[h]) || math.Abs(want[h]-got[h]) > 1e-6 || (want[h] != want[h]) != (got[h] != got[h]) {
				t.Fatalf("%s: threshold %v of head %d, want %v", name, got[h], h, want[h])
			}
			for _, j := range keep[h] {
				var rows []int
				var similar []float64
				for i, to := range at {
					if to == int(j) && u[i] >= mean {
						rows, similar = append(rows, evicted[i]), append(similar, u[i])
					}
				}
				if len(rows) > 0 {
					c.merge(h, int(j), rows, similar)
					merges, ties, merged[[2]int{h, int(j)}] = merges+1, ties+min(1, len(rows)-1), true
				}
			}
		}
		c.compare(t, name, merged)
	}
	if t.Logf("%d entries were merged into, %d by several", merges, ties); ties < 100 {
		t.Errorf("%d entries were merged into by several, want 100", ties)
	}
}

// testMergeStep: thresholds follow the similarity of the one entry that goes, bit for
// bit where this is exact, and decide whether it is merged.
func testMergeStep(t *testing.T, d Device, sel kernels.Selector) {
	merges, drops := 0, 0
	tol := 1e-14
	if !sel.OwnMemory() { // products in the compute type
		tol = 1e-6
	}
	for seed, rng := range seeds(60, 53) {
		entries := SomeEntries(rng, []int{4, 40, 300}[seed%3])
		dim := []int{1 + rng.IntN(9), 40, 256}[rng.IntN(3)]
		c := newMergeCase(d, rng, entries, dim, []kernels.DType{kernels.F32, kernels.BF16}[rng.IntN(2)], seed%2 == 0)
		keep, merged, thresholds := make([][]int32, len(entries)), map[[2]int]bool{}, make([]float64, len(entries))
		outs := make([]int, len(entries))
		for h, n := range entries {
			keep[h], outs[h], thresholds[h] = upTo(n), -1, 2*rng.Float64()
			if n > 1 && rng.IntN(6) > 0 {
				outs[h] = []int{rng.IntN(n), 0, n - 1}[rng.IntN(3)]
				keep[h] = slices.Delete(keep[h], outs[h], outs[h]+1)
			}
			if rng.IntN(3) == 0 {
				thresholds[h] = math.NaN()
			} else if rng.IntN(3) == 0 && outs[h] >= 0 && (seed%2 == 0 || sel.OwnMemory()) { // as similar as the best
				_, thresholds[h] = c.nearest(h, outs[h], keep[h])
			}
		}
		beta := []float64{0, 0.7, 1, rng.Float64()}[rng.IntN(4)]
		name := fmt.Sprintf("seed %d: without %v of %v entries of %d, thresholds %v, beta %v", seed, outs, entries, dim, thresholds, beta)
		given := d.Stored(kernels.F64, thresholds, len(entries))
		sel.MergeStep(c.past, kernels.HostSelection(keep), given, beta)
		for h, got := range given.Float64s() {
			want := thresholds[h]
			if outs[h] >= 0 {
				at, u := c.nearest(h, outs[h], keep[h])
				if want = float64(beta*u) + float64((1-beta)*want); want != want {
					want = u
				}
				if u >= want {
					c.merge(h, at, []int{outs[h]}, []float64{u})
					merged[[2]int{h, at}] = true
					merges++
				} else {
					drops++
				}
			}
			if math.Abs(got-want) > tol || seed%2 == 0 && want != got && want == want || (want != want) != (got != got) {
				t.Fatalf("%s: threshold %v of head %d, want %v", name, got, h, want)
			}
		}
		c.compare(t, name, merged)
	}
	if merges < 20 || drops < 20 {
		t.Errorf("%d merges and %d drops, want 20 of each", merges, drops)
	}
}

// testMergeRecent: bit for bit the processor's values, rounded after each merge.
func testMergeRecent(t *testing.T, d Device, sel kernels.Selector) {
	merges := 0
	for seed, rng := range seeds(60, 54) {
		entries, dim := Ragged(rng, []int{6, 40, 400}[seed%3]), 1+rng.IntN(40)
		dtype := []kernels.DType{kernels.F32, kernels.BF16}[rng.IntN(2)]
		c := newMergeCase(d, rng, entries, dim, dtype, false)
		sink, recent := rng.IntN(4), 1+rng.IntN(max(1, slices.Max(entries)))
		sums, host := d.positive(rng, len(entries), slices.Max(entries)+1)
		if rng.IntN(8) == 0 {
			sums, host = d.Tensor(make([]float64, len(host)), sums.Shape...), make([]float64, len(host))
		}
		draws := make([][]float64, len(entries))
		for h, n := range entries {
			for range n - sink - recent {
				draws[h] = append(draws[h], rng.Float64())
			}
		}
		sel.MergeRecent(c.past, sums, sink, recent, draws)
		for h, n := range entries {
			mean := 0.0
			for j := max(0, n-recent); j < n; j++ {
				mean += host[h*sums.Width()+j] / float64(recent)
			}
			for i, u := range draws[h] {
				if sum := host[h*sums.Width()+sink+i]; sum <= 0 || u >= min(1, sum/mean) {
					continue
				}
				merges++
				for j := n - recent; j < n; j++ {
					row := make([]float64, dim)
					for e := range row {
						row[e] = c.v[h][j*dim+e] + c.v[h][(sink+i)*dim+e]/float64(recent)
					}
					rounded := kernels.NewTensor(dtype, dim)
					kernels.Convert(rounded, kernels.FromF64(row, dim))
					copy(c.v[h][j*dim:], rounded.Float64s())
				}
			}
		}
		c.compare(t, fmt.Sprintf("seed %d: %v entries of %d in %s, %d sinks, %d recent", seed, entries, dim, dtype, sink, recent), nil)
	}
	if merges < 100 {
		t.Errorf("%d merges, want 100", merges)
	}
}
