// Shared by the parts of the host driver: memory, blocks, driver calls, cuBLASLt, NCCL.
#pragma once
#include "cuda_host.h"
#include <stdint.h>
#include <functional>
#include <string>
#include <vector>

namespace hc {

enum Result { // the CUresult values in use
	SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200, INVALID_CONTEXT = 201, NO_BINARY_FOR_GPU = 209, UNSUPPORTED_PTX_VERSION = 222,
	INVALID_HANDLE = 400, ILLEGAL_STATE = 401, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700,
	MISALIGNED_ADDRESS = 716, LAUNCH_FAILED = 719, CANNOT_CAPTURE = 801,
	PENDING = -1, // of queued work that waits for another rank: it is asked again
	CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, GRAPH_UPDATE_FAILURE = 910
};

enum { MAX_SHARED = 227 << 10 }; // shared memory of a block, as on sm_90
// A block's static and dynamic shared memory come out of the same. How much of the former a
// kernel has is not known here; every one is taken to have some.
enum { STATIC_SHARED = 1 << 10 };

void report(const char *format, ...) __attribute__((format(printf, 1, 2)));

// memory.cpp: device memory. Inaccessible unless opened, so that host code
// which dereferences a device pointer faults.
uintptr_t mem_alloc(size_t bytes);
bool mem_free(uintptr_t p);
size_t mem_total();                       // HOSTCUDA_MEMORY bytes, or 16 GiB
size_t mem_live();                        // in allocations
void mem_free_all();                      // reports leaks when asked to
void mem_open();                          // before a kernel runs
bool mem_touch(uintptr_t p);              // makes an allocation accessible that is open but was not touched
void mem_close();                         // before the driver call returns
// Until mem_close, allocations can be read that have none of these addresses, and nothing can be written.
void mem_open_ahead(const std::vector<uintptr_t> &others);
bool mem_contains(uintptr_t p, size_t n); // inside one live allocation
bool mem_read(void *dst, uintptr_t src, size_t n);
bool mem_write(uintptr_t dst, const void *src, size_t n);
bool mem_check_padding();                 // reports writes around an allocation
std::string mem_describe(uintptr_t p);    // for fault reports

// images.cpp: what a driver of some CUDA (13000) runs of a fat binary on a device of some
// compute capability (90).
struct Image {
	std::string text;
	int arch = 0; // of the machine code
	bool has_kernel(const std::string &name) const;
};
Result choose_image(const void *data, int capability, int cuda, Image &out);

// driver.cpp: work in a stream that is no kernel.
int enqueue_library(uint64_t stream, std::function<Result()> f);

// shared.cpp: narrows [from, to) of the TLS block to what a source file has there.
void static_shared_of(const char *file, size_t &from, size_t &to);

// block.cpp: runs all blocks of one launch, or, ahead, what they do before they wait for the kernels before.
Result run_kernel(const Kernel &k, dim3 grid, dim3 block, size_t shared_bytes, void **params, bool ahead = false);

} // namespace hc
