package model

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"glimpse/checkpoints"
	"glimpse/internal/registry"
	"glimpse/kernels"
)

// Adapter is what was learned for a frozen model: rows ([RowsAdapter]) or gates ([GateAdapter]).
type Adapter interface {
	// Kind is the registered name of the adapter's kind.
	Kind() string
	// Parameters are all learned tensors, in a fixed order.
	Parameters() []Parameter
	// Export copies the parameters into the form that adapter folders store.
	Export() *checkpoints.Adapter
}

// RowsAdapter is learned rows that predict which prompt entries the model's response
// will attend to. As QueryRows it runs in the eviction runtime. The trainer builds its
// differentiable twin from Parameters and LowRank, so that an adapter knows of no graph.
// The first of its Parameters are the rows [Rows, hidden]; the others are the factors that
// LowRank returns.
type RowsAdapter interface {
	Adapter
	QueryRows
}

// GateAdapter is learned gates, which score entries when they are made.
type GateAdapter interface {
	Adapter
	Gate
}

// Parameter is a learned tensor. Name is its name in the adapter folder.
type Parameter struct {
	Name   string
	Tensor *kernels.Tensor
	Layer  int // on whose device it lies
}

// AdapterKind is a kind of adapter: one package that registers itself.
type AdapterKind struct {
	Doc string
	// Policy is the eviction policy that runs its adapters; "" is that of the kind's name.
	Policy string
	// Usual is an untrained adapter of its paper's size for m, which may have shapes alone: memory
	// and operations are counted with it.
	Usual func(m *Model) (Adapter, error)
	// Load takes a stored adapter into m's backend. The base model has been checked.
	Load func(m *Model, a *checkpoints.Adapter) (Adapter, error)
}

// AdapterKinds lists the kinds by name.
var AdapterKinds = registry.Registry[AdapterKind]{Noun: "adapter kind"}

// RowsKind is a kind of adapter of learned rows, which a loss trains.
type RowsKind struct {
	AdapterKind
	// Loss is the objective that its paper trains with.
	Loss string
	// Start is the shape and the initialisation that its paper has.
	Start AdapterConfig
	// New initialises an adapter for m.
	New func(m *Model, c AdapterConfig) (RowsAdapter, error)
	// Count is the number of trained numbers that New would make; m may have shapes alone.
	Count func(m *Model, c AdapterConfig) int64
	// Stored makes what adapter folders store of the parameters, by their names, of an adapter
	// that New made of c. A name that no parameter of the kind has is an error.
	Stored func(c AdapterConfig, parameters map[string]checkpoints.Matrix) (*checkpoints.Adapter, error)
}

// RowsKinds lists the kinds of learned rows by name: those that a training run can train.
var RowsKinds = registry.Registry[RowsKind]{Noun: "kind of learned rows"}

// AddRowsKind registers a kind of learned rows among both.
func AddRowsKind(name string, k RowsKind) {
	AdapterKinds.Add(name, k.AdapterKind)
	RowsKinds.Add(name, k)
}

// PolicyOf is the eviction policy that runs adapters of a kind.
func PolicyOf(kind string) string {
	if k, err := AdapterKinds.Lookup(kind); err == nil && k.Policy != "" {
		return k.Policy
	}
	return kind
}

// AdapterConfig is the shape and the initialisation of an adapter of learned rows.
type AdapterConfig struct {
	Rows int `json:"rows"` // learned rows n

	// LoRA: rank r, α (the update is scaled by α/r) and the modules that get one.
	Rank    int      `json:"rank,omitempty"`
	Alpha   float64  `json:"alpha,omitempty"`
	Modules []Module `json:"modules,omitempty"`

	// InitToken is the token whose embedding every row starts from, plus noise; -1
	// starts from noise alone.
	InitToken int32 `json:"init_token"`
	// InitNoise is the standard deviation of the noise as a multiple of that of the
	// embedding table.
	InitNoise float64 `json:"init_noise"`
	Seed      uint64  `json:"seed"`
}

// Validate checks the ranges that all kinds share.
func (c *AdapterConfig) Validate(m *Model) error {
	switch {
	case c.Rows < 1 || c.Rows > checkpoints.MaxRows:
		return fmt.Errorf("rows: got %d, want 1 to %d", c.Rows, checkpoints.MaxRows)
	case c.InitToken < -1 || int(c.InitToken) >= m.Config.Vocab:
		return fmt.Errorf("init token: got %d, want -1 (random) or 0 to %d", c.InitToken, m.Config.Vocab-1)
	case !(c.InitNoise >= 0 && c.InitNoise <= 100):
		return fmt.Errorf("init noise: got %v, want 0 to 100", c.InitNoise)
	}
	return nil
}

// ParseModules reads a comma-separated list of modules; "all" are Modules, "qv" the queries' and values', "experts" those
// of the experts that a router chooses, and "none" no module. What stands in a list with others may be one of these names.
func ParseModules(list string) ([]Module, error) {
	if list == "none" || list == "" {
		return nil, nil
	}
	var out []Module
	for name := range strings.SplitSeq(list, ",") {
		m := Module(strings.TrimSpace(name))
		add := []Module{m}
		switch m {
		case "all":
			add = Modules
		case "qv":
			add = []Module{QProj, VProj}
		case "experts":
			add = ExpertModules
		case "router", "gate":
			return nil, fmt.Errorf("module %q: a router has no factors: which experts a row goes through has no gradient", name)
		case "shared_expert", "shared_experts":
			return nil, fmt.Errorf("module %q: the expert that all rows go through has no factors, its names differ from family to family; want experts for those that a router chooses", name)
		default:
			if !slices.Contains(FactorModules, m) {
				add[0] += "_proj"
			}
			if !slices.Contains(FactorModules, add[0]) {
				return nil, fmt.Errorf("unknown module %q, want all, qv, none, experts or a list of: %s", name, moduleNames())
			}
		}
		for _, m := range add {
			if slices.Contains(out, m) {
				return nil, fmt.Errorf("module %q twice", m)
			}
			out = append(out, m)
		}
	}
	return out, nil
}

func moduleNames() string {
	names := make([]string, len(FactorModules))
	for i, m := range FactorModules {
		names[i] = string(m)
	}
	return strings.Join(names, ", ")
}

// NewRows initialises learned rows [rows, hidden]: the embedding of InitToken,
// if any, plus noise.
func (m *Model) NewRows(c AdapterConfig, rng *rand.Rand) *kernels.Tensor {
	table, hidden := m.Network.Embedding, m.Config.Hidden
	if m.Counts() {
		return m.Parameter(nil, c.Rows, hidden)
	}
	std := c.InitNoise * rms(table)
	start := make([]float64, hidden)
	if c.InitToken >= 0 {
		start = table.Rows(int(c.InitToken), int(c.InitToken)+1).Float64s()
	}
	rows := make([]float64, c.Rows*hidden)
	for i := range rows {
		rows[i] = std*rng.NormFloat64() + start[i%hidden]
	}
	return m.Parameter(rows, c.Rows, hidden)
}

// rms is the root mean square of the first rows of a table, which is enough to
// know its scale.
func rms(table *kernels.Tensor) float64 {
	n := min(table.Len(), 1<<18)
	sum := 0.0
	for _, v := range table.Reshape(table.Len()).Rows(0, n).Float64s() {
		sum += v * v
	}
	return math.Sqrt(sum / float64(n))
}

// Parameter makes a trainable tensor of the compute type from host numbers, on the device of
// the embedding.
func (m *Model) Parameter(values []float64, shape ...int) *kernels.Tensor {
	return m.parameter(m.Backend, values, shape)
}

// LayerParameter is Parameter on the device of a layer.
func (m *Model) LayerParameter(layer int, values []float64, shape ...int) *kernels.Tensor {
	return m.parameter(m.On(layer), values, shape)
}

func (m *Model) parameter(on kernels.Backend, values []float64, shape []int) *kernels.Tensor {
	t := on.Alloc(on.Compute(), shape...)
	if !m.Counts() {
		kernels.Convert(t, kernels.FromF64(values, shape...))
	}
	return t
}

// WeightFormat names the types in which the linear layers' weights are, as "BF16" or "Q4_K, Q6_K". Blocks make the
// same model as their numbers in BF16, but passes of few rows round activations for them.
func (m *Model) WeightFormat() string {
	var names []string
	for i := range m.Network.Layers {
		for _, module := range Modules {
			if l := m.Network.Layers[i].Linear(module); l != nil && l.Weight != nil {
				names = append(names, l.Weight.DType.String())
			}
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

// OtherFormat says that an adapter was trained over the same weights in another format; "" where it was not, or is
// not known to be.
func (m *Model) OtherFormat(base checkpoints.BaseModel) string {
	if format := m.WeightFormat(); base.Format != "" && base.Format != format {
		return fmt.Sprintf("was trained over weights in %.100q, here they are in %q", base.Format, format)
	}
	return ""
}

// LoadAdapter reads an adapter folder that was trained for m. Another base model
// is checkpoints.ErrWrongBase. A folder of another program does not name its base model: the
// shapes alone must fit.
func (m *Model) LoadAdapter(ctx context.Context, stored *checkpoints.Adapter) (Adapter, error) {
	if !stored.Foreign() {
		sum, err := m.KnownAs(ctx, stored.Base.SHA256)
		if err != nil {
			return nil, err
		}
		if err := stored.CheckBase(m.Name, sum); err != nil {
			return nil, err
		}
	}
	kind, err := AdapterKinds.Lookup(stored.Kind)
	if err != nil {
		return nil, err
	}
	return kind.Load(m, stored)
}
