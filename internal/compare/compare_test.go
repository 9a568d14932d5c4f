package compare

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

var (
	nan = math.NaN()
	inf = math.Inf(1)
)

func TestCompare(t *testing.T) {
	const big = math.MaxFloat64
	cases := []struct {
		name      string
		got, want []float64
		opts      []Option
		err       float64 // NaN: a problem is expected
		index     int
		problem   string
	}{
		{name: "equal", got: []float64{1, 2}, want: []float64{1, 2}, index: 0},
		{name: "empty", index: -1},
		{name: "worst element", got: []float64{1, 2.2, 3}, want: []float64{1, 2, 3.1}, err: 0.2 / (1e-4 + 4.2), index: 1},
		{name: "first of equal errors", got: []float64{0, 1, 1}, want: []float64{0, 2, 2}, err: 1 / (1e-4 + 3), index: 1},
		{name: "sign counts", got: []float64{-1}, want: []float64{1}, err: 2 / (1e-4 + 2), index: 0},
		{name: "floor hides noise near zero", got: []float64{1e-9}, want: []float64{-1e-9}, err: 2e-9 / (1e-4 + 2e-9), index: 0},
		{name: "no floor", got: []float64{1e-9}, want: []float64{-1e-9}, opts: []Option{Floor(0)}, err: 1, index: 0},
		{name: "no floor, both zero", got: []float64{0}, want: []float64{math.Copysign(0, -1)}, opts: []Option{Floor(0)}, index: 0},
		{name: "larger floor", got: []float64{1}, want: []float64{2}, opts: []Option{Floor(1)}, err: 0.25, index: 0},
		{name: "sum overflows", got: []float64{big}, want: []float64{big / 2}, err: 1.0 / 3, index: 0},
		{name: "difference overflows", got: []float64{big}, want: []float64{-big}, err: 1, index: 0},
		{name: "got too short", got: []float64{1}, want: []float64{1, 2}, err: nan, index: -1, problem: "got 1 values, want 2"},
		{name: "got too long", got: []float64{1}, want: nil, err: nan, index: -1, problem: "got 1 values, want 0"},
		{name: "NaN in got", got: []float64{5, nan}, want: []float64{1, 1}, err: nan, index: 1, problem: "NaN"},
		{name: "NaN in want", got: []float64{1}, want: []float64{nan}, err: nan, index: 0, problem: "NaN"},
		{name: "NaN in both", got: []float64{nan}, want: []float64{nan}, opts: []Option{EqualInf()}, err: nan, index: 0, problem: "NaN"},
		{name: "infinity in got", got: []float64{inf}, want: []float64{1}, opts: []Option{EqualInf()}, err: nan, index: 0, problem: "unequal infinity"},
		{name: "infinity in want", got: []float64{1}, want: []float64{-inf}, opts: []Option{EqualInf()}, err: nan, index: 0, problem: "unequal infinity"},
		{name: "opposite infinities", got: []float64{inf}, want: []float64{-inf}, opts: []Option{EqualInf()}, err: nan, index: 0, problem: "unequal infinity"},
		{name: "unexpected equal infinities", got: []float64{inf}, want: []float64{inf}, err: nan, index: 0, problem: "unexpected infinity"},
		{name: "expected equal infinities", got: []float64{-inf, 1}, want: []float64{-inf, 3}, opts: []Option{EqualInf()}, err: 2 / (1e-4 + 4), index: 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := Compare(c.got, c.want, c.opts...)
			if math.IsNaN(c.err) != math.IsNaN(r.Err) || math.Abs(r.Err-c.err) > 1e-15 {
				t.Errorf("Err = %v, want %v", r.Err, c.err)
			}
			if r.Index != c.index {
				t.Errorf("Index = %d, want %d", r.Index, c.index)
			}
			if (c.problem == "") != (r.Problem == "") || !strings.Contains(r.Problem, c.problem) {
				t.Errorf("Problem = %q, want %q", r.Problem, c.problem)
			}
			if r.Index >= 0 && (bits(r.Got) != bits(c.got[r.Index]) || bits(r.Want) != bits(c.want[r.Index])) {
				t.Errorf("values %v, %v are not those of element %d", r.Got, r.Want, r.Index)
			}
			if r.Problem != "" && r.Within(inf) == nil {
				t.Errorf("a result with a problem passes an infinite tolerance")
			}
		})
	}
}

func bits(f float64) uint64 { return math.Float64bits(f) }

// A float32 result is held against a float64 reference that is not rounded.
func TestCompareMixedTypes(t *testing.T) {
	third := 1.0 / 3
	r := Compare([]float32{float32(third)}, []float64{third})
	if r.Err == 0 || r.Err > 1e-7 {
		t.Errorf("float32(1/3) against 1/3: error %v, want the rounding error of float32", r.Err)
	}
	if r := Compare([]float32{math.MaxFloat32}, []float32{-math.MaxFloat32}); r.Err != 1 {
		t.Errorf("largest float32 values: error %v, want 1", r.Err)
	}
}

func TestWithin(t *testing.T) {
	half := Compare([]float64{1}, []float64{3}, Floor(0)) // error 0.5
	cases := []struct {
		name string
		r    Result
		tol  float64
		want string // substring of the error; empty: accepted
	}{
		{"at the tolerance", half, 0.5, ""},
		{"above the tolerance", half, 0.49, "element 0 of 1: got 1, want 3: relative error 0.5, tolerance 0.49"},
		{"NaN tolerance", half, nan, "tolerance NaN"},
		{"exact", Compare([]float32{7}, []float32{7}), 0, ""},
		{"length", Compare([]float32{7}, []float32{}), 1, "got 1 values, want 0"},
		{"NaN", Compare([]float64{2, nan}, []float64{2, 4}), 1, "element 1 of 2: NaN: got NaN, want 4"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := c.r.Within(c.tol)
			switch {
			case c.want == "" && err != nil:
				t.Errorf("unexpected error %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want one containing %q", err, c.want)
			}
		})
	}
}

// recorder stands in for the test that Close reports to.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func TestClose(t *testing.T) {
	rec := &recorder{TB: t}
	Close(rec, "same", []float32{1, 2}, []float32{1, 2}, 0)
	Close(rec, "masked", []float32{float32(-inf)}, []float64{-inf}, 0, EqualInf())
	if len(rec.errors) != 0 {
		t.Errorf("Close reports equal values: %q", rec.errors)
	}
	Close(rec, "scores", []float32{1, 2}, []float32{1, 3}, 0.1)
	if len(rec.errors) != 1 || !strings.HasPrefix(rec.errors[0], "scores: element 1 of 2: got 2, want 3") {
		t.Errorf("Close reported %q, want the name, the element and both values", rec.errors)
	}
}

func TestFloorRejectsNonsense(t *testing.T) {
	for _, f := range []float64{-1, nan, inf} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Floor(%v) did not panic", f)
				}
			}()
			Floor(f)
		}()
	}
}
