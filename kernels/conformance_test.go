package kernels_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"glimpse/internal/parallel"
	"glimpse/kernels"
	"glimpse/kernels/kernelstest"
)

func TestEveryMethodHasCases(t *testing.T) {
	tested := make(map[string]int)
	for _, c := range kernelstest.ConformanceCases() {
		tested[c.Op]++
	}
	methods := reflect.TypeFor[kernels.Backend]()
	for i := range methods.NumMethod() {
		name := methods.Method(i).Name
		if kernelstest.Contract[name] != nil {
			continue // of no numbers: TestContract
		}
		if tested[name] == 0 {
			t.Errorf("%s has no conformance case", name)
		}
		delete(tested, name)
	}
	for name := range kernelstest.Contract {
		if _, ok := methods.MethodByName(name); !ok {
			t.Errorf("a contract of %s, which kernels.Backend does not have", name)
		}
	}
	for name := range tested {
		t.Errorf("cases of %s, which kernels.Backend does not have", name)
	}
}

// hosts are the backends on host memory: devices meet the cases in their own rooms.
func hosts(t *testing.T) []string {
	return slices.DeleteFunc(kernels.Backends.Names(), func(name string) bool { return kernelstest.Open(t, name).B.OwnMemory() })
}

// TestBackendsConform holds every backend on host memory against the float64 reference.
func TestBackendsConform(t *testing.T) { kernelstest.Conform(t, hosts(t)...) }

// TestThreadsDoNotChangeBits runs every case with one thread and with more.
func TestThreadsDoNotChangeBits(t *testing.T) {
	defer parallel.SetThreads(parallel.Threads())
	d := kernelstest.Open(t, "cpu")
	for i, c := range kernelstest.ConformanceCases() {
		if testing.Short() && i%8 > 0 {
			continue
		}
		parallel.SetThreads(1)
		want := c.RunOn(d)
		for _, threads := range []int{2, 3} {
			parallel.SetThreads(threads)
			for i, got := range c.RunOn(d) {
				for j, v := range got.Values {
					if math.Float64bits(v) != math.Float64bits(want[i].Values[j]) {
						t.Errorf("%s %s: %s[%d] is %v with %d threads, %v with 1", c.Op, c.Name, got.Name, j, v, threads, want[i].Values[j])
						break
					}
				}
			}
		}
	}
}

func TestOpenUnknownBackend(t *testing.T) {
	for name, meant := range map[string]string{
		"abacus": "", "gpu": `; did you mean "cuda:0"?`, "CUDA0": `; did you mean "cuda:0"?`, "CPU": `; did you mean "cpu"?`, "atuo": `; did you mean "auto"?`,
	} {
		_, err := kernels.Open(name)
		want := fmt.Sprintf(`unknown device %q, want one of: cpu, reference, reference64, cuda:N, auto%s`, name, meant)
		if err == nil || len(kernels.Backends.Names()) == 3 && err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// TestBackendsNameThemselves: the registered name and a compute type that
// activations can have.
func TestBackendsNameThemselves(t *testing.T) {
	for _, name := range kernels.Backends.Names() {
		b := kernelstest.Open(t, name).B
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

// TestContract holds every backend on host memory to what it says of itself.
func TestContract(t *testing.T) { kernelstest.HoldContract(t, hosts(t)...) }

// TestAddNorm: sum and norm in one call have the bits of the two operations on every
// backend, and are those of the reference; what does not fit is refused by its name.
func TestAddNorm(t *testing.T) { kernelstest.CheckAddNorm(t, kernels.Backends.Names()...) }

// TestHostSelector: the operations of policies on the backends that select on the host.
func TestHostSelector(t *testing.T) {
	for _, name := range hosts(t) {
		d := kernelstest.Open(t, name)
		if d.B.Compute() != kernels.F32 { // the cases have pairs of F32
			continue
		}
		for op, test := range kernelstest.SelectorTests {
			t.Run(name+"/"+op, func(t *testing.T) { test(t, d, d.B.Selector()) })
		}
	}
}

// TestEverySelectorMethodIsTested: the tests of a Selector call each of its operations, on
// every backend.
func TestEverySelectorMethodIsTested(t *testing.T) {
	files, err := filepath.Glob("kernelstest/selector*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files of tests, %v", len(files), err)
	}
	var tests []byte
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		tests = append(tests, text...)
	}
	selector, backend := reflect.TypeFor[kernels.Selector](), reflect.TypeFor[kernels.Backend]()
	for i := range selector.NumMethod() {
		name := selector.Method(i).Name
		if _, ok := backend.MethodByName(name); !ok && !bytes.Contains(tests, []byte("sel."+name+"(")) {
			t.Errorf("%s of a Selector has no test", name)
		}
	}
}
