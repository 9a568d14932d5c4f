package eviction_test

import (
	"io/fs"
	"math"
	"slices"
	"strings"
	"testing"

	"glimpse/model/modeltest"
)

func init() {
	naivePolicies["snapkv"] = func(c *naiveCase) naivePlan {
		if c.text("per") == "query-head" {
			return c.snapPerHead()
		}
		plan := snapkvPlan(c)
		plan.budgets = c.denseBudgets(c.budget)
		return plan
	}
}

// snapPerHead: every query head keeps the share of the budget that one of its group has, by
// its own scores; the group's KV head keeps all that any of them does.
func (c *naiveCase) snapPerHead() naivePlan {
	group, n := c.c.Group(), c.n()
	own := *c
	own.budget = max(1, c.budget/group)
	window := own.window()
	plan := naivePlan{chosen: make([][][]int32, c.c.Layers), scores: snapkvPlan(&own).scores, budgets: c.denseBudgets(c.budget), recent: window}
	single := naivePlan{scores: make([][][]float64, c.c.Layers), budgets: own.denseBudgets(own.budget), recent: window}
	for l := range plan.chosen {
		plan.chosen[l] = make([][]int32, c.c.KVHeads)
		for q := range c.c.Heads {
			score := rows(c.prompt.attention[l][q]).mean(n-window, n, n)
			single.scores[l] = append(single.scores[l], append(pooled(score[:n-window], c.int("kernel")), score[n-window:]...))
			for _, j := range single.kept(l, q, n) {
				if kept := &plan.chosen[l][q/group]; !slices.Contains(*kept, j) {
					*kept = append(*kept, j)
				}
			}
		}
		for _, kept := range plan.chosen[l] {
			slices.Sort(kept)
		}
	}
	// Entries that differ must be at the edge of what some head of the group keeps.
	plan.ties = func(l, h int, a, b []int32, tol float64) bool {
		for j := range int32(n) {
			if slices.Contains(a, j) == slices.Contains(b, j) {
				continue
			}
			edge := false
			for q := h * group; q < (h+1)*group; q++ {
				least := math.Inf(1)
				for _, i := range single.kept(l, q, n) {
					if int(i) < n-window {
						least = min(least, single.scores[l][q][i])
					}
				}
				edge = edge || !single.apart(single.scores[l][q][j], least, tol)
			}
			if !edge {
				return false
			}
		}
		return true
	}
	return plan
}

// TestSnapKVPerQueryHead: a model whose query heads choose for themselves is one without
// groups, whose KV heads repeat those of the groups, at the budget of one head: what is
// kept, what steps attend to and what they read.
func TestSnapKVPerQueryHead(t *testing.T) {
	const heads, kvHeads, headDim, n, budget, steps = 6, 2, 4, 60, 30, 20
	shape := modeltest.Llama{Layers: 3, Heads: heads, KVHeads: kvHeads, HeadDim: headDim, Seed: 5}
	folder, err := shape.Folder()
	if err != nil {
		t.Fatal(err)
	}
	shape.KVHeads = heads
	repeated, err := shape.Folder()
	if err != nil {
		t.Fatal(err)
	}
	weights := make(map[string][]float32)
	rewrite(t, folder, func(name string, values []float32) { weights[name] = slices.Clone(values) })
	repeated = rewrite(t, repeated, func(name string, values []float32) {
		from := weights[name]
		if strings.Contains(name, "k_proj") || strings.Contains(name, "v_proj") {
			rows := headDim * len(from) / (kvHeads * headDim) // numbers of one head
			for q := range heads {
				at := q * kvHeads / heads
				copy(values[q*rows:(q+1)*rows], from[at*rows:(at+1)*rows])
			}
			return
		}
		copy(values, from)
	})
	type talk struct {
		kept      [][][]int32
		said      []int32
		steps     int
		bytesRead int64
	}
	answer := func(device string, folder fs.FS, budget, n int, name string, set ...string) (out talk) {
		t.Run(device+" "+name, func(t *testing.T) { // one model at a time
			m := modeltest.OpenFolder(t, folder, device)
			s := prefill(t, m, policy(t, m, name, set...), modeltest.Tokens(m, 3, n), budget)
			out = talk{kept: s.Kept(), said: generate(t, s, steps)}
			out.steps, out.bytesRead = s.Traffic.Steps, s.Traffic.Bytes
		})
		return out
	}
	for _, on := range keptDevices {
		got := answer(on.name, folder, budget, n, "snapkv", "snapkv.per=query-head", "snapkv.window=3", "snapkv.dense=1")
		want := answer(on.name, repeated, budget*kvHeads/heads, n, "snapkv", "snapkv.window=3", "snapkv.dense=1")
		apart := 0
		for l := range got.kept {
			for h, kept := range got.kept[l] {
				var union []int32
				for q := h * heads / kvHeads; q < (h+1)*heads/kvHeads; q++ {
					union = append(union, want.kept[l][q]...)
				}
				slices.Sort(union)
				union = slices.Compact(union)
				if !slices.Equal(kept, union) || l > 0 && len(kept) > budget {
					t.Errorf("%s: layer %d head %d keeps %v, want %v", on.name, l, h, kept, union)
				}
				if l > 0 && len(kept) > budget*kvHeads/heads {
					apart++
				}
			}
		}
		if apart == 0 {
			t.Errorf("%s: the heads of every group keep the same", on.name)
		}
		if !slices.Equal(got.said, want.said) {
			t.Errorf("%s: response %v, without groups %v", on.name, got.said, want.said)
		}
		if got.steps != steps-1 || got.bytesRead != want.bytesRead {
			t.Errorf("%s: reads %d bytes in %d steps, without groups %d", on.name, got.bytesRead, got.steps, want.bytesRead)
		}
		got, want = answer(on.name, folder, budget, budget, "snapkv", "snapkv.per=query-head"), answer(on.name, folder, budget, budget, "full")
		if !slices.Equal(got.said, want.said) {
			t.Errorf("%s: within the budget: response %v, want %v", on.name, got.said, want.said)
		}
	}
}

// window is the observation window: at most half the budget.
func (c *naiveCase) window() int { return max(1, min(c.int("window"), c.budget/2)) }

// snapkvPlan: mean attention of the last window rows on what is before them,
// pooled there; the window is kept.
func snapkvPlan(c *naiveCase) naivePlan {
	scores := c.grouped(func(l, h int) []float64 {
		return rows(c.prompt.attention[l][h]).mean(c.n()-c.window(), c.n(), c.n())
	})
	c.poolBefore(scores, c.window())
	return naivePlan{scores: scores, budgets: c.uniform(c.budget), recent: c.window()}
}

// poolBefore pools what is before the last rows.
func (c *naiveCase) poolBefore(scores [][][]float64, rows int) {
	end := c.n() - rows
	for l := range scores {
		for h, s := range scores[l] {
			scores[l][h] = append(pooled(s[:end], c.int("kernel")), s[end:]...)
		}
	}
}
