//go:build gpu && linux && amd64

package eviction_test

import (
	"slices"

	"glimpse/kernels"
)

func init() {
	if slices.Contains(kernels.Backends.Names(), "cuda") {
		halfDevices = append(halfDevices, "cuda")
		keptDevices = append(keptDevices, keptDevice{"cuda", 1e-3})
	}
}
