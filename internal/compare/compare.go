package compare

import (
	"flag"
	"fmt"
	"math"
	"testing"
)

// DefaultFloor is added to the denominator of the relative error.
const DefaultFloor = 1e-4

// Float is a type whose values can be compared.
type Float interface{ ~float32 | ~float64 }

// Option changes how numbers are compared.
type Option func(*options)

type options struct {
	floor    float64
	equalInf bool
}

// Floor replaces [DefaultFloor]. With a floor of 0 the error is purely relative,
// and any value against 0 has error 1. It panics if f is negative, NaN or
// infinite.
func Floor(f float64) Option {
	if !(f >= 0) || math.IsInf(f, 0) {
		panic(fmt.Sprintf("compare: floor %v, want a finite number ≥ 0", f))
	}
	return func(o *options) { o.floor = f }
}

// EqualInf accepts an infinity where both sides hold the same one.
func EqualInf() Option { return func(o *options) { o.equalInf = true } }

// Result is the outcome of a comparison.
type Result struct {
	N         int     // elements compared
	Err       float64 // worst relative error, in [0, 1]; NaN if Problem is set
	Index     int     // of the worst, or first invalid, element; −1 if there is none
	Got, Want float64 // the two values at Index
	Problem   string  // why no error can be given: lengths, NaN, infinities; else empty
}

// Compare returns the worst error between got and want, and the first element
// that has it. Elements that cannot be compared and unequal lengths are reported
// in Result.Problem. The two sides may have different types, so that a float32
// kernel is held against a float64 reference without rounding the reference.
// Two empty slices have error 0.
func Compare[G, W Float](got []G, want []W, opts ...Option) Result {
	o := options{floor: DefaultFloor}
	for _, opt := range opts {
		opt(&o)
	}
	if len(got) != len(want) {
		return Result{Err: math.NaN(), Index: -1,
			Problem: fmt.Sprintf("got %d values, want %d", len(got), len(want))}
	}
	worst := Result{N: len(want), Index: -1}
	for i := range want {
		g, w := float64(got[i]), float64(want[i])
		if problem := o.invalid(g, w); problem != "" {
			return Result{N: len(want), Err: math.NaN(), Index: i, Got: g, Want: w, Problem: problem}
		}
		if e := relative(g, w, o.floor); worst.Index < 0 || e > worst.Err {
			worst.Err, worst.Index, worst.Got, worst.Want = e, i, g, w
		}
	}
	return worst
}

func (o options) invalid(g, w float64) string {
	switch {
	case math.IsNaN(g) || math.IsNaN(w):
		return "NaN"
	case !math.IsInf(g, 0) && !math.IsInf(w, 0):
		return ""
	case g != w:
		return "unequal infinity"
	case !o.equalInf:
		return "unexpected infinity on both sides"
	}
	return ""
}

func relative(g, w, floor float64) float64 {
	if g == w { // also 0 against 0 with no floor, and equal infinities
		return 0
	}
	sum := floor + math.Abs(g) + math.Abs(w)
	if math.IsInf(sum, 0) { // near the largest float64 the sum overflows, and the difference may
		return math.Abs(g/4-w/4) / (floor/4 + math.Abs(g/4) + math.Abs(w/4))
	}
	return math.Abs(g-w) / sum
}

// Within returns nil if the values could be compared and the worst error is at
// most tol, and otherwise an error that names the element and both values. A NaN
// tolerance accepts nothing.
func (r Result) Within(tol float64) error {
	switch {
	case r.Problem != "" && r.Index < 0:
		return fmt.Errorf("%s", r.Problem)
	case r.Problem != "":
		return fmt.Errorf("element %d of %d: %s: got %v, want %v", r.Index, r.N, r.Problem, r.Got, r.Want)
	case r.Err <= tol:
		return nil
	}
	return fmt.Errorf("element %d of %d: got %v, want %v: relative error %.3g, tolerance %.3g",
		r.Index, r.N, r.Got, r.Want, r.Err, tol)
}

// Close fails the test if got is not within tol of want. It lets the test go on, except
// with -failfast, where one difference is as good as many.
func Close[G, W Float](t testing.TB, name string, got []G, want []W, tol float64, opts ...Option) {
	t.Helper()
	if err := Compare(got, want, opts...).Within(tol); err != nil {
		t.Errorf("%s: %v", name, err)
		if f := flag.Lookup("test.failfast"); f != nil && f.Value.String() == "true" {
			t.FailNow()
		}
	}
}

// CloseToScale compares relative to the largest magnitude of want: single elements near zero carry
// the rounding of the sums that cancelled in them.
func CloseToScale[G, W Float](t testing.TB, name string, got []G, want []W, tol float64) {
	t.Helper()
	scale := 0.0
	for _, v := range want {
		scale = max(scale, math.Abs(float64(v)))
	}
	Close(t, name, got, want, tol, Floor(scale))
}
