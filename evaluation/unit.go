package evaluation

import (
	"cmp"
	"fmt"
	"math"
)

// MetricInversePerplexity is the score of running text: 1/perplexity, the geometric mean of the
// probabilities of its tokens.
const MetricInversePerplexity = "inverse_perplexity"

// MeasurePerplexity is the same as people read it.
const MeasurePerplexity = "perplexity"

// Unit is how people read the scores of a metric: in percent, or as perplexity, which is
// better where it is lower and whose means are geometric.
type Unit struct{ Perplexity bool }

// unitOf is that of a metric.
func unitOf(metric string) Unit { return Unit{metric == MetricInversePerplexity} }

// Of is a score, 0–1, as it is read.
func (u Unit) Of(score float64) float64 {
	if u.Perplexity {
		return 1 / score
	}
	return 100 * score
}

// Error is a standard error as it is read; of perplexity by the delta method.
func (u Unit) Error(score, stdErr float64) float64 {
	if u.Perplexity {
		return stdErr / (score * score)
	}
	return 100 * stdErr
}

// absent stands for a value that was not measured.
const absent = "–"

// FormatValue writes a value as it is read.
func (u Unit) FormatValue(v float64) string {
	switch {
	case v != v:
		return absent
	case u.Perplexity && v < 100:
		return fmt.Sprintf("%.2f", v)
	case u.Perplexity && v >= 1e6:
		return fmt.Sprintf("%.3g", v)
	}
	return fmt.Sprintf("%.1f", v)
}

// Sign stands behind a value: "%", or nothing.
func (u Unit) Sign() string {
	if u.Perplexity {
		return ""
	}
	return "%"
}

// Sample is a sample's score as it is averaged and tested: itself, or its logarithm.
func (u Unit) Sample(score float64) float64 {
	if u.Perplexity {
		return math.Log(score)
	}
	return score
}

// Score is what a mean of samples comes to.
func (u Unit) Score(mean float64) float64 {
	if u.Perplexity {
		return math.Exp(mean)
	}
	return mean
}

// Shown is the score as it is read, NaN where there is none.
func (m Mean) Shown() float64 { return m.Unit.Of(m.Score) }

// Spread is one standard error to each side of Shown, within what a score can be; both ends
// are Shown where the error is not known.
func (m Mean) Spread() (low, high float64) {
	v, e := m.Shown(), m.Unit.Error(m.Score, m.StdErr)
	if e != e {
		return v, v
	}
	if m.Unit.Perplexity {
		return max(1, v-e), v + e
	}
	return max(0, v-e), min(100, v+e)
}

// ErrorText is the standard error as it is read, with the digits of the score, a dash where it is
// not known.
func (m Mean) ErrorText() string {
	e := m.Unit.Error(m.Score, m.StdErr)
	if m.Unit.Perplexity && m.Shown() >= 100 && e == e {
		return fmt.Sprintf("%.1f", e)
	}
	return m.Unit.FormatValue(e)
}

// FormatScore writes the score with its standard error.
func (m Mean) FormatScore() string {
	if m.Score != m.Score {
		return absent
	}
	return m.Unit.FormatValue(m.Shown()) + " ±" + m.ErrorText()
}

// UnitOf is what all rows are read in; ok is false where they differ.
func UnitOf(rows []Row) (u Unit, ok bool) {
	for i, r := range rows {
		if i > 0 && unitOf(r.Metric) != u {
			return Unit{}, false
		}
		u = unitOf(r.Metric)
	}
	return u, true
}

// Mean is the row as a mean over itself alone.
func (r Row) Mean() Mean {
	return Mean{Policy: r.Policy, Adapter: r.Adapter, Budget: r.Budget, Cells: 1, Unit: unitOf(r.Metric), Score: orNaN(r.Score), StdErr: orNaN(r.StdErr)}
}

func orNaN(v *float64) float64 { return *cmp.Or(v, new(math.NaN())) }
