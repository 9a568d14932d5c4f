package softtokens

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/checkpoints"
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
	b, err := m.LoadAdapter(t.Context(), back)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(b.Parameters()[0].Tensor.F32(), a.rows.F32()) {
		t.Fatal("soft tokens differ after export and load")
	}
	if b.(model.RowsAdapter).LowRank(0, model.QProj) != nil {
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

// TestStored: the soft tokens are the only parameter.
func TestStored(t *testing.T) {
	rows := checkpoints.Matrix{Rows: 1, Cols: 2, Data: []float32{1, 2}}
	got, err := stored(model.AdapterConfig{}, map[string]checkpoints.Matrix{"soft_tokens": rows})
	if err != nil || !slices.Equal(got.Embeddings.Data, rows.Data) {
		t.Errorf("stored %v: %v", got, err)
	}
	_, err = stored(model.AdapterConfig{}, map[string]checkpoints.Matrix{"lookahead_embeddings": rows})
	if err == nil || !strings.Contains(err.Error(), `unknown parameter "lookahead_embeddings"`) {
		t.Errorf("error %v, want one that names the parameter", err)
	}
}
