package evaluation

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/internal/listing"
)

// Row is one measured cell: one policy at one budget on one task. Measures that
// were not taken are nil and absent from JSON.
type Row struct {
	Model   string          `json:"model,omitempty"`
	Device  string          `json:"device,omitempty"` // that it computed on, on a processor with the arithmetic; several with commas between
	Policy  string          `json:"policy"`
	Adapter string          `json:"adapter,omitempty"` // name of the adapter ("shipped", "fresh") or draft model used, if any
	Budget  eviction.Budget `json:"budget"`            // 0: all, the full cache
	Task    string          `json:"task"`
	Groups  []Group         `json:"groups,omitempty"` // that the row is limited to; none: all samples
	Tokens  int             `json:"tokens"`           // of a prompt, mean
	Samples int             `json:"samples"`          // that were measured, at least 1
	Failed  int             `json:"failed,omitempty"` // that were not, and count nowhere
	// Unscored is how many of Samples have no score, since there is nothing to score them against;
	// they count in all measures but Score.
	Unscored int `json:"unscored,omitempty"`

	Metric  string   `json:"metric,omitempty"`   // what Score is
	Score   *float64 `json:"score"`              // mean, 0–1, of inverse perplexities the geometric one; nil without a scored sample
	StdErr  *float64 `json:"stderr"`             // of Score: of a share of right answers see stats.BinomialStdErr, of graded ones s/√n or, where they are all alike, stats.AlikeStdErr; nil below two scored samples
	HitRate *float64 `json:"hit_rate,omitempty"` // critical-KV hit rate, 0–1 (Judge Q, arXiv:2509.10798, eq. 6)
	// AnswerRecall is the share of the answer's tokens in the prompt that one KV head keeps, 0–1
	// (see [eviction.AnswerRecall]); nil where the task does not know where they stand.
	AnswerRecall *float64 `json:"answer_recall,omitempty"`

	// Agreement of the policy's scores with the oracle's (LookaheadKV, arXiv:2603.10899, table 8);
	// absent for policies that do not score.
	Recall     *float64 `json:"recall,omitempty"`      // at the budget, 0–1
	KendallTau *float64 `json:"kendall_tau,omitempty"` // τ-b, −1–1

	KeptBytes int64 `json:"kept_bytes"` // real bytes held after eviction, mean over samples
	FullBytes int64 `json:"full_bytes"` // the same for the full cache

	TrafficBytes          *float64 `json:"traffic_bytes_per_step,omitempty"` // that the attention of a decoding step reads, mean over steps
	TTFTMillis            *float64 `json:"ttft_ms,omitempty"`                // time to first token
	TTFTOverhead          *float64 `json:"ttft_overhead,omitempty"`          // time added to a plain prefill, as a share of it: 0.03 is 3% more
	DecodeTokensPerSecond *float64 `json:"decode_tokens_per_s,omitempty"`    // after the first token
	PeakCacheBytes        *int64   `json:"peak_cache_bytes,omitempty"`       // most that keys and values held during the prefill

	// Measures are the means of all others, by name: agreement with the full cache's answer,
	// its log-likelihood, and what the task measures beside its metric.
	Measures map[string]float64 `json:"measures,omitempty"`
	// Measured is how many samples have a measure that not all have, and which is the mean over these.
	Measured map[string]int `json:"measured,omitempty"`
}

// Label names the row's policy and adapter for people: "lookaheadkv/shipped".
func (r Row) Label() string { return engine.NameWithAdapter(r.Policy, r.Adapter) }

// Scored is how many samples have a score.
func (r Row) Scored() int { return r.Samples - r.Unscored }

func described(v *float64) string {
	if v == nil {
		return "none"
	}
	return fmt.Sprint(*v)
}

// Validate reports every value of the row that no measurement can have.
func (r Row) Validate() error {
	var errs []error
	require := func(ok bool, field string, got any, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: got %v, want %s", field, got, want))
		}
	}
	require(IsName(r.Policy), "policy", fmt.Sprintf("%.200q", r.Policy), WantName)
	require(r.Adapter == "" || IsName(r.Adapter), "adapter", fmt.Sprintf("%.200q", r.Adapter), WantName+" or none")
	require(IsName(r.Task), "task", fmt.Sprintf("%.200q", r.Task), WantName)
	require(r.Budget.IsZero() || r.Budget.Check() == nil, "budget", r.Budget, "at least 1")
	require(r.Failed >= 0, "failed", r.Failed, "≥ 0")
	for _, g := range r.Groups {
		require(g.Key != "", "groups", "a group without a key", "one")
	}
	for name, v := range r.Measures {
		require(!math.IsNaN(v) && !math.IsInf(v, 0), name, v, "a finite number")
	}
	for name, n := range r.Measured {
		require(n >= 1 && n < r.Samples, "measured "+name, n, fmt.Sprintf("from 1 to less than %d samples", r.Samples))
	}
	require(r.Tokens >= 0, "tokens", r.Tokens, "≥ 0")
	require(r.Samples >= 1, "samples", r.Samples, "≥ 1")
	require(r.Unscored >= 0 && r.Unscored <= r.Samples, "unscored", r.Unscored, fmt.Sprintf("at most %d samples", r.Samples))
	require((r.Score == nil) == (r.Scored() == 0), "score", described(r.Score), fmt.Sprintf("one of %d scored samples", r.Scored()))
	require(r.KeptBytes >= 0, "kept_bytes", r.KeptBytes, "≥ 0")
	require(r.FullBytes >= 0, "full_bytes", r.FullBytes, "≥ 0")
	optional := func(field string, v *float64, low, high float64, want string) {
		if v != nil {
			require(*v >= low && *v <= high, field, *v, want)
		}
	}
	optional("score", r.Score, 0, 1, "a share in [0, 1]")
	optional("stderr", r.StdErr, 0, math.MaxFloat64, "a finite number ≥ 0")
	optional("hit_rate", r.HitRate, 0, 1, "a share in [0, 1]")
	optional("answer_recall", r.AnswerRecall, 0, 1, "a share in [0, 1]")
	optional("traffic_bytes_per_step", r.TrafficBytes, 0, math.MaxFloat64, "a finite number ≥ 0")
	optional("recall", r.Recall, 0, 1, "a share in [0, 1]")
	optional("kendall_tau", r.KendallTau, -1, 1, "a correlation in [-1, 1]")
	optional("ttft_ms", r.TTFTMillis, 0, math.MaxFloat64, "a finite number ≥ 0")
	optional("ttft_overhead", r.TTFTOverhead, -1, math.MaxFloat64, "a finite number ≥ -1")
	optional("decode_tokens_per_s", r.DecodeTokensPerSecond, 0, math.MaxFloat64, "a finite number ≥ 0")
	return errors.Join(errs...)
}

const (
	// MaxName is how many characters a name has at most.
	MaxName  = 64
	WantName = "a printable name of at most 64 characters"
)

// IsName tells whether a name fits a line of a table and the legend of a plot.
func IsName(name string) bool {
	return name != "" && utf8.RuneCountInString(name) <= MaxName &&
		!strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}

// cell is what identifies a row within a report.
type cell struct {
	model, policy, adapter, task, groups string
	budget                               eviction.Budget
	tokens                               int
}

func (r Row) cell() cell {
	return cell{r.Model, r.Policy, r.Adapter, r.Task, GroupsName(r.Groups), r.Budget, r.Tokens}
}

// GroupsName is groups as text: "depth=0.5, length=4k".
func GroupsName(groups []Group) string {
	return strings.Join(listing.Map(groups, func(g Group) string { return g.Key + "=" + g.Value }), ", ")
}

// CheckRows validates every row and refuses two rows of one cell.
func CheckRows(rows []Row) error {
	first := make(map[cell]int, len(rows))
	for i, r := range rows {
		if err := r.Validate(); err != nil {
			return fmt.Errorf("row %d (%.200q, budget %v, task %.200q): %w", i, r.Label(), r.Budget, r.Task, err)
		}
		if j, ok := first[r.cell()]; ok {
			return fmt.Errorf("rows %d and %d are both %s, budget %v, task %q, %d tokens", j, i, r.Label(), r.Budget, r.Task, r.Tokens)
		}
		first[r.cell()] = i
	}
	return nil
}

// MetricsSchema is the version of the object that WriteJSON writes.
const MetricsSchema = "glimpse.metrics/1"

// WriteJSON writes an object with the schema and the rows, one per line, in their order.
// Invalid or repeated rows are an error, and nothing is written then.
func WriteJSON(w io.Writer, rows []Row) error {
	if err := CheckRows(rows); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	var out strings.Builder
	fmt.Fprintf(&out, `{"schema": %q, "rows": [`, MetricsSchema)
	for i, r := range rows {
		object, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("write report: row %d: %w", i, err)
		}
		if i > 0 {
			out.WriteString(",")
		}
		out.WriteString("\n  ")
		out.Write(object)
	}
	if len(rows) > 0 {
		out.WriteString("\n")
	}
	out.WriteString("]}\n")
	if _, err := io.WriteString(w, out.String()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
