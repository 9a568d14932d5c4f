package scoring

func init() {
	Metrics.Add("qa_f1", Metric{
		About:  "F1 of the words of answer and reference, normalised as for exact_match; best reference",
		Source: "LongBench, Bai et al. 2023, arXiv:2308.14508, metrics.py, qa_f1_score",
		Score: best(func(prediction, answer string) float64 {
			return tokenF1(normalizedWords(prediction), normalizedWords(answer))
		}),
	})
	Metrics.Add("helmet_f1", Metric{
		About:  "like qa_f1, but an answer or reference of yes, no or noanswer counts only if equal",
		Source: "HELMET, Yen et al. 2024, arXiv:2410.02694, utils.py, f1_score (HotpotQA, Yang et al. 2018)",
		Score:  best(helmetF1),
	})
}

// tokenF1 is the harmonic mean of precision and recall of two multisets of tokens;
// 0 if they share none, also if both are empty.
func tokenF1(prediction, reference []string) float64 {
	left := map[string]int{}
	for _, t := range reference {
		left[t]++
	}
	same := 0
	for _, t := range prediction {
		if left[t] > 0 {
			left[t]--
			same++
		}
	}
	return fMeasure(same, len(prediction), len(reference))
}

func helmetF1(prediction, answer string) float64 {
	p, a := Normalized(prediction), Normalized(answer)
	for _, word := range []string{"yes", "no", "noanswer"} {
		if (p == word || a == word) && p != a {
			return 0
		}
	}
	return tokenF1(fields(p), fields(a))
}
