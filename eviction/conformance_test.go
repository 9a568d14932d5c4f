package eviction_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"testing/fstest"

	"glimpse/checkpoints"
	"glimpse/eviction"
	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// everyPolicy runs f for every registered policy on a model with layers enough
// to tell their budgets apart.
func everyPolicy(t *testing.T, device string, f func(t *testing.T, m *model.Model, p *eviction.Configured)) {
	eachPolicy(t, device, eviction.Policies.Names(), f)
}

// somePolicies is everyPolicy of modeltest.Some.
func somePolicies(t *testing.T, device string, f func(t *testing.T, m *model.Model, p *eviction.Configured)) {
	eachPolicy(t, device, modeltest.Some(t, eviction.Policies.Names()), f)
}

func eachPolicy(t *testing.T, device string, names []string, f func(t *testing.T, m *model.Model, p *eviction.Configured)) {
	m := modeltest.Llama{Layers: 4, Heads: 4, KVHeads: 2, Seed: 2}.Open(t, device)
	for _, name := range names {
		t.Run(name, func(t *testing.T) { f(t, m, policy(t, m, name)) })
	}
}

// mostNew bounds the response of a policy that wants it. The models here do not end theirs.
func mostNew(m *model.Model, p *eviction.Configured) int {
	if planOf(m, p).NeedsResponse {
		return 64
	}
	return 0
}

// planOf is what a policy wants of a short prompt that is over its budget.
func planOf(m *model.Model, p *eviction.Configured) eviction.Plan {
	return p.Method.Plan(eviction.Prompt{Tokens: modeltest.Tokens(m, 1, 9), Entries: 9, Budget: 4, Config: &m.Config, Tokenizer: m.Tokenizer})
}

func prefill(t testing.TB, m *model.Model, p *eviction.Configured, tokens []int32, budget int) *eviction.Session {
	t.Helper()
	s, err := eviction.NewRuntime(m).Prefill(background, p, eviction.Prompt{Tokens: tokens, MaxNew: mostNew(m, p), Budget: budget})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func generate(t testing.TB, s *eviction.Session, n int) []int32 {
	t.Helper()
	out, _, err := s.Generate(background, runner.GenerateOptions{MaxNew: n, IgnoreEnd: true})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// sameKept compares kept indices.
func sameKept(a, b [][][]int32) bool {
	return slices.EqualFunc(a, b, func(x, y [][]int32) bool { return slices.EqualFunc(x, y, slices.Equal) })
}

// entryBytes is one key and value of one head.
func entryBytes(m *model.Model) int64 {
	return 2 * int64(m.Config.HeadDim) * int64(m.Backend.Compute().Size())
}

// spare is the room for further entries that a head of the cache may have.
const spare = 16

// withoutRows are the positions of a prompt's tokens.
func withoutRows(positions []int32, n int) []int32 {
	end, _ := slices.BinarySearch(positions, int32(n))
	return positions[:end]
}

// rowsOf is how many rows stand behind a prompt that a policy evicts.
func rowsOf(m *model.Model, p *eviction.Configured, evicts bool) int {
	if stay := planOf(m, p).Stay; stay != nil && evicts {
		return stay.Rows()
	}
	return 0
}

// TestPoliciesKeepWhatTheyMay: budgets in all and per head, protected entries,
// order, positions and bytes.
func TestPoliciesKeepWhatTheyMay(t *testing.T) {
	everyPolicy(t, "cpu", func(t *testing.T, m *model.Model, p *eviction.Configured) {
		allocates := planOf(m, p).Layers != nil
		crosses := planOf(m, p).CrossLayer != nil
		sparse := planOf(m, p).Sparse != nil // what it holds is its own affair, see TestSparseTraffic
		keepsAll := planOf(m, p).KeepsAll
		allocates = allocates || planOf(m, p).Heads != nil || planOf(m, p).Budget > 0
		for _, n := range []int{2, 17, 90} {
			tokens := modeltest.Tokens(m, 4, n)
			for _, budget := range []int{1, 2, 5, 16, 33, 64, n - 1, n, n + 9} {
				if budget < 1 {
					continue
				}
				s := prefill(t, m, p, tokens, budget)
				name := fmt.Sprintf("n=%d/budget=%d", n, budget)
				total, bytes := 0, int64(0)
				for l := range m.Config.Layers {
					for h := range m.Config.KVHeads {
						kept := s.Kept()[l][h]
						total += len(kept)
						if !slices.IsSorted(kept) || len(slices.Compact(slices.Clone(kept))) != len(kept) || len(kept) > 0 && (kept[0] < 0 || int(kept[len(kept)-1]) >= n) {
							t.Fatalf("%s: layer %d head %d keeps %v", name, l, h, kept)
						}
						if want := kept; keepsAll {
							if s.Cache.Entries(l, h) != n || !slices.Equal(s.Pool[l][h], kept) {
								t.Errorf("%s: layer %d head %d: holds %d entries, pool %v of kept %v", name, l, h, s.Cache.Entries(l, h), s.Pool[l][h], kept)
							}
						} else if !slices.Equal(withoutRows(s.Cache.Positions(l, h), n), want) { // a prompt's indices are its positions
							t.Errorf("%s: layer %d head %d: positions %v, want %v", name, l, h, s.Cache.Positions(l, h), kept)
						}
						if !allocates && !crosses && len(kept) != min(n, budget) {
							t.Errorf("%s: layer %d head %d keeps %d entries", name, l, h, len(kept))
						}
						if n > budget {
							prompt := s.Prompt
							if crosses {
								prompt.Budget = len(kept)
							}
							plan := p.Method.Plan(prompt)
							sink, recent := plan.Sink, plan.Recent
							if sink < 0 || recent < 0 || sink+recent > prompt.Budget && !sparse || sink+recent > len(kept) {
								t.Fatalf("%s: protects %d and %d entries", name, sink, recent)
							}
							for j := range n {
								if (j < sink || j >= n-recent) && !slices.Contains(kept, int32(j)) {
									t.Errorf("%s: layer %d head %d evicts the protected entry %d", name, l, h, j)
								}
							}
						}
						bytes += int64(len(kept)) * entryBytes(m)
					}
				}
				if keepsAll {
					bytes = s.FullBytes
				}
				if heads := m.Config.Layers * m.Config.KVHeads; sparse {
					if total > heads*n || n <= budget && total != heads*n {
						t.Errorf("%s: keeps %d entries of %d", name, total, heads*n)
					}
				} else if p.Policy.Kind == "none" {
					if total != heads*n {
						t.Errorf("%s: keeps %d entries, want all", name, total)
					}
				} else if total > heads*min(n, budget) || n <= budget && total != heads*n {
					t.Errorf("%s: keeps %d entries in all, the budget is %d of %d", name, total, heads*budget, heads*n)
				}
				if int(s.Cache.Next()) != n+rowsOf(m, p, n > budget && budget > 1) {
					t.Errorf("%s: decoding would go on at %d", name, s.Cache.Next())
				}
				if held := s.Cache.Bytes(); held < bytes || held > bytes+spare*int64(m.Config.Layers*m.Config.KVHeads)*entryBytes(m) {
					t.Errorf("%s: the cache holds %d bytes, its entries have %d", name, held, bytes)
				}
				full := int64(n*m.Config.Layers*m.Config.KVHeads) * entryBytes(m)
				if n > spare && s.FullBytes != full || s.FullBytes < full {
					t.Errorf("%s: FullBytes %d, want %d", name, s.FullBytes, full)
				}
				if s.PeakBytes < s.Cache.Bytes() {
					t.Errorf("%s: PeakBytes %d, the cache holds %d", name, s.PeakBytes, s.Cache.Bytes())
				}
			}
		}
	})
}

// TestPeakIsOneLayer: the most that a prefill holds is one layer's full cache and
// what is kept of the layers before it; a policy that looks twice holds all layers
// and the evicted copy that it drafts on.
func TestPeakIsOneLayer(t *testing.T) {
	everyPolicy(t, "cpu", func(t *testing.T, m *model.Model, p *eviction.Configured) {
		const n, budget = 120, 24
		s := prefill(t, m, p, modeltest.Tokens(m, 4, n), budget)
		layer := s.FullBytes / int64(m.Config.Layers)
		var want int64
		drafts := planOf(m, p).Drafted > 0
		crosses := planOf(m, p).CrossLayer != nil
		keepsAll := planOf(m, p).KeepsAll
		sparse := planOf(m, p).Sparse != nil
		switch {
		case p.Policy.Kind == "none" || crosses || keepsAll:
			want = s.FullBytes
		case planOf(m, p).Stay != nil: // which stand beside the full cache, whose memory grows for them
			if s.PeakBytes < s.FullBytes || s.PeakBytes > s.FullBytes*5/4 {
				t.Errorf("PeakBytes %d, want about the full cache's %d", s.PeakBytes, s.FullBytes)
			}
			return
		case drafts:
			least := s.FullBytes + int64(budget*m.Config.Layers*m.Config.KVHeads)*entryBytes(m)
			if s.PeakBytes < least || s.PeakBytes > 2*least {
				t.Errorf("PeakBytes %d, want at least %d: the full cache and the draft's", s.PeakBytes, least)
			}
			return
		default:
			kept := int64(0)
			for l := range m.Config.Layers {
				want = max(want, kept+layer)
				for h := range m.Config.KVHeads {
					kept += int64(len(s.Kept()[l][h])) * entryBytes(m)
				}
			}
			if want > s.FullBytes*2/3 && !sparse {
				t.Fatalf("the test's prompt is too short: %d of %d bytes", want, s.FullBytes)
			}
		}
		if s.PeakBytes != want {
			t.Errorf("PeakBytes %d, want %d; the whole cache takes %d", s.PeakBytes, want, s.FullBytes)
		}
	})
}

// TestPoliciesAreDeterministic: a policy made twice with one seed keeps the same.
func TestPoliciesAreDeterministic(t *testing.T) {
	everyPolicy(t, "cpu", func(t *testing.T, m *model.Model, p *eviction.Configured) {
		tokens := modeltest.Tokens(m, 4, 70)
		first := prefill(t, m, p, tokens, 20)
		again := prefill(t, m, policy(t, m, p.Name), tokens, 20)
		if !sameKept(first.Kept(), again.Kept()) || !slices.Equal(first.Logits(), again.Logits()) {
			t.Error("two passes differ")
		}
		if a, b := generate(t, first, 20), generate(t, again, 20); !slices.Equal(a, b) {
			t.Errorf("responses %v and %v", a, b)
		}
	})
}

// TestStudyIsPrefill: one pass for all policies and budgets selects what each
// prefill selects layer by layer, and its sessions respond alike.
func TestStudyIsPrefill(t *testing.T) {
	for _, device := range []string{"cpu", "reference64"} {
		m := modeltest.Llama{Layers: 4, Seed: 2}.Open(t, device)
		var all []*eviction.Configured
		for _, name := range modeltest.Some(t, eviction.Policies.Names()) {
			all = append(all, policy(t, m, name))
		}
		all = append(all, policy(t, m, "snapkv", "snapkv.window=5"), policy(t, m, "h2o", "h2o.window=9"),
			policy(t, m, "h2o", "h2o.kernel=5"), policy(t, m, "tova", "tova.kernel=5"), policy(t, m, "roco", "roco.kernel=5"))
		budgets := []int{7, 20, 50, 80}
		tokens := modeltest.Tokens(m, 4, 50)
		rt := eviction.NewRuntime(m)
		study, err := rt.Study(background, all, eviction.Prompt{Tokens: tokens, MaxNew: 64}, budgets, runner.GenerateOptions{MaxNew: 64})
		if err != nil {
			t.Fatal(err)
		}
		if len(study.Choices) != len(all)*len(budgets) {
			t.Fatalf("%d plans", len(study.Choices))
		}
		for i, plan := range study.Choices {
			name := fmt.Sprintf("%s: %s/budget=%d", device, plan.Configured.Name, plan.Budget)
			if plan.Configured != all[i/len(budgets)] || plan.Budget != budgets[i%len(budgets)] {
				t.Errorf("plan %d is %s", i, name)
			}
			alone, err := rt.Prefill(background, plan.Configured, eviction.Prompt{Tokens: tokens, MaxNew: 64, Budget: plan.Budget})
			if err != nil {
				t.Fatal(err)
			}
			if !sameKept(plan.Kept, alone.Kept()) {
				t.Errorf("%s: keeps %v in a study, %v alone", name, plan.Kept, alone.Kept())
			}
			compare.Close(t, name+": logits", study.Logits, alone.Logits(), 1e-5, compare.Floor(1))
			for range 2 { // a plan can be used more than once
				s, err := study.Session(plan)
				if err != nil {
					t.Fatal(err)
				}
				if s.FullBytes != alone.FullBytes || s.Cache.Bytes() > alone.Cache.Bytes() || s.Cache.Next() != alone.Cache.Next() {
					t.Errorf("%s: full %d, held %d, next %d; alone %d, %d, %d", name, s.FullBytes, s.Cache.Bytes(), s.Cache.Next(), alone.FullBytes, alone.Cache.Bytes(), alone.Cache.Next())
				}
				again, err := rt.Prefill(background, plan.Configured, eviction.Prompt{Tokens: tokens, MaxNew: 64, Budget: plan.Budget})
				if err != nil {
					t.Fatal(err)
				}
				if a, b := generate(t, s, 30), generate(t, again, 30); !slices.Equal(a, b) {
					t.Errorf("%s: response %v in a study, %v alone", name, a, b)
				}
			}
		}
	}
}

// TestAmpleBudgetIsFull: while prompt and response fit the budget, every policy
// responds as with the full cache.
func TestAmpleBudgetIsFull(t *testing.T) {
	everyPolicy(t, "cpu", func(t *testing.T, m *model.Model, p *eviction.Configured) {
		tokens := modeltest.Tokens(m, 6, 30)
		full := generate(t, prefill(t, m, policy(t, m, "full"), tokens, 1), 40)
		s := prefill(t, m, p, tokens, 70)
		if got := generate(t, s, 40); !slices.Equal(got, full) {
			t.Errorf("response %v, with the full cache %v", got, full)
		}
		for l := range m.Config.Layers {
			if got := s.Cache.Entries(l, 0); got != 69 { // the last token is not run
				t.Errorf("layer %d holds %d entries, want all 69", l, got)
			}
		}
	})
}

// TestPromptsOfOneToken: nothing to select from, and nothing to divide by.
func TestPromptsOfOneToken(t *testing.T) {
	for _, device := range kernels.Backends.Names() {
		everyPolicy(t, device, func(t *testing.T, m *model.Model, p *eviction.Configured) {
			for _, budget := range []int{1, 2, 40} {
				s := prefill(t, m, p, []int32{7}, budget)
				for l := range s.Kept() {
					for h := range s.Kept()[l] {
						if !slices.Equal(s.Kept()[l][h], []int32{0}) {
							t.Errorf("keeps %v", s.Kept()[l][h])
						}
					}
				}
				if got := generate(t, s, 5); len(got) != 5 {
					t.Errorf("response %v", got)
				}
			}
		})
	}
}

// TestDecodingStaysWithinTheBudget: policies that evict while decoding hold the
// budget through a long response, the others what they kept and the response.
func TestDecodingStaysWithinTheBudget(t *testing.T) {
	everyPolicy(t, "cpu", func(t *testing.T, m *model.Model, p *eviction.Configured) {
		const budget, steps = 20, 200
		evicts := planOf(m, p).Decode != nil
		for _, n := range modeltest.Some(t, []int{5, 20, 90}) {
			s := prefill(t, m, p, modeltest.Tokens(m, 4, n), budget)
			start := make([][]int, m.Config.Layers)
			for l := range start {
				for h := range m.Config.KVHeads {
					start[l] = append(start[l], s.Cache.Entries(l, h))
				}
			}
			most, done := int64(0), 0
			_, _, err := s.Generate(background, runner.GenerateOptions{MaxNew: steps + 1, IgnoreEnd: true, AfterStep: func() error {
				done++
				for l := range start {
					for h, before := range start[l] {
						want := before + done
						if evicts {
							want = min(want, budget)
						}
						if evicts && n > budget { // its own budget, in some policies
							want = before
						}
						pos := s.Cache.Positions(l, h)
						if len(pos) != want || !slices.IsSorted(pos) {
							t.Fatalf("n=%d, step %d: layer %d head %d holds %v, want %d entries", n, done, l, h, pos, want)
						}
					}
				}
				most = max(most, s.Cache.Bytes())
				return nil
			}})
			if err != nil || done != steps {
				t.Fatalf("%d steps, %v", done, err)
			}
			if want := n + rowsOf(m, p, n > budget) + steps; int(s.Cache.Next()) != want {
				t.Errorf("next position %d, want %d", s.Cache.Next(), want)
			}
			if limit := int64((budget+spare)*m.Config.Layers*m.Config.KVHeads) * entryBytes(m); evicts && most > limit {
				t.Errorf("n=%d: the cache grew to %d bytes, want at most %d", n, most, limit)
			}
		}
	})
}

// TestTiesGoToTheLowerPosition: queries of zero attend to everything alike.
func TestTiesGoToTheLowerPosition(t *testing.T) {
	folder, err := modeltest.Llama{Layers: 2, Seed: 2}.Folder()
	if err != nil {
		t.Fatal(err)
	}
	folder = rewrite(t, folder, func(name string, values []float32) {
		if name == "model.layers.0.self_attn.q_proj.weight" || name == "model.layers.1.self_attn.q_proj.weight" {
			clear(values)
		}
	})
	for _, device := range kernels.Backends.Names() {
		m := modeltest.OpenFolder(t, folder, device)
		tokens := modeltest.Tokens(m, 3, 40)
		for name, want := range map[string][]int32{
			"judgeq":    {0, 1, 2, 3, 4, 5, 6, 7},
			"dapq":      {0, 1, 2, 3, 4, 5, 6, 7},
			"oracle":    {0, 1, 2, 3, 4, 5, 6, 7},
			"snapkv":    {0, 1, 2, 3, 36, 37, 38, 39},
			"pyramidkv": {0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 39}, // of the first layer: C = 4, max = 7.8 beside a min of 0.2
			"laq":       {0, 1, 2, 3, 4, 5, 6, 7},
			"h2o":       {0, 1, 2, 3, 36, 37, 38, 39},
			"laq++":     {0, 1, 2, 3, 36, 37, 38, 39},
			"speckv":    {0, 1, 2, 3, 36, 37, 38, 39},
		} {
			s := prefill(t, m, policy(t, m, name), tokens, 8)
			for h, kept := range s.Kept()[0] {
				if !slices.Equal(kept, want) {
					t.Errorf("%s: %s head %d keeps %v, want %v", device, name, h, kept, want)
				}
			}
		}
	}
}

// TestPoliciesAtTheContextLimit: a prompt that leaves no position, or one.
func TestPoliciesAtTheContextLimit(t *testing.T) {
	for _, room := range []int{0, 1, 3} {
		m := modeltest.Llama{Layers: 2, MaxPositions: 40 + room}.Open(t, "cpu")
		tokens := modeltest.Tokens(m, 3, 40)
		rt := eviction.NewRuntime(m)
		for _, name := range eviction.Policies.Names() {
			p := policy(t, m, name)
			s, err := rt.Prefill(background, p, eviction.Prompt{Tokens: tokens, Budget: 10})
			if drafts := planOf(m, p).Drafted > 0; drafts && room == 0 {
				if !errors.Is(err, model.ErrContext) {
					t.Errorf("%s without room for a draft: %v", name, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s with room for %d tokens: %v", name, room, err)
				continue
			}
			study, err := rt.Study(background, []*eviction.Configured{p}, eviction.Prompt{Tokens: tokens}, []int{10}, runner.GenerateOptions{MaxNew: 64})
			if err != nil {
				t.Fatal(err)
			}
			if !sameKept(study.Choices[0].Kept, s.Kept()) {
				t.Errorf("%s with room for %d tokens: a study keeps %v, a prefill %v", name, room, study.Choices[0].Kept, s.Kept())
			}
			got, _, err := s.Generate(background, runner.GenerateOptions{MaxNew: 100, IgnoreEnd: true})
			if !errors.Is(err, model.ErrContext) || len(got) != room+1 {
				t.Errorf("%s with room for %d tokens: %d generated, %v", name, room, len(got), err)
			}
		}
	}
}

// TestScoresAreFinite: whatever a policy observes.
func TestScoresAreFinite(t *testing.T) {
	everyPolicy(t, "cpu", func(t *testing.T, m *model.Model, p *eviction.Configured) {
		s := prefill(t, m, p, modeltest.Tokens(m, 4, 100), 30)
		logarithms := p.Name == "tova" // of probabilities
		for l := range s.Scores() {
			for h := range s.Scores()[l] {
				if len(s.Scores()[l][h]) != 100 {
					t.Fatalf("%d scores of 100 entries", len(s.Scores()[l][h]))
				}
				for j, v := range s.Scores()[l][h] {
					if v-v != 0 || !logarithms && math.Signbit(float64(v)) || logarithms && v > 0 {
						t.Fatalf("layer %d head %d: score %d is %v", l, h, j, v)
					}
				}
			}
		}
	})
}

// rewrite changes the weights of a model folder.
func rewrite(t testing.TB, folder fstest.MapFS, change func(name string, values []float32)) fstest.MapFS {
	t.Helper()
	w, err := checkpoints.OpenWeightsFS(folder, ".")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var tensors []checkpoints.TensorView
	for _, name := range w.Names() {
		view, err := w.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		values := make([]float32, view.Len())
		if err := view.ReadF32(values); err != nil {
			t.Fatal(err)
		}
		change(name, values)
		tensors = append(tensors, checkpoints.F32Tensor(name, view.Shape, values))
	}
	var file bytes.Buffer
	if err := checkpoints.WriteSafetensors(&file, tensors, nil); err != nil {
		t.Fatal(err)
	}
	out := maps.Clone(folder)
	out["model.safetensors"] = &fstest.MapFile{Data: file.Bytes(), Mode: 0o644}
	return out
}
