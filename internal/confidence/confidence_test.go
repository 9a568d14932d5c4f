package confidence

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/internal/stats"
)

// laws are distributions of losses whose means are known.
var laws = []struct {
	name string
	mean float64
	draw func(r *rand.Rand) float64
}{
	{"0 or 1, rarely", 0.02, func(r *rand.Rand) float64 { return oneIn(r, 0.02) }},
	{"0 or 1", 0.3, func(r *rand.Rand) float64 { return oneIn(r, 0.3) }},
	{"near 0", 0.02, func(r *rand.Rand) float64 { return beta(r, 1, 49) }},
	{"mostly 0, some large", 0.03, func(r *rand.Rand) float64 { return oneIn(r, 0.1) * beta(r, 3, 7) }},
	{"between", 0.2, func(r *rand.Rand) float64 { return beta(r, 1, 4) }},
	{"-1, 0 or 1", 0.02, func(r *rand.Rand) float64 { return oneIn(r, 0.04) - oneIn(r, 0.02) }},
	{"of both signs", 0.05, func(r *rand.Rand) float64 { return 0.05 + 0.4*(r.Float64()-r.Float64()) }},
	{"all alike", 0.1, func(*rand.Rand) float64 { return 0.1 }},
}

func oneIn(r *rand.Rand, p float64) float64 {
	if r.Float64() < p {
		return 1
	}
	return 0
}

// beta draws from a beta distribution of whole parameters: an order statistic of uniform numbers.
func beta(r *rand.Rand, a, b int) float64 {
	all := make([]float64, a+b-1)
	for i := range all {
		all[i] = r.Float64()
	}
	slices.Sort(all)
	return all[a-1]
}

func sample(r *rand.Rand, n int, draw func(*rand.Rand) float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = draw(r)
	}
	return out
}

// TestCoverage: against the true mean the capital reaches 1/δ, at whatever moment one looks, no more often than δ. A bettor who
// chose the best share afterwards would be found out: this test is not blind.
func TestCoverage(t *testing.T) {
	const delta, n = 0.05, 300
	runs := 2000
	if testing.Short() {
		runs = 500
	}
	most := delta + 3*math.Sqrt(delta*(1-delta)/float64(runs))
	cheats := 0
	for i, law := range laws {
		r := rand.New(rand.NewPCG(uint64(i), 66))
		fails, below, cheated := 0, 0, 0
		for range runs {
			var c capital
			s := NewSequence(law.mean, -1, delta)
			s.grid = nil
			ever, best := false, false
			for range n {
				loss := law.draw(r)
				c.bet(loss, law.mean)
				passes := func(x float64) bool { return x >= math.Log(1/delta) }
				ever, best = ever || passes(c.log()), best || passes(slices.Max(c[:]))
				s.Add(loss)
			}
			if ever {
				fails++
			}
			if best {
				cheated++
			}
			if s.Refuted() {
				below++
			}
		}
		for what, got := range map[string]int{"upper bound": fails, "lower bound": below} {
			if share := float64(got) / float64(runs); share > most {
				t.Errorf("%s: the %s is wrong in %.3f of the runs, want at most %.3f", law.name, what, share, most)
			}
		}
		if float64(cheated)/float64(runs) > most {
			cheats++
		}
	}
	if cheats == 0 {
		t.Error("shares that are chosen afterwards pass: the test sees nothing")
	}
}

// TestUpper: the bound is where the capital passes, above the mean, whatever the order of the losses, and nearer with more of them.
func TestUpper(t *testing.T) {
	const delta = 0.05
	for i, law := range laws {
		r := rand.New(rand.NewPCG(uint64(i), 1))
		losses := sample(r, 200, law.draw)
		mean, _ := stats.Mean(losses)
		u := Upper(losses, delta)
		if !(u > mean) || u > 1 {
			t.Errorf("%s: upper bound %v of the mean %v", law.name, u, mean)
		}
		if c := LogCapital(losses, u+1e-9); c < math.Log(1/delta) {
			t.Errorf("%s: the bound is not refuted: %v", law.name, c)
		}
		if c := LogCapital(losses, u-1e-6); u < 1 && c >= math.Log(1/delta) {
			t.Errorf("%s: a lower one is refuted: %v", law.name, c)
		}
		r.Shuffle(len(losses), func(a, b int) { losses[a], losses[b] = losses[b], losses[a] })
		if v := Upper(losses, delta); math.Abs(u-v) > 1e-9 {
			t.Errorf("%s: the order counts: %v, %v", law.name, u, v)
		}
		if v := Upper(slices.Concat(losses, losses, losses), delta); v > u {
			t.Errorf("%s: %v with more losses, %v with fewer", law.name, v, u)
		}
	}
	for name, losses := range map[string][]float64{"none": nil, "all lost": {1, 1, 1}} {
		if u := Upper(losses, delta); u != 1 {
			t.Errorf("%s: upper bound %v, want 1", name, u)
		}
	}
}

// TestFewest: so many losses of 0 show it, and one fewer does not.
func TestFewest(t *testing.T) {
	for _, c := range []struct {
		m, delta float64
		want     int
	}{{0.05, 0.05, 83}, {0.05, 0.025, 99}, {0.02, 0.05, 211}, {0.1, 0.05, 41}} {
		n := Fewest(c.m, c.delta)
		if n != c.want || LogCapital(make([]float64, n), c.m) < math.Log(1/c.delta) || LogCapital(make([]float64, n-1), c.m) >= math.Log(1/c.delta) {
			t.Errorf("m %v, delta %v: %d losses, want %d", c.m, c.delta, n, c.want)
		}
	}
}

// TestSequence: it is the bound of LogCapital over losses that are turned around, which it takes one by one.
func TestSequence(t *testing.T) {
	const delta = 0.05
	r := rand.New(rand.NewPCG(5, 5))
	for _, floor := range []float64{-1, 0} {
		s := NewSequence(0.1, floor, delta)
		var turned []float64
		for range 400 {
			loss := max(floor, 0.25+0.5*(r.Float64()-r.Float64()))
			s.Add(loss)
			turned = append(turned, (1-loss)/(1-floor))
		}
		want := 1 - (1-floor)*Upper(turned, delta)
		if got := s.Lower(); got > s.Mean() || math.Abs(got-want) > 0.03 || got < want-2.0/levels {
			t.Errorf("floor %v: lower bound %v of the mean %v, want about %v", floor, got, s.Mean(), want)
		}
		if s.Refuted() && s.Lower() < s.Bound {
			t.Errorf("floor %v: the mean is above %v, and said to be above %v", floor, s.Bound, s.Lower())
		}
		if !s.Refuted() || s.Count() != 400 {
			t.Errorf("floor %v: a mean of %v does not refute 0.1", floor, s.Mean())
		}
	}
	if s := NewSequence(0.1, -1, delta); s.Lower() != -1 || s.Mean() != 0 || s.Refuted() {
		t.Error("nothing was seen, and something is known")
	}
}

// TestAgainstHoeffdingBentkus compares the bounds as the package's comment tells: betting is the tighter one for all losses but those of
// 0 or 1.
func TestAgainstHoeffdingBentkus(t *testing.T) {
	const delta, runs = 0.05, 20
	for i, law := range laws {
		for _, n := range []int{100, 200, 300} {
			r := rand.New(rand.NewPCG(uint64(i), uint64(n)))
			betting, bentkus, mean := 0.0, 0.0, 0.0
			floor := 0.0
			if law.draw(r) < 0 || law.name == "-1, 0 or 1" || law.name == "of both signs" {
				floor = -1
			}
			for range runs {
				losses := sample(r, n, law.draw)
				m, _ := stats.Mean(losses)
				mean += m / runs
				betting += Upper(losses, delta) / runs
				bentkus += hoeffdingBentkus(losses, floor, delta) / runs
			}
			t.Logf("%-22s n %d: mean %.3f, betting %.3f, Hoeffding–Bentkus %.3f", law.name, n, mean, betting, bentkus)
			if tighter := betting < bentkus; tighter != (law.name[:6] != "0 or 1") {
				t.Errorf("%s, n = %d: betting %.4f, Hoeffding–Bentkus %.4f", law.name, n, betting, bentkus)
			}
		}
	}
}

// hoeffdingBentkus is the upper bound of Bates et al. (arXiv:2101.02703, §3.1), of losses in [floor, 1].
func hoeffdingBentkus(losses []float64, floor, delta float64) float64 {
	n, mean := float64(len(losses)), 0.0
	for _, x := range losses {
		mean += (x - floor) / (1 - floor) / n
	}
	kl := func(a, b float64) float64 {
		out := 0.0
		if a > 0 {
			out += a * math.Log(a/b)
		}
		if a < 1 {
			out += (1 - a) * math.Log((1-a)/(1-b))
		}
		return out
	}
	lgamma := func(x float64) float64 { y, _ := math.Lgamma(x); return y }
	p := func(m float64) float64 {
		binomial := 0.0
		for k := 0.0; k <= math.Ceil(n*mean); k++ {
			binomial += math.Exp(lgamma(n+1) - lgamma(k+1) - lgamma(n-k+1) + k*math.Log(m) + (n-k)*math.Log1p(-m))
		}
		return min(math.Exp(-n*kl(min(mean, m), m)), math.E*binomial)
	}
	low, high := mean, 1-1e-9
	for range 50 {
		if m := (low + high) / 2; m <= mean || p(m) > delta {
			low = m
		} else {
			high = m
		}
	}
	return floor + (1-floor)*high
}

// TestRefutedIsAboveTheBound: at the moment at which a bound is refuted the mean is said to be above it, between two levels of the grid, too.
func TestRefutedIsAboveTheBound(t *testing.T) {
	s := NewSequence(0.15, -1, 0.05)
	for !s.Refuted() {
		s.Add(0.18)
	}
	if got := s.Lower(); got < 0.15 {
		t.Errorf("the mean is above %v, want at least 0.15", got)
	}
}
