package evaluation

import (
	"fmt"
	"slices"

	"glimpse/eviction"
	"glimpse/internal/stats"
)

// Mean is one policy at one budget, averaged over its cells (tasks and prompt
// lengths), each cell counting alike however many samples it has.
type Mean struct {
	Policy, Adapter string
	Budget          eviction.Budget
	Cells           int // rows averaged

	Score  float64 // macro mean, 0–1
	StdErr float64 // of Score: √(Σ se²)/Cells
	Single bool    // a row is of one sample, which tells nothing of its error

	KeptBytes, FullBytes float64

	// Means of the optional measures; nil unless every row has the measure, since a
	// mean over other tasks than the neighbour's would be compared with it.
	Agreement, NLL, HitRate, Recall, KendallTau, TrafficBytes, TTFTMillis, TTFTOverhead, DecodeTokensPerSecond *float64
}

// Label names the policy and adapter for people, as [Row.Label] does.
func (m Mean) Label() string { return label(m.Policy, m.Adapter) }

// MeanByPolicy averages rows per policy, adapter and budget. Budgets ascend, the
// full cache (budget 0) comes first, and within a budget policies keep the order in
// which they first appear. Invalid or repeated rows are an error.
//
// Means are comparable only if their rows are of the same tasks, which the caller
// ensures ([Mean.Cells] helps); WriteTable leaves out and PlotAccuracy refuses
// means that lack a task.
func MeanByPolicy(rows []Row) ([]Mean, error) {
	if err := checkRows(rows); err != nil {
		return nil, err
	}
	return meanByPolicy(rows), nil
}

func meanByPolicy(rows []Row) []Mean {
	type group struct {
		policy, adapter string
		budget          eviction.Budget
	}
	var order []group
	members := make(map[group][]Row)
	for _, r := range rows {
		g := group{r.Policy, r.Adapter, r.Budget}
		if members[g] == nil {
			order = append(order, g)
		}
		members[g] = append(members[g], r)
	}
	slices.SortStableFunc(order, func(a, b group) int { return a.budget.Compare(b.budget) })

	means := make([]Mean, 0, len(order))
	for _, g := range order {
		cells := members[g]
		m := Mean{Policy: g.policy, Adapter: g.adapter, Budget: g.budget, Cells: len(cells)}
		accuracies, stdErrs := make([]float64, len(cells)), make([]float64, len(cells))
		for i, r := range cells {
			accuracies[i], stdErrs[i] = r.Score, r.StdErr
			m.Single = m.Single || r.Samples == 1
			m.KeptBytes += float64(r.KeptBytes) / float64(len(cells))
			m.FullBytes += float64(r.FullBytes) / float64(len(cells))
		}
		m.Score, m.StdErr = stats.MacroMean(accuracies, stdErrs)
		if metricOf(cells) != metricOf([]Row{{Metric: Agreement}}) { // which is a column already
			m.Agreement = meanOf(cells, func(r Row) *float64 { return r.measure(Agreement) })
		}
		m.NLL = meanOf(cells, func(r Row) *float64 { return r.measure(MeasureNLL) })
		m.HitRate = meanOf(cells, func(r Row) *float64 { return r.HitRate })
		m.Recall = meanOf(cells, func(r Row) *float64 { return r.Recall })
		m.KendallTau = meanOf(cells, func(r Row) *float64 { return r.KendallTau })
		m.TTFTMillis = meanOf(cells, func(r Row) *float64 { return r.TTFTMillis })
		m.TTFTOverhead = meanOf(cells, func(r Row) *float64 { return r.TTFTOverhead })
		m.TrafficBytes = meanOf(cells, func(r Row) *float64 { return r.TrafficBytes })
		m.DecodeTokensPerSecond = meanOf(cells, func(r Row) *float64 { return r.DecodeTokensPerSecond })
		means = append(means, m)
	}
	return means
}

// measure is one of the other measures by name, nil where there is none.
func (r Row) measure(name string) *float64 {
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

// percent is the score with its standard error, where there is one.
func (m Mean) percent() string {
	if m.Single {
		return fmt.Sprintf("%.1f ±%s", 100*m.Score, absent)
	}
	return fmt.Sprintf("%.1f ±%.1f", 100*m.Score, 100*m.StdErr)
}
