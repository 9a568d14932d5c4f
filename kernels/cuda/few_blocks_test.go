//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/cuda"
	"glimpse/kernels/kernelstest"
)

// elems is the number of elements of which rows that the kernels take are multiples.
func elems(t testing.TB, format string) int {
	d, err := kernels.ParseStored(format)
	if err != nil {
		t.Fatal(err)
	}
	f, _ := d.Format()
	if f.Bytes%2 == 1 {
		return 4 * f.Elems
	}
	return f.Elems
}

// blockLayer is a linear layer of drawn blocks.
func blockLayer(d kernelstest.Device, rng *rand.Rand, format string, n, k int, bias bool) (l kernels.LinearRows) {
	l.Weight = d.Blocks(rng, format, n, k)
	if bias {
		l.Bias = d.Tensor(kernelstest.Random(rng, n, 1), n)
	}
	return l
}

// TestCUDADecodeBlocks: products of up to 16 rows by weights in blocks are one launch, and as
// exact as 17 bits of the rows are, for rows of weights that begin anywhere, for tails of chunks
// and columns, and however many warps share the sums.
func TestCUDADecodeBlocks(t *testing.T) {
	d, exact := openCUDA(t), kernelstest.Open(t, "reference64")
	rng := rand.New(rand.NewPCG(8, 2))
	for f, format := range cuda.KeptFormats() {
		each := elems(t, format)
		shapes := [][3]int{{1, 1, 1}, {16, 9, 70}, {9, 3, 33}, {8, 20, 5}}
		if f == 0 {
			shapes = append(shapes, [3]int{1, 1, 8195}, [3]int{2, 2, 16390}, [3]int{1, 17, 65540})
		}
		for range 3 {
			shapes = append(shapes, [3]int{1 + rng.IntN(16), 1 + rng.IntN(24), 1 + rng.IntN(70)})
		}
		for i, s := range shapes {
			m, k, n := s[0], s[1]*each, s[2]
			if each > 32 {
				k = each * (1 + s[1]/3)
			}
			v, bias := kernelstest.Variants[i%4], i%2 == 0
			what := fmt.Sprintf("%d rows, weight %dx%d of %s, alpha=%v beta=%v bias=%v", m, n, k, format, v.Alpha, v.Beta, bias)
			run := func(d kernelstest.Device, count bool) []float64 {
				rng := rand.New(rand.NewPCG(uint64(i), 6))
				x, l, y := d.Tensor(kernelstest.Random(rng, m*k, 1), m, k), blockLayer(d, rng, format, n, k, bias), d.Target(rng, v.Beta, m, n)
				product := func() { d.B.Linear(y, x, l.Weight, l.Bias, v.Alpha, v.Beta) }
				if !count {
					product()
				} else if got := calls(d, product); got != 1 {
					t.Errorf("%s: %d launches, want 1", what, got)
				}
				return y.Float64s()
			}
			want := run(exact, false)
			compare.Close(t, what, run(d, true), want, 2e-5, compare.Floor(kernelstest.Magnitude(want)))
		}
	}
}

// TestCUDADecodeBlocksBits: a row has the same bits in every place among up to 16 rows, and
// products that are computed at once have those of single ones.
func TestCUDADecodeBlocksBits(t *testing.T) {
	d := openCUDA(t)
	for i, c := range []struct {
		format string
		k      int
		n      []int // the first two of one size
		bias   bool
	}{{"E4M3_BF16", 416, []int{20, 20, 3}, true}, {"I4_F16", 640, []int{35, 35, 5}, true}, {"E2M1_E8M0", 384, []int{33, 33, 40}, false}, {"Q4_0", 416, []int{40, 40, 9}, true}, {"Q8_0", 1120, []int{33, 33, 7}, false}, {"Q4_K", 768, []int{35, 35, 8200}, true}, {"Q6_K", 512, []int{16, 16, 64}, true}} {
		rng := rand.New(rand.NewPCG(9, uint64(i)))
		var layers []kernels.LinearRows
		for _, n := range c.n {
			layers = append(layers, blockLayer(d, rng, c.format, n, c.k, c.bias))
		}
		x := d.Tensor(kernelstest.Random(rng, 16*c.k, 1), 16, c.k)
		single := func(x *kernels.Tensor, l kernels.LinearRows) *kernels.Tensor {
			y := d.Garbage(x.Dim0(), l.Weight.Dim0())
			d.B.Linear(y, x, l.Weight, l.Bias, 1, 0)
			return y
		}
		var rows [16][]*kernels.Tensor
		for r := range rows {
			for j, l := range layers {
				if j == 2 && c.n[2] > 8192 && r > 4 {
					break // as the others; so many columns take their time here
				}
				rows[r] = append(rows[r], single(x.Rows(r, r+1), l))
			}
		}
		for _, m := range []int{1, 5, 8, 9, 16} {
			for parts := 1; parts <= 3; parts++ {
				at := slices.Clone(layers[3-parts:])
				if m > 5 && c.n[2] > 8192 {
					at = slices.Clone(layers[:min(parts, 2)])
				}
				for j := range at {
					at[j].Y = d.Garbage(m, at[j].Weight.Dim0())
				}
				what := fmt.Sprintf("%s: %d products of %d rows", c.format, len(at), m)
				if !cuda.InOneLaunch(d.B, x.Rows(0, m), at...) {
					t.Fatalf("%s: refused", what)
				}
				if n := calls(d, func() { d.B.LinearGroup(x.Rows(0, m), at...) }); n != 1 {
					t.Errorf("%s: %d launches, want 1", what, n)
				}
				for j, l := range at {
					which := slices.IndexFunc(layers, func(o kernels.LinearRows) bool { return o.Weight == l.Weight })
					for r := range m {
						compare.Close(t, fmt.Sprintf("%s: product %d row %d", what, j, r), l.Y.Rows(r, r+1).Float64s(), rows[r][which].Float64s(), 0)
					}
				}
			}
			what := fmt.Sprintf("%s: gate of %d rows", c.format, m)
			gate, up := layers[0], layers[1]
			want := d.Garbage(m, c.n[0])
			d.B.SiLUMul(want, single(x.Rows(0, m), gate), single(x.Rows(0, m), up))
			gate.Y = d.Garbage(m, c.n[0])
			if n := calls(d, func() { d.B.GatedLinear(gate.Y, x.Rows(0, m), gate, up, nil) }); n != 1 {
				t.Errorf("%s: %d launches, want 1", what, n)
			}
			compare.Close(t, what, gate.Y.Float64s(), want.Float64s(), 0)
		}
	}
}

// TestCUDADecodeBlocksOfMixedFormats: neighbours of one format are one launch.
func TestCUDADecodeBlocksOfMixedFormats(t *testing.T) {
	d, rng := openCUDA(t), rand.New(rand.NewPCG(9, 9))
	const m, k = 2, 256
	x := d.Tensor(kernelstest.Random(rng, m*k, 1), m, k)
	var layers []kernels.LinearRows
	var want [][]float64
	for _, format := range []string{"Q4_K", "Q4_K", "Q6_K"} {
		l := blockLayer(d, rng, format, 40, k, true)
		l.Y = d.Garbage(m, 40)
		d.B.Linear(l.Y, x, l.Weight, l.Bias, 1, 0)
		want = append(want, l.Y.Float64s())
		d.B.Fill(l.Y, math.NaN())
		layers = append(layers, l)
	}
	if n := calls(d, func() { d.B.LinearGroup(x, layers...) }); n != 2 {
		t.Errorf("%d launches, want 2", n)
	}
	for i, l := range layers {
		compare.Close(t, fmt.Sprintf("product %d", i), l.Y.Float64s(), want[i], 0)
	}
}

// TestCUDADecodeBlocksRefused: what the kernels do not take is computed by widened weights, in as
// many pieces as fit, and is as exact as these.
func TestCUDADecodeBlocksRefused(t *testing.T) {
	d, exact := openCUDA(t), kernelstest.Open(t, "reference64")
	defer cuda.SetWidened(5000)() // of BF16: some rows
	for name, c := range map[string]struct {
		format  string
		m, from int
	}{
		"17 rows":                     {"Q8_0", 17, 0},
		"70 rows":                     {"Q8_0", 70, 0},
		"a weight that is askew":      {"Q8_0", 2, 1},
		"rows x that are askew":       {"Q8_0", 1, -1},
		"rows that begin at any byte": {"I4_BF16", 4, 0},
	} {
		const n, k = 64, 288
		run := func(d kernelstest.Device) (y, back []float64) {
			rng := rand.New(rand.NewPCG(3, 5))
			w := d.Blocks(rng, c.format, n+1, k).Rows(max(0, c.from), max(0, c.from)+n)
			wide := kernels.Widened(w.OnHost())
			if !d.B.OwnMemory() {
				w = wide
			}
			at := max(0, -c.from)
			x := d.Tensor(kernelstest.Random(rng, c.m*k+1, 1), c.m*k+1).Rows(at, at+c.m*k).Reshape(c.m, k)
			dy, dx, out := d.Tensor(kernelstest.Random(rng, c.m*n, 1), c.m, n), d.Garbage(c.m, k), d.Garbage(c.m, n)
			d.B.Linear(out, x, w, nil, 1, 0)
			d.B.MatMul(dx, dy, w, 1, 0)
			return out.Float64s(), dx.Float64s()
		}
		want, wantBack := run(exact)
		got, back := run(d)
		compare.Close(t, name, got, want, 1e-5, compare.Floor(kernelstest.Magnitude(want)))
		compare.Close(t, name+", gradient", back, wantBack, 1e-5, compare.Floor(kernelstest.Magnitude(wantBack)))
	}
}

// TestCUDABlocksAreWidened: the numbers of blocks are those of the host bit by bit, in BF16 as
// large products take them, and in float32 as rows of a table, infinite and subnormal scales
// included.
func TestCUDABlocksAreWidened(t *testing.T) {
	d := openCUDA(t)
	for i, format := range cuda.KeptFormats() {
		dtype, err := kernels.ParseStored(format)
		if err != nil {
			t.Fatal(err)
		}
		f, _ := dtype.Format()
		rng := rand.New(rand.NewPCG(11, uint64(i)))
		const rows = 9
		width := 3 * f.Elems
		data := make([]byte, dtype.Bytes(rows*width))
		for at := range data {
			data[at] = byte(rng.Uint32())
		}
		for b, scale := range []uint16{0x7c00, 0xfc00, 0x7e00, 0x0001, 0x8001, 0, 0x8000, 0x7bff} {
			binary.LittleEndian.PutUint16(data[b*f.Bytes:], scale)
			binary.LittleEndian.PutUint16(data[(b+1)*f.Bytes-2:], scale)
		}
		for at := 2; at < len(data) && strings.HasPrefix(format, "I4_"); at += f.Bytes {
			data[at] %= 17 // zero points
		}
		host, err := kernels.FromBytes(dtype, data, rows, width)
		if err != nil {
			t.Fatal(err)
		}
		table := d.B.Place(host)
		if table.DType != dtype || table.Bytes() != len(data) {
			t.Errorf("%s is placed as %s of %d bytes", format, table.DType, table.Bytes())
		}
		same := func(what string, got, want []float64) {
			for j := range want {
				if math.Float64bits(got[j]) != math.Float64bits(want[j]) && (want[j] == want[j] || got[j] == got[j]) {
					t.Fatalf("%s %s: element %d, %d of its block: %v, want %v", format, what, j, j%f.Elems, got[j], want[j])
				}
			}
		}
		same("in BF16", cuda.Widen(d.B, table).Float64s(), kernels.Widened(host).Float64s())
		ids := []int32{8, 0, 3, 3}
		y := d.Garbage(len(ids), width)
		d.B.Gather(y, table, ids)
		all := host.Float64s()
		same("one", []float64{table.At(rows*width - 3)}, all[rows*width-3:][:1])
		for r, id := range ids {
			same("row", y.Rows(r, r+1).Float64s(), all[int(id)*width:][:width])
		}
	}
}

// TestCUDADecodeBlocksNaN: a code that is no number makes its column one that is none, in every row, and no other.
func TestCUDADecodeBlocksNaN(t *testing.T) {
	d := openCUDA(t)
	const n, k = 40, 160
	for i, format := range []string{"E4M3_BF16", "E4M3_F32"} {
		rng := rand.New(rand.NewPCG(12, uint64(i)))
		host := kernelstest.Device{B: kernelstest.Open(t, "cpu").B}.Blocks(rng, format, n, k)
		data, f := host.Blocks()
		bad := map[int]bool{}
		for _, at := range [][2]int{{0, 31}, {9, 77}, {18, 159}, {35, 128}} { // row and element of the weight
			bad[at[0]] = true
			data[at[0]*k/32*f.Bytes+at[1]/32*f.Bytes+f.Bytes-32+at[1]%32] = byte(0x7f | at[1]%2<<7)
		}
		for _, m := range []int{3, 16} {
			x, y := d.Tensor(kernelstest.Random(rng, m*k, 1), m, k), d.Garbage(m, n)
			d.B.Linear(y, x, d.B.Place(host), nil, 1, 0)
			for j, v := range y.Float64s() {
				if math.IsNaN(v) != bad[j%n] {
					t.Fatalf("%s: %d rows: column %d is %v", format, m, j%n, v)
				}
			}
		}
	}
}

// TestCUDABlocksInOrder: columns that lie in another order stay in blocks, with the order beside them, and the numbers of
// products, gradients, rows and of all that is read back are those of the host's.
func TestCUDABlocksInOrder(t *testing.T) {
	d, exact := openCUDA(t), kernelstest.Open(t, "reference64")
	const n, k = 40, 256
	rng := rand.New(rand.NewPCG(13, 1))
	order := make([]int32, k)
	for i, c := range rng.Perm(k) {
		order[i] = int32(c)
	}
	host := kernelstest.Open(t, "cpu").Blocks(rng, "I4_F16", n, k).InOrder(order)
	w := d.B.Place(host)
	if w.DType != host.DType || w.Bytes() != host.Bytes() || !slices.Equal(w.Order(), order) || !slices.Equal(w.PlacedOrder().Float64s(), kernels.Widened(w.PlacedOrder().OnHost()).Float64s()) {
		t.Fatalf("placed as %s of %d bytes", w.DType, w.Bytes())
	}
	compare.Close(t, "read back", w.Float64s(), host.Float64s(), 0)
	compare.Close(t, "some rows of it", w.Rows(3, 9).Float64s(), host.Rows(3, 9).Float64s(), 0)
	compare.Close(t, "in BF16", cuda.Widen(d.B, w.Rows(2, n)).Float64s(), kernels.Widened(host.Rows(2, n)).Float64s(), 0)
	rows := d.Garbage(3, k)
	d.B.Gather(rows, w, []int32{5, 0, 5})
	compare.Close(t, "rows of a table", rows.Float64s(), slices.Concat(host.Rows(5, 6).Float64s(), host.Rows(0, 1).Float64s(), host.Rows(5, 6).Float64s()), 0)
	for _, m := range []int{1, 9, 16, 20} {
		run := func(d kernelstest.Device, w *kernels.Tensor) [][]float64 {
			rng := rand.New(rand.NewPCG(14, uint64(m)))
			x, dy := d.Tensor(kernelstest.Random(rng, m*k, 1), m, k), d.Tensor(kernelstest.Random(rng, m*n, 1), m, n)
			y, gate, dx := d.Garbage(m, n), d.Garbage(m, n), d.Garbage(m, k)
			d.B.LinearGroup(x, kernels.LinearRows{Y: y, Weight: w}, kernels.LinearRows{Y: gate, Weight: w})
			both := y.Float64s()
			d.B.GatedLinear(gate, x, kernels.LinearRows{Weight: w}, kernels.LinearRows{Weight: w}, d.B)
			d.B.MatMul(dx, dy, w, 1, 0)
			return [][]float64{both, gate.Float64s(), dx.Float64s()}
		}
		got, want := run(d, w), run(exact, exact.B.Place(kernels.Widened(host)))
		for i, what := range []string{"products", "gate", "gradient"} {
			compare.Close(t, fmt.Sprintf("%s of %d rows", what, m), got[i], want[i], 4e-3, compare.Floor(kernelstest.Magnitude(want[i])))
		}
	}
	if calls(d, func() {
		d.B.Linear(d.Garbage(1, n), d.Garbage(1, k), w, nil, 1, 0)
	}) > 4 {
		t.Error("a row in order and its product are more than two launches")
	}
}
