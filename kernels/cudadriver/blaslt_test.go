//go:build gpu && linux && (amd64 || arm64)

package cudadriver_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/kernels/cudadriver"

	"gorgonia.org/cu"
)

// reportBlas prints the cuBLASLt that serves the first device.
func reportBlas() {
	blas, err := cudadriver.OpenBlas()
	if err == nil {
		var device cu.Device
		var context cu.CUContext
		if device, err = cu.GetDevice(0); err == nil {
			context, err = device.RetainPrimaryCtx()
		}
		if err == nil {
			err = cu.SetCurrentContext(context)
		}
		if err == nil {
			err = blas.Create(context)
		}
	}
	if err != nil {
		fmt.Println("error", err)
		return
	}
	fmt.Println("cuBLASLt", blas.Path)
}

// TestBlasBesidePython: cuBLASLt is found beside the python3 on the PATH, its environment's
// before that of the program that a link leads to, and the older one is taken where the
// newer makes no handle.
func TestBlasBesidePython(t *testing.T) {
	library := os.Getenv(cudadriver.BlasVariable)
	if library == "" || !strings.Contains(library, "hostcuda") {
		t.Skip("not on the host driver")
	}
	data, err := os.ReadFile(library)
	if err != nil {
		t.Fatal(err)
	}
	write := func(path string, data []byte) string {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	base, environment := t.TempDir(), t.TempDir()
	python := write(base+"/bin/python3.12", nil)
	if err := os.MkdirAll(environment+"/bin", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(python, environment+"/bin/python3"); err != nil {
		t.Fatal(err)
	}
	const wheels = "/lib/python3.12/site-packages/nvidia"
	of13 := write(base+wheels+"/cu13/lib/libcublasLt.so.13", data)
	of12 := write(base+wheels+"/cublas/lib/libcublasLt.so.12", data)
	own := environment + wheels + "/cublas/lib/libcublasLt.so.12"
	report := func(refuses string) string {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "REPORT_DRIVER=blas", "PATH="+environment+"/bin", "HOME=/nowhere", "VIRTUAL_ENV=", "CONDA_PREFIX=", cudadriver.BlasVariable+"=", "HOSTCUDA_BLAS="+refuses)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if got := report(""); got != "cuBLASLt "+of13 {
		t.Errorf("%s, want %s", got, of13)
	}
	if got := report(".so.13"); got != "cuBLASLt "+of12 {
		t.Errorf("where the newer makes no handle: %s, want %s", got, of12)
	}
	write(own, data)
	if got := report(""); got != "cuBLASLt "+own {
		t.Errorf("%s, want that of the environment, %s", got, own)
	}
}
