package report

import (
	"cmp"
	"slices"
	"strings"

	"glimpse/evaluation"
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
	type candidate struct {
		label   string
		learned int
		sum     float64
		budgets int
	}
	var all []*candidate
	byLabel := make(map[string]*candidate)
	for _, m := range means {
		if IsReference(m.Policy) {
			continue
		}
		c := byLabel[m.Label()]
		if c == nil {
			c = &candidate{label: m.Label()}
			if m.Adapter != "" {
				c.learned = 1
			}
			all, byLabel[m.Label()] = append(all, c), c
		}
		c.sum, c.budgets = c.sum+m.Score, c.budgets+1
	}
	better := func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(b.sum/float64(b.budgets), a.sum/float64(a.budgets)), cmp.Compare(a.label, b.label))
	}
	slices.SortFunc(all, func(a, b *candidate) int { return cmp.Or(cmp.Compare(b.learned, a.learned), better(a, b)) })
	all = all[:min(n, len(all))]
	slices.SortFunc(all, better)
	var out []string
	for _, c := range all {
		out = append(out, c.label)
	}
	return out
}
