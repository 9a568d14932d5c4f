package report

import (
	"slices"
	"testing"

	"glimpse/evaluation"
	"glimpse/eviction"
)

func TestHighlighted(t *testing.T) {
	mean := func(policy, adapter string, budget int, score float64) evaluation.Mean {
		return evaluation.Mean{Policy: policy, Adapter: adapter, Budget: eviction.Pairs(budget), Score: score}
	}
	means := []evaluation.Mean{
		{Policy: "full", Score: 1}, mean("oracle", "", 8, 0.9), mean("exact-topk(window=4)", "", 8, 0.95),
		mean("snapkv", "", 8, 0.2), mean("snapkv", "", 16, 0.8), mean("tova", "", 8, 0.6), mean("h2o", "", 8, 0.6),
		mean("judgeq", "mine", 8, 0.1), mean("random", "", 8, 0.3),
	}
	for n, want := range map[int][]string{
		0: nil,
		1: {"judgeq/mine"},                                    // a policy with an adapter, whatever it reaches
		3: {"h2o", "tova", "judgeq/mine"},                     // best first, equal ones by name
		9: {"h2o", "tova", "snapkv", "random", "judgeq/mine"}, // no references
	} {
		if got := Highlighted(means, n); !slices.Equal(got, want) {
			t.Errorf("of %d: %q, want %q", n, got, want)
		}
	}
}

func TestNeedleMaps(t *testing.T) {
	row := func(task, policy string, budget int, groups ...evaluation.Group) evaluation.Row {
		return evaluation.Row{Model: "m", Task: task, Policy: policy, Budget: eviction.Pairs(budget), Groups: groups, Score: new(float64(budget) / 100), Samples: 3}
	}
	length, depth := evaluation.Group{Key: "length", Value: "512"}, evaluation.Group{Key: "depth", Value: "0.25"}
	maps := NeedleMaps([]evaluation.Row{
		row("b", "full", 0, depth, length), row("b", "snapkv", 64, depth, length), row("b", "snapkv", 32, depth, length),
		row("b", "snapkv", 32, depth), row("b", "snapkv", 32), row("b", "snapkv", 32, depth, evaluation.Group{Key: "length", Value: "long"}),
		row("a", "tova", 8, length, depth), row("c", "full", 0, length, depth),
	})
	want := []struct {
		task   string
		budget int
		cells  []NeedleCell
	}{
		{"b", 32, []NeedleCell{{Policy: "full", Depth: 0.25, Tokens: 512, Accuracy: 0, Samples: 3}, {Policy: "snapkv", Depth: 0.25, Tokens: 512, Accuracy: 0.32, Samples: 3}}},
		{"b", 64, []NeedleCell{{Policy: "full", Depth: 0.25, Tokens: 512, Accuracy: 0, Samples: 3}, {Policy: "snapkv", Depth: 0.25, Tokens: 512, Accuracy: 0.64, Samples: 3}}},
		{"a", 8, []NeedleCell{{Policy: "tova", Depth: 0.25, Tokens: 512, Accuracy: 0.08, Samples: 3}}},
		{"c", 0, []NeedleCell{{Policy: "full", Depth: 0.25, Tokens: 512, Accuracy: 0, Samples: 3}}},
	}
	if len(maps) != len(want) {
		t.Fatalf("%d maps, want %d: %+v", len(maps), len(want), maps)
	}
	for i, w := range want {
		if m := maps[i]; m.Model != "m" || m.Task != w.task || m.Budget != eviction.Pairs(w.budget) || !slices.Equal(m.Cells, w.cells) {
			t.Errorf("map %d: %+v, want %+v", i, m, w)
		}
	}
}
