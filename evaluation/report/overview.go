package report

import (
	"fmt"
	"slices"

	"glimpse/evaluation"
	"glimpse/eviction"
)

// overviewOf is the table that opens a comparison of several budgets: one line per
// policy, one column per budget, mean accuracies with their standard errors. The
// full cache, which has no budget, is the same in every column. There is none for
// one budget, several prompt lengths, or policies measured on different tasks.
func overviewOf(rows []evaluation.Row, order []string) (title string, columns []column, ok bool) {
	if severalLengths(rows) {
		return "", nil, false
	}
	means := meansOf(rows)
	var budgets []eviction.Budget
	for _, m := range means {
		if m.Cells != means[0].Cells {
			return "", nil, false
		}
		if !m.Budget.IsZero() && !slices.Contains(budgets, m.Budget) {
			budgets = append(budgets, m.Budget)
		}
	}
	if len(budgets) < 2 {
		return "", nil, false
	}
	slices.SortFunc(budgets, eviction.Budget.Compare)
	last := budgets[len(budgets)-1]
	// The block of the largest budget decides the order of the lines.
	largest := block{rows: slices.DeleteFunc(slices.Clone(rows), func(r evaluation.Row) bool { return !r.Budget.IsZero() && r.Budget != last })}
	lines := meansOf(largest.rows)
	largest.sort(lines, order)

	columns = []column{{head: "policy"}}
	for _, b := range budgets {
		columns = append(columns, column{head: fmt.Sprintf("B = %v", b), optional: 1})
	}
	for _, line := range lines {
		columns[0].cells = append(columns[0].cells, line.Label())
		for i, b := range budgets {
			text := absent
			if at := slices.IndexFunc(means, func(m evaluation.Mean) bool { return m.Label() == line.Label() && (m.Budget == b || m.Budget.IsZero()) }); at >= 0 {
				text = means[at].FormatScore()
			}
			columns[i+1].cells = append(columns[i+1].cells, text)
		}
	}
	title = upper(scoreTitle(rows))
	if n := means[0].Cells; n > 1 {
		title += fmt.Sprintf(", mean over %d tasks", n)
	}
	if n := rows[0].Tokens; n > 0 && sameLength(rows) {
		title += fmt.Sprintf(", prompts of %d tokens", n)
	}
	return title, columns, true
}
