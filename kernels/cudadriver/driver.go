//go:build gpu && linux && (amd64 || arm64)

package cudadriver

// #cgo CFLAGS: -I${SRCDIR}/include -std=gnu11 -O2
// #cgo LDFLAGS: -L${SRCDIR}/lib -ldl
// #include <cuda.h>
// #include <stdlib.h>
// extern int glimpse_driver_has(const char *name);
// extern char glimpse_driver_path[4096], glimpse_driver_error[1024];
// extern int glimpse_driver_init;
import "C"

import (
	"fmt"
	"os"
	"unsafe"

	"gorgonia.org/cu"
)

// DriverVariable names another driver library than libcuda.so.1.
const DriverVariable = "GLIMPSE_CUDA_DRIVER"

// Driver is the path of the driver library in use, or the reason why there is
// none.
func Driver() (path string, err error) {
	path = C.GoString(&C.glimpse_driver_path[0])
	if message := C.GoString(&C.glimpse_driver_error[0]); message != "" {
		return path, fmt.Errorf("CUDA driver: %s", message)
	}
	if code := int(C.glimpse_driver_init); code != 0 {
		return path, fmt.Errorf("CUDA driver %s: cuInit: error %d%s", path, code, explain(code))
	}
	return path, nil
}

// Named tells whether the environment asks for a certain driver library: then a
// missing driver is an error and not a fact about the machine.
func Named() bool { return os.Getenv(DriverVariable) != "" }

func explain(code int) string {
	switch code {
	case C.CUDA_ERROR_NO_DEVICE:
		return " (no CUDA device)"
	case C.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
		return " (the driver library and the kernel module have different versions)"
	case C.CUDA_ERROR_STUB_LIBRARY:
		return " (this is a stub library, not a driver)"
	case C.CUDA_ERROR_UNKNOWN:
		return " (is the kernel module loaded?)"
	}
	return ""
}

// AllowShared lets launches of f use so many bytes of dynamic shared memory, which
// more than 48 KB need.
func AllowShared(f cu.Function, bytes int) error {
	handle := *(*C.CUfunction)(unsafe.Pointer(&f)) // cu.Function is this one field
	if code := C.cuFuncSetAttribute(handle, C.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, C.int(bytes)); code != 0 {
		return fmt.Errorf("cuFuncSetAttribute: %d bytes of shared memory: error %d", bytes, int(code))
	}
	return nil
}

// AllocPinned is memory of the host that the device reads by itself. It stays until the
// process ends.
func AllocPinned(bytes int) ([]byte, error) {
	var p unsafe.Pointer
	if code := C.cuMemHostAlloc(&p, C.size_t(bytes), 0); code != 0 {
		return nil, fmt.Errorf("cuMemHostAlloc: %d bytes: error %d", bytes, int(code))
	}
	return unsafe.Slice((*byte)(p), bytes), nil
}

// Load loads the code of f now. Drivers of CUDA 12.2 and later load lazily: at the first
// use, or where they are asked to, which CUDA 12.4 brought; before it a question about the
// function does.
func Load(f cu.Function) error {
	handle := *(*C.CUfunction)(unsafe.Pointer(&f))
	name := C.CString("cuFuncLoad")
	defer C.free(unsafe.Pointer(name))
	if C.glimpse_driver_has(name) == 0 {
		_, err := f.Attribute(cu.SharedSizeBytes)
		return err
	}
	if code := C.cuFuncLoad(handle); code != 0 {
		return fmt.Errorf("cuFuncLoad: error %d", int(code))
	}
	return nil
}
