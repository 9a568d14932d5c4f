package kernelstest

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
)

// Ragged draws KV heads with their entries; some have none or one.
func Ragged(rng *rand.Rand, most int) []int {
	entries := make([]int, 1+rng.IntN(4))
	for h := range entries {
		if entries[h] = rng.IntN(most + 1); rng.IntN(6) == 0 {
			entries[h] = rng.IntN(2)
		}
	}
	return entries
}

// RowsOf cuts a device's tensor into the used parts of its rows.
func RowsOf(t *kernels.Tensor, entries []int) [][]float32 {
	flat, out := t.Float32s(), make([][]float32, len(entries))
	for h, n := range entries {
		out[h] = flat[h*t.Width():][:n]
	}
	return out
}

// plateaus are scores, many of them equal, and some odd ones.
func plateaus(rng *rand.Rand, n, kinds int) []float32 {
	odd := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.Copysign(0, -1)), 0, -1e-42, 1e-42}
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.IntN(kinds)) / 7
		if rng.IntN(20) == 0 {
			x[i] = odd[rng.IntN(len(odd))]
		}
	}
	return x
}

// scoreTable is scores [kvHeads, width] on the device and on the host.
func (d Device) scoreTable(rng *rand.Rand, entries []int) (*kernels.Tensor, [][]float32) {
	width := slices.Max(entries) + rng.IntN(5)
	flat := plateaus(rng, len(entries)*width, []int{1, 2, 4, 30, 400}[rng.IntN(5)])
	t := d.B.Place(kernels.FromF32(slices.Clone(flat), len(entries), width))
	rows := make([][]float32, len(entries))
	for h, n := range entries {
		rows[h] = flat[h*width:][:n]
	}
	return t, rows
}

// keep is the selection of one head by definition.
func keep(scores []float32, budget, sink, recent int) (out []int32) {
	n := len(scores)
	if n <= budget {
		sink, recent = n, 0
	}
	for j := range sink {
		out = append(out, int32(j))
	}
	for _, j := range kernels.TopK(scores[sink:n-recent], budget-sink-recent) {
		out = append(out, j+int32(sink))
	}
	for j := n - recent; j < n; j++ {
		out = append(out, int32(j))
	}
	return out
}

// testSelect: bit for bit the selections of TopK, of ragged heads with plateaus,
// for every number that can be kept.
func testSelect(t *testing.T, d Device, sel kernels.Selector) {
	for seed, rng := range seeds(60, 3) {
		entries := Ragged(rng, []int{3, 40, 700, 1300}[seed%4])
		scores, rows := d.scoreTable(rng, entries)
		sink, recent := rng.IntN(4), rng.IntN(4)
		budgets := make([]int, len(entries))
		for h, n := range entries {
			budgets[h] = sink + recent + rng.IntN(n+2)
		}
		s := sel.Select(scores, entries, budgets, sink, recent)
		for h, got := range s.Indices() {
			if want := keep(rows[h], budgets[h], sink, recent); !slices.Equal(got, want) || s.Len(h) != len(want) {
				t.Fatalf("seed %d: head %d of %v, budget %d, %d sinks, %d recent: keeps %v, want %v of %v", seed, h, entries, budgets[h], sink, recent, got, want, rows[h])
			}
		}
	}
}

// testShareBudget: the heads' shares of a pool are as by sorting all candidates.
func testShareBudget(t *testing.T, d Device, sel kernels.Selector) {
	for seed, rng := range seeds(60, 4) {
		entries := Ragged(rng, []int{5, 60, 600}[seed%3])
		scores, rows := d.scoreTable(rng, entries)
		sink, recent := rng.IntN(4), rng.IntN(4)
		type candidate struct {
			head  int
			score float32
		}
		var all []candidate
		own := make([]int, len(entries))
		for h, n := range entries {
			if own[h] = rng.IntN(n + 2); rng.IntN(4) == 0 {
				own[h] = 0
			}
			if n < sink+recent {
				continue
			}
			free := slices.Clone(rows[h][sink : n-recent])
			for i, v := range free {
				if v != v {
					free[i] = float32(math.Inf(-1))
				}
			}
			slices.SortStableFunc(free, func(a, b float32) int { return cmp.Compare(b, a) })
			for _, v := range free[min(own[h], len(free)):] {
				all = append(all, candidate{h, v})
			}
		}
		slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(b.score, a.score) })
		pool, want := rng.IntN(len(all)+3), make([]int, len(entries))
		for _, c := range all[:min(pool, len(all))] {
			want[c.head]++
		}
		if got := sel.ShareBudget(scores, entries, own, sink, recent, pool); !slices.Equal(got, want) {
			t.Fatalf("seed %d: %v entries, own %v, %d sinks, %d recent, pool %d of %d: %v, want %v", seed, entries, own, sink, recent, pool, len(all), got, want)
		}
	}
}

// hostScores is Scores by definition, in the order of operations of the processor's
// policies.
func hostScores(terms []kernels.ScoreTerm, logs [][]float64, entries []int, width int, allHeads bool) [][]float32 {
	out := make([][]float32, len(entries))
	if terms[0].Group == kernels.GroupLogMean {
		return hostLogScores(terms[0], logs[0], entries, width, allHeads)
	}
	for i, term := range terms {
		rows, group := make([][]float32, len(entries)), term.LogScore.Dim0()/len(entries)
		for h, n := range entries {
			row := make([]float32, n)
			for j := range row {
				for g := h * group; g < (h+1)*group; g++ {
					p := float32(math.Exp(logs[i][g*width+j]))
					if term.Group == kernels.GroupMax {
						row[j] = max(row[j], p)
					} else {
						row[j] += p
					}
				}
				if term.Group == kernels.GroupMean {
					row[j] /= float32(group)
				}
				if term.Factor != 0 {
					row[j] *= term.Factor
				}
			}
			rows[h] = row
		}
		if allHeads {
			for j := range rows[0] {
				var s float32
				for h := range rows {
					s += rows[h][j]
				}
				for h := range rows {
					rows[h][j] = s / float32(len(rows))
				}
			}
		}
		for h, row := range rows {
			row = poolBefore(row, term.Kernel, term.Tail)
			if i == 0 {
				out[h] = row
				continue
			}
			for j, v := range row {
				out[h][j] = (out[h][j] + v) / 2
			}
		}
	}
	return out
}

// hostLogScores are the logarithms of means by definition, in float64.
func hostLogScores(term kernels.ScoreTerm, logs []float64, entries []int, width int, allHeads bool) [][]float32 {
	out, group := make([][]float32, len(entries)), term.LogScore.Dim0()/len(entries)
	for h, n := range entries {
		row := make([]float32, n)
		for j := range row {
			from, to := h*group, (h+1)*group
			if allHeads {
				from, to = 0, len(entries)*group
			}
			top, sum := -math.MaxFloat32, 0.0
			for g := from; g < to; g++ {
				top = max(top, logs[g*width+j])
			}
			for g := from; g < to; g++ {
				sum += math.Exp(logs[g*width+j] - top)
			}
			row[j] = float32(max(-math.MaxFloat32, top+math.Log(sum/float64(to-from))))
		}
		out[h] = poolBefore(row, term.Kernel, term.Tail)
	}
	return out
}

// poolBefore max-pools what is before the last tail scores.
func poolBefore(row []float32, kernel, tail int) []float32 {
	pooled, end := slices.Clone(row), max(0, len(row)-tail)
	kernels.MaxPool(pooled[:end], row[:end], max(1, kernel))
	return pooled
}

// LogScores draws logarithms of probabilities; columns that are not in use are NaN.
func (d Device) LogScores(rng *rand.Rand, entries []int, group, width int) (*kernels.Tensor, []float64) {
	logs := Random(rng, len(entries)*group*width, 3)
	for i := range logs {
		if logs[i] -= 6; rng.IntN(15) == 0 {
			logs[i] = math.Inf(-1)
		}
		if i%width >= entries[i/width/group] {
			logs[i] = math.NaN()
		}
	}
	return d.Tensor(logs, len(entries)*group, width), logs
}

// testScores: groups, pools and means are within a rounding of the exponential of
// the processor's.
func testScores(t *testing.T, d Device, sel kernels.Selector) {
	for seed, rng := range seeds(50, 5) {
		entries, allHeads := Ragged(rng, []int{4, 70, 700}[seed%3]), seed%5 == 4
		if allHeads {
			entries = slices.Repeat(entries[:1], len(entries))
		}
		width := slices.Max(entries) + rng.IntN(3)
		if width == 0 {
			continue
		}
		var terms []kernels.ScoreTerm
		var logs [][]float64
		for range 1 + rng.IntN(2) {
			term := kernels.ScoreTerm{Group: kernels.Grouping(rng.IntN(3)), Kernel: []int{0, 1, 3, 7, 63}[rng.IntN(5)]}
			if rng.IntN(2) == 0 {
				term.Tail = rng.IntN(20)
			}
			if rng.IntN(2) == 0 {
				term.Factor = 17
			}
			l, host := d.LogScores(rng, entries, 1+rng.IntN(4), width)
			term.LogScore = l
			terms, logs = append(terms, term), append(logs, host)
		}
		if seed%4 == 3 { // one term, without a factor; all heads are not pooled before their mean
			l := kernels.ScoreTerm{LogScore: terms[0].LogScore, Group: kernels.GroupLogMean, Kernel: terms[0].Kernel, Tail: terms[0].Tail}
			if allHeads {
				l.Kernel, l.Tail = 0, 0
			}
			for i := range logs[0] { // less than float32 can hold, but for one in eight
				logs[0][i] -= float64(150 * min(1, i%8))
			}
			l.LogScore = d.Tensor(logs[0], l.LogScore.Shape...)
			terms, logs = []kernels.ScoreTerm{l}, logs[:1]
		}
		scores := d.Garbage(len(entries), width+rng.IntN(3))
		sel.Scores(scores, entries, terms, allHeads)
		for h, want := range hostScores(terms, logs, entries, width, allHeads) {
			compare.Close(t, fmt.Sprintf("seed %d: head %d of %v", seed, h, entries), RowsOf(scores, entries)[h], want, 1e-6, compare.Floor(1e-30))
		}
	}
}

// testPoolScores: bit for bit the processor's pools, with nothing of a row's end.
func testPoolScores(t *testing.T, d Device, sel kernels.Selector) {
	for seed, rng := range seeds(30, 8) {
		entries := Ragged(rng, []int{4, 70, 700}[seed%3])
		width := slices.Max(entries) + rng.IntN(5)
		if width == 0 {
			continue
		}
		flat := make([]float64, len(entries)*width)
		for i := range flat {
			flat[i] = float64(rng.Float32())
			if i%width >= entries[i/width] {
				flat[i] = 9
			}
		}
		from, to := d.Tensor(flat, len(entries), width), d.Garbage(len(entries), width)
		kernel, tail := []int{0, 1, 3, 7, 63, kernels.MaxPoolWidth}[rng.IntN(6)], rng.IntN(2)*rng.IntN(90)
		sel.PoolScores(to, from, entries, kernel, tail)
		for h, got := range RowsOf(to, entries) {
			if want := poolBefore(RowsOf(from, entries)[h], kernel, tail); !slices.Equal(got, want) {
				t.Fatalf("seed %d: head %d of %v, kernel %d, tail %d: %v, want %v", seed, h, entries, kernel, tail, got, want)
			}
		}
	}
	for _, kernel := range []int{-1, 2, kernels.MaxPoolWidth + 2, math.MaxInt} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a kernel of %d is taken", kernel)
				}
			}()
			sel.PoolScores(d.Garbage(1, 4), d.Garbage(1, 4), []int{4}, kernel, 0)
		}()
	}
}

// testSums: accumulated scores, carried ones, maxima and keys' norms.
func testSums(t *testing.T, d Device, sel kernels.Selector) {
	for seed, rng := range seeds(30, 6) {
		entries := Ragged(rng, []int{3, 90, 600}[seed%3])
		group, width := 1+rng.IntN(3), slices.Max(entries)+1
		known := make([]int, len(entries))
		for h, n := range entries {
			known[h] = rng.IntN(n + 1)
		}
		log, logs := d.LogScores(rng, entries, group, width)
		before := Random(rng, len(entries)*width, 1)
		sums := d.Tensor(before, len(entries), width)
		sel.AddScores(sums, entries, known, log)
		carried := d.Tensor(before, len(entries), width)
		sel.CarryScores(carried, sums, known)
		for h, n := range entries {
			want, wantCarried := make([]float32, n), make([]float32, n)
			for j := range want {
				if j < known[h] {
					want[j] = float32(before[h*width+j])
				}
				for g := h * group; g < (h+1)*group; g++ {
					want[j] += float32(math.Exp(logs[g*width+j])) / float32(group)
				}
				wantCarried[j] = float32(before[h*width+j])
				if j < known[h] {
					wantCarried[j] += want[j]
				}
			}
			name := fmt.Sprintf("seed %d: head %d of %v, known %v", seed, h, entries, known)
			compare.Close(t, name+": sums", RowsOf(sums, entries)[h], want, 1e-6, compare.Floor(1))
			compare.Close(t, name+": carried", RowsOf(carried, entries)[h], wantCarried, 1e-6, compare.Floor(1))
		}
		other := Random(rng, len(before), 1)
		most := d.Tensor(before, len(before))
		sel.MaxScores(most, d.Tensor(other, len(other)))
		for i, v := range most.Float64s() {
			if v != max(before[i], other[i]) {
				t.Fatalf("seed %d: maximum %v of %v and %v", seed, v, before[i], other[i])
			}
		}
		for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16} {
			dim := 1 + rng.IntN(40)
			var past []kernels.KV
			for _, n := range entries {
				past = append(past, kernels.KV{K: d.Stored(dtype, Random(rng, n*dim, 1), n, dim)})
			}
			scores := d.Garbage(len(entries), width)
			sel.KeyScores(scores, past)
			for h, kv := range past {
				want, keys := make([]float64, entries[h]), kv.K.Float64s()
				for j := range want {
					for _, k := range keys[j*dim:][:dim] {
						want[j] += k * k
					}
					want[j] = 1 / (1 + math.Sqrt(want[j]))
				}
				compare.Close(t, fmt.Sprintf("seed %d: %s keys of head %d", seed, dtype, h), RowsOf(scores, entries)[h], want, 1e-6, compare.Floor(1e-9))
			}
		}
	}
}

// testCompact: pairs, scores and indices of the selection, in new memory and in
// place, of all types and alignments.
func testCompact(t *testing.T, d Device, sel kernels.Selector) {
	for seed, rng := range seeds(40, 7) {
		entries, dim := Ragged(rng, 60), []int{1, 3, 8, 20, 64}[seed%5]
		dtype := []kernels.DType{kernels.F32, kernels.BF16}[seed%2]
		inPlace := seed%3 == 0
		scores, rows := d.scoreTable(rng, entries)
		budgets := make([]int, len(entries))
		for h, n := range entries {
			budgets[h] = rng.IntN(n + 1)
		}
		s := sel.Select(scores, entries, budgets, 0, 0)
		if seed%4 == 0 { // one of the host
			s = kernels.HostSelection(s.Indices())
		}
		var src, dst []kernels.KV
		var want [][2][]float64
		for h, n := range entries {
			spare := rng.IntN(3)
			kv := kernels.KV{K: d.Stored(dtype, Random(rng, (n+spare)*dim, 1), n+spare, dim), V: d.Stored(dtype, Random(rng, (n+spare)*dim, 1), n+spare, dim)}
			var w [2][]float64
			for i, all := range [][]float64{kv.K.Float64s(), kv.V.Float64s()} {
				for _, j := range s.Indices()[h] {
					w[i] = append(w[i], all[int(j)*dim:][:dim]...)
				}
			}
			src, want = append(src, kv), append(want, w)
			if inPlace {
				dst = append(dst, kv)
			} else {
				dst = append(dst, kernels.KV{K: d.B.Alloc(dtype, s.Len(h), dim), V: d.B.Alloc(dtype, s.Len(h), dim)})
			}
		}
		sel.Compact(dst, src, s)
		for h, w := range want {
			n := s.Len(h)
			if !slices.Equal(dst[h].K.Rows(0, n).Float64s(), w[0]) || !slices.Equal(dst[h].V.Rows(0, n).Float64s(), w[1]) {
				t.Fatalf("seed %d: head %d of %v keeps %v: wrong pairs", seed, h, entries, s.Indices()[h])
			}
		}
		picked := d.Garbage(len(entries), slices.Max(entries)+1)
		sel.Pick(picked, scores, s)
		for h, idx := range s.Indices() {
			for at, j := range idx {
				if got, w := RowsOf(picked, entries)[h][at], rows[h][j]; math.Float32bits(got) != math.Float32bits(w) && got == got {
					t.Fatalf("seed %d: head %d: score %v at %d, want %v", seed, h, got, at, w)
				}
			}
		}
		// Of the kept ones and three more, a second selection.
		base, more := make([]int, len(entries)), make([]int, len(entries))
		for h := range entries {
			base[h], more[h] = entries[h], s.Len(h)+3
			budgets[h] = rng.IntN(more[h] + 1)
		}
		again, _ := d.scoreTable(rng, more)
		second := sel.Select(again, more, budgets, 0, 0)
		for h, got := range sel.Compose(s, second, base).Indices() {
			origin := append(slices.Clone(s.Indices()[h]), int32(base[h]), int32(base[h]+1), int32(base[h]+2))
			var want []int32
			for _, j := range second.Indices()[h] {
				want = append(want, origin[j])
			}
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d: head %d: composed %v, want %v", seed, h, got, want)
			}
		}
	}
}
