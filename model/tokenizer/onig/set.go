package onig

import (
	"slices"
	"unicode"
	"unicode/utf8"
)

// A runeSet is sorted ranges that neither touch nor overlap.
type runeSet []runeRange

type runeRange struct{ lo, hi rune }

func single(r rune) runeSet { return runeSet{{r, r}} }

func (s runeSet) has(r rune) bool {
	_, found := slices.BinarySearchFunc(s, r, func(x runeRange, r rune) int {
		switch {
		case x.hi < r:
			return -1
		case x.lo > r:
			return 1
		}
		return 0
	})
	return found
}

// normal sorts and joins ranges.
func normal(ranges []runeRange) runeSet {
	slices.SortFunc(ranges, func(a, b runeRange) int { return int(a.lo) - int(b.lo) })
	out := make(runeSet, 0, len(ranges))
	for _, r := range ranges {
		if n := len(out); n > 0 && r.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, r.hi)
			continue
		}
		out = append(out, r)
	}
	return out
}

func union(sets ...runeSet) runeSet { return normal(slices.Concat(sets...)) }

func (s runeSet) negated() runeSet {
	out := make(runeSet, 0, len(s)+1)
	next := rune(0)
	for _, r := range s {
		if next < r.lo {
			out = append(out, runeRange{next, r.lo - 1})
		}
		next = r.hi + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, runeRange{next, unicode.MaxRune})
	}
	return out
}

func intersect(a, b runeSet) runeSet { return union(a.negated(), b.negated()).negated() }

func fromTable(t *unicode.RangeTable) runeSet {
	var out []runeRange
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			out = append(out, runeRange{lo, hi})
			return
		}
		for r := lo; r <= hi; r += stride {
			out = append(out, runeRange{r, r})
		}
	}
	for _, r := range t.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range t.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return normal(out)
}

// class is a runeSet made ready for matching.
type class struct {
	first [256]uint8            // 1 for bytes that are a character of it, wide for those that one may begin with
	plane *[1 << 16 / 64]uint64 // bits of what it has between U+0080 and U+FFFF; nil if that is in few ranges
	rest  runeSet               // what it has beyond ASCII, but for what is in plane
}

const (
	wide = 2
	few  = 4 // ranges
)

func newClass(s runeSet) *class {
	c := &class{rest: intersect(s, runeSet{{utf8.RuneSelf, unicode.MaxRune}})}
	for b := range c.first {
		if b >= utf8.RuneSelf && len(c.rest) > 0 {
			c.first[b] = wide
		} else if b < utf8.RuneSelf && s.has(rune(b)) {
			c.first[b] = 1
		}
	}
	if len(c.rest) <= few {
		return c
	}
	c.plane = new([1 << 16 / 64]uint64)
	for _, r := range c.rest {
		for x := r.lo; x <= min(r.hi, 1<<16-1); x++ {
			c.plane[x/64] |= 1 << (x % 64)
		}
	}
	c.rest = intersect(c.rest, runeSet{{1 << 16, unicode.MaxRune}})
	return c
}

// match returns the size of the character at byte i of s, i < len(s), or 0 if it
// is not in the class.
func (c *class) match(s string, i int) int {
	if n := c.first[s[i]]; n < wide {
		return int(n)
	}
	return c.matchWide(s[i:])
}

// matchWide is match of a character of more than a byte, which s begins with.
func (c *class) matchWide(s string) int {
	r, n := utf8.DecodeRuneInString(s)
	if c.plane != nil && r < 1<<16 && c.plane[r/64]>>(r%64)&1 != 0 || c.rest.has(r) {
		return n
	}
	return 0
}
