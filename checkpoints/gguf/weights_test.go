package gguf

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/kernels"
	"glimpse/kernels/formats"
)

// allSources names the tensors of testdata/all.gguf as testdata/all.safetensors does.
func allSources() map[string]Source {
	sources := map[string]Source{
		"q":      {Tensor: "attn_q.weight", Row: InterleavedRows(8)},
		"q.bias": {Tensor: "attn_q.bias", Row: InterleavedRows(8)},
	}
	for _, name := range readable() {
		sources[name] = Source{Tensor: name}
	}
	return sources
}

// TestWeightsEqualReference: of one file and of several, every format, and the rows of llama.cpp's
// query projections, against what gguf-py and numpy make of them (lab/golden/golden_gguf.py).
func TestWeightsEqualReference(t *testing.T) {
	want, err := checkpoints.OpenSafetensors("testdata/all.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	for path, files := range map[string][]string{
		"testdata/all.gguf":                  {"testdata/all.gguf"},
		"testdata/split-00001-of-00003.gguf": nil,
		"testdata/split-00003-of-00003.gguf": nil,
	} {
		t.Run(path, func(t *testing.T) {
			if files == nil {
				if files, err = filepath.Glob("testdata/split-*.gguf"); err != nil || len(files) != 3 {
					t.Fatalf("%q, %v", files, err)
				}
			}
			var whole []byte
			for _, file := range files {
				data, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				whole = append(whole, data...)
			}
			f, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			if got, _, err := f.Int("u8"); got != 200 || err != nil {
				t.Errorf("metadata: %d, %v", got, err)
			}
			w, err := f.Weights(allSources())
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(w.Names(), want.Names()) {
				t.Fatalf("names %q, want %q", w.Names(), want.Names())
			}
			for _, name := range want.Names() {
				expect, err := want.Tensor(name)
				if err != nil {
					t.Fatal(err)
				}
				got, err := w.Tensor(name)
				if err != nil {
					t.Fatal(err)
				}
				tensor, err := kernels.FromBytes(got.DType, got.Data, got.Shape...)
				if err != nil {
					t.Fatal(err)
				}
				same, err := kernels.FromBytes(expect.DType, expect.Data, expect.Shape...)
				if err != nil {
					t.Fatal(err)
				}
				wide := kernels.Widened(tensor)
				if got.Name != name || wide.DType != expect.DType || !slices.Equal(got.Shape, expect.Shape) || !slices.Equal(wide.Float32s(), same.Float32s()) {
					t.Errorf("%s: %s %v, want what is widened to %s %v", name, got.DType, got.Shape, expect.DType, expect.Shape)
				}
				if info, ok := w.Info(name); !ok || info.DType != got.DType.String() || !slices.Equal(info.Shape, got.Shape) || info.Bytes != len(got.Data) || info.Made != strings.HasPrefix(name, "q") {
					t.Errorf("%s: Info %+v, %v", name, info, ok)
				}
			}
			if sum, err := w.SHA256(t.Context(), nil); err != nil || sum != fmt.Sprintf("%x", sha256.Sum256(whole)) || w.Bytes() != int64(len(whole)) {
				t.Errorf("SHA256 %s, %v, %d bytes, want those of the files", sum, err, w.Bytes())
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			_, err = w.Tensor("q")
			wantErrorIs(t, err, fs.ErrClosed, `tensor "q"`)
		})
	}
}

// TestWeightsHoldOneCopy: tensors whose rows stay where they are, are views; gathered ones are given
// again while a caller has them, and given up afterwards.
func TestWeightsHoldOneCopy(t *testing.T) {
	f, err := Open("testdata/all.gguf")
	if err != nil {
		t.Fatal(err)
	}
	w, err := f.Weights(allSources())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	data := func(name string) *byte {
		v, err := w.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		return &v.Data[0]
	}
	for _, name := range []string{"F32", "F16", "BF16", "Q4_K"} {
		stored, _ := f.Tensor(name)
		if data(name) != &stored.Data[0] {
			t.Errorf("%s is no view of the file", name)
		}
	}
	first := data("q")
	runtime.GC()
	if data("q") != first {
		t.Error("a second copy while the first is in use")
	}
	runtime.KeepAlive(first)

	const rows, width = 1024, 4096
	if f, err = Parse("m.gguf", newBuilder().tensor("t", 8, 0, width, rows).with(rows*width/32*34)); err != nil {
		t.Fatal(err)
	}
	if w, err = f.Weights(map[string]Source{"t": {Tensor: "t", Row: InterleavedRows(rows)}}); err != nil {
		t.Fatal(err)
	}
	const size = rows * width / 32 * 34
	gather := func() {
		if _, err := w.Tensor("t"); err != nil {
			t.Fatal(err)
		}
	}
	if got := allocated(gather); got > size*5/4 {
		t.Errorf("%d bytes allocated for a tensor of %d", got, size)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 4 {
		gather()
		runtime.GC()
	}
	runtime.ReadMemStats(&after)
	if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > size/2 {
		t.Errorf("%d bytes are kept of a tensor that nobody holds, want none", kept)
	}
	runtime.KeepAlive(w)
}

// TestRowsOfAnotherShape: a tensor may be some rows of a larger one.
func TestRowsOfAnotherShape(t *testing.T) {
	file := newBuilder().tensor("stack", 0, 0, 2, 3, 2).with(48)
	for i := range 12 {
		file[len(file)-48+4*i] = byte(i)
	}
	f, err := Parse("m.gguf", file)
	if err != nil {
		t.Fatal(err)
	}
	second := Source{Tensor: "stack", Shape: []int{3, 2}, Row: func(row int) int { return 3 + row }}
	w, err := f.Weights(map[string]Source{
		"whole": {Tensor: "stack"}, "flat": {Tensor: "stack", Shape: []int{12}}, "second": second,
		"beyond": {Tensor: "stack", Shape: []int{3, 2}, Row: func(row int) int { return 4 + row }},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"whole": "[2 3 2] 0 1 2 3 4 5 6 7 8 9 10 11", "flat": "[12] 0 1 2 3 4 5 6 7 8 9 10 11", "second": "[3 2] 6 7 8 9 10 11"} {
		v, err := w.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(v.Shape)
		for i := 0; i < len(v.Data); i += 4 {
			got += fmt.Sprint(" ", v.Data[i])
		}
		if got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	_, err = w.Tensor("beyond")
	wantErrorIs(t, err, checkpoints.ErrCorrupt, `m.gguf: tensor "beyond": row 2 is row 6 of tensor "stack", want one of its 6`)
}

// TestTensorsOfTwo: a tensor may be the rows of two, in another order and in the types of both, with its columns in groups of another
// order, and with its numbers made anew.
func TestTensorsOfTwo(t *testing.T) {
	file := newBuilder().tensor("a", 0, 0, 4, 2).tensor("b", 1, 32, 4, 1).tensor("c", 0, 64, 4, 1).with(96)
	at := len(file) - 96
	for i := range 8 {
		binary.LittleEndian.PutUint32(file[at+4*i:], math.Float32bits(float32(i)))
	}
	for i := range 4 {
		binary.LittleEndian.PutUint16(file[at+32+2*i:], uint16(0x4800+i<<7)) // 8, 9, 10, 11 in F16
		binary.LittleEndian.PutUint32(file[at+64+4*i:], math.Float32bits(float32(12+i)))
	}
	f, err := Parse("m.gguf", file)
	if err != nil {
		t.Fatal(err)
	}
	backwards := func(row int) int { return 2 - row }
	w, err := f.Weights(map[string]Source{
		"two": {Tensor: "a", Then: "c", Shape: []int{3, 4}, Row: backwards}, "types": {Tensor: "a", Then: "b", Shape: []int{3, 4}, Row: backwards, DType: kernels.BF16},
		"groups": {Tensor: "a", Groups: 2, Group: func(g int) int { return 1 - g }}, "numbers": {Tensor: "c", Map: func(x float32) float32 { return 2 * x }, DType: kernels.BF16},
		"narrow": {Tensor: "b", Groups: 4, Group: func(g int) int { return 3 - g }},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"two": "F32 [3 4] [12 13 14 15 4 5 6 7 0 1 2 3]", "types": "BF16 [3 4] [8 9 10 11 4 5 6 7 0 1 2 3]", "groups": "F32 [2 4] [2 3 0 1 6 7 4 5]",
		"numbers": "BF16 [1 4] [24 26 28 30]", "narrow": "F16 [1 4] [11 10 9 8]",
	} {
		v, err := w.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		numbers := make([]float32, v.Len())
		if err := v.ReadF32(numbers); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(v.DType, v.Shape, numbers); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		if info, _ := w.Info(name); !info.Made {
			t.Errorf("%s is a view of the file", name)
		}
	}
	for want, s := range map[string]Source{
		`tensor "d"`: {Tensor: "a", Then: "d", Shape: []int{3, 4}}, `want columns in 3 groups`: {Tensor: "a", Groups: 3, Group: backwards}, "want rows of 3": {Tensor: "a", Then: "c", Shape: []int{4, 3}},
	} {
		if _, err := f.Weights(map[string]Source{"x": s}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
}

func TestWeightsRefuse(t *testing.T) {
	f, err := Parse("m.gguf", newBuilder().tensor("f32", 0, 0, 32, 2).tensor("iq", 16, 256, 256).tensor("q8", 8, 352, 32, 2).with(448))
	if err != nil {
		t.Fatal(err)
	}
	identity := func(row int) int { return row }
	for name, c := range map[string]struct {
		source Source
		is     error
		want   string
	}{
		"missing":            {Source{Tensor: "none"}, checkpoints.ErrNoTensor, `m.gguf: tensor "none": no such tensor`},
		"format":             {Source{Tensor: "iq"}, checkpoints.ErrDType, `m.gguf: tensor "iq": unsupported dtype IQ2_XXS, want one of: BF16, F16, F32, IQ4_NL, IQ4_XS, MXFP4`},
		"shape":              {Source{Tensor: "f32", Shape: []int{2, 33}}, checkpoints.ErrCorrupt, `tensor "f32": shape [2 32], want that of [2 33]`},
		"rows":               {Source{Tensor: "f32", Shape: []int{2, 33}, Row: identity}, checkpoints.ErrCorrupt, `tensor "f32": shape [2 32], want that of [2 33]`},
		"blocks across rows": {Source{Tensor: "q8", Shape: []int{4, 16}, Row: identity}, checkpoints.ErrCorrupt, `tensor "q8": Q8_0 of shape [2 32] has blocks across rows of 16 elements, want whole blocks`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := f.Weights(map[string]Source{"t": c.source, "u": {Tensor: "f32"}})
			wantErrorIs(t, err, c.is, c.want)
		})
	}
	_, err = f.Weights(map[string]Source{"a": {Tensor: "none"}, "b": {Tensor: "iq"}})
	wantErrorIs(t, err, checkpoints.ErrNoTensor, `"iq"`) // all in one
}

func TestSplitFiles(t *testing.T) {
	names, err := filepath.Glob("testdata/split-*.gguf")
	if err != nil || len(names) != 3 {
		t.Fatalf("%q, %v", names, err)
	}
	for name, c := range map[string]struct {
		change func(dir string) error
		open   string
		is     error
		want   string
	}{
		"one missing": {func(dir string) error { return os.Remove(filepath.Join(dir, "split-00002-of-00003.gguf")) }, "split-00001-of-00003.gguf", fs.ErrNotExist,
			"1 of the 3 files split-*.gguf: "},
		"two missing": {func(dir string) error {
			os.Remove(filepath.Join(dir, "split-00001-of-00003.gguf"))
			return os.Remove(filepath.Join(dir, "split-00003-of-00003.gguf"))
		}, "split-00002-of-00003.gguf", fs.ErrNotExist, "split-00003-of-00003.gguf: no such file"},
		"renamed": {func(dir string) error {
			return os.Rename(filepath.Join(dir, "split-00001-of-00003.gguf"), filepath.Join(dir, "model.gguf"))
		}, "model.gguf", checkpoints.ErrCorrupt, "model.gguf: one of the 3 files that a model was split into, want a name like NAME-00001-of-00003.gguf and the others beside it"},
		"too many": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "many-00001-of-1152921504606846976.gguf"), newBuilder().pair("split.count", 10, uint64(1<<60)).bytes(), 0o666)
		}, "many-00001-of-1152921504606846976.gguf", checkpoints.ErrCorrupt, `key "split.count": 1152921504606846976, want at most 65535`},
		"named otherwise": {func(dir string) error {
			return os.Rename(filepath.Join(dir, "split-00001-of-00003.gguf"), filepath.Join(dir, "split-00001-by-00003.gguf"))
		}, "split-00001-by-00003.gguf", checkpoints.ErrCorrupt, "want a name like"},
		"numbered otherwise": {func(dir string) error {
			return os.Rename(filepath.Join(dir, "split-00001-of-00003.gguf"), filepath.Join(dir, "split-00004-of-00003.gguf"))
		}, "split-00004-of-00003.gguf", checkpoints.ErrCorrupt, "want a name like"},
		"swapped": {func(dir string) error {
			a, b := filepath.Join(dir, "split-00002-of-00003.gguf"), filepath.Join(dir, "split-00003-of-00003.gguf")
			os.Rename(a, a+".new")
			os.Rename(b, a)
			return os.Rename(a+".new", b)
		}, "split-00001-of-00003.gguf", checkpoints.ErrCorrupt, `split-00002-of-00003.gguf: key "split.no": 2, want 1`},
		"same twice": {func(dir string) error {
			data, err := os.ReadFile("testdata/split-00002-of-00003.gguf")
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "split-00003-of-00003.gguf"), data, 0o666)
		}, "split-00001-of-00003.gguf", checkpoints.ErrCorrupt, `split-00003-of-00003.gguf: tensor "`},
		"of another model": {func(dir string) error {
			other := newBuilder().pair("split.no", 2, uint16(2)).pair("split.count", 2, uint16(3)).pair("split.tensors.count", 5, int32(1)).tensor("t", 0, 0, 4).with(16)
			return os.WriteFile(filepath.Join(dir, "split-00003-of-00003.gguf"), other, 0o666)
		}, "split-00001-of-00003.gguf", checkpoints.ErrCorrupt, `key "split.tensors.count": `},
		"no part at all": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "split-00003-of-00003.gguf"), newBuilder().tensor("t", 0, 0, 4).with(16), 0o666)
		}, "split-00001-of-00003.gguf", checkpoints.ErrCorrupt, `split-00003-of-00003.gguf: key "split.no" is missing, want 2`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, from := range names {
				data, err := os.ReadFile(from)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, filepath.Base(from)), data, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.change(dir); err != nil {
				t.Fatal(err)
			}
			_, err := Open(filepath.Join(dir, c.open))
			wantErrorIs(t, err, c.is, c.want)
			if !strings.HasPrefix(err.Error(), "open GGUF: ") || strings.Count(err.Error(), "open GGUF: ") > 1 {
				t.Errorf("error %v, want the operation once in front", err)
			}
		})
	}
}

// BenchmarkTensor counts the bytes of blocks whose rows are gathered.
func BenchmarkTensor(b *testing.B) {
	for number, name := range map[uint32]string{8: "Q8_0", 12: "Q4_K", 14: "Q6_K"} {
		b.Run("format="+name, func(b *testing.B) {
			format, _ := formats.All.Lookup(name)
			const rows, width = 4096, 4096
			f, err := Parse("m.gguf", newBuilder().tensor("t", number, 0, width, rows).with(rows*width/format.Elems*format.Bytes))
			if err != nil {
				b.Fatal(err)
			}
			w, err := f.Weights(map[string]Source{"t": {Tensor: "t", Row: InterleavedRows(rows)}})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(rows * width / format.Elems * format.Bytes))
			for b.Loop() {
				if _, err := w.Tensor("t"); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				runtime.GC() // which gives up what was made
				b.StartTimer()
			}
		})
	}
}
