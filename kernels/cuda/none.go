//go:build !gpu || !linux || (!amd64 && !arm64)

// Package cuda is the backend "cuda" on NVIDIA's devices: the launchers of the kernels in its
// .cu files, each beside its source, and what holds them: memory, graphs. Binaries
// without the build tag gpu know only why they have none.
package cuda

import (
	"errors"

	"glimpse/kernels"
)

// errNotBuilt is what a binary without the accelerated backends says of them.
const errNotBuilt = "this binary was built without GPU support (go build -tags gpu, on 64-bit x86 Linux: docs/gpu.md)"

func init() {
	kernels.SetCUDA(kernels.DeviceKind{
		Open:    func(int) (kernels.Backend, error) { return nil, errors.New("device cuda: " + errNotBuilt) },
		Devices: func() kernels.DeviceReport { return kernels.DeviceReport{Missing: []string{errNotBuilt}} },
		Check:   func(int) error { return errors.New("device cuda: " + errNotBuilt) },
	})
}
