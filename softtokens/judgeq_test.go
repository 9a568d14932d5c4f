package softtokens

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/autodiff"
	"glimpse/checkpoints"
	"glimpse/kernels"
	"glimpse/losses"
	"glimpse/model"
	"glimpse/model/modeltest"
)

func newTokens(t *testing.T, m *model.Model) *SoftTokens {
	t.Helper()
	a, err := New(m, model.AdapterConfig{Rows: 4, InitToken: 3, InitNoise: 0.5, Seed: 2})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestOnlyTheTokensAreTrained: the graph has one parameter, and its gradient
// agrees with finite differences.
func TestOnlyTheTokensAreTrained(t *testing.T) {
	m := modeltest.Llama{Hidden: 8, Heads: 2, KVHeads: 1, HeadDim: 4, Intermediate: 12, Layers: 3}.Open(t, "reference64")
	a := newTokens(t, m)
	loss, err := losses.Losses.Lookup("mse")
	if err != nil {
		t.Fatal(err)
	}
	g, sample := autodiff.New(m.Backend), new(autodiff.Sample)
	if err := g.Compile(g.Loss(a.Scores(g, sample), sample, loss.Func)); err != nil {
		t.Fatal(err)
	}
	if names := g.Parameters(); !slices.Equal(names, []string{"soft_tokens"}) {
		t.Fatalf("trained parameters %v, want soft_tokens alone", names)
	}
	const n = 9
	r, cache := m.NewRunner(), m.NewCache()
	if _, err := r.Prefill(context.Background(), cache, modeltest.Tokens(m, 1, n), model.PrefillOptions{CacheOnly: true}); err != nil {
		t.Fatal(err)
	}
	*sample = m.SampleOf(cache, a.Rows())
	for l := range m.Config.Layers {
		target := kernels.NewTensor(kernels.F64, m.Config.Heads, n)
		for i := range target.F64() {
			target.F64()[i] = math.Log(float64((i*7+l)%5) / 20)
		}
		sample.Targets = append(sample.Targets, m.Backend.Place(target))
	}
	run := func() float64 {
		v, err := g.Run()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	run()
	grad, err := g.Gradient(0)
	if err != nil {
		t.Fatal(err)
	}
	got := grad.Float64s()
	x := a.rows.F64()
	for i := range x {
		const step = 1e-5
		at := x[i]
		x[i] = at + step
		up := run()
		x[i] = at - step
		down := run()
		x[i] = at
		want := (up - down) / (2 * step)
		if e := abs(got[i]-want) / (1e-4 + abs(got[i]) + abs(want)); !(e <= 1e-5) {
			t.Fatalf("gradient of element %d: %v, finite difference %v", i, got[i], want)
		}
	}
}

func abs(x float64) float64 { return max(x, -x) }

func TestExportAndLoad(t *testing.T) {
	m := modeltest.Llama{}.Open(t, "cpu")
	hash, err := m.SHA256(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	a := newTokens(t, m)
	stored := a.Export()
	stored.Base, stored.Loss, stored.PoolingKernel = checkpoints.BaseModel{Name: m.Name, SHA256: hash}, "mse", 1
	dir := filepath.Join(t.TempDir(), "adapter")
	if err := checkpoints.WriteAdapter(dir, stored, false); err != nil {
		t.Fatal(err)
	}
	back, err := checkpoints.ReadAdapter(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := m.LoadAdapter(hash, back)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(b.Parameters()[0].Tensor.F32(), a.rows.F32()) {
		t.Fatal("soft tokens differ after export and load")
	}
	if b.LowRank(0, model.QProj) != nil {
		t.Fatal("a Judge Q adapter has LoRA")
	}
	back.Kind = "lookaheadkv"
	if _, err := Load(m, back); !errors.Is(err, checkpoints.ErrWrongKind) {
		t.Fatalf("load of another kind: %v, want ErrWrongKind", err)
	}
	other := modeltest.Llama{Hidden: 24}.Open(t, "cpu")
	back.Kind = Kind
	if _, err := Load(other, back); err == nil || !strings.Contains(err.Error(), "shape [4 16], want [n 24]") {
		t.Fatalf("load into another width: %v", err)
	}
}

// TestNewRowsStartFromTheToken: without noise every row is the token's embedding.
func TestNewRowsStartFromTheToken(t *testing.T) {
	m := modeltest.Llama{}.Open(t, "cpu")
	a, err := New(m, model.AdapterConfig{Rows: 3, InitToken: 9})
	if err != nil {
		t.Fatal(err)
	}
	want := m.Network.Embedding.F32()[9*16:][:16]
	for r := range 3 {
		if !slices.Equal(a.rows.F32()[r*16:][:16], want) {
			t.Fatalf("row %d is not the embedding of token 9", r)
		}
	}
}
