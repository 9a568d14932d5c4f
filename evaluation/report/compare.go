package report

import (
	"fmt"
	"math"
	"slices"

	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/internal/listing"
	"glimpse/internal/parallel"
	"glimpse/internal/stats"
)

// What the intervals and tests are made with.
const (
	alpha      = 0.05
	level      = 1 - alpha
	seed       = 1
	bootstraps = 2000
	// flips are the sign flips of a permutation test; of many samples fewer, and of more
	// than work together no fewer than leastFlips.
	flips, leastFlips = 9999, 1999
	work              = 10_000_000
)

// scores are the scores of one section sample by sample.
type scores struct {
	cells map[scoreCellKey][][]float64 // by task: one for every sample of the task (see Unit.Sample), NaN where there is none
	count int                          // of samples
}

type scoreCellKey struct {
	label  string
	budget eviction.Budget
}

// scoresOf takes the section's scores from predictions.
func scoresOf(s *Section, all []*evaluation.Prediction) *scores {
	out := &scores{cells: make(map[scoreCellKey][][]float64)}
	places := make([]map[int]int, len(s.tasks))
	for i := range places {
		places[i] = make(map[int]int)
	}
	mine := func(p *evaluation.Prediction) int {
		if p.Model != s.Model || p.Policy == "" {
			return -1
		}
		return slices.Index(s.tasks, p.Task)
	}
	for _, p := range all {
		if t := mine(p); t >= 0 {
			if _, ok := places[t][p.Index]; !ok {
				places[t][p.Index] = len(places[t])
			}
		}
	}
	for _, p := range places {
		out.count += len(p)
	}
	for _, p := range all {
		t := mine(p)
		if t < 0 {
			continue
		}
		key := scoreCellKey{label: labelOf(p.Policy, p.Adapter)}
		if p.Budget != "" {
			key.budget, _ = eviction.ParseBudget(p.Budget) // RowsOf has read it
		}
		c := out.cells[key]
		if c == nil {
			c = make([][]float64, len(s.tasks))
			for i := range c {
				c[i] = slices.Repeat([]float64{math.NaN()}, len(places[i]))
			}
			out.cells[key] = c
		}
		if v, ok := p.Measures[p.Metric]; ok && p.Error == "" {
			c[t][places[t][p.Index]] = s.unit().Sample(v)
		}
	}
	return out
}

func labelOf(policy, adapter string) string {
	return evaluation.Row{Policy: policy, Adapter: adapter}.Label()
}

// scoresAt are the scores of a label at a budget; the full cache's at every one.
func (s *scores) scoresAt(label string, b eviction.Budget) [][]float64 {
	if c := s.cells[scoreCellKey{label, b}]; c != nil {
		return c
	}
	return s.cells[scoreCellKey{label: label}]
}

// comparison tests all policies of one budget against one of them.
type comparison struct {
	budget   eviction.Budget
	baseline string
	chosen   bool // by the reader, not as the best
	results  []*result
	flips    int
}

// result is one policy against the baseline.
type result struct {
	label              string
	mean               evaluation.Mean
	difference         float64 // of [evaluation.Unit.Sample]
	interval, between  stats.Interval
	wins, ties, losses int
	p, sign, holm      float64
	paired             bool // with the baseline, on samples of all tasks
}

// near tells that a policy cannot be told apart from the best one, as none can by one sample.
func (c *comparison) near(label string) bool {
	if c == nil || c.chosen || IsReference(label) || label == c.baseline {
		return false
	}
	i := slices.IndexFunc(c.results, func(r *result) bool { return r.label == label })
	return i >= 0 && c.results[i].paired && !(c.results[i].holm < alpha)
}

// compareBudgets makes a comparison for every budget; nil without any.
func (s *Section) compareBudgets(all *scores, baseline string) []*comparison {
	var out []*comparison
	for _, b := range s.budgetsOr() {
		c := &comparison{budget: b, baseline: baseline, chosen: baseline != "", flips: flipsFor(all.count)}
		var best float64
		for _, label := range s.order {
			m, ok := s.wholeMean(label, b)
			if !ok {
				continue
			}
			c.results = append(c.results, &result{label: label, mean: m})
			if !c.chosen && !IsReference(label) && (c.baseline == "" || m.Score > best) {
				c.baseline, best = label, m.Score
			}
		}
		base := all.scoresAt(c.baseline, b)
		parallel.For(len(c.results), func(i int) {
			c.results[i].test(all.scoresAt(c.results[i].label, b), base, c.flips)
		})
		p := make([]float64, len(c.results))
		for i, r := range c.results {
			p[i] = r.p
			if r.label == c.baseline || IsReference(r.label) {
				p[i] = math.NaN()
			}
		}
		for i, adjusted := range stats.Holm(p) {
			c.results[i].holm = adjusted
		}
		out = append(out, c)
	}
	return out
}

func flipsFor(samples int) int {
	return min(flips, max(leastFlips, work/max(samples, 1)))
}

// test fills in the result of scores against a baseline's.
func (r *result) test(own, base [][]float64, flips int) {
	r.p, r.sign = math.NaN(), math.NaN()
	r.interval = stats.BootstrapMacroMean(listing.Map(own, present), level, bootstraps, seed)
	d, ok := pairedDifferences(own, base)
	if !ok {
		return
	}
	r.paired = true
	r.between = stats.BootstrapMacroMean(d, level, bootstraps, seed)
	var flat []float64
	for _, t := range d {
		flat = append(flat, t...)
		mean, _ := stats.Mean(t)
		r.difference += mean / float64(len(d))
	}
	for _, v := range flat {
		switch {
		case v > 0:
			r.wins++
		case v < 0:
			r.losses++
		default:
			r.ties++
		}
	}
	if len(flat) < 2 { // one pair tells nothing
		return
	}
	r.sign = stats.SignTest(flat)
	r.p = stats.PairedPermutation(weighted(d), flips, seed)
}

// present are the values that are there.
func present(x []float64) []float64 {
	return slices.DeleteFunc(slices.Clone(x), func(v float64) bool { return v != v })
}

// pairedDifferences are the differences in every task, on the samples that both have; false where there
// is none in some task.
func pairedDifferences(a, b [][]float64) ([][]float64, bool) {
	if a == nil || b == nil {
		return nil, false
	}
	out := make([][]float64, len(a))
	for t := range a {
		if out[t] = present(stats.Differences(a[t], b[t])); len(out[t]) == 0 {
			return nil, false
		}
	}
	return out, true
}

// weighted puts the differences of all tasks together, so that their mean is the mean over
// tasks.
func weighted(d [][]float64) []float64 {
	all := 0
	for _, t := range d {
		all += len(t)
	}
	var out []float64
	for _, t := range d {
		w := float64(all) / float64(len(d)*len(t))
		for _, v := range t {
			out = append(out, v*w)
		}
	}
	return out
}

// testTabs show the comparisons.
func (s *Section) testTabs(all *scores, comparisons []*comparison) []Tab {
	var out []Tab
	for _, c := range comparisons {
		if len(c.results) < 2 || all.scoresAt(c.baseline, c.budget) == nil {
			continue
		}
		tab := Tab{Name: budgetName(c.budget), Table: s.testTable(c), More: s.policyMatrix(all, c.budget)}
		chosen := "the best policy at this budget; it was chosen by the samples that it is compared on, which favours it"
		if c.chosen {
			chosen = "as asked for"
		}
		tab.Note = fmt.Sprintf("Baseline: %s (%s). Policies are compared sample by sample on the samples that both have. "+
			"Intervals: %.0f%%, percentile bootstrap within each task, %d resamples; one without width says that all samples came out alike, not that the mean is certain, and one sample has none and no p. p: two-sided paired permutation test of the mean difference, "+
			"all signs up to 16 samples, above %d random ones; Holm: the same, corrected for the tests of this budget (%d); "+
			"sign test: exact, uncorrected. Bounds are shown and not counted in the correction.",
			c.baseline, chosen, 100*level, bootstraps, c.flips, c.tested())
		out = append(out, tab)
	}
	return out
}

func (c *comparison) tested() int {
	n := 0
	for _, r := range c.results {
		if r.holm == r.holm {
			n++
		}
	}
	return n
}

func (s *Section) testTable(c *comparison) *Table {
	unit, d := s.unit(), s.differences()
	t := &Table{Heads: []Head{{Text: "policy", Left: true}, {Text: "mean", Unit: unit.Sign()}, {Text: "95% interval", Unit: unit.Sign(), Note: "of the mean"},
		{Text: "", Note: "the interval, from 0 to 100%"},
		{Text: "difference", Unit: d.unit, Note: d.note}, {Text: "95% interval", Unit: d.unit, Note: "of the difference"},
		{Text: "", Note: "the interval of the difference; the line is none"},
		{Text: "won–tied–lost", Unit: "samples"}, {Text: "p"}, {Text: "p, Holm"}, {Text: "p, sign test"}}}
	reach := 0.0
	for _, r := range c.results {
		if r.paired && known(r.between) {
			reach = max(reach, math.Abs(r.between.Low), math.Abs(r.between.High))
		}
	}
	at := func(v float64) float64 { return 50 + 50*v/max(reach, 1e-9) }
	for _, r := range c.results {
		l := Line{Class: s.lookClass(r.label), Cells: []Cell{{Text: r.label}, {Text: unit.FormatValue(r.mean.Shown())}}}
		ends := stats.Interval{Low: unit.Of(unit.Score(r.interval.Low)), High: unit.Of(unit.Score(r.interval.High))}
		of := Cell{}
		if unit.Perplexity { // the better end is the lower one, and there is no largest
			ends.Low, ends.High = ends.High, ends.Low
		} else if known(r.interval) {
			of.Bar = &Bar{ends.Low, r.mean.Shown(), ends.High, -1}
		}
		l.Cells = append(l.Cells, intervalCell(ends, unit.FormatValue), of)
		switch {
		case r.label == c.baseline:
			l.Cells = append(l.Cells, Cell{Text: "baseline"}, Cell{}, Cell{}, Cell{}, Cell{}, Cell{}, Cell{})
		case !r.paired:
			l.Cells = append(l.Cells, Cell{Text: absent, Note: "no samples of some task in common"}, Cell{}, Cell{}, Cell{}, Cell{}, Cell{}, Cell{})
		default:
			between := Cell{}
			if known(r.between) {
				between.Bar = &Bar{at(r.between.Low), at(r.difference), at(r.between.High), 50}
			}
			l.Cells = append(l.Cells, Cell{Text: d.text(r.difference)}, intervalCell(r.between, d.end), between,
				Cell{Text: fmt.Sprintf("%d–%d–%d", r.wins, r.ties, r.losses)}, pCell(r.p), pCell(r.holm), pCell(r.sign))
		}
		t.Lines = append(t.Lines, l)
	}
	return t
}

// known tells that there is an interval.
func known(i stats.Interval) bool { return i.Low == i.Low }

// differences is how a section's differences of scores are written.
type differences struct {
	unit, note string
	text, end  func(float64) string // with its sign; of an interval
}

func (s *Section) differences() differences {
	if s.unit().Perplexity {
		return differences{"nats/token", "of the log-likelihood to the baseline's, mean over texts; above 0 is better",
			func(v float64) string { return minus(fmt.Sprintf("%+.3f", v)) }, func(v float64) string { return fmt.Sprintf("%.3f", v) }}
	}
	return differences{"points", "to the baseline, mean over tasks", signed, percent}
}

func intervalCell(i stats.Interval, text func(float64) string) Cell {
	if !known(i) {
		return Cell{Text: absent}
	}
	return Cell{Text: minus(text(i.Low) + " … " + text(i.High))}
}

// pCell writes a p-value.
func pCell(p float64) Cell {
	switch {
	case p != p:
		return Cell{Text: absent}
	case p < 0.001:
		return Cell{Text: "<0.001"}
	}
	return Cell{Text: fmt.Sprintf("%.3f", p)}
}

// policyMatrix compares the policies in colour with each other; nil for fewer than three.
func (s *Section) policyMatrix(all *scores, b eviction.Budget) *Table {
	var labels []string
	for _, label := range s.order {
		if _, ok := s.wholeMean(label, b); ok && s.chosen(label) {
			labels = append(labels, label)
		}
	}
	if len(labels) < 3 {
		return nil
	}
	type pair struct{ row, column int }
	var pairs []pair
	for i := range labels {
		for j := range i {
			pairs = append(pairs, pair{i, j})
		}
	}
	p, difference := make([]float64, len(pairs)), make([]float64, len(pairs))
	n := flipsFor(all.count)
	parallel.For(len(pairs), func(i int) {
		p[i], difference[i] = math.NaN(), math.NaN()
		d, ok := pairedDifferences(all.scoresAt(labels[pairs[i].row], b), all.scoresAt(labels[pairs[i].column], b))
		if !ok {
			return
		}
		difference[i] = 0
		for _, t := range d {
			mean, _ := stats.Mean(t)
			difference[i] += mean / float64(len(d))
		}
		flat := weighted(d)
		if len(flat) < 2 {
			return
		}
		p[i] = stats.PairedPermutation(flat, n, seed)
	})
	adjusted, form := stats.Holm(p), s.differences()
	t := &Table{Caption: "Each against each", Heads: []Head{{Text: "policy", Left: true}},
		Note: fmt.Sprintf("The policy of the line less that of the column, in %s, mean over tasks. Bold: p < %.2f in the paired permutation test, Holm-corrected for the %d pairs.", form.unit, alpha, len(pairs))}
	for i, label := range labels {
		t.Heads = append(t.Heads, Head{Text: label})
		l := Line{Class: s.lookClass(label), Cells: []Cell{{Text: label}}}
		for j := range labels {
			c := Cell{}
			if at := slices.Index(pairs, pair{max(i, j), min(i, j)}); at >= 0 && difference[at] == difference[at] {
				d := difference[at]
				if i < j {
					d = -d
				}
				c.Text, c.Note = form.text(d), "p, Holm: "+pCell(adjusted[at]).Text
				if adjusted[at] < alpha {
					c.Mark = Best
				}
			}
			l.Cells = append(l.Cells, c)
		}
		t.Lines = append(t.Lines, l)
	}
	return t
}
