package kernels_test

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"

	"glimpse/internal/parallel"
	"glimpse/kernels"
)

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

// TestThreadsDoNotChangeBits runs every case with one thread and with more.
func TestThreadsDoNotChangeBits(t *testing.T) {
	defer parallel.SetThreads(parallel.Threads())
	d := open(t, "cpu")
	for _, c := range conformanceCases() {
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

// TestContract holds every backend to what it says of itself.
func TestContract(t *testing.T) {
	for _, name := range kernels.Backends.Names() {
		for method, check := range contract {
			t.Run(name+"/"+method, func(t *testing.T) { check(t, open(t, name)) })
		}
	}
}

// TestAddNorm: sum and norm in one call have the bits of the two operations on every
// backend, and are those of the reference; what does not fit is refused by its name.
func TestAddNorm(t *testing.T) { checkAddNorm(t, kernels.Backends.Names()...) }
