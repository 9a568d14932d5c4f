//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"glimpse/kernels"
	"glimpse/kernels/cuda"
)

// TestCUDAHungKernel: a kernel that never ends is found in a process of its own, once, and
// costs this one nothing; a program that starts then uses the portable kernels, and says so.
func TestCUDAHungKernel(t *testing.T) {
	if os.Getenv("HOSTCUDA_HANG") != "" {
		openCUDA(t)
		os.Stdout.WriteString("attention by " + kernels.Devices().Devices[0].Attention)
		return
	}
	openHostDriver(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOSTCUDA_HANG", "attend_hopper_128")
	for _, limit := range []time.Duration{5 * time.Second, time.Nanosecond} { // the second time it is known
		if err := cuda.Preflight(limit); err == nil || !strings.Contains(err.Error(), "did not end within 5s") {
			t.Errorf("limit %v: error %v", limit, err)
		}
	}
	out, err := exec.Command(os.Args[0], "-test.run", "^TestCUDAHungKernel$").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "warning: cuda:0: the kernels for Hopper did not end") || !strings.Contains(string(out), "attention by mma.sync: the kernels for Hopper did not end") {
		t.Errorf("error %v, output %s", err, out)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOSTCUDA_HANG", "")
	if err := cuda.Preflight(time.Minute); err != nil {
		t.Error(err)
	}
	if files, err := filepath.Glob(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "glimpse", "hopper", "*")); err != nil || len(files) != 1 {
		t.Errorf("files %v, error %v: what was found is not kept", files, err)
	}
}
