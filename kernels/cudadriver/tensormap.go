//go:build gpu && linux && (amd64 || arm64)

package cudadriver

// #cgo CFLAGS: -I${SRCDIR}/include -std=gnu11 -O2
// #include <cuda.h>
// #include <string.h>
// static int encode(void *out, uint64_t address, uint64_t columns, uint64_t rows, uint32_t box_columns, uint32_t box_rows) {
// 	CUtensorMap map; // the driver wants 128-byte alignment, which Go does not give
// 	uint64_t sizes[] = {columns, rows}, strides[] = {columns * 2};
// 	cuuint32_t box[] = {box_columns, box_rows}, steps[] = {1, 1};
// 	int code = cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)address, sizes, strides, box, steps,
// 	                                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
// 	                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
// 	if (!code) memcpy(out, &map, sizeof map);
// 	return code;
// }
import "C"

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"
)

// TensorMap is the driver's description of a matrix for the bulk copy engine of
// Hopper. In device memory it is aligned to 64 bytes.
type TensorMap [128]byte

// BF16Matrix describes a bf16 matrix [rows, columns] in device memory that is copied in
// boxes [boxRows, boxColumns] with 128-byte swizzle: a row of a box has 128 bytes. What
// lies outside the matrix is copied as zeros. Drivers know it from CUDA 12.0 on.
func BF16Matrix(address cu.DevicePtr, rows, columns, boxRows, boxColumns int) (m TensorMap, err error) {
	code := C.encode(unsafe.Pointer(&m), C.uint64_t(address), C.uint64_t(columns), C.uint64_t(rows), C.uint32_t(boxColumns), C.uint32_t(boxRows))
	if code != 0 {
		return m, fmt.Errorf("cuTensorMapEncodeTiled: bf16 matrix [%d, %d] at %#x in boxes [%d, %d]: error %d", rows, columns, uint64(address), boxRows, boxColumns, int(code))
	}
	return m, nil
}
