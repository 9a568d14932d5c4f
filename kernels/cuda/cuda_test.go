//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/cuda"
	"glimpse/kernels/kernelstest"
)

// openCUDA skips a test where there is no device, unless a driver was promised.
func openCUDA(t testing.TB) kernelstest.Device {
	t.Helper()
	if !slices.Contains(kernels.Backends.Names(), "cuda") {
		if driver := os.Getenv("GLIMPSE_CUDA_DRIVER"); driver != "" {
			t.Fatalf("GLIMPSE_CUDA_DRIVER=%s cannot be used: %v", driver, kernels.Devices().Usable())
		}
		t.Skipf("no CUDA device: %v", kernels.Devices().Usable())
	}
	d := kernelstest.Open(t, "cuda")
	before := cuda.InUse(d.B)
	t.Cleanup(func() {
		if after := cuda.InUse(d.B); after > before && !t.Failed() {
			t.Errorf("%d bytes of device memory are in use after the test, %d before", after, before)
		}
	})
	return d
}

// needHostDriver skips a test that tells the driver what to refuse: HOSTCUDA_ variables
// are those of the host driver, and a chip, or a rehearsal of one, knows none.
func needHostDriver(t *testing.T, d kernelstest.Device) {
	t.Helper()
	if model := d.B.Model(); !strings.HasPrefix(model, "host driver") {
		t.Skipf("%s does not fail when it is asked to", model)
	}
}

// roundedProducts is a plain implementation that rounds the activations of more than
// 64 rows to bf16 where they meet weights in half precision.
type roundedProducts struct{ kernels.Backend }

func (r roundedProducts) rounded(x, w *kernels.Tensor) *kernels.Tensor {
	if w.DType == kernels.F32 || x.Dim0() <= 64 {
		return x
	}
	narrow, wide := kernels.NewTensor(kernels.BF16, x.Shape...), kernels.NewTensor(x.DType, x.Shape...)
	kernels.Convert(narrow, x)
	kernels.Convert(wide, narrow)
	return wide
}

func (r roundedProducts) Linear(y, x, w, bias *kernels.Tensor, alpha, beta float64) {
	r.Backend.Linear(y, r.rounded(x, w), w, bias, alpha, beta)
}

func (r roundedProducts) MatMul(c, a, w *kernels.Tensor, alpha, beta float64) {
	r.Backend.MatMul(c, r.rounded(a, w), w, alpha, beta)
}

// TestCUDARoundedProducts: products that are large enough are rounded once, and lose
// at most twice what that costs a plain implementation.
func TestCUDARoundedProducts(t *testing.T) {
	d := openCUDA(t)
	defer cuda.SetExactWork(0)()
	defer cuda.SetWidened(4000)() // of F16: some rows
	exact := kernelstest.Open(t, "reference64")
	lost := 0.0
	for _, shape := range [][3]int{{65, 1, 1}, {65, 130, 67}, {100, 33, 7}, {70, 64, 96}} { // rows, inner, columns
		m, k, n := shape[0], shape[1], shape[2]
		for name, product := range map[string]func(d kernelstest.Device, rng *rand.Rand, y, x *kernels.Tensor){
			"Linear": func(d kernelstest.Device, rng *rand.Rand, y, x *kernels.Tensor) {
				d.B.Linear(y, x, d.Weight(rng, kernels.BF16, n, k), nil, 0.5, -1.5)
			},
			"MatMul": func(d kernelstest.Device, rng *rand.Rand, y, x *kernels.Tensor) {
				d.B.MatMul(y, x, d.Weight(rng, kernels.BF16, k, n), 0.5, -1.5)
			},
			"Linear of F16": func(d kernelstest.Device, rng *rand.Rand, y, x *kernels.Tensor) {
				d.B.Linear(y, x, d.Weight(rng, kernels.F16, n, k), nil, 0.5, -1.5)
			},
			"MatMul of F16": func(d kernelstest.Device, rng *rand.Rand, y, x *kernels.Tensor) {
				d.B.MatMul(y, x, d.Weight(rng, kernels.F16, k, n), 0.5, -1.5)
			},
		} {
			run := func(d kernelstest.Device) []float64 {
				rng := rand.New(rand.NewPCG(uint64(m), uint64(n)))
				x, y := d.Tensor(kernelstest.Random(rng, m*k, 1), m, k), d.Tensor(kernelstest.Random(rng, m*n, 1), m, n)
				product(d, rng, y, x)
				return y.Float64s()
			}
			got, want, plain := run(d), run(exact), run(kernelstest.Device{B: roundedProducts{exact.B}})
			floor := compare.Floor(kernelstest.Magnitude(want))
			compare.Close(t, fmt.Sprint(name, shape), got, want, 1e-5+2*compare.Compare(plain, want, floor).Err, floor)
			lost = max(lost, compare.Compare(got, want, floor).Err)
		}
	}
	if lost < 1e-4 {
		t.Errorf("the largest error is %v: nothing was rounded", lost)
	}
}

// TestCUDAFreesMemory: what no tensor refers to is given back.
func TestCUDAFreesMemory(t *testing.T) {
	d := openCUDA(t)
	before := cuda.InUse(d.B)
	func() {
		for _, c := range kernelstest.ConformanceCases()[:60] {
			c.RunOn(d)
		}
		if held := d.B.Alloc(kernels.F32, 1000); cuda.InUse(d.B) < before+4000 || held.Len() != 1000 {
			t.Error("a live tensor is not counted")
		}
	}()
	if after := cuda.InUse(d.B); after != before {
		t.Errorf("%d bytes are in use, %d before: tensors leak", after, before)
	}
}

// TestCUDAOutOfMemory: what does not fit is an error that says how much there is.
func TestCUDAOutOfMemory(t *testing.T) {
	d := openCUDA(t)
	err := func() (err error) {
		defer kernels.CatchDevice(&err)
		d.B.Alloc(kernels.F32, 1<<50)
		return nil
	}()
	if err == nil || !regexp.MustCompile(`^cuda:0: Alloc: out of memory: 4294967296 MiB asked for, \d+ MiB free of \d+ MiB, \d+ MiB in use by this program; `).MatchString(err.Error()) {
		t.Errorf("error %v", err)
	}
	x := d.Tensor([]float64{1, 2}, 2) // and the device goes on
	d.B.Add(x, x, x)
	compare.Close(t, "after it", x.Float64s(), []float64{2, 4}, 0)
}

// TestCUDARefusesHostTensors: no operation follows an address of the other memory.
func TestCUDARefusesHostTensors(t *testing.T) {
	d := openCUDA(t)
	device, host := d.Garbage(3), kernels.NewTensor(kernels.F32, 3)
	for name, f := range map[string]func(){
		"a host operand":    func() { d.B.Add(device, device, host) },
		"a host result":     func() { d.B.Fill(host, 1) },
		"the host's view":   func() { device.F32() },
		"another backend's": func() { kernelstest.Open(t, "cpu").B.Add(host, device, host) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

// TestBackendsConform holds the device against the float64 reference in all cases, and the
// processor beside it, whose operations others list.
func TestBackendsConform(t *testing.T) {
	openCUDA(t)
	kernelstest.Conform(t, "cpu", "cuda")
}

// TestContract holds the device to what it says of itself.
func TestContract(t *testing.T) {
	openCUDA(t)
	kernelstest.HoldContract(t, "cuda")
}
