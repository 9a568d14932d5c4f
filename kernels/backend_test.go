package kernels_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/internal/parallel"
	"glimpse/kernels"
)

// conformance is one call of one operation on inputs drawn from rng, which gives
// every backend the same numbers.
type conformance struct {
	op   string // the method of kernels.Backend
	name string // shape and variant
	run  func(d device, rng *rand.Rand) []output
	tol  float64 // allowed error in float32; 0: 1e-5
}

// output is one result of a case. Its error is judged relative to floor; 0 is the
// largest finite magnitude of the result: elements that cancel to almost zero
// carry the rounding of what cancelled.
type output struct {
	name   string
	values []float64
	floor  float64
}

// conformanceCases are all cases of all operations.
func conformanceCases() []conformance {
	return slices.Concat(productCases(productShapes), elementCases(lengths, rowShapes, ropeShapes), learningCases(lossShapes, lengths),
		attentionCases(slices.Concat(attendShapes, randomShapes(25))), composedCases())
}

// device makes the tensors of one backend.
type device struct{ b kernels.Backend }

// watch fails a test that was given something else than the kernels it is about.
var watch = func(t testing.TB, b kernels.Backend) {}

func open(t testing.TB, name string) device {
	t.Helper()
	b, err := kernels.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	watch(t, b)
	return device{b}
}

// tensor holds values in the compute type.
func (d device) tensor(values []float64, shape ...int) *kernels.Tensor {
	return d.stored(d.b.Compute(), values, shape...)
}

// stored holds values in any type but F16.
func (d device) stored(dtype kernels.DType, values []float64, shape ...int) *kernels.Tensor {
	t := d.b.Alloc(dtype, shape...)
	kernels.Convert(t, kernels.FromF64(values, shape...))
	return t
}

// garbage is an output before it is written.
func (d device) garbage(shape ...int) *kernels.Tensor {
	t := d.b.Alloc(d.b.Compute(), shape...)
	d.b.Fill(t, math.NaN())
	return t
}

// random is n normally distributed numbers that float32 can represent.
func random(rng *rand.Rand, n int, scale float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = float64(float32(scale * rng.NormFloat64()))
	}
	return out
}

// weightTypes are the storage types of weights.
var weightTypes = []kernels.DType{kernels.F32, kernels.BF16, kernels.F16}

// weight is a random weight in its storage type.
func (d device) weight(rng *rand.Rand, dtype kernels.DType, shape ...int) *kernels.Tensor {
	n := 1
	for _, s := range shape {
		n *= s
	}
	if dtype != kernels.F16 {
		return d.stored(dtype, random(rng, n, 1), shape...)
	}
	bits := make([]byte, 0, 2*n)
	for range n { // magnitudes from 2⁻⁵ to 2, and a few subnormal numbers
		h := uint16(rng.IntN(1<<15)&0x3ff | (10+rng.IntN(6))<<10 | rng.IntN(2)<<15)
		if rng.IntN(50) == 0 {
			h &= 0x83ff
		}
		bits = append(bits, byte(h), byte(h>>8))
	}
	t, err := kernels.FromBytes(dtype, bits, shape...)
	if err != nil {
		panic(err)
	}
	return d.b.Place(t)
}

func TestEveryMethodHasCases(t *testing.T) {
	tested := make(map[string]int)
	for _, c := range conformanceCases() {
		tested[c.op]++
	}
	methods := reflect.TypeFor[kernels.Backend]()
	for i := range methods.NumMethod() {
		name := methods.Method(i).Name
		if contract[name] != nil {
			continue // of no numbers: TestContract
		}
		if tested[name] == 0 {
			t.Errorf("%s has no conformance case", name)
		}
		delete(tested, name)
	}
	for name := range contract {
		if _, ok := methods.MethodByName(name); !ok {
			t.Errorf("a contract of %s, which kernels.Backend does not have", name)
		}
	}
	for name := range tested {
		t.Errorf("cases of %s, which kernels.Backend does not have", name)
	}
}

// runOn runs a case with the random numbers that belong to its name.
func (c conformance) runOn(d device) []output {
	seed := uint64(0)
	for _, r := range c.op + c.name {
		seed = seed*31 + uint64(r)
	}
	return c.run(d, rand.New(rand.NewPCG(seed, 7)))
}

// TestBackendsConform holds every registered backend against the float64
// reference.
func TestBackendsConform(t *testing.T) {
	exact := open(t, "reference64")
	byOp := make(map[string][]conformance)
	for _, c := range conformanceCases() {
		byOp[c.op] = append(byOp[c.op], c)
	}
	type key struct {
		op string
		i  int
	}
	wanted := make(map[key][]output)
	for _, name := range kernels.Backends.Names() {
		for _, op := range slices.Sorted(maps.Keys(byOp)) {
			t.Run(name+"/"+op, func(t *testing.T) {
				for i, c := range byOp[op] {
					if testing.Short() && i%4 > 0 {
						continue
					}
					want, ok := wanted[key{op, i}]
					if !ok {
						want = c.runOn(exact)
						wanted[key{op, i}] = want
					}
					c.compare(t, open(t, name), want)
				}
			})
		}
	}
}

// compare holds a backend's results of a case against the exact ones.
func (c conformance) compare(t *testing.T, d device, want []output) {
	t.Helper()
	tol := c.tol
	switch {
	case d.b.Compute() == kernels.F64:
		tol = 0 // with outputs that were not clean before
	case tol == 0:
		tol = 1e-5
	}
	for i, got := range c.runOn(d) {
		w := want[i]
		floor := w.floor
		if floor == 0 {
			floor = magnitude(w.values)
		}
		compare.Close(t, fmt.Sprintf("%s %s: %s", c.op, c.name, got.name), got.values, w.values, tol,
			compare.Floor(floor), compare.EqualInf())
	}
}

// magnitude is the largest finite absolute value.
func magnitude(x []float64) float64 {
	m := 0.0
	for _, v := range x {
		if v = math.Abs(v); !math.IsInf(v, 0) {
			m = max(m, v)
		}
	}
	return m
}

// TestThreadsDoNotChangeBits runs every case with one thread and with more.
func TestThreadsDoNotChangeBits(t *testing.T) {
	defer parallel.SetThreads(parallel.Threads())
	d := open(t, "cpu")
	for i, c := range conformanceCases() {
		if testing.Short() && i%8 > 0 {
			continue
		}
		parallel.SetThreads(1)
		want := c.runOn(d)
		for _, threads := range []int{2, 3} {
			parallel.SetThreads(threads)
			for i, got := range c.runOn(d) {
				for j, v := range got.values {
					if math.Float64bits(v) != math.Float64bits(want[i].values[j]) {
						t.Errorf("%s %s: %s[%d] is %v with %d threads, %v with 1", c.op, c.name, got.name, j, v, threads, want[i].values[j])
						break
					}
				}
			}
		}
	}
}

func TestOpenUnknownBackend(t *testing.T) {
	_, err := kernels.Open("abacus")
	want := `unknown device "abacus", want one of: cpu, reference, reference64`
	if err == nil || len(kernels.Backends.Names()) == 3 && err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// TestBackendsNameThemselves: the registered name and a compute type that
// activations can have.
func TestBackendsNameThemselves(t *testing.T) {
	for _, name := range kernels.Backends.Names() {
		b := open(t, name).b
		if b.Name() != name {
			t.Errorf("%s calls itself %s", name, b.Name())
		}
		if c := b.Compute(); c != kernels.F32 && c != kernels.F64 {
			t.Errorf("%s computes in %s", name, c)
		}
		x := b.Alloc(b.Compute(), 3, 0, 5)
		if x.Len() != 0 || !slices.Equal(x.Shape, []int{3, 0, 5}) {
			t.Errorf("%s: empty tensor of shape %v", name, x.Shape)
		}
	}
}
