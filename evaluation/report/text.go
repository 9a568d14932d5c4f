package report

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/internal/listing"
	"glimpse/internal/tables"
)

// TableOptions change how WriteTable lays out its rows.
type TableOptions struct {
	Markdown bool     // GitHub tables instead of plain text
	Order    []string // policies from top to bottom, those not named below them; empty: best mean first
	Columns  int      // of the terminal that shows plain text, which leaves columns out where they are too many; 0: none does
}

// WriteTable writes rows for people: one block per budget (and per prompt length,
// where the rows compare several), in it one line per policy and one column per
// task, in percent, followed by the mean over tasks with its standard error and by
// what the policy costs. Several budgets are preceded by an overview: one column of
// means per budget. Rows of the full cache (budget 0) open every block as the
// reference, averaged over that block's tasks.
//
// All rows are of one model and over all samples ([Overall]).
//
// A policy that lacks a task in a block gets no mean there and stands last: a mean
// over fewer tasks would be compared with the others. Columns of measures that no
// row has are left out. Plain text stays within 120 columns as long as the names
// allow it. No rows, and invalid or repeated rows, are an error.
func WriteTable(w io.Writer, rows []evaluation.Row, opts TableOptions) error {
	if len(rows) == 0 {
		return errors.New("write table: no rows")
	}
	if err := evaluation.CheckRows(rows); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	measures := measuresOf(rows, meansOf(rows))
	out := tables.NewPage(w)
	if title, columns, ok := overviewOf(rows, opts.Order); ok {
		writeColumns(out, title, columns, opts)
	}
	for _, b := range blocksOf(rows) {
		writeColumns(out, b.title, b.columns(measures, opts.Order), opts)
	}
	notes := notesOf(rows, measures)
	if !opts.Markdown {
		notes = tables.Wrap(notes, cmp.Or(opts.Columns, textWidth+1))
	}
	out.WriteString(notes + "\n")
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// block is one table: the rows of one budget, and the full cache's on the
// same tasks.
type block struct {
	title string
	rows  []evaluation.Row
	tasks []string // in order of appearance
}

func blocksOf(rows []evaluation.Row) []block {
	type key struct {
		tokens int
		budget eviction.Budget
	}
	sweep, uniform := severalLengths(rows), sameLength(rows)
	keyOf := func(r evaluation.Row) key {
		if sweep {
			return key{r.Tokens, r.Budget}
		}
		return key{0, r.Budget}
	}
	byKey := make(map[key][]evaluation.Row)
	for _, r := range rows {
		byKey[keyOf(r)] = append(byKey[keyOf(r)], r)
	}
	keys := slices.SortedFunc(maps.Keys(byKey), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.tokens, b.tokens), a.budget.Compare(b.budget))
	})
	hasBudget := make(map[int]bool) // by length: something to be the reference of
	for _, k := range keys {
		hasBudget[k.tokens] = hasBudget[k.tokens] || !k.budget.IsZero()
	}
	var blocks []block
	for _, k := range keys {
		if k.budget.IsZero() && hasBudget[k.tokens] {
			continue
		}
		b := block{title: "Full cache", rows: byKey[k]}
		for _, r := range b.rows {
			b.tasks = listing.Union(b.tasks, r.Task)
		}
		if !k.budget.IsZero() {
			b.title = fmt.Sprintf("Budget %v", k.budget)
			for _, r := range byKey[key{tokens: k.tokens}] {
				if slices.Contains(b.tasks, r.Task) {
					b.rows = append(b.rows, r)
				}
			}
		}
		if n := b.rows[0].Tokens; n > 0 && (sweep || uniform) {
			b.title += fmt.Sprintf(", prompts of %d tokens", n)
		}
		blocks = append(blocks, b)
	}
	return blocks
}

// field is where a row's score stands in a block, which has one length, or one length per task.
type field struct {
	label, task string
	budget      eviction.Budget
}

func fieldOf(r evaluation.Row) field { return field{r.Label(), r.Task, r.Budget} }

// severalLengths tells whether some cell was measured at more than one prompt length.
func severalLengths(rows []evaluation.Row) bool {
	tokens := make(map[field]int)
	for _, r := range rows {
		if n, ok := tokens[fieldOf(r)]; ok && n != r.Tokens {
			return true
		}
		tokens[fieldOf(r)] = r.Tokens
	}
	return false
}

func sameLength(rows []evaluation.Row) bool {
	return !slices.ContainsFunc(rows, func(r evaluation.Row) bool { return r.Tokens != rows[0].Tokens })
}

// The order in which columns of measures and tasks are left out, the last ones first.
const (
	dropShare = 1 + iota
	dropTask
	dropAnswer
	dropTime
	dropBytes
	dropScores
)

// measuresOf are the measures of a text's tables that some mean has.
func measuresOf(rows []evaluation.Row, means []evaluation.Mean) []extra {
	all := []extra{
		{get: func(m evaluation.Mean) *float64 { return m.Agreement }, brief: wholePercent, drop: dropAnswer,
			plain: "agree\n%" + measuredOf(rows, evaluation.Agreement), note: "agree: token F1 of the answer against the full cache's"},
		{get: func(m evaluation.Mean) *float64 { return m.NLL }, brief: func(v float64) string { return fmt.Sprintf("%.3g", v) }, drop: dropAnswer,
			plain: "NLL\nnats" + measuredOf(rows, evaluation.MeasureNLL), note: "NLL: of the full cache's answer under eviction, mean per token"},
	}
	return slices.DeleteFunc(append(all, extras...), func(x extra) bool {
		return x.brief == nil || !slices.ContainsFunc(means, func(m evaluation.Mean) bool { return x.get(m) != nil })
	})
}

// briefly writes the measure of a mean, which may lack it.
func (x extra) briefly(m evaluation.Mean) string {
	if v := x.get(m); v != nil {
		return x.brief(*v)
	}
	return absent
}

func formatKiB(bytes float64) string { return formatRate(bytes / 1024) }

func formatPercent(share float64) string {
	if share >= 0.9995 {
		return fmt.Sprintf("%.0f", 100*share)
	}
	return fmt.Sprintf("%.1f", 100*share)
}

func formatOverhead(share float64) string {
	if math.Abs(share) >= 0.0995 {
		return fmt.Sprintf("%+.0f", 100*share)
	}
	return fmt.Sprintf("%+.1f", 100*share)
}

func formatRate(perSecond float64) string {
	if perSecond < 100 {
		return fmt.Sprintf("%.1f", perSecond)
	}
	return fmt.Sprintf("%.0f", perSecond)
}

// column is one column of a table; the first one is aligned left.
type column struct {
	head  string // may have line breaks
	task  bool   // head is a name that may be broken to save width
	cells []string
	// optional columns are left out where a terminal is too narrow: those with the highest
	// number first, and of equal ones the last.
	optional int
}

func (b block) columns(measures []extra, order []string) []column {
	accuracy := make(map[field]string)
	for _, r := range b.rows {
		accuracy[fieldOf(r)] = brief(r)
	}
	lines := meansOf(b.rows)
	b.sort(lines, order)

	columns := []column{{head: "policy"}}
	for _, task := range b.tasks {
		columns = append(columns, column{head: strings.TrimSpace(task + "\n" + scoredOf(b.rows, task)), task: true, optional: dropTask})
	}
	columns = append(columns, column{head: "mean ±se"})
	for _, m := range measures {
		columns = append(columns, column{head: m.plain, optional: m.drop})
	}
	for _, m := range lines {
		cells := []string{m.Label()}
		for _, task := range b.tasks {
			cells = append(cells, cmp.Or(accuracy[field{m.Label(), task, m.Budget}], absent))
		}
		if m.Cells < len(b.tasks) {
			cells = append(cells, absent)
		} else {
			cells = append(cells, m.FormatScore())
		}
		for _, measure := range measures {
			cells = append(cells, measure.briefly(m))
		}
		for i := range columns {
			columns[i].cells = append(columns[i].cells, cells[i])
		}
	}
	return columns
}

// brief is a row's score without its error: whole percent, or the perplexity.
func brief(r evaluation.Row) string {
	switch u := r.Mean().Unit; {
	case r.Score == nil:
		return absent
	case u.Perplexity:
		return u.FormatValue(u.Of(*r.Score))
	}
	return fmt.Sprintf("%.0f", 100**r.Score)
}

// scoredOf tells in the head of a task's column of how many samples its scores are, "n=3", where
// the rows of a table differ in that or not all samples have a score; otherwise it is "".
func scoredOf(rows []evaluation.Row, task string) string {
	low, high := rangeOf(rows, evaluation.Row.Scored)
	own := slices.DeleteFunc(slices.Clone(rows), func(r evaluation.Row) bool { return r.Task != task })
	if len(own) == 0 || low == high && !slices.ContainsFunc(rows, func(r evaluation.Row) bool { return r.Unscored > 0 }) {
		return ""
	}
	return "n=" + span(rangeOf(own, evaluation.Row.Scored))
}

// rangeOf is the least and the most of a number of rows.
func rangeOf(rows []evaluation.Row, number func(evaluation.Row) int) (low, high int) {
	low, high = number(rows[0]), number(rows[0])
	for _, r := range rows {
		low, high = min(low, number(r)), max(high, number(r))
	}
	return low, high
}

func samples(r evaluation.Row) int { return r.Samples }

// samplesIn tells of how many samples rows are, each being what is of one of them: "8 samples each",
// "3–8 samples, 2–4 scored".
func samplesIn(rows []evaluation.Row, each string) string {
	low, high := rangeOf(rows, samples)
	text := span(low, high) + " samples" + each
	if high == 1 {
		text = "1 sample" + each
	}
	if slices.ContainsFunc(rows, func(r evaluation.Row) bool { return r.Unscored > 0 }) {
		text += fmt.Sprintf(", %s scored", span(rangeOf(rows, evaluation.Row.Scored)))
	}
	if worst := slices.MaxFunc(rows, func(a, b evaluation.Row) int { return cmp.Compare(a.Failed, b.Failed) }); worst.Failed > 0 {
		text += fmt.Sprintf(", up to %d of %d failed and count nowhere", worst.Failed, worst.Failed+worst.Samples)
	}
	return text
}

// span is a range of whole numbers: "3–8", or "8".
func span(low, high int) string {
	if low == high {
		return fmt.Sprint(low)
	}
	return fmt.Sprintf("%d–%d", low, high)
}

// sort puts the full cache first, incomplete policies last, and the others in the
// given order or by falling mean.
func (b block) sort(lines []evaluation.Mean, order []string) {
	position := func(m evaluation.Mean) int {
		if i := slices.Index(order, m.Policy); i >= 0 {
			return i
		}
		return len(order)
	}
	number := func(condition bool) int {
		if condition {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(lines, func(a, c evaluation.Mean) int {
		return cmp.Or(
			cmp.Compare(number(!a.Budget.IsZero()), number(!c.Budget.IsZero())),
			cmp.Compare(number(a.Cells < len(b.tasks)), number(c.Cells < len(b.tasks))),
			cmp.Compare(position(a), position(c)),
			cmp.Compare(c.Score, a.Score),
			cmp.Compare(a.Label(), c.Label()))
	})
}

// metricOf names what the rows are scored with.
func metricOf(rows []evaluation.Row) string {
	name := rows[0].Metric
	for _, r := range rows {
		if r.Metric != name {
			return "each task's metric"
		}
	}
	switch name {
	case "", evaluation.MetricExactAnswer:
		return "exact answers"
	case evaluation.Agreement:
		return "token F1 against the full cache's answer"
	case evaluation.MetricInversePerplexity:
		return "perplexity"
	}
	return name // as --metric takes it
}

// scoreTitle names the scores of rows with their unit: "exact answers in %".
func scoreTitle(rows []evaluation.Row) string {
	switch u, ok := evaluation.UnitOf(rows); {
	case ok && !u.Perplexity:
		return metricOf(rows) + " in %"
	case ok:
		return metricOf(rows) + ", lower is better"
	}
	return metricOf(rows) + " in %, of perplexity the value"
}

// scoreAxis names the axis of rows' scores.
func scoreAxis(rows []evaluation.Row) string {
	if u, _ := evaluation.UnitOf(rows); u.Perplexity {
		return scoreTitle(rows)
	}
	return metricOf(rows) + " (%)"
}

// meansOf are the means of rows that were checked.
func meansOf(rows []evaluation.Row) []evaluation.Mean {
	means, _ := evaluation.MeanByPolicy(rows)
	return means
}

// notesOf explains the columns.
func notesOf(rows []evaluation.Row, measures []extra) string {
	notes := []string{
		"Budget: KV entries kept per KV head and layer",
		fmt.Sprintf("tasks: %s (%s)", scoreTitle(rows), samplesIn(rows, " each")),
		"mean: over tasks, with its standard error",
	}
	for _, m := range measures {
		if m.note != "" {
			notes = append(notes, m.note)
		}
	}
	return strings.Join(notes, "; ") + "."
}
