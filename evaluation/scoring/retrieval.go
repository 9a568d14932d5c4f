package scoring

import (
	"fmt"
	"regexp"
)

func init() {
	const source = "LongBench, Bai et al. 2023, arXiv:2308.14508, metrics.py, "
	Metrics.Add("retrieval", Metric{
		About:  "share of the numbers in the answer that are the paragraph's; best reference",
		Source: source + "retrieval_score",
		Score:  retrieval(regexp.MustCompile(`Paragraph (\p{Nd}+)`)),
	})
	Metrics.Add("retrieval_zh", Metric{
		About:  "share of the numbers in the answer that are the paragraph's, named in Chinese; best reference",
		Source: source + "retrieval_zh_score",
		Score:  retrieval(regexp.MustCompile(`段落(\p{Nd}+)`)),
	})
	Metrics.Add("count", Metric{
		About:  "share of the numbers in the answer that are the reference; best reference",
		Source: source + "count_score",
		Score:  best(shareOfNumbers),
	})
}

// retrieval takes the number out of references that name a paragraph.
func retrieval(paragraph *regexp.Regexp) func(string, Reference) (float64, error) {
	return func(prediction string, ref Reference) (float64, error) {
		numbers := Reference{Answers: make([]string, len(ref.Answers))}
		for i, answer := range ref.Answers {
			match := paragraph.FindStringSubmatch(answer)
			if match == nil {
				return 0, fmt.Errorf("scoring: reference %q, want one like %s", answer, paragraph)
			}
			numbers.Answers[i] = match[1]
		}
		return best(shareOfNumbers)(prediction, numbers)
	}
}

var digits = regexp.MustCompile(`\p{Nd}+`)

// shareOfNumbers returns how many of the numbers in a text are the wanted one.
func shareOfNumbers(prediction, want string) float64 {
	numbers := digits.FindAllString(prediction, -1)
	right := 0
	for _, n := range numbers {
		if n == want {
			right++
		}
	}
	return float64(right) / float64(max(1, len(numbers)))
}
