package scoring

import (
	"errors"
	"slices"
	"strings"
)

func init() {
	Metrics.Add("classification", Metric{
		About:  "1/n if the answer names n of the classes and the right one is among them; best reference",
		Source: "LongBench, Bai et al. 2023, arXiv:2308.14508, metrics.py, classification_score",
		Score: func(prediction string, ref Reference) (float64, error) {
			if len(ref.Classes) == 0 {
				return 0, errors.New("scoring: classification: reference without classes")
			}
			return best(func(p, a string) float64 { return classify(p, a, ref.Classes) })(prediction, ref)
		},
	})
}

// classify counts the classes that stand in the prediction. Those that are only a
// part of the right one's name do not count, but the official loop removes from the
// list that it runs over, so that the class after a removed one always counts.
func classify(prediction, answer string, classes []string) float64 {
	var named []string
	for _, class := range classes {
		if strings.Contains(prediction, class) {
			named = append(named, class)
		}
	}
	for i := 0; i < len(named); i++ {
		if class := named[i]; class != answer && strings.Contains(answer, class) {
			at := slices.Index(named, class)
			named = slices.Delete(named, at, at+1)
		}
	}
	if !slices.Contains(named, answer) {
		return 0
	}
	return 1 / float64(len(named))
}
