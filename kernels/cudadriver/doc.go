// Package cudadriver is what stands between gorgonia.org/cu and the CUDA driver, so
// that one binary runs on machines with and without one.
//
// cu links against some 160 functions of libcuda and ends the process where the
// first of them fails. Here every one of these functions is a trampoline: a jump
// through a table that a constructor, which runs before Go's own initialisation,
// fills from libcuda.so.1 where there is one. Functions that are missing return
// CUDA_ERROR_STUB_LIBRARY, and cuInit always succeeds while [Driver] keeps what it
// really said. No toolkit is needed to build: include/cuda.h declares the driver's
// binary interface, and lib/libcuda.a is an empty archive for the linker's -lcuda.
//
// cuBLASLt is loaded at run time too ([OpenBlas]): its versions are not compatible
// with each other's names, and a binary that links one starts nowhere else. So is NCCL ([OpenNCCL]),
// which only runs of several ranks need.
//
// The package is empty without the build tag gpu (and on anything but 64-bit x86
// Linux). With it, cgo must find cuda.h: CGO_CFLAGS=-I<this folder>/include, which
// scripts/gpu_env.sh sets.
//
// GLIMPSE_CUDA_DRIVER names another driver library to load, and GLIMPSE_CUBLASLT
// another cuBLASLt and GLIMPSE_NCCL another NCCL; tests bring their own by these.
package cudadriver
