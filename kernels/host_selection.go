package kernels

import (
	"cmp"
	"slices"

	"glimpse/internal/parallel"
)

// hostSelector is the Selector of backends that do not select in their own memory: scores,
// moments and selections lie on the host, where they cost nothing to read. Keys, values and
// observations may lie anywhere; what it changes of them is written back.
//
// Nothing is rounded between an observation and the score that it becomes but where the
// Selector says F32, and sums are in index order, so that policies choose the same on every
// host.
type hostSelector struct{ Backend }

// HostSelector selects on the host.
func (d Decomposed) HostSelector() Selector { return hostSelector{d.on} }

// HostSelector is itself.
func (s hostSelector) HostSelector() Selector { return s }

// Alloc allocates on the host, zeroed.
func (hostSelector) Alloc(d DType, shape ...int) *Tensor { return NewTensor(d, shape...) }

// OwnMemory tells that the host reads what it selects by.
func (hostSelector) OwnMemory() bool { return false }

// Place returns t itself.
func (hostSelector) Place(t *Tensor) *Tensor { return t }

// Selector is itself.
func (s hostSelector) Selector() Selector { return s }

// Copy copies x, which may lie in the backend's memory, into y.
func (hostSelector) Copy(y, x *Tensor) { Convert(y, x) }

// expWork is the cost of an exponential for tasks.
const expWork = 16

// hostFloats is the memory of t, or a copy where t is not F32 on the host.
func hostFloats(t *Tensor) []float32 {
	if t.block == nil && t.DType == F32 {
		return t.F32()
	}
	return t.Float32s()
}

// doubles is the memory of t, or a copy where t is not F64 on the host.
func doubles(t *Tensor) []float64 {
	if t.block == nil && t.DType == F64 {
		return t.F64()
	}
	return t.Float64s()
}

// headRows are the used parts of the rows of scores.
func headRows(scores *Tensor, entries []int) [][]float32 {
	flat, width, out := scores.F32(), scores.Width(), make([][]float32, len(entries))
	for h, n := range entries {
		out[h] = flat[h*width:][:n]
	}
	return out
}

// Chosen is a selection of entries that lies on the host.
func Chosen(indices [][]int32, entries []int) *Selection {
	s := &Selection{indices: indices, Spans: slices.Clone(entries)}
	for _, idx := range indices {
		s.Lens = append(s.Lens, len(idx))
	}
	return s
}

func (hostSelector) Select(scores *Tensor, entries, budgets []int, sink, recent int) *Selection {
	CheckSelect("Select", scores, entries, budgets, sink, recent)
	rows, out := headRows(scores, entries), make([][]int32, len(entries))
	parallel.Tasks(len(out), 8*slices.Max(entries), func(h int) { out[h] = selectHead(rows[h], budgets[h], sink, recent) })
	return Chosen(out, entries)
}

// selectHead are the ascending indices that a head with the given scores keeps.
func selectHead(scores []float32, budget, sink, recent int) []int32 {
	n := len(scores)
	if n <= budget {
		return Ascending(n)
	}
	sink = min(sink, budget)
	recent = min(recent, budget-sink)
	keep := ascending(make([]int32, 0, budget), 0, sink)
	for _, j := range TopK(scores[sink:n-recent], budget-sink-recent) {
		keep = append(keep, j+int32(sink))
	}
	return ascending(keep, n-recent, n)
}

// Ascending are the indices of the first n entries.
func Ascending(n int) []int32 { return ascending(make([]int32, 0, n), 0, n) }

// ascending appends the indices [from, to).
func ascending(idx []int32, from, to int) []int32 {
	for j := from; j < to; j++ {
		idx = append(idx, int32(j))
	}
	return idx
}

func (hostSelector) ShareBudget(scores *Tensor, entries, own []int, sink, recent, pool int) []int {
	CheckShare("ShareBudget", scores, entries, own, sink, recent, pool)
	type candidate struct {
		head  int
		score float32
	}
	var rivals []candidate
	extra := make([]int, len(entries))
	for h, row := range headRows(scores, entries) {
		if len(row)-sink-recent <= own[h] {
			continue
		}
		free := row[sink : len(row)-recent]
		best := TopK(free, own[h]+pool) // no head can get more than the whole pool
		slices.SortStableFunc(best, func(a, b int32) int { return cmp.Compare(free[b], free[a]) })
		for _, j := range best[own[h]:] {
			rivals = append(rivals, candidate{h, free[j]})
		}
	}
	slices.SortStableFunc(rivals, func(a, b candidate) int { return cmp.Compare(b.score, a.score) })
	for _, c := range rivals[:min(pool, len(rivals))] {
		extra[c.head]++
	}
	return extra
}

func (s hostSelector) Compact(dst, src []KV, sel *Selection) {
	CheckCompact("Compact", dst, src, sel)
	for h, idx := range sel.Indices() {
		s.Gather(dst[h].K.Rows(0, len(idx)), src[h].K, idx)
		s.Gather(dst[h].V.Rows(0, len(idx)), src[h].V, idx)
	}
}

func (hostSelector) Pick(to, from *Tensor, s *Selection) {
	CheckPick(to, from, s)
	for h, idx := range s.Indices() {
		if from.DType != F64 {
			pick(to.F32()[h*to.Width():], from.F32()[h*from.Width():], idx)
			continue
		}
		toRows, toSums, toSquares := planes(to, h)
		rows, sums, squares := planes(from, h)
		pick(toRows, rows, idx)
		pick(toSums, sums, idx)
		pick(toSquares, squares, idx)
	}
}

// pick copies from at ascending indices to the first elements of to, which may be the same.
func pick[T any](to, from []T, idx []int32) {
	for n, j := range idx {
		to[n] = from[j]
	}
}

func (hostSelector) Compose(before, s *Selection, base []int) *Selection {
	first, out := before.Indices(), &Selection{Lens: slices.Clone(s.Lens)}
	for h, idx := range s.Indices() {
		known, all := len(first[h]), make([]int32, len(idx))
		for n, j := range idx {
			if int(j) < known {
				all[n] = first[h][j]
			} else {
				all[n] = int32(base[h]) + j - int32(known)
			}
		}
		out.indices = append(out.indices, all)
		out.Spans = append(out.Spans, max(before.Spans[h], base[h]+max(0, s.Spans[h]-known)))
	}
	return out
}
