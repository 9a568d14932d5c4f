package scoring

import "strings"

func init() {
	Metrics.Add("exact_match", Metric{
		About:  "1 if the answer equals an accepted one but for case, punctuation, articles and blanks",
		Source: "SQuAD, Rajpurkar et al. 2016, arXiv:1606.05250, evaluate-v1.1.py, exact_match_score",
		Score: best(func(prediction, answer string) float64 {
			return indicator(Normalized(prediction) == Normalized(answer))
		}),
	})
	Metrics.Add("exact_match_strict", Metric{
		About:  "1 if the answer equals an accepted one but for blanks around it",
		Source: "plain equality",
		Score: best(func(prediction, answer string) float64 {
			return indicator(strip(prediction) == strip(answer))
		}),
	})
	Metrics.Add("substring_exact_match", Metric{
		About:  "1 if the answer contains an accepted one, both normalised as for exact_match",
		Source: "HELMET, Yen et al. 2024, arXiv:2410.02694, utils.py, substring_exact_match_score",
		Score: best(func(prediction, answer string) float64 {
			return indicator(strings.Contains(Normalized(prediction), Normalized(answer)))
		}),
	})
	Metrics.Add("string_match_all", Metric{
		About:  "share of the references that the answer contains, ignoring case",
		Source: "RULER, Hsieh et al. 2024, arXiv:2404.06654, scripts/eval/synthetic/constants.py, string_match_all",
		Score: func(prediction string, ref Reference) (float64, error) {
			found, err := contained(prediction, ref)
			return float64(found) / float64(max(1, len(ref.Answers))), err
		},
	})
	Metrics.Add("string_match_part", Metric{
		About:  "1 if the answer contains at least one of the references, ignoring case",
		Source: "RULER, Hsieh et al. 2024, arXiv:2404.06654, scripts/eval/synthetic/constants.py, string_match_part",
		Score: func(prediction string, ref Reference) (float64, error) {
			found, err := contained(prediction, ref)
			return indicator(found > 0), err
		},
	})
}

// contained counts the references that RULER finds in a prediction. Control
// characters of the prediction count as line ends there (evaluate.py,
// postprocess_pred).
func contained(prediction string, ref Reference) (int, error) {
	if len(ref.Answers) == 0 {
		return 0, ErrNoAnswer
	}
	text := strip(strings.Map(func(r rune) rune {
		if r < ' ' {
			return '\n'
		}
		return r
	}, prediction))
	text = lower(text)
	n := 0
	for _, answer := range ref.Answers {
		if strings.Contains(text, lower(answer)) {
			n++
		}
	}
	return n, nil
}
