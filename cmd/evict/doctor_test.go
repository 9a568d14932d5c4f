package main

import (
	"encoding/json"
	"strings"
	"testing"

	"glimpse/kernels"
)

// TestDoctor: the table and the JSON say what the backends say, and every missing
// thing is told.
func TestDoctor(t *testing.T) {
	out, _, err := execute(t, "doctor")
	if err != nil {
		t.Fatal(err)
	}
	want := kernels.Devices()
	for _, part := range append([]string{"processor", "--device auto"}, want.Missing...) {
		if !strings.Contains(out, part) {
			t.Errorf("the report lacks %q:\n%s", part, out)
		}
	}
	for _, d := range want.Devices {
		if !strings.Contains(out, d.Name) || !strings.Contains(out, d.Model) {
			t.Errorf("the report lacks device %s:\n%s", d.Name, out)
		}
	}
	out, _, err = execute(t, "doctor", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var got report
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if got.CUDA.Built != want.Built || len(got.CUDA.Missing) != len(want.Missing) || got.Auto == "" || got.Why == "" {
		t.Errorf("JSON says %+v, the backends %+v", got, want)
	}
}

// TestDeviceThatCannotBeUsed: asked for by name, it is an error that says why.
func TestDeviceThatCannotBeUsed(t *testing.T) {
	_, _, err := execute(t, "run", "--example", "section", "--device", "cuda:77")
	if err == nil || !strings.Contains(err.Error(), "cuda") {
		t.Errorf("error %v", err)
	}
	if !kernels.Devices().Built && !strings.Contains(err.Error(), "built without GPU support") {
		t.Errorf("error %v does not say that the binary has no GPU support", err)
	}
}
