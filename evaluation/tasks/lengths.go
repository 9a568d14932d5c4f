package tasks

import (
	"fmt"

	"glimpse/evaluation"
)

// lengthsOf are the prompt lengths that the option of that name asks for, or --tokens, or
// those of the task.
func lengthsOf(s *evaluation.Setting, own []int) ([]int, error) {
	lengths, err := numbers(s.Options["lengths"])
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
