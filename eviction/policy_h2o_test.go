package eviction_test

import (
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

func init() {
	// Attention added up over all rows, or over the last ones only; a share of the
	// budget is for the most recent entries. Where a kernel is given, the entries before
	// these are ranked by the largest sum around them.
	naivePolicies["h2o"] = func(c *naiveCase) naivePlan {
		from, recent := 0, int(c.option("recent")*float64(c.budget))
		if w := c.int("window"); w > 0 {
			from = max(0, c.n()-w)
		}
		scores := c.meanScores(c.prompt.attention, from, c.n(), c.n())
		for l := range scores {
			for h := range scores[l] {
				for j := range scores[l][h] {
					scores[l][h][j] *= float64(c.n() - from)
				}
				scores[l][h] = pooledBefore(scores[l][h], c.int("kernel"), recent)
			}
		}
		return naivePlan{scores: scores, budgets: c.uniform(c.budget), recent: recent}
	}
}

// TestH2ODecoding replays a response with the second implementation: after every
// token the attention of its row is added to what its head still holds, and beyond
// the budget the entry with the least goes.
func TestH2ODecoding(t *testing.T) {
	for _, c := range []struct {
		n, budget      int
		recent, kernel string
	}{
		{60, 24, "0.5", "1"}, {9, 24, "0.5", "1"}, {40, 1, "0.5", "1"}, {40, 16, "0", "1"}, {40, 16, "1", "1"}, {30, 30, "0.25", "1"},
		{60, 24, "0.5", "3"}, {9, 24, "0.5", "7"}, {40, 1, "0.5", "3"}, {40, 16, "0", "5"}, {30, 30, "0.25", "63"},
	} {
		m := modeltest.Llama{Layers: 2, Seed: 5}.Open(t, "reference64")
		exact := newNaive(m)
		p := policy(t, m, "h2o", "h2o.recent="+c.recent, "h2o.kernel="+c.kernel)
		tokens := modeltest.Tokens(m, 3, c.n)
		s, err := eviction.NewRuntime(m).Prefill(background, p, eviction.Prompt{Tokens: tokens, Budget: c.budget})
		if err != nil {
			t.Fatal(err)
		}
		response, _, err := s.Generate(background, runner.GenerateOptions{MaxNew: 80, IgnoreEnd: true})
		if err != nil {
			t.Fatal(err)
		}

		prompt := exact.run(exact.empty(), exact.embed(tokens), 0, nil)
		full := exact.empty().with(prompt)
		nc := &naiveCase{naive: exact, tokens: tokens, prompt: prompt, full: full, budget: c.budget, option: option(p)}
		plan, all := naivePolicies["h2o"](nc), nc.sums()
		kept, sums, pos := make([][][]int32, 2), make([][][]float64, 2), make([][][]int32, 2)
		for l := range kept {
			kept[l], sums[l], pos[l] = make([][]int32, 2), make([][]float64, 2), make([][]int32, 2)
			for h := range kept[l] {
				kept[l][h] = plan.kept(l, h, c.n)
				pos[l][h] = slices.Clone(kept[l][h])
				for _, j := range kept[l][h] { // as they are: it is ranking that pools
					sums[l][h] = append(sums[l][h], all[l][h][j])
				}
			}
		}
		cache := full.only(kept)
		for i, id := range response[:len(response)-1] {
			row := exact.run(cache, exact.embed([]int32{id}), c.n+i, nil)
			cache = cache.with(row)
			mean := exact.meanScores(row.attention, 0, 1, len(cache[0][0]))
			for l := range cache {
				for h := range cache[l] {
					sums[l][h] = append(sums[l][h], 0)
					pos[l][h] = append(pos[l][h], int32(c.n+i))
					least, last := 0, len(sums[l][h])-plan.recent // the most recent are safe
					for j := range sums[l][h] {
						sums[l][h][j] += mean[l][h][j]
					}
					ranked := pooledBefore(sums[l][h], nc.int("kernel"), plan.recent)
					for j := range last {
						if ranked[j] <= ranked[least] { // of equals the later goes
							least = j
						}
					}
					if len(sums[l][h]) > c.budget {
						sums[l][h] = slices.Delete(sums[l][h], least, least+1)
						pos[l][h] = slices.Delete(pos[l][h], least, least+1)
						cache[l][h] = slices.Delete(cache[l][h], least, least+1)
					}
				}
			}
			if best := argmax(row.logits[0]); best != response[i+1] {
				t.Fatalf("n=%d/budget=%d/kernel=%s: token %d of the response is %d, want %d", c.n, c.budget, c.kernel, i+1, response[i+1], best)
			}
		}
		for l := range pos {
			for h, want := range pos[l] {
				if got := s.Cache.Positions(l, h); !slices.Equal(got, want) {
					t.Errorf("n=%d/budget=%d/recent=%s/kernel=%s: layer %d head %d: positions %v, want %v", c.n, c.budget, c.recent, c.kernel, l, h, got, want)
				}
			}
		}
	}
}
