package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/internal/listing"
)

// Notes that several tables need.
const (
	noteMarks = "Bold: best of the column; underlined: second best, by the digits that are shown; bounds (full cache, oracles) do not compete."
	noteError = "±: one standard error; of n samples that all score alike 1/(2(n+1))."
)

// intro says what a section measured.
func (s *Section) intro() string {
	failed, tokens := 0, 0
	for _, r := range s.rows {
		failed = max(failed, r.Failed)
		tokens += r.Tokens
	}
	text := upper(s.metric())
	if s.unit().Perplexity {
		text += ", lower is better"
	} else {
		text += " in %"
	}
	if len(s.tasks) > 1 {
		text += fmt.Sprintf(", mean over %d tasks of equal weight", len(s.tasks))
	}
	each := ""
	if len(s.tasks) > 1 {
		each = " of each"
	}
	text += "; " + samplesIn(s.rows, each)
	if n := tokens / len(s.rows); n > 0 {
		text += fmt.Sprintf(", prompts of %d tokens on average", n)
	}
	if failed > 0 {
		text += fmt.Sprintf("; up to %d failed and count nowhere", failed)
	}
	return text + "."
}

// upper begins a text with a capital letter, unless that is the name of a metric.
func upper(s string) string {
	if first, _, _ := strings.Cut(s, " "); s == "" || strings.Contains(first, "_") {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// unit is that of the section's means.
func (s *Section) unit() evaluation.Unit { return s.means[0].Unit }

// metric names what the section's scores are.
func (s *Section) metric() string { return metricOf(s.rows) }

// percent writes a share with one decimal.
func percent(v float64) string { return fmt.Sprintf("%.1f", 100*v) }

// scoreCell is a mean with its error, a dash for that of one sample. An error of 0, which is that of
// equal graded scores, is left out: nothing is known of their spread.
func scoreCell(m evaluation.Mean) (Cell, float64) {
	c := Cell{Text: m.Unit.FormatValue(m.Shown())}
	if m.Score == m.Score && m.StdErr != 0 {
		c.Error = m.ErrorText()
	}
	return c, m.Score
}

// overview has a line per policy and a column per budget.
func (s *Section) overview(comparisons []*comparison) *Table {
	t := s.policyTable(s.order)
	near := false
	for i, b := range s.budgetsOr() {
		t.addColumn(Head{Text: budgetName(b), Unit: s.unit().Sign()}, higher, func(label string) (c Cell, v float64, ok bool) {
			m, ok := s.wholeMean(label, b)
			if !ok {
				return c, v, false
			}
			c, v = scoreCell(m)
			if c.Near = comparisons != nil && comparisons[i].near(label); c.Near {
				c.Note, near = "not told apart from the best", true
			}
			return c, v, true
		})
	}
	if near {
		t.Note += " ≈: not told apart from the best at that budget (paired permutation test, Holm-corrected, p ≥ 0.05)."
	}
	if s.lacking() {
		t.Note += " –: not measured on all tasks, or not at that budget."
	}
	return t.Table
}

// lacking tells that some policy has no mean somewhere.
func (s *Section) lacking() bool {
	for _, label := range s.order {
		for _, b := range s.budgetsOr() {
			if _, ok := s.wholeMean(label, b); !ok {
				return true
			}
		}
	}
	return false
}

// extra is a measure beside the scores: a column of the report's tables, or of a text's, or of both.
type extra struct {
	head  Head
	get   func(evaluation.Mean) *float64
	text  func(float64) string
	sense sense
	// In a text.
	plain string // lines of the column's head
	note  string
	drop  int // see column.optional
	brief func(float64) string
}

// sense is what is better in a column.
type sense int

const (
	neither sense = iota // a cost, which is read beside the score
	higher
	lower
)

var extras = []extra{
	{Head{Text: "hit rate", Unit: "%", Note: "critical-KV hit rate: share of the entries that the oracle keeps which are kept (Judge Q, arXiv:2509.10798, eq. 6)"},
		func(m evaluation.Mean) *float64 { return m.HitRate }, percent, higher,
		"hit\n%", "hit: critical-KV hit rate against the true response", dropScores, wholePercent},
	{Head{Text: "answer", Unit: "% kept", Note: "share of the prompt's tokens that the answer is read from which one KV head keeps, of the head that keeps most; where the task knows them"},
		func(m evaluation.Mean) *float64 { return m.AnswerRecall }, percent, higher,
		"ans\n%", "ans: of the prompt's tokens that the answer is read from, those that the best KV head for it keeps", dropAnswer, wholePercent},
	{Head{Text: "recall", Unit: "%", Note: "recall at the budget of the policy's scores against the oracle's (LookaheadKV, arXiv:2603.10899, table 8)"},
		func(m evaluation.Mean) *float64 { return m.Recall }, percent, higher,
		"rec\n%", "rec: recall at the budget of the scores against the oracle's, and τ their rank correlation", dropScores, wholePercent},
	{Head{Text: "τ", Note: "Kendall's τ-b of the policy's scores and the oracle's"},
		func(m evaluation.Mean) *float64 { return m.KendallTau }, hundredths, higher,
		"τ", "", dropScores, hundredths},
	{Head{Text: "kept", Unit: "KiB", Note: "bytes held after eviction"},
		func(m evaluation.Mean) *float64 { return positive(m.KeptBytes) }, kib, neither,
		"kept\nKiB", "kept: bytes held after eviction, and their share of the full cache", dropBytes, formatKiB},
	{Head{Text: "kept", Unit: "% of full", Note: "bytes held after eviction, as a share of the full cache's"}, keptShare, percent, neither,
		"kept\n%", "", dropShare, formatPercent},
	{Head{Text: "read", Unit: "KiB/step", Note: "bytes that the attention of a decoding step reads, with what chooses the entries"},
		func(m evaluation.Mean) *float64 { return m.TrafficBytes }, kib, neither,
		"read\nKiB", "read: by the attention of a decoding step, with what chooses the entries", dropBytes, formatKiB},
	{Head{Text: "TTFT", Unit: "ms", Note: "time to first token, median"},
		func(m evaluation.Mean) *float64 { return m.TTFTMillis }, formatNumber, neither, "", "", 0, nil},
	{Head{Text: "overhead", Unit: "% of prefill", Note: "time added to a plain prefill before the first token"},
		func(m evaluation.Mean) *float64 { return m.TTFTOverhead }, signed, neither,
		"TTFT\n+%", "TTFT: time added to a plain prefill before the first token", dropTime, formatOverhead},
	{Head{Text: "decode", Unit: "tokens/s", Note: "decoding speed after the first token"},
		func(m evaluation.Mean) *float64 { return m.DecodeTokensPerSecond }, formatNumber, neither,
		"decode\ntok/s", "decode: tokens per second after the first", dropTime, formatRate},
}

func wholePercent(v float64) string { return fmt.Sprintf("%.0f", 100*v) }

func hundredths(v float64) string { return fmt.Sprintf("%.2f", v) }

func positive(v float64) *float64 {
	if v > 0 {
		return &v
	}
	return nil
}

func keptShare(m evaluation.Mean) *float64 {
	if m.FullBytes > 0 && m.KeptBytes > 0 {
		return new(m.KeptBytes / m.FullBytes)
	}
	return nil
}

func kib(bytes float64) string { return formatNumber(bytes / 1024) }

// formatNumber writes three or more significant digits.
func formatNumber(v float64) string {
	switch a := math.Abs(v); {
	case a >= 99.95:
		return fmt.Sprintf("%.0f", v)
	case a >= 9.995:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// signed writes a share in percent with its sign.
func signed(v float64) string {
	switch a := math.Abs(100 * v); {
	case a < 0.05:
		return "0.0"
	case a >= 99.95:
		return minus(fmt.Sprintf("%+.0f", 100*v))
	}
	return minus(fmt.Sprintf("%+.1f", 100*v))
}

// minus writes minus signs.
func minus(text string) string { return strings.ReplaceAll(text, "-", "−") }

// scoreTabs have the scores of every task and what they cost, a table for each budget.
func (s *Section) scoreTabs() []Tab {
	return listing.Map(s.budgetsOr(), func(b eviction.Budget) Tab { return Tab{Name: budgetName(b), Table: s.scoreTable(b)} })
}

func (s *Section) scoreTable(b eviction.Budget) *Table {
	var labels []string
	means := make(map[string]evaluation.Mean)
	for _, label := range s.order {
		if m, ok := s.mean(label, b); ok {
			labels, means[label] = append(labels, label), m
		}
	}
	t := s.policyTable(labels)
	t.sparse = true
	for _, task := range s.tasks {
		name, note := strings.TrimPrefix(task, s.Suite+"/"), ""
		if r := s.anyRow(task); r != nil {
			note = metricOf([]evaluation.Row{*r})
		}
		unit := s.unit().Sign()
		if n := scoredOf(s.rowsAt(b), task); n != "" {
			unit = strings.TrimPrefix(unit+", "+n, ", ")
		}
		t.addColumn(Head{Text: name, Unit: unit, Note: note}, higher, func(label string) (c Cell, v float64, ok bool) {
			r := s.row(label, task, b)
			if r == nil {
				return c, v, false
			}
			c, v = scoreCell(r.Mean())
			c.Note = samplesIn([]evaluation.Row{*r}, "")
			if r.Failed > 0 {
				c.Note += fmt.Sprintf(", %d failed", r.Failed)
			}
			return c, v, true
		})
	}
	if len(s.tasks) > 1 {
		t.addColumn(Head{Text: "mean", Unit: s.unit().Sign(), Note: "over tasks, each with the same weight"}, higher, func(label string) (Cell, float64, bool) {
			c, v := scoreCell(means[label])
			return c, v, s.coversAll(means[label])
		})
	}
	s.addAgreement(t, b)
	for _, x := range extras {
		t.addColumn(x.head, x.sense, func(label string) (c Cell, v float64, ok bool) {
			if p := x.get(means[label]); p != nil {
				return Cell{Text: x.text(*p)}, *p, true
			}
			return c, v, false
		})
	}
	return t.Table
}

func (s *Section) anyRow(task string) *evaluation.Row {
	i := slices.IndexFunc(s.rows, func(r evaluation.Row) bool { return r.Task == task })
	if i < 0 {
		return nil
	}
	return &s.rows[i]
}

// addAgreement adds how answers agree with the full cache's, means over the tasks
// where all rows have it.
func (s *Section) addAgreement(t *policyTable, b eviction.Budget) {
	for _, a := range []struct {
		measure string
		head    Head
		text    func(float64) string
		sense   sense
	}{
		{evaluation.Agreement, Head{Text: "F1", Unit: "% of full", Note: "token F1 of the answer against the full cache's"}, percent, higher},
		{evaluation.MeasureExact, Head{Text: "equal", Unit: "% of full", Note: "answers that are the full cache's to the token"}, percent, higher},
		{evaluation.MeasurePrefix, Head{Text: "prefix", Unit: "% of full", Note: "tokens before the first that differs from the full cache's answer"}, percent, higher},
		{evaluation.MeasureNLL, Head{Text: "NLL", Unit: "nats/token", Note: "mean negative log-likelihood of the full cache's answer under eviction; lower is better"}, func(v float64) string { return fmt.Sprintf("%.3f", v) }, lower},
	} {
		t.addColumn(a.head, a.sense, func(label string) (c Cell, mean float64, ok bool) {
			for _, task := range s.tasks {
				r := s.row(label, task, b)
				if r == nil {
					return c, 0, false
				}
				v, ok := r.Measures[a.measure]
				if !ok {
					return c, 0, false
				}
				mean += v / float64(len(s.tasks))
			}
			return Cell{Text: a.text(mean)}, mean, true
		})
	}
}

// measureTables are what tasks measure beside their scores.
func (s *Section) measureTables() ([]*Table, error) {
	tables, err := measureTables(append(slices.Clone(s.rows), s.groups...))
	if err != nil {
		return nil, err
	}
	var out []*Table
	for _, m := range tables {
		t := tableOf(m.columns)
		t.Caption = m.title
		for j, label := range m.columns[0].cells {
			t.Lines[j].Class = s.lookClass(label)
		}
		out = append(out, t)
	}
	return out, nil
}
