package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"glimpse/evaluation"
	"glimpse/internal/listing"
	"glimpse/internal/tables"
)

// shown are the measures that WriteTable and the rows' own fields tell, or that every task
// has: the others are a task's own.
var shown = map[string]bool{
	evaluation.MeasureExact: true, evaluation.Agreement: true, evaluation.MeasurePrefix: true, evaluation.MeasureNLL: true, evaluation.MeasureAnswered: true,
}

// WriteMeasures writes the tables of [measureTables]. Without any measures it writes nothing.
func WriteMeasures(w io.Writer, rows []evaluation.Row, opts TableOptions) error {
	all, err := measureTables(rows)
	if err != nil {
		return fmt.Errorf("write measures: %w", err)
	}
	out := tables.NewPage(w)
	for _, t := range all {
		for i := range t.columns {
			t.columns[i].optional = min(1, i/2) // the policy and the budget stay
		}
		writeColumns(out, t.title, t.columns, opts)
	}
	return out.Flush()
}

// measureTable is what one task measures beside its score: a line for every policy and
// budget, which are the first two columns.
type measureTable struct {
	title   string
	columns []column
}

// measureTables are, for every task that has measures of its own, a table of them, with a
// column for every name. Names that differ in a number at their end, as nll_to_512 and
// nll_to_1024, are a table of their own, with the numbers for its columns.
func measureTables(rows []evaluation.Row) ([]measureTable, error) {
	if err := evaluation.CheckRows(rows); err != nil {
		return nil, err
	}
	name := func(r evaluation.Row) string {
		return strings.TrimSuffix(r.Task+", "+evaluation.GroupsName(r.Groups), ", ")
	}
	var out []measureTable
	for _, rows := range listing.Group(rows, name) {
		task := name(rows[0])
		for _, curve := range curvesOf(rows) {
			t := measureTable{fmt.Sprintf("Measures of %s", task), curve.columns(rows)}
			if curve.prefix != "" {
				t.title = fmt.Sprintf("%s of %s", upper(strings.ReplaceAll(strings.Trim(curve.prefix, "_"), "_", " ")), task)
			}
			out = append(out, t)
		}
	}
	return out, nil
}

// curve is measures whose names are one prefix and a number, or, without a prefix, all others.
type curve struct {
	prefix string
	names  []string
}

// curvesOf are the curves of a task, the one without a prefix first.
func curvesOf(rows []evaluation.Row) []curve {
	byPrefix := make(map[string]map[string]bool)
	for _, r := range rows {
		for name := range r.Measures {
			if shown[name] {
				continue
			}
			prefix := strings.TrimRight(name, "0123456789")
			if prefix == name || !strings.HasSuffix(prefix, "_") {
				prefix = ""
			}
			if byPrefix[prefix] == nil {
				byPrefix[prefix] = make(map[string]bool)
			}
			byPrefix[prefix][name] = true
		}
	}
	var out []curve
	for _, prefix := range slices.Sorted(maps.Keys(byPrefix)) {
		out = append(out, curve{prefix, slices.SortedFunc(maps.Keys(byPrefix[prefix]), func(a, b string) int {
			return cmp.Or(cmp.Compare(len(a)*len(prefix), len(b)*len(prefix)), strings.Compare(a, b)) // numbers by their value
		})})
	}
	return out
}

func (c curve) columns(rows []evaluation.Row) []column {
	columns := []column{{head: "policy"}, {head: "budget"}}
	for _, r := range rows {
		budget := absent
		if !r.Budget.IsZero() {
			budget = r.Budget.String()
		}
		columns[0].cells, columns[1].cells = append(columns[0].cells, r.Label()), append(columns[1].cells, budget)
	}
	for _, name := range c.names {
		column := column{head: strings.ReplaceAll(strings.TrimPrefix(name, c.prefix), "_", "\n") + measuredOf(rows, name)}
		for _, r := range rows {
			text := absent
			if v, ok := r.Measures[name]; ok {
				text = formatMeasure(v)
			}
			column.cells = append(column.cells, text)
		}
		columns = append(columns, column)
	}
	return columns
}

// measuredOf tells in the head of a column of a measure of how many samples it is the mean,
// where not all have it.
func measuredOf(rows []evaluation.Row, name string) string {
	var all []int
	for _, r := range rows {
		if n, ok := r.Measured[name]; ok {
			all = append(all, n)
		} else if _, ok := r.Measures[name]; ok {
			all = append(all, r.Samples)
		}
	}
	if !slices.ContainsFunc(rows, func(r evaluation.Row) bool { return r.Measured[name] > 0 }) {
		return ""
	}
	return "\nn=" + span(slices.Min(all), slices.Max(all))
}

// formatMeasure writes a number with four digits, large ones without a fraction.
func formatMeasure(v float64) string {
	if math.Abs(v) >= 1e4 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.4g", v)
}
