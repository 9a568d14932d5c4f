package kernels

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Routing is how the scores of a router become weights of experts.
type Routing struct {
	TopK      int     // experts per row
	Logistic  bool    // scores are logistic functions of the router's outputs (DeepSeek-V3, arXiv:2412.19437, eq. 15), not their softmax
	Normalise bool    // the weights of a row's experts sum to 1
	Scale     float64 // multiplies weights, 0: 1
	// Groups of equally many experts that follow each other. The TopGroups with the largest sum of their two
	// best scores are left (DeepSeek-V3, arXiv:2412.19437, §2.1.2); 0 or 1: no groups.
	Groups, TopGroups int
}

// Choice is what a row's router decides.
type Choice struct {
	Experts []int     // in ascending order
	Scores  []float64 // of all experts
	Weights []float64 // of Experts
	Sum     float64   // of the chosen scores, where weights are normalised; else 0
}

// Choose decides by the outputs of a router. Of equal scores the expert with the lower number is chosen.
func (r *Routing) Choose(logits, correction []float64) Choice {
	c := Choice{Scores: make([]float64, len(logits))}
	if r.Logistic {
		for i, x := range logits {
			c.Scores[i] = Logistic(x)
		}
	} else {
		top, sum := slices.Max(logits), 0.0
		for i, x := range logits {
			c.Scores[i] = math.Exp(x - top)
			sum += c.Scores[i]
		}
		for i := range c.Scores {
			c.Scores[i] /= sum
		}
	}
	ranked := slices.Clone(c.Scores)
	for i, x := range correction {
		ranked[i] += x
	}
	r.leaveGroups(ranked)
	c.Experts = best(ranked, r.TopK)
	slices.Sort(c.Experts)
	for _, e := range c.Experts {
		c.Weights = append(c.Weights, c.Scores[e])
		if r.Normalise {
			c.Sum += c.Scores[e]
		}
	}
	for i := range c.Weights {
		if c.Weights[i] *= r.Factor(); r.Normalise {
			c.Weights[i] /= c.Sum
		}
	}
	return c
}

// Factor is Scale, or 1.
func (r *Routing) Factor() float64 { return cmp.Or(r.Scale, 1) }

// leaveGroups sets the scores of all experts to 0 but in the best groups.
func (r *Routing) leaveGroups(scores []float64) {
	if r.Groups < 2 {
		return
	}
	size := len(scores) / r.Groups
	sums := make([]float64, r.Groups)
	for g := range sums {
		group := scores[g*size:][:size]
		for _, e := range best(group, min(2, size)) {
			sums[g] += group[e]
		}
	}
	left := best(sums, r.TopGroups)
	for e := range scores {
		if !slices.Contains(left, e/size) {
			scores[e] = 0
		}
	}
}

// best are the indices of the n largest values, the largest first.
func best(values []float64, n int) []int {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(values[b], values[a]) })
	return order[:n]
}

// Logistic is the logistic function.
func Logistic(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// GatedRows are the layers of a gated MLP without their outputs: [width, k] twice, [n, width].
type GatedRows struct {
	Gate, Up, Down LinearRows
}

// FewExperts are the experts of a layer as few rows go through them (Products.FewExperts).
type FewExperts struct {
	Routing
	Act        Gate
	Correction *Tensor     // [experts], added to scores where experts are chosen, or nil
	Each       []GatedRows // the experts, and after them, with Shared, the one that all rows go through
	Shared     bool
	// Table is what the backend holds of the experts in its memory, from TakesExperts on.
	Table *Tensor
}

// Experts is their number without the shared one.
func (e *FewExperts) Experts() int {
	if e.Shared {
		return len(e.Each) - 1
	}
	return len(e.Each)
}

// CheckFewExperts panics unless the tensors fit.
func CheckFewExperts(y, x, logits, gates *Tensor, e *FewExperts, rows int) {
	n := x.Dim0()
	if y.Dim0() != n || rows < 1 || rows > n || logits.Len() != n*e.Experts() || gates != nil && (gates.Len() != n || !e.Shared) || e.TopK < 1 || e.TopK > e.Experts() {
		panic(fmt.Sprintf("kernels: FewExperts %d rows of %v to %v by %v of %d experts, %d a row", rows, x.Shape, y.Shape, logits.Shape, e.Experts(), e.TopK))
	}
	for _, l := range e.Each {
		width := l.Up.Weight.Dim0()
		if l.Gate.Weight.Dim0() != width || l.Gate.Weight.Width() != x.Width() || l.Up.Weight.Width() != x.Width() || l.Down.Weight.Dim0() != y.Width() || l.Down.Weight.Width() != width {
			panic(fmt.Sprintf("kernels: FewExperts of %v to %v: gate %v, up %v, down %v", x.Shape, y.Shape, l.Gate.Weight.Shape, l.Up.Weight.Shape, l.Down.Weight.Shape))
		}
	}
}
