package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"

	"glimpse/kernels"
)

// composedCases are the operations that simpler ones can stand in for, as a backend has them:
// kernels of its own or the decomposition.
func composedCases() []conformance {
	var cases []conformance
	add := func(op, name string, run func(d device, rng *rand.Rand) []output) {
		cases = append(cases, conformance{op: op, name: name, run: run})
	}
	draw := func(d device, rng *rand.Rand, shape ...int) *kernels.Tensor {
		n := 1
		for _, s := range shape {
			n *= s
		}
		return d.tensor(random(rng, n, 1), shape...)
	}
	for i, s := range [][4]int{{1, 8, 5, 9}, {3, 264, 40, 40}, {8, 72, 37, 2}, {9, 64, 12, 7}, {2, 9, 31, 17}} { // rows, columns, outputs
		rows, k, w := s[0], s[1], weightTypes[i%3]
		name := fmt.Sprint(s, " ", w)
		layer := func(d device, rng *rand.Rand, n int) (l kernels.LinearRows) {
			l.Weight = d.weight(rng, w, n, k)
			if n%2 == 1 {
				l.Bias = draw(d, rng, n)
			}
			return l
		}
		x := func(d device, rng *rand.Rand) *kernels.Tensor {
			return d.tensor(factors(rng, w, rows*k), rows, k)
		}
		add("LinearGroup", name, func(d device, rng *rand.Rand) (out []output) {
			in := x(d, rng)
			layers := []kernels.LinearRows{layer(d, rng, s[2]), layer(d, rng, s[3]), layer(d, rng, s[2])}
			for i := range layers {
				layers[i].Y = d.garbage(rows, layers[i].Weight.Dim0())
			}
			d.b.LinearGroup(in, layers...)
			for _, l := range layers {
				out = append(out, output{name: "y", values: l.Y.Float64s()})
			}
			return out
		})
		add("GatedLinear", name, func(d device, rng *rand.Rand) []output {
			in, y := x(d, rng), d.garbage(rows, s[2])
			d.b.GatedLinear(y, in, layer(d, rng, s[2]), layer(d, rng, s[2]), kernels.NewArena(d.b))
			return []output{{name: "y", values: y.Float64s()}}
		})
		add("Product", name, func(d device, rng *rand.Rand) []output {
			a, b, c := d.stored(kernels.BF16, rounded(random(rng, rows*k, 1)), rows, k), d.weight(rng, kernels.BF16, s[2], k), d.garbage(rows, s[2])
			d.b.Product(c, a, b)
			return []output{{name: "c", values: c.Float64s()}}
		})
	}
	for i, s := range [][4]int{{1, 1, 1, 1}, {32, 70, 130, 8}, {3, 600, 5, 3}, {33, 40, 300, 16}, {65, 33, 64, 9}} { // rows, in, out, rank
		rows, in, out, rank := s[0], s[1], s[2], s[3]
		name, w := fmt.Sprint(s), weightTypes[i%3]
		add("AddLowRank", name, func(d device, rng *rand.Rand) []output {
			y, x := draw(d, rng, rows, out), draw(d, rng, rows, in)
			d.b.AddLowRank(y, x, draw(d, rng, rank, in), draw(d, rng, out, rank), 0.3, kernels.NewArena(d.b))
			return []output{{name: "y", values: y.Float64s()}}
		})
		add("LowRank", name, func(d device, rng *rand.Rand) []output {
			x, weight, bias := d.tensor(factors(rng, w, rows*in), rows, in), d.weight(rng, w, out, in), draw(d, rng, out)
			y, low := d.garbage(rows, out), d.garbage(rows, rank)
			d.b.LowRank(y, low, x, weight, bias, draw(d, rng, rank, in), draw(d, rng, out, rank), 0.5)
			return []output{{name: "y", values: y.Float64s()}, {name: "low", values: low.Float64s()}}
		})
		add("LowRankGrad", name, func(d device, rng *rand.Rand) []output {
			x, weight, dy := draw(d, rng, rows, in), d.weight(rng, w, out, in), d.tensor(factors(rng, w, rows*out), rows, out)
			dx, dLow, da, dup := d.garbage(rows, in), d.garbage(rows, rank), d.garbage(rank, in), d.garbage(out, rank)
			d.b.LowRankGrad(dx, dLow, da, dup, dy, x, draw(d, rng, rows, rank), weight, draw(d, rng, rank, in), draw(d, rng, out, rank), 0.5)
			return []output{{name: "dx", values: dx.Float64s()}, {name: "dLow", values: dLow.Float64s()}, {name: "da", values: da.Float64s()}, {name: "dup", values: dup.Float64s()}}
		})
	}
	for _, s := range [][3]int{{1, 1, 4}, {5, 3, 8}, {70, 2, 32}} { // rows, heads, width of a head
		rows, heads, dim := s[0], s[1], s[2]
		for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16} {
			add("CopyPairs", fmt.Sprint(s, " ", dtype), func(d device, rng *rand.Rand) (out []output) {
				stored := dtype
				if dtype == kernels.F32 {
					stored = d.b.Compute()
				}
				k, v := rounded(random(rng, rows*heads*dim, 1)), rounded(random(rng, rows*heads*dim, 1))
				var dst []kernels.KV
				for range heads {
					dst = append(dst, kernels.KV{K: d.b.Alloc(stored, rows, dim), V: d.b.Alloc(stored, rows, dim)})
				}
				d.b.CopyPairs(dst, d.tensor(k, rows, heads, dim), d.tensor(v, rows, heads, dim))
				for _, kv := range dst {
					out = append(out, output{"k", kv.K.Float64s(), 1e-30}, output{"v", kv.V.Float64s(), 1e-30})
				}
				return out
			})
		}
		table := func(d device, half int) *kernels.RoPETable {
			freqs := make([]float32, half)
			for i := range freqs {
				freqs[i] = float32(math.Pow(0.9, float64(i)))
			}
			return d.b.RoPETable(freqs, 50, 1)
		}
		pos := func(rng *rand.Rand) (pos []int32) {
			for range rows {
				pos = append(pos, rng.Int32N(50))
			}
			return pos
		}
		add("RoPETable", fmt.Sprint(s), func(d device, _ *rand.Rand) []output {
			t := table(d, dim/2)
			return []output{{name: "cos", values: t.Cos.Float64s()}, {name: "sin", values: t.Sin.Float64s()}}
		})
		for _, half := range []int{dim / 2, dim / 4} {
			add("Rotate", fmt.Sprint(s, " ", half), func(d device, rng *rand.Rand) []output {
				x, y := draw(d, rng, rows, heads, dim), d.garbage(rows, heads, dim)
				d.b.Rotate(y, x, pos(rng), table(d, half), half == dim/4)
				return []output{{name: "y", values: y.Float64s()}}
			})
		}
		add("RotateHeads", fmt.Sprint(s), func(d device, rng *rand.Rand) []output {
			q, k, norms := draw(d, rng, rows, 2*heads, dim), draw(d, rng, rows, heads, dim), kernels.HeadNorms{Eps: 1e-3}
			if heads > 1 {
				norms.Query, norms.Key = draw(d, rng, dim), draw(d, rng, dim)
			}
			d.b.RotateHeads(q, k, norms, pos(rng), table(d, dim/2))
			return []output{{name: "q", values: q.Float64s()}, {name: "k", values: k.Float64s()}}
		})
		add("AddRMSNorm", fmt.Sprint(s), func(d device, rng *rand.Rand) []output {
			y, x := d.garbage(rows, 7*dim), draw(d, rng, rows, 7*dim)
			d.b.AddRMSNorm(y, x, draw(d, rng, rows, 7*dim), draw(d, rng, 7*dim), 1e-3)
			return []output{{name: "y", values: y.Float64s()}, {name: "x", values: x.Float64s()}}
		})
		add("AddLayerNorm", fmt.Sprint(s), func(d device, rng *rand.Rand) []output {
			y, x := d.garbage(rows, 7*dim), draw(d, rng, rows, 7*dim)
			d.b.AddLayerNorm(y, x, draw(d, rng, rows, 7*dim), draw(d, rng, 7*dim), draw(d, rng, 7*dim), 1e-3)
			return []output{{name: "y", values: y.Float64s()}, {name: "x", values: x.Float64s()}}
		})
	}
	for _, s := range []attendShape{
		{rows: 1, heads: 1, dim: 4, entries: []int{1}},
		{rows: 1, heads: 6, dim: 16, entries: []int{1, 40, 7}},
		{rows: 1, heads: 4, dim: 8, entries: []int{700, 700}, window: 90},
		{rows: 1, heads: 6, dim: 8, entries: []int{50, 13, 400}, window: 200, evicted: true},
	} {
		add("AttentionSelected", fmt.Sprint(s.heads, " ", s.dim, " ", s.entries, " ", s.window), func(d device, rng *rand.Rand) []output {
			a, chosen := s.attend(d, rng), make([][]int32, len(s.entries))
			for g, n := range s.entries {
				for j := range n {
					if j == n-1 || rng.IntN(3) == 0 {
						chosen[g] = append(chosen[g], int32(j))
					}
				}
			}
			out, lse := d.garbage(1, s.heads*s.dim), d.garbage(s.heads, 1)
			d.b.AttentionSelected(out, lse, a, kernels.HostSelection(chosen), kernels.NewArena(d.b))
			return []output{{name: "out", values: out.Float64s()}, {"lse", lse.Float64s(), 1}}
		})
	}
	lists := func(d device, rng *rand.Rand) (ts []*kernels.Tensor) {
		for _, n := range []int{1, 300, 16384, 7, 20000} {
			ts = append(ts, draw(d, rng, n))
		}
		return ts
	}
	results := func(name string, ts []*kernels.Tensor) (out []output) {
		for _, t := range ts {
			out = append(out, output{name, t.Float64s(), 1})
		}
		return out
	}
	add("MultiFill", "", func(d device, rng *rand.Rand) []output {
		ts := lists(d, rng)
		d.b.MultiFill(ts, -1.5)
		return results("filled", ts)
	})
	add("MultiAxpy", "", func(d device, rng *rand.Rand) []output {
		ys, xs := lists(d, rng), lists(d, rng)
		d.b.MultiAxpy(ys, -0.25, xs)
		return results("y", ys)
	})
	add("MultiSumSquares", "", func(d device, rng *rand.Rand) []output {
		return []output{{name: "sum", values: []float64{d.b.MultiSumSquares(lists(d, rng)), d.b.MultiSumSquares(nil) + 1}}}
	})
	add("MultiAdamW", "", func(d device, rng *rand.Rand) []output {
		ps, gs, ms, vs := lists(d, rng), lists(d, rng), lists(d, rng), lists(d, rng)
		for _, v := range vs {
			d.b.Fill(v, 0.3)
		}
		d.b.MultiAdamW(ps, gs, ms, vs, kernels.AdamWStep{Beta1: 0.9, Beta2: 0.99, Correct1: 0.2, Correct2: 0.02, Epsilon: 1e-8, LearningRate: 1e-2, WeightDecay: 0.1, GradScale: 0.5})
		return append(results("p", ps), append(results("m", ms), results("v", vs)...)...)
	})
	add("Draw", "", func(d device, rng *rand.Rand) []output {
		settings := []kernels.Draw{{}, {Temperature: 1}, {Temperature: 0.7, TopK: 5}, {Temperature: 1.2, TopP: 0.6}, {Temperature: 1, TopK: 50, TopP: 0.9}, {Temperature: 1, MinP: 0.2}, {}}
		rows := len(settings)
		const vocab = 3001
		for i := range settings {
			settings[i].U = rng.Float64()
		}
		logits := random(rng, rows*vocab, 2)
		logits[6*vocab+3] = math.NaN()
		var ids []float64
		for _, id := range d.b.Draw(d.tensor(logits, rows, vocab), settings) {
			ids = append(ids, float64(id))
		}
		return []output{{"ids", ids, 1e-30}}
	})
	return cases
}

// rounded is x, as rounding to bf16 makes it: to the nearest, of two to the even one.
func rounded(x []float64) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(kernels.BF16ToF32(kernels.F32ToBF16(float32(v))))
	}
	return out
}
