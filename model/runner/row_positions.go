package runner

import (
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
)

// rowPositions are where rows stand: their positions, and whose sequences they are in, which may
// be rotated by different frequencies.
type rowPositions struct {
	pos    []int32
	cache  *kvcache.Cache   // of all rows, or else
	caches []*kvcache.Cache // of one row each; rows after them fill up a batch
}

// long tells whether a row is rotated by the frequencies of long prompts.
func (p *rowPositions) long(row int) bool {
	if p.cache != nil {
		return p.cache.Long()
	}
	return p.caches[min(row, len(p.caches)-1)].Long()
}

// run is the end of the rows from the given one on that are rotated alike.
func (p *rowPositions) run(from int) int {
	if p.cache != nil {
		return len(p.pos)
	}
	to := from + 1
	for to < len(p.pos) && p.long(to) == p.long(from) {
		to++
	}
	return to
}

// rotate rotates x [rows, heads, headDim], queries or keys of layer l, as m says.
func (r *Runner) rotate(l int, m model.Module, x *kernels.Tensor, at rowPositions) {
	for from := 0; from < len(at.pos); {
		to, part := at.run(from), x
		if to-from < len(at.pos) {
			part = x.Rows(from, to)
		}
		pos := at.pos[from:to]
		r.on.RoPE(part, pos, r.Model.RoPE(r.on, l, m, pos, at.long(from)), false)
		from = to
	}
}

// at are positions in the cache's sequence.
func at(cache *kvcache.Cache, pos []int32) rowPositions { return rowPositions{pos: pos, cache: cache} }
