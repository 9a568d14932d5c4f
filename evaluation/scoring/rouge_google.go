package scoring

import "strings"

func init() {
	const source = "ROUGE, Lin 2004; Python package rouge_score 0.1.2 (github.com/google-research/google-research/tree/master/rouge)"
	kinds := []struct {
		name, about string
		score       func(prediction, answer string, stem bool) float64
	}{
		{"rouge1", "ROUGE-1 F: shared words", func(p, a string, stem bool) float64 { return rougeN(p, a, 1, stem) }},
		{"rouge2", "ROUGE-2 F: shared pairs of words", func(p, a string, stem bool) float64 { return rougeN(p, a, 2, stem) }},
		{"rougeL", "ROUGE-L F: longest common subsequence of the whole texts", rougeLCS},
		{"rougeLsum", "ROUGE-L F over sentences, one a line", rougeLsum},
	}
	for _, k := range kinds {
		Metrics.Add(k.name, Metric{
			About:  k.about + "; best reference",
			Source: source + ", use_stemmer=False",
			Score:  best(func(p, a string) float64 { return k.score(p, a, false) }),
		})
		Metrics.Add(k.name+"_stem", Metric{
			About:  k.about + ", of stemmed words; best reference",
			Source: source + ", use_stemmer=True",
			Score:  best(func(p, a string) float64 { return k.score(p, a, true) }),
		})
	}
}

// rougeTokens returns the runs of a–z and 0–9 of the lowered text; with stem, those
// of more than three letters stemmed (rouge_score/tokenize.py).
func rougeTokens(text string, stem bool) []string {
	words := strings.FieldsFunc(lower(text), func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9')
	})
	if stem {
		for i, w := range words {
			if len(w) > 3 {
				words[i] = porterStem(w)
			}
		}
	}
	return words
}

func rougeN(prediction, answer string, n int, stem bool) float64 {
	p, a := ngrams(rougeTokens(prediction, stem), n), ngrams(rougeTokens(answer, stem), n)
	same, inP, inA := 0, 0, 0
	for gram, count := range p {
		same += min(count, a[gram])
		inP += count
	}
	for _, count := range a {
		inA += count
	}
	return fMeasure(same, inP, inA)
}

// ngrams counts the runs of n tokens.
func ngrams(tokens []string, n int) map[string]int {
	counts := map[string]int{}
	for i := range len(tokens) - n + 1 {
		counts[strings.Join(tokens[i:i+n], " ")]++
	}
	return counts
}

func rougeLCS(prediction, answer string, stem bool) float64 {
	p, a := rougeTokens(prediction, stem), rougeTokens(answer, stem)
	return fMeasure(int(lcsTable(a, p)[len(a)][len(p)]), len(p), len(a))
}

// rougeLsum is summary-level ROUGE-L (Lin 2004, section 3.2) over lines; a word
// counts as often as it stands in the text that has it less often.
func rougeLsum(prediction, answer string, stem bool) float64 {
	lines := func(text string) (sentences [][]string, counts map[string]int, n int) {
		counts = map[string]int{}
		for line := range strings.SplitSeq(text, "\n") {
			if line == "" {
				continue
			}
			words := rougeTokens(line, stem)
			sentences = append(sentences, words)
			n += len(words)
			for _, w := range words {
				counts[w]++
			}
		}
		return sentences, counts, n
	}
	can, leftCan, n := lines(prediction)
	ref, leftRef, m := lines(answer)
	hits := 0
	for _, r := range ref {
		inUnion := make([]bool, len(r))
		for _, c := range can {
			for _, i := range commonSubsequence(r, c, takeFirstOnTies) {
				inUnion[i] = true
			}
		}
		for i, w := range r {
			if inUnion[i] && leftCan[w] > 0 && leftRef[w] > 0 {
				leftCan[w]--
				leftRef[w]--
				hits++
			}
		}
	}
	return fMeasure(hits, n, m)
}

// fMeasure is the harmonic mean of same/inPrediction and same/inAnswer; 0 if same is.
func fMeasure(same, inPrediction, inAnswer int) float64 {
	if same == 0 {
		return 0
	}
	precision := float64(same) / float64(inPrediction)
	recall := float64(same) / float64(inAnswer)
	return 2 * precision * recall / (precision + recall)
}
