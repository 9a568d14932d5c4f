package scoring

import (
	"errors"

	"glimpse/internal/registry"
)

// Reference is what a prediction is scored against.
type Reference struct {
	Answers []string // accepted answers; at least one
	Wrong   []string // known false answers (TruthfulQA)
	Classes []string // labels to choose from (classification)
}

// Metric scores one prediction.
type Metric struct {
	About  string // one line: what the score is
	Source string // paper and the official implementation whose rule this is

	// Prepare reports what the metric needs and does not have, such as a dictionary.
	// Nil means that it needs nothing. A run asks before it generates.
	Prepare func() error

	// Score returns a value in [0, 1]. It is an error if the reference lacks what
	// the metric compares with; a prediction is never an error.
	Score func(prediction string, ref Reference) (float64, error)
}

// Metrics holds all metrics by name.
var Metrics = registry.Registry[Metric]{Noun: "metric"}

// ErrNoAnswer says that a reference has no accepted answer.
var ErrNoAnswer = errors.New("scoring: reference without answers")

// best makes a metric's Score of a rule for one answer: the maximum over all
// accepted answers, as SQuAD (Rajpurkar et al. 2016, arXiv:1606.05250) and
// LongBench have it.
func best(score func(prediction, answer string) float64) func(string, Reference) (float64, error) {
	return func(prediction string, ref Reference) (float64, error) {
		if len(ref.Answers) == 0 {
			return 0, ErrNoAnswer
		}
		top := 0.0
		for _, answer := range ref.Answers {
			top = max(top, score(prediction, answer))
		}
		return top, nil
	}
}

func indicator(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
