package checkpoints

import (
	"io/fs"
	"runtime"
	"slices"
	"testing"

	"glimpse/kernels"
)

// bytesDoubled are weights of bytes "X.codes", of which X.weight has each twice.
func bytesDoubled(t testing.TB) *Weights {
	t.Helper()
	w, err := OpenWeightsFS(mapFS(map[string][]byte{"model.safetensors": rawFile(
		`{"X.codes":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]},"X.note":{"dtype":"U8","shape":[1],"data_offsets":[4,5]},"Y.weight":{"dtype":"F16","shape":[1],"data_offsets":[5,7]}}`,
		"abcdeYY")}), ".")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

var doubled = Derived{DType: kernels.BF16, Shape: []int{2, 2}, Of: []string{"X.codes"}, Make: func(dst []byte, of [][]byte) {
	for i, b := range of[0] {
		dst[2*i], dst[2*i+1] = b, b
	}
}}

func TestDerive(t *testing.T) {
	w := bytesDoubled(t)
	whole := w.Bytes()
	if err := w.Derive(map[string]Derived{"X.weight": doubled}, []string{"X.note"}); err != nil {
		t.Fatal(err)
	}
	if got := w.Names(); !slices.Equal(got, []string{"X.weight", "Y.weight"}) {
		t.Errorf("names %q", got)
	}
	if err := w.Rename(map[string]string{"X.weight": "Z.weight"}); err != nil {
		t.Fatal(err)
	}
	info, ok := w.Info("Z.weight")
	if !ok || info.DType != "BF16" || !slices.Equal(info.Shape, []int{2, 2}) || info.Bytes != 8 || !info.Made {
		t.Errorf("Info %+v, %v", info, ok)
	}
	if info, _ := w.Info("Y.weight"); info.Made {
		t.Error("a view of the file is said to be made")
	}
	view, err := w.Tensor("Z.weight")
	if err != nil || view.Name != "Z.weight" || view.DType != kernels.BF16 || string(view.Data) != "aabbccdd" {
		t.Fatalf("%+v, %v", view, err)
	}
	if again, err := w.Tensor("Z.weight"); err != nil || &again.Data[0] != &view.Data[0] {
		t.Errorf("a second copy while the first is in use (%v)", err)
	}
	runtime.KeepAlive(view)
	if w.Bytes() != whole {
		t.Errorf("%d bytes of files, want %d", w.Bytes(), whole)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = w.Tensor("Z.weight")
	wantErrorIs(t, err, fs.ErrClosed, `tensor "X.codes"`)
}

// TestDerivedIsGivenUp: what nobody holds is not kept.
func TestDerivedIsGivenUp(t *testing.T) {
	const size = 8 << 20
	w := bytesDoubled(t)
	large := Derived{DType: kernels.BF16, Shape: []int{size / 2}, Of: []string{"X.codes"}, Make: func([]byte, [][]byte) {}}
	if err := w.Derive(map[string]Derived{"X.weight": large}, nil); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 4 {
		if _, err := w.Tensor("X.weight"); err != nil {
			t.Fatal(err)
		}
		runtime.GC()
	}
	runtime.ReadMemStats(&after)
	if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > size/2 {
		t.Errorf("%d bytes are kept of a tensor that nobody holds, want none", kept)
	}
	runtime.KeepAlive(w)
}

func TestDeriveRefuses(t *testing.T) {
	of := doubled
	of.Of = []string{"X.codes", "X.scale"}
	w := bytesDoubled(t)
	wantErrorIs(t, w.Derive(map[string]Derived{"X.weight": of}, nil), ErrNoTensor, `tensor "X.scale"`)
	wantErrorIs(t, w.Derive(map[string]Derived{"Y.weight": doubled}, nil), ErrCorrupt, `tensor "Y.weight" is stored beside what it is made of: "X.codes"`)
	if got := w.Names(); len(got) != 3 {
		t.Errorf("names %q after errors, want those of the file", got)
	}
}

func TestRaw(t *testing.T) {
	w := bytesDoubled(t)
	if data, err := w.Raw("X.codes"); err != nil || string(data) != "abcd" {
		t.Errorf("%q, %v", data, err)
	}
	_, err := w.Raw("X.scale")
	wantErrorIs(t, err, ErrNoTensor, `tensor "X.scale"`)
	if err := w.Derive(map[string]Derived{"X.weight": doubled}, nil); err != nil {
		t.Fatal(err)
	}
	_, err = w.Raw("X.weight")
	wantErrorIs(t, err, ErrNoTensor, `tensor "X.weight"`)
	w.Close()
	_, err = w.Raw("Y.weight")
	wantErrorIs(t, err, fs.ErrClosed, `tensor "Y.weight"`)
}
