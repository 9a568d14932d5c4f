package leastsquares

import (
	"math"
	"math/rand/v2"
	"testing"

	"glimpse/internal/compare"
)

func drawn(rng *rand.Rand, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(rng.NormFloat64())
	}
	return out
}

// eliminate solves a square system [n, n] with right sides [n, d] in place by Gauss with pivots.
func eliminate(a, b []float64, n, d int) {
	for k := range n {
		p := k
		for i := k; i < n; i++ {
			if math.Abs(a[i*n+k]) > math.Abs(a[p*n+k]) {
				p = i
			}
		}
		for j := range n {
			a[k*n+j], a[p*n+j] = a[p*n+j], a[k*n+j]
		}
		for j := range d {
			b[k*d+j], b[p*d+j] = b[p*d+j], b[k*d+j]
		}
		for i := range n {
			if i == k {
				continue
			}
			f := a[i*n+k] / a[k*n+k]
			for j := range n {
				a[i*n+j] -= f * a[k*n+j]
			}
			for j := range d {
				b[i*d+j] -= f * b[k*d+j]
			}
		}
	}
	for k := range n {
		for j := range d {
			b[k*d+j] /= a[k*n+k]
		}
	}
}

// cost is ‖A w − b‖² + ridge·‖w − start‖².
func cost(w []float64, at, b []float32, start []float32, ridge float64) float64 {
	sum, m := 0.0, len(b)
	for i := range m {
		r := -float64(b[i])
		for j := range w {
			r += w[j] * float64(at[j*m+i])
		}
		sum += r * r
	}
	for j := range w {
		sum += ridge * (w[j] - float64(start[j])) * (w[j] - float64(start[j]))
	}
	return sum
}

// bestOfAllSets is the least cost over every choice of unknowns at a bound, the others solved for.
func bestOfAllSets(at, b, start []float32, p Bounds) float64 {
	n, m, best := len(start), len(b), math.Inf(1)
	sets := 1
	for range n {
		sets *= 3
	}
	for set := range sets {
		w, free := make([]float64, n), []int(nil)
		for j, s := 0, set; j < n; j, s = j+1, s/3 {
			switch s % 3 {
			case 0:
				free = append(free, j)
			case 1:
				w[j] = float64(p.Low)
			default:
				w[j] = float64(p.High)
			}
		}
		a, right := make([]float64, len(free)*len(free)), make([]float64, len(free))
		for x, j := range free {
			right[x] = float64(p.Ridge) * float64(start[j])
			for i := range m {
				rest := float64(b[i])
				for k := range n {
					rest -= w[k] * float64(at[k*m+i])
				}
				right[x] += float64(at[j*m+i]) * rest
				for y, k := range free {
					a[x*len(free)+y] += float64(at[j*m+i]) * float64(at[k*m+i])
				}
			}
			a[x*len(free)+x] += float64(p.Ridge)
		}
		eliminate(a, right, len(free), 1)
		inside := true
		for x, j := range free {
			w[j] = right[x]
			inside = inside && w[j] >= float64(p.Low) && w[j] <= float64(p.High)
		}
		if inside {
			best = min(best, cost(w, at, b, start, float64(p.Ridge)))
		}
	}
	return best
}

// TestBoundsAgainstAllActiveSets: the cost is the least of all choices of unknowns at their bounds, with fewer rows than unknowns, too.
func TestBoundsAgainstAllActiveSets(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 5))
	for i := range 60 {
		n, m := 1+rng.IntN(5), 1+rng.IntN(8)
		at, b, start := drawn(rng, n*m), drawn(rng, m), drawn(rng, n)
		p := Bounds{Low: 0.1, High: 1.5, Ridge: 0.01, Sweeps: 100000, Tolerance: 1e-7}
		w := append([]float32(nil), start...)
		p.Solve(w, at, b)
		wide := make([]float64, n)
		for j, x := range w {
			if wide[j] = float64(x); x < p.Low || x > p.High {
				t.Fatalf("problem %d: unknown %d is %v, want %v to %v", i, j, x, p.Low, p.High)
			}
		}
		got, want := cost(wide, at, b, start, float64(p.Ridge)), bestOfAllSets(at, b, start, p)
		if got > want*(1+1e-4)+1e-5 {
			t.Errorf("problem %d of %d unknowns and %d rows: cost %v, want %v", i, n, m, got, want)
		}
	}
}

// TestBoundsOptimality: at the solution of a large problem the slope of an unknown between its bounds is 0, of one at a bound it points outward
// (Karush, Kuhn and Tucker).
func TestBoundsOptimality(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 5))
	for _, shape := range [][2]int{{96, 60}, {60, 200}} {
		m, n := shape[0], shape[1]
		at, b, w := drawn(rng, n*m), drawn(rng, m), make([]float32, n)
		for j := range w {
			w[j] = 1
		}
		p := Bounds{Low: 0.05, High: 20, Ridge: 0.5, Sweeps: 3000, Tolerance: 1e-6}
		p.Solve(w, at, b)
		atBound := 0
		for j := range w {
			slope := float64(p.Ridge) * float64(w[j]-1)
			for i := range m {
				r := -float64(b[i])
				for k := range w {
					r += float64(w[k]) * float64(at[k*m+i])
				}
				slope += float64(at[j*m+i]) * r
			}
			switch {
			case w[j] == p.Low || w[j] == p.High:
				if atBound++; (w[j] == p.Low) != (slope > -1e-3) {
					t.Errorf("%d rows: unknown %d at its bound %v has slope %v", m, j, w[j], slope)
				}
			case math.Abs(slope) > 5e-3:
				t.Errorf("%d rows: unknown %d = %v has slope %v, want 0", m, j, w[j], slope)
			}
		}
		if atBound == 0 || atBound == n {
			t.Errorf("%d rows: %d of %d unknowns are at a bound, want some", m, atBound, n)
		}
	}
}

// TestRidge holds both normal equations against Gauss on (XᵀX + ridge)D = XᵀR.
func TestRidge(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	for _, shape := range [][3]int{{1, 1, 1}, {7, 3, 2}, {3, 7, 2}, {40, 40, 5}, {90, 30, 16}, {30, 90, 16}} {
		m, n, d := shape[0], shape[1], shape[2]
		x, r := drawn(rng, m*n), drawn(rng, m*d)
		const ridge = 0.3
		got, err := Ridge(x, r, m, n, d, ridge)
		if err != nil {
			t.Fatal(err)
		}
		a, want := make([]float64, n*n), make([]float64, n*d)
		for i := range m {
			for j := range n {
				for k := range n {
					a[j*n+k] += float64(x[i*n+j]) * float64(x[i*n+k])
				}
				for k := range d {
					want[j*d+k] += float64(x[i*n+j]) * float64(r[i*d+k])
				}
			}
		}
		for j := range n {
			a[j*n+j] += ridge
		}
		eliminate(a, want, n, d)
		compare.CloseToScale(t, "D", got, want, 1e-4)
	}
}

// TestRidgeErrors: numbers that are not finite are refused.
func TestRidgeErrors(t *testing.T) {
	if _, err := Ridge([]float32{float32(math.NaN())}, []float32{1}, 1, 1, 1, 1); err == nil {
		t.Error("no error")
	}
	if _, err := Ridge([]float32{0, 0}, []float32{1}, 1, 2, 1, 0); err == nil {
		t.Error("no error without a ridge")
	}
}
