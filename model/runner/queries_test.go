package runner_test

import (
	"os"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestQueries: rows have the queries that decoding them has. Of the first layer, which has
// seen no other row, those before RoPE do not depend on where the rows stand; RoPE turns
// vectors and, unless it also scales them, leaves their lengths.
func TestQueries(t *testing.T) {
	for _, g := range modeltest.Some(t, modeltest.Goldens(t)) {
		m := modeltest.OpenFolder(t, os.DirFS(g.Folder), "reference64")
		r, tokens, rows := runner.New(m), modeltest.Tokens(m, 3, 21), model.TokenRows(modeltest.Tokens(m, 4, 6))
		cache := kvcache.New(m)
		if _, err := r.Prefill(background, cache, tokens, runner.PrefillOptions{}); err != nil {
			t.Fatal(err)
		}
		got, err := r.Queries(background, cache, rows)
		if err != nil {
			t.Fatal(err)
		}
		first := m.Config.FirstAttention()
		if cache.Next() != 21 || cache.Entries(first, 0) != 21 {
			t.Errorf("%s: the cache is at %d with %d entries", g.Name, cache.Next(), cache.Entries(first, 0))
		}
		shifted, err := r.Queries(background, cache, model.ShiftedTokens{TokenRows: rows, By: -7})
		if err != nil {
			t.Fatal(err)
		}
		want := make([][]float64, m.Config.Layers)
		for _, id := range rows {
			_, err := r.Prefill(background, cache, []int32{id}, runner.PrefillOptions{Capture: runner.Capture{Queries: true}, Observe: func(o *runner.Observation) error {
				if !m.Config.Recurrent(o.Layer) {
					for i, reader := range m.Config.Readers(o.Layer) {
						want[reader] = append(want[reader], o.Queries[i].Float64s()...)
					}
				}
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
		for l, q := range got {
			if m.Config.Recurrent(l) {
				if q.Rotated != nil || q.Unrotated != nil {
					t.Errorf("%s: layer %d has queries", g.Name, l)
				}
				continue
			}
			if !slices.Equal(q.Rotated.Shape, []int{len(rows), m.Config.Heads, m.Config.KV(l).Dim}) || !slices.Equal(q.Unrotated.Shape, q.Rotated.Shape) {
				t.Fatalf("%s: layer %d: shapes %v and %v", g.Name, l, q.Rotated.Shape, q.Unrotated.Shape)
			}
			compare.Close(t, g.Name+": as decoding has them", q.Rotated.Float64s(), want[l], 1e-6, compare.Floor(1e-2))
			if m.Config.RoPEScale == 1 {
				compare.Close(t, g.Name+": lengths", lengths(q.Rotated), lengths(q.Unrotated), 1e-6)
			}
			if same := slices.Equal(q.Rotated.F64(), q.Unrotated.F64()); same == m.Config.Rotates(l) {
				t.Errorf("%s: layer %d: RoPE changes nothing: %v", g.Name, l, same)
			}
		}
		if first > 0 {
			continue // its rows have seen others
		}
		compare.Close(t, g.Name+": before RoPE elsewhere", shifted[0].Unrotated.F64(), got[0].Unrotated.F64(), 1e-9)
		if m.Config.Rotates(0) && slices.Equal(shifted[0].Rotated.F64(), got[0].Rotated.F64()) {
			t.Errorf("%s: the rows stand where they stood", g.Name)
		}
	}
}

// lengths are the squared ones of the vectors of x [rows, heads, headDim].
func lengths(x *kernels.Tensor) (out []float64) {
	dim := x.Shape[2]
	for v := range slices.Chunk(x.F64(), dim) {
		sum := 0.0
		for _, e := range v {
			sum += e * e
		}
		out = append(out, sum)
	}
	return out
}
