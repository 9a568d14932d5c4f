package confidence

import (
	"math"

	"glimpse/internal/stats"
)

// bets is how many parts the capital is divided into. Part k bets the share (k+1)/bets of the largest λ.
const bets = 10

// capital are the logarithms of the parts, as multiples of what each began with.
type capital [bets]float64

// bet takes a loss against "the mean is m or more". Losses are at most 1, and m is below 1.
func (c *capital) bet(loss, m float64) {
	for k := range c {
		share := float64(k+1) / bets
		c[k] += math.Log1p(max(-1, -share*(loss-m)/(1-m)))
	}
}

// log is the logarithm of the whole capital, which began as 1.
func (c *capital) log() float64 {
	most := math.Inf(-1)
	for _, x := range c {
		most = max(most, x)
	}
	if math.IsInf(most, -1) {
		return most
	}
	sum := 0.0
	for _, x := range c {
		sum += math.Exp(x - most)
	}
	return most + math.Log(sum/bets)
}

// LogCapital is the logarithm of the capital of a bettor who doubts that the mean of losses of at most 1 is m or more; m
// is below 1. It shows that the mean is below m with confidence 1−δ where it is at least log(1/δ).
func LogCapital(losses []float64, m float64) float64 {
	var c capital
	for _, loss := range losses {
		c.bet(loss, m)
	}
	return c.log()
}

// Upper is what the mean of losses of at most 1 is below with confidence 1−delta, at most 1. It is the least m that LogCapital
// refutes: every part's capital grows with m.
func Upper(losses []float64, delta float64) float64 {
	low, _ := stats.Mean(losses)
	if len(losses) == 0 || !(low < 1) {
		return 1
	}
	high, passes := 1.0, math.Log(1/delta)
	for range 50 {
		m := (low + high) / 2
		if LogCapital(losses, m) >= passes {
			high = m
		} else {
			low = m
		}
	}
	return high
}

// Fewest is how many losses, if all are 0, show that the mean is below m with confidence 1−delta; 0 < m < 1.
func Fewest(m, delta float64) int {
	var c capital
	for n := 1; ; n++ {
		if c.bet(0, m); c.log() >= math.Log(1/delta) {
			return n
		}
	}
}
