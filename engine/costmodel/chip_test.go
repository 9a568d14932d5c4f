package costmodel_test

import (
	"strings"
	"testing"

	"glimpse/engine/costmodel"
	"glimpse/model"
)

func TestParseChip(t *testing.T) {
	for _, name := range costmodel.Chips.Names() {
		c, err := costmodel.ParseChip(name)
		if err != nil || c.Name != name || !(c.FLOPS > 1e14 && c.Bandwidth > 5e11 && c.Memory > 3e10) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	c, err := costmodel.ParseChip("flops=2e12, bandwidth=1e11,memory=64GiB")
	if err != nil || c.FLOPS != 2e12 || c.Bandwidth != 1e11 || c.Memory != 64<<30 {
		t.Errorf("%+v, %v", c, err)
	}
	for text, want := range map[string]string{
		"tpu":                      `unknown chip "tpu", want one of: a100-40g`,
		"flops=1e12":               "want flops=… and bandwidth=…",
		"flops=-1,bandwidth=1e9":   `flops: got "-1", want a positive number`,
		"flops=nan,bandwidth=1e9":  `flops: got "nan"`,
		"flops=1,speed=2":          "speed: unknown key, want flops, bandwidth or memory",
		"flops=1,memory=64 apples": "memory: got",
	} {
		if _, err := costmodel.ParseChip(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", text, err, want)
		}
	}
}

// TestCalibrateShapes: of a model without weights the same device is measured, within a factor.
func TestCalibrateShapes(t *testing.T) {
	shapes, err := model.OpenShapes("", "cpu")
	if err != nil {
		t.Fatal(err)
	}
	whole, err := model.Open("", model.Options{Device: "cpu"})
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	got, want := costmodel.Calibrate(shapes), costmodel.Calibrate(whole)
	if r := got.FLOPS / want.FLOPS; !(r > 0.1 && r < 10) {
		t.Errorf("%.3g operations per second of shapes, %.3g of the model", got.FLOPS, want.FLOPS)
	}
	if !(got.Bandwidth > 1e8) {
		t.Errorf("%+v", got)
	}
}

// TestCalibrate: a device that is not known is measured, to numbers that a device can have.
func TestCalibrate(t *testing.T) {
	m, err := model.Open("", model.Options{Device: "cpu"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c := costmodel.ChipOf(m)
	if c.Name != "measured" || c.ComputeShare != 1 || c.MemoryShare != 1 || !(c.FLOPS > 1e7 && c.FLOPS < 1e15) || !(c.Bandwidth > 1e6 && c.Bandwidth < 1e13) {
		t.Errorf("measured chip %+v", c)
	}
}
