package eviction_test

import (
	"math"
	"slices"
	"testing"

	"glimpse/model/modeltest"
)

func init() {
	// The mean query, rotated to every position that is looked at from, times the rotated keys; then the norms, entry by entry.
	naivePolicies["triattention"] = func(c *naiveCase) naivePlan {
		scores := make([][][]float64, c.c.Layers)
		for l := range scores {
			for h := range c.c.KVHeads {
				scores[l] = append(scores[l], c.triScores(l, h, c.full[l][h], c.n()-1))
			}
		}
		return naivePlan{scores: scores, budgets: c.uniform(c.budget)}
	}
	// At the first entry too many, some of the lowest are chosen, which go by age; when they have gone, the entries are scored again.
	naiveDecoders["triattention"] = func(c *naiveCase, _ naivePlan, kept [][][]int32) naiveDecoder {
		type head struct{ positions, leaving []int }
		heads, known := make([][]head, len(kept)), make([][]map[int]float64, len(kept)) // scores by position
		for l := range kept {
			for _, idx := range kept[l] {
				var x head
				for _, j := range idx {
					x.positions = append(x.positions, int(j))
				}
				heads[l], known[l] = append(heads[l], x), append(known[l], nil)
			}
		}
		next := make([]int, c.c.Layers)
		for l := range next {
			next[l] = c.n() - 1
		}
		return naiveDecoder{
			least: func(_ pass, cache pairs, l, h int) (int, []float64) {
				if h == 0 {
					next[l]++
				}
				x := &heads[l][h]
				x.positions = append(x.positions, next[l])
				if len(x.positions) <= c.budget {
					return -1, nil
				}
				var mayGo []int // positions
				ofResponse := func(p int) bool { return p >= c.n() }
				response := 0
				for _, p := range x.positions {
					if ofResponse(p) {
						response++
					}
				}
				full := float64(response) > max(1, math.Ceil(c.option("room")*float64(c.budget))) || response == len(x.positions)
				for _, p := range x.positions {
					if ofResponse(p) == full {
						mayGo = append(mayGo, p)
					}
				}
				if len(x.leaving) == 0 || !slices.Contains(mayGo, x.leaving[0]) {
					known[l][h] = make(map[int]float64)
					for j, s := range c.triScores(l, h, cache[l][h], next[l]) {
						known[l][h][x.positions[j]] = s
					}
					order := slices.Clone(mayGo)
					slices.SortStableFunc(order, func(a, b int) int { // of equals the later goes
						if known[l][h][a] != known[l][h][b] {
							if known[l][h][a] < known[l][h][b] {
								return -1
							}
							return 1
						}
						return b - a
					})
					x.leaving = order[:min(c.int("interval"), (len(mayGo)+1)/2)]
					slices.Sort(x.leaving)
				}
				scores := make([]float64, len(x.positions))
				for j, p := range x.positions {
					scores[j] = math.Inf(1)
					if s, ok := known[l][h][p]; ok {
						scores[j] = s
					}
				}
				return slices.Index(x.positions, x.leaving[0]), scores
			},
			drop: func(_ pairs, l, h, out int) {
				x := &heads[l][h]
				at := max(0, slices.Index(x.leaving, x.positions[out]))
				x.leaving = slices.Delete(x.leaving, at, at+1)
				x.positions = slices.Delete(x.positions, out, out+1)
			},
		}
	}
}

// triScores are the scores of entries after the row at position last.
func (c *naiveCase) triScores(l, g int, entries []pair, last int) []float64 {
	best, dim := make([]float64, len(entries)), c.c.HeadDim
	for h := g * c.c.Group(); h < (g+1)*c.c.Group(); h++ {
		mean, norms := make([]float64, dim), make([]float64, dim/2)
		for r := range c.n() {
			q := c.rotate(c.prompt.queries[l][h][r], -r)
			for i, x := range q {
				mean[i] += x / float64(c.n())
			}
			for f := range norms {
				norms[f] += math.Hypot(q[f], q[f+dim/2]) / float64(c.n())
			}
		}
		own := make([]float64, len(entries))
		for j, e := range entries {
			distances := 0.0
			for later := 1; later <= c.int("future"); later *= 2 {
				distances++
			}
			for later := 1; later <= c.int("future"); later *= 2 {
				own[j] += dotOf(c.rotate(mean, last+later), e.k) / distances
			}
			if c.int("norms") == 1 {
				for f := range norms {
					own[j] += (norms[f] - math.Hypot(mean[f], mean[f+dim/2])) * math.Hypot(e.k[f], e.k[f+dim/2])
				}
			}
		}
		average, variance := 0.0, 0.0
		for _, x := range own {
			average += x / float64(len(own))
		}
		for _, x := range own {
			variance += (x - average) * (x - average) / float64(len(own))
		}
		for j, x := range own {
			z := math.Sqrt(float64(len(own)))
			if variance > 0 {
				z += (x - average) / math.Sqrt(variance)
			}
			if z = float64(float32(z)); h == g*c.c.Group() || z > best[j] { // of two entries every head has one a deviation above, and ties are many
				best[j] = z
			}
		}
	}
	return best
}

// TestTriAttentionSeries: the product with the rotated mean query is the series of TriAttention (arXiv:2604.04921): |μ| |k| cos(ωΔ + φ),
// summed over frequencies.
func TestTriAttentionSeries(t *testing.T) {
	m := modeltest.Llama{Layers: 1, Seed: 4}.Open(t, "reference64")
	c := &naiveCase{naive: newNaive(m), tokens: modeltest.Tokens(m, 1, 30)}
	mean, key, half := c.embedding[3], c.embedding[5], c.c.HeadDim/2
	mean, key = mean[:2*half], key[:2*half]
	for _, distance := range []int{1, 2, 7, 29} {
		want := 0.0
		for f := range half {
			angle := math.Atan2(mean[f+half], mean[f]) - math.Atan2(key[f+half], key[f])
			want += math.Hypot(mean[f], mean[f+half]) * math.Hypot(key[f], key[f+half]) * math.Cos(float64(c.c.RoPEFreqs[f])*float64(distance)+angle)
		}
		if got := dotOf(c.rotate(mean, 30), c.rotate(key, 30-distance)); math.Abs(got-want) > 1e-5*(1+math.Abs(want)) {
			t.Errorf("distance %d: the product is %v, the series %v", distance, got, want)
		}
	}
}

// TestTriAttentionDecoding replays responses with the second implementation.
func TestTriAttentionDecoding(t *testing.T) {
	for i, shape := range shapes {
		shape.Seed = uint64(i + 1)
		m := shape.Open(t, "reference64")
		for _, budget := range []int{1, 2, 9, 30, 50, 52, 55} {
			replayFixed(t, m, "triattention", budget)
			replayFixed(t, m, "triattention", budget, "triattention.interval=1", "triattention.room=0.1")
			replayFixed(t, m, "triattention", budget, "triattention.interval=3", "triattention.room=0", "triattention.norms=0", "triattention.future=16")
		}
	}
}
