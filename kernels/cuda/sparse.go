//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"math"
	"runtime"
	"slices"

	"gorgonia.org/cu"

	"glimpse/kernels"
)

var _ = kernelsOf("sparse",
	"page_bounds_f32", "page_bounds_bf16", "sparse_factors", "page_logits", "page_probabilities", "select_pages",
	"add_rows_f32", "add_rows_bf16", "share_mean",
)

// pageHead is struct Pages of sparse.cu.
type pageHead struct {
	lo, hi, rows, pool, reads                                                   cu.DevicePtr
	known, base, capacity, from, entries, want, recent, size, components, first int32
}

// checkPages panics unless the heads can choose, with bounds of dim dimensions where an
// operation reads or writes them.
func checkPages(op string, p *kernels.PageHeads, dim int, bounds bool) {
	n := len(p.Heads)
	if n == 0 || p.Pool != nil && (p.Pool.Heads() != n || len(p.Base) != n) {
		panic(fmt.Sprintf("kernels: %s: %d KV heads with %d bases of a pool", op, n, len(p.Base)))
	}
	for h := range p.Heads {
		x := &p.Heads[h]
		checkPageHead(op, h, x, dim)
		if p.Pool != nil && (p.Base[h] < p.Pool.Spans[h] || p.Base[h] > 1<<30) {
			panic(fmt.Sprintf("kernels: %s: the pool of head %d lies below %d, its base is %d", op, h, p.Pool.Spans[h], p.Base[h]))
		}
		if bounds && x.Chooses() {
			checkBounds(op, h, x, dim)
		}
	}
}

// checkPageHead panics unless there are the positions, pages and components that a head chooses by.
func checkPageHead(op string, h int, x *kernels.PageHead, dim int) {
	positions := x.From >= 0 && x.From < x.Entries && x.Entries <= 1<<30 && x.Want >= 1 && x.Recent >= 0 && x.Recent <= x.Want
	if !positions || x.Size < 1 || x.Size > 1<<30 || x.Components < 0 || x.Components > max(dim, 1<<20) {
		panic(fmt.Sprintf("kernels: %s: %d of the positions %d to %d of head %d, %d of them the last, in pages of %d by %d components", op, x.Want, x.From, x.Entries, h, x.Recent, x.Size, x.Components))
	}
}

// checkBounds panics unless there is room for the bounds of a head's pages.
func checkBounds(op string, h int, x *kernels.PageHead, dim int) {
	if t := x.Bounds; t == nil || len(t.Shape) != 3 || t.Shape[0] < 1 || t.Shape[0] > 2 || t.Shape[1] != dim || t.Shape[2] < x.Pages() {
		panic(fmt.Sprintf("kernels: %s: no bounds of %d pages of head %d with %d dimensions", op, x.Pages(), h, dim))
	}
}

// rowsBelow is the number of rows of the cache that a head's positions are among.
func rowsBelow(p *kernels.PageHeads, h int) int {
	if p.Pool == nil {
		return p.Heads[h].Entries
	}
	return max(p.Pool.Spans[h], p.Base[h]+p.Heads[h].Entries-p.Pool.Lens[h])
}

// describePages uploads what describes the heads. rows are keys or values, from the first
// page or position, and reads counts what is read; all of them may be nil.
func (b *cuda) describePages(op string, p *kernels.PageHeads, rows []*kernels.Tensor, from []int, reads *kernels.Tensor) cu.DevicePtr {
	out := make([]pageHead, len(p.Heads))
	count := b.at(op, reads, kernels.I32)
	var pool cu.DevicePtr
	width := 0
	if p.Pool != nil {
		pool, width = b.indices(op, p.Pool)
	}
	for h, x := range p.Heads {
		d := pageHead{reads: count, from: int32(x.From), entries: int32(x.Entries), want: int32(x.Want), recent: int32(x.Recent), size: int32(x.Size), components: int32(x.Components)}
		if x.Bounds != nil {
			d.lo, d.capacity = b.f32(op, x.Bounds), int32(x.Bounds.Shape[2])
			if x.Bounds.Shape[0] == 2 {
				d.hi = d.lo + cu.DevicePtr(4*x.Bounds.Shape[1]*x.Bounds.Shape[2])
			}
		}
		if p.Pool != nil {
			d.pool, d.known, d.base = pool+cu.DevicePtr(4*h*width), int32(p.Pool.Lens[h]), int32(p.Base[h])
		}
		if rows != nil {
			d.rows, d.first = b.address(op, rows[h]), int32(from[h])
		}
		out[h] = d
	}
	return upload(b, op, out)
}

// pageRows are the keys or values of the heads, which must hold all positions.
func pageRows(op string, p *kernels.PageHeads, past []kernels.KV, from []int, values bool) (rows []*kernels.Tensor, suffix string) {
	if len(past) != len(p.Heads) || len(from) != len(p.Heads) {
		panic(fmt.Sprintf("kernels: %s: pairs of %d and starts of %d KV heads, want %d", op, len(past), len(from), len(p.Heads)))
	}
	for h, kv := range past {
		t := kv.K
		if values {
			t = kv.V
		}
		if t.DType != past[0].K.DType || t.Width() != past[0].K.Width() || t.Dim0() < rowsBelow(p, h) || from[h] < 0 {
			panic(fmt.Sprintf("kernels: %s: %s rows %v of head %d from %d, want %d", op, t.DType, t.Shape, h, from[h], rowsBelow(p, h)))
		}
		rows = append(rows, t)
	}
	suffix = map[kernels.DType]string{kernels.F32: "_f32", kernels.BF16: "_bf16"}[rows[0].DType]
	if suffix == "" {
		panic(fmt.Sprintf("kernels: %s: rows of %s", op, rows[0].DType))
	}
	return rows, suffix
}

// keep holds on to the tensors that a kernel was given by address.
func keepPages(p *kernels.PageHeads) {
	for _, x := range p.Heads {
		runtime.KeepAlive(x.Bounds)
	}
	runtime.KeepAlive(p.Pool)
}

func (b *cuda) PageBounds(p *kernels.PageHeads, keys []kernels.KV, from []int) {
	const op = "PageBounds"
	rows, suffix := pageRows(op, p, keys, from, false)
	dim := rows[0].Width()
	checkPages(op, p, dim, false)
	most := 0
	for h, x := range p.Heads {
		if from[h] < x.Pages() {
			checkBounds(op, h, &x, dim)
		}
		most = max(most, x.Pages()-from[h])
	}
	b.do(op, func() {
		b.launch("page_bounds"+suffix, columns(most*dim, len(p.Heads)), elementThreads, 0, b.describePages(op, p, rows, from, nil), dim)
	})
	runtime.KeepAlive(keys)
	keepPages(p)
}

// estimated are the heads as an estimate reads them, with the most pages of one; it panics unless the tensors are theirs.
func estimated(op string, scores, probabilities, q *kernels.Tensor, p *kernels.PageHeads, how kernels.Estimate) (given []kernels.PageHead, most int) {
	kvHeads := len(p.Heads)
	if len(q.Shape) != 3 || q.Shape[0] != 1 || kvHeads == 0 || q.Shape[1] == 0 || q.Shape[1]%kvHeads != 0 || q.Shape[2] == 0 || q.Shape[2] > maxHeadDim {
		panic(fmt.Sprintf("kernels: %s: queries %v of %d KV heads of up to %d dimensions", op, q.Shape, kvHeads, maxHeadDim))
	}
	heads, dim := q.Shape[1], q.Shape[2]
	checkPages(op, p, dim, true)
	given = slices.Clone(p.Heads)
	for h := range given {
		x := &given[h]
		if how == kernels.EstimateBound {
			x.Components = dim
		}
		if x.Components > dim || x.Chooses() && how != kernels.EstimatePartial && x.Bounds.Shape[0] != 2 {
			panic(fmt.Sprintf("kernels: %s: %d components of %d dimensions of head %d", op, x.Components, dim, h))
		}
		most = max(most, x.Pages()-x.From/x.Size)
		if scores.Width() < x.Pages() {
			panic(fmt.Sprintf("kernels: %s: scores %v of %d pages of head %d", op, scores.Shape, x.Pages(), h))
		}
	}
	if len(scores.Shape) != 2 || scores.Dim0() != kvHeads || len(probabilities.Shape) != 2 || probabilities.Dim0() != heads || probabilities.Width() != scores.Width() {
		panic(fmt.Sprintf("kernels: %s %d: scores %v and probabilities %v of %d heads", op, how, scores.Shape, probabilities.Shape, heads))
	}
	return given, most
}

func (b *cuda) EstimatePages(scores, probabilities, q *kernels.Tensor, p *kernels.PageHeads, how kernels.Estimate, reads *kernels.Tensor) {
	const op = "EstimatePages"
	given, most := estimated(op, scores, probabilities, q, p, how)
	kvHeads, heads, dim := len(given), q.Shape[1], q.Shape[2]
	if p.Sinks != nil && p.Sinks.Len() != heads || reads != nil && reads.Len() != 1 || how < kernels.EstimateBound || how > kernels.EstimatePartial {
		panic(fmt.Sprintf("kernels: %s %d: sinks or counts that are not of %d heads", op, how, heads))
	}
	unit := p.Scale
	if unit == 0 {
		unit = 1 / math.Sqrt(float64(dim))
	}
	own, group := &kernels.PageHeads{Heads: given, Pool: p.Pool, Base: p.Base}, heads/kvHeads
	b.do(op, func() {
		at := b.describePages(op, own, nil, nil, reads)
		factor, dims, low := b.temporary(op, 4*int64(heads*dim)), b.temporary(op, 4*int64(kvHeads*dim)), b.temporary(op, 4*int64(heads*dim))
		S, P := b.f32(op, scores), b.f32(op, probabilities)
		b.launch("sparse_factors", [3]int{kvHeads, 1, 1}, threadsFor(dim), 0, factor, dims, low, b.f32(op, q), at, group, dim, int(how), unit)
		b.launch("page_logits", columns(most, heads), elementThreads, 0, P, factor, dims, low, at, group, dim, scores.Width(), float32(p.SoftCap))
		b.launch("page_probabilities", [3]int{kvHeads, 1, 1}, threadsFor(most), 0, S, P, at, b.f32(op, p.Sinks), group, scores.Width())
	})
	runtime.KeepAlive([]*kernels.Tensor{scores, probabilities, q, reads, p.Sinks})
	keepPages(p)
}

func (b *cuda) SelectPages(ids, scores *kernels.Tensor, p *kernels.PageHeads) *kernels.Selection {
	const op = "SelectPages"
	checkPages(op, p, 0, false)
	s := &kernels.Selection{Device: ids}
	most := 0
	for h, x := range p.Heads {
		n := min(x.Want, x.Entries-x.From)
		s.Lens, s.Spans = append(s.Lens, n), append(s.Spans, x.Entries)
		if len(ids.Shape) != 2 || ids.Dim0() != len(p.Heads) || ids.Width() < n || len(scores.Shape) != 2 || scores.Dim0() != len(p.Heads) || x.Chooses() && scores.Width() < x.Pages() {
			panic(fmt.Sprintf("kernels: %s: %d of %d pages of head %d by scores %v into %v", op, n, x.Pages(), h, scores.Shape, ids.Shape))
		}
		most = max(most, x.Pages()-x.From/x.Size, n)
	}
	b.do(op, func() {
		b.launch("select_pages", [3]int{len(p.Heads), 1, 1}, threadsFor(most), 0, b.at(op, ids, kernels.I32), b.f32(op, scores), b.describePages(op, p, nil, nil, nil), scores.Width(), ids.Width())
	})
	runtime.KeepAlive([]*kernels.Tensor{ids, scores})
	keepPages(p)
	return s
}

func (b *cuda) AddValues(sums *kernels.Tensor, p *kernels.PageHeads, values []kernels.KV, from []int) {
	const op = "AddValues"
	checkPages(op, p, 0, false)
	rows, suffix := pageRows(op, p, values, from, true)
	dim := rows[0].Width()
	if len(sums.Shape) != 2 || sums.Dim0() != len(rows) || sums.Width() != dim {
		panic(fmt.Sprintf("kernels: %s: sums %v of %d KV heads of %d elements", op, sums.Shape, len(rows), dim))
	}
	b.do(op, func() {
		b.launch("add_rows"+suffix, columns(dim, len(rows)), elementThreads, 0, b.at(op, sums, kernels.F64), b.describePages(op, p, rows, from, nil), dim)
	})
	runtime.KeepAlive(sums)
	runtime.KeepAlive(values)
	keepPages(p)
}

func (b *cuda) ShareMean(out, probabilities *kernels.Tensor, s *kernels.Selection, sums *kernels.Tensor, p *kernels.PageHeads) {
	const op = "ShareMean"
	checkPages(op, p, 0, false)
	kvHeads := len(p.Heads)
	if len(sums.Shape) != 2 || sums.Dim0() != kvHeads || sums.Width() == 0 || s.Heads() != kvHeads || len(probabilities.Shape) != 2 ||
		probabilities.Dim0() == 0 || probabilities.Dim0()%kvHeads != 0 || out.Len() != probabilities.Dim0()*sums.Width() {
		panic(fmt.Sprintf("kernels: %s: output %v, probabilities %v, sums %v of %d KV heads", op, out.Shape, probabilities.Shape, sums.Shape, kvHeads))
	}
	for h, x := range p.Heads {
		if x.Chooses() && (x.Size != 1 || s.Len(h) != x.Want || s.Spans[h] > x.Entries || probabilities.Width() < x.Entries) {
			panic(fmt.Sprintf("kernels: %s: %d of %d positions below %d in pages of %d of head %d with probabilities %v", op, s.Len(h), x.Want, s.Spans[h], x.Size, h, probabilities.Shape))
		}
	}
	heads := probabilities.Dim0()
	b.do(op, func() {
		ids, width := b.indices(op, s)
		b.launch("share_mean", [3]int{heads, 1, 1}, 128, 0, b.f32(op, out), b.f32(op, probabilities), ids, b.at(op, sums, kernels.F64), b.describePages(op, p, nil, nil, nil),
			heads/kvHeads, sums.Width(), probabilities.Width(), width)
	})
	runtime.KeepAlive([]*kernels.Tensor{out, probabilities, sums})
	runtime.KeepAlive(s)
	keepPages(p)
}
