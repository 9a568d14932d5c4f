//go:build gpu && linux && (amd64 || arm64)

package cudadriver

// #include <cuda.h>
// #include <stdint.h>
// #include <stdlib.h>
// extern int glimpse_driver_has(const char *name);
// enum { MAX_ARGUMENTS = 64 };
// static int launch_early(CUfunction f, const unsigned *grid, unsigned threads, unsigned shared, CUstream stream, uint64_t *slots, int n) {
// 	void *at[MAX_ARGUMENTS];
// 	for (int i = 0; i < n; i++) at[i] = &slots[i];
// 	CUlaunchAttribute early = {CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, {0}, {{0}}};
// 	early.value.programmaticStreamSerializationAllowed = 1;
// 	CUlaunchConfig config = {grid[0], grid[1], grid[2], threads, 1, 1, shared, stream, &early, 1};
// 	return cuLaunchKernelEx(&config, f, at, 0);
// }
import "C"

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"
)

// leastEarly is the least driver that captures launches that begin early: CUDA 12.3.
const leastEarly = 12030

// Early tells that the driver can launch kernels that begin before those ahead of them have ended,
// in graphs, too.
func Early() bool {
	name := C.CString("cuLaunchKernelEx")
	defer C.free(unsafe.Pointer(name))
	return cu.Version() >= leastEarly && C.glimpse_driver_has(name) != 0
}

// LaunchEarly queues a kernel on s that may begin while the kernel ahead of it runs, and waits for its
// end by itself. Every argument has one of slots.
func LaunchEarly(f cu.Function, grid [3]int, threads, shared int, s cu.Stream, slots []uint64) error {
	if len(slots) == 0 || len(slots) > C.MAX_ARGUMENTS {
		return fmt.Errorf("cuLaunchKernelEx: %d arguments, want 1 to %d", len(slots), C.MAX_ARGUMENTS)
	}
	size := [3]C.uint{C.uint(grid[0]), C.uint(grid[1]), C.uint(grid[2])}
	code := C.launch_early(*(*C.CUfunction)(unsafe.Pointer(&f)), &size[0], C.uint(threads), C.uint(shared), streamHandle(s), (*C.uint64_t)(unsafe.Pointer(&slots[0])), C.int(len(slots)))
	if code != 0 {
		return fmt.Errorf("cuLaunchKernelEx: error %d", int(code))
	}
	return nil
}
