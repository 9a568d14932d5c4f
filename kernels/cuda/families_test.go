//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/cuda"
	"glimpse/kernels/kernelstest"
)

// TestCUDAChecks: every family passes its check, in which its kernels run.
func TestCUDAChecks(t *testing.T) {
	d := openCUDA(t)
	meter := d.B
	before := meter.Memory()
	for _, name := range cuda.Families(d.B) {
		if err := cuda.CheckFamily(d.B, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := meter.Memory(); after.Held > before.Held || after.Peak != before.Peak || after.Live != before.Live {
		t.Errorf("checks leave memory behind: %+v, before %+v", after, before)
	}
}

// TestCUDAReplacements: with every family off, operations have the reference's results.
func TestCUDAReplacements(t *testing.T) {
	d, exact := openCUDA(t), kernelstest.Open(t, "reference64")
	for _, name := range cuda.Families(d.B) {
		defer cuda.RefuseFamily(d.B, name, errors.New("off for a test"))()
	}
	seen := make(map[string]int)
	for _, c := range kernelstest.ConformanceCases() {
		if seen[c.Op]++; seen[c.Op] > 6 || !strings.Contains("Linear MatMul RMSNorm Attention ObserveAttention ObservedScores", c.Op) {
			continue
		}
		c.Compare(t, d, c.RunOn(exact))
	}
}

// TestCUDAFailedCheck: a family that disagrees with the host is not used, one warning says
// so and what is used instead, and the result is right.
func TestCUDAFailedCheck(t *testing.T) {
	d := openCUDA(t)
	warnings, restore := cuda.CatchWarnings(d.B)
	defer restore()
	defer cuda.RefuseFamily(d.B, "decode_linear", nil)()
	undo := cuda.FailCheck("decode_linear", errors.New("number 3 is 1, want 2"))
	rng := rand.New(rand.NewPCG(1, 2))
	x, w, y := d.Tensor(kernelstest.Random(rng, 16, 1), 1, 16), d.Weight(rng, kernels.BF16, 8, 16), d.Garbage(1, 8)
	for range 2 {
		d.B.Linear(y, x, w, nil, 1, 0)
		if cuda.Launched(d.B, "few_rows_bf16_1") {
			t.Error("kernels are used that failed their check")
		}
	}
	const want = "cuda:0: kernels decode_linear are switched off, products of cuBLASLt instead: number 3 is 1, want 2"
	if len(*warnings) != 1 || (*warnings)[0] != want {
		t.Errorf("warnings %q, want %q once", *warnings, want)
	}
	slow := y.Float64s()
	undo()
	cuda.RefuseFamily(d.B, "decode_linear", nil)
	d.B.Linear(y, x, w, nil, 1, 0)
	if !cuda.Launched(d.B, "few_rows_bf16_1") {
		t.Error("kernels are not used that passed their check")
	}
	compare.Close(t, "both ways", y.Float64s(), slow, 1e-5, compare.Floor(kernelstest.Magnitude(slow)))
}

// TestCUDACheckBeforeGraph: a family that a recording meets first is checked outside of it
// and recorded all the same.
func TestCUDACheckBeforeGraph(t *testing.T) {
	d := openCUDA(t)
	g := newGraph(t, d)
	rng := rand.New(rand.NewPCG(1, 2))
	x, w, y := d.Tensor(kernelstest.Random(rng, 16, 1), 1, 16), d.Weight(rng, kernels.BF16, 8, 16), d.Garbage(1, 8)
	d.B.Linear(y, x, w, nil, 1, 0)
	want := y.Float64s()
	defer cuda.RefuseFamily(d.B, "decode_linear", nil)()
	if !g.Record(func() { g.Backend().Linear(y, x, w, nil, 1, 0) }) {
		t.Fatal("nothing is recorded")
	}
	if n := cuda.Recorded(g); n != 1 {
		t.Errorf("%d operations are recorded, want the one kernel", n)
	}
	d.B.Fill(y, 0)
	g.Replay()
	compare.Close(t, "replayed", y.Float64s(), want, 0)
}

// TestCUDAOff: names of families switch them off; others are refused with those that exist.
func TestCUDAOff(t *testing.T) {
	t.Setenv("GLIMPSE_CUDA_OFF", "decode_linear, attend_step")
	if off, err := cuda.SwitchedOff(); err != nil || strings.Join(off, " ") != "attend_step decode_linear" {
		t.Errorf("switched off are %q, %v", off, err)
	}
	t.Setenv("GLIMPSE_CUDA_OFF", "decode_linear,fast")
	_, err := cuda.SwitchedOff()
	if err == nil || !strings.Contains(err.Error(), `unknown kernels "fast", want of: attend_step, decode_blocks, decode_linear,`) {
		t.Errorf("error %v", err)
	}
}

// TestCUDAStickyError: a kernel that ends in an illegal access ends the program, whose
// error names the switch; with it the program runs. Each is a process of its own.
func TestCUDAStickyError(t *testing.T) {
	d := openCUDA(t)
	if os.Getenv("HOSTCUDA_FAIL") != "" { // the process below
		rng := rand.New(rand.NewPCG(1, 2))
		x, w, y := d.Tensor(kernelstest.Random(rng, 16, 1), 1, 16), d.Weight(rng, kernels.BF16, 8, 16), d.Garbage(1, 8)
		d.B.Linear(y, x, w, nil, 1, 0)
		y.Float64s()
		return
	}
	if model := d.B.Model(); !strings.Contains(model, "no GPU") {
		t.Skipf("%s does not fail when it is asked to", model)
	}
	run := func(off string) (string, error) {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestCUDAStickyError$", "-test.v")
		cmd.Env = append(os.Environ(), "HOSTCUDA_FAIL=few_rows_", "GLIMPSE_CUDA_OFF="+off)
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	if text, err := run(""); err == nil || !strings.Contains(text, "GLIMPSE_CUDA_OFF=decode_linear does without it") {
		t.Errorf("error %v, output %s", err, text)
	}
	if text, err := run("decode_linear"); err != nil || !strings.Contains(text, "GLIMPSE_CUDA_OFF switches off: decode_linear (products of cuBLASLt instead)") {
		t.Errorf("switched off: error %v, output %s", err, text)
	}
}

// TestCUDAStickyErrorCostsOneTest: what a kernel's illegal access ends is one test where
// each is a process, and all that follow where they share one.
func TestCUDAStickyErrorCostsOneTest(t *testing.T) {
	d := openCUDA(t)
	if model := d.B.Model(); !strings.Contains(model, "no GPU") {
		t.Skipf("%s does not fail when it is asked to", model)
	}
	if _, err := os.Stat("../../go.mod"); errors.Is(err, fs.ErrNotExist) {
		t.Skip("the test binary runs without the scripts")
	}
	const tests = "^TestCUDA(DrawOfEquals|LowRank|Off)$"
	environment := append(os.Environ(), "HOSTCUDA_FAIL=draw_")
	one := exec.Command(os.Args[0], "-test.run", tests, "-test.v")
	one.Env = environment
	if text, err := one.CombinedOutput(); err == nil || strings.Contains(string(text), "--- PASS: TestCUDALowRank") {
		t.Errorf("in one process what follows passes: error %v, output %s", err, text)
	}
	each := exec.Command("../../lab/gpu/each_test.sh", "--run", tests, "--folder", ".", os.Args[0])
	each.Dir, each.Env = ".", environment
	text, err := each.CombinedOutput()
	if err == nil || !strings.Contains(string(text), "\n2 passed, 1 failed, 0 skipped, 0 not run\n") {
		t.Errorf("error %v, output %s", err, text)
	}
}
