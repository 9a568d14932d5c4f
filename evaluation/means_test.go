package evaluation

import (
	"math"
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/internal/compare"
)

func TestMeanByPolicy(t *testing.T) {
	row := func(policy, adapter string, budget int, task string, accuracy, stdErr float64, hit *float64) Row {
		return Row{Policy: policy, Adapter: adapter, Budget: eviction.Pairs(budget), Task: task, Tokens: 512, Samples: 10,
			Score: &accuracy, StdErr: &stdErr, HitRate: hit, KeptBytes: int64(100 * accuracy), FullBytes: 200}
	}
	means, err := MeanByPolicy([]Row{
		row("snapkv", "", 64, "a", 0.4, 0.03, new(0.5)),
		row("lookaheadkv", "fresh", 32, "a", 1, 0.1, new(0.9)),
		row("lookaheadkv", "shipped", 32, "a", 0.8, 0.1, new(0.8)),
		row("snapkv", "", 64, "b", 0.6, 0.04, nil),
		row("snapkv", "", 32, "a", 0.2, 0.2, new(0.3)),
		row("full", "", 0, "a", 0.9, 0, nil),
		row("lookaheadkv", "shipped", 32, "b", 0.2, 0.1, new(0.4)),
	})
	if err != nil {
		t.Fatal(err)
	}
	type line struct {
		label         string
		budget, cells int
	}
	var got []line
	for _, m := range means {
		got = append(got, line{m.Label(), m.Budget.Of(512), m.Cells})
	}
	want := []line{{"full", 0, 1}, {"lookaheadkv/fresh", 32, 1}, {"lookaheadkv/shipped", 32, 2}, {"snapkv", 32, 1}, {"snapkv", 64, 2}}
	if !slices.Equal(got, want) {
		t.Fatalf("means of %v, want %v", got, want)
	}

	shipped, snapkv := means[2], means[4]
	compare.Close(t, "accuracy", []float64{shipped.Score, snapkv.Score}, []float64{0.5, 0.5}, 1e-12)
	compare.Close(t, "standard error", []float64{shipped.StdErr, snapkv.StdErr}, []float64{math.Sqrt(0.02) / 2, 0.05 / 2}, 1e-12)
	compare.Close(t, "bytes", []float64{shipped.KeptBytes, shipped.FullBytes}, []float64{50, 200}, 1e-12)
	if shipped.HitRate == nil {
		t.Error("no hit rate, though every row has one")
	} else {
		compare.Close(t, "hit rate", []float64{*shipped.HitRate}, []float64{0.6}, 1e-12)
	}
	if snapkv.HitRate != nil {
		t.Errorf("hit rate %v, though a row has none", *snapkv.HitRate)
	}
	if shipped.TrafficBytes != nil || shipped.TTFTMillis != nil || shipped.TTFTOverhead != nil || shipped.DecodeTokensPerSecond != nil {
		t.Error("means of measures that were not taken")
	}
}
