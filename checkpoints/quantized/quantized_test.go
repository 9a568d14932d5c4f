package quantized

import (
	"archive/zip"
	"encoding/json"
	"io/fs"
	"math"
	"slices"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/internal/simd"
	"glimpse/kernels"
)

// golden is a zip file of lab/golden/golden_quantized.py.
func golden(t testing.TB, name string) *zip.ReadCloser {
	t.Helper()
	z, err := zip.OpenReader("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { z.Close() })
	return z
}

// read opens a case's stored tensors, its configuration, and the tensors of another file of it.
func read(t testing.TB, folder fs.FS, other string) (w *checkpoints.Weights, config json.RawMessage, want *checkpoints.Safetensors) {
	t.Helper()
	w, err := checkpoints.OpenWeightsFS(folder, ".")
	if err != nil {
		t.Fatal(err)
	}
	config, err = fs.ReadFile(folder, "config.json")
	if err != nil {
		t.Fatal(err)
	}
	data, err := fs.ReadFile(folder, other)
	if err != nil {
		t.Fatal(err)
	}
	if want, err = checkpoints.ParseSafetensors(other, data); err != nil {
		t.Fatal(err)
	}
	return w, config, want
}

// TestEqualsReference: every layout, to the bit, against what its own package makes of it.
func TestEqualsReference(t *testing.T) {
	z := golden(t, "modules.zip")
	cases, err := fs.ReadDir(z, ".")
	if err != nil || len(cases) < 30 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	seen, kept := map[string]bool{}, map[string]string{}
	for _, c := range cases {
		t.Run(c.Name(), func(t *testing.T) {
			folder, err := fs.Sub(z, c.Name())
			if err != nil {
				t.Fatal(err)
			}
			w, raw, reference := read(t, folder, "want.safetensors")
			var method struct {
				Name string `json:"quant_method"`
			}
			if err := json.Unmarshal(raw, &method); err != nil {
				t.Fatal(err)
			}
			seen[method.Name] = true
			config, err := Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.SplitExperts(); err != nil {
				t.Fatal(err)
			}
			if err := config.Show(w); err != nil {
				t.Fatal(err)
			}
			if got, want := w.Names(), reference.Names(); !slices.Equal(got, want) {
				t.Errorf("tensors %q, want %q", got, want)
			}
			for _, name := range reference.Names() {
				got, err := w.Tensor(name)
				if err != nil {
					t.Fatal(err)
				}
				want, err := reference.Tensor(name)
				if err != nil {
					t.Fatal(err)
				}
				compare(t, got, want)
				if _, blocks := got.DType.Format(); blocks {
					kept[c.Name()] = got.DType.String()
				} else if strings.Contains(c.Name(), "blocks") && strings.HasPrefix(simd.Level(), "avx") {
					t.Errorf("%s is in %s", name, got.DType)
				}
			}
		})
	}
	t.Logf("in blocks: %v", kept)
	for _, method := range methods.Names() {
		if !seen[method] {
			t.Errorf("no case of quant_method %s", method)
		}
	}
}

// compare holds numbers against others to the bit; a NaN against any NaN.
func compare(t *testing.T, got, want checkpoints.TensorView) {
	t.Helper()
	if got.DType.Numbers() != kernels.BF16 || want.DType != kernels.BF16 || !slices.Equal(got.Shape, want.Shape) {
		t.Fatalf("%s %v, want %s %v", got.DType, got.Shape, want.DType, want.Shape)
	}
	a, b := make([]float32, got.Len()), make([]float32, want.Len())
	stored, err := got.Tensor()
	if err != nil {
		t.Fatal(err)
	}
	copy(a, kernels.Widened(stored).Float32s())
	if err := want.ReadF32(b); err != nil {
		t.Fatal(err)
	}
	bad := 0
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) && !(a[i] != a[i] && b[i] != b[i]) {
			if bad++; bad < 5 {
				t.Errorf("element [%d %d] is %v, want %v", i/got.Shape[1], i%got.Shape[1], a[i], b[i])
			}
		}
	}
	if bad > 0 {
		t.Errorf("%d of %d elements differ", bad, len(a))
	}
}
