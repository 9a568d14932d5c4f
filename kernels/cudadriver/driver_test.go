//go:build gpu && linux && (amd64 || arm64)

package cudadriver_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"glimpse/kernels/cudadriver"

	"gorgonia.org/cu"
)

// TestMain is also the program that the test starts anew: the driver is loaded
// before Go's own code runs.
func TestMain(m *testing.M) {
	if os.Getenv("REPORT_DRIVER") == "" {
		os.Exit(m.Run())
	}
	if os.Getenv("REPORT_DRIVER") == "blas" {
		reportBlas()
		return
	}
	path, err := cudadriver.Driver()
	n, countErr := cu.NumDevices()
	os.Stdout.WriteString("path " + path + "\n")
	if err != nil {
		os.Stdout.WriteString("error " + err.Error() + "\n")
	}
	if countErr == nil && n > 0 {
		os.Stdout.WriteString("devices\n")
	}
}

// TestDriverStates: one binary starts with no driver, with something that is none,
// with a driver and no device, and with a device, and says which.
func TestDriverStates(t *testing.T) {
	driver := os.Getenv(cudadriver.DriverVariable)
	if driver == "" {
		t.Skipf("%s names no driver: scripts/test_gpu.sh sets it", cudadriver.DriverVariable)
	}
	for name, c := range map[string]struct {
		driver, devices string
		want, no        []string
	}{
		"no driver":       {"/nowhere/libcuda.so.1", "", []string{"path \n", "error CUDA driver: /nowhere/libcuda.so.1: cannot open"}, []string{"devices"}},
		"another library": {"libm.so.6", "", []string{"error CUDA driver: libm.so.6: no cuInit: not a CUDA driver (0 of"}, []string{"devices"}},
		"no device":       {driver, "0", []string{"path " + driver, "cuInit: error 100 (no CUDA device)"}, []string{"devices\n"}},
		"device":          {driver, "", []string{"path " + driver, "devices\n"}, []string{"error"}},
	} {
		t.Run(name, func(t *testing.T) {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), "REPORT_DRIVER=1", cudadriver.DriverVariable+"="+c.driver, "HOSTCUDA_DEVICES="+c.devices)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, want := range c.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("output lacks %q:\n%s", want, out)
				}
			}
			for _, no := range c.no {
				if strings.Contains(string(out), no) {
					t.Errorf("output has %q:\n%s", no, out)
				}
			}
		})
	}
}
