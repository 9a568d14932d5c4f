package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"glimpse/evaluation/calibration"
	"glimpse/eviction"
	"glimpse/internal/figures"
	"glimpse/internal/listing"
	"glimpse/internal/tables"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

// WriteLosses writes the lines of a calibration for people: what policies lose at each budget, what the expected loss is below, and which
// budgets are certified. Strips show the loss (█) with its bound (─) on one scale, and what may be lost (│).
func WriteLosses(w io.Writer, r *calibration.Result, columns int) error {
	out := tables.NewPage(w)
	title := fmt.Sprintf("Loss against the full cache (%s), %s; n = %s", r.Loss.Name, r.Loss.Unit(), listing.Count(r.Documents, "document"))
	out.Heading(tables.Wrap(title, columns) + "\n\n")
	t := tables.New(tables.Column{Head: "policy"}, tables.Column{Head: "budget", Right: true}, tables.Column{Head: "loss", Right: true},
		tables.Column{Head: "bound", Right: true}, tables.Column{Head: "certified"}, tables.Column{Head: "", Optional: 1})
	t.Ruled = true
	most := 1.25 * r.Epsilon
	uppers := make([]float64, len(r.Lines))
	for i := range r.Lines {
		if uppers[i] = r.Upper(&r.Lines[i]); r.Lines[i].Verdict != calibration.NotTested {
			most = max(most, uppers[i])
		}
	}
	for i, l := range r.Lines {
		mark := string(l.Verdict)
		if r.Chosen != nil && l.Label() == r.Chosen.Label() && l.Budget == r.Chosen.Budget {
			mark += " ←"
		}
		t.Add(l.Label(), l.Budget.String(), fmt.Sprintf("%.4f", l.Mean), fmt.Sprintf("%.4f", uppers[i]), mark, lossStrip(l.Mean, uppers[i], r.Epsilon, most))
	}
	if err := t.Write(out, columns); err != nil {
		return err
	}
	notes := fmt.Sprintf("\nbound: the expected loss is below it with %.4g%% confidence, of one policy of %d; certified: it is at most %.4g; not tested: a larger budget of the policy is not certified; █ loss, ─ up to its bound, │ what may be lost",
		100*(1-(1-r.Confidence)/float64(r.Policies)), r.Policies, r.Epsilon)
	if r.Loss.Name == eviction.LossNLL {
		notes += fmt.Sprintf("; losses are clipped to ±%.4g nats per token", r.Loss.Clip)
	}
	out.WriteString(tables.Wrap(notes+".", columns) + "\n")
	return out.Flush()
}

// lossStrip draws a loss with its bound on a scale from 0 to most.
func lossStrip(mean, upper, epsilon, most float64) string {
	const width = 24
	at := func(v float64) int { return min(width-1, max(-1, int(math.Round(v/most*width))-1)) }
	strip := []rune(strings.Repeat(" ", width))
	for i := range at(upper) + 1 {
		strip[i] = '─'
	}
	for i := range at(mean) + 1 {
		strip[i] = '█'
	}
	if i := at(epsilon); i >= 0 {
		strip[i] = '│'
	}
	return strings.TrimRight(string(strip), " ")
}

// PlotLosses draws losses against budgets, a line for each policy, with bars up to their bounds, and what may be lost.
func PlotLosses(w io.Writer, format figures.Format, r *calibration.Result) error {
	p, legend := figures.New(), figures.NewLegend()
	shares := !slices.ContainsFunc(r.Lines, func(l calibration.Line) bool { return l.Budget.Share() == 0 })
	axis := budgetAxis{shares: shares}
	p.X.Label.Text, p.Y.Label.Text = axis.label(), fmt.Sprintf("loss (%s), %s", r.Loss.Name, r.Loss.Unit())
	figures.AddGrid(p)
	var budgets []float64
	for _, l := range r.Lines {
		budgets = append(budgets, axis.position(l.Budget))
	}
	if len(budgets) == 0 {
		return fmt.Errorf("plot losses: got no line")
	}
	slices.Sort(budgets)
	budgets = slices.Compact(budgets)
	groups := listing.Group(r.Lines, func(l calibration.Line) string { return l.Label() })
	dodge := dodgeStep(budgets, len(groups))
	setBudgetAxis(p, budgets, dodge*float64(len(groups)))
	figures.AddLevel(p, legend, fmt.Sprintf("at most %.4g", r.Epsilon), r.Epsilon)
	low, high := 0.0, 1.25*r.Epsilon
	var all []*figures.Series
	for i, group := range groups {
		s := figures.NewSeries(group[0].Label(), i, nil)
		shift := math.Exp(dodge * (float64(i) - float64(len(groups)-1)/2))
		for _, l := range slices.Backward(group) {
			upper := r.Upper(&l)
			s.Points = append(s.Points, figures.Point{X: axis.position(l.Budget) * shift, Y: l.Mean, Low: l.Mean, High: max(l.Mean, upper)})
			low, high = min(low, l.Mean), max(high, upper)
		}
		all = append(all, s)
	}
	figures.AddSeries(p, legend, all...)
	margin := 0.05 * (high - low)
	p.Y.Min, p.Y.Max, p.Y.Tick.Marker = low-margin, high+margin, figures.RoundTicks{}
	return figures.WriteGrid(w, format, 7*vg.Inch+max(0, legend.Width()-2*vg.Inch), 4.2*vg.Inch, figures.DPI, [][]*plot.Plot{{p}}, legend)
}
