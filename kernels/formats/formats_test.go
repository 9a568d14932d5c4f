package formats

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"
)

// golden are blocks of each format, and what gguf.quants.dequantize makes of them
// (lab/golden/golden_gguf.py).
func golden(t testing.TB) (blocks map[string][]byte, values map[string][]float32) {
	t.Helper()
	files := unzip(t, "testdata/blocks.zip")
	blocks, values = map[string][]byte{}, map[string][]float32{}
	for _, name := range All.Names() {
		blocks[name] = files[name+".blocks"]
		values[name] = numbers(files[name+".values"])
	}
	if len(files) != 2*len(blocks) {
		t.Fatalf("golden values of %d formats, want %d", len(files)/2, len(blocks))
	}
	return blocks, values
}

func unzip(t testing.TB, path string) map[string][]byte {
	t.Helper()
	archive, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	files := map[string][]byte{}
	for _, file := range archive.File {
		f, err := file.Open()
		if err != nil {
			t.Fatal(err)
		}
		if files[file.Name], err = io.ReadAll(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	return files
}

func numbers(raw []byte) []float32 {
	x := make([]float32, len(raw)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return x
}

// TestNarrowEqualsReference: the same blocks as gguf.quants.quantize.
func TestNarrowEqualsReference(t *testing.T) {
	files := unzip(t, "testdata/narrow.zip")
	x := numbers(files["numbers"])
	for _, f := range Cached() {
		want := files[f.Name]
		if len(want) != len(x)/f.Elems*f.Bytes || len(x) < 1000 {
			t.Fatalf("%s: %d bytes of %d numbers", f.Name, len(want), len(x))
		}
		got := make([]byte, len(want))
		f.Narrow(got, x)
		for i := range len(x) / f.Elems {
			if g, w := got[i*f.Bytes:][:f.Bytes], want[i*f.Bytes:][:f.Bytes]; !bytes.Equal(g, w) {
				t.Errorf("%s, block %d: % x, want % x", f.Name, i, g, w)
			}
		}
	}
	if got := len(Cached()); got != len(files)-1 {
		t.Errorf("%d formats are written, want %d", got, len(files)-1)
	}
}

// TestNarrowKeepsNonFinite: what is not finite does not become a number.
func TestNarrowKeepsNonFinite(t *testing.T) {
	for _, f := range Cached() {
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
			for _, at := range []int{0, 13, 31} {
				x := make([]float32, f.Elems)
				x[5], x[at] = 2, bad
				block := make([]byte, f.Bytes)
				f.Narrow(block, x)
				f.Decode(x, block)
				if v := x[at]; v-v == 0 {
					t.Errorf("%s: %v at %d became %v", f.Name, bad, at, v)
				}
			}
		}
	}
}

// TestWidenEqualsReference: the same bits, of ordinary and of extreme scales. NaN may have another
// payload.
func TestWidenEqualsReference(t *testing.T) {
	blocks, values := golden(t)
	for _, name := range All.Names() {
		t.Run(name, func(t *testing.T) {
			f, _ := All.Lookup(name)
			if len(blocks[name])/f.Bytes*f.Elems != len(values[name]) || len(values[name]) < 100 {
				t.Fatalf("%d values of %d bytes in blocks of %d in %d", len(values[name]), len(blocks[name]), f.Elems, f.Bytes)
			}
			got := make([]float32, len(values[name]))
			f.Decode(got, blocks[name])
			nans, infinite := 0, 0
			for i, want := range values[name] {
				if want != want {
					nans++
				}
				if math.IsInf(float64(want), 0) {
					infinite++
				}
				if math.Float32bits(got[i]) != math.Float32bits(want) && (want == want || got[i] == got[i]) {
					t.Fatalf("element %d, %d of its block: %v (%#08x), want %v (%#08x)", i, i%f.Elems, got[i], math.Float32bits(got[i]), want, math.Float32bits(want))
				}
			}
			if extreme := name != "MXFP4" && name != "E2M1_E8M0" && name != "NVFP4"; extreme && (nans == 0 || infinite == 0) {
				t.Errorf("%d NaN and %d infinities among the golden values, want some of both", nans, infinite)
			}
			// Unaligned, and block by block.
			shifted := slices.Concat([]byte{0}, blocks[name])[1:]
			one := make([]float32, f.Elems)
			for b := range len(got) / f.Elems {
				f.Decode(one, shifted[b*f.Bytes:(b+1)*f.Bytes])
				if fmt.Sprint(one) != fmt.Sprint(got[b*f.Elems:(b+1)*f.Elems]) {
					t.Fatalf("block %d alone differs", b)
				}
			}
		})
	}
}

func TestWidenPanicsOfOtherLengths(t *testing.T) {
	f, err := All.Lookup("Q4_K")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ elems, bytes int }{{256, 143}, {256, 145}, {255, 144}, {512, 144}, {0, 144}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d elements of %d bytes: no panic", c.elems, c.bytes)
				}
			}()
			f.Decode(make([]float32, c.elems), make([]byte, c.bytes))
		}()
	}
}

// BenchmarkWiden counts the bytes of the float32 numbers written.
func BenchmarkWiden(b *testing.B) {
	for _, name := range All.Names() {
		b.Run("format="+name, func(b *testing.B) {
			f, _ := All.Lookup(name)
			const elems = 1 << 16
			src, dst := make([]byte, elems/f.Elems*f.Bytes), make([]float32, elems)
			for i := range src {
				src[i] = byte(i * 7)
			}
			b.SetBytes(4 * elems)
			for b.Loop() {
				f.Decode(dst, src)
			}
		})
	}
}
