//go:build gpu && linux && (amd64 || arm64)

package training_test

import (
	"testing"

	"glimpse/kernels"
	"glimpse/model/modeltest"
)

// TestCUDATrainingOverSeveralDevices: on two devices adapters get the bits that they get on
// one. Of one GPU the second device is the host driver's.
func TestCUDATrainingOverSeveralDevices(t *testing.T) {
	modeltest.NeedCUDA(t)
	t.Setenv("HOSTCUDA_DEVICES", "2")
	if n := len(kernels.Devices().Devices); n < 2 {
		t.Skipf("%d devices, want 2", n)
	}
	c := small(2)
	want, _ := run(t, onCUDA(t), c, stream(t, 40))
	got, _ := run(t, modeltest.OpenShallow(t, "cuda:0-1", 3), c, stream(t, 40))
	if !sameBits(got, want) {
		t.Error("parameters that were trained on two devices have other bits")
	}
}
