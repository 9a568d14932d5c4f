// Package kernelstest has cases of every operation of a backend, and what holds a backend
// against the float64 reference in all of them. A new operation gets its cases here; the
// tests of package kernels fail for one that has none.
package kernelstest

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	_ "glimpse/kernels/backends" // which Open opens by name
)

// Conformance is one call of one operation on inputs drawn from rng, which gives
// every backend the same numbers.
type Conformance struct {
	Op   string // the method of kernels.Backend
	Name string // shape and variant
	run  func(d Device, rng *rand.Rand) []Output
	tol  float64 // allowed error in float32; 0: 1e-5
}

// Output is one result of a case. Its error is judged relative to floor; 0 is the
// largest finite magnitude of the result: elements that cancel to almost zero
// carry the rounding of their terms.
type Output struct {
	Name   string
	Values []float64
	Floor  float64
}

// ConformanceCases are all cases of all operations.
func ConformanceCases() []Conformance {
	return slices.Concat(ProductCases(productShapes), BlockCases(), ElementCases(lengths, rowShapes, ropeShapes), LearningCases(lossShapes, lengths),
		AttentionCases(slices.Concat(AttendShapes, BoundedShapes, RandomShapes(25))), composedCases())
}

// Device makes the tensors of one backend.
type Device struct{ B kernels.Backend }

// Open opens a backend.
func Open(t testing.TB, name string) Device {
	t.Helper()
	b, err := kernels.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return Device{b}
}

// Tensor holds values in the compute type.
func (d Device) Tensor(values []float64, shape ...int) *kernels.Tensor {
	return d.Stored(d.B.Compute(), values, shape...)
}

// Drawn is normally distributed numbers in the compute type.
func (d Device) Drawn(rng *rand.Rand, shape ...int) *kernels.Tensor {
	return d.Tensor(Random(rng, kernels.ShapeLen(shape), 1), shape...)
}

// Stored holds values in any type but F16.
func (d Device) Stored(dtype kernels.DType, values []float64, shape ...int) *kernels.Tensor {
	t := d.B.Alloc(dtype, shape...)
	kernels.Convert(t, kernels.FromF64(values, shape...))
	return t
}

// Garbage is an output before it is written.
func (d Device) Garbage(shape ...int) *kernels.Tensor {
	t := d.B.Alloc(d.B.Compute(), shape...)
	d.B.Fill(t, math.NaN())
	return t
}

// Random is n normally distributed numbers that float32 can represent.
func Random(rng *rand.Rand, n int, scale float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = float64(float32(scale * rng.NormFloat64()))
	}
	return out
}

// WeightTypes are the storage types of weights.
var WeightTypes = []kernels.DType{kernels.F32, kernels.BF16, kernels.F16}

// Weight is a random weight in its storage type.
func (d Device) Weight(rng *rand.Rand, dtype kernels.DType, shape ...int) *kernels.Tensor {
	n := kernels.ShapeLen(shape)
	if dtype != kernels.F16 {
		return d.Stored(dtype, Random(rng, n, 1), shape...)
	}
	bits := make([]byte, 0, 2*n)
	for range n { // magnitudes from 2⁻⁵ to 2, and a few subnormal numbers
		r := rng.Uint32()
		h := uint16(r&0x83ff | (10+(r>>16&0xff)*6>>8)<<10)
		if r>>24 < 5 {
			h &= 0x83ff
		}
		bits = append(bits, byte(h), byte(h>>8))
	}
	t, err := kernels.FromBytes(dtype, bits, shape...)
	if err != nil {
		panic(err)
	}
	return d.B.Place(t)
}

// RunOn runs a case with the random numbers that belong to its name.
func (c Conformance) RunOn(d Device) []Output {
	seed := uint64(0)
	for _, r := range c.Op + c.Name {
		seed = seed*31 + uint64(r)
	}
	return c.run(d, rand.New(rand.NewPCG(seed, 7)))
}

// Compare holds a backend's results of a case, which it returns, against the exact ones.
func (c Conformance) Compare(t *testing.T, d Device, want []Output) (out []Output) {
	t.Helper()
	tol := c.tol
	switch {
	case d.B.Compute() == kernels.F64:
		tol = 0 // with outputs that were not clean before
	case tol == 0:
		tol = 1e-5
	}
	out = c.RunOn(d)
	for i, got := range out {
		w := want[i]
		floor := w.Floor
		if floor == 0 {
			floor = Magnitude(w.Values)
		}
		compare.Close(t, fmt.Sprintf("%s %s: %s", c.Op, c.Name, got.Name), got.Values, w.Values, tol,
			compare.Floor(floor), compare.EqualInf())
	}
	return out
}

// Magnitude is the largest finite absolute value.
func Magnitude(x []float64) float64 {
	m := 0.0
	for _, v := range x {
		if v = math.Abs(v); !math.IsInf(v, 0) {
			m = max(m, v)
		}
	}
	return m
}

// Conform holds backends against the float64 reference in all cases.
func Conform(t *testing.T, names ...string) {
	exact := Open(t, "reference64")
	byOp := make(map[string][]Conformance)
	for _, c := range ConformanceCases() {
		byOp[c.Op] = append(byOp[c.Op], c)
	}
	type key struct {
		op string
		i  int
	}
	wanted := make(map[key][]Output)
	for _, name := range names {
		for _, op := range slices.Sorted(maps.Keys(byOp)) {
			t.Run(name+"/"+op, func(t *testing.T) {
				d := Open(t, name)
				for i, c := range byOp[op] {
					if testing.Short() && i%4 > 0 {
						continue
					}
					want, ok := wanted[key{op, i}]
					if !ok {
						want = c.RunOn(exact)
						wanted[key{op, i}] = want
					}
					c.Compare(t, d, want)
				}
			})
		}
	}
}

// HoldContract holds backends to what they say of themselves.
func HoldContract(t *testing.T, names ...string) {
	for _, name := range names {
		for method, check := range Contract {
			t.Run(name+"/"+method, func(t *testing.T) { check(t, Open(t, name)) })
		}
	}
}
