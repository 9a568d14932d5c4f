package main

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"glimpse/eviction"
)

// TestEvalOfAnyModel: every policy that needs nothing but the model is measured on prompts
// of the user without references, and what it agrees with the full cache has the bounds that
// it must have.
func TestEvalOfAnyModel(t *testing.T) {
	data := filepath.Join(t.TempDir(), "prompts.jsonl")
	if err := os.WriteFile(data, []byte(`{"prompt": "The quick brown fox jumps over the lazy dog, and then it was a sunny day for all of them."}
{"text": "Once upon a time there was a small house at the end of a long road, where nobody had ever been."}
`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"llama3.1", "qwen2", "mistral-window"} {
		t.Run(name, func(t *testing.T) {
			out, _, err := execute(t, "eval", "--model", "../../model/testdata/golden/"+name, "--data", data, "--policy", "all", "--budget", "8,25%,100%", "--max-new", "6", "--json")
			if err != nil {
				t.Fatal(err)
			}
			var rows []struct {
				Policy   string
				Budget   any
				Metric   string
				Score    float64
				Hit      *float64 `json:"hit_rate"`
				Measures map[string]float64
			}
			if err := unmarshalRows(out, &rows); err != nil {
				t.Fatal(err)
			}
			if len(rows) < 25*3-2 {
				t.Errorf("%d rows, want those of all policies without an adapter at three budgets", len(rows))
			}
			var full float64
			for _, r := range rows {
				if r.Policy == "full" {
					full = r.Measures["nll"]
				}
			}
			for _, r := range rows {
				nll, prefix, exact := r.Measures["nll"], r.Measures["agreement_prefix"], r.Measures["agreement_exact"]
				if r.Metric != "agreement_f1" || r.Score < exact || prefix < exact || r.Score > 1 || prefix > 1 || !(nll > 0) || r.Hit == nil {
					t.Errorf("%+v", r)
				}
				p, err := eviction.LookupPolicy(r.Policy)
				if err != nil {
					t.Fatal(err)
				}
				// The others evict, or choose, while the answer grows.
				if whole := r.Policy == "full" || r.Budget == "100%" && p.Kind == "prefill"; whole && (exact != 1 || math.Abs(nll-full) > 1e-4) {
					t.Errorf("%s keeps all but agrees to %v, with an NLL of %v where the full cache has %v", r.Policy, exact, nll, full)
				}
			}
		})
	}
}
