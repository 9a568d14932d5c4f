package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// everyLevel runs test once with each level that this processor has.
func everyLevel(t *testing.T, test func(t *testing.T)) {
	for _, name := range Levels() {
		t.Run(name, func(t *testing.T) {
			restore, err := Use(name)
			if err != nil {
				t.Fatal(err)
			}
			defer restore()
			test(t)
		})
	}
}

// iterations reduces a number of repetitions under the race detector, which slows down
// the loops that check results far more than the kernels, and with -short.
func iterations(n int) int {
	if raceEnabled {
		return (n + 9) / 10
	}
	if testing.Short() {
		return (n + 2) / 3
	}
	return n
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// normal returns n normally distributed numbers.
func normal(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for done := 0; done < n; { // stretches of some that were drawn once
		done += copy(x[done:], drawn[r.IntN(len(drawn)/2):])
	}
	return x
}

// drawn are normally distributed numbers.
var drawn = func() []float32 {
	r := rand.New(rand.NewPCG(101, 103))
	x := make([]float32, 1<<16)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}()

// ulps is the distance between got and the float64 result want, in units in the last
// place of a float32 near want. It is 0 for equal infinities and two NaN, infinite for
// unequal ones.
func ulps(got float32, want float64) float64 {
	if math.IsNaN(want) || math.IsNaN(float64(got)) {
		if math.IsNaN(want) && math.IsNaN(float64(got)) {
			return 0
		}
		return math.Inf(1)
	}
	if nearest := float32(want); math.IsInf(float64(nearest), 0) || math.IsInf(float64(got), 0) {
		if nearest == got {
			return 0
		}
		return math.Inf(1)
	}
	_, e := math.Frexp(want)
	return math.Abs(float64(got)-want) / math.Ldexp(1, max(e-24, -149))
}

// mustPanic runs fn and checks the message of its panic.
func mustPanic(t *testing.T, want string, fn func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if got := fmt.Sprint(recover()); got != want {
			t.Errorf("panic %q, want %q", got, want)
		}
	}()
	fn()
}

// sameBits returns the first index at which x and y differ in any bit, or −1.
func sameBits(x, y []float32) int {
	for i := range x {
		if math.Float32bits(x[i]) != math.Float32bits(y[i]) {
			return i
		}
	}
	return -1
}
