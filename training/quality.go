package training

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"glimpse/eviction"
	"glimpse/internal/listing"
	"glimpse/internal/tables"
	"glimpse/labels"
)

// Validation is how the adapters do on held-out samples, beside SnapKV on the same
// ones.
type Validation struct {
	Step     int              `json:"step"`
	Samples  int              `json:"samples"`
	Budgets  eviction.Budgets `json:"budgets"`
	Adapters []Quality        `json:"adapters"`
	SnapKV   Quality          `json:"snapkv"`              // by the first label
	By       []Quality        `json:"snapkv_by,omitempty"` // by the others
	Seconds  float64          `json:"seconds"`
}

// Quality is how well one way of scoring agrees with the attention that the
// response pays: means over samples, layers and KV heads. A number that is not
// defined for any sample is NaN: agreement at a budget that every prompt fits.
type Quality struct {
	Name string `json:"name"`
	// Label is what it is judged by; "" is the response's attention.
	Label string `json:"label,omitempty"`
	// Loss is the adapter's own, as the paper defines it; 0 for SnapKV, which has none.
	Loss float64 `json:"loss"`
	// HitRate at each budget: the share of the entries that is kept of those which the label's policy keeps
	// (Judge Q, arXiv:2509.10798, eq. 6), protected entries included.
	HitRate []Number `json:"hit_rate"`
	// Recall at each budget: the share of the highest scores of the label that is
	// among the highest scores, without protected entries.
	Recall []Number `json:"recall"`
	// Tau is Kendall's τ-b of the scores.
	Tau Number `json:"tau"`
	// Best: the loss is the lowest of the run so far.
	Best bool `json:"best,omitempty"`
}

// takeSnapKV takes in what SnapKV has by one more label.
func (v *Validation) takeSnapKV(q Quality) {
	if v.SnapKV.Name == "" {
		v.SnapKV = q
	} else {
		v.By = append(v.By, q)
	}
}

// snapKV is what SnapKV has by a label.
func (v *Validation) snapKV(label string) *Quality {
	for i := range v.By {
		if v.By[i].Label == label {
			return &v.By[i]
		}
	}
	return &v.SnapKV
}

// Number is a float64 that JSON writes as null where it is NaN.
type Number float64

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) {
	if n != n {
		return []byte("null"), nil
	}
	return fmt.Appendf(nil, "%.6g", float64(n)), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *Number) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*n = Number(math.NaN())
		return nil
	}
	return json.Unmarshal(data, (*float64)(n))
}

// Percent is a share for people.
func (n Number) Percent() string {
	if n != n {
		return "–"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(n))
}

// text is a number for people.
func (n Number) text(format string) string {
	if n != n {
		return "–"
	}
	return fmt.Sprintf(format, float64(n))
}

// Metrics are what an adapter's manifest says of its validation. Numbers that are not defined
// are left out.
func (v *Validation) Metrics(adapter int) map[string]float64 {
	q := v.Adapters[adapter]
	m := map[string]float64{"validation_loss": q.Loss, "validation_samples": float64(v.Samples)}
	put := func(key string, value Number) {
		if value == value {
			m[key] = float64(value)
		}
	}
	for b, budget := range v.Budgets {
		put(fmt.Sprintf("hit_rate_%v", budget), q.HitRate[b])
		put(fmt.Sprintf("recall_%v", budget), q.Recall[b])
		put(fmt.Sprintf("snapkv_hit_rate_%v", budget), v.snapKV(q.Label).HitRate[b])
	}
	put("kendall_tau", q.Tau)
	return m
}

// WriteTable prints a validation for people.
func (v *Validation) WriteTable(w io.Writer) error {
	line := func(q Quality, loss string) QualityLine {
		best := ""
		if q.Best {
			best = "best so far"
		}
		return QualityLine{[]string{q.Name, loss}, q.HitRate, q.Recall, q.Tau, []string{best}}
	}
	var lines []QualityLine
	for _, q := range v.Adapters {
		lines = append(lines, line(q, fmt.Sprintf("%.4g", q.Loss)))
	}
	for _, q := range append([]Quality{v.SnapKV}, v.By...) {
		if v.By != nil {
			q.Name += ", " + cmp.Or(q.Label, labels.Default)
		}
		lines = append(lines, line(q, ""))
	}
	return WriteQuality(w, []tables.Column{{Head: fmt.Sprintf("%d held-out samples", v.Samples)}, {Head: "loss", Right: true}}, []tables.Column{{}}, v.Budgets, lines)
}

// QualityLine is a line of WriteQuality: hits and recall at every budget, τ, and what stands before and behind them.
type QualityLine struct {
	Before       []string
	Hits, Recall []Number
	Tau          Number
	Behind       []string
}

// WriteQuality prints a table of hits and recall at budgets, and of τ. A budget that every prompt fits tells nothing: it is named
// below the table, and has no columns.
func WriteQuality(w io.Writer, before, behind []tables.Column, budgets eviction.Budgets, lines []QualityLine) error {
	told := func(of func(QualityLine) Number) bool {
		return slices.ContainsFunc(lines, func(l QualityLine) bool { n := of(l); return n == n })
	}
	columns := slices.Clone(before)
	var shown []int
	var fit []string
	for i, b := range budgets {
		if !told(func(l QualityLine) Number { return l.Hits[i] }) && !told(func(l QualityLine) Number { return l.Recall[i] }) {
			fit = append(fit, b.String())
			continue
		}
		shown = append(shown, i)
		columns = append(columns, tables.Column{Head: fmt.Sprintf("hits@%v", b), Right: true, Optional: 1},
			tables.Column{Head: fmt.Sprintf("recall@%v", b), Right: true, Optional: 2})
	}
	tau := told(func(l QualityLine) Number { return l.Tau })
	if tau {
		columns = append(columns, tables.Column{Head: "τ", Right: true, Optional: 2})
	}
	t := tables.New(append(columns, behind...)...)
	for _, l := range lines {
		cells := slices.Clone(l.Before)
		for _, i := range shown {
			cells = append(cells, l.Hits[i].Percent(), l.Recall[i].Percent())
		}
		if tau {
			cells = append(cells, l.Tau.text("%.3f"))
		}
		t.Add(append(cells, l.Behind...)...)
	}
	err := t.Write(w, tables.Columns(w))
	if err == nil && fit != nil {
		_, err = fmt.Fprintf(w, "every held-out prompt fits the budgets %s, where nothing is evicted: --validate-budgets takes others, as 25%%\n", listing.Plain(fit))
	}
	return err
}
