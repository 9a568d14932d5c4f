package eviction

import (
	"math"
	"math/cmplx"
	"slices"

	"glimpse/internal/parallel"
	"glimpse/internal/simd"
	"glimpse/kernels"
	"glimpse/model/runner"
)

func init() {
	Policies.Add("triattention", Policy{
		Kind: "prefill + decode", Doc: "a trigonometric series of the distances from which queries of the prompt's mean would look, and norms; the prompt is kept while decoding", Source: "TriAttention (Mao et al. 2026, arXiv:2604.04921); queries of the prompt in the place of a calibration text",
		Scorer: true,
		Options: []Option{
			{Name: "future", Default: 1 << 16, Min: 1, Max: 1 << 20, Whole: true, Doc: "queries are expected 1, 2, 4, … positions later, up to so many"},
			{Name: "norms", Default: 1, Min: 0, Max: 1, Whole: true, Doc: "1: what queries have beyond their mean counts, by the norms of the keys; 0: the series alone"},
			{Name: "interval", Default: 128, Min: 1, Max: 1 << 20, Whole: true, Doc: "tokens of the response after which entries are scored again, half of those that may go at most"},
			roomOption,
		},
		New: func(s Settings) (Method, error) {
			return triAttention{future: s.Int("future"), interval: s.Int("interval"), norms: s.Int("norms") == 1, room: s.Float("room")}, nil
		},
	})
}

// triAttention takes the queries to come for the mean μ that the prompt's have before RoPE (TriAttention, arXiv:2604.04921). A pair of
// dimensions is a complex number that RoPE turns by ω a position, so that such a query attends to a key k at the distance Δ by
//
//	Σ_f |μ_f| |k_f| cos(ω_f Δ + φ_f) + Σ_f (E|q_f| − |μ_f|) |k_f|
//
// where φ is the angle between μ and k. The second sum is what queries have beyond their mean. The score of a query head is the mean over
// the distances to queries 1, 2, 4, … positions after the last row, less its mean over the entries, in standard deviations. A KV head
// has the highest of its group. Its authors calibrate μ and E|q| on texts; here they are the prompt's own.
//
// While decoding its authors score every 128 tokens and evict as many at once. Here as many are chosen at once, and go one by one, the
// oldest first: the cache never holds more than the budget.
type triAttention struct {
	future, interval int
	norms            bool
	room             float64
}

func (m triAttention) Plan(p Prompt) Plan {
	centres := make(map[int][][]queryCentre) // by layer
	plan := Plan{Capture: runner.Capture{Queries: true}, HoldsHeads: true}
	plan.Score = func(s *Scores, o *runner.Observation) {
		s.FromHost(func(dst [][]float32) {
			centres[o.Layer] = queryCentres(p, o)
			m.score(dst, o, centres[o.Layer], p.From+len(p.Tokens)-1)
		})
	}
	plan.Decode = func(s *Session) *Decoding {
		kept, leaving := keepPrompt(s, m.room, 0), make(map[int][][]int32) // by layer, positions per KV head
		return &Decoding{Step: func(o *runner.Observation) (*kernels.Selection, error) {
			if leaving[o.Layer] == nil {
				leaving[o.Layer] = make([][]int32, o.Cache.KVHeads())
			}
			of, scores := leaving[o.Layer], (*Scores)(nil)
			return kept.evict(o, func(head int, positions []int32, from, to int) int {
				out := -1
				if len(of[head]) > 0 {
					out, _ = slices.BinarySearch(positions, of[head][0])
				}
				if out < from || out >= to {
					if scores == nil {
						scores = NewScores(o)
						scores.FromHost(func(dst [][]float32) { m.score(dst, o, centres[o.Layer], newest(positions)) })
						s.Ranked(o.Layer, scores)
					}
					lowest := scores.lowest(head, from, to, min(m.interval, (to-from+1)/2))
					of[head], out = nil, int(lowest[0])
					for _, j := range lowest {
						of[head] = append(of[head], positions[j])
					}
				}
				of[head] = of[head][1:]
				return out
			}), nil
		}}
	}
	return plan
}

// lowest are the count lowest of a head's scores [from, to), in the order of their entries.
func (s *Scores) lowest(head, from, to, count int) (out []int32) {
	n := s.Entries[head]
	keep := s.Ops.Select(s.Values.Rows(head, head+1), []int{n}, []int{n - count}, from, n-to).Indices()[0]
	for j := range int32(n) {
		if !slices.Contains(keep, j) {
			out = append(out, j)
		}
	}
	return out
}

// queryCentre is what is known of the queries of a query head, as they are before RoPE.
type queryCentre struct {
	mean   []float32 // μ [headDim]
	beyond []float64 // E|q| − |μ| [frequencies]
	freqs  []float32 // of the layer that they ask in
}

// queryCentres gives every KV head the centres of its query heads, of each layer that reads the cache.
func queryCentres(p Prompt, o *runner.Observation) [][]queryCentre {
	c, kvHeads, rows := p.Config, o.Cache.KVHeads(), len(p.Tokens)
	out := make([][]queryCentre, kvHeads)
	for i, reader := range c.Readers(o.Layer) {
		queries, freqs, centres := o.Queries[i].Float32s(), c.RoPEOf(reader).Freqs(o.Cache.Long()), make([]queryCentre, c.Heads)
		dim, back := o.Queries[i].Shape[2], make([][]complex128, rows)
		for r := range back {
			for _, freq := range freqs {
				back[r] = append(back[r], cmplx.Conj(rotation(p.From+r, freq)))
			}
		}
		parallel.For(c.Heads, func(h int) { centres[h] = newQueryCentre(queries[h*dim:], c.Heads*dim, dim, freqs, back) })
		for h, centre := range centres {
			out[h*kvHeads/c.Heads] = append(out[h*kvHeads/c.Heads], centre)
		}
	}
	return out
}

// newQueryCentre is the centre of a head. Its rotated queries stand in x, one in every stride. back [row][frequency] undoes RoPE.
func newQueryCentre(x []float32, stride, dim int, freqs []float32, back [][]complex128) queryCentre {
	centre := queryCentre{make([]float32, dim), make([]float64, len(freqs)), freqs}
	sums, half, rows := make([]float64, dim), len(freqs), float64(len(back))
	for r, turns := range back {
		q := x[r*stride:][:dim]
		for i, turn := range turns {
			z := complex(float64(q[i]), float64(q[i+half])) * turn
			sums[i], sums[i+half] = sums[i]+real(z), sums[i+half]+imag(z)
			centre.beyond[i] += cmplx.Abs(z) / rows
		}
		for i := 2 * half; i < dim; i++ { // dimensions without RoPE
			sums[i] += float64(q[i])
		}
	}
	for i, sum := range sums {
		centre.mean[i] = float32(sum / rows)
	}
	for i := range centre.beyond {
		centre.beyond[i] -= math.Hypot(sums[i], sums[i+half]) / rows
	}
	return centre
}

// score writes the scores of a layer [kvHead][entry] after the row at position last.
func (m triAttention) score(dst [][]float32, o *runner.Observation, centres [][]queryCentre, last int) {
	past := o.Cache.View(o.Layer)
	parallel.For(len(dst), func(h int) {
		keys, dim, own := past[h].K.Float32s(), past[h].K.Width(), make([]float64, len(dst[h]))
		for g, centre := range centres[h] {
			expected, half := m.expected(centre, last), len(centre.freqs)
			for j := range own {
				key := keys[j*dim:][:dim]
				own[j] = float64(simd.Dot(expected, key))
				for i, beyond := range centre.beyond {
					if re, im := float64(key[i]), float64(key[i+half]); m.norms {
						own[j] += beyond * math.Sqrt(re*re+im*im)
					}
				}
			}
			standardise(own)
			for j, x := range own { // no deviation of n numbers is below −√n
				if x := float32(x + math.Sqrt(float64(len(own)))); g == 0 || x > dst[h][j] {
					dst[h][j] = x
				}
			}
		}
	})
}

// expected is the mean of the queries 1, 2, 4, … positions after last, rotated. Its product with a rotated key is the mean of the
// series over their distances.
func (m triAttention) expected(centre queryCentre, last int) []float32 {
	out, half := slices.Clone(centre.mean), len(centre.freqs)
	for i, freq := range centre.freqs {
		turn, n := complex(0, 0), 0
		for later := 1; later <= m.future; later *= 2 {
			turn, n = turn+rotation(last+later, freq), n+1
		}
		z := complex(float64(out[i]), float64(out[i+half])) * turn / complex(float64(n), 0)
		out[i], out[i+half] = float32(real(z)), float32(imag(z))
	}
	return out
}

// standardise makes numbers their distances from their mean, in standard deviations, or zeros where all are equal.
func standardise(x []float64) {
	mean, square := 0.0, 0.0
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		square += (v - mean) * (v - mean) / float64(len(x))
	}
	for i := range x {
		if x[i] -= mean; square > 0 {
			x[i] /= math.Sqrt(square)
		}
	}
}
