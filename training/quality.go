package training

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"glimpse/eviction"
	"glimpse/internal/tables"
)

// Validation is how the adapters do on held-out samples, beside SnapKV on the same
// ones.
type Validation struct {
	Step     int              `json:"step"`
	Samples  int              `json:"samples"`
	Budgets  eviction.Budgets `json:"budgets"`
	Adapters []Quality        `json:"adapters"`
	SnapKV   Quality          `json:"snapkv"`
	Seconds  float64          `json:"seconds"`
}

// Quality is how well one way of scoring agrees with the attention that the
// response pays: means over samples, layers and KV heads. A number that is not
// defined for any sample is NaN: agreement at a budget that every prompt fits.
type Quality struct {
	Name string `json:"name"`
	// Loss is the adapter's own, as the paper defines it; 0 for SnapKV, which has none.
	Loss float64 `json:"loss"`
	// HitRate at each budget: the share of the oracle's entries that is kept
	// (Judge Q, arXiv:2509.10798, eq. 6), protected entries included.
	HitRate []Number `json:"hit_rate"`
	// Recall at each budget: the share of the highest scores of the response that is
	// among the highest scores, without protected entries.
	Recall []Number `json:"recall"`
	// Tau is Kendall's τ-b of the scores.
	Tau Number `json:"tau"`
	// Best: the loss is the lowest of the run so far.
	Best bool `json:"best,omitempty"`
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
		put(fmt.Sprintf("snapkv_hit_rate_%v", budget), v.SnapKV.HitRate[b])
	}
	put("kendall_tau", q.Tau)
	return m
}

// WriteTable prints a validation for people.
func (v *Validation) WriteTable(w io.Writer) {
	t := tables.New(slices.Concat(
		[]tables.Column{{Head: fmt.Sprintf("%d held-out samples", v.Samples)}, {Head: "loss", Right: true}},
		QualityColumns(v.Budgets), []tables.Column{{}})...)
	row := func(q Quality, loss string) {
		cells := []string{q.Name, loss}
		for i := range v.Budgets {
			cells = append(cells, q.HitRate[i].Percent(), q.Recall[i].Percent())
		}
		best := ""
		if q.Best {
			best = "best so far"
		}
		t.Add(append(cells, fmt.Sprintf("%.3f", float64(q.Tau)), best)...)
	}
	for _, q := range v.Adapters {
		row(q, fmt.Sprintf("%.4g", q.Loss))
	}
	row(v.SnapKV, "")
	t.Write(w, tables.Columns(w))
}

// QualityColumns are the columns of hits and recall at budgets, and of τ.
func QualityColumns(budgets eviction.Budgets) []tables.Column {
	var out []tables.Column
	for _, b := range budgets {
		out = append(out, tables.Column{Head: fmt.Sprintf("hits@%v", b), Right: true, Optional: 1},
			tables.Column{Head: fmt.Sprintf("recall@%v", b), Right: true, Optional: 2})
	}
	return append(out, tables.Column{Head: "τ", Right: true, Optional: 2})
}
