package calibration

import (
	"cmp"
	"math"
	"slices"

	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/internal/confidence"
	"glimpse/internal/listing"
)

// Promise is what is to be kept.
type Promise struct{ eviction.Promise }

// delta is a policy's part of 1 − Confidence, among so many.
func (p Promise) delta(policies int) float64 { return (1 - p.Confidence) / float64(max(1, policies)) }

// Documents is how many documents certify anything at all among so many policies: so many as do if nothing is lost on any.
func (p Promise) Documents(policies int) int {
	return confidence.Fewest(p.Epsilon/p.Loss.Scale(), p.delta(policies))
}

// Cell is a policy at a budget with its losses, one of each document, as [eviction.Loss] has them.
type Cell struct {
	Policy, Adapter string
	Budget          eviction.Budget
	Losses          []float64
	Prompts         int
}

// Label is what the cell's policy is called.
func (c Cell) Label() string { return engine.NameWithAdapter(c.Policy, c.Adapter) }

// Verdict is what was found out about a cell.
type Verdict string

// Verdicts. Those of budgets below the first of their policy that is not certified are NotTested.
const (
	Certified    Verdict = "yes"
	NotCertified Verdict = "no"
	NotTested    Verdict = "not tested"
)

// Line is a cell as it was tested. Mean is in the unit of the loss.
type Line struct {
	Cell
	Mean    float64
	Verdict Verdict
}

// Result are all lines, policy by policy, budgets from the largest down, and the answer.
type Result struct {
	Promise
	Policies  int // among which the confidence is divided
	Documents int
	Lines     []Line
	Chosen    *Line // nil: nothing is certified
}

// Certify tests cells of the same documents. The confidence is divided among so many policies, at least those of the cells.
func (p Promise) Certify(cells []Cell, policies int) *Result {
	groups := listing.Group(cells, Cell.Label)
	r := &Result{Promise: p, Policies: max(policies, len(groups))}
	scale, delta := p.Loss.Scale(), p.delta(r.Policies)
	for _, group := range groups {
		slices.SortFunc(group, func(a, b Cell) int { return b.Budget.Compare(a.Budget) })
		verdict := Certified
		for _, c := range group {
			sum := 0.0
			for _, x := range c.Losses {
				sum += x
			}
			n := len(c.Losses)
			r.Documents = max(r.Documents, n)
			switch {
			case verdict != Certified:
				verdict = NotTested
			case confidence.LogCapital(c.Losses, p.Epsilon/scale) < math.Log(1/delta):
				verdict = NotCertified
			}
			r.Lines = append(r.Lines, Line{c, scale * sum / float64(max(1, n)), verdict})
		}
	}
	for i := range r.Lines {
		l := &r.Lines[i]
		if l.Verdict == Certified && (r.Chosen == nil || cmp.Or(l.Budget.Compare(r.Chosen.Budget), cmp.Compare(l.Mean, r.Chosen.Mean)) < 0) {
			r.Chosen = l
		}
	}
	return r
}

// Upper is what the expected loss of a line is below with its policy's part of the confidence, in the unit of the loss.
func (r *Result) Upper(l *Line) float64 {
	upper := r.Loss.Scale() * confidence.Upper(l.Losses, r.delta(r.Policies))
	if l.Verdict == Certified {
		return min(upper, r.Epsilon) // where it is no further, but for how it is found: by halving
	}
	return upper
}

// Open tells that a smaller budget than those that were tested may yet be certified, of some policy.
func (r *Result) Open() bool {
	for _, group := range listing.Group(r.Lines, func(l Line) string { return l.Label() }) {
		if group[len(group)-1].Verdict == Certified {
			return true
		}
	}
	return false
}
