package runner_test

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// keyShape is a model whose heads are whole blocks.
var keyShape = modeltest.Llama{Hidden: 64, Heads: 4, KVHeads: 2, HeadDim: 32, Intermediate: 80, Layers: 3, Seed: 9}

// withKeyMeans adds a mean to two channels of all keys and queries that hardly rotate, as the biases of Qwen2.5 do.
func withKeyMeans(t *testing.T, m *model.Model, mean float64) {
	t.Helper()
	for l := range m.Network.Layers {
		for module, heads := range map[model.Module]int{model.KProj: keyShape.KVHeads, model.QProj: keyShape.Heads} {
			bias := make([]float64, heads*keyShape.HeadDim)
			for h := range heads {
				for _, channel := range []int{15, 31} {
					if bias[h*keyShape.HeadDim+channel] = mean; module == model.QProj {
						bias[h*keyShape.HeadDim+channel] = mean / 60
					}
				}
			}
			to := m.Backend.Alloc(m.Backend.Compute(), len(bias))
			kernels.Convert(to, kernels.FromF64(bias, len(bias)))
			m.Network.Layers[l].Linear(module).Bias = to
		}
	}
}

// TestRoundedKeys: a first prompt shows whether a type of caches rounds a model's keys away, and which others do not.
func TestRoundedKeys(t *testing.T) {
	for _, c := range []struct {
		name, cache string
		mean        float64
		tolerable   bool
		others      string // that are offered, where it is not
	}{
		{"q4_0", "q4_0", 0, true, ""},
		{"q4_1", "q4_1", 0, true, ""},
		{"q4_0, large means", "q4_0", 300, false, "kivi4"},
		{"q4_1, large means", "q4_1", 300, false, "kivi4"},
		{"q5_0, large means", "q5_0", 300, false, "kivi4"},
		{"kivi4, large means", "kivi4", 300, true, ""},
		{"q8_0, large means", "q8_0", 30, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := keyShape.Open(t, "cpu")
			if err := m.SetCacheDType(c.cache); err != nil {
				t.Fatal(err)
			}
			withKeyMeans(t, m, c.mean)
			var told []*model.RoundedKeys
			m.OnRoundedKeys(func(of *model.RoundedKeys) { told = append(told, of) })
			tokens := modeltest.Tokens(m, 2, 200)
			prefill(t, m, tokens[:15], 0) // which shows too little
			if len(told) > 0 || m.RoundedKeys() != nil {
				t.Fatalf("15 tokens told %+v", told[0])
			}
			prefill(t, m, tokens, 0)
			prefill(t, m, tokens[:40], 0)
			if len(told) != 1 || m.RoundedKeys() != told[0] {
				t.Fatalf("told %d times, want once", len(told))
			}
			got := told[0]
			t.Logf("%s: %.3g nats, others %+v", got.CacheDType, got.Divergence, got.Others)
			if got.CacheDType != c.cache || got.Tolerable() != c.tolerable {
				t.Errorf("%s is off by %g nats, want tolerable: %v", got.CacheDType, got.Divergence, c.tolerable)
			}
			if text := got.Warning(); (text == "") != c.tolerable || !strings.Contains(text, c.others) || text != "" && !strings.Contains(text, "--cache-dtype "+c.cache) {
				t.Errorf("warning %q, want one that offers %q", text, c.others)
			}
			if !slices.IsSortedFunc(got.Others, func(a, b model.OtherKeys) int { return bits(t, m, a.CacheDType) - bits(t, m, b.CacheDType) }) {
				t.Errorf("%+v are not in the order of their bits", got.Others)
			}
			if want := naiveDivergence(t, m, tokens); c.cache != "kivi4" && math.Abs(got.Divergence-want) > 0.02*want+1e-4 { // whose newest keys are in BF16
				t.Errorf("off by %g nats, want %g", got.Divergence, want)
			}
			var late bytes.Buffer
			m.WarnOfRoundedKeys(&late)
			if (late.Len() > 0) == c.tolerable {
				t.Errorf("who asks late is told %q", late.String())
			}
		})
	}
}

func bits(t *testing.T, m *model.Model, cache string) int {
	other := keyShape.Open(t, "cpu")
	if err := other.SetCacheDType(cache); err != nil {
		t.Fatal(err)
	}
	return other.CacheDType().Bytes(256)
}

// TestRoundedKeysOfWindows: of a layer with a window the keys that the last row sees are measured, with the model's own scale and
// soft cap of logits.
func TestRoundedKeysOfWindows(t *testing.T) {
	m := keyShape.Open(t, "cpu")
	modeltest.SetWindows(m, 0, 25, 9)
	m.Config.AttentionCap, m.Config.QueryScale = 4, 0.3
	if err := m.SetCacheDType("q4_0"); err != nil {
		t.Fatal(err)
	}
	withKeyMeans(t, m, 20)
	tokens := modeltest.Tokens(m, 2, 120)
	prefill(t, m, tokens, 0)
	want := naiveDivergence(t, m, tokens)
	if got := m.RoundedKeys().Divergence; math.Abs(got-want) > 0.02*want {
		t.Errorf("off by %g nats, want %g", got, want)
	}
	modeltest.SetWindows(m)
	if other := naiveDivergence(t, m, tokens); math.Abs(other-want) < 0.05*want {
		t.Errorf("windows do not matter: %g nats with, %g without", want, other)
	}
}

// naiveDivergence is the same from what a prompt's last queries, its keys and the cache are in each layer.
func naiveDivergence(t *testing.T, m *model.Model, tokens []int32) (worst float64) {
	t.Helper()
	heads, dim, group := m.Config.Heads, keyShape.HeadDim, m.Config.Heads/keyShape.KVHeads
	logit := func(x float64) float64 {
		if limit := m.Config.AttentionCap; limit > 0 {
			return limit * math.Tanh(m.Config.AttentionScale()*x/limit)
		}
		return m.Config.AttentionScale() * x
	}
	_, err := runner.New(m).Prefill(background, kvcache.New(m), tokens, runner.PrefillOptions{Capture: runner.Capture{Queries: true}, Observe: func(o *runner.Observation) error {
		n, first, layer := len(tokens), 0, 0.0
		if w := m.Config.Window(o.Layer); w > 0 {
			first = n - w
		}
		for h := range heads {
			var p, q []float64 // probabilities, not yet divided by their sums
			var sumP, sumQ float64
			for j := first; j < n; j++ {
				var a, b float64
				for c := range dim {
					x := o.Queries[0].At(((n-1)*heads+h)*dim + c)
					a += x * o.Keys.At((j*keyShape.KVHeads+h/group)*dim+c)
					b += x * o.Cache.View(o.Layer)[h/group].K.At(j*dim+c)
				}
				p, q = append(p, math.Exp(logit(a))), append(q, math.Exp(logit(b)))
				sumP, sumQ = sumP+p[j-first], sumQ+q[j-first]
			}
			for j := range p {
				layer += p[j] / sumP * math.Log(p[j]/sumP/(q[j]/sumQ)) / float64(heads)
			}
		}
		worst = max(worst, layer)
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return worst
}

// TestRoundedKeysAreNotMeasured where nothing is rounded by a scale for several, or nothing is computed.
func TestRoundedKeysAreNotMeasured(t *testing.T) {
	for _, cache := range []string{"float32", "bf16", "auto"} {
		m := keyShape.Open(t, "cpu")
		if err := m.SetCacheDType(cache); err != nil {
			t.Fatal(err)
		}
		m.OnRoundedKeys(func(of *model.RoundedKeys) { t.Errorf("%s: told %+v", cache, of) })
		prefill(t, m, modeltest.Tokens(m, 2, 60), 0)
		if m.RoundedKeys() != nil {
			t.Errorf("%s is measured", cache)
		}
	}
	m := keyShape.Open(t, "cpu")
	if err := m.SetCacheDType("q4_0"); err != nil {
		t.Fatal(err)
	}
	counted, _ := m.Counted()
	prefill(t, counted, modeltest.Tokens(m, 2, 60), 0)
	if counted.RoundedKeys() != nil || m.RoundedKeys() != nil {
		t.Error("a model that only counts memory is measured")
	}
}
