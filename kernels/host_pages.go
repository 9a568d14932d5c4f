package kernels

import (
	"cmp"
	"math"

	"glimpse/internal/simd"

	"glimpse/internal/parallel"
)

// pageBounds are the bounds of a head's pages in one dimension.
func pageBounds(t *Tensor, bound, dim int) []float32 {
	capacity := t.Shape[2]
	return t.F32()[(bound*t.Shape[1]+dim)*capacity:][:capacity]
}

// row is the row of the cache that a head's position lies in.
func (p *PageHeads) row(head, position int, pool [][]int32) int {
	switch {
	case p.Pool == nil:
		return position
	case position < len(pool[head]):
		return int(pool[head][position])
	}
	return p.Base[head] + position - len(pool[head])
}

// eachRun calls f for stretches of a head's positions [from, to) that are neighbours in the
// cache, too, with the row of the first.
func (p *PageHeads) eachRun(head, from, to int, pool [][]int32, f func(from, to, row int)) {
	for from < to {
		row, end := p.row(head, from, pool), from+1
		for end < to && p.row(head, end, pool) == row+end-from {
			end++
		}
		f(from, end, row)
		from = end
	}
}

// poolIndices are the indices of the pool; nil without one.
func (p *PageHeads) poolIndices() [][]int32 {
	if p.Pool == nil {
		return nil
	}
	return p.Pool.Indices()
}

func (hostSelector) PageBounds(p *PageHeads, keys []KV, from []int) {
	pool := p.poolIndices()
	work := 0
	for h, x := range p.Heads {
		work = max(work, (x.Entries-max(from[h]*x.Size, x.Known))*keys[h].K.Width())
	}
	parallel.Tasks(len(p.Heads), work, func(h int) {
		x := &p.Heads[h]
		if from[h] >= x.Pages() {
			return
		}
		dim, capacity := x.Bounds.Shape[1], x.Bounds.Shape[2]
		lo, hi := x.Bounds.F32(), []float32(nil)
		if x.Bounds.Shape[0] > 1 {
			lo, hi = lo[:dim*capacity], lo[dim*capacity:]
		}
		least, most := make([]float32, dim), make([]float32, dim)
		p.eachRun(h, max(from[h]*x.Size, x.Known), x.Entries, pool, func(from, to, row int) {
			k := hostFloats(keys[h].K.Rows(row, row+to-from))
			for at := from; at < to; {
				page, end := at/x.Size, min(to, (at/x.Size+1)*x.Size)
				rows := k[(at-from)*dim : (end-from)*dim]
				if at%x.Size == 0 {
					copy(least, rows)
					copy(most, rows)
					rows = rows[dim:]
				} else {
					takeColumn(least, lo[page:], capacity)
					takeColumn(most, hi[min(page, len(hi)):], capacity)
				}
				for ; len(rows) > 0; rows = rows[dim:] {
					for i, v := range rows[:dim] {
						least[i] = min(least[i], v)
					}
					if hi != nil {
						for i, v := range rows[:dim] {
							most[i] = max(most[i], v)
						}
					}
				}
				putColumn(lo[page:], least, capacity)
				if hi != nil {
					putColumn(hi[page:], most, capacity)
				}
				at = end
			}
		})
	})
}

// takeColumn and putColumn copy from and to a column of rows of width numbers.
func takeColumn(to, from []float32, width int) {
	for i := range to {
		if i*width < len(from) {
			to[i] = from[i*width]
		}
	}
}

func putColumn(to, from []float32, width int) {
	for i, v := range from {
		to[i*width] = v
	}
}

// EstimatePages leaves in probabilities their logarithms.
func (hostSelector) EstimatePages(scores, probabilities, q *Tensor, p *PageHeads, how Estimate, reads *Tensor) {
	flat, dim, group := hostFloats(q), q.Shape[2], q.Shape[1]/len(p.Heads)
	read := make([]int, len(p.Heads))
	work := 0
	for i := range p.Heads {
		x := &p.Heads[i]
		work = max(work, group*(x.Pages()-x.From/x.Size)*x.Components)
	}
	parallel.Tasks(len(p.Heads), work, func(h int) {
		x := &p.Heads[h]
		if !x.Chooses() {
			return
		}
		first, end := x.From/x.Size, x.Pages()
		var queries, logits [][]float32
		for g := h * group; g < (h+1)*group; g++ {
			row := probabilities.F32()[g*probabilities.Width():][first:end]
			clear(row)
			queries, logits = append(queries, flat[g*dim:][:dim]), append(logits, row)
		}
		bound := func(which, dim int) []float32 { return pageBounds(x.Bounds, which, dim)[first:end] }
		switch how {
		case EstimateBound:
			read[h] = boundLogits(logits, queries, p.Scale, bound)
		case EstimateSigned:
			partialLogits(logits, queries, p.Scale, x.Components, func(i int) []float32 {
				sum := 0.0
				for _, query := range queries {
					sum += float64(query[i])
				}
				if sum >= 0 {
					return bound(1, i)
				}
				return bound(0, i)
			})
		case EstimatePartial:
			partialLogits(logits, queries, p.Scale, x.Components, func(i int) []float32 { return bound(0, i) })
		}
		p.capped(logits)
		rankPages(scores.F32()[h*scores.Width():][first:end], logits, p.sinksOf(h*group, group))
	})
	if reads != nil {
		for _, n := range read {
			reads.I32()[0] += int32(n)
		}
	}
}

// boundLogits adds up the largest products that the bounds allow and returns how many
// numbers of them were read.
func boundLogits(logits, queries [][]float32, factor float64, bound func(which, dim int) []float32) (read int) {
	dim := len(queries[0])
	scale := float32(cmp.Or(factor, 1/math.Sqrt(float64(dim))))
	for i := range dim {
		var used [2]int // numbers of minima and maxima in this dimension
		for g, query := range queries {
			v, which := query[i]*scale, 1
			if v < 0 { // m ≤ M, so the sign tells the larger product
				which = 0
			}
			used[which] = len(logits[0])
			simd.Axpy(v, bound(which, i), logits[g])
		}
		read += used[0] + used[1]
	}
	return read
}

// partialLogits are the products of the queries with bounds in their k largest dimensions,
// divided by the temperature of a partial product, √(d·‖q̂‖₁/‖q‖₁), where q̂ are the query's
// components in these dimensions (SparQ eq. 5).
func partialLogits(logits, queries [][]float32, factor float64, k int, bound func(i int) []float32) {
	size := make([]float64, len(queries[0])) // summed over the group
	for _, x := range queries {
		for i, v := range x {
			size[i] += math.Abs(float64(v))
		}
	}
	dims := TopK(size, k)
	for g, x := range queries {
		some, all := 0.0, 0.0
		for _, v := range x {
			all += math.Abs(float64(v))
		}
		for _, i := range dims {
			some += math.Abs(float64(x[i]))
		}
		if some == 0 {
			continue
		}
		scale := 1 / math.Sqrt(float64(len(x))*some/all)
		if factor != 0 {
			scale = factor * math.Sqrt(all/some)
		}
		for _, i := range dims {
			simd.Axpy(x[i]*float32(scale), bound(int(i)), logits[g])
		}
	}
}

// capped bounds the logits softly.
func (l *Logits) capped(logits [][]float32) {
	if l.SoftCap > 0 {
		for _, row := range logits {
			for i, v := range row {
				row[i] = float32(l.SoftCap * math.Tanh(float64(v)/l.SoftCap))
			}
		}
	}
}

// sinksOf are the sinks of a group of query heads; nil where there are none.
func (l *Logits) sinksOf(first, group int) []float32 {
	if l.Sinks == nil {
		return nil
	}
	return hostFloats(l.Sinks)[first : first+group]
}

// rankPages turns every query's logits over pages into logarithms of probabilities, and
// writes what the pages are ranked by: the logarithms of their means over the queries. That
// orders pages as the means themselves do. But the means of most pages of a sharp head are less
// than a float32 holds, or than the exponential of package simd cares for, and would all be
// equal.
func rankPages(scores []float32, logits [][]float32, sinks []float32) {
	for g, l := range logits {
		top := simd.Max(l)
		all := float64(simd.ExpSum(scores, l, top))
		if sinks != nil {
			all += math.Exp(float64(sinks[g] - top))
		}
		sum := float32(math.Log(all))
		for i, v := range l {
			l[i] = v - top - sum
		}
	}
	logMean(scores, logits)
}

func (hostSelector) SelectPages(ids, scores *Tensor, p *PageHeads) *Selection {
	s := &Selection{}
	for h := range p.Heads {
		x := &p.Heads[h]
		idx := ids.I32()[h*ids.Width():][:0]
		if x.Chooses() {
			first, end := x.From/x.Size, x.Entries-x.Recent
			var row []float32
			if x.Want > x.Recent {
				row = scores.F32()[h*scores.Width():][first : (end+x.Size-1)/x.Size]
			}
			idx = ascending(bestPositions(idx, row, x, end), end, x.Entries)
		} else {
			idx = ascending(idx, x.From, x.Entries)
		}
		s.indices = append(s.indices, idx)
		s.Lens, s.Spans = append(s.Lens, len(idx)), append(s.Spans, x.Entries)
	}
	return s
}

// bestPositions appends the positions of a head before end, besides the recent ones,
// whose pages have the highest scores; scores[0] belongs to the first position's page.
func bestPositions(idx []int32, scores []float32, x *PageHead, end int) []int32 {
	want := min(x.Want-x.Recent, end-x.From)
	if want == 0 {
		return idx
	}
	span := func(page int32) (int, int) {
		at := (x.From/x.Size + int(page)) * x.Size
		return max(x.From, at), min(end, at+x.Size)
	}
	var best []int32
	total := 0
	for n := (want + x.Size - 1) / x.Size; ; n++ { // pages at the ends may be short
		best, total = TopK(scores, n), 0
		for _, p := range best {
			a, b := span(p)
			total += b - a
		}
		if total >= want {
			break
		}
	}
	worst := 0 // its positions are cut from the end
	for i, p := range best {
		if scores[p] <= scores[best[worst]] {
			worst = i
		}
	}
	for i, p := range best {
		a, b := span(p)
		if i == worst {
			b -= total - want
		}
		idx = ascending(idx, a, b)
	}
	return idx
}

func (hostSelector) AddValues(sums *Tensor, p *PageHeads, values []KV, from []int) {
	pool, dim := p.poolIndices(), sums.Width()
	for h, x := range p.Heads {
		sum := sums.F64()[h*dim:][:dim]
		p.eachRun(h, from[h], x.Entries, pool, func(from, to, row int) {
			if v := values[h].V.Rows(row, row+to-from); v.DType == F64 {
				addRows(sum, v.F64())
			} else {
				addRows(sum, hostFloats(v))
			}
		})
	}
}

// addRows adds rows to sum in order.
func addRows[T Float](sum []float64, rows []T) {
	for ; len(rows) > 0; rows = rows[len(sum):] {
		for i, y := range rows[:len(sum)] {
			sum[i] += float64(y)
		}
	}
}

func (hostSelector) ShareMean(out, probabilities *Tensor, s *Selection, sums *Tensor, p *PageHeads) {
	dim, group := sums.Width(), probabilities.Dim0()/len(p.Heads)
	y, indices := out.Float64s(), s.Indices()
	for h := range p.Heads {
		x := &p.Heads[h]
		if !x.Chooses() {
			continue
		}
		sum := sums.F64()[h*dim:][:dim]
		for g := h * group; g < (h+1)*group; g++ {
			alpha := 0.0
			for _, j := range indices[h] {
				alpha += math.Exp(float64(probabilities.F32()[g*probabilities.Width()+int(j)]))
			}
			for i := range dim {
				y[g*dim+i] = alpha*y[g*dim+i] + (1-alpha)*sum[i]/float64(x.Entries)
			}
		}
	}
	Convert(out, FromF64(y, out.Shape...))
}
