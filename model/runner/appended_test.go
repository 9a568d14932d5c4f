package runner_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// learned are QueryRows of random numbers with low-rank updates of some modules.
type learned struct {
	rows  []float64
	low   map[model.Module]*model.LowRank
	count int
}

func newLearned(m *model.Model, seed uint64, rows int, modules ...model.Module) *learned {
	rng := rand.New(rand.NewPCG(seed, 5))
	draw := func(n int, scale float64) []float64 {
		out := make([]float64, n)
		for i := range out {
			out[i] = scale * rng.NormFloat64()
		}
		return out
	}
	p := &learned{rows: draw(rows*m.Config.Hidden, 1), low: make(map[model.Module]*model.LowRank), count: rows}
	for _, module := range modules {
		if lin := m.Network.Layers[0].Linear(module); lin != nil {
			out, in := lin.Weight.Dim0(), lin.Weight.Width()
			p.low[module] = &model.LowRank{A: m.Parameter(draw(3*in, 0.2), 3, in), B: m.Parameter(draw(out*3, 0.2), out, 3), Scale: 0.7}
		}
	}
	return p
}

func (p *learned) Rows() int { return p.count }
func (p *learned) Embeddings(m *model.Model, dst *kernels.Tensor) {
	kernels.Convert(dst, kernels.FromF64(p.rows, dst.Shape...))
}

func (*learned) Tokens() []int32 { return nil }
func (p *learned) LowRank(l int, module model.Module) *model.LowRank {
	if l == 1 && module == model.UpProj {
		return nil // of one layer alone
	}
	return p.low[module]
}

// probed is what a pass with probes leaves.
type probed struct {
	logits []float32
	scores map[string][]float64
	cache  *kvcache.Cache
}

func runProbed(t *testing.T, m *model.Model, cache *kvcache.Cache, tokens []int32, opt runner.PrefillOptions) probed {
	t.Helper()
	out := probed{scores: make(map[string][]float64), cache: cache}
	opt.Observe = func(o *runner.Observation) error {
		for what, all := range map[string][]*kernels.Tensor{"window": o.Windows, "peak window": o.PeakWindows, "probe": o.Probes, "peak probe": o.PeakProbes} {
			for i, s := range all {
				scores := s.Float64s()
				for h := range m.Config.Heads { // columns beyond a head's entries are undefined
					clear(scores[h*s.Width():][cache.Entries(o.Layer, h/m.Config.Group()):s.Width()])
				}
				out.scores[fmt.Sprintf("%s %d of layer %d", what, i, o.Layer)] = scores
			}
		}
		if o.AllRows != nil {
			out.scores[fmt.Sprintf("all rows of layer %d", o.Layer)] = o.AllRows.Float64s()[:cache.Entries(o.Layer, 0)]
		}
		return nil
	}
	var err error
	if out.logits, err = runner.New(m).Prefill(background, cache, tokens, opt); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestAppendedProbes: probes that go through the layers with the last rows of a prompt
// observe what they observe after it, several at once, with low-rank updates and without,
// in one chunk and in many, over an empty cache and an evicted one, with windows. The
// prompt is none the wiser.
func TestAppendedProbes(t *testing.T) {
	for device, tol := range map[string]float64{"cpu": 3e-5, "reference64": 1e-11} {
		for _, name := range []string{"llama", "falcon", "window", "gemma4-e2b"} {
			t.Run(device+"/"+name, func(t *testing.T) {
				m := modeltest.Llama{Layers: 3, Seed: 2}.Open(t, device)
				if name == "falcon" || name == "gemma4-e2b" { // whose MLP reads what attention reads; whose layers share caches
					m = modeltest.OpenFolder(t, os.DirFS(modeltest.GoldenNamed(t, name).Folder), device)
				}
				if name == "window" {
					modeltest.SetWindows(m, 0, 9, 5)
				}
				updated := func(modules ...model.Module) []model.Module { // whose shapes are those of layer 0 in all layers
					if name == "gemma4-e2b" {
						return nil
					}
					return modules
				}
				tokens := modeltest.Tokens(m, 7, 41)
				for _, earlier := range []int{0, 30} {
					var before *kvcache.Cache
					if earlier > 0 {
						_, before, _ = start(t, m, modeltest.Tokens(m, 8, earlier))
						keep := make([][]int32, m.Config.KVHeads)
						for h := range keep {
							keep[h] = []int32{0, 3, 9, 10, 29}[h%3:]
						}
						for l := range before.Layers() {
							if !m.Config.HoldsKV(l) {
								continue
							}
							if err := before.Retain(l, keep); err != nil {
								t.Fatal(err)
							}
						}
					}
					capture := runner.Capture{
						Probes: []model.QueryRows{
							newLearned(m, 1, 5, updated(model.Modules...)...), model.TokenRows{3, 4, 5}, newLearned(m, 2, 2, updated(model.QProj, model.UpProj, model.DownProj)...),
							model.ShiftedTokens{TokenRows: model.TokenRows{6, 7}, By: -9}, model.ShiftedTokens{TokenRows: model.TokenRows{6, 7}, By: 3},
						},
						PeakProbes: []model.QueryRows{newLearned(m, 3, 4, updated(model.KProj, model.VProj, model.OProj)...)},
					}
					for i, opt := range []runner.PrefillOptions{
						{Capture: capture},
						{Capture: capture, Chunk: 6},
						{Capture: capture, Chunk: 41, CacheOnly: true},
						{Capture: capture.Merge(runner.Capture{Windows: []int{1, 8}, PeakWindows: []int{3}, AllRows: true}), Chunk: 16},
						{Capture: capture.Merge(runner.Capture{Windows: []int{4}}), Chunk: 20, CacheOnly: true},
						{Capture: runner.Capture{PeakProbes: capture.PeakProbes}, Chunk: 1},
					} {
						pass := func(opt runner.PrefillOptions) probed {
							cache := kvcache.New(m)
							if before != nil {
								var err error
								if cache, err = before.Fork(nil); err != nil {
									t.Fatal(err)
								}
							}
							return runProbed(t, m, cache, tokens, opt)
						}
						want, got := pass(opt), pass(runner.Appended(opt))
						what := fmt.Sprintf("case %d on %d", i, earlier)
						if len(got.scores) != len(want.scores) || len(want.scores) == 0 || (got.logits == nil) != (want.logits == nil) {
							t.Fatalf("%s: %d observations, want %d", what, len(got.scores), len(want.scores))
						}
						for of, scores := range want.scores {
							compare.Close(t, what+": "+of, got.scores[of], scores, tol, compare.Floor(1), compare.EqualInf())
						}
						compare.Close(t, what+": logits", got.logits, want.logits, tol, compare.Floor(1))
						keys, pos := contents(got.cache)
						wantKeys, wantPos := contents(want.cache)
						if !slices.EqualFunc(pos, wantPos, slices.Equal) {
							t.Errorf("%s: other positions in the cache", what)
						}
						for i := range wantKeys {
							compare.Close(t, what+": cache", keys[i], wantKeys[i], tol, compare.Floor(1))
						}
					}
				}
			})
		}
	}
}
