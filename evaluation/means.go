package evaluation

import (
	"math"
	"slices"

	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/internal/listing"
	"glimpse/internal/stats"
)

// Mean is one policy at one budget, averaged over its cells (tasks and prompt
// lengths), each cell counting alike however many samples it has.
type Mean struct {
	Policy, Adapter string
	Budget          eviction.Budget
	Cells           int // rows averaged, those that have a score

	Score  float64 // macro mean, 0–1; of perplexities the geometric one; NaN where no row has one, or units differ
	StdErr float64 // of Score: √(Σ se²)/Cells; NaN where that of a row is not known
	Unit   Unit    // that the rows' scores are read in

	KeptBytes, FullBytes float64

	// Means of the optional measures; nil unless every row has the measure, since a
	// mean over other tasks than the neighbour's would be compared with it.
	Agreement, NLL, HitRate, AnswerRecall, Recall, KendallTau, TrafficBytes, TTFTMillis, TTFTOverhead, DecodeTokensPerSecond *float64
}

// Label names the policy and adapter for people, as [Row.Label] does.
func (m Mean) Label() string { return engine.NameWithAdapter(m.Policy, m.Adapter) }

// MeanByPolicy averages rows per policy, adapter and budget. Budgets ascend, the
// full cache (budget 0) comes first, and within a budget policies keep the order in
// which they first appear. Invalid or repeated rows are an error.
//
// Means are comparable only if their rows are of the same tasks, which the caller
// ensures ([Mean.Cells] helps); tables leave out and plots refuse means that lack
// a task.
func MeanByPolicy(rows []Row) ([]Mean, error) {
	if err := CheckRows(rows); err != nil {
		return nil, err
	}
	type group struct {
		policy, adapter string
		budget          eviction.Budget
	}
	groups := listing.Group(rows, func(r Row) group { return group{r.Policy, r.Adapter, r.Budget} })
	slices.SortStableFunc(groups, func(a, b []Row) int { return a[0].Budget.Compare(b[0].Budget) })

	means := make([]Mean, 0, len(groups))
	for _, cells := range groups {
		m := MeanOf(cells)
		m.Policy, m.Adapter, m.Budget = cells[0].Policy, cells[0].Adapter, cells[0].Budget
		for _, r := range cells {
			m.KeptBytes += float64(r.KeptBytes) / float64(len(cells))
			m.FullBytes += float64(r.FullBytes) / float64(len(cells))
		}
		if slices.ContainsFunc(cells, func(r Row) bool { return r.Metric != Agreement }) { // which is a column already
			m.Agreement = meanOf(cells, func(r Row) *float64 { return r.namedMeasure(Agreement) })
		}
		m.NLL = meanOf(cells, func(r Row) *float64 { return r.namedMeasure(MeasureNLL) })
		m.HitRate = meanOf(cells, func(r Row) *float64 { return r.HitRate })
		m.AnswerRecall = meanOf(cells, func(r Row) *float64 { return r.AnswerRecall })
		m.Recall = meanOf(cells, func(r Row) *float64 { return r.Recall })
		m.KendallTau = meanOf(cells, func(r Row) *float64 { return r.KendallTau })
		m.TTFTMillis = meanOf(cells, func(r Row) *float64 { return r.TTFTMillis })
		m.TTFTOverhead = meanOf(cells, func(r Row) *float64 { return r.TTFTOverhead })
		m.TrafficBytes = meanOf(cells, func(r Row) *float64 { return r.TrafficBytes })
		m.DecodeTokensPerSecond = meanOf(cells, func(r Row) *float64 { return r.DecodeTokensPerSecond })
		means = append(means, m)
	}
	return means, nil
}

// MeanOf is the mean score of rows, which are one policy's.
func MeanOf(rows []Row) (m Mean) {
	unit, same := UnitOf(rows)
	var scores, stdErrs []float64
	for _, r := range rows {
		if r.Score == nil {
			continue
		}
		score, stdErr := *r.Score, orNaN(r.StdErr)
		if unit.Perplexity {
			stdErr /= score
		}
		scores, stdErrs = append(scores, unit.Sample(score)), append(stdErrs, stdErr)
	}
	m.Unit, m.Cells = unit, len(scores)
	m.Score, m.StdErr = stats.MacroMean(scores, stdErrs)
	if !same {
		m.Score, m.StdErr = math.NaN(), math.NaN()
	}
	if m.Score = unit.Score(m.Score); unit.Perplexity {
		m.StdErr *= m.Score
	}
	return m
}

// namedMeasure is one of the other measures by name, nil where there is none.
func (r Row) namedMeasure(name string) *float64 {
	if v, ok := r.Measures[name]; ok {
		return &v
	}
	return nil
}

// meanOf averages an optional measure; nil if a row lacks it.
func meanOf(rows []Row, measure func(Row) *float64) *float64 {
	var mean float64
	for _, r := range rows {
		v := measure(r)
		if v == nil {
			return nil
		}
		mean += *v / float64(len(rows))
	}
	return &mean
}
