package kernels

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"glimpse/internal/simd"
)

// Draw are the settings by which a token is drawn from a row of logits.
type Draw struct {
	Temperature float64 // 0: the largest logit, of equal ones the lowest id
	TopP        float64 // smallest set of tokens with this probability; 0 or 1: all
	MinP        float64 // least probability, as a share of the largest; 0: any
	U           float64 // drawn from [0, 1)
	TopK        int     // most likely tokens considered; 0: all
}

// Token draws from logits that are not NaN, nor all −Inf. Of equal logits the lower id comes
// first.
func (d Draw) Token(logits []float32) int32 {
	if d.Temperature == 0 {
		return int32(slices.Index(logits, simd.Max(logits)))
	}
	ids, p, sum := d.Candidates(logits)
	u := d.U * sum
	for i := range p {
		if u -= p[i]; u < 0 {
			return ids[i]
		}
	}
	return ids[len(p)-1]
}

// Candidates are the tokens that may be drawn, the most likely first, with the
// numbers that their probabilities are proportional to.
func (d Draw) Candidates(logits []float32) (ids []int32, p []float64, sum float64) {
	ids = TopK(logits, cmp.Or(d.TopK, len(logits)))
	slices.SortStableFunc(ids, func(a, b int32) int { return cmp.Compare(logits[b], logits[a]) })
	for len(ids) > 1 && math.IsInf(float64(logits[ids[len(ids)-1]]), -1) { // banned
		ids = ids[:len(ids)-1]
	}
	p = make([]float64, len(ids))
	for i, id := range ids {
		p[i] = math.Exp(float64(logits[id]-logits[ids[0]]) / d.Temperature)
		sum += p[i]
	}
	if d.TopP > 0 && d.TopP < 1 {
		kept := 0.0
		for i := range p {
			kept += p[i]
			if kept >= d.TopP*sum {
				p, sum = p[:i+1], kept
				break
			}
		}
	}
	if d.MinP > 0 {
		kept := 0.0
		for i := range p {
			if p[i] < d.MinP*p[0] {
				p, sum = p[:i], kept
				break
			}
			kept += p[i]
		}
	}
	return ids[:len(p)], p, sum
}

// CheckDraws panics unless there is a row of logits for each of valid settings.
func CheckDraws(logits *Tensor, draws []Draw) {
	const op = "Draw"
	if len(logits.Shape) != 2 || logits.Dim0() != len(draws) || logits.Width() == 0 {
		panic(fmt.Sprintf("kernels: %s of logits %v for %d rows", op, logits.Shape, len(draws)))
	}
	for _, d := range draws {
		if !(d.Temperature >= 0) || !(d.TopP >= 0 && d.TopP <= 1) || !(d.MinP >= 0 && d.MinP <= 1) || d.TopK < 0 || !(d.U >= 0 && d.U < 1) {
			panic(fmt.Sprintf("kernels: %s: %+v", op, d))
		}
	}
}
