// Package suggest finds the name that was meant where an unknown one was written. Errors of
// registries, flags, commands and configuration files share it.
package suggest

import (
	"fmt"
	"strings"
)

// Nearest is the name that was most likely meant, the first one of equals; ok is false where
// none is near. Case, hyphens and underscores do not count.
func Nearest(written string, names []string) (name string, ok bool) {
	folded := fold(written)
	least := 1 << 30
	for _, candidate := range names {
		c := fold(candidate)
		d := Distance(folded, c)
		if len(folded) >= 3 && strings.HasPrefix(c, folded) {
			d = min(d, 1)
		}
		// One letter in three may be wrong.
		if d <= (max(len(folded), len(c))+1)/3 && d < least {
			name, least = candidate, d
		}
	}
	return name, least < 1<<30
}

// DidYouMean is the end of an error: "; did you mean …?", or "" where no name is near.
func DidYouMean(written string, names []string) string {
	if name, ok := Nearest(written, names); ok {
		return fmt.Sprintf("; did you mean %q?", name)
	}
	return ""
}

// Unknown is the error of a name that is none of the names.
func Unknown(noun, written string, names []string) error {
	return fmt.Errorf("unknown %s %q, want one of: %s%s", noun, written, strings.Join(names, ", "), DidYouMean(written, names))
}

// fold leaves out what people write in more than one way.
func fold(s string) string {
	return strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(s))
}

// Distance is the number of letters to insert, leave out, replace or swap with their
// neighbour: Damerau and Levenshtein's, with no letter changed twice.
func Distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, above, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		before, above, row = above, row, before
		row[0] = i + 1
		for j := range y {
			d := above[j]
			if x[i] != y[j] {
				d++
			}
			d = min(d, above[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				d = min(d, before[j-1]+1)
			}
			row[j+1] = d
		}
	}
	return row[len(y)]
}
