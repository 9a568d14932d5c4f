package report

import (
	"cmp"
	"slices"
	"strings"

	"glimpse/evaluation"
	"glimpse/internal/listing"
)

// MaxHighlighted is how many policies a chart shows in colour unless it is told which; more
// colours could not be told apart.
const MaxHighlighted = 10

// references are policies that the others are measured against: they keep or read what
// no policy could choose.
var references = []string{"full", "oracle", "exact-topk"}

// IsReference tells whether a policy, as results name it, is a bound for the others rather
// than one of them: the full cache, the oracle of eviction and that of sparse attention.
func IsReference(policy string) bool {
	name, _, _ := strings.Cut(policy, "(")
	return slices.Contains(references, name)
}

// Highlighted are the labels of at most n policies that a chart of more shows in colour:
// those with an adapter, and of the others those with the best mean over their budgets.
// References are not among them. The order is from the best to the worst.
func Highlighted(means []evaluation.Mean, n int) []string {
	lines, _ := linesOf(slices.DeleteFunc(slices.Clone(means), func(m evaluation.Mean) bool { return IsReference(m.Policy) }))
	slices.SortStableFunc(lines, func(a, b []evaluation.Mean) int {
		return cmp.Compare(min(1, len(b[0].Adapter)), min(1, len(a[0].Adapter)))
	})
	lines = lines[:min(n, len(lines))]
	slices.SortFunc(lines, bestFirst)
	return listing.Map(lines, nameOf)
}
