//go:build gpu && linux && (amd64 || arm64)

package cudadriver

// #include "blaslt.h"
// #include <stdlib.h>
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"gorgonia.org/cu"
)

// BlasVariable names the cuBLASLt library to load.
const BlasVariable = "GLIMPSE_CUBLASLT"

// Element types of a product, as cuBLASLt numbers them.
const (
	F32  = 0
	F16  = 2
	BF16 = 14
)

// Product is one matrix product in column-major order: c [M, N] = alpha · op(a) ·
// op(b) + beta · c with op(a) [M, K] and op(b) [K, N]; c is F32. Products that are
// equal have one plan.
type Product struct {
	TransposeA, TransposeB bool
	Type                   int // of a and b: F32, F16 or BF16
	M, N, K, LdA, LdB, LdC int
	AlignA, AlignB, AlignC int  // the addresses are multiples of so many bytes, at most 256
	DeviceFactors          bool // alpha and beta are read from device memory
}

// Factors are alpha and beta of a product.
type Factors struct {
	Alpha, Beta float32
	Device      cu.DevicePtr // of a product with DeviceFactors: two numbers of float32 that are taken in their place
}

var blasLibrary = library{BlasVariable, []string{"libcublasLt.so.13", "libcublasLt.so.12"}, "libcublasLt.so.1[23]", []string{"cu13", "cublas"}}

// maxWorkspace is what an algorithm may ask for: NVIDIA's advice for Hopper.
const maxWorkspace = 32 << 20

// Blas is the loaded cuBLASLt of this process.
type Blas struct {
	Path       string
	Version    int
	mu         sync.Mutex
	candidates []string                  // that were not tried
	handles    map[string]unsafe.Pointer // by context
	plans      lru[planKey, *ProductPlan]
}

// OpenBlas loads cuBLASLt from $GLIMPSE_CUBLASLT, or else from where the loader, a
// toolkit or a Python environment has it. The error lists what was tried.
var OpenBlas = sync.OnceValues(func() (*Blas, error) {
	b := &Blas{candidates: blasLibrary.candidates(), handles: make(map[string]unsafe.Pointer), plans: lru[planKey, *ProductPlan]{most: maxPlans}}
	return b, b.loadLibrary(nil)
})

// loadLibrary takes the first of the candidates that are left which can be loaded.
func (b *Blas) loadLibrary(tried []error) error {
	for len(b.candidates) > 0 {
		path := b.candidates[0]
		b.candidates = b.candidates[1:]
		name := C.CString(path)
		message := make([]byte, 1024)
		failed := C.glimpse_blas_open(name, (*C.char)(unsafe.Pointer(&message[0])), C.size_t(len(message))) != 0
		C.free(unsafe.Pointer(name))
		if !failed {
			b.Path, b.Version = path, int(C.glimpse_blas_version())
			return nil
		}
		tried = append(tried, errors.New(C.GoString((*C.char)(unsafe.Pointer(&message[0])))))
	}
	return fmt.Errorf("cuBLASLt was not found; install it (a CUDA toolkit, or pip install nvidia-cublas) or name the library in %s: %w", BlasVariable, errors.Join(tried...))
}

// Create makes the handle for a context, which is current. A library that is too new for
// the driver can be loaded and makes none: then the next candidate is taken.
func (b *Blas) Create(context cu.CUContext) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var tried []error
	for {
		var handle unsafe.Pointer
		code := C.glimpse_blas_handle(&handle)
		if code == 0 {
			b.handles[context.String()] = handle
			return nil
		}
		tried = append(tried, fmt.Errorf("%s: cublasLtCreate: status %d", b.Path, int(code)))
		if len(b.handles) > 0 { // it is in use
			return errors.Join(tried...)
		}
		if err := b.loadLibrary(tried); err != nil {
			return err
		}
	}
}

// Workspace is the device memory that Run needs, in bytes.
func (p *ProductPlan) Workspace() int {
	defer runtime.KeepAlive(p)
	return int(C.glimpse_blas_workspace(p.p))
}

// Run queues the product on a stream.
func (p *ProductPlan) Run(by Factors, a, b, c, workspace cu.DevicePtr, stream cu.Stream) error {
	handle := *(*unsafe.Pointer)(unsafe.Pointer(&stream)) // cu.Stream is this one field
	code := C.glimpse_blas_run(p.p, C.float(by.Alpha), C.float(by.Beta), (*C.float)(pointer(by.Device)), pointer(a), pointer(b), pointer(c), pointer(workspace), handle)
	runtime.KeepAlive(p)
	if code != 0 {
		return fmt.Errorf("cublasLtMatmul: status %d", int(code))
	}
	return nil
}

// pointer is a device address as C has it.
func pointer(p cu.DevicePtr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }
