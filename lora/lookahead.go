package lora

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"glimpse/checkpoints"
	"glimpse/kernels"
	"glimpse/model"
)

// Kind is the registered name.
const Kind = "lookaheadkv"

func init() {
	model.AdapterKinds.Add(Kind, model.AdapterKind{
		Doc:    "lookahead embeddings and Lookahead LoRA, KL loss (LookaheadKV, arXiv:2603.10899, §3)",
		Loss:   "kl",
		New:    func(m *model.Model, c model.AdapterConfig) (model.Adapter, error) { return New(m, c) },
		Count:  count,
		Stored: stored,
		Load:   func(m *model.Model, a *checkpoints.Adapter) (model.Adapter, error) { return Load(m, a) },
	})
}

// rowsName is the name of the rows among the parameters.
const rowsName = "lookahead_embeddings"

// site is a module of a layer.
type site struct {
	layer  int
	module model.Module
}

// Lookahead is a LookaheadKV adapter in a model's backend.
type Lookahead struct {
	rows  *kernels.Tensor // [n, hidden]
	sites []site          // by layer, then in the order of model.Modules
	low   map[site]*model.LowRank
	rank  int
	alpha float64
}

var _ model.Adapter = (*Lookahead)(nil)

// New initialises an adapter: A at random with standard deviation in^-1/2, B zero,
// so that the first scores are those of the frozen model. Modules of the last
// layer that reach no score are left out: they would never get a gradient.
func New(m *model.Model, c model.AdapterConfig) (*Lookahead, error) {
	if err := c.Validate(m); err != nil {
		return nil, fmt.Errorf("lookaheadkv adapter: %w", err)
	}
	if len(c.Modules) > 0 && (c.Rank < 1 || c.Rank > m.Config.Hidden) {
		return nil, fmt.Errorf("lookaheadkv adapter: rank: got %d, want 1 to hidden size %d", c.Rank, m.Config.Hidden)
	}
	if len(c.Modules) > 0 && !(c.Alpha > 0 && c.Alpha <= 1e6) {
		return nil, fmt.Errorf("lookaheadkv adapter: alpha: got %v, want above 0 to 1e6", c.Alpha)
	}
	rng := rand.New(rand.NewPCG(c.Seed, 0x4c4f5241))
	a := &Lookahead{rows: m.NewRows(c, rng), low: make(map[site]*model.LowRank), rank: c.Rank, alpha: c.Alpha}
	for _, s := range sitesOf(m, c.Modules) {
		weight := m.Network.Layers[s.layer].Linear(s.module).Weight
		out, in := weight.Dim0(), weight.Width()
		values := make([]float64, c.Rank*in)
		for i := range values {
			if m.Counts() {
				break
			}
			values[i] = rng.NormFloat64() / math.Sqrt(float64(in))
		}
		a.attach(s, m.LayerParameter(s.layer, values, c.Rank, in), m.LayerParameter(s.layer, make([]float64, out*c.Rank), out, c.Rank))
	}
	return a, nil
}

// sitesOf are the places of LoRA factors.
func sitesOf(m *model.Model, modules []model.Module) []site {
	var out []site
	for l := range m.Config.Layers {
		for _, module := range model.Modules {
			if m.Network.Layers[l].Linear(module) != nil && slices.Contains(modules, module) && module.ReachesScores(l, m.Config.ScoredLayers()) {
				out = append(out, site{l, module})
			}
		}
	}
	return out
}

// count is the number of trained numbers (LookaheadKV, arXiv:2603.10899, table 1).
func count(m *model.Model, c model.AdapterConfig) int64 {
	n := int64(c.Rows) * int64(m.Config.Hidden)
	for _, s := range sitesOf(m, c.Modules) {
		w := m.Network.Layers[s.layer].Linear(s.module).Weight
		n += int64(c.Rank) * int64(w.Dim0()+w.Width())
	}
	return n
}

func (a *Lookahead) attach(s site, A, B *kernels.Tensor) {
	a.sites = append(a.sites, s)
	a.low[s] = &model.LowRank{A: A, B: B, Scale: a.alpha / float64(a.rank)}
}

// Kind implements model.Adapter.
func (a *Lookahead) Kind() string { return Kind }

// Rows implements model.QueryRows.
func (a *Lookahead) Rows() int { return a.rows.Dim0() }

// Embeddings implements model.QueryRows.
func (a *Lookahead) Embeddings(m *model.Model, dst *kernels.Tensor) { m.Backend.Copy(dst, a.rows) }

// Tokens implements model.QueryRows: the rows are learned.
func (*Lookahead) Tokens() []int32 { return nil }

// LowRank implements model.QueryRows.
func (a *Lookahead) LowRank(layer int, module model.Module) *model.LowRank {
	return a.low[site{layer, module}]
}

// Parameters implements model.Adapter: the rows, then A and B of every site.
func (a *Lookahead) Parameters() []model.Parameter {
	out := []model.Parameter{{Name: rowsName, Tensor: a.rows}}
	for _, s := range a.sites {
		at := fmt.Sprintf("layers.%d.%s.", s.layer, s.module)
		out = append(out, model.Parameter{Name: at + "lora_A", Tensor: a.low[s].A, Layer: s.layer}, model.Parameter{Name: at + "lora_B", Tensor: a.low[s].B, Layer: s.layer})
	}
	return out
}

// Export implements model.Adapter.
func (a *Lookahead) Export() *checkpoints.Adapter {
	parameters := make(map[string]checkpoints.Matrix)
	for _, p := range a.Parameters() {
		parameters[p.Name] = checkpoints.Matrix{Rows: p.Tensor.Dim0(), Cols: p.Tensor.Width(), Data: p.Tensor.Float32s()}
	}
	out, err := stored(model.AdapterConfig{Alpha: a.alpha}, parameters)
	if err != nil {
		panic(err) // the names are this package's own
	}
	return out
}

// stored is model.AdapterKind's Stored.
func stored(c model.AdapterConfig, parameters map[string]checkpoints.Matrix) (*checkpoints.Adapter, error) {
	out := &checkpoints.Adapter{Kind: Kind}
	for name, m := range parameters {
		if name == rowsName {
			out.Embeddings = m
			continue
		}
		var k checkpoints.LoRAKey
		parts := strings.Split(name, ".")
		layer, err := strconv.Atoi(parts[min(1, len(parts)-1)])
		if len(parts) != 4 || parts[0] != "layers" || err != nil {
			return nil, fmt.Errorf("lookaheadkv adapter: unknown parameter %q", name)
		}
		if out.LoRA == nil {
			out.LoRA, out.Alpha = make(map[checkpoints.LoRAKey]checkpoints.LoRAFactors), c.Alpha
		}
		k.Layer, k.Module = layer, parts[2]
		f := out.LoRA[k]
		switch parts[3] {
		case "lora_A":
			f.A, out.Rank = m, m.Rows
		case "lora_B":
			f.B = m
		default:
			return nil, fmt.Errorf("lookaheadkv adapter: unknown parameter %q", name)
		}
		out.LoRA[k] = f
	}
	widths := make(map[string][2]int)
	for k, f := range out.LoRA {
		width := [2]int{f.A.Cols, f.B.Rows}
		if of, ok := widths[k.Module]; ok && of != width {
			out.LayersDiffer = true
		}
		widths[k.Module] = width
	}
	return out, nil
}

// Load takes a stored adapter into the backend of m, whose shapes it must fit.
func Load(m *model.Model, stored *checkpoints.Adapter) (*Lookahead, error) {
	if stored.Kind != Kind {
		return nil, fmt.Errorf("load adapter: kind %q, want %q: %w", stored.Kind, Kind, checkpoints.ErrWrongKind)
	}
	a := &Lookahead{low: make(map[site]*model.LowRank), rank: stored.Rank, alpha: stored.Alpha}
	load := func(on kernels.Backend, what string, x checkpoints.Matrix, rows, cols int) (*kernels.Tensor, error) {
		if x.Rows != rows || x.Cols != cols {
			return nil, fmt.Errorf("load adapter: %s: shape [%d %d], want [%d %d] for model %s", what, x.Rows, x.Cols, rows, cols, m.Name)
		}
		t := on.Alloc(on.Compute(), rows, cols)
		kernels.Convert(t, kernels.FromF32(x.Data, rows, cols))
		return t, nil
	}
	var err error
	if a.rows, err = load(m.Backend, "lookahead embeddings", stored.Embeddings, stored.Embeddings.Rows, m.Config.Hidden); err != nil {
		return nil, err
	}
	taken := 0
	for l := range m.Config.Layers {
		for _, module := range model.Modules {
			f, ok := stored.LoRA[checkpoints.LoRAKey{Layer: l, Module: string(module)}]
			lin := m.Network.Layers[l].Linear(module)
			if !ok || lin == nil {
				continue
			}
			at := fmt.Sprintf("layer %d %s", l, module)
			A, err := load(m.On(l), at+" lora_A", f.A, stored.Rank, lin.Weight.Width())
			if err != nil {
				return nil, err
			}
			B, err := load(m.On(l), at+" lora_B", f.B, lin.Weight.Dim0(), stored.Rank)
			if err != nil {
				return nil, err
			}
			a.attach(site{l, module}, A, B)
			taken++
		}
	}
	if taken != len(stored.LoRA) {
		return nil, fmt.Errorf("load adapter: LoRA factors for %d modules, model %s of %d layers has %d of them", len(stored.LoRA), m.Name, m.Config.Layers, taken)
	}
	return a, nil
}
