package scoring

import (
	"math"
	"strings"
)

func init() {
	const fuzz = "Python package fuzzywuzzy 0.18.0, fuzz.ratio, "
	const difflib = fuzz + "without python-Levenshtein (difflib.SequenceMatcher); LongBench's program takes whichever fuzzywuzzy finds"
	const levenshtein = fuzz + "with python-Levenshtein; thefuzz computes the same"
	const longbench = "LongBench, Bai et al. 2023, arXiv:2308.14508, metrics.py, code_sim_score, with the "
	Metrics.Add("edit_similarity", Metric{
		About:  "share of characters in matching blocks, in whole percent; best reference",
		Source: difflib,
		Score:  best(func(p, a string) float64 { return fuzzRatio(p, a, matchingCharacters) }),
	})
	Metrics.Add("edit_similarity_levenshtein", Metric{
		About:  "1 − insertions and deletions per character, in whole percent; best reference",
		Source: levenshtein,
		Score:  best(func(p, a string) float64 { return fuzzRatio(p, a, commonCharacters) }),
	})
	Metrics.Add("code_sim", Metric{
		About:  "edit_similarity of the first line of code; best reference",
		Source: longbench + difflib,
		Score:  best(func(p, a string) float64 { return fuzzRatio(firstCodeLine(p), a, matchingCharacters) }),
	})
	Metrics.Add("code_sim_levenshtein", Metric{
		About:  "edit_similarity_levenshtein of the first line of code; best reference",
		Source: longbench + levenshtein,
		Score:  best(func(p, a string) float64 { return fuzzRatio(firstCodeLine(p), a, commonCharacters) }),
	})
}

// firstCodeLine returns the first line that has no back-tick and no comment sign.
func firstCodeLine(prediction string) string {
	for line := range strings.SplitSeq(strings.TrimLeft(prediction, "\n"), "\n") {
		if !strings.ContainsAny(line, "`#") && !strings.Contains(line, "//") {
			return line
		}
	}
	return ""
}

// fuzzRatio is 2·matches/(characters of both), rounded to whole percent as
// fuzzywuzzy does. Equal texts are alike, an empty one and another are not.
func fuzzRatio(a, b string, matches func(a, b []rune) int) float64 {
	switch {
	case a == b:
		return 1
	case a == "" || b == "":
		return 0
	}
	x, y := []rune(a), []rune(b)
	ratio := 2 * float64(matches(x, y)) / float64(len(x)+len(y))
	return math.RoundToEven(100*ratio) / 100
}

// commonCharacters returns the length of the longest common subsequence.
func commonCharacters(a, b []rune) int {
	row := make([]int, len(b)+1)
	for _, x := range a {
		diagonal := 0
		for j, y := range b {
			above := row[j+1]
			if x == y {
				row[j+1] = diagonal + 1
			} else {
				row[j+1] = max(above, row[j])
			}
			diagonal = above
		}
	}
	return row[len(b)]
}

// matchingCharacters returns the characters in the matching blocks that
// difflib.SequenceMatcher finds: the longest common block, and so on to the left
// and to the right of it (Ratcliff and Metzener 1988). In a second text of 200
// characters or more those that make up over one percent start no block.
func matchingCharacters(a, b []rune) int {
	positions := map[rune][]int{}
	for j, r := range b {
		positions[r] = append(positions[r], j)
	}
	if n := len(b); n >= 200 {
		for r, at := range positions {
			if len(at) > n/100+1 {
				delete(positions, r)
			}
		}
	}
	type part struct{ aLow, aHigh, bLow, bHigh int }
	total := 0
	for queue := []part{{0, len(a), 0, len(b)}}; len(queue) > 0; {
		p := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		i, j, size := longestBlock(a, b, positions, p.aLow, p.aHigh, p.bLow, p.bHigh)
		if size == 0 {
			continue
		}
		total += size
		queue = append(queue, part{p.aLow, i, p.bLow, j}, part{i + size, p.aHigh, j + size, p.bHigh})
	}
	return total
}

// longestBlock returns the longest common block within a[aLow:aHigh] and
// b[bLow:bHigh], of equally long ones the first in a, then in b. Characters without
// positions extend a block but start none.
func longestBlock(a, b []rune, positions map[rune][]int, aLow, aHigh, bLow, bHigh int) (bestA, bestB, size int) {
	bestA, bestB = aLow, bLow
	length := map[int]int{} // of the block that ends at a[i−1] and at the key in b
	for i := aLow; i < aHigh; i++ {
		next := map[int]int{}
		for _, j := range positions[a[i]] {
			if j < bLow {
				continue
			}
			if j >= bHigh {
				break
			}
			k := length[j-1] + 1
			next[j] = k
			if k > size {
				bestA, bestB, size = i-k+1, j-k+1, k
			}
		}
		length = next
	}
	for bestA > aLow && bestB > bLow && a[bestA-1] == b[bestB-1] {
		bestA, bestB, size = bestA-1, bestB-1, size+1
	}
	for bestA+size < aHigh && bestB+size < bHigh && a[bestA+size] == b[bestB+size] {
		size++
	}
	return bestA, bestB, size
}
