package kernels

import (
	"math"
	"slices"

	"glimpse/internal/parallel"
)

// MergeBlock is how many evicted keys are compared at once.
const MergeBlock = 512

func (hostSelector) AttentionVariances(logScore *Tensor, entries []int, rows int) []float64 {
	CheckGrouped("AttentionVariances", logScore, entries)
	out, logs, width := make([]float64, len(entries)), doubles(logScore), logScore.Width()
	parallel.Tasks(len(out), expWork*slices.Max(entries), func(h int) {
		sums := make([]float64, entries[h])
		for j := range sums {
			sums[j] = float64(rows) * math.Exp(logs[h*width+j])
		}
		out[h] = variance(sums)
	})
	return out
}

func variance(x []float64) float64 {
	mean, sum := 0.0, 0.0
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		sum += (v - mean) * (v - mean)
	}
	return sum / float64(len(x))
}

func (s hostSelector) MergeEvicted(past []KV, sel *Selection) *Tensor {
	return Merging{}.Evicted(s.Backend, past, sel)
}

func (s hostSelector) MergeStep(past []KV, sel *Selection, thresholds *Tensor, beta float64) {
	Merging{}.Step(s.Backend, past, sel, thresholds, beta)
}

// Merging is the rule of [Merger]'s MergeEvicted and MergeStep, which is its zero value, with
// what D2O compares it to (arXiv:2406.13035, tables 6 and 8). It works on the host, wherever
// the pairs lie: comparisons are not worth kernels of their own. Values may be nil, and then
// only keys are merged.
type Merging struct {
	Average bool // every pair has the same weight
	All     bool // also what is less similar than the threshold
}

// Evicted is [Merger]'s MergeEvicted.
func (m Merging) Evicted(b Backend, past []KV, sel *Selection) *Tensor {
	thresholds := NewTensor(F64, len(past))
	for h, kept := range sel.Indices() {
		thresholds.F64()[h] = m.mergeHead(b, past[h], kept)
	}
	return thresholds
}

// mergeHead merges the pairs of a head that are not kept and returns their mean best similarity.
func (m Merging) mergeHead(b Backend, kv KV, kept []int32) float64 {
	var evicted []int32
	at := 0
	for j := range int32(kv.Entries()) {
		if at < len(kept) && kept[at] == j {
			at++
		} else {
			evicted = append(evicted, j)
		}
	}
	if len(evicted) == 0 || len(kept) == 0 {
		return math.NaN()
	}
	dim, compute := kv.K.Width(), b.Compute()
	conserved := b.Alloc(compute, len(kept), dim)
	b.Gather(conserved, kv.K, kept)
	norms := rowNorms(kv.K)
	nearest, similar, mean := make([]int, len(evicted)), make([]float64, len(evicted)), 0.0
	for from := 0; from < len(evicted); from += MergeBlock {
		part := evicted[from:min(len(evicted), from+MergeBlock)]
		keys, products := b.Alloc(compute, len(part), dim), b.Alloc(compute, len(part), len(kept))
		b.Gather(keys, kv.K, part)
		b.Linear(products, keys, conserved, nil, 1, 0)
		u := doubles(products)
		for i, e := range part {
			nearest[from+i], similar[from+i] = mostSimilar(u[i*len(kept):][:len(kept)], norms[e], func(j int) float64 { return norms[kept[j]] })
			mean += similar[from+i] / float64(len(evicted))
		}
	}
	merges := make([][]int, len(kept)) // in order, which counts where what is written rounds its neighbours
	for i, u := range similar {
		if m.All || u >= mean {
			merges[nearest[i]] = append(merges[nearest[i]], i)
		}
	}
	for j, group := range merges {
		if group == nil {
			continue
		}
		var rows []int
		var u []float64
		for _, i := range group {
			rows, u = append(rows, int(evicted[i])), append(u, similar[i])
		}
		m.into(kv, int(kept[j]), rows, u)
	}
	return mean
}

// mostSimilar is the highest cosine of a key with others, given their products.
func mostSimilar(products []float64, norm float64, norms func(j int) float64) (at int, u float64) {
	u = math.Inf(-1)
	for j, p := range products {
		cosine := 0.0
		if n := norm * norms(j); n > 0 {
			cosine = p / n
		}
		if cosine > u {
			at, u = j, cosine
		}
	}
	return at, u
}

// weight is that of an evicted pair with similarity u.
func (m Merging) weight(u float64) float64 {
	if m.Average {
		return 1
	}
	return math.Exp(u)
}

// into merges the pairs of rows with similarities u into entry j.
func (m Merging) into(kv KV, j int, rows []int, u []float64) {
	own := math.E
	if m.Average {
		own = 1
	}
	z := own
	for _, s := range u {
		z += m.weight(s)
	}
	for _, t := range []*Tensor{kv.K, kv.V} {
		if t == nil {
			continue
		}
		x := t.Rows(j, j+1).Float64s()
		for i := range x {
			x[i] *= own / z
		}
		for n, r := range rows {
			w := m.weight(u[n]) / z
			for i, v := range t.Rows(r, r+1).Float64s() {
				x[i] += w * v
			}
		}
		Convert(t.Rows(j, j+1), FromF64(x, 1, len(x)))
	}
}

// rowNorms are the Euclidean norms of rows. Every sum is in index order; four rows
// go on side by side, since each sum waits for itself.
func rowNorms(t *Tensor) []float64 {
	out, w := make([]float64, t.Dim0()), t.Width()
	if t.block == nil && t.DType == F32 {
		normsOf(out, t.F32(), w)
	} else {
		normsOf(out, t.Float64s(), w)
	}
	return out
}

func normsOf[T Float](out []float64, x []T, w int) {
	i := 0
	for ; i+4 <= len(out); i += 4 {
		r0, r1, r2, r3 := x[i*w:][:w], x[(i+1)*w:][:w], x[(i+2)*w:][:w], x[(i+3)*w:][:w]
		var s0, s1, s2, s3 float64
		for k := range r0 {
			a, b, c, d := float64(r0[k]), float64(r1[k]), float64(r2[k]), float64(r3[k])
			s0, s1, s2, s3 = s0+a*a, s1+b*b, s2+c*c, s3+d*d
		}
		out[i], out[i+1], out[i+2], out[i+3] = math.Sqrt(s0), math.Sqrt(s1), math.Sqrt(s2), math.Sqrt(s3)
	}
	for ; i < len(out); i++ {
		sum := 0.0
		for _, v := range x[i*w:][:w] {
			sum += float64(v) * float64(v)
		}
		out[i] = math.Sqrt(sum)
	}
}

// Step is [Merger]'s MergeStep. Thresholds lie on the host.
func (m Merging) Step(b Backend, past []KV, sel *Selection, thresholds *Tensor, beta float64) {
	indices := sel.Indices()
	parallel.Tasks(len(past), 2*past[0].K.Len(), func(h int) {
		idx, n := indices[h], past[h].Entries()
		if len(idx) == n || n == 1 {
			return
		}
		out := 0 // the one that goes
		for out < len(idx) && int(idx[out]) == out {
			out++
		}
		m.one(b, past[h], out, &thresholds.F64()[h], beta)
	})
}

// one merges or drops one pair.
func (m Merging) one(b Backend, kv KV, out int, threshold *float64, beta float64) {
	n := kv.Entries()
	products, key := b.Alloc(b.Compute(), 1, n), b.Alloc(b.Compute(), 1, kv.K.Width())
	b.Gather(key, kv.K, []int32{int32(out)})
	b.Linear(products, key, kv.K, nil, 1, 0)
	u, norms := products.Float64s(), rowNorms(kv.K)
	own := norms[out]
	others := append(u[:out], u[out+1:]...)
	norms = append(norms[:out], norms[out+1:]...)
	j, best := mostSimilar(others, own, func(j int) float64 { return norms[j] })
	if j >= out {
		j++
	}
	if math.IsNaN(*threshold) {
		*threshold = best
	} else {
		*threshold = float64(beta*best) + float64((1-beta)*(*threshold)) // the same where processors have both in one instruction
	}
	if m.All || best >= *threshold {
		m.into(kv, j, []int{out}, []float64{best})
	}
}

func (hostSelector) MergeRecent(past []KV, sums *Tensor, sink, recent int, draws [][]float64) {
	for h, kv := range past {
		row := hostFloats(sums)[h*sums.Width():][:kv.Entries()]
		for i, u := range draws[h] {
			if u >= mergeProbability(row, sink+i, recent) {
				continue
			}
			evicted := kv.V.Rows(sink+i, sink+i+1).Float64s()
			for j := len(row) - recent; j < len(row); j++ {
				v := kv.V.Rows(j, j+1).Float64s()
				for k := range v {
					v[k] += evicted[k] / float64(recent)
				}
				Convert(kv.V.Rows(j, j+1), FromF64(v, 1, len(v)))
			}
		}
	}
}

// mergeProbability is the share of an entry's sum in the mean of the last recent ones, at
// most 1; 0 of an entry that was never attended to.
func mergeProbability(sums []float32, out, recent int) float64 {
	mean := 0.0
	for _, v := range sums[len(sums)-recent:] {
		mean += float64(v) / float64(recent)
	}
	if sums[out] <= 0 || recent == 0 {
		return 0
	}
	return min(1, float64(sums[out])/mean)
}
