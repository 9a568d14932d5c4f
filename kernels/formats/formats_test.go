package formats

import (
	"archive/zip"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"
)

// golden are blocks of each format, and what gguf.quants.dequantize makes of them
// (scripts/golden_gguf.py).
func golden(t testing.TB) (blocks map[string][]byte, values map[string][]float32) {
	t.Helper()
	archive, err := zip.OpenReader("testdata/blocks.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	read := func(name string) []byte {
		f, err := archive.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		data, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	blocks, values = map[string][]byte{}, map[string][]float32{}
	for _, name := range All.Names() {
		blocks[name] = read(name + ".blocks")
		raw := read(name + ".values")
		for i := range len(raw) / 4 {
			values[name] = append(values[name], math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
		}
	}
	if len(archive.File) != 2*len(blocks) {
		t.Fatalf("golden values of %d formats, want %d", len(archive.File)/2, len(blocks))
	}
	return blocks, values
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
			if extreme := name != "MXFP4" && name != "NVFP4"; extreme && (nans == 0 || infinite == 0) {
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
