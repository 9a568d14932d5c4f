package softtokens

import (
	"fmt"
	"math/rand/v2"

	"glimpse/checkpoints"
	"glimpse/kernels"
	"glimpse/model"
)

// Kind is the registered name.
const Kind = "judgeq"

func init() {
	model.AddRowsKind(Kind, model.RowsKind{
		AdapterKind: model.AdapterKind{
			Doc:   "soft tokens only, MSE loss (Judge Q, arXiv:2509.10798, §4)",
			Usual: func(m *model.Model) (model.Adapter, error) { return New(m, start) },
			Load:  func(m *model.Model, a *checkpoints.Adapter) (model.Adapter, error) { return Load(m, a) },
		},
		Loss:  "mse",
		Start: start,
		New:   func(m *model.Model, c model.AdapterConfig) (model.RowsAdapter, error) { return New(m, c) },
		Count: func(m *model.Model, c model.AdapterConfig) int64 {
			return int64(c.Rows) * int64(m.Config.Hidden)
		},
		Stored: stored,
	})
}

// start is the shape that the paper has (§4).
var start = model.AdapterConfig{Rows: 32, InitToken: -1, InitNoise: 1}

// rowsName is the name of the soft tokens among the parameters.
const rowsName = "soft_tokens"

// SoftTokens is a Judge Q adapter in a model's backend.
type SoftTokens struct {
	rows *kernels.Tensor // [n, hidden]
}

var _ model.RowsAdapter = (*SoftTokens)(nil)

// New initialises the soft tokens. LoRA settings are refused: Judge Q has none.
func New(m *model.Model, c model.AdapterConfig) (*SoftTokens, error) {
	if err := c.Validate(m); err != nil {
		return nil, fmt.Errorf("judgeq adapter: %w", err)
	}
	if len(c.Modules) > 0 {
		return nil, fmt.Errorf("judgeq adapter: modules: got %v, want none: Judge Q trains soft tokens only", c.Modules)
	}
	return &SoftTokens{rows: m.NewRows(c, rand.New(rand.NewPCG(c.Seed, 0x534f4654)))}, nil
}

// Kind implements model.Adapter.
func (a *SoftTokens) Kind() string { return Kind }

// Rows implements model.QueryRows.
func (a *SoftTokens) Rows() int { return a.rows.Dim0() }

// Embeddings implements model.QueryRows.
func (a *SoftTokens) Embeddings(m *model.Model, dst *kernels.Tensor) { m.Backend.Copy(dst, a.rows) }

// Tokens implements model.QueryRows: the rows are learned.
func (*SoftTokens) Tokens() []int32 { return nil }

// LowRank implements model.QueryRows; there is none.
func (a *SoftTokens) LowRank(int, model.Module) *model.LowRank { return nil }

// Parameters implements model.Adapter.
func (a *SoftTokens) Parameters() []model.Parameter {
	return []model.Parameter{{Name: rowsName, Tensor: a.rows}}
}

// Export implements model.Adapter.
func (a *SoftTokens) Export() *checkpoints.Adapter {
	return &checkpoints.Adapter{Kind: Kind, Embeddings: checkpoints.Matrix{Rows: a.rows.Dim0(), Cols: a.rows.Width(), Data: a.rows.Float32s()}}
}

// stored is model.AdapterKind's Stored.
func stored(_ model.AdapterConfig, parameters map[string]checkpoints.Matrix) (*checkpoints.Adapter, error) {
	for name := range parameters {
		if name != rowsName {
			return nil, fmt.Errorf("judgeq adapter: unknown parameter %q", name)
		}
	}
	return &checkpoints.Adapter{Kind: Kind, Embeddings: parameters[rowsName]}, nil
}

// Load takes a stored adapter into the backend of m.
func Load(m *model.Model, stored *checkpoints.Adapter) (*SoftTokens, error) {
	if stored.Kind != Kind {
		return nil, fmt.Errorf("load adapter: kind %q, want %q: %w", stored.Kind, Kind, checkpoints.ErrWrongKind)
	}
	e := stored.Embeddings
	if e.Cols != m.Config.Hidden {
		return nil, fmt.Errorf("load adapter: soft tokens: shape [%d %d], want [n %d] for model %s", e.Rows, e.Cols, m.Config.Hidden, m.Name)
	}
	rows := m.Backend.Alloc(m.Backend.Compute(), e.Rows, e.Cols)
	kernels.Convert(rows, kernels.FromF32(e.Data, e.Rows, e.Cols))
	return &SoftTokens{rows: rows}, nil
}
