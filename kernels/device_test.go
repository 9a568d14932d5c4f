package kernels_test

import (
	"errors"
	"strings"
	"testing"

	"glimpse/kernels"
)

func TestDeviceNames(t *testing.T) {
	for name, want := range map[string]string{
		"cuda:":     `device "cuda:": want cuda or cuda:N with N from 0`,
		"cuda:-1":   `device "cuda:-1": want cuda or cuda:N with N from 0`,
		"cuda:01":   `device "cuda:01": want cuda or cuda:N with N from 0`,
		"cuda:two":  `device "cuda:two": want cuda or cuda:N with N from 0`,
		"cuda:9999": "device cuda",
	} {
		if b, err := kernels.Open(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%q) = %v, %v, want an error with %q", name, b, err, want)
		}
	}
}

// TestChooseDevice: what auto chooses can be opened, and it says why.
func TestChooseDevice(t *testing.T) {
	if device, why := kernels.ChooseDevice("reference"); device != "reference" || why != "" {
		t.Errorf("a named device became %q (%s)", device, why)
	}
	device, why := kernels.ChooseDevice("auto")
	err := kernels.Devices().Usable()
	if (device == "cpu") != (err != nil) || !strings.Contains(why, device) || err != nil && !strings.Contains(why, err.Error()) {
		t.Errorf("auto chose %q because of %q; devices: %v", device, why, err)
	}
	if _, err := kernels.Open(device); err != nil {
		t.Errorf("auto chose %s, which does not open: %v", device, err)
	}
	if !kernels.Devices().Built {
		if _, err := kernels.Open("cuda"); err == nil || !strings.Contains(err.Error(), "built without GPU support") {
			t.Errorf("cuda without the build tag: %v", err)
		}
	}
}

func TestCatchDevice(t *testing.T) {
	run := func(p any) (err error) {
		defer kernels.CatchDevice(&err)
		if p != nil {
			panic(p)
		}
		return nil
	}
	cause := errors.New("out of memory")
	if err := run(&kernels.DeviceError{Device: "cuda:0", Op: "Linear", Err: cause}); !errors.Is(err, cause) || err.Error() != "cuda:0: Linear: out of memory" {
		t.Errorf("caught %v", err)
	}
	if err := run(nil); err != nil {
		t.Errorf("no panic gave %v", err)
	}
	defer func() {
		if recover() != "other" {
			t.Error("another panic was swallowed")
		}
	}()
	_ = run("other")
}
