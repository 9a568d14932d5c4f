package evaluation_test

import (
	"slices"
	"testing"
	"time"

	"glimpse/engine"
	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/model"
)

// TestTimeIsBounded: of a cell at least one repeat is measured, and no further one begins after the time;
// the estimate counts those that will be, and every cell is told of.
func TestTimeIsBounded(t *testing.T) {
	m, err := model.Open("", model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var policies []engine.Policy
	for _, name := range []string{"full", "snapkv"} {
		p, err := eviction.New(name, 0, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		policies = append(policies, engine.Policy{Configured: p})
	}
	budgets, err := eviction.ParseBudgets("8,25%")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		within  time.Duration
		prefill bool
		repeats int
	}{{"all repeats", 0, false, 3}, {"long enough", time.Hour, true, 3}, {"too short for two", 1, false, 1}, {"too short, prefills alone", 1, true, 1}} {
		t.Run(c.name, func(t *testing.T) {
			var cells []string
			var estimate time.Duration
			got, err := evaluation.Time(t.Context(), m, "x", slices.Repeat([]int32{7}, 64), policies, budgets, evaluation.TimeOptions{
				Repeats: 3, Tokens: 4, Within: c.within, Prefill: c.prefill,
				Begin:  func(d time.Duration) { estimate = d },
				OnCell: func(cell evaluation.Cell) { cells = append(cells, cell.Title()+" "+cell.BudgetName()) },
			})
			if err != nil {
				t.Fatal(err)
			}
			if want := []string{"full ", "snapkv 8", "snapkv 25%"}; !slices.Equal(cells, want) || len(got) != len(want) || estimate <= 0 {
				t.Errorf("told of %q, want %q; %d timings, estimate %v", cells, want, len(got), estimate)
			}
			for _, x := range got {
				if x.Repeats != c.repeats || x.TTFTMillis <= 0 || (x.DecodeTokensPerSecond > 0) == c.prefill || x.PeakCacheBytes <= 0 {
					t.Errorf("%+v, want %d repeats", x, c.repeats)
				}
			}
		})
	}
}
