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

// The registered names: rows that score, and rows whose pairs stay in the cache besides.
const (
	Kind        = "lookaheadkv"
	RestoreKind = "restorekv"
)

func init() {
	add(Kind, "kl", "lookahead embeddings and Lookahead LoRA, KL loss (LookaheadKV, arXiv:2603.10899, §3)")
	add(RestoreKind, "distil", "rows with LoRA whose keys and values stay in the evicted cache, trained by what the full cache says (RestoreKV, arXiv:2608.01247), and whose attention selects, as LookaheadKV's does")
}

// start is the shape of LookaheadKV's adapters (§4.1), and of those of kinds whose papers do not tell.
func start() model.AdapterConfig {
	return model.AdapterConfig{Rows: 32, Rank: 8, Alpha: 32, Modules: model.Modules, InitToken: -1, InitNoise: 1}
}

// add registers a kind of rows with LoRA. Kinds differ in what they are trained for.
func add(kind, loss, doc string) {
	model.AddRowsKind(kind, model.RowsKind{
		AdapterKind: model.AdapterKind{
			Doc:   doc,
			Usual: func(m *model.Model) (model.Adapter, error) { return newRows(m, start(), kind) },
			Load:  func(m *model.Model, a *checkpoints.Adapter) (model.Adapter, error) { return load(m, a, kind) },
		},
		Loss:  loss,
		Start: start(),
		New:   func(m *model.Model, c model.AdapterConfig) (model.RowsAdapter, error) { return newRows(m, c, kind) },
		Count: parameterCount,
		Stored: func(c model.AdapterConfig, parameters map[string]checkpoints.Matrix) (*checkpoints.Adapter, error) {
			return stored(c, parameters, kind)
		},
	})
}

// rowsName is the name of the rows among the parameters.
const rowsName = "lookahead_embeddings"

// site is a module of a layer.
type site struct {
	layer  int
	module model.Module
}

// Lookahead is rows with LoRA in a model's backend, of either kind.
type Lookahead struct {
	kind  string
	rows  *kernels.Tensor // [n, hidden]
	sites []site          // by layer, then in the order of model.FactorModules
	low   map[site]*model.LowRank
	rank  int
	alpha float64
}

var _ model.RowsAdapter = (*Lookahead)(nil)

// New initialises an adapter: A at random with standard deviation in^-1/2, B zero,
// so that the first scores are the frozen model's. Modules of the last
// layer that reach no score are left out: they would never get a gradient.
func New(m *model.Model, c model.AdapterConfig) (*Lookahead, error) { return newRows(m, c, Kind) }

// newRows is New of a kind.
func newRows(m *model.Model, c model.AdapterConfig, kind string) (*Lookahead, error) {
	if err := c.Validate(m); err != nil {
		return nil, fmt.Errorf("%s adapter: %w", kind, err)
	}
	if len(c.Modules) > 0 && (c.Rank < 1 || c.Rank > m.Config.Hidden) {
		return nil, fmt.Errorf("%s adapter: rank: got %d, want 1 to hidden size %d", kind, c.Rank, m.Config.Hidden)
	}
	if len(c.Modules) > 0 && !(c.Alpha > 0 && c.Alpha <= 1e6) {
		return nil, fmt.Errorf("%s adapter: alpha: got %v, want above 0 to 1e6", kind, c.Alpha)
	}
	rng := rand.New(rand.NewPCG(c.Seed, 0x4c4f5241))
	a := &Lookahead{kind: kind, rows: m.NewRows(c, rng), low: make(map[site]*model.LowRank), rank: c.Rank, alpha: c.Alpha}
	sites := sitesOf(m, c.Modules)
	if experts := func(m model.Module) bool { return slices.Contains(model.ExpertModules, m) }; slices.ContainsFunc(c.Modules, experts) && !slices.ContainsFunc(sites, func(s site) bool { return experts(s.module) }) {
		return nil, fmt.Errorf("%s adapter: modules: got experts, of which model %s has none in layers that reach a score", kind, m.Name)
	}
	for _, s := range sites {
		count, _, out, in := m.Network.Layers[s.layer].Factors(s.module)
		var first, zeros []float64 // nil where the model counts: it holds no numbers
		if !m.Counts() {
			first, zeros = make([]float64, count*c.Rank*in), make([]float64, count*out*c.Rank)
		}
		for i := range first {
			first[i] = rng.NormFloat64() / math.Sqrt(float64(in))
		}
		a.attach(s, m.LayerParameter(s.layer, first, count*c.Rank, in), m.LayerParameter(s.layer, zeros, count*out, c.Rank))
	}
	return a, nil
}

// sitesOf are the places of LoRA factors.
func sitesOf(m *model.Model, modules []model.Module) []site {
	var out []site
	for l := range m.Config.Layers {
		for _, module := range model.FactorModules {
			if count, _, _, _ := m.Network.Layers[l].Factors(module); count > 0 && slices.Contains(modules, module) && module.ReachesScores(l, m.Config.ScoredLayers()) {
				out = append(out, site{l, module})
			}
		}
	}
	return out
}

// parameterCount is the number of trained numbers (LookaheadKV, arXiv:2603.10899, table 1).
func parameterCount(m *model.Model, c model.AdapterConfig) int64 {
	n := int64(c.Rows) * int64(m.Config.Hidden)
	for _, s := range sitesOf(m, c.Modules) {
		experts, _, out, in := m.Network.Layers[s.layer].Factors(s.module)
		n += int64(experts) * int64(c.Rank) * int64(out+in)
	}
	return n
}

func (a *Lookahead) attach(s site, A, B *kernels.Tensor) {
	a.sites = append(a.sites, s)
	a.low[s] = &model.LowRank{A: A, B: B, Scale: a.alpha / float64(a.rank)}
}

// Kind implements model.Adapter.
func (a *Lookahead) Kind() string { return a.kind }

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
	out, err := stored(model.AdapterConfig{Alpha: a.alpha}, parameters, a.kind)
	if err != nil {
		panic(err) // the names are this package's own
	}
	return out
}

// stored is model.AdapterKind's Stored.
func stored(c model.AdapterConfig, parameters map[string]checkpoints.Matrix, kind string) (*checkpoints.Adapter, error) {
	out := &checkpoints.Adapter{Kind: kind}
	factors := make(map[site]checkpoints.LoRAFactors)
	for name, m := range parameters {
		if name == rowsName {
			out.Embeddings = m
			continue
		}
		rest, isA := strings.CutSuffix(name, ".lora_A")
		rest, isB := strings.CutSuffix(rest, ".lora_B")
		rest, inLayers := strings.CutPrefix(rest, "layers.")
		number, module, _ := strings.Cut(rest, ".")
		layer, err := strconv.Atoi(number)
		if err != nil || !inLayers || isA == isB || !slices.Contains(model.FactorModules, model.Module(module)) {
			return nil, fmt.Errorf("%s adapter: unknown parameter %q", kind, name)
		}
		f := factors[site{layer, model.Module(module)}]
		if isA {
			f.A = m
		} else {
			f.B = m
		}
		factors[site{layer, model.Module(module)}] = f
	}
	for s, f := range factors {
		if out.LoRA == nil {
			out.LoRA, out.Alpha = make(map[checkpoints.LoRAKey]checkpoints.LoRAFactors), c.Alpha
		}
		if out.Rank = f.B.Cols; out.Rank < 1 || f.A.Rows%out.Rank != 0 || f.B.Rows*out.Rank%max(1, f.A.Rows) != 0 {
			return nil, fmt.Errorf("%s adapter: layer %d %s: factors [%d %d] and [%d %d] do not fit", kind, s.layer, s.module, f.A.Rows, f.A.Cols, f.B.Rows, f.B.Cols)
		}
		count := f.A.Rows / out.Rank
		for e := range count {
			out.LoRA[s.loraKey(e)] = checkpoints.LoRAFactors{A: matrixPart(f.A, e, count), B: matrixPart(f.B, e, count)}
		}
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

// loraKey is what adapter folders have of a module, of the experts' modules that of expert e.
func (s site) loraKey(e int) checkpoints.LoRAKey {
	if proj, ok := strings.CutPrefix(string(s.module), "experts."); ok {
		return checkpoints.LoRAKey{Layer: s.layer, Module: fmt.Sprintf("experts.%d.%s", e, proj)}
	}
	return checkpoints.LoRAKey{Layer: s.layer, Module: string(s.module)}
}

// matrixPart is one of count equal parts of a matrix's rows.
func matrixPart(m checkpoints.Matrix, i, count int) checkpoints.Matrix {
	rows := m.Rows / count
	return checkpoints.Matrix{Rows: rows, Cols: m.Cols, Data: m.Data[i*rows*m.Cols:][:rows*m.Cols]}
}

// Load takes a stored adapter into the backend of m, whose shapes it must fit.
func Load(m *model.Model, stored *checkpoints.Adapter) (*Lookahead, error) {
	return load(m, stored, Kind)
}

// load is Load of a kind.
func load(m *model.Model, stored *checkpoints.Adapter, kind string) (*Lookahead, error) {
	if stored.Kind != kind {
		return nil, fmt.Errorf("load adapter: kind %q, want %q: %w", stored.Kind, kind, checkpoints.ErrWrongKind)
	}
	a := &Lookahead{kind: kind, low: make(map[site]*model.LowRank), rank: stored.Rank, alpha: stored.Alpha}
	take := func(on kernels.Backend, x checkpoints.Matrix) *kernels.Tensor {
		t := on.Alloc(on.Compute(), x.Rows, x.Cols)
		kernels.Convert(t, kernels.FromF32(x.Data, x.Rows, x.Cols))
		return t
	}
	if x := stored.Embeddings; x.Cols != m.Config.Hidden {
		return nil, fmt.Errorf("load adapter: lookahead embeddings: shape [%d %d], want [%d %d] for model %s", x.Rows, x.Cols, x.Rows, m.Config.Hidden, m.Name)
	}
	a.rows = take(m.Backend, stored.Embeddings)
	taken := 0
	for l := range m.Config.Layers {
		for _, module := range model.FactorModules {
			s, has := site{l, module}, false
			count, _, out, in := m.Network.Layers[l].Factors(module)
			for e := range count {
				_, ok := stored.LoRA[s.loraKey(e)]
				has = has || ok
			}
			if !has {
				continue
			}
			var all checkpoints.LoRAFactors
			for e := range count {
				f, ok := stored.LoRA[s.loraKey(e)]
				if !ok {
					return nil, fmt.Errorf("load adapter: no LoRA factors for %v, want those of all %d experts", s.loraKey(e), count)
				}
				for what, x := range map[string]*checkpoints.Matrix{"lora_A": &f.A, "lora_B": &f.B} {
					rows, cols, to := stored.Rank, in, &all.A
					if what == "lora_B" {
						rows, cols, to = out, stored.Rank, &all.B
					}
					if x.Rows != rows || x.Cols != cols {
						return nil, fmt.Errorf("load adapter: %v %s: shape [%d %d], want [%d %d] for model %s", s.loraKey(e), what, x.Rows, x.Cols, rows, cols, m.Name)
					}
					to.Rows, to.Cols, to.Data = to.Rows+rows, cols, append(to.Data, x.Data...)
				}
			}
			a.attach(s, take(m.On(l), all.A), take(m.On(l), all.B))
			taken += count
		}
	}
	if taken != len(stored.LoRA) {
		return nil, fmt.Errorf("load adapter: LoRA factors for %d modules, model %s of %d layers has %d of them", len(stored.LoRA), m.Name, m.Config.Layers, taken)
	}
	return a, nil
}
