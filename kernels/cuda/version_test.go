//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/kernels"
	"glimpse/kernels/cuda"
	"glimpse/kernels/fatbin"
	"glimpse/kernels/kernelstest"
)

// openHostDriver skips a test where the driver is a real one, whose version and device are
// what they are.
func openHostDriver(t *testing.T) kernelstest.Device {
	t.Helper()
	d := openCUDA(t)
	needHostDriver(t, d)
	return d
}

// TestCUDAOldDriver: a driver that lacks functions is told what to do, before it is given
// a kernel.
func TestCUDAOldDriver(t *testing.T) {
	openHostDriver(t)
	t.Setenv("HOSTCUDA_VERSION", "12000")
	if err := kernels.Devices().Usable(); err != nil {
		t.Errorf("CUDA 12.0: %v", err)
	}
	t.Setenv("HOSTCUDA_VERSION", "11080")
	if err := kernels.Devices().Usable(); err == nil || !strings.Contains(err.Error(), "CUDA 11.8") || !strings.Contains(err.Error(), "525") {
		t.Errorf("CUDA 11.8: error %v", err)
	}
}

// TestCUDADriverGenerations: drivers of CUDA 12 and 13 load the kernels on every kind of
// device, as machine code where there is some.
func TestCUDADriverGenerations(t *testing.T) {
	d := openHostDriver(t)
	const ptx = "PTX 7.4 for compute_80, which the driver has compiled for sm_120"
	for _, c := range []struct{ version, capability, want string }{
		{"12000", "8.0", "machine code for sm_80"},
		{"12000", "8.6", "machine code for sm_80"},
		{"12000", "8.9", "machine code for sm_89; machine code for sm_80"},
		{"12000", "9.0", "machine code for sm_90; machine code for sm_90a"},
		{"12040", "9.0", "machine code for sm_90; machine code for sm_90a"},
		{"12080", "10.0", "machine code for sm_100"},
		{"12080", "12.0", ptx},
		{"13000", "8.0", "machine code for sm_80"},
		{"13000", "8.9", "machine code for sm_89; machine code for sm_80"},
		{"13000", "9.0", "machine code for sm_90; machine code for sm_90a"},
		{"13000", "10.0", "machine code for sm_100"},
		{"13000", "12.0", ptx},
	} {
		t.Setenv("HOSTCUDA_VERSION", c.version)
		t.Setenv("HOSTCUDA_CAPABILITY", c.capability)
		if got, err := cuda.LoadKernels(d.B); err != nil || got != c.want {
			t.Errorf("CUDA %s, compute capability %s: %q and error %v, want %q", c.version, c.capability, got, err, c.want)
		}
	}
}

// TestCUDARefusedImages: what a driver cannot run is an error that says which images there
// are. CUDA 13's own compiler makes such images for drivers of CUDA 12.
func TestCUDARefusedImages(t *testing.T) {
	d := openHostDriver(t)
	for _, c := range []struct {
		name                string
		version, capability string
		change              func(data []byte, images []fatbin.Image) []byte
		want                string
	}{
		{"PTX of CUDA 13", "12090", "12.0", func(data []byte, _ []fatbin.Image) []byte {
			data = bytes.Replace(data, []byte(".version 7.4"), []byte(".version 9.0"), 1)
			return bytes.Replace(data, []byte{4, 0, 7, 0, 80, 0, 0, 0}, []byte{0, 0, 9, 0, 80, 0, 0, 0}, 1)
		}, "it has [machine code for sm_80"},
		{"machine code of CUDA 13", "12090", "9.0", func(data []byte, images []fatbin.Image) []byte {
			images[2].Data[8] = 8 // the ABI's version
			return bytes.Replace(data, []byte{7, 0, 1, 0, 90, 0, 0, 0}, []byte{8, 0, 1, 0, 90, 0, 0, 0}, 1)
		}, "InvalidImage"},
		{"an older device", "13000", "7.5", func(data []byte, _ []fatbin.Image) []byte { return data }, "compute_80"},
		{"a fat binary that is cut", "13000", "9.0", func(data []byte, _ []fatbin.Image) []byte { return data[:1000] }, "fat binary of 1000 bytes"},
	} {
		folder := t.TempDir()
		if err := cuda.EachFatBinary(func(name string, data []byte) error {
			images, err := fatbin.Parse(data)
			if err != nil {
				return err
			}
			if name == "elements" {
				data = c.change(data, images)
			}
			return os.WriteFile(filepath.Join(folder, name+".fatbin"), data, 0o600)
		}); err != nil {
			t.Fatal(err)
		}
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("GLIMPSE_CUDA_KERNELS", folder)
			t.Setenv("HOSTCUDA_VERSION", c.version)
			t.Setenv("HOSTCUDA_CAPABILITY", c.capability)
			if _, err := cuda.LoadKernels(d.B); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// TestFatBinaries: every fat binary in the program has machine code for the devices that
// are named in lab/results/gpu-design.md, of the ABI that drivers of CUDA 12 know, and PTX that they know.
func TestFatBinaries(t *testing.T) {
	seen := 0
	if err := cuda.EachFatBinary(func(name string, data []byte) error {
		seen++
		images, err := fatbin.Parse(data)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		want := "[machine code for sm_80 machine code for sm_89 machine code for sm_90 machine code for sm_100 PTX 7.4 for compute_80]"
		switch name {
		case "attention_hopper": // for this chip alone
			want = "[machine code for sm_90a]"
		case "blocks", "experts", "few_blocks": // LARGE of cuda.mk
			want = strings.Replace(want, "machine code for sm_89 ", "", 1)
		}
		if got := fmt.Sprint(images); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
		for _, image := range images {
			if abi := [2]int{image.Major, image.Minor}; image.Kind == fatbin.ELF && image.Arch < 100 && abi != [2]int{1, 7} {
				t.Errorf("%s: %s of ABI %v, which drivers of CUDA 12 do not know", name, image, abi)
			}
		}
		return nil
	}); err != nil || seen == 0 {
		t.Fatalf("%d fat binaries, error %v", seen, err)
	}
}
