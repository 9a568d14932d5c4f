package modeltest

import (
	"os"
	"slices"
	"testing"

	"glimpse/kernels"
)

// NeedCUDA skips a test where there is no device, and fails it where
// GLIMPSE_CUDA_DRIVER promised one.
func NeedCUDA(t testing.TB) {
	t.Helper()
	if slices.Contains(kernels.Backends.Names(), "cuda") {
		return
	}
	if driver := os.Getenv("GLIMPSE_CUDA_DRIVER"); driver != "" {
		t.Fatalf("GLIMPSE_CUDA_DRIVER=%s cannot be used: %v", driver, kernels.Devices().Usable())
	}
	t.Skipf("no CUDA device: %v", kernels.Devices().Usable())
}
