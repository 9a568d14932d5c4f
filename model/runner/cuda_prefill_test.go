//go:build gpu && linux && (amd64 || arm64)

package runner_test

import (
	"fmt"
	"os"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/cuda"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// openHalf opens a golden model with its products' weights in bf16.
func openHalf(t *testing.T, name, device string) *model.Model {
	t.Helper()
	m := modeltest.OpenFolder(t, os.DirFS(modeltest.GoldenNamed(t, name).Folder), device)
	for l := range m.Network.Layers {
		for _, module := range model.Modules {
			if lin := m.Network.Layers[l].Linear(module); lin != nil {
				half := m.Backend.Alloc(kernels.BF16, lin.Weight.Shape...)
				kernels.Convert(half, lin.Weight)
				lin.Weight = half
			}
		}
	}
	return m
}

// plainRounding is a backend that rounds the rows of products of more than 64.
type plainRounding struct{ kernels.Backend }

func (b plainRounding) Linear(y, x, w, bias *kernels.Tensor, alpha, beta float64) {
	if w.DType == kernels.BF16 && x.Dim0() > 64 {
		narrow, wide := kernels.NewTensor(kernels.BF16, x.Shape...), kernels.NewTensor(x.DType, x.Shape...)
		kernels.Convert(narrow, x)
		kernels.Convert(wide, narrow)
		x = wide
	}
	b.Backend.Linear(y, x, w, bias, alpha, beta)
}

// TestCUDARoundedOnce: rows that several products round are rounded where they come from,
// without changing a bit and with a launch less for every product and norm; chunks that
// are too short are not. Probes that are appended lose at most twice what a plain
// implementation loses that rounds there, and nothing where nothing rounds.
func TestCUDARoundedOnce(t *testing.T) {
	modeltest.NeedCUDA(t)
	const n, chunk = 160, 70                                                             // the last chunk has 20 rows
	for name, products := range map[string]int{"llama3.1": 6, "falcon": 5, "qwen2": 6} { // that a norm or an activation rounds for
		t.Run(name, func(t *testing.T) {
			m := openHalf(t, name, "cuda")
			norms := 2
			if m.Network.Layers[0].Parallel {
				norms = 1
			}
			device := m.Backend
			calls := func() int64 { return modeltest.Calls(device) }
			tokens := modeltest.Tokens(m, 1, n)
			probes := []model.QueryRows{newLearned(m, 1, 5, model.Modules...), model.TokenRows(tokens[:3])}
			cases := []runner.PrefillOptions{
				{}, {Chunk: chunk}, {Chunk: chunk, CacheOnly: true}, {Capture: runner.Capture{Probes: probes, Windows: []int{3}}},
				{Capture: runner.Capture{Probes: probes[:1], PeakProbes: probes[1:]}, Chunk: chunk},
			}
			measured := func() (launches []int, results []probed) {
				for _, opt := range cases {
					runProbed(t, m, kvcache.New(m), tokens, opt) // memory for the next one
					before := calls()
					results = append(results, runProbed(t, m, kvcache.New(m), tokens, opt))
					launches = append(launches, int(calls()-before))
				}
				return launches, results
			}
			restore := cuda.SetExactWork(1000)
			defer restore()
			got, results := measured()
			m.Backend = apart{device}
			want, wants := measured()
			m.Backend = device
			hidden := m.Config.Layers - 1
			// In one chunk: the last row's queries need a norm of their own.
			last := 2 + norms - 1
			if m.Network.Layers[0].Linear(model.GateProj) != nil {
				last += 2 // its gate, what that gates, and their product are one launch
			}
			if less := hidden*(products+norms) + last; want[0]-got[0] != less {
				t.Errorf("a prompt of one chunk takes %d launches, %d with rounding apart; want %d less", got[0], want[0], less)
			}
			// In three: two round, and the first norm of all is one for all chunks.
			if less := hidden*(2*(products+norms)+norms-1) + 2*2 + last; want[1]-got[1] != less {
				t.Errorf("a prompt of three chunks takes %d launches, %d with rounding apart; want %d less", got[1], want[1], less)
			}
			for i := 2; i < len(cases); i++ {
				if got[i] >= want[i] {
					t.Errorf("case %d takes %d launches, %d with rounding apart", i, got[i], want[i])
				}
			}
			for i, w := range wants {
				compare.Close(t, fmt.Sprintf("case %d: logits", i), results[i].logits, w.logits, 0)
				keys, _ := contents(results[i].cache)
				wantKeys, _ := contents(w.cache)
				for j := range wantKeys {
					compare.Close(t, fmt.Sprintf("case %d: cache", i), keys[j], wantKeys[j], 0)
				}
			}
			probesOf := func(m *model.Model) []model.QueryRows {
				return []model.QueryRows{newLearned(m, 1, 5, model.Modules...), model.TokenRows(tokens[:3])}
			}
			exact, plain := openHalf(t, name, "reference64"), openHalf(t, name, "reference64")
			plain.Backend = plainRounding{plain.Backend}
			opt := runner.PrefillOptions{Capture: runner.Capture{Probes: probesOf(exact)}}
			truth, rounded := runProbed(t, exact, kvcache.New(exact), tokens, opt), runProbed(t, plain, kvcache.New(plain), tokens, runner.Appended(opt))
			// As training's student sees them: exact rows after a prompt that was rounded.
			after, cache := make(map[string][]float64), kvcache.New(m)
			if _, err := runner.New(m).Prefill(background, cache, tokens, runner.PrefillOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := runner.New(m).Probe(background, cache, probes[0], false, func(o *runner.Observation) error {
				after[fmt.Sprintf("probe 0 of layer %d", o.Layer)] = o.Probes[0].Float64s()
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			restore()
			unrounded := runProbed(t, m, kvcache.New(m), tokens, runner.PrefillOptions{Capture: runner.Capture{Probes: probes}})
			worst, appended, student := 0.0, 0.0, 0.0
			for what, scores := range truth.scores {
				if exactRows := after[what]; exactRows != nil {
					student = max(student, compare.Compare(exactRows, scores, compare.Floor(1)).Err)
					appended = max(appended, compare.Compare(results[3].scores[what], scores, compare.Floor(1)).Err)
				}
				limit := compare.Compare(rounded.scores[what], scores, compare.Floor(1)).Err
				compare.Close(t, what, results[3].scores[what], scores, 2*limit+1e-5, compare.Floor(1))
				compare.Close(t, what+" without rounding", unrounded.scores[what], scores, 3e-5, compare.Floor(1))
				worst = max(worst, limit)
			}
			t.Logf("errors of scores: %.1e appended, %.1e of exact rows after the prompt", appended, student)
			if worst < 1e-4 {
				t.Errorf("the largest error is %v: nothing was rounded", worst)
			}
		})
	}
}

// TestCUDAAppendedLaunches: probes with the last rows of a prompt take, of what a pass of
// their own takes, only what is theirs alone.
func TestCUDAAppendedLaunches(t *testing.T) {
	modeltest.NeedCUDA(t)
	m := openHalf(t, "llama3.1", "cuda")
	calls := func() int64 { return modeltest.Calls(m.Backend) }
	tokens := modeltest.Tokens(m, 1, 60)
	probe := newLearned(m, 1, 9, model.Modules...) // more than few rows
	r := runner.New(m)
	observe := func(*runner.Observation) error { return nil }
	prefill := func(c runner.Capture) int {
		cache := kvcache.New(m)
		before := calls()
		if _, err := r.Prefill(background, cache, tokens, runner.PrefillOptions{Capture: c, Observe: observe}); err != nil {
			t.Fatal(err)
		}
		return int(calls() - before)
	}
	with := runner.Capture{Probes: []model.QueryRows{probe}}
	prefill(with)
	plain, appended := prefill(runner.Capture{}), prefill(with)
	cache := kvcache.New(m)
	if _, err := r.Prefill(background, cache, tokens, runner.PrefillOptions{}); err != nil {
		t.Fatal(err)
	}
	before := calls()
	if err := r.Probe(background, cache, probe, false, observe); err != nil {
		t.Fatal(err)
	}
	apart := int(calls() - before)
	// A pass of its own has 7 products of 3 launches, a rotation's 2 twice, an activation
	// and 2 norms for each layer, but the last one without values, output and MLP.
	hidden := m.Config.Layers - 1
	if most := apart - hidden*(21+4+1+2) - 6; appended-plain > most {
		t.Errorf("probes take %d launches in a prompt, %d apart; want at most %d", appended-plain, apart, most)
	}
	t.Logf("launches: prompt %d, with probes %d, a pass of their own %d", plain, appended, apart)
}
