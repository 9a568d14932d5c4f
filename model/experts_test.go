package model

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
)

// randomExperts are experts of random weights in float64.
func randomExperts(rng *rand.Rand, r Routing, experts, hidden, width int, correction, shared, gate bool) *Experts {
	random := func(shape ...int) *kernels.Tensor {
		t := kernels.NewTensor(kernels.F64, shape...)
		for i := range t.F64() {
			t.F64()[i] = 0.7 * rng.NormFloat64()
		}
		return t
	}
	expert := func() Expert {
		return Expert{Linear{Weight: random(width, hidden)}, Linear{Weight: random(width, hidden)}, Linear{Weight: random(hidden, width)}}
	}
	e := &Experts{Router: random(experts, hidden), Routing: r}
	for range experts {
		e.Each = append(e.Each, expert())
	}
	if correction {
		e.Correction = random(experts)
	}
	if shared {
		s := expert()
		e.Shared = &s
	}
	if gate {
		e.SharedGate = random(1, hidden)
	}
	return e
}

var routings = map[string]struct {
	Routing
	correction, shared, gate bool
}{
	"softmax":            {Routing: Routing{TopK: 2}},
	"softmax, sum 1":     {Routing: Routing{TopK: 3, Normalise: true, Scale: 0.7}},
	"all experts":        {Routing: Routing{TopK: 6, Normalise: true}},
	"shared with a gate": {Routing: Routing{TopK: 2}, shared: true, gate: true},
	"groups, corrected":  {Routing: Routing{TopK: 2, Logistic: true, Normalise: true, Scale: 1.5, Groups: 3, TopGroups: 2}, correction: true, shared: true},
	"logistic":           {Routing: Routing{TopK: 3, Logistic: true}, correction: true},
}

// naiveExperts is what experts give of one row, in plain loops.
func naiveExperts(e *Experts, h []float64, scale float64) []float64 {
	times := func(w *kernels.Tensor, x []float64) []float64 {
		y := make([]float64, w.Dim0())
		for i := range y {
			for j, v := range x {
				y[i] += w.F64()[i*len(x)+j] * v
			}
		}
		return y
	}
	scores := times(e.Router, h)
	if e.Logistic {
		for i, x := range scores {
			scores[i] = 1 / (1 + math.Exp(-x))
		}
	} else {
		sum := 0.0
		for _, x := range scores {
			sum += math.Exp(x)
		}
		for i, x := range scores {
			scores[i] = math.Exp(x) / sum
		}
	}
	ranked := slices.Clone(scores)
	if e.Correction != nil {
		for i, x := range e.Correction.F64() {
			ranked[i] += x
		}
	}
	if e.Groups > 1 {
		size := len(ranked) / e.Groups
		sum := func(g int) float64 {
			group := slices.Sorted(slices.Values(ranked[g*size : (g+1)*size]))
			slices.Reverse(group)
			return group[0] + group[1]
		}
		var sums []float64
		for g := range e.Groups {
			sums = append(sums, sum(g))
		}
		for g := range e.Groups {
			better := 0
			for _, s := range sums {
				if s > sums[g] {
					better++
				}
			}
			if better >= e.TopGroups {
				clear(ranked[g*size : (g+1)*size])
			}
		}
	}
	weights, total := make([]float64, len(scores)), 0.0
	for range e.TopK {
		top := 0
		for i, x := range ranked {
			if x > ranked[top] {
				top = i
			}
		}
		ranked[top], weights[top], total = math.Inf(-1), scores[top], total+scores[top]
	}
	out := make([]float64, len(h))
	add := func(x Expert, weight float64) {
		gate, up := times(x.Gate.Weight, h), times(x.Up.Weight, h)
		for i := range up {
			up[i] *= gate[i] / (1 + math.Exp(-gate[i]))
		}
		for i, v := range times(x.Down.Weight, up) {
			out[i] += scale * weight * v
		}
	}
	for i, w := range weights {
		if e.Normalise {
			w /= total
		}
		if w > 0 {
			add(e.Each[i], w*cmp.Or(e.Scale, 1))
		}
	}
	if e.Shared != nil {
		w := 1.0
		if e.SharedGate != nil {
			w = 1 / (1 + math.Exp(-times(e.SharedGate, h)[0]))
		}
		add(*e.Shared, w)
	}
	return out
}

// TestExperts holds rows that are grouped by expert against plain loops, row by row, and the gradient against central
// differences, for every routing. Rows that only fill up a pass give 0 and cost no expert.
func TestExperts(t *testing.T) {
	const rows, experts, hidden, width, scale = 7, 6, 5, 4, 1.25
	b, err := kernels.Open("reference64")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range routings {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 9))
			e := randomExperts(rng, c.Routing, experts, hidden, width, c.correction, c.shared, c.gate)
			h, dy := kernels.NewTensor(kernels.F64, rows, hidden), kernels.NewTensor(kernels.F64, rows, hidden)
			for i := range h.F64() {
				h.F64()[i], dy.F64()[i] = rng.NormFloat64(), rng.NormFloat64()
			}
			pass := func(rows, least int) []float64 {
				y := kernels.NewTensor(kernels.F64, h.Shape...)
				for i := range y.F64() {
					y.F64()[i] = math.NaN()
				}
				e.Forward(y, Pass{On: b, Arena: kernels.NewArena(b), H: h, Rows: rows, Least: least}, scale)
				return y.F64()
			}
			var want []float64
			for row := range rows {
				want = append(want, naiveExperts(e, h.F64()[row*hidden:][:hidden], scale)...)
			}
			compare.CloseToScale(t, "rows", pass(0, 0), want, 1e-12)
			compare.CloseToScale(t, "rows of products of five", pass(0, 5), want, 1e-12)
			chosen := make(map[int]bool)
			for _, c := range func() []kernels.Choice {
				c, _, _ := e.route(&Pass{On: b, Arena: kernels.NewArena(b), H: h, Rows: 1}, h)
				return c
			}() {
				for _, i := range c.Experts {
					chosen[i] = true
				}
			}
			all := slices.Clone(e.Each)
			for i := range e.Each {
				if !chosen[i] { // whoever read it would panic
					e.Each[i] = Expert{}
				}
			}
			compare.CloseToScale(t, "one row of its experts", pass(1, 3)[:hidden], want[:hidden], 1e-12)
			e.Each = all
			clear(want[4*hidden:])
			compare.CloseToScale(t, "four rows", pass(4, 2), want, 1e-12)

			dh := kernels.NewTensor(kernels.F64, rows, hidden)
			e.Backward(dh, nil, Pass{On: b, Arena: kernels.NewArena(b), H: h}, dy, scale)
			loss := func() (sum float64) {
				for i, v := range pass(0, 0) {
					sum += v * dy.F64()[i]
				}
				return sum
			}
			var differences []float64
			for i, x := range h.F64() {
				const step = 1e-5
				h.F64()[i] = x + step
				up := loss()
				h.F64()[i] = x - step
				differences = append(differences, (up-loss())/(2*step))
				h.F64()[i] = x
			}
			compare.CloseToScale(t, "gradient", dh.F64(), differences, 1e-7)
		})
	}
}

// TestRoutingTies: of equal scores the lower numbers are chosen, so that what a counter of memory runs, whose numbers
// are all 0, sends every row to the same experts: no expert can have more rows.
func TestRoutingTies(t *testing.T) {
	for name, c := range routings {
		got := c.Choose(make([]float64, 6), nil)
		want := make([]int, c.TopK)
		for i := range want {
			want[i] = i
		}
		if fmt.Sprint(got.Experts) != fmt.Sprint(want) {
			t.Errorf("%s: chose %v of equal experts, want %v", name, got.Experts, want)
		}
	}
}
