package kernels_test

import (
	"testing"

	"glimpse/kernels"
	"glimpse/kernels/kernelstest"
)

// TestOperationsRefuseWrongShapes: what does not fit panics rather than computes
// something else.
func TestOperationsRefuseWrongShapes(t *testing.T) {
	for _, name := range kernels.Backends.Names() {
		b := kernelstest.Open(t, name).B
		of := func(shape ...int) *kernels.Tensor { return b.Alloc(b.Compute(), shape...) }
		table := kernels.NewRoPETable(b, make([]float32, 2), 8, 1)
		for op, f := range map[string]func(){
			"Linear inner":       func() { b.Linear(of(2, 3), of(2, 4), of(3, 5), nil, 1, 0) },
			"Linear output":      func() { b.Linear(of(2, 2), of(2, 4), of(3, 4), nil, 1, 0) },
			"Linear bias":        func() { b.Linear(of(2, 3), of(2, 4), of(3, 4), of(2), 1, 0) },
			"MatMul inner":       func() { b.MatMul(of(2, 3), of(2, 4), of(5, 3), 1, 0) },
			"MatMul output":      func() { b.MatMul(of(2, 4), of(2, 4), of(4, 3), 1, 0) },
			"MatMulTA inner":     func() { b.MatMulTA(of(2, 3), of(4, 2), of(5, 3), 1, 0) },
			"MatMulTA output":    func() { b.MatMulTA(of(3, 3), of(4, 2), of(4, 3), 1, 0) },
			"Copy":               func() { b.Copy(of(3), of(2)) },
			"Gather":             func() { b.Gather(of(2, 3), of(5, 3), []int32{0}) },
			"Gather id":          func() { b.Gather(of(1, 3), of(5, 3), []int32{5}) },
			"Add":                func() { b.Add(of(3), of(3), of(2)) },
			"Add output":         func() { b.Add(of(2), of(3), of(3)) },
			"Axpy":               func() { b.Axpy(of(3), 1, of(2)) },
			"Norm":               func() { b.Norm(of(2, 3), of(2, 4), nil, kernels.Norm{Weight: of(4)}) },
			"Norm add":           func() { b.Norm(of(2, 4), of(2, 4), of(2, 3), kernels.Norm{Weight: of(4)}) },
			"Norm weight":        func() { b.Norm(of(2, 3), of(2, 3), nil, kernels.Norm{Weight: of(2)}) },
			"Norm bias":          func() { b.Norm(of(2, 3), of(2, 3), nil, kernels.Norm{Weight: of(3), Bias: of(2)}) },
			"NormGrad dy":        func() { b.NormGrad(of(2, 3), of(2, 3), of(3, 3), kernels.Norm{Weight: of(3)}) },
			"NormGrad dx":        func() { b.NormGrad(of(3, 3), of(2, 3), of(2, 3), kernels.Norm{Weight: of(3), Bias: of(3)}) },
			"GELU":               func() { b.GELU(of(2), of(3)) },
			"GELUGrad":           func() { b.GELUGrad(of(3), of(2), of(3)) },
			"window":             func() { slide(b, nil, []int32{3}) },
			"window of the past": func() { slide(b, []int32{0, 1, 2, 3}, []int32{3, 4}) },
			"RoPE positions":     func() { b.RoPE(of(2, 1, 4), of(2, 1, 4), []int32{0}, table, false) },
			"RoPE dimension":     func() { b.RoPE(of(1, 1, 2), of(1, 1, 2), []int32{0}, table, false) },
			"RoPE past table":    func() { b.RoPE(of(1, 1, 4), of(1, 1, 4), []int32{8}, table, false) },
			"RoPE negative":      func() { b.RoPE(of(1, 1, 4), of(1, 1, 4), []int32{-1}, table, false) },
			"RoPE output":        func() { b.RoPE(of(2, 1, 4), of(1, 1, 4), []int32{0}, table, false) },
			"SiLUMul":            func() { b.SiLUMul(of(2), of(3), of(3)) },
			"SiLUMul up":         func() { b.SiLUMul(of(3), of(3), of(4)) },
			"SiLUMulGrad":        func() { b.SiLUMulGrad(of(3), of(3), of(4), of(3), of(3)) },
			"CopyHead":           func() { b.CopyHead(of(3, 4), of(2, 2, 4), 0) },
			"CopyHead fewer":     func() { b.CopyHead(of(1, 4), of(2, 2, 4), 0) },
			"CopyHead head":      func() { b.CopyHead(of(2, 4), of(2, 2, 4), 2) },
			"MergeScores":        func() { b.MergeScores(of(2, 3), of(2, 4), 1, 1) },
			"AdamW":              func() { b.AdamW(of(3), of(4), of(3), of(3), kernels.AdamWStep{}) },
			"ScoreKL width":      func() { score(b.ScoreKL, of(2, 3), of(2, 4), 2, 3) },
			"ScoreKL gradient":   func() { score(b.ScoreKL, of(2, 4), of(2, 3), 2, 3) },
			"ScoreMSE width":     func() { score(b.ScoreMSE, of(2, 3), of(2, 4), 2, 3) },
			"ScoreMSE gradient":  func() { score(b.ScoreMSE, of(2, 4), of(2, 3), 2, 3) },
			"scores too narrow":  func() { attend(b, 5, 4) },
			"rows beyond a past": func() { attend(b, 1, 4) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: %s: no panic", name, op)
					}
				}()
				f()
			}()
		}
	}
}

func score(loss func(l, d, s, t *kernels.Tensor, w float64), grad, scores *kernels.Tensor, heads, n int) {
	loss(kernels.NewTensor(kernels.F64), grad, scores, kernels.NewTensor(scores.DType, heads, n), 1)
}

// slide lets 2 rows of 2 heads attend to 5 entries in a window.
func slide(b kernels.Backend, past, rows []int32) {
	k, q := b.Alloc(b.Compute(), 5, 4), b.Alloc(b.Compute(), 2, 2, 4)
	b.Attention(nil, b.Alloc(b.Compute(), 2, 2), &kernels.Attend{Q: q, Past: []kernels.KV{{K: k, V: k, Positions: past}}, Scale: 1, Window: 2, Positions: rows})
}

// attend observes 2 rows of 2 heads on entries of one KV head, in scores of the
// given width.
func attend(b kernels.Backend, entries, width int) {
	past := b.Alloc(b.Compute(), entries, 4)
	b.Fill(past, 0)
	q, lse := b.Alloc(b.Compute(), 2, 2, 4), b.Alloc(b.Compute(), 2, 2)
	b.Fill(q, 0)
	a := &kernels.Attend{Q: q, Past: []kernels.KV{{K: past, V: past}}, Scale: 1}
	b.Attention(nil, lse, a)
	b.ObservedScores(b.Alloc(b.Compute(), 2, width), lse, a)
}
