package scoring

import "slices"

// unanswerable are answers, normalised as for exact_match, that say that there is none: SQuAD 2.0's
// empty one, lm-evaluation-harness's word for it (tasks/squadv2), and HELMET's and others'.
var unanswerable = []string{"", "unanswerable", "question is unanswerable", "no answer", "noanswer"}

// Unanswerable scores an answer to a question that has none: 1 for one that is empty or says so and
// nothing else, otherwise 0. So SQuAD 2.0 (Rajpurkar et al. 2018, arXiv:1806.03822,
// evaluate-v2.0.py) has exact match and F1 alike, where a system says so with an
// empty answer; a model that writes says it in words.
func Unanswerable(prediction string) float64 {
	return indicator(slices.Contains(unanswerable, Normalized(prediction)))
}
