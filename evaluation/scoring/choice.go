package scoring

import (
	"regexp"
	"strings"
)

func init() {
	Metrics.Add("choice", Metric{
		About:  `1 if the letter after "The correct answer is" is the reference`,
		Source: "LongBench v2, Bai et al. 2024, arXiv:2412.15204, pred.py, extract_answer",
		Score: best(func(prediction, answer string) float64 {
			return indicator(chosen(prediction) == answer)
		}),
	})
}

var choices = []*regexp.Regexp{
	regexp.MustCompile(`The correct answer is \(([A-D])\)`),
	regexp.MustCompile(`The correct answer is ([A-D])`),
}

// chosen returns the letter that an answer commits itself to; none if it does not.
func chosen(prediction string) string {
	text := strings.ReplaceAll(prediction, "*", "")
	for _, pattern := range choices {
		if match := pattern.FindStringSubmatch(text); match != nil {
			return match[1]
		}
	}
	return "no choice"
}
