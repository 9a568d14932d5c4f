package onig

import (
	"sync"
	"unicode"

	"golang.org/x/text/cases"
)

// foldsToMany are the characters whose full case folding is several characters.
var foldsToMany = runeSet{
	{0xDF, 0xDF}, {0x130, 0x130}, {0x149, 0x149}, {0x1F0, 0x1F0}, {0x390, 0x390}, {0x3B0, 0x3B0}, {0x587, 0x587},
	{0x1E96, 0x1E9A}, {0x1E9E, 0x1E9E}, {0x1F50, 0x1F50}, {0x1F52, 0x1F52}, {0x1F54, 0x1F54}, {0x1F56, 0x1F56},
	{0x1F80, 0x1FAF}, {0x1FB2, 0x1FB4}, {0x1FB6, 0x1FB7}, {0x1FBC, 0x1FBC}, {0x1FC2, 0x1FC4}, {0x1FC6, 0x1FC7},
	{0x1FCC, 0x1FCC}, {0x1FD2, 0x1FD3}, {0x1FD6, 0x1FD7}, {0x1FE2, 0x1FE4}, {0x1FE6, 0x1FE7}, {0x1FF2, 0x1FF4},
	{0x1FF6, 0x1FF7}, {0x1FFC, 0x1FFC}, {0xFB00, 0xFB06}, {0xFB13, 0xFB17},
}

// manyFolds are those foldings.
var manyFolds = sync.OnceValue(func() map[string]bool {
	m := make(map[string]bool)
	for _, x := range foldsToMany {
		for r := x.lo; r <= x.hi; r++ {
			m[foldedText(r)] = true
		}
	}
	return m
})

func foldedText(r rune) string { return cases.Fold().String(string(r)) }

// cased are the characters that differ from another by case alone.
var cased = sync.OnceValue(func() runeSet {
	var s []runeRange
	for r := rune('A'); r <= unicode.MaxRune; r++ {
		if unicode.SimpleFold(r) != r {
			s = append(s, runeRange{r, r})
		}
	}
	return normal(s)
})

// foldSet adds to a set what differs from its characters by case alone.
func foldSet(s runeSet) runeSet {
	out := []runeRange(append(runeSet(nil), s...))
	for _, x := range intersect(s, cased()) {
		for r := x.lo; r <= x.hi; r++ {
			for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
				out = append(out, runeRange{f, f})
			}
		}
	}
	return normal(out)
}
