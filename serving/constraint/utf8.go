package constraint

import (
	"slices"
	"unicode/utf8"
)

// runeRange is a range of code points, both ends included.
type runeRange struct{ lo, hi rune }

// anyRune is every character that UTF-8 has.
var anyRune = []runeRange{{0, 0xD7FF}, {0xE000, utf8.MaxRune}}

// normal returns the ranges in order, without overlaps, surrogates and what is above U+10FFFF.
func normal(ranges []runeRange) []runeRange {
	var sorted, out []runeRange
	for _, r := range ranges {
		for _, valid := range anyRune {
			if lo, hi := max(r.lo, valid.lo), min(r.hi, valid.hi); lo <= hi {
				sorted = append(sorted, runeRange{lo, hi})
			}
		}
	}
	slices.SortFunc(sorted, func(a, b runeRange) int { return int(a.lo - b.lo) })
	for _, r := range sorted {
		if n := len(out); n > 0 && r.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, r.hi)
		} else {
			out = append(out, r)
		}
	}
	return out
}

// without returns the characters of a that b does not have.
func without(a, b []runeRange) []runeRange {
	var gaps []runeRange
	next := rune(0)
	for _, r := range normal(b) {
		gaps = append(gaps, runeRange{next, r.lo - 1})
		next = r.hi + 1
	}
	gaps = append(gaps, runeRange{next, utf8.MaxRune})
	var out []runeRange
	for _, x := range normal(a) {
		for _, y := range gaps {
			if lo, hi := max(x.lo, y.lo), min(x.hi, y.hi); lo <= hi {
				out = append(out, runeRange{lo, hi})
			}
		}
	}
	return normal(out)
}

// runes matches one character of the ranges in UTF-8.
func runes(ranges ...runeRange) *expr {
	var list []*expr
	single := &expr{kind: class}
	for _, r := range normal(ranges) {
		if r.lo < utf8.RuneSelf {
			single.class.addRange(byte(r.lo), byte(min(r.hi, utf8.RuneSelf-1)))
		}
		for _, edge := range []runeRange{{0x80, 0x7FF}, {0x800, 0xFFFF}, {0x10000, utf8.MaxRune}} {
			if lo, hi := max(r.lo, edge.lo), min(r.hi, edge.hi); lo <= hi {
				list = splitUTF8(list, lo, hi)
			}
		}
	}
	if single.class != (byteSet{}) {
		list = append(list, single)
	}
	return alt(list...)
}

// splitUTF8 appends sequences of byte ranges for characters that have as many bytes each.
// A range is cut where its continuation bytes would not be full (the method of RE2).
func splitUTF8(list []*expr, lo, hi rune) []*expr {
	for i := range 3 {
		mask := rune(1)<<(6*(i+1)) - 1
		if lo&^mask == hi&^mask {
			continue
		}
		if lo&mask != 0 {
			return splitUTF8(splitUTF8(list, lo, lo|mask), lo|mask+1, hi)
		}
		if hi&mask != mask {
			return splitUTF8(splitUTF8(list, lo, hi&^mask-1), hi&^mask, hi)
		}
	}
	var a, b [utf8.UTFMax]byte
	n := utf8.EncodeRune(a[:], lo)
	utf8.EncodeRune(b[:], hi)
	parts := make([]*expr, n)
	for i := range n {
		parts[i] = &expr{kind: class}
		parts[i].class.addRange(a[i], b[i])
	}
	return append(list, seq(parts...))
}
