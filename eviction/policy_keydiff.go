package eviction

import (
	"math"

	"glimpse/model/runner"
)

func init() {
	Policies.Add("keydiff", Policy{
		Kind: "prefill", Doc: "the keys that differ most from the mean key, without any attention", Source: "KeyDiff (Park et al. 2025, arXiv:2504.15364) §3",
		Scorer: true,
		New:    func(Settings) (Method, error) { return keydiff{}, nil },
	})
}

// keydiff scores by 1 − cos(k_j, μ), where μ is the mean of the keys of a head, each at length 1 (KeyDiff,
// arXiv:2504.15364, §3.2). The paper evicts block by block of the prompt; here, as in kvpress, its end decides.
type keydiff struct{}

func (keydiff) Plan(Prompt) Plan {
	return Plan{Score: func(s *Scores, o *runner.Observation) {
		past := o.Cache.View(o.Layer)
		s.FromHost(func(dst [][]float32) {
			for h, scores := range dst {
				keyDistances(scores, past[h].K.OnHost().Float32s(), past[h].K.Width())
			}
		})
	}}
}

// keyDistances are 1 minus the cosines of keys [entries, dim] and the mean of their directions, which are not negative.
func keyDistances(dst, keys []float32, dim int) {
	mean, lengths := make([]float64, dim), make([]float64, len(dst))
	for j := range dst {
		k := keys[j*dim:][:dim]
		lengths[j] = max(norm(k), 1e-12)
		for i, x := range k {
			mean[i] += float64(x) / lengths[j]
		}
	}
	length := 0.0
	for _, x := range mean {
		length += x * x
	}
	length = max(math.Sqrt(length), 1e-12)
	for j := range dst {
		dot := 0.0
		for i, x := range keys[j*dim:][:dim] {
			dot += float64(x) * mean[i]
		}
		dst[j] = float32(1 - dot/(lengths[j]*length))
	}
}

func norm(x []float32) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum)
}
