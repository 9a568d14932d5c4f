package evaluation

import (
	"math"
	"slices"

	"glimpse/eviction"
	"glimpse/internal/listing"
	"glimpse/internal/stats"
)

// MetricExactAnswer is the score of answers that are right to the token and end.
const MetricExactAnswer = "exact_answer"

// RowsOf sums predictions up: a row for every cell and task over all samples, and one for
// every value of their groups, and of all groups together where there are several. Rows
// are in the order in which cells and tasks first appear; predictions that failed count as
// such and nowhere else. Timings complete the rows over all samples.
func RowsOf(all []*Prediction, timings []Timing) ([]Row, error) {
	type key struct {
		model, policy, adapter, budget, task, groups string
	}
	type members struct {
		row         Row
		predictions []*Prediction
		tokens      int
	}
	var order []key
	rows := make(map[key]*members)
	add := func(p *Prediction, groups []Group) error {
		k := key{p.Model, p.Policy, p.Adapter, p.Budget, p.Task, GroupsName(groups)}
		m := rows[k]
		if m == nil {
			m = &members{row: Row{Model: p.Model, Policy: p.Policy, Adapter: p.Adapter, Task: p.Task, Groups: groups, Metric: p.Metric}}
			if p.Budget != "" {
				var err error
				if m.row.Budget, err = eviction.ParseBudget(p.Budget); err != nil {
					return err
				}
			}
			rows[k], order = m, append(order, k)
		}
		if p.Error != "" {
			m.row.Failed++
			return nil
		}
		m.predictions, m.tokens = append(m.predictions, p), m.tokens+p.PromptTokens
		return nil
	}
	lost := make(map[[2]string]int) // samples without any cell, by model and task
	for _, p := range all {
		if p.failed() {
			lost[[2]string{p.Model, p.Task}]++
			continue
		}
		if err := add(p, nil); err != nil {
			return nil, err
		}
		for i := range p.Groups {
			if err := add(p, p.Groups[i:i+1]); err != nil {
				return nil, err
			}
		}
		if len(p.Groups) > 1 {
			if err := add(p, p.Groups); err != nil {
				return nil, err
			}
		}
	}
	taken := make(map[Timing]*Timing)
	for i, t := range timings {
		taken[Timing{Model: t.Model, Task: t.Task, Policy: t.Policy, Adapter: t.Adapter, Budget: t.Budget}] = &timings[i]
	}
	var out []Row
	for _, k := range order {
		m := rows[k]
		r := &m.row
		if len(r.Groups) == 0 {
			r.Failed += lost[[2]string{r.Model, r.Task}]
		}
		if len(m.predictions) == 0 {
			continue // all failed: there is nothing to tell
		}
		r.Samples, r.Tokens = len(m.predictions), int(math.Round(float64(m.tokens)/float64(len(m.predictions))))
		r.fillMeans(m.predictions)
		if t := taken[Timing{Model: k.model, Task: k.task, Policy: k.policy, Adapter: k.adapter, Budget: k.budget}]; t != nil && k.groups == "" {
			r.TTFTMillis, r.TTFTOverhead, r.PeakCacheBytes = new(t.TTFTMillis), t.TTFTOverhead, new(t.PeakCacheBytes)
			if t.DecodeTokensPerSecond > 0 {
				r.DecodeTokensPerSecond = new(t.DecodeTokensPerSecond)
			}
		}
		out = append(out, *r)
	}
	return out, nil
}

// fillMeans sets the means. A measure that some samples lack is the mean over those that have it,
// except recall and tau, which all must have.
func (r *Row) fillMeans(predictions []*Prediction) {
	values := make(map[string][]float64)
	for _, p := range predictions {
		for name, v := range p.Measures {
			values[name] = append(values[name], v)
		}
	}
	counts := make(map[string]int, len(values))
	for name, v := range values {
		counts[name] = len(v)
	}
	mean := func(name string, all bool) *float64 {
		v := values[name]
		delete(values, name)
		if len(v) == 0 || all && len(v) < len(predictions) {
			return nil
		}
		m, _ := stats.Mean(v)
		return &m
	}
	scores := values[r.Metric]
	r.Unscored = len(predictions) - len(scores)
	if len(scores) > 0 {
		m, stdErr := score(scores, unitOf(r.Metric))
		if r.Score = &m; len(scores) > 1 { // one tells nothing of its error
			r.StdErr = &stdErr
		}
		if unitOf(r.Metric).Perplexity {
			values[MeasurePerplexity], counts[MeasurePerplexity] = []float64{1 / m}, len(scores)
		}
		if r.Metric != Agreement {
			delete(values, r.Metric)
		}
	}
	r.HitRate = mean(MeasureHitRate, true)
	r.Recall, r.KendallTau = mean(MeasureRecall, true), mean(MeasureTau, true)
	if r.Recall != nil && r.KendallTau != nil { // sums round
		*r.Recall, *r.KendallTau = min(*r.Recall, 1), min(max(*r.KendallTau, -1), 1)
	}
	if r.AnswerRecall = mean(MeasureAnswerRecall, true); r.AnswerRecall != nil {
		*r.AnswerRecall = min(*r.AnswerRecall, 1)
	}
	if r.HitRate != nil {
		*r.HitRate = min(*r.HitRate, 1)
	}
	if v := mean(MeasureKept, true); v != nil {
		r.KeptBytes = int64(math.Round(*v))
	}
	if v := mean(MeasureFull, true); v != nil {
		r.FullBytes = int64(math.Round(*v))
	}
	r.TrafficBytes = mean(MeasureTraffic, false)
	r.TTFTMillis, r.TTFTOverhead, r.DecodeTokensPerSecond = mean(MeasureTTFT, true), mean(MeasureOverhead, true), mean(MeasureSpeed, true)
	if v := mean(MeasurePeakCache, true); v != nil {
		r.PeakCacheBytes = new(int64(math.Round(*v)))
	}
	for name, v := range values {
		if r.Measures == nil {
			r.Measures = make(map[string]float64, len(values))
		}
		r.Measures[name], _ = stats.Mean(v)
		if n := counts[name]; n < len(predictions) {
			if r.Measured == nil {
				r.Measured = make(map[string]int)
			}
			r.Measured[name] = n
		}
	}
}

// score is a mean with its standard error, NaN of one value.
func score(values []float64, unit Unit) (mean, stdErr float64) {
	if unit.Perplexity {
		mean, stdErr = stats.Mean(listing.Map(values, unit.Sample))
		mean = unit.Score(mean)
		return mean, mean * stdErr
	}
	mean, stdErr = stats.Mean(values)
	switch {
	case !slices.ContainsFunc(values, func(v float64) bool { return v != 0 && v != 1 }):
		right := 0.0
		for _, v := range values {
			right += v
		}
		mean = right / float64(len(values)) // 1 where all are right, which a sum of shares misses
		return mean, stats.BinomialStdErr(mean, len(values))
	case !slices.ContainsFunc(values, func(v float64) bool { return v != values[0] }):
		return values[0], stats.AlikeStdErr(len(values))
	}
	return mean, stdErr
}

// Overall are the rows over all samples of a task.
func Overall(rows []Row) []Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return len(r.Groups) > 0 })
}
