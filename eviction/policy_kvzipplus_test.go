package eviction_test

import (
	"math"

	"glimpse/model"
)

func init() {
	// kvzip by the norm of what the entry's value becomes in the residual stream, over that of the row that reads it.
	naivePolicies["kvzip+"] = kvzipPlan(func(c *naiveCase, l, head, j int, h []float64) float64 {
		mixed, dim := make([]float64, c.c.Heads*c.c.HeadDim), c.c.HeadDim
		copy(mixed[head*dim:], c.full[l][head/c.c.Group()][j].v)
		added := c.layers[l].linear[model.OProj].times(mixed)
		return math.Sqrt(dotOf(added, added) / dotOf(h, h))
	})
}
