package training

import (
	"math"
	"strings"
	"testing"

	"glimpse/eviction"
)

// TestValidationTable: a table has no columns that tell nothing, says why, and never "NaN".
func TestValidationTable(t *testing.T) {
	nan := Number(math.NaN())
	budgets := eviction.Budgets{eviction.Pairs(32), eviction.Pairs(64), eviction.Pairs(128)}
	for _, c := range []struct {
		name       string
		hits       []Number
		tau        Number
		has, lacks []string
	}{
		{"all", []Number{0.5, 0.6, 0.7}, 0.2, []string{"hits@32", "hits@64", "hits@128", "τ", "50.0%", "0.200"}, []string{"every held-out prompt"}},
		{"short prompts", []Number{0.5, nan, nan}, 0.2, []string{"hits@32", "τ", "every held-out prompt fits the budgets 64, 128, where nothing is evicted: --validate-budgets takes others"}, []string{"hits@64", "recall@128", "–"}},
		{"prompts of a word", []Number{nan, nan, nan}, nan, []string{"loss", "fits the budgets 32, 64, 128"}, []string{"hits@", "recall@", "τ", "–"}},
		{"one that is not known", []Number{0.5, 0.6, 0.7}, nan, []string{"hits@128"}, []string{"τ"}},
	} {
		v := Validation{Samples: 3, Budgets: budgets, Adapters: []Quality{{Name: "a", Loss: 1, HitRate: c.hits, Recall: c.hits, Tau: c.tau}}, SnapKV: Quality{Name: "snapkv", HitRate: c.hits, Recall: c.hits, Tau: c.tau}}
		var b strings.Builder
		if err := v.WriteTable(&b); err != nil {
			t.Fatal(err)
		}
		for _, want := range c.has {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s: no %q in\n%s", c.name, want, b.String())
			}
		}
		for _, not := range append(c.lacks, "NaN") {
			if strings.Contains(b.String(), not) {
				t.Errorf("%s: %q in\n%s", c.name, not, b.String())
			}
		}
	}
}
