package runner_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// step runs one token with an attention that choose restricts.
func step(m *model.Model, cache *kvcache.Cache, choose runner.SparseAttention) ([]float32, error) {
	return runner.New(m).StepSparsely(cache, 5, choose)
}

// TestSparseStepIsAnEvictedStep: attending to chosen entries of a full cache gives
// what attending to a cache of these entries gives.
func TestSparseStepIsAnEvictedStep(t *testing.T) {
	for _, device := range devices {
		m := modeltest.Llama{Layers: 3, Heads: 6, KVHeads: 2}.Open(t, device)
		for _, windows := range [][]int{nil, {0, 9, 0}} {
			modeltest.SetWindows(m, windows...)
			_, full := prefill(t, m, modeltest.Tokens(m, 1, 30), 0)
			keep := make([][][]int32, 3)
			for l := range keep {
				keep[l] = [][]int32{{0, 7, 8, 20, 29}, {3, 21, 22, 23, 24, 25}}
			}
			evicted, err := full.Fork(keep)
			if err != nil {
				t.Fatal(err)
			}
			want, err := step(m, evicted, nil)
			if err != nil {
				t.Fatal(err)
			}
			layers := 0
			got, err := step(m, full, func(s *runner.SparseStep) error {
				if s.Layer != layers || s.Queries.Dim0() != 1 || s.Cache != full {
					t.Errorf("layer %d, want %d", s.Layer, layers)
				}
				layers++
				first := 0
				if windows != nil && windows[s.Layer] > 0 {
					first = 31 - windows[s.Layer]
				}
				if !slices.Equal(s.First, []int{first, first}) {
					t.Errorf("layer %d sees entries from %v on, want %d", s.Layer, s.First, first)
				}
				for h, kv := range s.Cache.View(s.Layer) {
					compare.Close(t, "key", s.Key(h), kv.K.Rows(30, 31).Float32s(), 0)
					compare.Close(t, "value", s.Value(h), kv.V.Rows(30, 31).Float64s(), 0)
					s.Entries = append(s.Entries, append(slices.Clone(keep[s.Layer][h]), 30))
				}
				return nil
			})
			if err != nil || layers != 3 {
				t.Fatalf("%d layers, %v", layers, err)
			}
			compare.CloseToScale(t, fmt.Sprintf("%s: windows %v: logits", device, windows), got, want, 1e-5)
		}
	}
}

// TestSparseStepObservesAndChanges: scores are those of the whole attention, After
// gets its output.
func TestSparseStepObservesAndChanges(t *testing.T) {
	m := modeltest.Llama{Layers: 2}.Open(t, "cpu")
	_, cache := prefill(t, m, modeltest.Tokens(m, 1, 30), 0)
	plain, err := cache.Fork(nil)
	if err != nil {
		t.Fatal(err)
	}
	var seen [][]float32
	want, err := runner.New(m).Step(context.Background(), plain, 5, runner.Capture{Windows: []int{1}}, func(o *runner.Observation) error {
		seen = append(seen, o.Windows[0].Float32s())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	changed := 0
	got, err := step(m, cache, func(s *runner.SparseStep) error {
		compare.Close(t, "scores", s.Scores().Float32s(), seen[s.Layer], 1e-5)
		s.After = func(out *kernels.Tensor) {
			if out.Len() != m.Config.Heads*m.Config.HeadDim {
				t.Errorf("output %v", out.Shape)
			}
			changed++
			if s.Layer == 1 {
				m.Backend.Fill(out, 0)
			}
		}
		return nil
	})
	if err != nil || changed != 2 {
		t.Fatalf("%d outputs, %v", changed, err)
	}
	if slices.Equal(got, want) {
		t.Error("the change of the output reaches no logit")
	}
}

func TestSparseStepRefusals(t *testing.T) {
	m := modeltest.Llama{}.Open(t, "cpu")
	modeltest.SetWindows(m, 0, 4)
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		entries [][]int32
		err     error
		want    string
	}{
		"its own error": {nil, boom, "layer 0: boom"},
		"heads":         {[][]int32{{1}}, nil, "sparse attention in layer 0: entries of 1 heads, want those of 2 KV heads or 4 heads"},
		"none":          {[][]int32{{1}, {}}, nil, "sparse attention in layer 0 head 1: none of 0 entries is seen"},
		"descending":    {[][]int32{{4, 3}, {1}}, nil, "sparse attention in layer 0 head 0: index 3 after 4"},
		"beyond":        {[][]int32{{1}, {11}}, nil, "sparse attention in layer 0 head 1: index 11 after -1, want ascending below 11"},
		"out of window": {[][]int32{{6}, {7}}, nil, "sparse attention in layer 1 head 0: none of 1 entries is seen"},
	} {
		_, cache := prefill(t, m, modeltest.Tokens(m, 1, 10), 0)
		_, err := step(m, cache, func(s *runner.SparseStep) error {
			s.Entries = c.entries
			return c.err
		})
		if err == nil || !strings.Contains(err.Error(), c.want) || c.err != nil && !errors.Is(err, c.err) {
			t.Errorf("%s: error %v, want it to say %q", name, err, c.want)
		}
	}
}

// TestSquaresAgainstSteps: the mean square of all rows' probabilities, in chunks or
// not, is that of the rows one by one.
func TestSquaresAgainstSteps(t *testing.T) {
	for _, device := range devices {
		m := modeltest.Llama{Layers: 2}.Open(t, device)
		const n = 23
		tokens := modeltest.Tokens(m, 1, n)
		want := make([][]float64, m.Config.Layers)
		cache, r := kvcache.New(m), runner.New(m)
		for i, id := range tokens {
			_, err := r.Step(context.Background(), cache, id, runner.Capture{Windows: []int{1}}, func(o *runner.Observation) error {
				if i == 0 {
					want[o.Layer] = make([]float64, m.Config.Heads*n)
				}
				logs, width := o.Windows[0].Float64s(), o.Windows[0].Width() // that of a recorded step has room for more entries
				for h := range m.Config.Heads {
					for j := range i + 1 {
						want[o.Layer][h*n+j] += math.Exp(2*logs[h*width+j]) / n
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, chunk := range []int{0, 5} {
			_, err := runner.New(m).Prefill(context.Background(), kvcache.New(m), tokens, runner.PrefillOptions{Chunk: chunk, Capture: runner.Capture{AllRows: true, Squares: true}, Observe: func(o *runner.Observation) error {
				got := o.Squares.Float64s()
				for i, v := range got {
					got[i] = math.Exp(v)
				}
				compare.Close(t, fmt.Sprintf("%s: chunk %d: layer %d: squares", device, chunk, o.Layer), got, want[o.Layer], 1e-4, compare.Floor(1e-6))
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestPairsAndWindows: what a cache of ten tokens takes, and how much of it a window sees.
func TestPairsAndWindows(t *testing.T) {
	for _, device := range devices {
		m := modeltest.Llama{}.Open(t, device)
		_, cache := prefill(t, m, modeltest.Tokens(m, 1, 10), 0)
		kept, err := cache.Fork(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := cache.LayerPairBytes(0)*10*4, kept.Bytes(); got != want {
			t.Errorf("%s: 40 pairs of %d bytes, the cache holds %d", device, cache.LayerPairBytes(0), want)
		}
		for window, want := range map[int]int{0: 10, 1: 1, 4: 4, 10: 10, 50: 10} {
			if got := cache.Seen(0, 1, 9, window); got != want {
				t.Errorf("a window of %d sees %d entries, want %d", window, got, want)
			}
		}
	}
}
