package checkpoints

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func calibration() *Calibration {
	return &Calibration{
		ModelName: "m", ModelSHA256: strings.Repeat("a", 64), Policy: "snapkv(kernel=1)", Settings: map[string]float64{"kernel": 1}, Budget: "25%", Heads: "equal",
		Loss: "nll", Clip: 1, Epsilon: 0.05, Confidence: 0.95, MeanLoss: 0.01, UpperBound: 0.04, Documents: 120, Prompts: 130, Policies: 2,
		Data: []CalibrationData{{"prompts.jsonl", strings.Repeat("b", 64)}}, Date: "2026-12-01",
	}
}

// TestCalibration: what is written is read back, by the file's name and by its folder's.
func TestCalibration(t *testing.T) {
	dir := t.TempDir()
	want := calibration()
	if err := want.Write(filepath.Join(dir, CalibrationFile)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, filepath.Join(dir, CalibrationFile)} {
		got, err := ReadCalibration(path)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, got %+v, want %+v", path, err, got, want)
		}
	}
	if _, err := ReadCalibration(filepath.Join(dir, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestBrokenCalibrations are refused with what is wrong.
func TestBrokenCalibrations(t *testing.T) {
	path := filepath.Join(t.TempDir(), CalibrationFile)
	if err := calibration().Write(path); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, from, to, want string }{
		{"cut off", string(good[len(good)/2:]), "", "not valid JSON"},
		{"another format", "glimpse-calibration", "glimpse-adapter", "format"},
		{"a later version", `"version": 1`, `"version": 2`, "unknown format version"},
		{"an unknown key", `"loss":`, `"lost":`, `missing keys "loss"; unknown keys "lost"`},
		{"no SHA-256", strings.Repeat("a", 64), "abc", "model_sha256"},
		{"epsilon of nothing", `"epsilon": 0.05`, `"epsilon": 0`, "epsilon"},
		{"confidence of 1", `"confidence": 0.95`, `"confidence": 1`, "confidence"},
		{"not certified", `"upper_bound": 0.04`, `"upper_bound": 0.06`, "want them in this order"},
		{"more documents than prompts", `"prompts": 130`, `"prompts": 13`, "120 documents, 13 prompts"},
		{"no date", "2026-12-01", "yesterday", "date"},
		{"null", `"settings": {
    "kernel": 1
  }`, `"settings": null`, "settings: got null"},
	} {
		text := strings.Replace(string(good), c.from, c.to, 1)
		if text == string(good) {
			t.Fatalf("%s: nothing was changed", c.name)
		}
		if _, err := ParseCalibration([]byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want it to say %q", c.name, err, c.want)
		}
	}
}

func FuzzCalibration(f *testing.F) {
	path := filepath.Join(f.TempDir(), CalibrationFile)
	if err := calibration().Write(path); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"format":"glimpse-calibration","version":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseCalibration(data)
		if err == nil && (c.Epsilon <= 0 || c.Documents < 1) {
			t.Errorf("read %+v", c)
		}
	})
}

// TestCalibrationBesideAdapter: it is read, written and replaced with the adapter, whose hash it does not change, and
// a damaged one hinders nobody.
func TestCalibrationBesideAdapter(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	a := withLoRA()
	if err := WriteAdapter(dir, a, false); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"damaged", "{}"} {
		if err := os.WriteFile(filepath.Join(dir, CalibrationFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadAdapter(dir)
		if err != nil || string(got.Calibration) != text || got.SHA256() != a.SHA256() {
			t.Fatalf("%v: calibration %q, want %q", err, got.Calibration, text)
		}
		to := filepath.Join(t.TempDir(), "b")
		for range 2 {
			if err := WriteAdapter(to, got, true); err != nil {
				t.Fatal(err)
			}
		}
		if again, err := ReadAdapter(to); err != nil || string(again.Calibration) != text {
			t.Errorf("%v: calibration %q, want %q", err, again.Calibration, text)
		}
		if same, err := SameAdapter(to, got); err != nil || !same {
			t.Errorf("the copy is another: %v", err)
		}
	}
}
