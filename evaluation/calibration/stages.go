package calibration

import (
	"slices"

	"glimpse/eviction"
)

// What a prompt takes, in steps of one answer that is decoded alone.
const (
	tokenBytes   = 4        // of a prompt's text
	prefillToken = 1.0 / 10 // tokens of a prompt go through a layer many at a time
	batchedStep  = 1.0 / 4  // answers of evicted caches are decoded together
	usualNew     = 256      // tokens of an answer, where nobody says
)

// Stages are the budgets from the largest down, in one or two groups. A group is measured as a whole, since all budgets of a prompt share
// its prefill and the full cache's answer. Another group costs both once more, and saves its own answers where the ones before it
// settle the question. So there is a second one only where its answers cost more than that.
func Stages(budgets []eviction.Budget, policies int, promptBytes int64, maxNew int) [][]eviction.Budget {
	sorted := slices.Clone(budgets)
	slices.SortFunc(sorted, func(a, b eviction.Budget) int { return b.Compare(a) })
	if maxNew == 0 {
		maxNew = usualNew
	}
	first := (len(sorted) + 1) / 2
	said := 2 * float64(maxNew) // an answer, and the full cache's run over
	again := prefillToken*float64(promptBytes)/tokenBytes + said
	if saved := batchedStep * said * float64(policies*(len(sorted)-first)); saved <= again {
		return [][]eviction.Budget{sorted}
	}
	return [][]eviction.Budget{sorted[:first], sorted}
}
