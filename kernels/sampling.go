package kernels

import (
	"fmt"
	"slices"

	"glimpse/internal/simd"
)

// Draw are the settings that a token is drawn with from a row of logits.
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
	r := newRanking(logits, d.Temperature, d.TopK)
	if !d.cuts() {
		return r.token(d.U)
	}
	ids, p, sum := d.candidates(r)
	u := d.U * sum
	for i := range p {
		if u -= p[i]; u < 0 {
			return ids[i]
		}
	}
	return ids[len(p)-1]
}

// Candidates are the tokens that may be drawn, the most likely first, with the
// numbers that their probabilities are proportional to. sum is theirs, in their order.
func (d Draw) Candidates(logits []float32) (ids []int32, p []float64, sum float64) {
	return d.candidates(newRanking(logits, d.Temperature, d.TopK))
}

func (d Draw) candidates(r *ranking) (ids []int32, p []float64, sum float64) {
	for i := 0; ; i++ {
		id, share, ok := r.tokenAt(i)
		if !ok || i > 0 && share < d.MinP*p[0] {
			return ids, p, sum
		}
		ids, p, sum = append(ids, id), append(p, share), sum+share
		if !(d.TopP > 0 && d.TopP < 1) {
			continue
		}
		for sum >= d.TopP*r.least && sum < d.TopP*r.much {
			r.drawBounds()
		}
		if sum >= d.TopP*r.least {
			return ids, p, sum
		}
	}
}

// cuts tells that tokens may not be drawn that are not among the TopK.
func (d Draw) cuts() bool { return d.TopP > 0 && d.TopP < 1 || d.MinP > 0 }

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
