package kernels

import (
	"math"
	"slices"

	"glimpse/internal/parallel"
)

// seeing is how many of the pass's rows see entry j of n of a head.
func (r PassRows) seeing(head, j, n int) int {
	if r.Window == 0 {
		return min(r.Count, n-j)
	}
	at := int(r.Positions[head][j])
	last := min(r.Next+r.Count-1, at+r.Window-1)
	return max(0, last-max(at, r.Next)+1)
}

// deviation is the standard deviation of numbers with the given moments.
func deviation(mean, square float64) float64 { return math.Sqrt(max(0, square-mean*mean)) }

// moment of the attention that an entry has got.
type moment struct{ rows, sum, squares float64 }

func (m moment) mean() float64   { return m.sum / max(1, m.rows) }
func (m moment) spread() float64 { return deviation(m.mean(), m.squares/max(1, m.rows)) }

// planes are the three numbers of a head's moments.
func planes(moments *Tensor, head int) (rows, sums, squares []float64) {
	flat, plane, width := moments.F64(), moments.Shape[1]*moments.Shape[2], moments.Shape[2]
	return flat[head*width:][:width], flat[plane+head*width:][:width], flat[2*plane+head*width:][:width]
}

func (hostSelector) ScoreMoments(means, spreads *Tensor, entries []int, mean, square *Tensor, rows PassRows) {
	CheckEntries("ScoreMoments", means, entries)
	CheckGrouped("ScoreMoments", mean, entries)
	m, s, width, group := headRows(means, entries), headRows(spreads, entries), mean.Width(), mean.Dim0()/len(entries)
	scores, logs, squares := hostFloats(mean), doubles(mean), doubles(square)
	parallel.Tasks(len(m), 3*expWork*group*slices.Max(entries), func(h int) {
		reduceGroup(m[h], scores[h*group*width:], width, group, ScoreTerm{Group: GroupMean})
		for j := range m[h] {
			seen := max(1, rows.seeing(h, j, entries[h]))
			m[h][j] *= float32(rows.Count) / float32(seen)
			var sum, sumSquares float64
			for g := h * group; g < (h+1)*group; g++ {
				sum += math.Exp(logs[g*width+j])
				sumSquares += math.Exp(squares[g*width+j])
			}
			share := float64(rows.Count) / float64(seen) / float64(group)
			s[h][j] = float32(deviation(sum*share, sumSquares*share))
		}
	})
}

func (hostSelector) StartMoments(moments, means, spreads *Tensor, s *Selection, seen [][]int32) {
	for h, idx := range s.Indices() {
		rows, sums, squares := planes(moments, h)
		m, d := means.F32()[h*means.Width():], spreads.F32()[h*spreads.Width():]
		for i, j := range idx {
			n, mean, spread := float64(seen[h][i]), float64(m[j]), float64(d[j])
			rows[i], sums[i], squares[i] = n, mean*n, (spread*spread+mean*mean)*n
		}
	}
}

func (hostSelector) AddMoments(means, spreads, moments *Tensor, entries, known []int, logScore *Tensor) {
	CheckEntries("AddMoments", means, entries)
	CheckGrouped("AddMoments", logScore, entries)
	m, d := headRows(means, entries), headRows(spreads, entries)
	logs, width, group := doubles(logScore), logScore.Width(), logScore.Dim0()/len(entries)
	parallel.Tasks(len(m), expWork*group*slices.Max(entries), func(h int) {
		rows, sums, squares := planes(moments, h)
		clear(rows[known[h]:entries[h]])
		clear(sums[known[h]:entries[h]])
		clear(squares[known[h]:entries[h]])
		for j := range entries[h] {
			if !math.IsInf(logs[h*group*width+j], -1) { // else outside the window
				var sum, square float64
				for g := h * group; g < (h+1)*group; g++ {
					a := math.Exp(logs[g*width+j])
					sum, square = sum+a, square+a*a
				}
				rows[j], sums[j], squares[j] = rows[j]+1, sums[j]+sum/float64(group), squares[j]+square/float64(group)
			}
			x := moment{rows[j], sums[j], squares[j]}
			m[h][j], d[h][j] = float32(x.mean()), float32(x.spread())
		}
	})
}

func (hostSelector) CarryMoments(means, spreads *Tensor, entries []int, moments *Tensor, known []int, rows PassRows) {
	CheckSums("CarryMoments", means, entries, known)
	m, d := headRows(means, known), headRows(spreads, known)
	for h := range known {
		counts, sums, squares := planes(moments, h)
		for j := range known[h] {
			n, mean, spread := float64(rows.seeing(h, j, entries[h])), float64(m[h][j]), float64(d[h][j])
			x := moment{counts[j] + n, sums[j] + mean*n, squares[j] + (spread*spread+mean*mean)*n}
			m[h][j], d[h][j] = float32(x.mean()), float32(x.spread())
		}
	}
}

func (hostSelector) SelectSpread(means, spreads *Tensor, entries []int, budget, protected, sink, recent int) *Selection {
	CheckEntries("SelectSpread", means, entries)
	m, d, out := headRows(means, entries), headRows(spreads, entries), make([][]int32, len(entries))
	parallel.Tasks(len(out), 16*slices.Max(entries), func(h int) {
		ranked := m[h]
		if entries[h] > budget {
			ranked = slices.Clone(m[h])
			for _, j := range selectHead(d[h], protected, sink, recent) {
				ranked[j] = float32(math.Inf(1))
			}
		}
		out[h] = selectHead(ranked, budget, 0, 0)
	})
	return Chosen(out, entries)
}
