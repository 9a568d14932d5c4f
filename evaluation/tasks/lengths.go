package tasks

import (
	"context"
	"fmt"
	"iter"
	"strconv"

	"glimpse/evaluation"
)

// lengthsOf are the prompt lengths that the option of that name asks for, or --tokens, or
// the task's own.
func lengthsOf(s *evaluation.Setting, own []int) ([]int, error) {
	lengths, err := parseNumbers(s.Options["lengths"])
	switch {
	case err != nil:
		return nil, fmt.Errorf("option lengths: %w", err)
	case len(lengths) > 0:
		return lengths, nil
	case s.Tokens > 0:
		return []int{s.Tokens}, nil
	}
	return own, nil
}

// checkLengths is an error for prompts that the model or --max-prompt has no room for.
// Made prompts are not truncated: what is asked for might be lost.
func checkLengths(s *evaluation.Setting, lengths []int, maxNew int) error {
	if _, err := s.Model.NeedTokenizer(); err != nil {
		return err
	}
	for _, n := range lengths {
		if most := s.MaxTokens(maxNew); n > most {
			return fmt.Errorf("prompts of %d tokens, want at most %d with answers of %d", n, most, maxNew)
		}
	}
	return nil
}

// ofLengths are so many samples of every length that a task makes, NAME-LENGTH-NUMBER, all lengths of a
// number before the next. Of several lengths, results are broken down by them.
func ofLengths(metric, name string, count int, lengths []int, sample func(ctx context.Context, length, i int) (*evaluation.Sample, error)) *evaluation.Samples {
	return &evaluation.Samples{Metric: metric, Count: count * len(lengths), Each: func(yield func(evaluation.Item) bool) {
		for at := range count * len(lengths) {
			i, length := at/len(lengths), lengths[at%len(lengths)]
			item := evaluation.Item{ID: fmt.Sprintf("%s-%d-%d", name, length, i), Make: func(ctx context.Context) (*evaluation.Sample, error) {
				s, err := sample(ctx, length, i)
				if err == nil && len(lengths) > 1 {
					s.Groups = append([]evaluation.Group{{Key: "length", Value: strconv.Itoa(length)}}, s.Groups...)
				}
				return s, err
			}}
			if !yield(item) {
				return
			}
		}
	}}
}

// itemsOf are the samples that are made from a sequence of items.
func itemsOf[T any](each iter.Seq[T], item func(T) evaluation.Item) iter.Seq[evaluation.Item] {
	return func(yield func(evaluation.Item) bool) {
		for x := range each {
			if !yield(item(x)) {
				return
			}
		}
	}
}
