//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"
)

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
	const tests = "^TestCUDA(DrawOfEquals|LowRank|Maps)$"
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
