package kernelstest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"glimpse/kernels"
	"glimpse/kernels/formats"
)

// Variants are factors of a product and of the output's old content.
var Variants = []struct{ Alpha, Beta float64 }{{1, 0}, {-0.75, 0}, {1, 1}, {0.5, -1.5}, {0, 0}, {0, 1}}

// Target is the output of a product: not clean where it must not be read.
func (d Device) Target(rng *rand.Rand, beta float64, shape ...int) *kernels.Tensor {
	if beta == 0 {
		return d.Garbage(shape...)
	}
	return d.Drawn(rng, shape...)
}

// productShapes: rows, inner, columns. Single rows and columns, tails of every tile,
// depths beyond one panel, few rows and columns that are deep enough to be split.
var productShapes = [][3]int{
	{1, 1, 1}, {1, 64, 96}, {1, 7, 33}, {2, 321, 5}, {7, 16, 31}, {8, 40, 70}, {9, 40, 70},
	{13, 33, 33}, {65, 130, 67}, {64, 641, 32}, {100, 3, 1}, {5, 1, 100}, {10, 1024, 1026}, {16, 9000, 16}, {16, 600, 14},
}

// ProductCases are the matrix products, of all weight types and factors.
func ProductCases(shapes [][3]int) []Conformance {
	var cases []Conformance
	for i, s := range shapes {
		m, k, n := s[0], s[1], s[2]
		for j, w := range WeightTypes {
			v := Variants[(i+j)%len(Variants)]
			bias := (i+j)%2 == 0
			name := fmt.Sprintf("%dx%dx%d %s alpha=%v beta=%v bias=%v", m, k, n, w, v.Alpha, v.Beta, bias)
			cases = append(cases, Conformance{Op: "Linear", Name: name, run: func(d Device, rng *rand.Rand) []Output {
				x, weight, y := d.Tensor(Factors(rng, w, m*k), m, k), d.Weight(rng, w, n, k), d.Target(rng, v.Beta, m, n)
				var b *kernels.Tensor
				if bias {
					b = d.Tensor(Random(rng, n, 1), n)
				}
				d.B.Linear(y, x, weight, b, v.Alpha, v.Beta)
				return []Output{{Name: "y", Values: y.Float64s()}}
			}}, Conformance{Op: "MatMul", Name: name, run: func(d Device, rng *rand.Rand) []Output {
				x, weight, y := d.Tensor(Factors(rng, w, m*k), m, k), d.Weight(rng, w, k, n), d.Target(rng, v.Beta, m, n)
				d.B.MatMul(y, x, weight, v.Alpha, v.Beta)
				return []Output{{Name: "c", Values: y.Float64s()}}
			}})
		}
		v := Variants[i%len(Variants)]
		cases = append(cases, Conformance{Op: "MatMulTA", Name: fmt.Sprintf("%dx%dx%d alpha=%v beta=%v", m, k, n, v.Alpha, v.Beta), run: func(d Device, rng *rand.Rand) []Output {
			x, z, y := d.Tensor(Random(rng, k*m, 1), k, m), d.Tensor(Random(rng, k*n, 1), k, n), d.Target(rng, v.Beta, m, n)
			d.B.MatMulTA(y, x, z, v.Alpha, v.Beta)
			return []Output{{Name: "c", Values: y.Float64s()}}
		}})
	}
	return cases
}

// Factors are the other operand of a product by weights of the given type: where a
// backend may round it to bfloat16, it needs no rounding.
func Factors(rng *rand.Rand, weights kernels.DType, n int) []float64 {
	x := Random(rng, n, 1)
	if weights == kernels.BF16 {
		for i, v := range x {
			x[i] = float64(formats.BF16ToF32(formats.F32ToBF16(float32(v))))
		}
	}
	return x
}

// lengths are extents of element-wise operations: tails of vectors, and more than
// one thread's share.
var lengths = []int{1, 3, 15, 16, 17, 100, 40_001}

// RowShape is rows that are normalised.
type RowShape struct {
	Rows, Width int
	Scale, Mean float64
}

var rowShapes = []RowShape{{1, 1, 1, 0}, {1, 64, 1, 0}, {3, 17, 1e-2, 1}, {3, 17, 1e-4, 0}, {200, 100, 30, -5}, {2, 33, 0, 0}, {2, 700, 1, 0}, {9, 700, 1, 0}}

// ropeShapes: rows, heads, dim, rotated dimensions.
var ropeShapes = [][4]int{{1, 1, 2, 2}, {4, 3, 6, 6}, {70, 4, 64, 64}, {5, 3, 16, 12}, {9, 2, 64, 16}}

// ElementCases are the operations on rows and elements.
func ElementCases(lengths []int, rowShapes []RowShape, ropeShapes [][4]int) []Conformance {
	var cases []Conformance
	add := func(op, name string, run func(d Device, rng *rand.Rand) []Output) {
		cases = append(cases, Conformance{Op: op, Name: name, run: run})
	}
	const tiny = 1e-30 // errors relative to every single element
	for _, n := range lengths {
		size := fmt.Sprint(n)
		add("Fill", size, func(d Device, _ *rand.Rand) []Output {
			y := d.Garbage(n)
			d.B.Fill(y, -1.5)
			return []Output{{"y", y.Float64s(), tiny}}
		})
		add("Copy", size, func(d Device, rng *rand.Rand) []Output {
			host, y, z := kernels.NewTensor(d.B.Compute(), n), d.Garbage(n), d.Garbage(n)
			kernels.Convert(host, kernels.FromF64(Random(rng, n, 1), n))
			d.B.Copy(y, host)
			d.B.Copy(z, y)
			return []Output{{"from the host", y.Float64s(), tiny}, {"from a device", z.Float64s(), tiny}}
		})
		add("Add", size, func(d Device, rng *rand.Rand) []Output {
			a, b, y := d.Tensor(Random(rng, n, 1), n), d.Tensor(Random(rng, n, 1), n), d.Garbage(n)
			d.B.Add(y, a, b)
			out := []Output{{"y", y.Float64s(), 1}}
			d.B.Add(a, a, b)
			out = append(out, Output{"y is a", a.Float64s(), 1})
			d.B.Add(b, y, b)
			out = append(out, Output{"y is b", b.Float64s(), 1})
			d.B.Add(y, y, y)
			return append(out, Output{"y is a and b", y.Float64s(), 1})
		})
		add("Axpy", size, func(d Device, rng *rand.Rand) []Output {
			x, y := d.Tensor(Random(rng, n, 1), n), d.Tensor(Random(rng, n, 1), n)
			d.B.Axpy(y, -0.25, x)
			return []Output{{"y", y.Float64s(), 1}}
		})
		add("SiLUMul", size, func(d Device, rng *rand.Rand) []Output {
			gate, up, y := d.Tensor(gates(rng, n), n), d.Tensor(Random(rng, n, 1), n), d.Garbage(n)
			d.B.SiLUMul(y, gate, up)
			return []Output{{"y", y.Float64s(), 1e-3}}
		})
		add("SiLUMulGrad", size, func(d Device, rng *rand.Rand) []Output {
			gate, up, dy := d.Tensor(gates(rng, n), n), d.Tensor(Random(rng, n, 1), n), d.Tensor(Random(rng, n, 1), n)
			dgate, dup := d.Garbage(n), d.Garbage(n)
			d.B.SiLUMulGrad(dgate, dup, gate, up, dy)
			return []Output{{"dgate", dgate.Float64s(), 1e-2}, {"dup", dup.Float64s(), 1e-3}}
		})
		for act, name := range map[kernels.Gate]string{kernels.SiLU: "silu", kernels.GELUTanh: "gelu", kernels.ClampedSwiGLU: "swiglu"} {
			add("GateMul", size+", "+name, func(d Device, rng *rand.Rand) []Output {
				gate, up, y := d.Tensor(gates(rng, n), n), d.Tensor(Random(rng, n, 4), n), d.Garbage(n)
				d.B.GateMul(act, y, gate, up)
				return []Output{{"y", y.Float64s(), 1e-3}}
			})
			add("GateMulGrad", size+", "+name, func(d Device, rng *rand.Rand) []Output {
				gate, up, dy := d.Tensor(gates(rng, n), n), d.Tensor(Random(rng, n, 4), n), d.Tensor(Random(rng, n, 1), n)
				dgate, dup := d.Garbage(n), d.Garbage(n)
				d.B.GateMulGrad(act, dgate, dup, gate, up, dy)
				return []Output{{"dgate", dgate.Float64s(), 1e-2}, {"dup", dup.Float64s(), 1e-3}}
			})
		}
		add("SoftCap", size, func(d Device, rng *rand.Rand) []Output {
			x := d.Tensor(gates(rng, n), n)
			d.B.SoftCap(x, x, 3)
			return []Output{{"y", x.Float64s(), 1e-3}}
		})
		add("GELU", size, func(d Device, rng *rand.Rand) []Output {
			y := d.Garbage(n)
			d.B.GELU(y, d.Tensor(gates(rng, n), n))
			return []Output{{"y", y.Float64s(), 1e-3}}
		})
		add("GELUGrad", size, func(d Device, rng *rand.Rand) []Output {
			x, dy, dx := d.Tensor(gates(rng, n), n), d.Tensor(Random(rng, n, 1), n), d.Garbage(n)
			d.B.GELUGrad(dx, x, dy)
			return []Output{{"dx", dx.Float64s(), 1e-3}}
		})
		add("SumSquares", size, func(d Device, rng *rand.Rand) []Output {
			return []Output{{"sum", []float64{d.B.SumSquares(d.Tensor(Random(rng, n, 1), n))}, tiny}}
		})
		add("MergeScores", size, func(d Device, rng *rand.Rand) []Output {
			acc, other := Random(rng, n, 20), Random(rng, n, 20)
			for i := range acc { // columns that one side or none has seen
				if i%3 == 1 {
					acc[i] = math.Inf(-1)
				}
				if i%5 == 1 {
					other[i] = math.Inf(-1)
				}
			}
			y := d.Tensor(acc, n)
			d.B.MergeScores(y, d.Tensor(other, n), 7, 2)
			return []Output{{"acc", y.Float64s(), 1}}
		})
	}
	for _, dtype := range append([]kernels.DType{kernels.F64}, WeightTypes...) {
		add("Gather", dtype.String(), func(d Device, rng *rand.Rand) []Output {
			table, y := d.Weight(rng, dtype, 9, 5, 3), d.Garbage(6, 5, 3)
			d.B.Gather(y, table, []int32{8, 0, 3, 3, 7, 0})
			none := d.Garbage(0, 15)
			d.B.Gather(none, table, nil)
			return []Output{{"y", y.Float64s(), tiny}, {"no rows", none.Float64s(), tiny}}
		})
	}
	add("Gather", "in place", func(d Device, rng *rand.Rand) []Output {
		table := d.Tensor(Random(rng, 40*7, 1), 40, 7)
		ids := []int32{0, 1, 4, 5, 20, 39}
		d.B.Gather(table.Rows(0, len(ids)), table, ids)
		return []Output{{"table", table.Float64s(), tiny}}
	})
	add("CopyHead", "", func(d Device, rng *rand.Rand) []Output {
		const rows, heads, dim = 5, 3, 6
		x := d.Tensor(Random(rng, rows*heads*dim, 1), rows, heads, dim)
		var out []Output
		for h := range heads {
			y := d.Garbage(rows, dim)
			d.B.CopyHead(y, x, h)
			out = append(out, Output{fmt.Sprint("head ", h), y.Float64s(), tiny})
		}
		return out
	})
	for _, s := range rowShapes {
		name := fmt.Sprintf("%dx%d scale=%v mean=%v", s.Rows, s.Width, s.Scale, s.Mean)
		add("Norm", name, func(d Device, rng *rand.Rand) []Output {
			x, w, y := d.Tensor(Random(rng, s.Rows*s.Width, s.Scale), s.Rows, s.Width), d.Tensor(Random(rng, s.Width, 1), s.Width), d.Garbage(s.Rows, s.Width)
			d.B.Norm(y, x, nil, kernels.Norm{Weight: w, Eps: 1e-5})
			return []Output{{Name: "y", Values: y.Float64s()}}
		})
		add("NormGrad", name, func(d Device, rng *rand.Rand) []Output {
			n := s.Rows * s.Width
			x, w := d.Tensor(Random(rng, n, s.Scale), s.Rows, s.Width), d.Tensor(Random(rng, s.Width, 1), s.Width)
			dy, dx := d.Tensor(Random(rng, n, 1), s.Rows, s.Width), d.Garbage(s.Rows, s.Width)
			d.B.NormGrad(dx, x, dy, kernels.Norm{Weight: w, Eps: 1e-5})
			values := dx.Float64s()
			return []Output{{"dx", values, max(1, Magnitude(values))}} // of one column it is all cancellation
		})
		rows := func(d Device, rng *rand.Rand) *kernels.Tensor {
			x := Random(rng, s.Rows*s.Width, s.Scale)
			for i := range x {
				x[i] += s.Mean
			}
			return d.Tensor(x, s.Rows, s.Width)
		}
		// Digits of x that the mean takes away are lost to float32.
		cancelled := max(1, math.Abs(s.Mean)/max(s.Scale, 1e-3))
		add("Norm", name+" bias", func(d Device, rng *rand.Rand) []Output {
			x, y := rows(d, rng), d.Garbage(s.Rows, s.Width)
			d.B.Norm(y, x, nil, kernels.Norm{Weight: d.Tensor(Random(rng, s.Width, 1), s.Width), Bias: d.Tensor(Random(rng, s.Width, 1), s.Width), Eps: 1e-5})
			return []Output{{"y", y.Float64s(), cancelled}}
		})
		add("NormGrad", name+" bias", func(d Device, rng *rand.Rand) []Output {
			x, w := rows(d, rng), d.Tensor(Random(rng, s.Width, 1), s.Width)
			dy, dx := d.Tensor(Random(rng, s.Rows*s.Width, 1), s.Rows, s.Width), d.Garbage(s.Rows, s.Width)
			d.B.NormGrad(dx, x, dy, kernels.Norm{Weight: w, Bias: w, Eps: 1e-5})
			values := dx.Float64s()
			return []Output{{"dx", values, max(1, Magnitude(values)) * cancelled}} // of one column it is all cancellation
		})
	}
	for _, s := range [][3]int{{1, 1, 5}, {9, 4, 33}, {300, 200, 130}} {
		add("AddRows", fmt.Sprint(s), func(d Device, rng *rand.Rand) []Output {
			var rows []int32
			for _, row := range rng.Perm(s[0])[:s[1]] {
				rows = append(rows, int32(row))
			}
			y, x := d.Tensor(Random(rng, s[0]*s[2], 1), s[0], s[2]), d.Tensor(Random(rng, (s[1]+1)*s[2], 1), s[1]+1, s[2])
			d.B.AddRows(y, x, rows, Random(rng, s[1], 1))
			return []Output{{"y", y.Float64s(), 1}}
		})
	}
	for _, s := range ropeShapes {
		add("RoPE", fmt.Sprintf("rows=%d/heads=%d/dim=%d/rotated=%d", s[0], s[1], s[2], s[3]), func(d Device, rng *rand.Rand) []Output {
			rows, heads, dim := s[0], s[1], s[2]
			freqs := make([]float32, s[3]/2)
			for i := range freqs {
				freqs[i] = float32(math.Pow(10000, -2*float64(i)/float64(dim)))
			}
			table := kernels.NewRoPETable(d.B, freqs, 300, 1)
			pos := make([]int32, rows)
			for i := range pos {
				pos[i] = int32(rng.IntN(300)) // in no order
			}
			x := d.Tensor(Random(rng, rows*heads*dim, 1), rows, heads, dim)
			before := x.Float64s()
			d.B.RoPE(x, x, pos, table, false)
			out := []Output{{Name: "rotated", Values: x.Float64s()}}
			d.B.RoPE(x, x, pos, table, true)
			d.B.Axpy(x, -1, d.Tensor(before, rows, heads, dim))
			return append(out, Output{"rotated back, minus the original", x.Float64s(), 1})
		})
	}
	return cases
}

// gates are inputs of SiLU with some at which exponentials overflow.
func gates(rng *rand.Rand, n int) []float64 {
	x := Random(rng, n, 3)
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

// LearningCases are the losses and the optimiser.
func LearningCases(shapes [][2]int, lengths []int) []Conformance {
	var cases []Conformance
	for _, s := range shapes {
		heads, n := s[0], s[1]
		name := fmt.Sprintf("heads=%d/entries=%d", heads, n)
		// targets are logarithms, of heads that attend less and less; some are −Inf, and
		// of the last of several heads all.
		targets := func(d Device, rng *rand.Rand) *kernels.Tensor {
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
			return d.Tensor(t, heads, n)
		}
		loss := func(f func(b kernels.Backend, loss, grad, scores, target *kernels.Tensor)) func(d Device, rng *rand.Rand) []Output {
			return func(d Device, rng *rand.Rand) []Output {
				logs := Random(rng, heads*n, 2)
				for i := range logs {
					logs[i] -= 6
				}
				sum, grad := d.Stored(kernels.F64, []float64{0.25}), d.Garbage(heads, n) // the loss is added to
				f(d.B, sum, grad, d.Tensor(logs, heads, n), targets(d, rng))
				return []Output{{Name: "loss", Values: sum.Float64s()}, {Name: "gradient", Values: grad.Float64s()}}
			}
		}
		cases = append(cases,
			Conformance{Op: "ScoreKL", Name: name, run: loss(func(b kernels.Backend, l, g, s, t *kernels.Tensor) { b.ScoreKL(l, g, s, t, 0.125) })},
			Conformance{Op: "ScoreMSE", Name: name, run: loss(func(b kernels.Backend, l, g, s, t *kernels.Tensor) { b.ScoreMSE(l, g, s, t, 8) })})
	}
	for _, n := range lengths {
		cases = append(cases, Conformance{Op: "AdamW", Name: fmt.Sprint(n), run: func(d Device, rng *rand.Rand) []Output {
			p, m, v := d.Tensor(Random(rng, n, 1), n), d.Tensor(make([]float64, n), n), d.Tensor(make([]float64, n), n)
			for step := 1; step <= 3; step++ {
				d.B.AdamW(p, d.Tensor(Random(rng, n, 0.1), n), m, v, kernels.AdamWStep{
					Beta1: 0.9, Beta2: 0.95, Correct1: 1 - math.Pow(0.9, float64(step)), Correct2: 1 - math.Pow(0.95, float64(step)),
					Epsilon: 1e-8, LearningRate: 0.01, WeightDecay: 0.1, GradScale: 0.5,
				})
			}
			return []Output{{"p", p.Float64s(), 1}, {Name: "m", Values: m.Float64s()}, {Name: "v", Values: v.Float64s()}}
		}})
	}
	return cases
}
