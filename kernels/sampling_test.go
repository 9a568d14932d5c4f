package kernels_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/kernels"
)

// sortedCandidates is Draw.Candidates by its definition: sort all tokens, cut, add up.
func sortedCandidates(d kernels.Draw, logits []float32) (ids []int32, p []float64, sum float64) {
	ids = kernels.TopK(logits, cmp.Or(d.TopK, len(logits)))
	slices.SortStableFunc(ids, func(a, b int32) int { return cmp.Compare(logits[b], logits[a]) })
	for len(ids) > 1 && math.IsInf(float64(logits[ids[len(ids)-1]]), -1) {
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

// sortedToken is Draw.Token by its definition.
func sortedToken(d kernels.Draw, logits []float32) int32 {
	ids, p, sum := sortedCandidates(d, logits)
	u := d.U * sum
	for i := range p {
		if u -= p[i]; u < 0 {
			return ids[i]
		}
	}
	return ids[len(p)-1]
}

// logitKinds are what rows of logits are like.
var logitKinds = map[string]func(rng *rand.Rand, x []float32){
	"normal": func(rng *rand.Rand, x []float32) {
		for i := range x {
			x[i] = float32(3 * rng.NormFloat64())
		}
	},
	"sure of a few": func(rng *rand.Rand, x []float32) {
		for i := range x {
			x[i] = float32(2*rng.NormFloat64() - 5)
		}
		for range 5 {
			x[rng.IntN(len(x))] = 15 + rng.Float32()
		}
	},
	"ties, zeros of both signs": func(rng *rand.Rand, x []float32) {
		for i := range x {
			x[i] = float32(rng.IntN(5)-2) * float32(1-2*rng.IntN(2))
		}
	},
	"all equal": func(rng *rand.Rand, x []float32) {
		for i := range x {
			x[i] = -3
		}
	},
	"far apart": func(rng *rand.Rand, x []float32) {
		for i := range x {
			x[i] = float32(math.Ldexp(rng.NormFloat64(), rng.IntN(80)-40))
		}
	},
	"banned": func(rng *rand.Rand, x []float32) {
		for i := range x {
			if x[i] = float32(rng.NormFloat64()); rng.IntN(3) > 0 {
				x[i] = float32(math.Inf(-1))
			}
		}
		x[rng.IntN(len(x))] = 1
	},
	"bf16": func(rng *rand.Rand, x []float32) {
		for i := range x {
			x[i] = math.Float32frombits(math.Float32bits(float32(3*rng.NormFloat64())) &^ 0xffff)
		}
	},
}

// TestDrawsOfASortedVocabulary: tokens that are ranked as far as they are needed give the tokens, the probabilities and the
// sum that sorting all of them does, to the bit.
func TestDrawsOfASortedVocabulary(t *testing.T) {
	temperatures := []float64{1, 0.7, 0.2, 1.5, 5, 1e-300, 1e300}
	seeds := uint64(60)
	if testing.Short() {
		seeds = 15
	}
	for kind, fill := range logitKinds {
		t.Run(kind, func(t *testing.T) {
			for seed := range seeds {
				rng := rand.New(rand.NewPCG(seed, 16))
				logits := make([]float32, []int{1, 2, 7, 300, 5000}[seed%5])
				fill(rng, logits)
				for i := range 24 {
					d := kernels.Draw{Temperature: temperatures[rng.IntN(len(temperatures))], U: rng.Float64()}
					if i&1 != 0 {
						d.TopP = rng.Float64()
					}
					if i&2 != 0 {
						d.MinP = math.Pow(rng.Float64(), 4)
					}
					if i&4 != 0 {
						d.TopK = 1 + rng.IntN(len(logits)+3)
					}
					if i >= 16 { // where the last bits of a sum decide
						_, p, sum := sortedCandidates(d, logits)
						part := 0.0
						for _, x := range p[:1+rng.IntN(len(p))] {
							part += x
						}
						if d.TopP > 0 {
							d.TopP = min(1, part/sum)
						} else {
							d.U = min(part/sum, 1-0x1p-53)
						}
					}
					ids, p, sum := d.Candidates(logits)
					wantIDs, wantP, wantSum := sortedCandidates(d, logits)
					if !slices.Equal(ids, wantIDs) || !slices.Equal(p, wantP) || sum != wantSum {
						t.Fatalf("seed %d, %+v: %d candidates of sum %v, want %d of %v", seed, d, len(ids), sum, len(wantIDs), wantSum)
					}
					if got, want := d.Token(logits), sortedToken(d, logits); got != want {
						t.Fatalf("seed %d, %+v: drew %d, want %d", seed, d, got, want)
					}
				}
			}
		})
	}
}

// TestDrawsHaveTheirShares: tokens are drawn as often as they are likely.
func TestDrawsHaveTheirShares(t *testing.T) {
	logits := []float32{0, float32(math.Log(2)), float32(math.Inf(-1)), float32(math.Log(5)), -60}
	const draws = 8000
	var got [5]int
	for i := range draws {
		got[kernels.Draw{Temperature: 1, U: (float64(i) + 0.5) / draws}.Token(logits)]++
	}
	if want := [5]int{1000, 2000, 0, 5000, 0}; got != want {
		t.Errorf("drew %d times, want %d", got, want)
	}
}

func BenchmarkDraw(b *testing.B) {
	logits := make([]float32, 151936)
	for _, kind := range []string{"normal", "sure of a few", "all equal"} {
		logitKinds[kind](rand.New(rand.NewPCG(1, 2)), logits)
		for name, d := range map[string]kernels.Draw{
			"all": {Temperature: 0.7}, "top_p=0.9": {Temperature: 0.7, TopP: 0.9}, "min_p=0.05": {Temperature: 0.7, MinP: 0.05}, "top_k=50": {Temperature: 0.7, TopK: 50},
		} {
			for how, token := range map[string]func(kernels.Draw, []float32) int32{"ranked": kernels.Draw.Token, "sorted": sortedToken} {
				b.Run(fmt.Sprintf("vocabulary=%d/logits=%s/%s/%s", len(logits), kind, name, how), func(b *testing.B) {
					rng := rand.New(rand.NewPCG(3, 4))
					for b.Loop() {
						d.U = rng.Float64()
						token(d, logits)
					}
				})
			}
		}
	}
}
