package simd_test

import (
	"archive/zip"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"glimpse/internal/parallel"
	. "glimpse/internal/simd"
	"glimpse/kernels/formats"
)

// blockFormat is a format with what its blocks hold as half-precision numbers.
type blockFormat struct {
	Blocks
	name   string
	halves []int
}

// blockFormats are the formats that there is assembly for, and three that there is none for.
var blockFormats = func() []*blockFormat {
	var all []*blockFormat
	for _, f := range []struct {
		name   string
		vector BlockVector
		halves []int
	}{
		{"Q4_0", VectorQ4_0, []int{0}}, {"Q4_1", VectorQ4_1, []int{0, 2}}, {"Q5_0", VectorQ5_0, []int{0}}, {"Q5_1", VectorQ5_1, []int{0, 2}},
		{"Q8_0", VectorQ8_0, []int{0}}, {"IQ4_NL", VectorIQ4_NL, []int{0}}, {"MXFP4", VectorMXFP4, nil}, {"E2M1_E8M0", VectorE2M1_E8M0, nil}, {"MXFP8", VectorMXFP8, nil},
		{"E4M3_BF16", VectorE4M3_BF16, nil}, {"E4M3_F32", VectorE4M3_F32, nil}, {"I4_BF16", VectorI4_BF16, nil}, {"I4_F16", VectorI4_F16, nil},
		{"I8_BF16", VectorI8_BF16, nil}, {"I8_F16", VectorI8_F16, nil}, {"I8Z_BF16", VectorI8Z_BF16, nil}, {"I8Z_F16", VectorI8Z_F16, nil},
		{"Q2_K", VectorQ2_K, []int{80, 82}}, {"Q3_K", VectorQ3_K, []int{108}}, {"Q4_K", VectorQ4_K, []int{0, 2}},
		{"Q5_K", VectorQ5_K, []int{0, 2}}, {"Q6_K", VectorQ6_K, []int{208}}, {"IQ4_XS", VectorIQ4_XS, []int{0}},
		{"NVFP4", 0, nil}, {"Q4_K", 0, []int{0, 2}}, {"F16", 0, []int{0}},
	} {
		format, err := formats.All.Lookup(f.name)
		if err != nil {
			panic(err)
		}
		name := f.name
		if f.vector == 0 {
			name += "/widen"
		}
		all = append(all, &blockFormat{Blocks{Elems: format.Elems, Bytes: format.Bytes, Widen: format.Widen, Vector: f.vector}, name, f.halves})
	}
	return all
}()

// random returns blocks of random numbers with scales such that weights are below about 1.
func (f *blockFormat) random(r *rand.Rand, elems int) []byte {
	b := make([]byte, elems/f.Elems*f.Bytes)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	for block := b; len(block) > 0; block = block[f.Bytes:] {
		if strings.HasPrefix(f.name, "I4") {
			block[2] = byte(r.IntN(17)) // the zero point
		}
		for _, at := range f.halves {
			var h [1]uint16
			NarrowF16(h[:], []float32{float32(r.NormFloat64()) / 64})
			block[at], block[at+1] = byte(h[0]), byte(h[0]>>8)
		}
		switch f.name {
		case "MXFP4", "E2M1_E8M0":
			block[0] = byte(120 + r.IntN(8))
		case "MXFP8": // below 2, and no NaN
			block[0] = byte(112 + r.IntN(8))
			for i, b := range block[1:33] {
				if b&127 == 127 {
					block[1+i] = 0
				}
			}
		case "E4M3_BF16", "E4M3_F32": // likewise
			scale := f.Bytes - 32
			block[scale-1], block[scale-2] = 0x3b, 0
			for i, b := range block[scale:f.Bytes] {
				if b&127 == 127 {
					block[scale+i] = 0
				}
			}
		case "I4_BF16", "I8_BF16", "I8Z_BF16":
			block[0], block[1] = byte(r.Uint32()), 0x3c
		case "I4_F16", "I8_F16", "I8Z_F16": // powers of two, with which no product is rounded
			block[0], block[1] = 0, byte(0x18+4*r.IntN(4))
		case "NVFP4/widen":
			for i := range 4 {
				block[i] &= 0x3f
			}
		}
	}
	return b
}

func (f *blockFormat) widened(b []byte) []float32 {
	x := make([]float32, len(b)/f.Bytes*f.Elems)
	f.Widen(x, b)
	return x
}

// blockLevels runs test for every level and format, and for level avx2 without AVX_VNNI.
func blockLevels(t *testing.T, test func(t *testing.T, f *blockFormat)) {
	const without = "avx2 without VNNI"
	for _, name := range append([]string{without}, Levels()...) {
		level := strings.TrimSuffix(name, " without VNNI")
		if !slices.Contains(Levels(), level) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			restore, err := Use(level)
			if err != nil {
				t.Fatal(err)
			}
			defer restore()
			if name == without {
				if !UseAVXVNNI(false) {
					t.Skip("avx2 has none")
				}
				defer UseAVXVNNI(true)
			}
			for _, f := range blockFormats {
				t.Run(f.name, func(t *testing.T) { test(t, f) })
			}
		})
	}
}

// golden are ggml's blocks of the format, extreme ones among them.
func (f *blockFormat) golden(t *testing.T) []byte {
	t.Helper()
	archive, err := zip.OpenReader("../../kernels/formats/testdata/blocks.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	file, err := archive.Open(strings.TrimSuffix(f.name, "/widen") + ".blocks")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	data, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestDecode: the bits of Widen, but for the payload of NaN, of any number of blocks at
// any address.
func TestDecode(t *testing.T) {
	blockLevels(t, func(t *testing.T, f *blockFormat) {
		r := NewRand(11)
		golden := f.golden(t)
		if len(golden) < 10*f.Bytes {
			t.Fatalf("%d bytes of golden blocks", len(golden))
		}
		noise := make([]byte, 300*f.Bytes) // any half-precision numbers
		for i := range noise {
			noise[i] = byte(r.Uint32())
		}
		for _, b := range [][]byte{golden, noise, f.random(r, 40*f.Elems)} {
			want := f.widened(b)
			for _, blocks := range []int{0, 1, 2, 3, 5, len(b) / f.Bytes} {
				moved := append(make([]byte, blocks%3), b[:blocks*f.Bytes]...)[blocks%3:]
				got := make([]float32, blocks*f.Elems+4)
				got[0], got[len(got)-1] = 7, 7
				f.Decode(got[1:1+blocks*f.Elems], moved)
				if got[0] != 7 || got[len(got)-1] != 7 {
					t.Fatalf("%d blocks: wrote outside of dst", blocks)
				}
				for i, x := range got[1 : 1+blocks*f.Elems] {
					if math.Float32bits(x) != math.Float32bits(want[i]) && (x == x || want[i] == want[i]) {
						t.Fatalf("%d blocks: element %d is %v, want %v", blocks, i, x, want[i])
					}
				}
			}
		}
	})
}

// blockCase is a product with rows of blocks.
type blockCase struct {
	f           *blockFormat
	nn          bool
	m, n, k     int
	alpha, beta float32
	lda, ldc    int
	a, c        []float32
	b           []byte
	weights     []float32 // of b
}

func newBlockCase(f *blockFormat, nn bool, m, n, k int, r *rand.Rand) *blockCase {
	g := &blockCase{f: f, nn: nn, m: m, n: n, k: k, alpha: 1, lda: k + r.IntN(5), ldc: n + r.IntN(5)}
	if r.IntN(2) == 0 {
		g.alpha = float32(r.NormFloat64())
	}
	if r.IntN(2) == 0 {
		g.beta = float32(r.NormFloat64())
	}
	g.a, g.c = RandomFew(r, m*g.lda), Normal(r, m*g.ldc)
	if g.beta == 0 {
		for i := range g.c {
			g.c[i] = float32(math.NaN())
		}
	}
	g.b = f.random(r, n*k)
	g.b = append(make([]byte, r.IntN(4)), g.b...)
	g.b = g.b[len(g.b)-n*k/f.Elems*f.Bytes:]
	g.weights = f.widened(g.b)
	return g
}

func (g *blockCase) String() string {
	return fmt.Sprintf("%s nn=%v m=%d n=%d k=%d alpha=%v beta=%v lda=%d ldc=%d", g.f.name, g.nn, g.m, g.n, g.k, g.alpha, g.beta, g.lda, g.ldc)
}

func (g *blockCase) run(how Rounding) []float32 {
	c := append([]float32(nil), g.c...)
	gemm := GemmNTBlocks
	if g.nn {
		gemm = GemmNNBlocks
	}
	gemm(g.m, g.n, g.k, g.alpha, g.a, g.lda, &g.f.Blocks, g.b, how, g.beta, c, g.ldc)
	return c
}

// runBF16 is the product with weights in bfloat16, or in float32 where they are decoded so.
func (g *blockCase) runBF16(how Rounding) []float32 {
	c, h := append([]float32(nil), g.c...), make([]uint16, len(g.weights))
	if g.nn && g.f.DecodesRows(g.m, g.n) {
		GemmNN(g.m, g.n, g.k, g.alpha, g.a, g.lda, g.weights, g.n, g.beta, c, g.ldc)
		return c
	}
	NarrowBF16(h, g.weights)
	if how == Split { // which blocks are not multiplied by
		how = Exact
	}
	if g.nn {
		GemmNNBF16(how, g.m, g.n, g.k, g.alpha, g.a, g.lda, h, g.n, g.beta, c, g.ldc)
	} else {
		GemmNTBF16(how, g.m, g.n, g.k, g.alpha, g.a, g.lda, h, g.k, g.beta, c, g.ldc)
	}
	return c
}

// check compares with a float64 loop over the weights times a, or what its quantised rows are:
// to 1e-5 of the terms' magnitudes.
func (g *blockCase) check(t *testing.T, got []float32) {
	t.Helper()
	for i := range g.c {
		if i/g.ldc >= g.m || i%g.ldc >= g.n {
			if math.Float32bits(got[i]) != math.Float32bits(g.c[i]) {
				t.Fatalf("%v: wrote element %d outside of c", g, i)
			}
		}
	}
	a := make([]float32, g.k)
	for i := range g.m {
		if copy(a, g.a[i*g.lda:]); g.f.Quantises() {
			Dequantise(a, g.a[i*g.lda:][:g.k])
		}
		for j := range g.n {
			var sum, magnitude float64
			for p, w := range g.weights[j*g.k : (j+1)*g.k] {
				x := float64(w) * float64(a[p])
				sum += x
				magnitude += math.Abs(x)
			}
			want, bound := float64(g.alpha)*sum, math.Abs(float64(g.alpha))*magnitude
			if g.beta != 0 {
				x := float64(g.beta) * float64(g.c[i*g.ldc+j])
				want += x
				bound += math.Abs(x)
			}
			if x := float64(got[i*g.ldc+j]); !(math.Abs(x-want) <= 1e-5*bound) {
				t.Fatalf("%v: c[%d, %d] = %v, want %v within %v", g, i, j, x, want, 1e-5*bound)
			}
		}
	}
}

// depths are some that a format has: one block, an odd number, those that are cut in parts.
func (f *blockFormat) depths() []int {
	if f.Elems == 256 {
		return []int{256, 512, 768, 1280}
	}
	return []int{64, 192, 320, 576, 1088}
}

func TestBlocksFewRows(t *testing.T) {
	blockLevels(t, func(t *testing.T, f *blockFormat) {
		if !f.MultipliesBlocks() {
			if f.Vector != 0 && f.name != "MXFP8" && Level() != "portable" && Level() != "neon" {
				t.Error("few rows are not multiplied by blocks as they are")
			}
			return
		}
		r := NewRand(21)
		for m := 1; m <= MaxDotRows; m++ {
			for _, k := range append(f.depths(), f.Elems) {
				g := newBlockCase(f, false, m, 1+r.IntN(21), k, r)
				g.check(t, g.run(Rounding(r.IntN(3))))
			}
		}
		// Weights and activations at the ends of their ranges.
		fills := []byte{0x00, 0xff, 0x80, 0x7f, 0x88, 0x7e, 0xfe, 0x01}
		few := len(fills)
		if f.BytePanels() {
			fills = append(fills, fills...)
		}
		for i, fill := range fills {
			if strings.HasPrefix(f.name, "E4M3") && fill&0x7f == 0x7f { // NaN: TestFloatBlocksNaN
				continue
			}
			m := 3
			if i >= few {
				m = MaxDotRows + 3
			}
			g := newBlockCase(f, false, m, 5, 2*f.Elems, r)
			g.beta = 0
			for at := 0; at < len(g.b); at += f.Bytes {
				block, halves := g.b[at:at+f.Bytes], append([]byte(nil), g.b[at:at+f.Bytes]...)
				for i := range block {
					block[i] = fill
				}
				for _, h := range f.halves {
					copy(block[h:h+2], halves[h:h+2])
				}
				switch {
				case f.name == "MXFP4" || f.name == "E2M1_E8M0":
					block[0] = halves[0]
				case strings.HasPrefix(f.name, "I4"):
					copy(block[:3], halves[:3])
				case strings.HasPrefix(f.name, "I8"): // of I8Z with the zero point at an end of its range, too
					copy(block[:2], halves[:2])
					if i >= few && strings.HasPrefix(f.name, "I8Z") {
						block[2] ^= 0xff
					}
				case strings.HasPrefix(f.name, "E4M3"):
					copy(block[:f.Bytes-32], halves)
				}
			}
			for i := range g.a {
				g.a[i] = 1 - 2*float32(i/g.lda%2)
			}
			g.weights = f.widened(g.b)
			g.check(t, g.run(Rounded))
		}
	})
}

// TestBlocksBits: neither the number of rows, up to 16 or above, nor threads, nor the alignment of b change
// the bits of a row.
func TestBlocksBits(t *testing.T) {
	defer parallel.SetThreads(parallel.Threads())
	blockLevels(t, func(t *testing.T, f *blockFormat) {
		for _, rows := range [][2]int{{1, MaxDotRows}, {MaxDotRows + 1, 37}} {
			least, most := rows[0], rows[1]
			r := NewRand(31)
			g := newBlockCase(f, false, most, 203, 768+f.Elems, r) // an odd number of small blocks
			parallel.SetThreads(1)
			want := g.run(Rounded)
			for _, threads := range []int{2, 3, 5} {
				parallel.SetThreads(threads)
				if at := SameBits(g.run(Rounded), want); at >= 0 {
					t.Errorf("%d rows, %d threads: other bits at %d", most, threads, at)
				}
			}
			moved := *g
			moved.b = append(make([]byte, 5, len(g.b)+5), g.b...)[5:]
			if at := SameBits(moved.run(Rounded), want); at >= 0 {
				t.Errorf("%d rows, moved blocks: other bits at %d", most, at)
			}
			if !f.MultipliesBlocks() || least > 1 && !f.BytePanels() || RaceEnabled { // other tasks than above are none
				return
			}
			for m := least; m < most; m++ {
				for i := 0; i+m <= most; i += 3 {
					few := *g
					few.m, few.a, few.c = m, g.a[i*g.lda:], g.c[i*g.ldc:][:m*g.ldc]
					if at := SameBits(few.run(Rounded), want[i*g.ldc:]); at >= 0 {
						t.Fatalf("%d rows from %d on: other bits at %d", m, i, at)
					}
				}
			}
		}
	})
}

// TestBlocksManyRows: the bits of the products with bfloat16, or the numbers of those with bytes.
func TestBlocksManyRows(t *testing.T) {
	defer parallel.SetThreads(parallel.Threads())
	blockLevels(t, func(t *testing.T, f *blockFormat) {
		r := NewRand(41)
		check := func(g *blockCase, how Rounding) {
			t.Helper()
			got := g.run(how)
			if how == Rounded && f.BytePanels() && !g.nn && g.m > MaxDotRows {
				g.check(t, got)
			} else if at := SameBits(got, g.runBF16(how)); at >= 0 {
				t.Fatalf("%v, rounding %v: other bits than of bfloat16 at %d", g, how, at)
			}
		}
		for _, m := range []int{1, 5, 9, 13, 16, 17, 30, 70} {
			for _, k := range f.depths() {
				if r.IntN(3) > 0 || (RaceEnabled || testing.Short()) && r.IntN(2) > 0 {
					continue
				}
				for _, how := range []Rounding{Exact, Split, Rounded} {
					parallel.SetThreads(1 + r.IntN(3))
					if !f.MultipliesBlocks() || m > MaxDotRows {
						check(newBlockCase(f, false, m, 1+r.IntN(90), k, r), how)
					}
					check(newBlockCase(f, true, m, k, 1+r.IntN(90), r), how)
				}
			}
		}
		// Cut into tasks, in both directions, and deeper than one panel.
		for _, s := range [][3]int{{600, 33, 768}, {40, 100, 768}, {20, 8, 1024}, {200, 16, 512}} {
			for _, nn := range []bool{false, true} {
				m, n, k := s[0], s[1], s[2]
				if nn {
					n, k = k, n
					if f.Elems == 1 && s[1] == 8 { // few columns
						n, k = s[1], s[2]
					}
				}
				if m > 100 && (RaceEnabled || testing.Short() || Level() == "portable") {
					continue
				}
				g := newBlockCase(f, nn, m, n, k, r)
				for _, how := range []Rounding{Exact, Split, Rounded} {
					check(g, how)
				}
			}
		}
	})
}

// TestBlocksFloat32: products in float32 have the bits of those with weights that were widened before, whatever the number of rows.
func TestBlocksFloat32(t *testing.T) {
	defer parallel.SetThreads(parallel.Threads())
	blockLevels(t, func(t *testing.T, f *blockFormat) {
		r := NewRand(45)
		for _, m := range []int{1, 5, MaxDotRows, MaxDotRows + 1, 30, 70} {
			for _, nn := range []bool{false, true} {
				parallel.SetThreads(1 + r.IntN(3))
				depths := f.depths()
				g := newBlockCase(f, nn, m, depths[r.IntN(2)], depths[r.IntN(len(depths))], r)
				got, want := g.run(Float32), append([]float32(nil), g.c...)
				if nn {
					GemmNN(m, g.n, g.k, g.alpha, g.a, g.lda, g.weights, g.n, g.beta, want, g.ldc)
				} else {
					GemmNT(m, g.n, g.k, g.alpha, g.a, g.lda, g.weights, g.k, g.beta, want, g.ldc)
				}
				if m <= MaxDotRows && f.MultipliesBlocks() && !f.Quantises() && !nn {
					g.check(t, got) // floats of 8 bits as they are
				} else if at := SameBits(got, want); at >= 0 {
					t.Fatalf("%v: other bits than of float32 at %d", g, at)
				}
			}
		}
	})
}

// TestBlocksNotFinite: where a product in float32 is not finite, that of integers is not.
func TestBlocksNotFinite(t *testing.T) {
	blockLevels(t, func(t *testing.T, f *blockFormat) {
		if !f.MultipliesBlocks() {
			return
		}
		notFinite(t, f, 5)
		if f.BytePanels() {
			notFinite(t, f, MaxDotRows+5)
		}
	})
}

func notFinite(t *testing.T, f *blockFormat, m int) {
	t.Helper()
	const n = 7
	r, k := NewRand(51), 3*f.Elems
	for _, odd := range []float32{float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())} {
		g := newBlockCase(f, false, m, n, k, r)
		g.beta = 0
		g.a[2*g.lda+r.IntN(k)] = odd
		for i, x := range g.run(Rounded) {
			if i%g.ldc >= n {
				continue
			}
			if finite := !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0); finite != (i/g.ldc != 2) {
				t.Fatalf("%v: %v in row 2 of a: c[%d, %d] = %v", g, odd, i/g.ldc, i%g.ldc, x)
			}
		}
		for _, half := range f.halves {
			g := newBlockCase(f, false, m, n, k, r)
			g.beta = 0
			var h [1]uint16
			NarrowF16(h[:], []float32{odd})
			block := g.b[(4*k/f.Elems+r.IntN(3))*f.Bytes:]
			block[half], block[half+1] = byte(h[0]), byte(h[0]>>8)
			g.weights = f.widened(g.b)
			for i, x := range g.run(Rounded) {
				if i%g.ldc >= n {
					continue
				}
				if finite := !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0); finite != (i%g.ldc != 4) {
					t.Fatalf("%v: %v in row 4 of b: c[%d, %d] = %v", g, odd, i/g.ldc, i%g.ldc, x)
				}
			}
		}
	}
}

// TestFloatBlocksNaN: a row with a NaN among its floats of 8 bits, at any place and of either sign, makes results NaN, and no
// other row does.
func TestFloatBlocksNaN(t *testing.T) {
	blockLevels(t, func(t *testing.T, f *blockFormat) {
		if !strings.HasPrefix(f.name, "E4M3") {
			return
		}
		const m, n, k = 5, 9, 96
		for at := range k {
			g := newBlockCase(f, false, m, n, k, NewRand(uint64(at)))
			g.beta = 0
			row := at % n
			g.b[(row*k+at)/32*f.Bytes+f.Bytes-32+at%32] = byte(0x7f | at%2<<7)
			for i, x := range g.run(Exact) {
				if i%g.ldc < n && i/g.ldc < m && math.IsNaN(float64(x)) != (i%g.ldc == row) {
					t.Fatalf("NaN at %d of row %d: c[%d, %d] = %v", at, row, i/g.ldc, i%g.ldc, x)
				}
			}
		}
	})
}

func TestBlocksNoSize(t *testing.T) {
	f := blockFormats[0]
	c := []float32{1, 2, 3, 4}
	GemmNTBlocks(2, 2, 0, 1, nil, 0, &f.Blocks, nil, Exact, 2, c, 2)
	if fmt.Sprint(c) != "[2 4 6 8]" {
		t.Errorf("k = 0, beta = 2: %v", c)
	}
	GemmNTBlocks(0, 2, 32, 1, nil, 32, &f.Blocks, make([]byte, 36), Exact, 2, nil, 2)
	GemmNNBlocks(2, 0, 3, 1, make([]float32, 6), 3, &f.Blocks, nil, Exact, 0, nil, 0)
}

func TestBlocksPanic(t *testing.T) {
	f, x, b := &blockFormats[0].Blocks, make([]float32, 320), make([]byte, 180)
	for _, c := range []struct {
		want string
		run  func()
	}{
		{"simd.GemmNTBlocks: rows of b of 33 elements, want blocks of 32",
			func() { GemmNTBlocks(1, 2, 33, 1, x, 33, f, b, Exact, 0, x, 2) }},
		{"simd.GemmNTBlocks: shape m=-1 n=2 k=32, want none negative",
			func() { GemmNTBlocks(-1, 2, 32, 1, x, 32, f, b, Exact, 0, x, 2) }},
		{"simd.GemmNTBlocks: length of b is 35, want at least 2×18 with row stride 18",
			func() { GemmNTBlocks(1, 2, 32, 1, x, 32, f, b[:35], Exact, 0, x, 2) }},
		{"simd.GemmNNBlocks: length of a is 2, want at least 1×3 with row stride 3",
			func() { GemmNNBlocks(1, 32, 3, 1, x[:2], 3, f, b, Exact, 0, x, 32) }},
		{"simd.GemmNNBlocks: length of c is 31, want at least 1×32 with row stride 32",
			func() { GemmNNBlocks(1, 32, 3, 1, x, 3, f, b, Exact, 0, x[:31], 32) }},
		{"simd.Decode: 31 elements of 18 bytes, want blocks of 32 of 18", func() { f.Decode(x[:31], b[:18]) }},
		{"simd.Decode: 32 elements of 17 bytes, want blocks of 32 of 18", func() { f.Decode(x[:32], b[:17]) }},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); got != c.want {
					t.Errorf("panic %q, want %q", got, c.want)
				}
			}()
			c.run()
		}()
	}
}

func TestBlocksDoNotAllocate(t *testing.T) {
	if RaceEnabled {
		t.Skip("the race detector empties pools at random")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which empties them, too
	blockLevels(t, func(t *testing.T, f *blockFormat) {
		r := NewRand(61)
		for _, nn := range []bool{false, true} {
			for _, s := range [][3]int{{1, 256, 256}, {4, 256, 512}, {20, 256, 256}} {
				g := newBlockCase(f, nn, s[0], s[1], s[2], r)
				c, gemm := make([]float32, len(g.c)), GemmNTBlocks
				if nn {
					gemm = GemmNNBlocks
				}
				run := func() { gemm(g.m, g.n, g.k, 1, g.a, g.lda, &g.f.Blocks, g.b, Rounded, 0, c, g.ldc) }
				run()
				if n := testing.AllocsPerRun(5, run); n >= 1 {
					t.Errorf("%v: %v allocations", g, n)
				}
			}
		}
	})
}

// TestBlocksRounding logs what quantised activations cost: the error of a product against
// that of the same weights with activations as they are, in RMS of the result.
func TestBlocksRounding(t *testing.T) {
	r := NewRand(71)
	for _, f := range blockFormats {
		if !f.MultipliesBlocks() {
			continue
		}
		const m, n, k = 8, 64, 2048
		normal, few := newBlockCase(f, false, m, n, k, r), newBlockCase(f, false, m, n, k, r)
		copy(normal.a, Normal(r, len(normal.a)))
		var errors [2]float64
		for i, g := range []*blockCase{normal, few} {
			g.alpha, g.beta = 1, 0
			exact := make([]float32, m*g.ldc)
			GemmNT(m, n, k, 1, g.a, g.lda, g.weights, k, 0, exact, g.ldc)
			got := g.run(Exact)
			var off, all float64
			for e := range m * n {
				at := e/n*g.ldc + e%n
				off += math.Pow(float64(got[at])-float64(exact[at]), 2)
				all += math.Pow(float64(exact[at]), 2)
			}
			errors[i] = math.Sqrt(off / all)
		}
		t.Logf("%-7s %.4f of normal activations, %.4f of cubes of such", f.name, errors[0], errors[1])
		if most := [2]float64{0.01, 0.02}; !f.Quantises() && max(errors[0], errors[1]) > 1e-6 || errors[0] > most[0] || errors[1] > most[1] {
			t.Errorf("%s: relative errors %.4f and %.4f", f.name, errors[0], errors[1])
		}
	}
}
