//go:build gpu && linux && amd64

package kernels_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"glimpse/kernels"
)

// TestCUDAOldDriver: a driver that refuses the fat binaries is told what to do, before it
// is given one, unless it has been given others.
func TestCUDAOldDriver(t *testing.T) {
	needHostDriver(t, openCUDA(t))
	if err := kernels.Devices().Usable(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOSTCUDA_VERSION", "12080")
	err := kernels.Devices().Usable()
	if err == nil || !strings.Contains(err.Error(), "CUDA 12.8") || !strings.Contains(err.Error(), "GLIMPSE_CUDA_KERNELS") {
		t.Errorf("error %v", err)
	}
	t.Setenv("GLIMPSE_CUDA_KERNELS", "cuda")
	if err := kernels.Devices().Usable(); err != nil {
		t.Errorf("with kernels of its own: %v", err)
	}
}

// TestKernelsVersion: the CUDA that drivers are asked for is that of the pinned compiler.
func TestKernelsVersion(t *testing.T) {
	if _, err := os.Stat("../go.mod"); errors.Is(err, fs.ErrNotExist) {
		t.Skip("the test binary runs without the sources")
	}
	script, err := os.ReadFile("../scripts/kernels.sh")
	if err != nil {
		t.Fatal(err)
	}
	pinned := regexp.MustCompile(`(?m)^nvcc=(\d+)\.(\d+)\.`).FindStringSubmatch(string(script))
	if want := fmt.Sprintf("%d.%d", kernels.KernelsVersion/1000, kernels.KernelsVersion%1000/10); pinned == nil || pinned[1]+"."+pinned[2] != want {
		t.Errorf("the pinned compiler is %v, drivers are asked for CUDA %s", pinned, want)
	}
}
