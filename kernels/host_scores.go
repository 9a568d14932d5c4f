package kernels

import (
	"math"
	"slices"

	"glimpse/internal/simd"

	"glimpse/internal/parallel"
)

func (hostSelector) Scores(scores *Tensor, entries []int, terms []ScoreTerm, allHeads bool) {
	CheckTerms(scores, entries, terms, allHeads)
	rows, heads, most := headRows(scores, entries), len(entries), slices.Max(entries)
	for i, t := range terms {
		to := rows
		if i > 0 || t.Kernel > 1 {
			to = make([][]float32, heads)
		}
		logs, width, group := hostFloats(t.LogScore), t.LogScore.Width(), t.LogScore.Dim0()/heads
		parallel.Tasks(heads, expWork*group*most, func(g int) {
			if to[g] == nil {
				to[g] = make([]float32, entries[g])
			}
			reduceGroup(to[g], logs[g*group*width:], width, group, t)
		})
		if allHeads {
			meanOfHeads(to, t.Group == GroupLogMean)
		}
		for h, d := range rows {
			switch {
			case i > 0:
				for j, v := range pooled(to[h], t.Kernel, t.Tail) {
					d[j] = (d[j] + v) / 2
				}
			case t.Kernel > 1:
				poolHead(d, to[h], t.Kernel, t.Tail)
			}
		}
	}
}

// reduceGroup writes the probabilities whose logarithms are given [group, width], reduced
// over the group.
func reduceGroup(d, logs []float32, width, group int, t ScoreTerm) {
	if t.Group == GroupLogMean {
		var rows [][]float32
		for h := range group {
			rows = append(rows, logs[h*width:][:len(d)])
		}
		logMean(d, rows)
		return
	}
	clear(d)
	for h := range group {
		row := logs[h*width:][:len(d)]
		for j, l := range row {
			v := float32(math.Exp(float64(l)))
			if t.Group == GroupMax {
				d[j] = max(d[j], v)
			} else {
				d[j] += v
			}
		}
	}
	if t.Group == GroupMean {
		for j := range d {
			d[j] /= float32(group)
		}
	}
	if t.Factor != 0 {
		for j := range d {
			d[j] *= t.Factor
		}
	}
}

// logMean writes to dst, which it returns, the logarithm of the mean of the numbers whose
// logarithms rows hold: no less than −MaxFloat32.
func logMean(dst []float32, rows [][]float32) []float32 {
	for i := range dst {
		dst[i] = -math.MaxFloat32
	}
	for _, row := range rows {
		simd.MaxInto(dst, row)
	}
	if len(rows) == 1 {
		return dst
	}
	sums, spare := make([]float32, len(dst)), make([]float32, len(dst))
	for _, row := range rows {
		for i, v := range row {
			spare[i] = v - dst[i]
		}
		simd.ExpSum(spare, spare, 0) // nothing below e⁻⁴⁰ counts beside the largest, which is 1
		simd.Axpy(1, spare, sums)
	}
	for i, sum := range sums {
		dst[i] = max(-math.MaxFloat32, dst[i]+float32(math.Log(float64(sum)/float64(len(rows)))))
	}
	return dst
}

// meanOfHeads gives all heads the mean of their scores, of logarithms its logarithm.
func meanOfHeads(scores [][]float32, logarithms bool) {
	mean := scores[0]
	if logarithms {
		copy(mean, logMean(make([]float32, len(mean)), scores))
	} else {
		for _, d := range scores[1:] {
			for j, v := range d {
				mean[j] += v
			}
		}
		for j := range mean {
			mean[j] /= float32(len(scores))
		}
	}
	for _, d := range scores[1:] {
		copy(d, mean)
	}
}

func (hostSelector) MeanScores(scores *Tensor, entries []int, heads int, logarithms bool) {
	CheckEntries("MeanScores", scores, entries)
	rows := headRows(scores, entries)
	for from := 0; from < len(rows); from += heads {
		meanOfHeads(rows[from:from+heads], logarithms)
	}
}

// poolHead max-pools from into to, but for the last tail entries, which are copied.
func poolHead(to, from []float32, kernel, tail int) {
	end := max(0, len(from)-tail)
	copy(to[end:], from[end:])
	MaxPool(to[:end], from[:end], max(1, kernel))
}

// pooled are the pooled scores of a head: new ones where there is something to pool.
func pooled(scores []float32, kernel, tail int) []float32 {
	if kernel <= 1 {
		return scores
	}
	to := make([]float32, len(scores))
	poolHead(to, scores, kernel, tail)
	return to
}

func (hostSelector) PoolScores(to, from *Tensor, entries []int, kernel, tail int) {
	CheckEntries("PoolScores", from, entries)
	CheckPool("PoolScores", kernel, tail)
	out, in := headRows(to, entries), headRows(from, entries)
	parallel.Tasks(len(out), kernel*slices.Max(entries), func(h int) { poolHead(out[h], in[h], kernel, tail) })
}

func (hostSelector) KeyScores(scores *Tensor, past []KV) {
	entries := make([]int, len(past))
	for h, kv := range past {
		entries[h] = kv.Entries()
	}
	CheckEntries("KeyScores", scores, entries)
	rows := headRows(scores, entries)
	parallel.Tasks(len(past), past[0].K.Width()*slices.Max(entries), func(h int) {
		keys, dim := hostFloats(past[h].K), past[h].K.Width()
		for j := range rows[h] {
			sum := 0.0
			for _, k := range keys[j*dim : (j+1)*dim] {
				sum += float64(k) * float64(k)
			}
			rows[h][j] = float32(1 / (1 + math.Sqrt(sum)))
		}
	})
}

func (hostSelector) AddScores(sums *Tensor, entries, known []int, logScore *Tensor) {
	CheckSums("AddScores", sums, entries, known)
	CheckEntries("AddScores", sums, entries)
	CheckGrouped("AddScores", logScore, entries)
	rows, logs, width, group := headRows(sums, entries), hostFloats(logScore), logScore.Width(), logScore.Dim0()/len(entries)
	parallel.Tasks(len(rows), expWork*group*slices.Max(entries), func(g int) {
		d := rows[g]
		clear(d[known[g]:])
		for h := g * group; h < (g+1)*group; h++ {
			for j, l := range logs[h*width:][:len(d)] {
				d[j] += float32(math.Exp(float64(l))) / float32(group)
			}
		}
	})
}

func (hostSelector) CarryScores(scores, sums *Tensor, known []int) {
	CheckEntries("CarryScores", sums, known)
	CheckEntries("CarryScores", scores, known)
	rows := headRows(scores, known)
	for h, row := range headRows(sums, known) {
		for j, v := range row {
			rows[h][j] += v
		}
	}
}

// MaxScores: acc may be an observation, which lies where the backend has it.
func (hostSelector) MaxScores(acc, other *Tensor) {
	host := acc.OnHost()
	if acc.DType == F64 {
		maxInto(host.F64(), doubles(other))
	} else {
		maxInto(host.F32(), hostFloats(other))
	}
	if host != acc {
		Convert(acc, host)
	}
}

func maxInto[T Float](acc, other []T) {
	for i, v := range other {
		acc[i] = max(acc[i], v)
	}
}

// MergeScores: the logarithm is of the sums themselves, so that a policy has the bits of the
// formula.
func (hostSelector) MergeScores(acc, other *Tensor, wAcc, wOther float64) {
	CheckLengths("MergeScores", acc, other)
	host := acc.OnHost()
	x, y := doubles(host), doubles(other)
	for i := range x {
		host.Set(i, math.Log((wAcc*math.Exp(x[i])+wOther*math.Exp(y[i]))/(wAcc+wOther)))
	}
	if host != acc {
		Convert(acc, host)
	}
}
