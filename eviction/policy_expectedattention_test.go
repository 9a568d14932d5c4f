package eviction_test

import "math"

func init() {
	// The queries as they are before RoPE, their mean and covariance, the mean rotation of the next positions as a matrix, and
	// the expectation of the exponential under a normal distribution.
	naivePolicies["expectedattention"] = func(c *naiveCase) naivePlan {
		n, dim, sink := c.n(), c.c.HeadDim, min(c.int("sink"), c.n())
		rotation := make(matrix, dim) // [to][from]
		for from := range dim {
			unit := make([]float64, dim)
			unit[from] = 1
			for pos := n; pos < n+c.int("future"); pos++ {
				for to, x := range c.rotate(unit, pos) {
					if from == 0 && pos == n {
						rotation[to] = make([]float64, dim)
					}
					rotation[to][from] += x / c.option("future")
				}
			}
		}
		scores := make([][][]float64, c.c.Layers)
		for l := range scores {
			scores[l] = make([][]float64, c.c.KVHeads)
			for h := range c.c.Heads {
				g := h / c.c.Group()
				if scores[l][g] == nil {
					scores[l][g] = make([]float64, n)
				}
				var queries matrix
				for r := min(sink, n-1); r < n; r++ {
					queries = append(queries, c.rotate(c.prompt.queries[l][h][r], -r))
				}
				mean, sum := make([]float64, dim), 0.0
				for _, q := range queries {
					for i, x := range q {
						mean[i] += x / float64(len(queries))
					}
				}
				covariance := make(matrix, dim)
				for i := range covariance {
					covariance[i] = make([]float64, dim)
					for j := range dim {
						for _, q := range queries {
							covariance[i][j] += (q[i] - mean[i]) * (q[j] - mean[j]) / float64(len(queries))
						}
					}
				}
				expected := make([]float64, n)
				for j := sink; j < n; j++ {
					back := make([]float64, dim) // Rᵀk
					for i := range back {
						for to, row := range rotation {
							back[i] += row[i] * c.full[l][g][j].k[to]
						}
					}
					logit := dotOf(mean, back) / math.Sqrt(float64(dim))
					if c.int("covariance") == 1 {
						logit += dotOf(back, covariance.times(back)) / float64(dim) / 2
					}
					expected[j] = math.Exp(logit)
					sum += expected[j]
				}
				for j := sink; j < n; j++ {
					scores[l][g][j] += expected[j] / sum / float64(c.c.Group())
				}
			}
			top := 0.0
			for g, s := range scores[l] {
				for j := sink; j < n; j++ {
					if v := c.full[l][g][j].v; c.int("vnorm") == 1 {
						s[j] = (s[j] + c.option("epsilon")) * math.Sqrt(dotOf(v, v))
					}
					top = max(top, s[j])
				}
			}
			for _, s := range scores[l] {
				for j := range sink {
					s[j] = top + 1
				}
			}
		}
		return naivePlan{scores: scores, budgets: c.uniform(c.budget), sink: min(sink, c.budget)}
	}
}
