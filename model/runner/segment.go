package runner

import (
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
)

// segment is rows of a pass that stand beside each other in one sequence: a chunk of a prompt, the token of a decoding
// step, or a probe, which is run after either and leaves no trace. Rows see their own segment and the cache, and no other
// segment. The segments of a pass belong to one sequence, or are one token each of sequences of their own.
type segment struct {
	model.QueryRows                // what the rows are made of, and the updates that act on them alone
	cache           *kvcache.Cache // of the sequence
	pos             []int32        // of the rows
	appends         bool           // the rows' pairs enter the cache; a probe's do not
	pairs           sharedPairs    // of a probe, for layers that share the pairs of one before

	// How far the rows go in the present layer: the last so many have queries, and the last so many of these go on after
	// attention. Only the first segment of a pass may have rows without queries.
	queries, onward int

	// Of rows that append: how many the sequence has in the pass, and how many of them have gone through the layer before.
	of, before int

	observed Capture // in the present layer
	sparse   SparseAttention
	peak     bool          // of a probe: the largest probability of any row is observed, not the mean
	refers   bool          // of a probe: of its rows the queries alone are kept
	whole    bool          // of a probe: its rows go through all of the last layer
	vectors  *QueryVectors // of a probe: takes its queries; nil: nobody asks
	o        *Observation  // takes what is observed in the present layer

	// Of a sequence in a batch.
	scratch *Runner // its own memory; nil: that of the pass
	views   *segmentViews
	err     error // after which nothing more is computed
}

// segmentViews are the tensors that a segment attends with, used again for every layer and token.
type segmentViews struct {
	q, k, v, out kernels.Tensor
	past         []kernels.KV
	pairs        []kernels.Tensor // of past
}

// probeSegment is a probe of rows after what a cache holds; next is the position that follows the sequence.
func (r *Runner) probeSegment(cache *kvcache.Cache, rows model.QueryRows, next int32) segment {
	n := rows.Rows()
	return segment{QueryRows: rows, cache: cache, pos: kvcache.Positions(firstPosition(rows, next), n), pairs: r.newSharedPairs(n)}
}

// firstPosition is where the first of rows stands after a cache that goes on at next.
func firstPosition(rows model.QueryRows, next int32) int32 {
	if s, ok := rows.(model.ShiftedTokens); ok {
		return int32(max(0, int(next)+s.By))
	}
	return next
}

// moduleRows is how many rows of the segment go through a module of the present layer.
func (s *segment) moduleRows(m model.Module) int {
	switch m {
	case model.QProj:
		return s.queries
	case model.KProj:
		return s.Rows()
	case model.VProj:
		if !s.appends && s.onward == 0 { // which reaches no score
			return 0
		}
		return s.Rows()
	}
	return s.onward
}

// allWhole tells that all rows of all segments go through all of the layer.
func allWhole(segments []segment) bool {
	for i := range segments {
		if s := &segments[i]; s.onward < s.Rows() {
			return false
		}
	}
	return true
}

// totalRows is how many rows of all segments go through a module.
func totalRows(segments []segment, m model.Module) (n int) {
	for i := range segments {
		n += segments[i].moduleRows(m)
	}
	return n
}

// low are the updates of a module's rows.
func (r *layerRows) low(m model.Module) (all []model.RowUpdate) {
	at := 0
	for i := range r.segments {
		n := r.segments[i].moduleRows(m)
		if n > 0 {
			if u := r.segments[i].LowRank(r.l, m); u != nil {
				all = append(all, model.RowUpdate{LowRank: u, From: at, To: at + n})
			}
		}
		at += n
	}
	return all
}

// long tells whether a row is rotated by the frequencies of long prompts. Rows after the last segment fill up a batch.
func (r *layerRows) long(row int) bool {
	return r.segments[min(row, len(r.segments)-1)].cache.Long()
}

// alike is the end of the rows from the given one on, of n, that are rotated alike.
func (r *layerRows) alike(from, n int) int {
	to := from + 1
	for to < n && r.long(to) == r.long(from) {
		to++
	}
	return to
}

// rotate rotates x [rows, heads, headDim], queries or keys of the last rows, as m says.
func (r *layerRows) rotate(m model.Module, x *kernels.Tensor) {
	n := x.Dim0()
	pos := r.pos[len(r.pos)-n:]
	for from := 0; from < n; {
		to, part := r.alike(from, n), x
		if to-from < n {
			part = x.Rows(from, to)
		}
		r.on.RoPE(part, part, pos[from:to], r.Model.RoPE(r.on, r.l, m, pos[from:to], r.long(from)), false)
		from = to
	}
}

// firstRows are the first n rows of x.
func firstRows(x *kernels.Tensor, n int) *kernels.Tensor {
	if x == nil || x.Dim0() == n {
		return x
	}
	return x.Rows(0, n)
}
