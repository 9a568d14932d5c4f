package npz

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"
)

// TestBytes checks every part of the format (NumPy's documentation of
// numpy.lib.format) and the elements.
func TestBytes(t *testing.T) {
	var file bytes.Buffer
	w := NewWriter(&file)
	w.Float32("f", []float32{1, -2, float32(math.Inf(1)), 0.5, 5, 6}, 1, 2, 3)
	w.Int32("i", []int32{7, -1 << 31}, 2)
	w.Bool("b", []bool{true, false, true, true}, 2, 2)
	w.AddText("t", "naïve 😀")
	w.AddText("empty", "")
	w.Float32("none", nil, 3, 0)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := zip.NewReader(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	words := func(v ...uint32) (out []byte) {
		for _, x := range v {
			out = binary.LittleEndian.AppendUint32(out, x)
		}
		return out
	}
	var text []byte
	for _, c := range "naïve 😀" {
		text = append(text, words(uint32(c))...)
	}
	want := []struct {
		name, dict string
		data       []byte
	}{
		{"f.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3), }", words(0x3f800000, 0xc0000000, 0x7f800000, 0x3f000000, 0x40a00000, 0x40c00000)},
		{"i.npy", "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }", words(7, 1<<31)},
		{"b.npy", "{'descr': '|b1', 'fortran_order': False, 'shape': (2, 2), }", []byte{1, 0, 1, 1}},
		{"t.npy", "{'descr': '<U7', 'fortran_order': False, 'shape': (), }", text},
		{"empty.npy", "{'descr': '<U1', 'fortran_order': False, 'shape': (), }", words(0)},
		{"none.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 0), }", nil},
	}
	if len(r.File) != len(want) {
		t.Fatalf("%d files, want %d", len(r.File), len(want))
	}
	padding := regexp.MustCompile(`^ *\n$`)
	for i, c := range want {
		f, err := r.File[i].Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		if r.File[i].Name != c.name || !bytes.HasPrefix(data, []byte("\x93NUMPY\x01\x00")) {
			t.Fatalf("%s: begins with %q, want %s", r.File[i].Name, data[:8], c.name)
		}
		n := int(binary.LittleEndian.Uint16(data[8:]))
		head := string(data[10 : 10+n])
		rest, ok := strings.CutPrefix(head, c.dict)
		if !ok || !padding.MatchString(rest) || (10+n)%64 != 0 {
			t.Errorf("%s: header %q of %d bytes, want %q padded to a multiple of 64", c.name, head, n, c.dict)
		}
		if !bytes.Equal(data[10+n:], c.data) {
			t.Errorf("%s: data % x, want % x", c.name, data[10+n:], c.data)
		}
	}
}

type broken struct{}

var errBroken = errors.New("broken")

func (broken) Write([]byte) (int, error) { return 0, errBroken }

func TestErrors(t *testing.T) {
	w := NewWriter(broken{})
	w.Float32("a", make([]float32, 1<<20), 1<<20)
	w.Int32("b", []int32{1}, 1)
	if err := w.Close(); !errors.Is(err, errBroken) {
		t.Errorf("error %v, want that of the file", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a shape of other size: no panic")
		}
	}()
	NewWriter(io.Discard).Int32("c", []int32{1, 2}, 3)
}
