package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/internal/listing"
)

// Bounds of the answers that are shown.
const (
	maxAnswers    = 10  // different ones of a sample
	maxAnswerText = 280 // characters of one
)

// TaskAnswers are what policies said to the first samples of a task.
type TaskAnswers struct {
	Task    string
	Samples []SampleAnswers
}

// SampleAnswers are the answers to one sample, equal ones together.
type SampleAnswers struct {
	ID     string
	About  string // tokens, groups
	Prompt string // of a long one the ends
	// References are the accepted answers, or one for each turn.
	References []string
	Full       string // score of the full cache in %, "" where it was not measured
	Budgets    []string
	Answers    []SharedAnswer
	Rest       []string // labels that said something else yet
	Errors     []string
}

// SharedAnswer is an answer and who gave it.
type SharedAnswer struct {
	Turns []string
	Score string // %
	Full  bool   // the full cache gave it
	By    [][]Key
}

// answers shows the answers of the first n samples of every task.
func (s *Section) answers(all []*evaluation.Prediction, n int) []TaskAnswers {
	var out []TaskAnswers
	for _, task := range s.tasks {
		t := TaskAnswers{Task: task}
		own := slices.DeleteFunc(slices.Clone(all), func(p *evaluation.Prediction) bool { return p.Model != s.Model || p.Task != task || p.Index >= n })
		for _, sample := range listing.Group(own, (*evaluation.Prediction).Key) {
			if a := s.sampleAnswers(sample); len(a.Answers)+len(a.Errors) > 0 {
				t.Samples = append(t.Samples, a)
			}
		}
		if len(t.Samples) > 0 {
			out = append(out, t)
		}
	}
	return out
}

func (s *Section) sampleAnswers(sample []*evaluation.Prediction) SampleAnswers {
	first := sample[len(sample)-1] // one that failed as a whole has less
	out := SampleAnswers{ID: first.Sample, Prompt: first.Prompt}
	for _, text := range first.References {
		out.References = append(out.References, ellipsis(text, maxAnswerText))
	}
	if first.PromptTokens > 0 {
		out.About = fmt.Sprintf("%d tokens", first.PromptTokens)
	}
	if g := evaluation.GroupsName(first.Groups); g != "" {
		out.About = strings.TrimPrefix(out.About+", "+g, ", ")
	}
	out.Budgets = listing.Map(s.budgets, budgetName)
	type answer struct {
		SharedAnswer
		score float64
		cells int
	}
	byText := make(map[string]*answer)
	var answers []*answer
	for _, p := range sample {
		label := labelOf(p.Policy, p.Adapter)
		if p.Error != "" {
			out.Errors = append(out.Errors, strings.TrimPrefix(label+" "+p.Budget+": "+p.Error, " : "))
			continue
		}
		if len(p.Answers) == 0 {
			continue
		}
		score, scored := p.Measures[p.Metric]
		text := strings.Join(p.Answers, "\x00")
		if scored {
			text += "\x00" + percent(score)
		}
		a := byText[text]
		if a == nil {
			a = &answer{score: score, SharedAnswer: SharedAnswer{By: make([][]Key, len(s.budgets))}}
			for _, turn := range p.Answers {
				a.Turns = append(a.Turns, ellipsis(turn, maxAnswerText))
			}
			if scored {
				a.Score = percent(score)
			}
			byText[text], answers = a, append(answers, a)
		}
		a.cells++
		if p.Budget == "" {
			a.Full = a.Full || label == "full"
			if label == "full" {
				out.Full = a.Score
			}
			continue
		}
		b, _ := eviction.ParseBudget(p.Budget)
		if i := slices.Index(s.budgets, b); i >= 0 {
			a.By[i] = append(a.By[i], Key{label, s.lookClass(label)})
		}
	}
	slices.SortStableFunc(answers, func(a, b *answer) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(b.cells, a.cells))
	})
	for i, a := range answers {
		for _, by := range a.By {
			slices.SortFunc(by, func(x, y Key) int { return cmp.Compare(slices.Index(s.order, x.Label), slices.Index(s.order, y.Label)) })
		}
		if i < maxAnswers || a.Full {
			out.Answers = append(out.Answers, a.SharedAnswer)
			continue
		}
		for _, by := range a.By {
			for _, k := range by {
				out.Rest = listing.Union(out.Rest, k.Label)
			}
		}
	}
	return out
}
