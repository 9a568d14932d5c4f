package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"

	"glimpse/kernels"
)

// variants are factors of a product and of what the output held before.
var variants = []struct{ alpha, beta float64 }{{1, 0}, {-0.75, 0}, {1, 1}, {0.5, -1.5}, {0, 0}, {0, 1}}

// target is the output of a product: not clean where it must not be read.
func (d device) target(rng *rand.Rand, beta float64, shape ...int) *kernels.Tensor {
	if beta == 0 {
		return d.garbage(shape...)
	}
	n := 1
	for _, s := range shape {
		n *= s
	}
	return d.tensor(random(rng, n, 1), shape...)
}

// productShapes: rows, inner, columns. Single rows and columns, tails of every tile,
// depths beyond one panel, few rows and columns that are deep enough to be split.
var productShapes = [][3]int{
	{1, 1, 1}, {1, 64, 96}, {1, 7, 33}, {2, 321, 5}, {7, 16, 31}, {8, 40, 70}, {9, 40, 70},
	{13, 33, 33}, {65, 130, 67}, {64, 641, 32}, {100, 3, 1}, {5, 1, 100}, {10, 1024, 1026}, {16, 9000, 16}, {16, 600, 14},
}

// productCases are the matrix products, of all weight types and factors.
func productCases(shapes [][3]int) []conformance {
	var cases []conformance
	for i, s := range shapes {
		m, k, n := s[0], s[1], s[2]
		for j, w := range weightTypes {
			v := variants[(i+j)%len(variants)]
			bias := (i+j)%2 == 0
			name := fmt.Sprintf("%dx%dx%d %s alpha=%v beta=%v bias=%v", m, k, n, w, v.alpha, v.beta, bias)
			cases = append(cases, conformance{op: "Linear", name: name, run: func(d device, rng *rand.Rand) []output {
				x, weight, y := d.tensor(factors(rng, w, m*k), m, k), d.weight(rng, w, n, k), d.target(rng, v.beta, m, n)
				var b *kernels.Tensor
				if bias {
					b = d.tensor(random(rng, n, 1), n)
				}
				d.b.Linear(y, x, weight, b, v.alpha, v.beta)
				return []output{{name: "y", values: y.Float64s()}}
			}}, conformance{op: "MatMul", name: name, run: func(d device, rng *rand.Rand) []output {
				x, weight, y := d.tensor(factors(rng, w, m*k), m, k), d.weight(rng, w, k, n), d.target(rng, v.beta, m, n)
				d.b.MatMul(y, x, weight, v.alpha, v.beta)
				return []output{{name: "c", values: y.Float64s()}}
			}})
		}
		v := variants[i%len(variants)]
		cases = append(cases, conformance{op: "MatMulTA", name: fmt.Sprintf("%dx%dx%d alpha=%v beta=%v", m, k, n, v.alpha, v.beta), run: func(d device, rng *rand.Rand) []output {
			x, z, y := d.tensor(random(rng, k*m, 1), k, m), d.tensor(random(rng, k*n, 1), k, n), d.target(rng, v.beta, m, n)
			d.b.MatMulTA(y, x, z, v.alpha, v.beta)
			return []output{{name: "c", values: y.Float64s()}}
		}})
	}
	return cases
}

// factors are the other operand of a product by weights of the given type: where a
// backend may round it to bfloat16, it needs no rounding.
func factors(rng *rand.Rand, weights kernels.DType, n int) []float64 {
	x := random(rng, n, 1)
	if weights == kernels.BF16 {
		for i, v := range x {
			x[i] = float64(kernels.BF16ToF32(kernels.F32ToBF16(float32(v))))
		}
	}
	return x
}

// lengths are extents of element-wise operations: tails of vectors, and more than
// one thread's share.
var lengths = []int{1, 3, 15, 16, 17, 100, 40_001}

// rowShape is rows that are normalised.
type rowShape struct {
	rows, width int
	scale, mean float64
}

var rowShapes = []rowShape{{1, 1, 1, 0}, {1, 64, 1, 0}, {3, 17, 1e-2, 1}, {3, 17, 1e-4, 0}, {200, 100, 30, -5}, {2, 33, 0, 0}, {2, 700, 1, 0}, {9, 700, 1, 0}}

// ropeShapes: rows, heads, dim, rotated dimensions.
var ropeShapes = [][4]int{{1, 1, 2, 2}, {4, 3, 6, 6}, {70, 4, 64, 64}, {5, 3, 16, 12}, {9, 2, 64, 16}}

// elementCases are the operations on rows and elements.
func elementCases(lengths []int, rowShapes []rowShape, ropeShapes [][4]int) []conformance {
	var cases []conformance
	add := func(op, name string, run func(d device, rng *rand.Rand) []output) {
		cases = append(cases, conformance{op: op, name: name, run: run})
	}
	const tiny = 1e-30 // errors relative to every single element
	for _, n := range lengths {
		size := fmt.Sprint(n)
		add("Fill", size, func(d device, _ *rand.Rand) []output {
			y := d.garbage(n)
			d.b.Fill(y, -1.5)
			return []output{{"y", y.Float64s(), tiny}}
		})
		add("Copy", size, func(d device, rng *rand.Rand) []output {
			y := d.garbage(n)
			d.b.Copy(y, d.tensor(random(rng, n, 1), n))
			return []output{{"y", y.Float64s(), tiny}}
		})
		add("Add", size, func(d device, rng *rand.Rand) []output {
			a, b, y := d.tensor(random(rng, n, 1), n), d.tensor(random(rng, n, 1), n), d.garbage(n)
			d.b.Add(y, a, b)
			out := []output{{"y", y.Float64s(), 1}}
			d.b.Add(a, a, b)
			out = append(out, output{"y is a", a.Float64s(), 1})
			d.b.Add(b, y, b)
			out = append(out, output{"y is b", b.Float64s(), 1})
			d.b.Add(y, y, y)
			return append(out, output{"y is a and b", y.Float64s(), 1})
		})
		add("Axpy", size, func(d device, rng *rand.Rand) []output {
			x, y := d.tensor(random(rng, n, 1), n), d.tensor(random(rng, n, 1), n)
			d.b.Axpy(y, -0.25, x)
			return []output{{"y", y.Float64s(), 1}}
		})
		add("SiLUMul", size, func(d device, rng *rand.Rand) []output {
			gate, up, y := d.tensor(gates(rng, n), n), d.tensor(random(rng, n, 1), n), d.garbage(n)
			d.b.SiLUMul(y, gate, up)
			return []output{{"y", y.Float64s(), 1e-3}}
		})
		add("SiLUMulGrad", size, func(d device, rng *rand.Rand) []output {
			gate, up, dy := d.tensor(gates(rng, n), n), d.tensor(random(rng, n, 1), n), d.tensor(random(rng, n, 1), n)
			dgate, dup := d.garbage(n), d.garbage(n)
			d.b.SiLUMulGrad(dgate, dup, gate, up, dy)
			return []output{{"dgate", dgate.Float64s(), 1e-2}, {"dup", dup.Float64s(), 1e-3}}
		})
		add("GELU", size, func(d device, rng *rand.Rand) []output {
			y := d.garbage(n)
			d.b.GELU(y, d.tensor(gates(rng, n), n))
			return []output{{"y", y.Float64s(), 1e-3}}
		})
		add("GELUGrad", size, func(d device, rng *rand.Rand) []output {
			x, dy, dx := d.tensor(gates(rng, n), n), d.tensor(random(rng, n, 1), n), d.garbage(n)
			d.b.GELUGrad(dx, x, dy)
			return []output{{"dx", dx.Float64s(), 1e-3}}
		})
		add("SumSquares", size, func(d device, rng *rand.Rand) []output {
			return []output{{"sum", []float64{d.b.SumSquares(d.tensor(random(rng, n, 1), n))}, tiny}}
		})
		add("MergeScores", size, func(d device, rng *rand.Rand) []output {
			acc, other := random(rng, n, 20), random(rng, n, 20)
			for i := range acc { // columns that one side or none has seen
				if i%3 == 1 {
					acc[i] = math.Inf(-1)
				}
				if i%5 == 1 {
					other[i] = math.Inf(-1)
				}
			}
			y := d.tensor(acc, n)
			d.b.MergeScores(y, d.tensor(other, n), 7, 2)
			return []output{{"acc", y.Float64s(), 1}}
		})
	}
	for _, dtype := range append([]kernels.DType{kernels.F64}, weightTypes...) {
		add("Gather", dtype.String(), func(d device, rng *rand.Rand) []output {
			table, y := d.weight(rng, dtype, 9, 5, 3), d.garbage(6, 5, 3)
			d.b.Gather(y, table, []int32{8, 0, 3, 3, 7, 0})
			none := d.garbage(0, 15)
			d.b.Gather(none, table, nil)
			return []output{{"y", y.Float64s(), tiny}, {"no rows", none.Float64s(), tiny}}
		})
	}
	add("Gather", "in place", func(d device, rng *rand.Rand) []output {
		table := d.tensor(random(rng, 40*7, 1), 40, 7)
		ids := []int32{0, 1, 4, 5, 20, 39}
		d.b.Gather(table.Rows(0, len(ids)), table, ids)
		return []output{{"table", table.Float64s(), tiny}}
	})
	add("CopyHead", "", func(d device, rng *rand.Rand) []output {
		const rows, heads, dim = 5, 3, 6
		x := d.tensor(random(rng, rows*heads*dim, 1), rows, heads, dim)
		var out []output
		for h := range heads {
			y := d.garbage(rows, dim)
			d.b.CopyHead(y, x, h)
			out = append(out, output{fmt.Sprint("head ", h), y.Float64s(), tiny})
		}
		return out
	})
	for _, s := range rowShapes {
		name := fmt.Sprintf("%dx%d scale=%v mean=%v", s.rows, s.width, s.scale, s.mean)
		add("RMSNorm", name, func(d device, rng *rand.Rand) []output {
			x, w, y := d.tensor(random(rng, s.rows*s.width, s.scale), s.rows, s.width), d.tensor(random(rng, s.width, 1), s.width), d.garbage(s.rows, s.width)
			d.b.RMSNorm(y, x, w, 1e-5)
			return []output{{name: "y", values: y.Float64s()}}
		})
		add("RMSNormGrad", name, func(d device, rng *rand.Rand) []output {
			n := s.rows * s.width
			x, w := d.tensor(random(rng, n, s.scale), s.rows, s.width), d.tensor(random(rng, s.width, 1), s.width)
			dy, dx := d.tensor(random(rng, n, 1), s.rows, s.width), d.garbage(s.rows, s.width)
			d.b.RMSNormGrad(dx, x, w, dy, 1e-5)
			values := dx.Float64s()
			return []output{{"dx", values, max(1, magnitude(values))}} // of one column it is all cancellation
		})
		rows := func(d device, rng *rand.Rand) *kernels.Tensor {
			x := random(rng, s.rows*s.width, s.scale)
			for i := range x {
				x[i] += s.mean
			}
			return d.tensor(x, s.rows, s.width)
		}
		// Digits of x that the mean takes away are lost to float32.
		cancelled := max(1, math.Abs(s.mean)/max(s.scale, 1e-3))
		add("LayerNorm", name, func(d device, rng *rand.Rand) []output {
			x, y := rows(d, rng), d.garbage(s.rows, s.width)
			d.b.LayerNorm(y, x, d.tensor(random(rng, s.width, 1), s.width), d.tensor(random(rng, s.width, 1), s.width), 1e-5)
			return []output{{"y", y.Float64s(), cancelled}}
		})
		add("LayerNormGrad", name, func(d device, rng *rand.Rand) []output {
			x, w := rows(d, rng), d.tensor(random(rng, s.width, 1), s.width)
			dy, dx := d.tensor(random(rng, s.rows*s.width, 1), s.rows, s.width), d.garbage(s.rows, s.width)
			d.b.LayerNormGrad(dx, x, w, dy, 1e-5)
			values := dx.Float64s()
			return []output{{"dx", values, max(1, magnitude(values)) * cancelled}} // of one column it is all cancellation
		})
	}
	for _, s := range ropeShapes {
		add("RoPE", fmt.Sprintf("rows=%d/heads=%d/dim=%d/rotated=%d", s[0], s[1], s[2], s[3]), func(d device, rng *rand.Rand) []output {
			rows, heads, dim := s[0], s[1], s[2]
			freqs := make([]float32, s[3]/2)
			for i := range freqs {
				freqs[i] = float32(math.Pow(10000, -2*float64(i)/float64(dim)))
			}
			table := kernels.NewRoPETable(d.b, freqs, 300, 1)
			pos := make([]int32, rows)
			for i := range pos {
				pos[i] = int32(rng.IntN(300)) // in no order
			}
			x := d.tensor(random(rng, rows*heads*dim, 1), rows, heads, dim)
			before := x.Float64s()
			d.b.RoPE(x, pos, table, false)
			out := []output{{name: "rotated", values: x.Float64s()}}
			d.b.RoPE(x, pos, table, true)
			d.b.Axpy(x, -1, d.tensor(before, rows, heads, dim))
			return append(out, output{"rotated back, minus the original", x.Float64s(), 1})
		})
	}
	return cases
}

// gates are inputs of SiLU with some at which exponentials overflow.
func gates(rng *rand.Rand, n int) []float64 {
	x := random(rng, n, 3)
	for i := range x {
		switch rng.IntN(12) {
		case 0:
			x[i] = float64(rng.IntN(2)*2-1) * 1e4
		case 1:
			x[i] *= 30
		}
	}
	return x
}

// lossShapes: heads, entries.
var lossShapes = [][2]int{{1, 1}, {2, 7}, {3, 100}, {4, 1500}}

// learningCases are the losses and the optimiser.
func learningCases(shapes [][2]int, lengths []int) []conformance {
	var cases []conformance
	for _, s := range shapes {
		heads, n := s[0], s[1]
		name := fmt.Sprintf("heads=%d/entries=%d", heads, n)
		// targets are logarithms, of heads that attend less and less; some are −Inf, and
		// of the last of several heads all.
		targets := func(d device, rng *rand.Rand) *kernels.Tensor {
			t := make([]float64, heads*n)
			for i := range t {
				t[i] = math.Inf(-1)
				if rng.IntN(4) > 0 && (heads == 1 || i < (heads-1)*n) {
					t[i] = float64(float32(4*rng.NormFloat64() - 8 - 33*float64(i/n)))
				}
			}
			if heads == 1 {
				t[0] = -0.5
			}
			return d.tensor(t, heads, n)
		}
		loss := func(f func(b kernels.Backend, loss, grad, scores, target *kernels.Tensor)) func(d device, rng *rand.Rand) []output {
			return func(d device, rng *rand.Rand) []output {
				logs := random(rng, heads*n, 2)
				for i := range logs {
					logs[i] -= 6
				}
				sum, grad := d.stored(kernels.F64, []float64{0.25}), d.garbage(heads, n) // the loss is added to
				f(d.b, sum, grad, d.tensor(logs, heads, n), targets(d, rng))
				return []output{{name: "loss", values: sum.Float64s()}, {name: "gradient", values: grad.Float64s()}}
			}
		}
		cases = append(cases,
			conformance{op: "ScoreKL", name: name, run: loss(func(b kernels.Backend, l, g, s, t *kernels.Tensor) { b.ScoreKL(l, g, s, t, 0.125) })},
			conformance{op: "ScoreMSE", name: name, run: loss(func(b kernels.Backend, l, g, s, t *kernels.Tensor) { b.ScoreMSE(l, g, s, t, 8) })})
	}
	for _, n := range lengths {
		cases = append(cases, conformance{op: "AdamW", name: fmt.Sprint(n), run: func(d device, rng *rand.Rand) []output {
			p, m, v := d.tensor(random(rng, n, 1), n), d.tensor(make([]float64, n), n), d.tensor(make([]float64, n), n)
			for step := 1; step <= 3; step++ {
				d.b.AdamW(p, d.tensor(random(rng, n, 0.1), n), m, v, kernels.AdamWStep{
					Beta1: 0.9, Beta2: 0.95, Correct1: 1 - math.Pow(0.9, float64(step)), Correct2: 1 - math.Pow(0.95, float64(step)),
					Epsilon: 1e-8, LearningRate: 0.01, WeightDecay: 0.1, GradScale: 0.5,
				})
			}
			return []output{{"p", p.Float64s(), 1}, {name: "m", values: m.Float64s()}, {name: "v", values: v.Float64s()}}
		}})
	}
	return cases
}
