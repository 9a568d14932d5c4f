package model

import "glimpse/kernels"

// rowPositions are where rows stand: their positions, and whose sequences they are in, which may
// be rotated by different frequencies.
type rowPositions struct {
	pos    []int32
	cache  *Cache   // of all rows, or else
	caches []*Cache // of one row each; rows after them fill up a batch
}

// Expect tells an empty cache the tokens of a prompt that enters it in several passes. A
// model with LongRoPE chooses its frequencies by them, once and for the whole sequence:
// keys that are rotated one way cannot be compared with queries that are rotated another.
// Without it the first pass counts as the whole prompt.
func (c *Cache) Expect(tokens int) { c.expected = tokens }

// start chooses the frequencies where a pass of so many tokens is the first.
func (c *Cache) start(tokens int) {
	if c.next == 0 {
		c.long = c.longAfter > 0 && max(tokens, c.expected) > c.longAfter
	}
}

// at are positions in the cache's sequence.
func (c *Cache) at(pos []int32) rowPositions { return rowPositions{pos: pos, cache: c} }

// long tells whether a row is rotated by the frequencies of long prompts.
func (p *rowPositions) long(row int) bool {
	if p.cache != nil {
		return p.cache.long
	}
	return p.caches[min(row, len(p.caches)-1)].long
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

// rotate rotates x [rows, heads, headDim], queries or keys.
func (r *Runner) rotate(x *kernels.Tensor, at rowPositions) {
	for from := 0; from < len(at.pos); {
		to, part := at.run(from), x
		if to-from < len(at.pos) {
			part = x.Rows(from, to)
		}
		pos := at.pos[from:to]
		r.on.RoPE(part, pos, r.Model.rope(r.on, pos, at.long(from)), false)
		from = to
	}
}
