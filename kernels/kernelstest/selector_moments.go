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

// moment is what a head's entry has got so far.
type moment struct{ rows, sum, squares float64 }

func (m moment) mean() float64 { return m.sum / max(1, m.rows) }
func (m moment) spread() float64 {
	return math.Sqrt(max(0, m.squares/max(1, m.rows)-m.mean()*m.mean()))
}

// testMoments follows the moments of ragged heads through a prompt, selections and
// rows, and into another prompt, with and without windows, in float64.
func testMoments(t *testing.T, d Device, sel kernels.Selector) {
	for seed, rng := range seeds(40, 41) {
		entries := SomeEntries(rng, []int{2, 40, 600}[seed%3])
		heads, most, group := len(entries), slices.Max(entries), 1+rng.IntN(3)
		rows := kernels.PassRows{Count: 1 + rng.IntN(slices.Min(entries)), Next: rng.IntN(50)}
		if rng.IntN(2) == 0 {
			rows.Window, rows.Positions = 1+rng.IntN(most+20), make([][]int32, heads)
		}
		// seen counts the rows that see an entry, one by one.
		seen := func(r kernels.PassRows, h, j, n int) (count float64) {
			for row := r.Next; row < r.Next+r.Count; row++ {
				switch at := row - r.Next + n - r.Count; { // the row's own index
				case r.Window == 0 && j <= at:
					count++
				case r.Window > 0 && int(r.Positions[h][j]) <= row && row-int(r.Positions[h][j]) < r.Window:
					count++
				}
			}
			return count
		}
		position := func(r kernels.PassRows, entries []int) {
			for h, n := range entries {
				if r.Window > 0 {
					r.Positions[h] = make([]int32, n)
					for j := range n { // the last ones are the rows', and some before them were there already
						r.Positions[h][j] = int32(r.Next + r.Count - n + j)
						if j < n-r.Count {
							r.Positions[h][j] -= int32(rng.IntN(2))
						}
					}
				}
			}
		}
		position(rows, entries)
		name := fmt.Sprintf("seed %d: %v entries, %d rows from %d on, window %d", seed, entries, rows.Count, rows.Next, rows.Window)
		mean, logs := d.LogScores(rng, entries, group, most)
		square, logSquares := d.LogScores(rng, entries, group, most)
		means := d.Garbage(heads, most+rng.IntN(3))
		spreads := d.Garbage(means.Shape...)
		sel.ScoreMoments(means, spreads, entries, mean, square, rows)
		compareMoments := func(what string, got, gotSpread *kernels.Tensor, want [][]moment) {
			t.Helper()
			for h, ms := range want {
				var m, s []float64
				for _, x := range ms {
					m, s = append(m, x.mean()), append(s, x.spread()*x.spread())
				}
				gotMean, gotSquare := RowsOf(got, lensOf(want))[h], slices.Clone(RowsOf(gotSpread, lensOf(want))[h])
				for j := range gotSquare {
					gotSquare[j] *= gotSquare[j]
				}
				compare.Close(t, name+": "+what+": means", gotMean, m, 1e-5, compare.Floor(1e-20))
				compare.Close(t, name+": "+what+": variances", gotSquare, s, 1e-4, compare.Floor(1e-20+Magnitude(m)*Magnitude(m)))
			}
		}
		want := make([][]moment, heads)
		for h, n := range entries {
			for j := range n {
				m := moment{rows: max(1, seen(rows, h, j, n))}
				for g := h * group; g < (h+1)*group; g++ {
					m.sum += math.Exp(logs[g*most+j]) * float64(rows.Count) / float64(group)
					m.squares += math.Exp(logSquares[g*most+j]) * float64(rows.Count) / float64(group)
				}
				want[h] = append(want[h], m)
			}
		}
		compareMoments("prompt", means, spreads, want)

		// What is kept starts from those numbers.
		budget := 1 + rng.IntN(most)
		keep := make([][]int32, heads)
		since := make([][]int32, heads)
		start := [][]float32{}
		for h, n := range entries {
			for _, j := range rng.Perm(n)[:min(n, budget)] {
				keep[h] = append(keep[h], int32(j))
			}
			slices.Sort(keep[h])
			for range keep[h] {
				since[h] = append(since[h], int32(1+rng.IntN(99)))
			}
			start = append(start, RowsOf(means, entries)[h], RowsOf(spreads, entries)[h])
		}
		chosen := kernels.HostSelection(keep)
		width := budget + 3
		moments := d.Stored(kernels.F64, slices.Repeat([]float64{math.NaN()}, 3*heads*width), 3, heads, width)
		sel.StartMoments(moments, means, spreads, chosen, since)
		state := make([][]moment, heads)
		for h, idx := range keep {
			for i, j := range idx {
				m, s, n := float64(start[2*h][j]), float64(start[2*h+1][j]), float64(since[h][i])
				state[h] = append(state[h], moment{n, m * n, (s*s + m*m) * n})
			}
		}
		now, nowSpread := d.Garbage(heads, width), d.Garbage(heads, width)
		for range 3 { // a row each
			known := lensOf(state)
			for h := range state {
				state[h] = append(state[h], moment{})
			}
			n := lensOf(state)
			log, host := d.LogScores(rng, n, group, slices.Max(n))
			for h := range state {
				for j := range state[h] {
					if math.IsInf(host[h*group*slices.Max(n)+j], -1) {
						continue
					}
					m := &state[h][j]
					m.rows++
					for g := h * group; g < (h+1)*group; g++ {
						p := math.Exp(host[g*slices.Max(n)+j])
						m.sum, m.squares = m.sum+p/float64(group), m.squares+p*p/float64(group)
					}
				}
			}
			sel.AddMoments(now, nowSpread, moments, n, known, log)
			compareMoments("row", now, nowSpread, state)
			for h := range state { // one goes
				out := rng.IntN(len(state[h]))
				keep[h] = slices.Delete(upTo(len(state[h])), out, out+1)
				state[h] = slices.Delete(state[h], out, out+1)
			}
			to := d.Stored(kernels.F64, slices.Repeat([]float64{math.NaN()}, 3*heads*(width+1)), 3, heads, width+1)
			sel.Pick(to, moments, kernels.HostSelection(keep))
			moments = to
		}

		// Another prompt on what is left.
		next := kernels.PassRows{Count: 1 + rng.IntN(9), Next: rows.Next + rows.Count + 3, Window: rows.Window, Positions: rows.Positions}
		known, all := lensOf(state), lensOf(state)
		for h := range all {
			all[h] += next.Count
		}
		position(next, all)
		means, hostMeans := d.positive(rng, heads, slices.Max(all)+1)
		spreads, hostSpreads := d.positive(rng, heads, slices.Max(all)+1)
		sel.CarryMoments(means, spreads, all, moments, known, next)
		for h := range all {
			for j := range all[h] {
				m, s := hostMeans[h*means.Width()+j], hostSpreads[h*means.Width()+j]
				n, before := seen(next, h, j, all[h]), moment{}
				if j >= known[h] { // nothing to carry
					state[h] = append(state[h], moment{1, m, s*s + m*m})
					continue
				}
				before = state[h][j]
				state[h][j] = moment{before.rows + n, before.sum + m*n, before.squares + (s*s+m*m)*n}
			}
		}
		compareMoments("next prompt", means, spreads, state)
	}
}

// positive is a tensor of numbers between 0 and 1, and the numbers.
func (d Device) positive(rng *rand.Rand, shape ...int) (*kernels.Tensor, []float64) {
	x := make([]float64, kernels.ShapeLen(shape))
	for i := range x {
		x[i] = float64(rng.Float32())
	}
	return d.Tensor(x, shape...), x
}

func lensOf[T any](rows [][]T) []int {
	out := make([]int, len(rows))
	for h := range rows {
		out[h] = len(rows[h])
	}
	return out
}

func upTo(n int) (idx []int32) {
	for j := range int32(n) {
		idx = append(idx, j)
	}
	return idx
}

// testSelectSpread: bit for bit what two sorts keep, of ragged heads with plateaus.
func testSelectSpread(t *testing.T, d Device, sel kernels.Selector) {
	for seed, rng := range seeds(60, 42) {
		entries := Ragged(rng, []int{3, 40, 700, 1300}[seed%4])
		means, rows := d.scoreTable(rng, entries)
		flat := plateaus(rng, means.Len(), 1+rng.IntN(40))
		spreads := d.B.Place(kernels.FromF32(slices.Clone(flat), means.Shape...))
		sink, recent := rng.IntN(4), rng.IntN(4)
		protected := sink + recent + rng.IntN(max(1, slices.Max(entries)/2))
		budget := protected + rng.IntN(max(1, slices.Max(entries)/2))
		s := sel.SelectSpread(means, spreads, entries, budget, protected, sink, recent)
		for h, got := range s.Indices() {
			n := entries[h]
			want := upTo(n)
			if n > budget {
				ranked := slices.Clone(rows[h])
				for _, j := range keep(flat[h*means.Width():][:n], protected, sink, recent) {
					ranked[j] = float32(math.Inf(1))
				}
				want = kernels.TopK(ranked, budget)
			}
			if !slices.Equal(got, want) || s.Len(h) != len(want) {
				t.Fatalf("seed %d: head %d of %v, budget %d, %d protected, %d sinks, %d recent: keeps %v, want %v", seed, h, entries, budget, protected, sink, recent, got, want)
			}
		}
	}
}
