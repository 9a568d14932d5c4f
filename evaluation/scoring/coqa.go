package scoring

import (
	"slices"
	"strings"
)

func init() {
	const source = "CoQA, Reddy et al. 2019, arXiv:1808.07042; lm-evaluation-harness, tasks/coqa/utils.py, compute_scores"
	Metrics.Add("coqa_em", Metric{
		About:  "exact_match of the first line, best of all references but one, averaged over the one left out",
		Source: source + " (em)",
		Score:  leaveOneOut(func(p, a []string) float64 { return indicator(slices.Equal(p, a)) }),
	})
	Metrics.Add("coqa_f1", Metric{
		About:  "F1 of the words of the first line, best of all references but one, averaged over the one left out",
		Source: source + " (f1)",
		Score: leaveOneOut(func(p, a []string) float64 {
			if len(p) == 0 || len(a) == 0 {
				return indicator(len(p) == len(a))
			}
			return tokenF1(p, a)
		}),
	})
}

// leaveOneOut compares as with people, of whom each is judged by the others. With
// one reference that is the reference.
func leaveOneOut(score func(prediction, answer []string) float64) func(string, Reference) (float64, error) {
	return func(prediction string, ref Reference) (float64, error) {
		n := len(ref.Answers)
		if n == 0 {
			return 0, ErrNoAnswer
		}
		line, _, _ := strings.Cut(strip(prediction), "\n")
		words := normalizedWords(line)
		scores := make([]float64, n)
		for i, answer := range ref.Answers {
			scores[i] = score(words, normalizedWords(answer))
		}
		if n == 1 {
			return scores[0], nil
		}
		sum := 0.0
		for left := range scores {
			top := 0.0
			for i, s := range scores {
				if i != left {
					top = max(top, s)
				}
			}
			sum += top
		}
		return sum / float64(n), nil
	}
}
