package eviction_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"glimpse/eviction"
	"glimpse/internal/compare"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// naiveDecoder is a policy's second implementation of decoding.
type naiveDecoder struct {
	// start changes the cache before the first step, knowing the full one.
	start func(full, cache pairs)
	// choose restricts what a step attends to.
	choose func(queries [][]float64, visible []pair) ([]int, func(int, []float64) []float64)
	dense  int      // first layers that choose does not restrict
	gap    *float64 // the smallest relative difference between a chosen and a left out score
	// least sees a step and says what goes where there is too much, with the scores
	// it goes by (nil: not by scores).
	least func(row pass, cache pairs, l, h int) (int, []float64)
	ties  func(l, h, got, want int) bool
	// below are the entries that go whatever room there is, and whether rounding may decide about one; nil: none.
	below func(l, h int) (gone []int, near bool)
	// drop is told of an entry that goes.
	drop func(cache pairs, l, h, out int)
}

// naiveDecoders are the second implementations of policies that go on while
// decoding.
var naiveDecoders = map[string]func(c *naiveCase, plan naivePlan, kept [][][]int32) naiveDecoder{}

// naiveSums is accumulated attention, [layer][kvHead][entry].
type naiveSums [][][]float64

// sums is the attention of all rows of the prompt.
func (c *naiveCase) sums() [][][]float64 {
	s := c.meanScores(c.prompt.attention, 0, c.n(), c.n())
	for l := range s {
		for h := range s[l] {
			for j := range s[l][h] {
				s[l][h][j] *= float64(c.n())
			}
		}
	}
	return s
}

func (c *naiveCase) startSums(_ naivePlan, kept [][][]int32) naiveSums {
	all, out := c.sums(), make(naiveSums, len(kept))
	for l := range kept {
		out[l] = make([][]float64, len(kept[l]))
		for h, idx := range kept[l] {
			for _, j := range idx {
				out[l][h] = append(out[l][h], all[l][h][j])
			}
		}
	}
	return out
}

func (s naiveSums) add(c *naiveCase, row pass, l, h int) {
	s[l][h] = append(s[l][h], 0)
	for g := h * c.c.Group(); g < (h+1)*c.c.Group(); g++ {
		for j, p := range row.attention[l][g][0] {
			s[l][h][j] += p / float64(c.c.Group())
		}
	}
}

// lowest is the index in [from, to) of the lowest score; of equals the last.
func lowest(scores []float64, from, to int) int {
	at := from
	for j := from; j < to; j++ {
		if scores[j] <= scores[at] {
			at = j
		}
	}
	return at
}

func TestEveryDecodingPolicyHasASecondImplementation(t *testing.T) {
	for _, name := range eviction.Policies.Names() {
		info, _ := eviction.Policies.Lookup(name)
		if _, ok := naiveDecoders[name]; !ok && info.Kind != "none" && info.Kind != "prefill" && name != "streamingllm" && name != "h2o" && name != "duoattention" {
			t.Errorf("%s has none in naiveDecoders", name)
		}
	}
}

// positions copies what a cache holds.
func positions(c *kvcache.Cache) [][][]int32 {
	out := make([][][]int32, c.Layers())
	for l := range out {
		for h := range c.KVHeads() {
			out[l] = append(out[l], slices.Clone(c.Positions(l, h)))
		}
	}
	return out
}

// TestDecodingAgainstNaive replays responses of every policy that goes on while
// decoding with its second implementation, on random shapes, prompts, budgets and
// options: what is evicted at every step, what is merged, what is attended to, and
// so every key, value and token.
func TestDecodingAgainstNaive(t *testing.T) {
	type prompt struct{ shape, n int }
	passes := make(map[prompt]pass) // of the second implementation, for all policies
	for name, decoder := range naiveDecoders {
		t.Run(name, func(t *testing.T) {
			info, err := eviction.Policies.Lookup(name)
			if err != nil {
				t.Fatal(err)
			}
			heads, close := 0, 0
			for i, shape := range shapes {
				shape.Seed = uint64(i + 1)
				m := shape.Open(t, "reference64")
				exact := newNaive(m)
				lengths, rng := rand.New(rand.NewPCG(uint64(i), 7)), rand.New(rand.NewPCG(uint64(i), 8))
				for _, n := range []int{1, 2 + lengths.IntN(8), 20 + lengths.IntN(40), 100 + lengths.IntN(201)} {
					c := &naiveCase{naive: exact, tokens: modeltest.Tokens(m, uint64(n), n)}
					known, ok := passes[prompt{i, n}]
					if !ok {
						known = exact.run(exact.empty(), exact.embed(c.tokens), 0, nil)
						passes[prompt{i, n}] = known
					}
					c.prompt, c.full = known, exact.empty().with(known)
					for _, budget := range []int{1 + rng.IntN(4), 1 + rng.IntN(n), 2 + n/4, n + rng.IntN(12)} {
						set := draw(rng, name, info)
						p := policy(t, m, name, set...)
						what := fmt.Sprintf("%d/%d n=%d/budget=%d %v", shape.Heads, shape.KVHeads, n, budget, set)
						c.budget = budget
						h, ties := replay(t, what, m, p, decoder, c)
						heads, close = heads+h, close+ties
						if t.Failed() {
							return
						}
					}
				}
			}
			if close*200 > heads {
				t.Errorf("%d of %d evictions differ by entries of almost equal score", close, heads)
			}
		})
	}
}

// replay holds one response against the second implementation and returns how many
// evictions it has compared, and how many differ by a tie.
func replay(t *testing.T, what string, m *model.Model, p *eviction.Configured, decoder func(*naiveCase, naivePlan, [][][]int32) naiveDecoder, c *naiveCase) (heads, close int) {
	const steps = 14
	exact, tokens, n, budget := c.naive, c.tokens, c.n(), c.budget
	rt := eviction.NewRuntime(m)
	s, err := rt.Prefill(background, p, eviction.Prompt{Tokens: tokens, MaxNew: steps, Budget: budget})
	if err != nil {
		t.Fatal(err)
	}
	var held [][][][]int32 // after every step
	response, _, err := s.Generate(background, runner.GenerateOptions{MaxNew: steps, IgnoreEnd: true, AfterStep: func() error {
		held = append(held, positions(s.Cache))
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}

	c.option, c.text, c.maxNew, c.resources = option(p), p.Settings.OptionText, steps, p.Settings.Resources
	plan := naivePlan{budgets: exact.uniform(budget)}
	if n > budget {
		plan = naivePolicies[p.Name](c)
	}
	kept := s.Kept() // TestKeptSetsAgainstNaive has judged it
	d := decoder(c, plan, kept)
	cache := c.full.only(kept)
	if d.start != nil {
		d.start(c.full, cache)
	}
	if d.choose != nil {
		exact.choose = func(l, _ int, queries [][]float64, visible []pair) ([]int, func(int, []float64) []float64) {
			if l < d.dense {
				idx := make([]int, len(visible))
				for j := range idx {
					idx[j] = j
				}
				return idx, nil
			}
			return d.choose(queries, visible)
		}
		defer func() { exact.choose = nil }()
	}
	pos := make([][][]int32, len(kept))
	for l := range kept {
		for h := range kept[l] {
			pos[l] = append(pos[l], slices.Clone(kept[l][h]))
		}
	}
	for i, id := range response[:len(response)-1] {
		row := exact.run(cache, exact.embed([]int32{id}), n+i, nil)
		cache = cache.with(row)
		for l := range cache {
			for h := range cache[l] {
				pos[l][h] = append(pos[l][h], int32(n+i))
				if d.least == nil {
					continue
				}
				out, scores := d.least(row, cache, l, h)
				gone, near := below(d, l, h)
				if near {
					return heads, close // from here on either choice is right
				}
				if len(gone) > 0 {
					for _, j := range slices.Backward(gone) {
						d.drop(cache, l, h, j)
						pos[l][h] = slices.Delete(pos[l][h], j, j+1)
						cache[l][h] = slices.Delete(cache[l][h], j, j+1)
					}
					if !slices.Equal(pos[l][h], held[i][l][h]) {
						t.Fatalf("%s: step %d layer %d head %d: holds %v, want %v", what, i, l, h, held[i][l][h], pos[l][h])
					}
					continue
				}
				if len(pos[l][h]) <= plan.budgets[l] {
					continue
				}
				heads++
				if got := missing(pos[l][h], held[i][l][h]); got != out {
					almost := got >= 0 && scores != nil && math.Abs(scores[got]-scores[out]) <= c.tolerance()*max(math.Abs(scores[got]), math.Abs(scores[out]))
					if !almost && (got < 0 || d.ties == nil || !d.ties(l, h, got, out)) {
						t.Fatalf("%s: step %d layer %d head %d: evicts entry %d of positions %v, want %d; scores %v", what, i, l, h, got, pos[l][h], out, scores)
					}
					close++
					out = got
				}
				if d.drop != nil {
					d.drop(cache, l, h, out)
				}
				pos[l][h] = slices.Delete(pos[l][h], out, out+1)
				cache[l][h] = slices.Delete(cache[l][h], out, out+1)
			}
		}
		if d.gap != nil && *d.gap < c.tolerance() {
			return heads, close // from here on either choice is right
		}
		if best := argmax(row.logits[0]); best != response[i+1] && row.logits[0][best]-row.logits[0][response[i+1]] > c.tolerance() {
			t.Fatalf("%s: token %d of the response is %d, want %d", what, i+1, response[i+1], best)
		}
	}
	if ok := planOf(m, p).KeepsAll; ok { // it also holds what the second implementation has left out
		return heads, close
	}
	for l := range cache {
		for h, want := range cache[l] {
			if !slices.Equal(s.Cache.Positions(l, h), pos[l][h]) {
				t.Fatalf("%s: layer %d head %d: positions %v, want %v", what, l, h, s.Cache.Positions(l, h), pos[l][h])
			}
			view := s.Cache.View(l)[h]
			var k, v []float64
			for _, e := range want {
				k, v = append(k, e.k...), append(v, e.v...)
			}
			where := fmt.Sprintf("%s: layer %d head %d", what, l, h)
			compare.Close(t, where+": keys", view.K.Float64s(), k, c.tolerance(), compare.Floor(c.floor()))
			compare.Close(t, where+": values", view.V.Float64s(), v, c.tolerance(), compare.Floor(c.floor()))
		}
	}
	return heads, close
}

// below is the decoder's, or none.
func below(d naiveDecoder, l, h int) (gone []int, near bool) {
	if d.below == nil {
		return nil, false
	}
	return d.below(l, h)
}

// missing is the index in all of the one position that held does not have, -1 if
// that is not how they differ.
func missing(all, held []int32) int {
	if len(held) != len(all)-1 {
		return -1
	}
	for i := range held {
		if all[i] != held[i] {
			if !slices.Equal(all[i+1:], held[i:]) {
				return -1
			}
			return i
		}
	}
	return len(held)
}

// TestSparseTies: queries of zero find everything alike; the lower positions win,
// also where a page is cut.
func TestSparseTies(t *testing.T) {
	folder, err := modeltest.Llama{Layers: 2, Seed: 2}.Folder()
	if err != nil {
		t.Fatal(err)
	}
	folder = rewrite(t, folder, func(name string, values []float32) {
		if strings.HasSuffix(name, "q_proj.weight") {
			clear(values)
		}
	})
	m := modeltest.OpenFolder(t, folder, "reference64")
	for _, name := range []string{"quest", "sparq", "exact-topk", "hsa"} {
		for _, budget := range []int{2, 9, 30} {
			set := []string{}
			if name == "sparq" { // without attention there is no share to reallocate
				set = append(set, "sparq.mean=0")
			}
			replayFixed(t, m, name, budget, set...)
		}
	}
}

// replayFixed replays a response to a prompt of 50 tokens.
func replayFixed(t *testing.T, m *model.Model, name string, budget int, set ...string) {
	t.Helper()
	exact := newNaive(m)
	c := &naiveCase{naive: exact, tokens: modeltest.Tokens(m, 3, 50), budget: budget}
	c.prompt = exact.run(exact.empty(), exact.embed(c.tokens), 0, nil)
	c.full = exact.empty().with(c.prompt)
	replay(t, fmt.Sprintf("%s budget=%d", name, budget), m, policy(t, m, name, set...), naiveDecoders[name], c)
}

// TestSparseTails: queries so long that the probabilities of most entries are less than
// e⁻⁴⁰, and many less than float32 holds. They still have an order.
func TestSparseTails(t *testing.T) {
	for _, kvHeads := range []int{4, 2} {
		folder, err := modeltest.Llama{Layers: 2, Heads: 4, KVHeads: kvHeads, Seed: 2}.Folder()
		if err != nil {
			t.Fatal(err)
		}
		folder = rewrite(t, folder, func(name string, values []float32) {
			if strings.HasSuffix(name, "q_proj.weight") {
				for i := range values {
					values[i] *= 150
				}
			}
		})
		m := modeltest.OpenFolder(t, folder, "reference64")
		for _, name := range []string{"quest", "sparq", "exact-topk", "hsa", "rocketkv", "tova"} {
			for _, budget := range []int{3, 9, 30} {
				set := []string{}
				if name == "sparq" { // the share is as exact as such logits are in float32
					set = append(set, "sparq.mean=0")
				}
				replayFixed(t, m, name, budget, set...)
			}
		}
	}
}
