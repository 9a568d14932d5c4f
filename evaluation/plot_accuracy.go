package evaluation

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"glimpse/eviction"
	"glimpse/internal/figures"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	plotDPI = 200

	// maxPanels bounds the policies of one plot, and with them the size of its
	// canvas; more could not be told apart anyway.
	maxPanels = 48
)

// PlotAccuracy writes a picture of the mean accuracy over tasks (and prompt lengths)
// against the budget: a line per policy and adapter with a bar of one standard
// error to each side, a dashed line for the full cache (budget 0) if it was
// measured, and a legend beside the axes, best policy first. Of more than
// [MaxHighlighted] lines only those of [Highlighted] are in colour, references are
// dashed, and the others grey and without a name. Budgets are spaced by
// their logarithm. Lines are moved sideways by a few percent of the distance between
// budgets, so that their bars do not hide each other.
//
// Every policy must have the same tasks at every budget it was run at, since means
// over different tasks cannot be compared; one that lacks a task is an error, and
// so are invalid or repeated rows, no rows with a budget, and more than 48 lines.
func PlotAccuracy(w io.Writer, format figures.Format, rows []Row) error {
	fail := func(err error) error { return fmt.Errorf("plot accuracy: %w", err) }
	if err := checkRows(rows); err != nil {
		return fail(err)
	}
	if _, same := unitOfRows(rows); !same {
		return fail(errors.New("scores in percent and perplexities have no mean; draw them one by one"))
	}
	rows = slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Score == nil })
	if err := checkSameTasks(rows); err != nil {
		return fail(err)
	}
	means := meanByPolicy(rows)
	lines, full := seriesOf(means)
	if len(lines) == 0 {
		return fail(errors.New("no rows with a budget"))
	}
	if len(lines)+len(full) > maxPanels {
		return fail(fmt.Errorf("%d policies, want at most %d", len(lines)+len(full), maxPanels))
	}

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
	legend := plot.NewLegend()
	legend.Top, legend.Left = true, true
	figures.StyleLegend(&legend)

	axis := axisOf(rows)
	budgets := axis.budgetsOf(lines)
	colored := chooseStyles(lines, means)
	dodge := dodgeStep(budgets, colored)
	figures.AddGrid(p) // below the lines
	for _, m := range full {
		addReference(p, &legend, m)
	}
	for _, s := range slices.Backward(lines) { // those without a name below the others
		if s.look == faint {
			if err := s.addTo(p, axis, 1, nil); err != nil {
				return fail(err)
			}
		}
	}
	for _, s := range lines {
		if s.look == faint {
			continue
		}
		shift := 1.0
		if s.look == colour {
			shift = math.Exp(dodge * (float64(s.style) - float64(colored-1)/2))
		}
		if err := s.addTo(p, axis, shift, &legend); err != nil {
			return fail(err)
		}
	}
	labels := labelsOf(lines, full)
	if n := len(lines) + len(full) - len(labels); n > 0 {
		labels = append(labels, fmt.Sprintf("%d others", n))
		legend.Add(labels[len(labels)-1], &plotter.Line{LineStyle: draw.LineStyle{Color: figures.Faint, Width: figures.LineWidth}})
	}
	setAccuracyAxes(p, append(slices.Clone(full), meansOf(lines)...), budgets, dodge*float64(colored))

	width, height := 7*vg.Inch, 4.2*vg.Inch
	legendWidth := vg.Length(0)
	for _, label := range labels {
		legendWidth = max(legendWidth, figures.TextWidth(label, 9))
	}
	legendWidth += legend.ThumbnailWidth + vg.Points(24)
	width += max(0, legendWidth-2*vg.Inch) // long names get more canvas, not fewer axes
	height = max(height, vg.Length(len(labels))*vg.Points(14)+vg.Points(30))
	return figures.Write(w, format, width, height, plotDPI, func(c draw.Canvas) {
		c = draw.Crop(c, vg.Points(6), -vg.Points(4), vg.Points(6), -vg.Points(8))
		p.Draw(draw.Crop(c, 0, -legendWidth, 0, 0))
		legend.Draw(draw.Crop(c, c.Max.X-c.Min.X-legendWidth+vg.Points(14), 0, 0, 0))
	})
}

// checkSameTasks wants every policy at every budget to have every (task, length)
// that any has.
func checkSameTasks(rows []Row) error {
	type column struct {
		task   string
		tokens int
	}
	type line struct {
		policy, adapter string
		budget          eviction.Budget
	}
	have := make(map[cell]bool)
	columns, lines := make(map[column]bool), make(map[line]bool)
	for _, r := range rows {
		have[r.cell()] = true
		columns[column{r.Task, r.Tokens}] = true
		lines[line{r.Policy, r.Adapter, r.Budget}] = true
	}
	if len(have) == len(lines)*len(columns) {
		return nil
	}
	for _, r := range rows { // in the order of the rows, so that the error is always the same
		l := line{r.Policy, r.Adapter, r.Budget}
		for _, q := range rows {
			c := column{q.Task, q.Tokens}
			if !have[cell{model: rows[0].Model, policy: l.policy, adapter: l.adapter, task: c.task, budget: l.budget, tokens: c.tokens}] {
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

func axisOf(rows []Row) budgetAxis {
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

func (a budgetAxis) at(b eviction.Budget) float64 {
	if a.shares {
		return 100 * b.Share()
	}
	return float64(b.Of(a.tokens))
}

func (a budgetAxis) budgetsOf(lines []series) (budgets []float64) {
	for _, m := range meansOf(lines) {
		budgets = append(budgets, a.at(m.Budget))
	}
	slices.Sort(budgets)
	return slices.Compact(budgets)
}

// dodgeStep returns the distance between neighbouring lines in the logarithm of the
// budget: together they take a sixth of the smallest distance between budgets, and
// no more than 4% of the axis.
func dodgeStep(budgets []float64, lines int) float64 {
	axis := math.Log(budgets[len(budgets)-1] / budgets[0])
	if axis == 0 {
		axis = math.Ln2
	}
	spread := axis / 4
	for i := 1; i < len(budgets); i++ {
		spread = min(spread, math.Log(budgets[i]/budgets[i-1]))
	}
	return min(spread/6, 0.04*axis) / float64(max(1, lines-1))
}

// setAccuracyAxes gives the axes round limits around all means and a tick per budget.
func setAccuracyAxes(p *plot.Plot, means []Mean, budgets []float64, spread float64) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, m := range means {
		below, above := m.Spread()
		low, high = min(low, below), max(high, above)
	}
	if means[0].Unit.Perplexity {
		p.Y.Min, p.Y.Max = low, high
		setBudgetAxis(p, budgets, spread)
		return
	}
	p.Y.Min = max(0, 10*math.Floor(low/10))
	p.Y.Max = min(100, max(10*math.Ceil(high/10), p.Y.Min+10))
	if p.Y.Max == p.Y.Min {
		p.Y.Min -= 10
	}
	step := 10.0
	if p.Y.Max-p.Y.Min <= 30 {
		step = 5
	}
	var ticks []plot.Tick
	for y := p.Y.Min; y <= p.Y.Max; y += step {
		ticks = append(ticks, plot.Tick{Value: y, Label: fmt.Sprintf("%.0f", y)})
	}
	p.Y.Tick.Marker = plot.ConstantTicks(ticks)

	setBudgetAxis(p, budgets, spread)
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
	p.X.Tick.Marker = budgetTicks(budgets, math.Log(p.X.Max/p.X.Min))
}

// budgetTicks marks every budget and labels those that are far enough from the last
// label to be read.
func budgetTicks(budgets []float64, axis float64) plot.ConstantTicks {
	const least = 0.06 // of the axis
	var ticks plot.ConstantTicks
	labelled := math.Inf(-1)
	for _, b := range budgets {
		t := plot.Tick{Value: b}
		if x := math.Log(t.Value); x-labelled >= least*axis {
			t.Label, labelled = strconv.FormatFloat(b, 'g', 4, 64), x
		}
		ticks = append(ticks, t)
	}
	return ticks
}
