//go:build gpu && linux && (amd64 || arm64)

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestDoctorOfDevices: the report says what of the kernels runs on every kind of device,
// under drivers of CUDA 12 and 13. A process has one device, so each is one of its own.
func TestDoctorOfDevices(t *testing.T) {
	if os.Getenv("GLIMPSE_TEST_DOCTOR") != "" {
		out, _, err := execute(t, "doctor")
		if err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString(out)
		return
	}
	if !strings.Contains(os.Getenv("GLIMPSE_CUDA_DRIVER"), "hostcuda") {
		t.Skip("not on the host driver")
	}
	for _, c := range []struct{ version, capability, cuda, want string }{
		{"12000", "8.0", "CUDA 12.0", "kernels: machine code for sm_80\n"},
		{"12000", "8.9", "CUDA 12.0", "kernels: machine code for sm_89; machine code for sm_80\n"},
		{"12020", "9.0", "CUDA 12.2", "kernels: machine code for sm_90; machine code for sm_90a\n"},
		{"13000", "9.0", "CUDA 13.0", "kernels: machine code for sm_90; machine code for sm_90a\n"},
		{"12080", "10.0", "CUDA 12.8", "kernels: machine code for sm_100\n"},
		{"12080", "12.0", "CUDA 12.8", "kernels: PTX 7.4 for compute_80, which the driver has compiled for sm_120\n"},
		{"13000", "7.5", "CUDA 13.0", "compute capability 7.5, want 8.0 or more"},
		{"11080", "8.0", "CUDA 11.8", "install a driver of version 525 or newer"},
	} {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestDoctorOfDevices$")
		cmd.Env = append(os.Environ(), "GLIMPSE_TEST_DOCTOR=1", "HOSTCUDA_VERSION="+c.version, "HOSTCUDA_CAPABILITY="+c.capability)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) || !strings.Contains(string(out), c.cuda) {
			t.Errorf("CUDA %s, compute capability %s: error %v, want %q and %q in\n%s", c.version, c.capability, err, c.cuda, c.want, out)
		}
	}
}
