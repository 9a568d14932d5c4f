package eviction_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/eviction"
	"glimpse/kernels"
	"glimpse/model"
)

// fakeAdapter stands for a trained adapter: random rows and, for the kind that has
// them, random low-rank updates of every module.
type fakeAdapter struct {
	kind string
	rows *kernels.Tensor
	low  map[string]*model.LowRank
}

var _ model.RowsAdapter = (*fakeAdapter)(nil)

// newFakeAdapter has the same numbers on every device.
func newFakeAdapter(m *model.Model, kind string, rows int, seed uint64) *fakeAdapter {
	rng := rand.New(rand.NewPCG(seed, 77))
	draw := func(layer int, scale float64, rows, cols int) *kernels.Tensor {
		x := make([]float64, rows*cols)
		for i := range x {
			x[i] = float64(float32(scale * rng.NormFloat64()))
		}
		return m.LayerParameter(layer, x, rows, cols)
	}
	a := &fakeAdapter{kind: kind, rows: draw(0, 1, rows, m.Config.Hidden), low: make(map[string]*model.LowRank)}
	if kind == "lookaheadkv" {
		const rank = 3
		for l := range m.Network.Layers {
			for _, module := range model.Modules {
				lin := m.Network.Layers[l].Linear(module)
				if lin == nil { // whose values are its keys
					continue
				}
				w := lin.Weight
				a.low[key(l, module)] = &model.LowRank{A: draw(l, 0.3, rank, w.Width()), B: draw(l, 0.3, w.Dim0(), rank), Scale: 1.5}
			}
		}
	}
	return a
}

func key(layer int, module model.Module) string { return string(rune('0'+layer)) + string(module) }

func (a *fakeAdapter) Kind() string { return a.kind }
func (a *fakeAdapter) Rows() int    { return a.rows.Dim0() }
func (a *fakeAdapter) Embeddings(m *model.Model, dst *kernels.Tensor) {
	m.Backend.Copy(dst, a.rows)
}

func (*fakeAdapter) Tokens() []int32 { return nil }
func (a *fakeAdapter) LowRank(layer int, module model.Module) *model.LowRank {
	return a.low[key(layer, module)]
}
func (a *fakeAdapter) Parameters() []model.Parameter { return nil }
func (a *fakeAdapter) Export() *checkpoints.Adapter  { panic("a policy does not export") }

// TestAdapterKindNamesItsPolicy: rows of a kind without a policy of its own are run by the
// policy that the kind names, and by no other.
func TestAdapterKindNamesItsPolicy(t *testing.T) {
	const kind = "rows of the test"
	model.AdapterKinds.Add(kind, model.AdapterKind{Policy: "judgeq"})
	a := &fakeAdapter{kind: kind}
	if _, err := eviction.New("judgeq", 0, nil, a); err != nil {
		t.Errorf("judgeq: %v", err)
	}
	if _, err := eviction.New("lookaheadkv", 0, nil, a); err == nil || !strings.Contains(err.Error(), `want "lookaheadkv"`) {
		t.Errorf("lookaheadkv: error %v, want that of another kind", err)
	}
}

// fakeGates stand for trained gates: a random linear map of each layer.
type fakeGates struct {
	model.Adapter             // of the kind kvzap
	weights       [][]float64 // [layer][kvHead · hidden]
}

var _ model.GateAdapter = (*fakeGates)(nil)

func newFakeGates(m *model.Model, seed uint64) *fakeGates {
	rng := rand.New(rand.NewPCG(seed, 78))
	g := &fakeGates{Adapter: &fakeAdapter{kind: "kvzap"}}
	for range m.Config.Layers {
		w := make([]float64, m.Config.KVHeads*m.Config.Hidden)
		for i := range w {
			w[i] = 0.3 * rng.NormFloat64()
		}
		g.weights = append(g.weights, w)
	}
	return g
}

// logScore is what the gate of a layer and KV head makes of a row.
func (g *fakeGates) logScore(layer, head int, row []float64) (sum float64) {
	for i, x := range row {
		sum += g.weights[layer][head*len(row)+i] * x
	}
	return sum
}

func (g *fakeGates) Weights(layer int) int { return len(g.weights[layer]) }

func (g *fakeGates) Score(m *model.Model, layer int, scores, h *kernels.Tensor, _ kernels.Allocator) {
	if m.Counts() {
		return
	}
	rows, out := toMatrix(h), make([]float64, 0, scores.Len())
	for head := range scores.Dim0() {
		for _, row := range rows {
			out = append(out, g.logScore(layer, head, row))
		}
	}
	kernels.Convert(scores, kernels.FromF64(out, scores.Shape...))
}

// fakeOfKind is an untrained adapter of a kind.
func fakeOfKind(m *model.Model, kind string, seed uint64) model.Adapter {
	if kind == "kvzap" {
		return newFakeGates(m, seed)
	}
	return newFakeAdapter(m, kind, 5, seed)
}
