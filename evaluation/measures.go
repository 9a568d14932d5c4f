package evaluation

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"glimpse/internal/tables"
)

// shown are the measures that WriteTable and the rows' own fields tell, or that every task
// has: those of a task's own are the others.
var shown = map[string]bool{
	MeasureExact: true, Agreement: true, MeasurePrefix: true, MeasureNLL: true, MeasureAnswered: true,
}

// WriteMeasures writes the tables of [MeasureTables]. Without any measures it writes nothing.
func WriteMeasures(w io.Writer, rows []Row, opts TableOptions) error {
	all, err := MeasureTables(rows)
	if err != nil {
		return fmt.Errorf("write measures: %w", err)
	}
	out := tables.NewPage(w)
	for _, t := range all {
		columns := make([]column, len(t.Heads))
		for i := range columns {
			columns[i].head, columns[i].optional = t.Heads[i], min(1, i/2) // the policy and the budget stay
			for _, line := range t.Lines {
				columns[i].cells = append(columns[i].cells, line[i])
			}
		}
		if opts.Markdown {
			fmt.Fprintf(out, "**%s**\n\n", t.Title)
			writeMarkdown(out, columns)
		} else {
			out.Heading(tables.Wrap(t.Title, opts.Columns) + "\n\n")
			writeText(out, columns, opts.Columns)
		}
		out.WriteString("\n")
	}
	return out.Flush()
}

// MeasureTable is what one task measures beside its score: a line for every policy and
// budget, which are the first two columns.
type MeasureTable struct {
	Title string
	Heads []string
	Lines [][]string
}

// MeasureTables are, for every task that has measures of its own, a table of them, with a
// column for every name. Names that differ in a number at their end, as nll_to_512 and
// nll_to_1024, are a table of their own, with the numbers for its columns.
func MeasureTables(rows []Row) ([]MeasureTable, error) {
	if err := checkRows(rows); err != nil {
		return nil, err
	}
	var tasks []string
	byTask := make(map[string][]Row)
	for _, r := range rows {
		key := r.Task
		if g := GroupsName(r.Groups); g != "" {
			key += ", " + g
		}
		if byTask[key] == nil {
			tasks = append(tasks, key)
		}
		byTask[key] = append(byTask[key], r)
	}
	var out []MeasureTable
	for _, task := range tasks {
		for _, curve := range curvesOf(byTask[task]) {
			t := MeasureTable{Title: fmt.Sprintf("Measures of %s", task)}
			if curve.prefix != "" {
				t.Title = fmt.Sprintf("%s of %s", upper(strings.ReplaceAll(strings.Trim(curve.prefix, "_"), "_", " ")), task)
			}
			columns := curve.columns(byTask[task])
			t.Lines = make([][]string, len(byTask[task]))
			for _, c := range columns {
				t.Heads = append(t.Heads, c.head)
				for i, cell := range c.cells {
					t.Lines[i] = append(t.Lines[i], cell)
				}
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

// curvesOf are those of a task, the one without a prefix first.
func curvesOf(rows []Row) []curve {
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

func (c curve) columns(rows []Row) []column {
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
func measuredOf(rows []Row, name string) string {
	var all []int
	for _, r := range rows {
		if n, ok := r.Measured[name]; ok {
			all = append(all, n)
		} else if _, ok := r.Measures[name]; ok {
			all = append(all, r.Samples)
		}
	}
	if !slices.ContainsFunc(rows, func(r Row) bool { return r.Measured[name] > 0 }) {
		return ""
	}
	return "\nn=" + Span(slices.Min(all), slices.Max(all))
}

// formatMeasure writes a number with four digits, large ones without a fraction.
func formatMeasure(v float64) string {
	if math.Abs(v) >= 1e4 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.4g", v)
}
