package eviction

import (
	"math"

	"glimpse/internal/parallel"
	"glimpse/internal/simd"
	"glimpse/model/runner"
)

func init() {
	Policies.Add("expectedattention", Policy{
		Kind: "prefill", Doc: "attention that queries distributed as the prompt's are expected to pay from the positions that follow, times the norm of the value", Source: "Expected Attention (Devoto et al. 2025, arXiv:2510.00636), as kvpress (github.com/NVIDIA/kvpress) has it",
		Scorer: true,
		Options: []Option{
			{Name: "future", Default: 512, Min: 1, Max: 1 << 16, Whole: true, Doc: "positions after the prompt from which queries are expected"},
			{Name: "sink", Default: 4, Min: 0, Max: 1 << 20, Whole: true, Doc: "first entries that are kept, and first rows whose queries do not count"},
			{Name: "covariance", Default: 1, Min: 0, Max: 1, Whole: true, Doc: "1: of queries their mean and covariance count; 0: their mean alone"},
			{Name: "vnorm", Default: 1, Min: 0, Max: 1, Whole: true, Doc: "1: the expected attention is multiplied by the norm of the value"},
			{Name: "epsilon", Default: 0, Min: 0, Max: 1, Doc: "what is added to the expected attention before that"},
		},
		New: func(s Settings) (Method, error) {
			return expectedAttention{
				future: s.Int("future"), sink: s.Int("sink"), covariance: s.Int("covariance") == 1, vnorm: s.Int("vnorm") == 1, epsilon: s.Float("epsilon"),
			}, nil
		},
	})
}

// expectedAttention takes the queries to come for normally distributed, with the mean μ and the covariance Σ that the
// prompt's have before RoPE, and rotates both by the mean rotation of the next positions. Then E[exp(q·k/√d)] is
// exp(μᵀk/√d + kᵀΣk/2d) (Expected Attention, arXiv:2510.00636). Like kvpress it normalises this over the entries. The score is the mean
// over the query heads of a group, times ‖v‖; the paper has ‖W_O v‖ there. The first rows and entries do not count.
type expectedAttention struct {
	future, sink      int
	covariance, vnorm bool
	epsilon           float64
}

func (m expectedAttention) Plan(p Prompt) Plan {
	return Plan{Capture: runner.Capture{Queries: true}, Sink: min(m.sink, p.Budget), Score: func(s *Scores, o *runner.Observation) {
		s.FromHost(func(dst [][]float32) { m.score(dst, p, o) })
	}}
}

// score writes the scores of a layer [kvHead][entry].
func (m expectedAttention) score(dst [][]float32, p Prompt, o *runner.Observation) {
	c, past := p.Config, o.Cache.View(o.Layer)
	readers, dim, scale := c.Readers(o.Layer), past[0].K.Width(), c.AttentionScale()
	queries, turns, keys := make([][]float32, len(readers)), make([][]complex64, len(readers)), make([][]float32, len(past))
	skip := min(max(0, m.sink-p.From), len(p.Tokens)-1)
	for i, reader := range readers {
		queries[i] = o.Queries[i].Float32s()[skip*c.Heads*dim:]
		turns[i] = m.turns(c.RoPEOf(reader).Freqs(o.Cache.Long()), p.From+skip, p.From+len(p.Tokens))
	}
	for h := range past {
		keys[h] = past[h].K.Float32s()[min(m.sink, len(dst[h]))*dim:]
	}
	expected := make([][]float64, len(readers)*c.Heads) // of readers and query heads, of the entries after the sinks
	parallel.For(len(expected), func(i int) {
		reader, head := i/c.Heads, i%c.Heads
		rows := turned(queries[reader][head*dim:], c.Heads*dim, dim, turns[reader], len(p.Tokens)-skip)
		expected[i] = m.probabilities(keys[head*len(past)/c.Heads], rows, dim, scale)
	})
	top := float32(0)
	for h, scores := range dst {
		sink := min(m.sink, len(scores))
		for i, probabilities := range expected {
			if i%c.Heads*len(past)/c.Heads == h {
				for j, x := range probabilities {
					scores[sink+j] += float32(x * float64(len(past)) / float64(len(expected)))
				}
			}
		}
		if values := past[h].V.Float32s(); m.vnorm {
			for j := sink; j < len(scores); j++ {
				scores[j] = float32((float64(scores[j]) + m.epsilon) * norm(values[j*dim:][:dim]))
			}
		}
		for _, x := range scores {
			top = max(top, x)
		}
	}
	for _, scores := range dst { // whoever shares budgets out gives them theirs
		for j := range scores[:min(m.sink, len(scores))] {
			scores[j] = top + 1
		}
	}
}

// turns are, of positions [from, to) and each frequency, the rotation from there to the mean of those that follow to.
func (m expectedAttention) turns(freqs []float32, from, to int) []complex64 {
	mean := make([]complex128, len(freqs))
	for i := range freqs {
		for pos := to; pos < to+m.future; pos++ {
			mean[i] += rotation(pos, freqs[i]) / complex(float64(m.future), 0)
		}
	}
	out := make([]complex64, (to-from)*len(freqs))
	parallel.For(to-from, func(r int) {
		for i := range freqs {
			at := rotation(from+r, freqs[i])
			out[r*len(freqs)+i] = complex64(mean[i] * complex(real(at), -imag(at)))
		}
	})
	return out
}

// turned are a head's rotated queries [rows, dim], of which x has one in every stride, each turned.
func turned(x []float32, stride, dim int, turns []complex64, rows int) []float32 {
	out, half := make([]float32, rows*dim), len(turns)/rows
	for r := range rows {
		q, y, turn := x[r*stride:][:dim], out[r*dim:][:dim], turns[r*half:][:half]
		copy(y, q)
		for i, t := range turn {
			z := complex(q[i], q[i+half]) * t
			y[i], y[i+half] = real(z), imag(z)
		}
	}
	return out
}

// probabilities are exp(μᵀk·scale + kᵀΣk·scale²/2) of keys [entries, dim], normalised, where μ and Σ are of queries [rows, dim],
// which it centres.
func (m expectedAttention) probabilities(keys, queries []float32, dim int, scale float64) []float64 {
	rows, n := len(queries)/dim, len(keys)/dim
	sums, mean, logits := make([]float64, dim), make([]float32, dim), make([]float64, n)
	for i, x := range queries {
		sums[i%dim] += float64(x)
	}
	for i, sum := range sums {
		mean[i] = float32(sum / float64(rows))
	}
	for j := range logits {
		logits[j] = scale * float64(simd.Dot(mean, keys[j*dim:][:dim]))
	}
	if m.covariance {
		for i := range queries {
			queries[i] -= mean[i%dim]
		}
		covariance, products := make([]float32, dim*dim), make([]float32, len(keys))
		simd.GemmTN(dim, dim, rows, float32(1/float64(rows)), queries, dim, queries, dim, 0, covariance, dim)
		simd.GemmNN(n, dim, dim, 1, keys, dim, covariance, dim, 0, products, dim)
		for j := range logits {
			logits[j] += scale * scale / 2 * float64(simd.Dot(products[j*dim:][:dim], keys[j*dim:][:dim]))
		}
	}
	top, sum := math.Inf(-1), 0.0
	for _, x := range logits {
		top = max(top, x)
	}
	for j, x := range logits {
		logits[j] = math.Exp(x - top)
		sum += logits[j]
	}
	for j := range logits {
		logits[j] /= sum
	}
	return logits
}
