package tokenizer

import (
	"math/rand/v2"
	"testing"
	"unicode/utf8"
)

// TestLocate: the tokens of a part hold all of it, and where the tokens give the text they are the fewest that do.
func TestLocate(t *testing.T) {
	texts, byTokenizer := goldens(t)
	exact, wide := 0, 0
	for name := range byTokenizer {
		tok := fixture(t, name)
		rng := rand.New(rand.NewPCG(3, 4))
		for _, text := range texts {
			if !utf8.ValidString(text) || len(text) < 3 {
				continue
			}
			ids, err := tok.Encode(text, true)
			if err != nil {
				continue // text that the vocabulary does not have
			}
			var parts [][2]int
			for range 6 {
				from := rng.IntN(len(text))
				parts = append(parts, [2]int{from, from + 1 + rng.IntN(len(text)-from)})
			}
			found, err := tok.Locate(text, ids, parts)
			if err != nil {
				t.Fatalf("%s: %q: %v", name, text, err)
			}
			starts, whole := tok.starts(text, ids)
			for i, part := range parts {
				from, to := found[i][0], found[i][1]
				if from < 0 || from >= to || to > len(ids) {
					t.Errorf("%s: %q: part %v: tokens %v of %d", name, text, part, found[i], len(ids))
					continue
				}
				if !whole {
					wide++
					continue
				}
				exact++
				if starts[from] > part[0] || starts[to] < part[1] {
					t.Errorf("%s: %q: part %v: tokens %v begin at %d and end at %d", name, text, part, found[i], starts[from], starts[to])
				}
				if n := next(starts, from); n <= part[0] {
					t.Errorf("%s: %q: part %v: the first of tokens %v ends at %d", name, text, part, found[i], n)
				}
				if starts[to-1] >= part[1] {
					t.Errorf("%s: %q: part %v: the last of tokens %v begins at %d", name, text, part, found[i], starts[to-1])
				}
			}
		}
	}
	if exact < 500 {
		t.Errorf("%d parts were found by where tokens begin, %d else", exact, wide)
	}
	t.Logf("%d parts by where tokens begin, %d by their neighbours", exact, wide)
}

// next is where the character of a token ends.
func next(starts []int, i int) int {
	for j := i + 1; j < len(starts); j++ {
		if starts[j] > starts[i] {
			return starts[j]
		}
	}
	return starts[len(starts)-1]
}
