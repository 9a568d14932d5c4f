package scoring

import (
	"slices"
	"strings"
)

func init() {
	Metrics.Add("rouge", Metric{
		About: "ROUGE-L of summaries, over sets of words and sentences that end at full stops; best reference",
		Source: "LongBench, Bai et al. 2023, arXiv:2308.14508, metrics.py, rouge_score, " +
			"with the Python package rouge 1.0.1 (github.com/pltrdy/rouge), rouge_l_summary_level",
		Score: best(rougeL),
	})
}

// rougeL is summary-level ROUGE-L (Lin 2004, section 3.2) as the Python package
// rouge computes it: sentences end at full stops, words are counted once each, and
// the union of the common subsequences is taken over all pairs of sentences. 0 if
// one of the texts has no sentence.
//
// That package reads subsequences out recursively and fails on two sentences of
// some thousand words together, where LongBench then counts 0. Here they are scored.
func rougeL(prediction, reference string) float64 {
	hyp, ref := rougeSentences(prediction), rougeSentences(reference)
	if len(hyp) == 0 || len(ref) == 0 {
		return 0
	}
	union := map[string]bool{}
	for _, r := range ref {
		for _, h := range hyp {
			for _, i := range commonSubsequence(r, h, takeSecondOnTies) {
				union[r[i]] = true
			}
		}
	}
	recall := float64(len(union)) / float64(distinct(ref))
	precision := float64(len(union)) / float64(distinct(hyp))
	return 2 * (precision * recall / (precision + recall + 1e-8))
}

// rougeSentences splits at full stops and blanks. A sentence of blanks only is a
// sentence of one empty word, as it is there.
func rougeSentences(text string) [][]string {
	var sentences [][]string
	for part := range strings.SplitSeq(text, ".") {
		if part == "" {
			continue
		}
		words := fields(part)
		if len(words) == 0 {
			words = []string{""}
		}
		sentences = append(sentences, words)
	}
	return sentences
}

func distinct(sentences [][]string) int {
	seen := map[string]bool{}
	for _, s := range sentences {
		for _, w := range s {
			seen[w] = true
		}
	}
	return len(seen)
}

// Which neighbour a common subsequence is read from where both are equally long.
// It decides which one of several longest subsequences is found.
const (
	takeSecondOnTies = iota // drop an element of b
	takeFirstOnTies         // drop an element of a
)

// commonSubsequence returns the indices in a, ascending, of one longest common
// subsequence of a and b.
func commonSubsequence(a, b []string, ties int) []int {
	table := lcsTable(a, b)
	var at []int
	for i, j := len(a), len(b); i > 0 && j > 0; {
		up, left := table[i-1][j], table[i][j-1]
		switch {
		case a[i-1] == b[j-1]:
			i, j = i-1, j-1
			at = append(at, i)
		case up > left || up == left && ties == takeFirstOnTies:
			i--
		default:
			j--
		}
	}
	slices.Reverse(at)
	return at
}

// lcsTable returns the lengths of the longest common subsequences of all prefixes,
// [len(a)+1][len(b)+1].
func lcsTable(a, b []string) [][]int32 {
	cells := make([]int32, (len(a)+1)*(len(b)+1))
	table := make([][]int32, len(a)+1)
	for i := range table {
		table[i] = cells[i*(len(b)+1):][:len(b)+1]
	}
	for i := range a {
		for j := range b {
			if a[i] == b[j] {
				table[i+1][j+1] = table[i][j] + 1
			} else {
				table[i+1][j+1] = max(table[i][j+1], table[i+1][j])
			}
		}
	}
	return table
}
