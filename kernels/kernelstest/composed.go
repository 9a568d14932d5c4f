package kernelstest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"glimpse/kernels"
	"glimpse/kernels/formats"
)

// composedCases are the operations that simpler ones can stand in for, as a backend has them:
// kernels of its own or the decomposition.
func composedCases() []Conformance {
	var cases []Conformance
	add := func(op, name string, run func(d Device, rng *rand.Rand) []Output) {
		cases = append(cases, Conformance{Op: op, Name: name, run: run})
	}
	for i, s := range [][4]int{{1, 8, 5, 9}, {3, 264, 40, 40}, {8, 72, 37, 2}, {9, 64, 12, 7}, {2, 9, 31, 17}} { // rows, columns, outputs
		rows, k, w := s[0], s[1], WeightTypes[i%3]
		name := fmt.Sprint(s, " ", w)
		layer := func(d Device, rng *rand.Rand, n int) (l kernels.LinearRows) {
			l.Weight = d.Weight(rng, w, n, k)
			if n%2 == 1 {
				l.Bias = d.Drawn(rng, n)
			}
			return l
		}
		x := func(d Device, rng *rand.Rand) *kernels.Tensor {
			return d.Tensor(Factors(rng, w, rows*k), rows, k)
		}
		add("LinearGroup", name, func(d Device, rng *rand.Rand) (out []Output) {
			in := x(d, rng)
			layers := []kernels.LinearRows{layer(d, rng, s[2]), layer(d, rng, s[3]), layer(d, rng, s[2])}
			for i := range layers {
				layers[i].Y = d.Garbage(rows, layers[i].Weight.Dim0())
			}
			d.B.LinearGroup(in, layers...)
			for _, l := range layers {
				out = append(out, Output{Name: "y", Values: l.Y.Float64s()})
			}
			return out
		})
		add("GatedLinear", name, func(d Device, rng *rand.Rand) []Output {
			in, y := x(d, rng), d.Garbage(rows, s[2])
			d.B.GatedLinear(y, in, layer(d, rng, s[2]), layer(d, rng, s[2]), kernels.NewArena(d.B))
			return []Output{{Name: "y", Values: y.Float64s()}}
		})
	}
	for i, s := range [][6]int{{1, 4, 1, 8, 8, 8}, {3, 7, 3, 72, 40, 24}, {16, 64, 8, 264, 296, 40}, {5, 5, 2, 70, 33, 9}, {9, 40, 40, 16, 48, 600}, {17, 6, 2, 32, 16, 16}} { // rows, experts, chosen, in, width, out
		rows, experts, in, width, out := s[0], s[1], s[3], s[4], s[5]
		for j, w := range []kernels.DType{kernels.F32, kernels.BF16} {
			routing := kernels.Routing{TopK: s[2], Logistic: (i+j)%3 == 1, Normalise: i%2 == 0, Scale: []float64{0, 1.5}[j]}
			if s[1]%5 == 0 {
				routing.Groups, routing.TopGroups = 5, 3
			} else if s[1]%8 == 0 {
				routing.Groups, routing.TopGroups = 8, 2
			}
			add("FewExperts", fmt.Sprint(s, " ", w), func(d Device, rng *rand.Rand) []Output {
				e := &kernels.FewExperts{Routing: routing, Act: kernels.Gate(i % 3), Shared: (i+j)%2 == 1}
				if routing.Logistic {
					e.Correction = d.Drawn(rng, experts)
				}
				each := experts
				if e.Shared {
					each++
				}
				for at := range each {
					width := width
					if at == experts {
						width += 8
					}
					l := kernels.GatedRows{Gate: kernels.LinearRows{Weight: d.Weight(rng, w, width, in)}, Up: kernels.LinearRows{Weight: d.Weight(rng, w, width, in)}, Down: kernels.LinearRows{Weight: d.Weight(rng, w, out, width)}}
					if i%2 == 1 {
						l.Gate.Bias, l.Up.Bias, l.Down.Bias = d.Drawn(rng, width), d.Drawn(rng, width), d.Drawn(rng, out)
					}
					e.Each = append(e.Each, l)
				}
				x, y, gates := d.Tensor(Factors(rng, w, rows*in), rows, in), d.Garbage(rows, out), d.Drawn(rng, rows, 1)
				scores := make([]float64, rows*experts)
				for at := range scores {
					scores[at] = float64(rng.IntN(64)) / 16 // some are equal
				}
				if !e.Shared || i == 2 {
					gates = nil
				}
				d.B.FewExperts(y, x, d.Tensor(scores, rows, experts), gates, e, max(1, rows-i%2), 0.5, kernels.NewArena(d.B))
				return []Output{{Name: "y", Values: y.Float64s()}}
			})
		}
	}
	for i, s := range [][4]int{{1, 1, 1, 1}, {32, 70, 130, 8}, {3, 600, 5, 3}, {33, 40, 300, 16}, {65, 33, 64, 9}} { // rows, in, out, rank
		rows, in, out, rank := s[0], s[1], s[2], s[3]
		name, w := fmt.Sprint(s), WeightTypes[i%3]
		add("AddLowRank", name, func(d Device, rng *rand.Rand) []Output {
			y, x := d.Drawn(rng, rows, out), d.Drawn(rng, rows, in)
			d.B.AddLowRank(y, x, d.Drawn(rng, rank, in), d.Drawn(rng, out, rank), 0.3, kernels.NewArena(d.B))
			return []Output{{Name: "y", Values: y.Float64s()}}
		})
		add("LowRank", name, func(d Device, rng *rand.Rand) []Output {
			x, weight, bias := d.Tensor(Factors(rng, w, rows*in), rows, in), d.Weight(rng, w, out, in), d.Drawn(rng, out)
			y, low := d.Garbage(rows, out), d.Garbage(rows, rank)
			d.B.LowRank(y, low, x, weight, bias, d.Drawn(rng, rank, in), d.Drawn(rng, out, rank), 0.5)
			return []Output{{Name: "y", Values: y.Float64s()}, {Name: "low", Values: low.Float64s()}}
		})
		add("LowRankGrad", name, func(d Device, rng *rand.Rand) []Output {
			x, weight, dy := d.Drawn(rng, rows, in), d.Weight(rng, w, out, in), d.Tensor(Factors(rng, w, rows*out), rows, out)
			dx, dLow, da, dup := d.Garbage(rows, in), d.Garbage(rows, rank), d.Garbage(rank, in), d.Garbage(out, rank)
			d.B.LowRankGrad(dx, dLow, da, dup, dy, x, d.Drawn(rng, rows, rank), weight, d.Drawn(rng, rank, in), d.Drawn(rng, out, rank), 0.5)
			return []Output{{Name: "dx", Values: dx.Float64s()}, {Name: "dLow", Values: dLow.Float64s()}, {Name: "da", Values: da.Float64s()}, {Name: "dup", Values: dup.Float64s()}}
		})
	}
	for _, s := range [][3]int{{1, 1, 4}, {5, 3, 8}, {70, 2, 32}} { // rows, heads, width of a head
		rows, heads, dim := s[0], s[1], s[2]
		for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16} {
			add("CopyPairs", fmt.Sprint(s, " ", dtype), func(d Device, rng *rand.Rand) (out []Output) {
				stored := dtype
				if dtype == kernels.F32 {
					stored = d.B.Compute()
				}
				k, v := Rounded(Random(rng, rows*heads*dim, 1)), Rounded(Random(rng, rows*heads*dim, 1))
				var dst []kernels.KV
				for range heads {
					dst = append(dst, kernels.KV{K: d.B.Alloc(stored, rows, dim), V: d.B.Alloc(stored, rows, dim)})
				}
				d.B.CopyPairs(dst, d.Tensor(k, rows, heads, dim), d.Tensor(v, rows, heads, dim))
				for _, kv := range dst {
					out = append(out, Output{"k", kv.K.Float64s(), 1e-30}, Output{"v", kv.V.Float64s(), 1e-30})
				}
				return out
			})
		}
		table := func(d Device, half int) *kernels.RoPETable {
			freqs := make([]float32, half)
			for i := range freqs {
				freqs[i] = float32(math.Pow(0.9, float64(i)))
			}
			return d.B.RoPETable(freqs, 50, 1)
		}
		pos := func(rng *rand.Rand) (pos []int32) {
			for range rows {
				pos = append(pos, rng.Int32N(50))
			}
			return pos
		}
		add("RoPETable", fmt.Sprint(s), func(d Device, _ *rand.Rand) []Output {
			t := table(d, dim/2)
			return []Output{{Name: "cos", Values: t.Cos.Float64s()}, {Name: "sin", Values: t.Sin.Float64s()}}
		})
		for _, half := range []int{dim / 2, dim / 4} {
			add("RoPE", fmt.Sprint(s, " ", half, " into another"), func(d Device, rng *rand.Rand) []Output {
				x, y := d.Drawn(rng, rows, heads, dim), d.Garbage(rows, heads, dim)
				d.B.RoPE(y, x, pos(rng), table(d, half), half == dim/4)
				return []Output{{Name: "y", Values: y.Float64s()}}
			})
		}
		add("RotateHeads", fmt.Sprint(s), func(d Device, rng *rand.Rand) []Output {
			q, k, norms := d.Drawn(rng, rows, 2*heads, dim), d.Drawn(rng, rows, heads, dim), kernels.HeadNorms{Eps: 1e-3}
			if heads > 1 {
				norms.Query, norms.Key = d.Drawn(rng, dim), d.Drawn(rng, dim)
			}
			d.B.RotateHeads(q, k, norms, pos(rng), table(d, dim/2))
			return []Output{{Name: "q", Values: q.Float64s()}, {Name: "k", Values: k.Float64s()}}
		})
		for _, bias := range []bool{false, true} {
			add("Norm", fmt.Sprint(s, " of a sum, bias=", bias), func(d Device, rng *rand.Rand) []Output {
				y, x, n := d.Garbage(rows, 7*dim), d.Drawn(rng, rows, 7*dim), kernels.Norm{Weight: d.Drawn(rng, 7*dim), Eps: 1e-3}
				if bias {
					n.Bias = d.Drawn(rng, 7*dim)
				}
				d.B.Norm(y, x, d.Drawn(rng, rows, 7*dim), n)
				return []Output{{Name: "y", Values: y.Float64s()}, {Name: "x", Values: x.Float64s()}}
			})
		}
	}
	for _, s := range []AttendShape{
		{Rows: 1, Heads: 1, Dim: 4, Entries: []int{1}},
		{Rows: 1, Heads: 6, Dim: 16, Entries: []int{1, 40, 7}},
		{Rows: 1, Heads: 4, Dim: 8, Entries: []int{700, 700}, Window: 90},
		{Rows: 1, Heads: 6, Dim: 8, Entries: []int{50, 13, 400}, Window: 200, Evicted: true},
	} {
		add("AttentionSelected", fmt.Sprint(s.Heads, " ", s.Dim, " ", s.Entries, " ", s.Window), func(d Device, rng *rand.Rand) []Output {
			a, chosen := s.Attend(d, rng), make([][]int32, len(s.Entries))
			for g, n := range s.Entries {
				for j := range n {
					if j == n-1 || rng.IntN(3) == 0 {
						chosen[g] = append(chosen[g], int32(j))
					}
				}
			}
			out, lse := d.Garbage(1, s.Heads*s.Dim), d.Garbage(s.Heads, 1)
			d.B.AttentionSelected(out, lse, a, kernels.HostSelection(chosen), kernels.NewArena(d.B))
			return []Output{{Name: "out", Values: out.Float64s()}, {"lse", lse.Float64s(), 1}}
		})
	}
	lists := func(d Device, rng *rand.Rand) (ts []*kernels.Tensor) {
		for _, n := range []int{1, 300, 16384, 7, 20000} {
			ts = append(ts, d.Drawn(rng, n))
		}
		return ts
	}
	results := func(name string, ts []*kernels.Tensor) (out []Output) {
		for _, t := range ts {
			out = append(out, Output{name, t.Float64s(), 1})
		}
		return out
	}
	add("MultiFill", "", func(d Device, rng *rand.Rand) []Output {
		ts := lists(d, rng)
		d.B.MultiFill(ts, -1.5)
		return results("filled", ts)
	})
	add("MultiAxpy", "", func(d Device, rng *rand.Rand) []Output {
		ys, xs := lists(d, rng), lists(d, rng)
		d.B.MultiAxpy(ys, -0.25, xs)
		return results("y", ys)
	})
	add("MultiSumSquares", "", func(d Device, rng *rand.Rand) []Output {
		return []Output{{Name: "sum", Values: []float64{d.B.MultiSumSquares(0.5, lists(d, rng)), d.B.MultiSumSquares(1, nil)}}}
	})
	add("MultiAdamW", "", func(d Device, rng *rand.Rand) []Output {
		ps, gs, ms, vs := lists(d, rng), lists(d, rng), lists(d, rng), lists(d, rng)
		for _, v := range vs {
			d.B.Fill(v, 0.3)
		}
		d.B.MultiAdamW(ps, gs, ms, vs, kernels.AdamWStep{Beta1: 0.9, Beta2: 0.99, Correct1: 0.2, Correct2: 0.02, Epsilon: 1e-8, LearningRate: 1e-2, WeightDecay: 0.1, GradScale: 0.5})
		return append(results("p", ps), append(results("m", ms), results("v", vs)...)...)
	})
	add("Draw", "", func(d Device, rng *rand.Rand) []Output {
		settings := []kernels.Draw{{}, {Temperature: 1}, {Temperature: 0.7, TopK: 5}, {Temperature: 1.2, TopP: 0.6}, {Temperature: 1, TopK: 50, TopP: 0.9}, {Temperature: 1, MinP: 0.2}, {}}
		rows := len(settings)
		const vocab = 3001
		for i := range settings {
			settings[i].U = rng.Float64()
		}
		logits := Random(rng, rows*vocab, 2)
		logits[6*vocab+3] = math.NaN()
		var ids []float64
		for _, id := range d.B.Draw(d.Tensor(logits, rows, vocab), settings) {
			ids = append(ids, float64(id))
		}
		return []Output{{"ids", ids, 1e-30}}
	})
	return cases
}

// Rounded is x, as rounding to bf16 makes it: to the nearest, of two to the even one.
func Rounded(x []float64) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(formats.BF16ToF32(formats.F32ToBF16(float32(v))))
	}
	return out
}
