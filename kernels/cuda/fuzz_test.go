//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/cuda"
	"glimpse/kernels/kernelstest"
)

// fuzzCall is one call of an operation whose arguments can be spoilt before it runs.
type fuzzCall struct {
	op      string
	tensors []**kernels.Tensor
	lists   []*[]int32
	counts  []*[]int
	outputs []**kernels.Tensor // compared with the reference; nil ones are passed over
	value   func() []float64   // a result that is no tensor
	run     func()
	tol     float64
}

// fuzzer draws the arguments of a case: the same for every backend.
type fuzzer struct {
	kernelstest.Device
	rng    *rand.Rand
	slacks []*kernels.Tensor // what lies before and after tensors in their memory
}

// slack marks memory around tensors that nothing may write.
const slack = 77

// place gives a tensor memory of its own, or the middle of a larger one.
func (f *fuzzer) place(dtype kernels.DType, values []float64, shape ...int) *kernels.Tensor {
	if f.rng.IntN(2) == 0 {
		return f.Stored(dtype, values, shape...)
	}
	before, after := f.rng.IntN(9), f.rng.IntN(9)
	if dtype == f.B.Compute() { // vectors are loaded from rows of caches, which are aligned; activations may lie anywhere
		before = 4 * f.rng.IntN(4)
	}
	whole := f.B.Alloc(dtype, before+len(values)+after)
	marks := make([]float64, before+after)
	for i := range marks {
		marks[i] = slack
	}
	for _, part := range []struct {
		from, to int
		values   []float64
	}{{0, before, marks[:before]}, {before, before + len(values), values}, {before + len(values), whole.Len(), marks[before:]}} {
		kernels.Convert(whole.Rows(part.from, part.to), kernels.FromF64(part.values, len(part.values)))
	}
	f.slacks = append(f.slacks, whole.Rows(0, before), whole.Rows(before+len(values), whole.Len()))
	return whole.Rows(before, before+len(values)).Reshape(shape...)
}

// in is a random operand, out a result before it is written.
func (f *fuzzer) in(shape ...int) *kernels.Tensor {
	return f.place(f.B.Compute(), kernelstest.Random(f.rng, kernels.ShapeLen(shape), 1), shape...)
}

func (f *fuzzer) out(shape ...int) *kernels.Tensor {
	return f.place(f.B.Compute(), slices.Repeat([]float64{math.NaN()}, kernels.ShapeLen(shape)), shape...)
}

// layers are linear layers of the same few rows, without outputs.
func (f *fuzzer) layers(count int) (c *fuzzCall, x **kernels.Tensor, layers []kernels.LinearRows) {
	k, dtype := 8*f.size(40), kernelstest.WeightTypes[f.rng.IntN(3)]
	rows := f.in(f.size(8), k)
	c, layers = of("", nil, nil, &rows), make([]kernels.LinearRows, count)
	for i := range layers {
		n := f.size(90)
		layers[i].Weight = f.Weight(f.rng, dtype, n, k)
		c.tensors = append(c.tensors, &layers[i].Weight)
		if f.rng.IntN(2) == 0 {
			layers[i].Bias = f.in(n)
			c.tensors = append(c.tensors, &layers[i].Bias)
		}
	}
	return c, &rows, layers
}

// size draws an extent; few are large.
func (f *fuzzer) size(most int) int { return 1 + min(f.rng.IntN(most), f.rng.IntN(most)) }

// of is a call whose tensors are all its arguments.
func of(op string, run func(), outputs []**kernels.Tensor, inputs ...**kernels.Tensor) *fuzzCall {
	return &fuzzCall{op: op, run: run, outputs: outputs, tensors: append(slices.Clone(outputs), inputs...)}
}

type refs = []**kernels.Tensor

// fuzzOps draw a call of each operation.
var fuzzOps = map[string]func(f *fuzzer) *fuzzCall{
	"Linear": func(f *fuzzer) *fuzzCall {
		m, k, n := f.size(70), f.size(90), f.size(90)
		dtype := kernelstest.WeightTypes[f.rng.IntN(3)]
		v := kernelstest.Variants[f.rng.IntN(len(kernelstest.Variants))]
		x, y := f.place(f.B.Compute(), kernelstest.Factors(f.rng, dtype, m*k), m, k), f.in(m, n)
		w := f.Weight(f.rng, dtype, n, k)
		var bias *kernels.Tensor
		c := of("Linear", nil, refs{&y}, &x, &w)
		if f.rng.IntN(2) == 0 {
			bias = f.in(n)
			c.tensors = append(c.tensors, &bias)
		}
		c.run = func() { f.B.Linear(y, x, w, bias, v.Alpha, v.Beta) }
		return c
	},
	"LinearGroup": func(f *fuzzer) *fuzzCall {
		c, x, layers := f.layers(1 + f.rng.IntN(3))
		for i := range layers {
			layers[i].Y = f.out((*x).Dim0(), layers[i].Weight.Dim0())
			c.tensors = append(c.tensors, &layers[i].Y)
		}
		c.run = func() { f.B.LinearGroup(*x, layers...) }
		return c
	},
	"GatedLinear": func(f *fuzzer) *fuzzCall {
		c, x, layers := f.layers(2)
		n := layers[0].Weight.Dim0()
		layers[1].Weight, layers[0].Y = f.Weight(f.rng, layers[0].Weight.DType, n, (*x).Width()), f.out((*x).Dim0(), n)
		if layers[1].Bias != nil {
			layers[1].Bias = f.in(n)
		}
		c.tensors = append(c.tensors, &layers[0].Y)
		c.run = func() { f.B.GatedLinear(layers[0].Y, *x, layers[0], layers[1], f.B) }
		return c
	},
	"RotateHeads": func(f *fuzzer) *fuzzCall {
		rows, half := f.size(9), f.size(20)
		q, k := f.in(rows, f.size(5), 2*half), f.in(rows, f.size(3), 2*half)
		table, pos := angles(f.Device, 2*half), make([]int32, rows)
		for i := range pos {
			pos[i] = int32(f.rng.IntN(50))
		}
		norms := kernels.HeadNorms{Query: f.in(2 * half), Eps: 1e-2}
		c := of("RotateHeads", nil, nil, &q, &k, &norms.Query)
		c.lists = append(c.lists, &pos)
		c.run = func() { f.B.RotateHeads(q, k, norms, pos, table) }
		return c
	},
	"MatMul": func(f *fuzzer) *fuzzCall {
		m, k, n := f.size(70), f.size(90), f.size(90)
		dtype := kernelstest.WeightTypes[f.rng.IntN(3)]
		v := kernelstest.Variants[f.rng.IntN(len(kernelstest.Variants))]
		x, y, w := f.place(f.B.Compute(), kernelstest.Factors(f.rng, dtype, m*k), m, k), f.in(m, n), f.Weight(f.rng, dtype, k, n)
		return of("MatMul", func() { f.B.MatMul(y, x, w, v.Alpha, v.Beta) }, refs{&y}, &x, &w)
	},
	"MatMulTA": func(f *fuzzer) *fuzzCall {
		m, k, n := f.size(70), f.size(90), f.size(90)
		v := kernelstest.Variants[f.rng.IntN(len(kernelstest.Variants))]
		x, y, z := f.in(k, m), f.in(m, n), f.in(k, n)
		return of("MatMulTA", func() { f.B.MatMulTA(y, x, z, v.Alpha, v.Beta) }, refs{&y}, &x, &z)
	},
	"Fill": func(f *fuzzer) *fuzzCall {
		y := f.out(f.size(3000))
		return of("Fill", func() { f.B.Fill(y, 1.5) }, refs{&y})
	},
	"Copy": func(f *fuzzer) *fuzzCall {
		n := f.size(3000)
		y, x := f.out(n), f.in(n)
		return of("Copy", func() { f.B.Copy(y, x) }, refs{&y}) // x may lie anywhere
	},
	"Gather": func(f *fuzzer) *fuzzCall {
		vocab, width, n := f.size(60), f.size(40), f.rng.IntN(50)
		table, y := f.Weight(f.rng, kernelstest.WeightTypes[f.rng.IntN(3)], vocab, width), f.out(n, width)
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = int32(f.rng.IntN(vocab))
		}
		c := of("Gather", func() { f.B.Gather(y, table, ids) }, refs{&y}, &table)
		c.lists = append(c.lists, &ids)
		return c
	},
	"CopyHead": func(f *fuzzer) *fuzzCall {
		rows, heads, dim := f.size(40), f.size(6), f.size(40)
		y, x, h := f.out(rows, dim), f.in(rows, heads, dim), []int{f.rng.IntN(heads)}
		c := of("CopyHead", func() { f.B.CopyHead(y, x, append(h, -1)[0]) }, refs{&y}, &x)
		c.counts = append(c.counts, &h)
		return c
	},
	"Add": func(f *fuzzer) *fuzzCall {
		n := f.size(3000)
		y, a, b := f.out(n), f.in(n), f.in(n)
		return of("Add", func() { f.B.Add(y, a, b) }, refs{&y}, &a, &b)
	},
	"Axpy": func(f *fuzzer) *fuzzCall {
		n := f.size(3000)
		y, x := f.in(n), f.in(n)
		return of("Axpy", func() { f.B.Axpy(y, -0.75, x) }, refs{&y}, &x)
	},
	"AddRows": func(f *fuzzer) *fuzzCall {
		rows, width, some := f.size(20), f.size(600), f.size(20)
		y, x := f.in(rows, width), f.in(some, width)
		to, weights := make([]int32, some), make([]float64, some)
		for i := range to {
			to[i], weights[i] = int32(f.rng.IntN(rows)), f.rng.Float64()
		}
		return of("AddRows", func() { f.B.AddRows(y, x, to, weights) }, refs{&y}, &x)
	},
	"Norm": func(f *fuzzer) *fuzzCall {
		rows, width := f.size(20), f.size(600)
		y, x, n := f.out(rows, width), f.in(rows, width), kernels.Norm{Weight: f.in(width), Eps: 1e-2}
		var add *kernels.Tensor
		c := of("Norm", nil, refs{&y}, &x, &n.Weight)
		if f.rng.IntN(2) == 0 {
			n.Bias = f.in(width)
			c.tensors = append(c.tensors, &n.Bias)
		}
		if f.rng.IntN(2) == 0 {
			add = f.in(rows, width)
			c.tensors, c.outputs = append(c.tensors, &add), append(c.outputs, &x)
		}
		c.run = func() { f.B.Norm(y, x, add, n) }
		return c
	},
	"NormGrad": func(f *fuzzer) *fuzzCall {
		rows, width := f.size(20), f.size(600)
		dx, x, dy, n := f.out(rows, width), f.in(rows, width), f.in(rows, width), kernels.Norm{Weight: f.in(width), Eps: 1e-2}
		if f.rng.IntN(2) == 0 {
			n.Bias = f.in(width)
		}
		return of("NormGrad", func() { f.B.NormGrad(dx, x, dy, n) }, refs{&dx}, &x, &n.Weight, &dy)
	},
	"RoPE": func(f *fuzzer) *fuzzCall {
		rows, heads, half := f.size(30), f.size(5), f.size(20)
		freqs := make([]float32, half)
		for i := range freqs {
			freqs[i] = f.rng.Float32()
		}
		table, pos := kernels.NewRoPETable(f.B, freqs, 50, 1), make([]int32, rows)
		for i := range pos {
			pos[i] = int32(f.rng.IntN(50))
		}
		y, x, inverse := f.out(rows, heads, 2*half), f.in(rows, heads, 2*half), f.rng.IntN(2) == 0
		if f.rng.IntN(2) == 0 {
			y = x
		}
		c := of("RoPE", func() { f.B.RoPE(y, x, pos, table, inverse) }, refs{&y}, &x)
		c.lists = append(c.lists, &pos)
		return c
	},
	"SiLUMul": func(f *fuzzer) *fuzzCall {
		n := f.size(3000)
		y, a, b := f.out(n), f.in(n), f.in(n)
		return of("SiLUMul", func() { f.B.SiLUMul(y, a, b) }, refs{&y}, &a, &b)
	},
	"SiLUMulGrad": func(f *fuzzer) *fuzzCall {
		n := f.size(3000)
		dg, du, g, u, dy := f.out(n), f.out(n), f.in(n), f.in(n), f.in(n)
		return of("SiLUMulGrad", func() { f.B.SiLUMulGrad(dg, du, g, u, dy) }, refs{&dg, &du}, &g, &u, &dy)
	},
	"GateMul": func(f *fuzzer) *fuzzCall {
		n := f.size(3000)
		y, a, b, act := f.out(n), f.in(n), f.in(n), kernels.Gate(f.rng.IntN(3))
		return of("GateMul", func() { f.B.GateMul(act, y, a, b) }, refs{&y}, &a, &b)
	},
	"GateMulGrad": func(f *fuzzer) *fuzzCall {
		n := f.size(3000)
		dg, du, g, u, dy, act := f.out(n), f.out(n), f.in(n), f.in(n), f.in(n), kernels.Gate(f.rng.IntN(3))
		return of("GateMulGrad", func() { f.B.GateMulGrad(act, dg, du, g, u, dy) }, refs{&dg, &du}, &g, &u, &dy)
	},
	"SoftCap": func(f *fuzzer) *fuzzCall {
		n := f.size(3000)
		y, x, limit := f.out(n), f.in(n), 1+f.rng.Float64()
		return of("SoftCap", func() { f.B.SoftCap(y, x, limit) }, refs{&y}, &x)
	},
	"GELU": func(f *fuzzer) *fuzzCall {
		n := f.size(3000)
		y, x := f.out(n), f.in(n)
		return of("GELU", func() { f.B.GELU(y, x) }, refs{&y}, &x)
	},
	"GELUGrad": func(f *fuzzer) *fuzzCall {
		n := f.size(3000)
		dx, x, dy := f.out(n), f.in(n), f.in(n)
		return of("GELUGrad", func() { f.B.GELUGrad(dx, x, dy) }, refs{&dx}, &x, &dy)
	},
	"MergeScores": func(f *fuzzer) *fuzzCall {
		h, n := f.size(6), f.size(300)
		acc, other := f.in(h, n), f.in(h, n)
		return of("MergeScores", func() { f.B.MergeScores(acc, other, 3, 4) }, refs{&acc}, &other)
	},
	"ScoreKL":  func(f *fuzzer) *fuzzCall { return f.loss("ScoreKL", f.B.ScoreKL) },
	"ScoreMSE": func(f *fuzzer) *fuzzCall { return f.loss("ScoreMSE", f.B.ScoreMSE) },
	"AdamW": func(f *fuzzer) *fuzzCall {
		n := f.size(3000)
		p, g, m, v := f.in(n), f.in(n), f.in(n), f.in(n)
		f.B.Fill(v, 0.5)
		step := kernels.AdamWStep{Beta1: 0.9, Beta2: 0.95, Correct1: 0.1, Correct2: 0.05, Epsilon: 1e-8, LearningRate: 0.01, WeightDecay: 0.1, GradScale: 0.5}
		return of("AdamW", func() { f.B.AdamW(p, g, m, v, step) }, refs{&p, &m, &v}, &g)
	},
	"SumSquares": func(f *fuzzer) *fuzzCall {
		x, sum := f.in(f.size(40_000)), 0.0
		c := of("SumSquares", func() { sum = f.B.SumSquares(x) }, nil, &x)
		c.value = func() []float64 { return []float64{sum} }
		return c
	},
	"Attention": func(f *fuzzer) *fuzzCall {
		s, a := f.attend(false)
		out, lse := f.out(s.Rows, s.Heads*s.Dim), f.out(s.Heads, s.Rows)
		if n := f.rng.IntN(4); n == 0 {
			out = nil
		} else if n == 1 {
			lse = nil
		}
		return f.attending(a, out != nil, of("Attention", func() { f.B.Attention(out, lse, a) }, refs{&out, &lse}))
	},
	"ObservedScores": func(f *fuzzer) *fuzzCall {
		s, a := f.attend(false)
		lse, scores := f.out(s.Heads, s.Rows), f.scores(s)
		f.B.Attention(nil, lse, a)
		return f.attending(a, false, of("ObservedScores", func() { f.B.ObservedScores(scores, lse, a) }, refs{&scores}, &lse))
	},
	"ObserveAttention": func(f *fuzzer) *fuzzCall {
		s, a := f.attend(false)
		out, lse, scores := f.out(s.Rows, s.Heads*s.Dim), f.out(s.Heads, s.Rows), f.scores(s)
		if f.rng.IntN(2) == 0 {
			out = nil
		}
		return f.attending(a, out != nil, of("ObserveAttention", func() { f.B.ObserveAttention(out, lse, scores, a) }, refs{&out, &lse, &scores}))
	},
	"AttentionGrad": func(f *fuzzer) *fuzzCall {
		s, a := f.attend(true)
		kv := len(s.Entries)
		out, lse, scores := f.out(s.Rows, s.Heads*s.Dim), f.out(s.Heads, s.Rows), f.scores(s)
		f.B.ObserveAttention(out, lse, scores, a)
		dq, dk, dv := f.out(s.Rows, s.Heads, s.Dim), f.out(s.Rows, kv, s.Dim), f.out(s.Rows, kv, s.Dim)
		dOut, dScore := s.Gradients(f.Device, f.rng, f.rng.IntN(3) > 0, f.rng.IntN(3) > 0)
		c := of("AttentionGrad", func() { f.B.AttentionGrad(dq, dk, dv, a, out, lse, scores, dOut, dScore) }, refs{&dq, &dk, &dv}, &dOut, &dScore)
		if dOut != nil { // it is read
			c.tensors = append(c.tensors, &out)
		}
		if dOut != nil || dScore != nil {
			c.tensors = append(c.tensors, &lse)
		}
		return f.attending(a, dOut != nil, c)
	},
	"Scores": func(f *fuzzer) *fuzzCall {
		entries := kernelstest.Ragged(f.rng, 100)
		width := slices.Max(entries) + 1
		log, _ := f.LogScores(f.rng, entries, f.size(4), width)
		terms := []kernels.ScoreTerm{{LogScore: log, Kernel: 5, Tail: f.rng.IntN(9)}}
		scores := f.out(len(entries), width)
		c := of("Scores", nil, refs{&scores}, &terms[0].LogScore)
		c.run, c.counts = func() { f.sel().Scores(scores, entries, terms, false) }, append(c.counts, &entries)
		return c
	},
	"MeanScores": func(f *fuzzer) *fuzzCall {
		heads := f.size(3)
		entries := slices.Repeat([]int{f.rng.IntN(100)}, heads*f.size(3))
		scores := f.in(len(entries), entries[0]+1)
		c := of("MeanScores", func() { f.sel().MeanScores(scores, entries, heads, f.rng.IntN(2) == 0) }, refs{&scores})
		c.counts = append(c.counts, &entries)
		return c
	},
	"PoolScores": func(f *fuzzer) *fuzzCall {
		entries := kernelstest.Ragged(f.rng, 100)
		from, to := f.in(len(entries), slices.Max(entries)+1), f.out(len(entries), slices.Max(entries)+1)
		kernel, tail := 2*f.rng.IntN(9)+1, f.rng.IntN(20)
		c := of("PoolScores", func() { f.sel().PoolScores(to, from, entries, kernel, tail) }, refs{&to}, &from)
		c.counts = append(c.counts, &entries)
		return c
	},
	"AddScores": func(f *fuzzer) *fuzzCall {
		entries := kernelstest.Ragged(f.rng, 100)
		width, known := slices.Max(entries)+1, slices.Clone(entries)
		log, _ := f.LogScores(f.rng, entries, f.size(4), width)
		sums := f.in(len(entries), width)
		c := of("AddScores", func() { f.sel().AddScores(sums, entries, known, log) }, refs{&sums}, &log)
		c.counts = append(c.counts, &entries, &known)
		return c
	},
	"CarryScores": func(f *fuzzer) *fuzzCall {
		known := kernelstest.Ragged(f.rng, 100)
		scores, sums := f.in(len(known), slices.Max(known)), f.in(len(known), slices.Max(known)+2)
		c := of("CarryScores", func() { f.sel().CarryScores(scores, sums, known) }, refs{&scores}, &sums)
		c.counts = append(c.counts, &known)
		return c
	},
	"MaxScores": func(f *fuzzer) *fuzzCall {
		n := f.size(900)
		acc, other := f.in(n), f.in(n)
		return of("MaxScores", func() { f.sel().MaxScores(acc, other) }, refs{&acc}, &other)
	},
	"KeyScores": func(f *fuzzer) *fuzzCall {
		entries, dim := kernelstest.Ragged(f.rng, 60), f.size(40)
		var past []kernels.KV
		c := of("KeyScores", nil, nil)
		for _, n := range entries {
			past = append(past, kernels.KV{K: f.in(n, dim)})
		}
		for h := range past {
			c.tensors = append(c.tensors, &past[h].K)
		}
		scores := f.out(len(entries), slices.Max(entries))
		c.tensors, c.run = append(c.tensors, &scores), func() { f.sel().KeyScores(scores, past) }
		return c
	},
	"Select": func(f *fuzzer) *fuzzCall {
		entries := kernelstest.Ragged(f.rng, 100)
		scores, budgets := f.in(len(entries), slices.Max(entries)+1), slices.Repeat([]int{7}, len(entries))
		c := of("Select", func() { f.sel().Select(scores, entries, budgets, 2, 3).Indices() }, nil, &scores)
		c.counts = append(c.counts, &entries, &budgets)
		return c
	},
	"ShareBudget": func(f *fuzzer) *fuzzCall {
		entries := kernelstest.Ragged(f.rng, 100)
		scores, own := f.in(len(entries), slices.Max(entries)+1), slices.Repeat([]int{7}, len(entries))
		c := of("ShareBudget", func() { f.sel().ShareBudget(scores, entries, own, 2, 3, 20) }, nil, &scores)
		c.counts = append(c.counts, &entries, &own)
		return c
	},
	"Compact": func(f *fuzzer) *fuzzCall {
		keep := [][]int32{{0, 2, 3}, {1}, nil}
		dim := f.size(20)
		var src, dst []kernels.KV
		for h := range keep {
			src = append(src, kernels.KV{K: f.in(4, dim), V: f.in(4, dim)})
			dst = append(dst, kernels.KV{K: f.out(len(keep[h]), dim), V: f.out(len(keep[h]), dim)})
		}
		s := kernels.HostSelection(keep)
		c := of("Compact", func() { f.sel().Compact(dst, src, s) }, nil)
		for h := range keep {
			c.tensors = append(c.tensors, &dst[h].K, &dst[h].V, &src[h].K, &src[h].V)
		}
		return c
	},
	"Pick": func(f *fuzzer) *fuzzCall {
		s := kernels.HostSelection([][]int32{{0, 2, 3}, {1}, nil})
		to, from := f.out(3, 3), f.in(3, 5)
		if f.rng.IntN(2) == 0 { // moments
			to, from = f.place(kernels.F64, make([]float64, 27), 3, 3, 3), f.place(kernels.F64, make([]float64, 45), 3, 3, 5)
		}
		return of("Pick", func() { f.sel().Pick(to, from, s) }, refs{&to}, &from)
	},
	"Compose": func(f *fuzzer) *fuzzCall {
		s, base := kernels.HostSelection([][]int32{{0, 2, 3}, {1}, nil}), []int{9, 9, 9}
		c := of("Compose", func() { f.sel().Compose(s, s, base).Indices() }, nil)
		c.counts = append(c.counts, &base)
		return c
	},
	"PageBounds": func(f *fuzzer) *fuzzCall {
		p, keys, _ := f.pages(f.size(40), 2)
		from := make([]int, len(p.Heads))
		c := of("PageBounds", func() { f.sel().PageBounds(p, keys, from) }, nil)
		for h := range keys {
			c.tensors = append(c.tensors, &keys[h].K, &p.Heads[h].Bounds)
		}
		c.counts = append(c.counts, &from)
		return c
	},
	"EstimatePages": func(f *fuzzer) *fuzzCall {
		group, dim := f.size(3), f.size(40)
		p, _, width := f.pages(dim, 2)
		kvHeads := len(p.Heads)
		scores, probabilities, q := f.out(kvHeads, width), f.out(kvHeads*group, width), f.in(1, kvHeads*group, dim)
		how := kernels.Estimate(f.rng.IntN(3))
		c := of("EstimatePages", func() { f.sel().EstimatePages(scores, probabilities, q, p, how, nil) }, refs{&scores, &probabilities}, &q)
		for h := range p.Heads {
			f.B.Fill(p.Heads[h].Bounds, 1)
		}
		return c
	},
	"SelectPages": func(f *fuzzer) *fuzzCall {
		p, _, width := f.pages(1, 1)
		scores, ids := f.in(len(p.Heads), width), f.B.Alloc(kernels.I32, len(p.Heads), 200)
		return of("SelectPages", func() { f.sel().SelectPages(ids, scores, p).Indices() }, nil, &scores)
	},
	"AddValues": func(f *fuzzer) *fuzzCall {
		dim := f.size(40)
		p, values, _ := f.pages(dim, 1)
		from, sums := make([]int, len(p.Heads)), f.Stored(kernels.F64, make([]float64, len(p.Heads)*dim), len(p.Heads), dim)
		c := of("AddValues", func() { f.sel().AddValues(sums, p, values, from) }, nil, &sums)
		for h := range values {
			c.tensors = append(c.tensors, &values[h].V)
		}
		c.counts = append(c.counts, &from)
		return c
	},
	"ShareMean": func(f *fuzzer) *fuzzCall {
		dim, group := f.size(40), f.size(3)
		p, _, _ := f.pages(dim, 1)
		width, kvHeads := 0, len(p.Heads)
		chosen := make([][]int32, kvHeads)
		for h := range p.Heads {
			x := &p.Heads[h]
			x.Size, width = 1, max(width, x.Entries)
			for j := range min(x.Want, x.Entries-x.From) {
				chosen[h] = append(chosen[h], int32(x.From+j))
			}
		}
		s := kernels.HostSelection(chosen)
		out, probabilities, sums := f.in(1, kvHeads*group*dim), f.in(kvHeads*group, width), f.Stored(kernels.F64, kernelstest.Random(f.rng, kvHeads*dim, 1), kvHeads, dim)
		return of("ShareMean", func() { f.sel().ShareMean(out, probabilities, s, sums, p) }, refs{&out}, &probabilities, &sums)
	},
	"Draw": func(f *fuzzer) *fuzzCall {
		rows := f.size(4)
		logits := f.in(rows, f.size(200))
		return of("Draw", func() { f.B.Draw(logits, make([]kernels.Draw, rows)) }, nil, &logits)
	},
}

// pages draws what a step chooses from, with pairs of F32, and the most pages of a head.
func (f *fuzzer) pages(dim, bounds int) (*kernels.PageHeads, []kernels.KV, int) {
	p, width := &kernels.PageHeads{Heads: make([]kernels.PageHead, f.size(4))}, 0
	var past []kernels.KV
	for h := range p.Heads {
		n := f.size(90)
		x := kernels.PageHead{From: f.rng.IntN(n), Entries: n, Want: f.size(n), Size: f.size(9), Components: f.rng.IntN(dim + 1)}
		x.Bounds = f.B.Alloc(kernels.F32, bounds, dim, x.Pages()+f.rng.IntN(3))
		p.Heads[h], width = x, max(width, x.Pages())
		past = append(past, kernels.KV{K: f.in(n, dim), V: f.in(n, dim)})
	}
	return p, past, width
}

func (f *fuzzer) sel() kernels.Selector { return f.B.Selector() }

func (f *fuzzer) loss(op string, loss func(l, d, s, t *kernels.Tensor, weight float64)) *fuzzCall {
	h, n := f.size(6), f.size(300)
	sum, grad, log, t := f.Stored(kernels.F64, []float64{0.5}), f.out(h, n), f.in(h, n), f.in(h, n)
	c := of(op, func() { loss(sum, grad, log, t, 0.25) }, refs{&sum, &grad}, &log, &t)
	c.tensors = c.tensors[1:] // of the loss one element is used, whatever else it holds
	return c
}

// attend draws rows that attend: to a past of either type.
func (f *fuzzer) attend(own bool) (kernelstest.AttendShape, *kernels.Attend) {
	s := kernelstest.AttendShape{Rows: f.size(12), Dim: 2 * f.size(24), Own: own || f.rng.IntN(2) == 0, ExtraWidth: f.rng.IntN(3)}
	kv := f.size(3)
	s.Heads = kv * f.size(4)
	for range kv {
		n := f.rng.IntN(90)
		if !s.Own {
			n += s.Rows
		}
		s.Entries = append(s.Entries, n)
	}
	if f.rng.IntN(3) == 0 {
		s.Window, s.Evicted = 1+f.rng.IntN(60), true
	}
	a := s.Attend(f.Device, f.rng)
	if f.rng.IntN(3) == 0 {
		a = kernelstest.Halved(f.Device, a, f.B.Compute() == kernels.F32)
	}
	return s, a
}

func (f *fuzzer) scores(s kernelstest.AttendShape) *kernels.Tensor {
	t := f.out(s.Heads, slices.Max(s.Entries)+s.ExtraWidth)
	f.B.Fill(t, kernelstest.Unwritten)
	return t
}

// attending adds what an Attend refers to.
func (f *fuzzer) attending(a *kernels.Attend, values bool, c *fuzzCall) *fuzzCall {
	c.tensors = append(c.tensors, &a.Q, &a.K)
	if values { // they are read
		c.tensors = append(c.tensors, &a.V)
	}
	for h := range a.Past {
		c.tensors = append(c.tensors, &a.Past[h].K)
		if values {
			c.tensors = append(c.tensors, &a.Past[h].V)
		}
	}
	c.tol = 1e-4
	return c
}

// spoil changes one argument and says how.
func (f *fuzzer) spoil(c *fuzzCall) string {
	var slots refs
	for _, t := range c.tensors {
		if *t != nil {
			slots = append(slots, t)
		}
	}
	at := f.rng.IntN(len(slots) + len(c.lists) + len(c.counts))
	if at -= len(slots); at < 0 {
		slot := slots[at+len(slots)]
		t := *slot
		switch f.rng.IntN(4) {
		case 0:
			*slot = f.B.Alloc(kernels.I32, t.Shape...)
			return fmt.Sprintf("wrong type of %v", t.Shape)
		case 1:
			if f.B.Compute() == kernels.F32 {
				*slot = kernels.NewTensor(t.DType, t.Shape...)
			}
			return fmt.Sprintf("wrong memory of %v", t.Shape)
		}
		shape := slices.Clone(t.Shape)
		if len(shape) == 0 {
			return "nothing"
		}
		i := f.rng.IntN(len(shape))
		shape[i] = max(0, shape[i]+[]int{-1, 1, 3, -shape[i]}[f.rng.IntN(4)])
		*slot = f.B.Place(kernels.NewTensor(t.DType, shape...))
		return fmt.Sprintf("shape %v instead of %v", shape, t.Shape)
	}
	if at < len(c.lists) {
		list := c.lists[at]
		if len(*list) == 0 || f.rng.IntN(3) == 0 {
			*list = append(*list, 0)
			return "an index more"
		}
		i := f.rng.IntN(len(*list))
		(*list)[i] = []int32{-1, 1 << 20}[f.rng.IntN(2)]
		return fmt.Sprintf("index %d", (*list)[i])
	}
	list := c.counts[at-len(c.lists)]
	i := f.rng.IntN(len(*list))
	switch f.rng.IntN(3) {
	case 0:
		*list = (*list)[:len(*list)-1]
		return "a number less"
	default:
		(*list)[i] = []int{-1, 1 << 20}[f.rng.IntN(2)]
		return fmt.Sprintf("number %d", (*list)[i])
	}
}

// refused runs a call and returns what it panicked with.
func refused(c *fuzzCall) (reason any) {
	defer func() { reason = recover() }()
	c.run()
	return nil
}

// composed are operations that may be refused by one that they are composed of.
var composed = []string{"AddRows", "LinearGroup", "GatedLinear", "RotateHeads"}

// unfuzzed are refused by tests of their own: TestLowRank, TestMultiTensorRefuse,
// TestCUDACopyPairs, TestCUDALowRank and TestCUDASelectedAttention; ObservedPeaks is composed of ObservedScores.
var unfuzzed = []string{"ObservedPeaks",
	"LowRank", "LowRankGrad", "AddLowRank", "MultiFill", "MultiAxpy", "MultiSumSquares", "MultiAdamW", "CopyPairs", "AttentionSelected", "RoPETable",
	"FewExperts", "TakesExperts",
}

// TestCUDAFuzz calls every operation with random arguments, one of them wrong in half
// of the cases. What is computed is what the reference computes; what does not fit
// panics with the operation's name, and neither faults nor leaks memory nor touches
// what lies beside its tensors. GLIMPSE_FUZZ_SEED sets another seed.
func TestCUDAFuzz(t *testing.T) {
	d, exact := openCUDA(t), kernelstest.Open(t, "reference64")
	seed := uint64(1)
	if s := os.Getenv("GLIMPSE_FUZZ_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("GLIMPSE_FUZZ_SEED=%d", seed)
	ops := make([]string, 0, len(fuzzOps))
	for op := range fuzzOps {
		ops = append(ops, op)
	}
	slices.Sort(ops)
	selector := reflect.TypeFor[kernels.Selector]() // a Selector is a Backend
	for i := range selector.NumMethod() {
		if name := selector.Method(i).Name; !slices.Contains(ops, name) && !slices.Contains(unfuzzed, name) && kernelstest.Contract[name] == nil {
			t.Errorf("%s is not among the operations", name)
		}
	}
	const cases = 290
	refusals := 0
	before := cuda.InUse(d.B)
	for i := range cases {
		op := ops[i%len(ops)]
		name := fmt.Sprintf("GLIMPSE_FUZZ_SEED=%d case %d: %s", seed, i, op)
		_, held := reflect.TypeFor[kernels.Backend]().MethodByName(op)
		func() {
			draw := func(d kernelstest.Device) (*fuzzer, *fuzzCall, string) {
				f := &fuzzer{Device: d, rng: rand.New(rand.NewPCG(seed, uint64(i)))}
				c := fuzzOps[op](f)
				how := ""
				if i/len(ops)%2 == 1 {
					how = f.spoil(c)
				}
				return f, c, how
			}
			f, c, how := draw(d)
			reason := refused(c)
			err, _ := reason.(error)
			if fault := (*kernels.DeviceError)(nil); errors.As(err, &fault) {
				t.Fatalf("%s: %s: the device fails: %v", name, how, fault)
			}
			if reason != nil {
				refusals++
				want := "kernels: " + op
				if slices.Contains(composed, op) {
					want = "kernels: "
				}
				if text := fmt.Sprint(reason); !strings.HasPrefix(text, want) {
					t.Errorf("%s: %s: panics with %q, want the operation's name", name, how, text)
				}
			}
			for _, s := range f.slacks {
				for _, v := range s.Float64s() {
					if v != slack {
						t.Fatalf("%s: %s: something beside a tensor was overwritten", name, how)
					}
				}
			}
			if strings.HasPrefix(how, "wrong") {
				if reason == nil {
					t.Errorf("%s: %s: is accepted", name, how)
				}
				return
			}
			if !held {
				if how == "" && reason != nil {
					t.Errorf("%s: right arguments are refused: %v", name, reason)
				}
				return // held against the host by tests of their own
			}
			_, want, _ := draw(exact)
			if wanted := refused(want); (wanted == nil) != (reason == nil) {
				t.Errorf("%s: %s: %v, the reference: %v", name, how, reason, wanted)
				return
			} else if wanted != nil {
				return
			}
			for j, out := range c.outputs {
				if *out != nil {
					w := (*want.outputs[j]).Float64s()
					compare.Close(t, fmt.Sprintf("%s %s: result %d", name, how, j), (*out).Float64s(), w, max(c.tol, 2e-5), compare.Floor(max(1, kernelstest.Magnitude(w))), compare.EqualInf())
				}
			}
			if c.value != nil {
				compare.Close(t, name+" "+how, c.value(), want.value(), 1e-5, compare.Floor(1))
			}
		}()
		if after := cuda.InUseAbove(d.B, before); after != before {
			t.Fatalf("%s: %d bytes of device memory are in use, %d before", name, after, before)
		}
	}
	t.Logf("%d cases, %d refused", cases, refusals)
	if refusals < cases/8 {
		t.Errorf("%d of %d calls were refused: nothing wrong was tried", refusals, cases)
	}
}
