//go:build !gpu || !linux || !amd64

package kernels

import "errors"

// errNotBuilt is what a binary without the accelerated backends says of them.
const errNotBuilt = "this binary was built without GPU support (go build -tags gpu, on 64-bit x86 Linux: docs/gpu.md)"

// Devices reports accelerators; this binary knows none.
func Devices() DeviceReport { return DeviceReport{Missing: []string{errNotBuilt}} }

// CheckDevice checks what only accelerators have; this binary knows none.
func CheckDevice(int) error { return errors.New("device cuda: " + errNotBuilt) }

func openCUDA(int) (Backend, error) { return nil, errors.New("device cuda: " + errNotBuilt) }
