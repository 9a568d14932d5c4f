package report

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/internal/figures"
	"glimpse/internal/listing"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

// maxPanels bounds the policies of one plot, and with them the size of its
// canvas; more could not be told apart anyway.
const maxPanels = 48

// PlotAccuracy writes a picture of the mean accuracy over tasks (and prompt lengths)
// against the budget: a line per policy and adapter with a bar of one standard
// error to each side, a dashed line for the full cache (budget 0) if it was
// measured, and a legend beside the axes, best policy first. Of more than
// [MaxHighlighted] lines only the ones of [Highlighted] are in colour, references are
// dashed, and the others grey and without a name. Budgets are spaced by
// their logarithm. Lines are moved sideways by a few percent of the distance between
// budgets, so that their bars do not hide each other.
//
// Every policy must have the same tasks at every budget it was run at, since means
// over different tasks cannot be compared; one that lacks a task is an error, and
// so are invalid or repeated rows, no rows with a budget, and more than 48 lines.
func PlotAccuracy(w io.Writer, format figures.Format, rows []evaluation.Row) error {
	fail := func(err error) error { return fmt.Errorf("plot accuracy: %w", err) }
	if err := evaluation.CheckRows(rows); err != nil {
		return fail(err)
	}
	if _, same := evaluation.UnitOf(rows); !same {
		return fail(errors.New("scores in percent and perplexities have no mean; draw them one by one"))
	}
	rows = slices.DeleteFunc(slices.Clone(rows), func(r evaluation.Row) bool { return r.Score == nil })
	if err := checkSameTasks(rows); err != nil {
		return fail(err)
	}
	means, err := evaluation.MeanByPolicy(rows)
	if err != nil {
		return fail(err)
	}
	lines, full := linesOf(means)
	if len(lines) == 0 {
		return fail(errors.New("no rows with a budget"))
	}
	if len(lines)+len(full) > maxPanels {
		return fail(fmt.Errorf("%d policies, want at most %d", len(lines)+len(full), maxPanels))
	}

	axis := axisOf(rows)
	looks, colored := looksOf(lines, means)
	budgets := axis.budgetsOf(means)
	dodge := dodgeStep(budgets, colored)
	p, legend := accuracyPlot(rows, means, budgets, dodge*float64(colored)), figures.NewLegend()
	for _, m := range full {
		figures.AddLevel(p, legend, fullName(m), m.Shown())
	}
	var series, others []*figures.Series
	for i, line := range lines {
		shift := 1.0
		if looks[i] >= 0 {
			shift = math.Exp(dodge * (float64(looks[i]) - float64(colored-1)/2))
		}
		s := figures.NewSeries(line[0].Label(), looks[i], nil)
		for _, m := range line {
			s.Points = append(s.Points, pointOf(axis.position(m.Budget)*shift, m))
		}
		if looks[i] == figures.Other {
			others = append(others, s)
			continue
		}
		series = append(series, s)
	}
	for _, s := range others {
		s.Name = figures.Others(len(others))
	}
	figures.AddSeries(p, legend, append(series, others...)...)

	const room = 2 * vg.Inch // for a legend: long names get more canvas, not fewer axes
	width := 7*vg.Inch + max(0, legend.Width()-room)
	height := max(4.2*vg.Inch, vg.Length(len(legend.Names))*vg.Points(14)+vg.Points(30))
	return figures.WriteGrid(w, format, width, height, figures.DPI, [][]*plot.Plot{{p}}, legend)
}

// accuracyPlot has the axes of scores against budgets, with a grid and nothing on it.
func accuracyPlot(rows []evaluation.Row, means []evaluation.Mean, budgets []float64, spread float64) *plot.Plot {
	p := figures.New()
	tasks := make(map[string]bool)
	for _, r := range rows {
		tasks[r.Task] = true
	}
	p.X.Label.Text = axisOf(rows).label()
	p.Y.Label.Text = scoreAxis(rows)
	if len(tasks) > 1 {
		p.Y.Label.Text += fmt.Sprintf(", mean over %d tasks", len(tasks))
	}
	figures.AddGrid(p)
	setScoreAxis(p, means)
	setBudgetAxis(p, budgets, spread)
	return p
}

// pointOf is a mean with its error.
func pointOf(x float64, m evaluation.Mean) figures.Point {
	low, high := m.Spread()
	return figures.Point{X: x, Y: m.Shown(), Low: low, High: high}
}

// fullName is what a legend calls the level of a full cache.
func fullName(m evaluation.Mean) string { return m.Label() + " cache" }

// linesOf splits means into lines, best first, with rising budgets, and full caches.
func linesOf(means []evaluation.Mean) (lines [][]evaluation.Mean, full []evaluation.Mean) {
	for _, line := range listing.Group(means, evaluation.Mean.Label) { // whose budgets ascend
		if line[0].Budget.IsZero() {
			full = append(full, line[0])
		} else {
			lines = append(lines, line)
		}
	}
	slices.SortFunc(lines, bestFirst)
	return lines, full
}

// nameOf is the label of a line.
func nameOf(line []evaluation.Mean) string { return line[0].Label() }

// bestFirst compares lines by their means, and by name.
func bestFirst(a, b []evaluation.Mean) int {
	return cmp.Or(cmp.Compare(average(b), average(a)), cmp.Compare(nameOf(a), nameOf(b)))
}

func average(line []evaluation.Mean) float64 {
	sum := 0.0
	for _, m := range line {
		sum += m.Score
	}
	return sum / float64(max(1, len(line)))
}

// looksOf are the looks of lines, and how many are in colour: numbered in alphabetical order, so
// that the same policies look the same in every plot of a run.
func looksOf(lines [][]evaluation.Mean, means []evaluation.Mean) (looks []int, colored int) {
	chosen := listing.Map(lines, nameOf)
	if len(lines) > MaxHighlighted {
		chosen = Highlighted(means, MaxHighlighted)
	}
	slices.Sort(chosen)
	for _, l := range lines {
		looks = append(looks, lookOf(l[0].Label(), chosen))
	}
	return looks, len(chosen)
}

// lookOf is the look of a label: its place among the sorted ones that are in colour, or else the look of the ones that
// others are compared with.
func lookOf(label string, chosen []string) int {
	if look, ok := slices.BinarySearch(chosen, label); ok {
		return look
	}
	if IsReference(label) {
		return figures.Reference
	}
	return figures.Other
}

// checkSameTasks wants every policy at every budget to have every (task, length)
// that any has.
func checkSameTasks(rows []evaluation.Row) error {
	type column struct {
		task   string
		tokens int
	}
	type line struct {
		policy, adapter string
		budget          eviction.Budget
	}
	type cell struct {
		line
		column
	}
	at := func(r evaluation.Row) cell {
		return cell{line{r.Policy, r.Adapter, r.Budget}, column{r.Task, r.Tokens}}
	}
	have := make(map[cell]bool)
	columns, lines := make(map[column]bool), make(map[line]bool)
	for _, r := range rows {
		c := at(r)
		have[c], columns[c.column], lines[c.line] = true, true, true
	}
	if len(have) == len(lines)*len(columns) {
		return nil
	}
	for _, r := range rows { // in the order of the rows, so that the error is always the same
		for _, q := range rows {
			if !have[cell{at(r).line, at(q).column}] {
				return fmt.Errorf("%s at budget %v: no row for task %q at %d tokens, which others have",
					r.Label(), r.Budget, q.Task, q.Tokens)
			}
		}
	}
	return nil
}

// budgetAxis places budgets: pairs, or where all are shares, percent of the prompt. Where
// there are both, a share stands for as many pairs as it is of a prompt of the mean length.
type budgetAxis struct {
	shares bool
	tokens int
}

func axisOf(rows []evaluation.Row) budgetAxis {
	a, tokens := budgetAxis{shares: true}, 0
	for _, r := range rows {
		a.shares = a.shares && (r.Budget.IsZero() || r.Budget.Share() > 0)
		tokens += r.Tokens
	}
	a.tokens = tokens / len(rows)
	return a
}

func (a budgetAxis) label() string {
	if a.shares {
		return "budget (% of the prompt)"
	}
	return "budget (KV entries per KV head and layer)"
}

func (a budgetAxis) position(b eviction.Budget) float64 {
	if a.shares {
		return 100 * b.Share()
	}
	return float64(b.Of(a.tokens))
}

// budgetsOf are the places of the means' budgets, rising.
func (a budgetAxis) budgetsOf(means []evaluation.Mean) (budgets []float64) {
	for _, m := range means {
		if !m.Budget.IsZero() {
			budgets = append(budgets, a.position(m.Budget))
		}
	}
	slices.Sort(budgets)
	return slices.Compact(budgets)
}

// dodgeStep returns the distance between neighbouring lines in the logarithm of the
// budget: together they take a sixth of the smallest distance between budgets, and
// no more than 4% of the axis.
func dodgeStep(budgets []float64, lines int) float64 {
	axis := math.Log(budgets[len(budgets)-1] / budgets[0])
	axis = cmp.Or(axis, math.Ln2)
	spread := axis / 4
	for i := 1; i < len(budgets); i++ {
		spread = min(spread, math.Log(budgets[i]/budgets[i-1]))
	}
	return min(spread/6, 0.04*axis) / float64(max(1, lines-1))
}

// setScoreAxis gives scores round limits around all means.
func setScoreAxis(p *plot.Plot, means []evaluation.Mean) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, m := range means {
		below, above := m.Spread()
		low, high = min(low, below), max(high, above)
	}
	p.Y.Tick.Marker = figures.RoundTicks{}
	if means[0].Unit.Perplexity {
		margin := max(0.05*(high-low), 0.01*high)
		p.Y.Min, p.Y.Max = max(0, low-margin), high+margin
		return
	}
	p.Y.Min = max(0, 10*math.Floor(low/10))
	p.Y.Max = min(100, max(10*math.Ceil(high/10), p.Y.Min+10))
	if p.Y.Max == p.Y.Min {
		p.Y.Min -= 10
	}
}

// setBudgetAxis spaces budgets by their logarithm, with a tick for each.
func setBudgetAxis(p *plot.Plot, budgets []float64, spread float64) {
	first, last := budgets[0], budgets[len(budgets)-1]
	margin := math.Exp(max(spread, 0.03*math.Log(last/first)))
	if len(budgets) == 1 {
		margin = 2
	}
	p.X.Min, p.X.Max = first/margin, last*margin
	p.X.Scale = plot.LogScale{}
	p.X.Tick.Marker = spacedTicks(budgets, math.Log, 0.06*math.Log(p.X.Max/p.X.Min))
}

// spacedTicks marks all values and labels those that are so far from the last label, in what place makes of
// them.
func spacedTicks(values []float64, place func(float64) float64, least float64) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	labelled := math.Inf(-1)
	for _, v := range values {
		t := plot.Tick{Value: v}
		if x := place(v); x-labelled >= least {
			t.Label, labelled = minus(strconv.FormatFloat(v, 'g', 4, 64)), x
		}
		ticks = append(ticks, t)
	}
	return ticks
}
