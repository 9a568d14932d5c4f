package eviction_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"glimpse/eviction"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

func init() {
	// The exponential of what the gate makes of each row's input.
	naivePolicies["kvzap"] = func(c *naiveCase) naivePlan {
		scores := make([][][]float64, c.c.Layers)
		for l := range scores {
			scores[l] = make([][]float64, c.c.KVHeads)
			for h := range scores[l] {
				for _, row := range c.prompt.inputs[l] {
					scores[l][h] = append(scores[l][h], c.gateScore(l, h, row))
				}
			}
		}
		sink, recent := c.kvzapEnds()
		for l := range scores {
			for h, s := range scores[l] {
				scores[l][h] = pooledBefore(s, c.int("kernel"), recent)
			}
		}
		plan := naivePlan{scores: scores, budgets: c.uniform(c.budget), sink: sink, recent: recent}
		if c.scoreFloor() == 0 {
			return plan
		}
		chosen := make([][][]int32, c.c.Layers)
		for l := range scores {
			for h, s := range scores[l] {
				chosen[l] = append(chosen[l], slices.DeleteFunc(plan.kept(l, h, c.n()), func(j int32) bool {
					return int(j) >= sink && int(j) < c.n()-recent && s[j] < c.scoreFloor()
				}))
			}
		}
		plan.chosen = chosen
		plan.ties = func(l, h int, a, b []int32, tol float64) bool {
			for j, x := range scores[l][h] {
				if slices.Contains(a, int32(j)) != slices.Contains(b, int32(j)) && !c.nearFloor(x, tol) {
					return false
				}
			}
			return true
		}
		plan.sink = min(sink, c.n())
		plan.recent = min(recent, c.n()-plan.sink)
		return plan
	}
	naiveWithin["kvzap"] = true
	// The least of the scores outside the window, each of which was given once, goes.
	naiveDecoders["kvzap"] = func(c *naiveCase, _ naivePlan, kept [][][]int32) naiveDecoder {
		if c.int("decode") == 0 {
			return naiveDecoder{}
		}
		scores := make([][][]float64, c.c.Layers)
		for l := range scores {
			scores[l] = make([][]float64, c.c.KVHeads)
			for h := range scores[l] {
				for _, j := range kept[l][h] {
					scores[l][h] = append(scores[l][h], c.gateScore(l, h, c.prompt.inputs[l][j]))
				}
			}
		}
		sink, recent := c.kvzapEnds()
		return naiveDecoder{
			below: func(l, h int) (gone []int, near bool) {
				own := pooledBefore(scores[l][h], c.int("kernel"), recent)
				for j := sink; j < len(own)-recent; j++ {
					if own[j] < c.scoreFloor() {
						gone = append(gone, j)
					}
					near = near || c.nearFloor(own[j], c.tolerance())
				}
				return gone, near
			},
			least: func(row pass, _ pairs, l, h int) (int, []float64) {
				scores[l][h] = append(scores[l][h], c.gateScore(l, h, row.inputs[l][0]))
				own := pooledBefore(scores[l][h], c.int("kernel"), recent)
				if len(own)-recent <= sink {
					return -1, own
				}
				return lowest(own, sink, len(own)-recent), own
			},
			drop: func(_ pairs, l, h, out int) { scores[l][h] = slices.Delete(scores[l][h], out, out+1) },
		}
	}
}

// kvzapEnds are the first and last entries that stay. The window is half of a budget that binds at most.
func (c *naiveCase) kvzapEnds() (sink, recent int) {
	sink = min(c.int("sink"), c.budget)
	recent = min(c.int("window"), c.budget-sink)
	if c.scoreFloor() == 0 || c.n() > c.budget {
		recent = min(recent, c.budget/2)
	}
	return sink, recent
}

// scoreFloor is the least score that is kept.
func (c *naiveCase) scoreFloor() float64 {
	if t := c.option("threshold"); t > -100 {
		return math.Exp(t)
	}
	return 0
}

// nearFloor tells that rounding decides whether a score is kept.
func (c *naiveCase) nearFloor(x, tol float64) bool {
	return math.Abs(x-c.scoreFloor()) <= tol*c.scoreFloor()
}

// gateScore is the score of an entry in float64.
func (c *naiveCase) gateScore(layer, head int, row []float64) float64 {
	return math.Exp(c.resources.Adapter.(*fakeGates).logScore(layer, head, row))
}

// TestKVzapDecoding replays responses with the second implementation.
func TestKVzapDecoding(t *testing.T) {
	for i, shape := range shapes {
		shape.Seed = uint64(i + 1)
		m := shape.Open(t, "reference64")
		for j, budget := range []int{1, 2, 9, 30, 50, 55} {
			if testing.Short() && (i+j)%3 > 0 {
				continue // every shape has some, every budget has a shape
			}
			replayFixed(t, m, "kvzap", budget, "kvzap.decode=1")
			replayFixed(t, m, "kvzap", budget, "kvzap.decode=1", "kvzap.window=3", "kvzap.sink=0")
			replayFixed(t, m, "kvzap", budget, "kvzap.decode=1", "kvzap.window=0")
			replayFixed(t, m, "kvzap", budget, "kvzap.decode=1", "kvzap.window=5", "kvzap.kernel=3")
			for _, threshold := range []string{"-2", "-0.5", "0", "1"} {
				replayFixed(t, m, "kvzap", budget, "kvzap.decode=1", "kvzap.window=3", "kvzap.sink=0", "kvzap.threshold="+threshold)
				replayFixed(t, m, "kvzap", budget, "kvzap.decode=1", "kvzap.window=6", "kvzap.sink=2", "kvzap.kernel=3", "kvzap.threshold="+threshold)
			}
		}
	}
}

// TestKVzapHoldsHeads: while decoding a head never holds more than the prompt has left it, however heads share the budget,
// and all of them no more than the budget.
func TestKVzapHoldsHeads(t *testing.T) {
	m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2, Seed: 2}.Open(t, "cpu")
	for _, heads := range []string{"equal", "layer", "global"} {
		for _, c := range []struct{ n, budget int }{{90, 24}, {20, 24}} {
			t.Run(fmt.Sprintf("%s/n=%d", heads, c.n), func(t *testing.T) {
				p := policy(t, m, "kvzap", "kvzap.decode=1", "kvzap.window=6", "kvzap.head-budgets="+heads)
				s := prefill(t, m, p, modeltest.Tokens(m, 4, c.n), c.budget)
				limits := slices.Clone(s.Kept())
				steps := 0
				_, _, err := s.Generate(background, runner.GenerateOptions{MaxNew: 40, IgnoreEnd: true, AfterStep: func() error {
					steps++
					for l := range limits {
						for h, kept := range limits[l] {
							want := len(kept)
							if c.n <= c.budget {
								want = min(c.n+steps, c.budget)
							}
							if got := s.Cache.Entries(l, h); got != want {
								t.Errorf("step %d: layer %d head %d holds %d entries, want %d", steps, l, h, got, want)
							}
						}
					}
					return nil
				}})
				if err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// TestKVzapThreshold: however heads share a budget, what is kept with a threshold is what is kept without one, less the entries
// below it that are neither first nor last; and while decoding no head grows beyond its share.
func TestKVzapThreshold(t *testing.T) {
	const n, sink, window, threshold = 90, 2, 6, 1.5
	m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2, Seed: 2}.Open(t, "cpu")
	for _, heads := range []string{"equal", "layer", "global"} {
		for _, budget := range []int{24, 60, n, eviction.MaxBudget} {
			set := []string{"kvzap.decode=1", fmt.Sprint("kvzap.window=", window), fmt.Sprint("kvzap.sink=", sink), "kvzap.head-budgets=" + heads}
			all := prefill(t, m, policy(t, m, "kvzap", set...), modeltest.Tokens(m, 4, n), budget)
			limits, scores, dropped := slices.Clone(all.Kept()), all.Scores(), 0
			s := prefill(t, m, policy(t, m, "kvzap", append(set, fmt.Sprint("kvzap.threshold=", threshold))...), modeltest.Tokens(m, 4, n), budget)
			for l, layer := range s.Kept() {
				for h, kept := range layer {
					want := slices.DeleteFunc(slices.Clone(limits[l][h]), func(j int32) bool {
						return j >= sink && j < n-window && float64(scores[l][h][j]) < math.Exp(threshold)
					})
					if dropped += len(limits[l][h]) - len(want); !slices.Equal(kept, want) {
						t.Errorf("%s, budget %d: layer %d head %d keeps %v, want %v", heads, budget, l, h, kept, want)
					}
				}
			}
			if dropped == 0 {
				t.Errorf("%s, budget %d: nothing is below the threshold", heads, budget)
			}
			_, _, err := s.Generate(background, runner.GenerateOptions{MaxNew: 40, IgnoreEnd: true, AfterStep: func() error {
				for l := range limits {
					for h, most := range limits[l] {
						limit := len(most)
						if budget >= n {
							limit = budget
						}
						if got := s.Cache.Entries(l, h); got > limit {
							t.Errorf("%s, budget %d: layer %d head %d holds %d entries, want at most %d", heads, budget, l, h, got, limit)
						}
					}
				}
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestKVzapLaterTurns: with decode=1 what a turn keeps has the scores that its entries were given when they were made; with
// decode=0 entries of turns before stay first.
func TestKVzapLaterTurns(t *testing.T) {
	m := modeltest.Llama{Layers: 2, Heads: 4, KVHeads: 2, Seed: 3}.Open(t, "cpu")
	for _, decode := range []string{"0", "1"} {
		p := policy(t, m, "kvzap", "kvzap.decode="+decode, "kvzap.window=3", "kvzap.sink=2")
		s := prefill(t, m, p, modeltest.Tokens(m, 4, 60), 20)
		first := s.Scores()
		kept := s.Kept()
		generate(t, s, 5)
		if err := s.Turn(background, eviction.Prompt{Tokens: modeltest.Tokens(m, 5, 12)}); err != nil {
			t.Fatal(err)
		}
		for l, heads := range s.Scores() {
			for h, scores := range heads {
				pos := kept[l][h]
				if decode == "1" { // a few have left since
					continue
				}
				for i := range pos {
					if scores[i] != math.MaxFloat32 || first[l][h][pos[i]] == scores[i] {
						t.Errorf("layer %d head %d: entry %d of the turn before has the score %v", l, h, i, scores[i])
					}
				}
			}
		}
		if decode == "0" {
			continue
		}
		for l, heads := range s.Scores() { // the first two entries are sinks and never leave
			for h, scores := range heads {
				for i := range 2 {
					if got, want := scores[i], first[l][h][i]; got != want {
						t.Errorf("layer %d head %d: entry %d has the score %v in the second turn, want %v as in the first", l, h, i, got, want)
					}
				}
				if slices.Contains(scores, 0) {
					t.Errorf("layer %d head %d: an entry has no score: %v", l, h, scores)
				}
			}
		}
	}
}

// TestKVzapNeedsGates: an adapter of the kind that is none is refused in words.
func TestKVzapNeedsGates(t *testing.T) {
	_, err := eviction.New("kvzap", 0, nil, &fakeAdapter{kind: "kvzap"})
	if err == nil || !strings.Contains(err.Error(), `adapter of kind "kvzap"`) {
		t.Errorf("error %v, want that of an adapter without gates", err)
	}
}
