package scoring

import (
	"math"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
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
// difflib.SequenceMatcher finds.
func matchingCharacters(a, b []rune) int {
	total := 0
	for _, block := range difflib.NewMatcher(characters(a), characters(b)).GetMatchingBlocks() {
		total += block.Size
	}
	return total
}

func characters(text []rune) []string {
	out := make([]string, len(text))
	for i, r := range text {
		out[i] = string(r)
	}
	return out
}
