package eviction_test

import "math"

func init() {
	// The last row's attention, averaged over all heads, as a logarithm; nothing is
	// protected.
	naivePolicies["tova"] = func(c *naiveCase) naivePlan {
		scores := c.layerMean(c.prompt.attention, c.n()-1, c.n())
		for l := range scores {
			for h, s := range scores[l] {
				scores[l][h] = pooled(s, c.int("kernel"))
			}
		}
		return naivePlan{scores: scores, budgets: c.uniform(c.budget)}
	}
	naiveDecoders["tova"] = func(c *naiveCase, _ naivePlan, _ [][][]int32) naiveDecoder {
		return naiveDecoder{least: func(row pass, cache pairs, l, h int) (int, []float64) {
			scores := pooled(c.layerMean(row.attention, 0, len(cache[l][h]))[l][h], c.int("kernel"))
			return lowest(scores, 0, len(scores)), scores
		}}
	}
}

// layerMean is the logarithm of a row's attention on n entries, averaged over all heads of
// a layer.
func (m *naive) layerMean(attention [][][][]float64, row, n int) [][][]float64 {
	out := make([][][]float64, m.c.Layers)
	for l := range out {
		s := make([]float64, n)
		for h := range m.c.Heads {
			for j, p := range attention[l][h][row] {
				s[j] += p / float64(m.c.Heads)
			}
		}
		for j := range s {
			s[j] = math.Log(s[j])
		}
		for range m.c.KVHeads {
			out[l] = append(out[l], s)
		}
	}
	return out
}
