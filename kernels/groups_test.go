package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/formats"
	"glimpse/kernels/kernelstest"
)

const groupDim = 64

var groupTypes = []kernels.DType{kernels.KIVIKeys, kernels.KIVIValues}

// groupRows are random rows, of which some channels are large, as those of keys are, rounded to BF16.
func groupRows(rng *rand.Rand, n int) [][]float32 {
	rows := make([][]float32, n)
	for r := range rows {
		rows[r] = make([]float32, groupDim)
		for c := range rows[r] {
			x := rng.NormFloat64()
			if c%13 == 5 {
				x = 20 + 10*x
			}
			rows[r][c] = formats.BF16ToF32(formats.F32ToBF16(float32(x)))
		}
	}
	return rows
}

// inQ4_1 is what Q4_1 makes of 32 numbers.
func inQ4_1(x []float32) []float32 {
	f, _ := formats.All.Lookup("Q4_1")
	block, y := make([]byte, f.Bytes), make([]float32, len(x))
	f.Narrow(block, x)
	f.Decode(y, block)
	return y
}

// quantisedRows is a group as KIVI has it: keys by channels, values by tokens and 32 channels.
func quantisedRows(d kernels.DType, rows [][]float32) [][]float32 {
	out := make([][]float32, len(rows))
	for r := range rows {
		out[r] = make([]float32, groupDim)
		if d == kernels.KIVIValues {
			for c := 0; c < groupDim; c += 32 {
				copy(out[r][c:], inQ4_1(rows[r][c:c+32]))
			}
		}
	}
	if d == kernels.KIVIKeys {
		for c := range groupDim {
			var tokens [32]float32
			for r := range tokens {
				tokens[r] = rows[min(r, len(rows)-1)][c]
			}
			for r, x := range inQ4_1(tokens[:])[:len(rows)] {
				out[r][c] = x
			}
		}
	}
	return out
}

// stored is what a cache of rows holds of which none has gone: groups of 32, and the newest 32 to 63.
func storedRows(d kernels.DType, rows [][]float32) (out [][]float32) {
	for len(rows) >= 64 {
		out, rows = append(out, quantisedRows(d, rows[:32])...), rows[32:]
	}
	return append(out, rows...)
}

func rowsOf(t *kernels.Tensor) [][]float32 {
	return slices.Collect(slices.Chunk(t.Float32s(), groupDim))
}

func checkRows(t *testing.T, what string, x *kernels.Tensor, want [][]float32) {
	t.Helper()
	got := rowsOf(x.Rows(0, len(want)))
	for r := range want {
		if !slices.Equal(got[r], want[r]) {
			t.Fatalf("%s, row %d: %v, want %v", what, r, got[r], want[r])
		}
	}
}

// filled is a tensor of groups that rows were appended to, so many at a time.
func filled(d kernels.DType, capacity int, rows [][]float32, step func() int) *kernels.Tensor {
	t := kernels.NewTensor(d, capacity, groupDim)
	for at := 0; at < len(rows); {
		to := min(len(rows), at+step())
		t.Rows(at, to).AppendRows(slices.Concat(rows[at:to]...))
		at = to
	}
	return t
}

func TestGroupsHoldRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, d := range groupTypes {
		for _, n := range []int{1, 32, 63, 64, 65, 200, 515} {
			rows := groupRows(rng, n)
			want := storedRows(d, rows)
			for name, step := range map[string]func() int{"at once": func() int { return n }, "one by one": func() int { return 1 }, "in parts": func() int { return 1 + rng.IntN(70) }} {
				x := filled(d, n, rows, step)
				checkRows(t, fmt.Sprintf("%d rows of %s %s", n, d, name), x, want)
				if from := n / 3; x.Rows(from, n).At(groupDim+7-groupDim) != float64(want[from][7]) {
					t.Errorf("%d rows of %s: row %d begins otherwise", n, d, from)
				}
				closed := max(0, n-32) / 32 * 32
				if bytes := closed*groupDim*5/8 + 2*groupDim*min(n, 64); x.Bytes() != bytes || kernels.StoredBytes(d, n, groupDim) != bytes {
					t.Errorf("%d rows of %s: %d bytes, %d counted, want %d", n, d, x.Bytes(), kernels.StoredBytes(d, n, groupDim), bytes)
				}
			}
		}
	}
}

// TestGroupsKeepRows: what is kept has the numbers that it had, as long as groups are three quarters full; of fewer,
// groups are made anew of what they held. Values then keep their numbers, too.
func TestGroupsKeepRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, d := range groupTypes {
		for _, share := range []float64{0, 0.05, 0.5, 0.7, 0.85, 0.99, 1} {
			rows := groupRows(rng, 400)
			x := filled(d, 400, rows, func() int { return 400 })
			held := rowsOf(x)
			var ids []int32
			groups := map[int32]int{}
			for r := range int32(400) {
				if rng.Float64() < share {
					if ids = append(ids, r); r < 352 {
						groups[r/32]++
					}
				}
			}
			var want, old [][]float32
			for _, r := range ids {
				if r < 352 {
					old = append(old, held[r])
				}
				want = append(want, held[r])
			}
			if anew := len(old)*4 < 3*32*len(groups); anew != (share > 0 && share < 0.75) {
				t.Fatalf("share %v: %d of %d rows in %d groups", share, len(old), len(ids), len(groups))
			} else if anew && d == kernels.KIVIKeys {
				want = want[:0]
				for part := range slices.Chunk(old, 32) {
					want = append(want, quantisedRows(d, part)...)
				}
				for _, r := range ids[len(old):] {
					want = append(want, held[r])
				}
			}
			for name, to := range map[string]*kernels.Tensor{"elsewhere": kernels.NewTensor(d, len(ids), groupDim), "in place": nil} {
				source := filled(d, 400, rows, func() int { return 400 })
				if name == "in place" {
					to = source.Rows(0, len(ids))
				}
				to.KeepRows(source, ids, true)
				checkRows(t, fmt.Sprintf("%s, %v kept %s", d, share, name), to, want)
				// What comes after them makes groups of its own.
				grown := kernels.NewTensor(d, len(ids)+100, groupDim)
				if len(ids) > 0 {
					grown.Rows(0, len(ids)).KeepRows(to, kernels.Ascending(len(ids)), false)
				}
				more := groupRows(rng, 100)
				grown.Rows(len(ids), len(ids)+100).AppendRows(slices.Concat(more...))
				closed := 0
				for _, n := range groups {
					closed += n
				}
				checkRows(t, fmt.Sprintf("%s, %v kept %s and grown", d, share, name), grown, append(slices.Clone(want[:closed]), storedRows(d, append(slices.Clone(want[closed:]), more...))...))
			}
		}
	}
}

// TestGroupsAreWritten: rows that are replaced one by one, as merging does, and from one on, as decoding again does.
func TestGroupsAreWritten(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, d := range groupTypes {
		rows := groupRows(rng, 200)
		x := filled(d, 260, rows, func() int { return 200 })
		want, other := storedRows(d, rows), groupRows(rng, 2)
		for i, at := range []int{70, 190} {
			kernels.Convert(x.Rows(at, at+1), kernels.FromF32(slices.Clone(other[i]), 1, groupDim))
			if want[at] = other[i]; at == 70 {
				copy(want[64:96], quantisedRows(d, want[64:96]))
			}
		}
		checkRows(t, d.String()+", two rows replaced", x, want)
		more := groupRows(rng, 90)
		x.Rows(100, 190).AppendRows(slices.Concat(more...))
		checkRows(t, d.String()+", cut and grown", x, append(slices.Clone(want[:100]), storedRows(d, more)...))
		if d == kernels.KIVIKeys {
			continue
		}
		again := rowsOf(x.Rows(0, 96)) // a group that is written again with what it holds does not change
		kernels.Convert(x.Rows(3, 4), kernels.FromF32(slices.Clone(again[3]), 1, groupDim))
		checkRows(t, d.String()+", written again", x, again)
	}
}

// TestGroupsUnderEviction: a thousand steps, of which each adds a pair and drops another, leave keys not further off
// than rounding them a few times does.
func TestGroupsUnderEviction(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	rows := groupRows(rng, 256)
	x := filled(kernels.KIVIKeys, 257, rows, func() int { return 256 })
	off := func() (rms float64) {
		for r, row := range rowsOf(x.Rows(0, len(rows))) {
			for c, v := range row {
				scale := 1.0
				if c%13 == 5 {
					scale = 10
				}
				e := float64(v-rows[r][c]) / scale
				rms += e * e
			}
		}
		return math.Sqrt(rms / float64(len(rows)*groupDim))
	}
	once := off()
	for range 1000 {
		out := rng.IntN(len(rows))
		ids := slices.Delete(kernels.Ascending(len(rows)), out, out+1)
		x.Rows(0, len(ids)).KeepRows(x, ids, true)
		row := groupRows(rng, 1)[0]
		x.Rows(len(ids), len(ids)+1).AppendRows(row)
		rows = append(slices.Delete(rows, out, out+1), row)
	}
	if after := off(); !(after < 2*once) || !(once > 0.01) {
		t.Errorf("keys are off by %.3f of their deviation after 1,000 evictions, %.3f after none", after, once)
	} else {
		t.Logf("keys are off by %.3f of their deviation after 1,000 evictions, %.3f after none", after, once)
	}
	full := kernels.StoredBytes(kernels.KIVIKeys, 257, groupDim)
	if x.Bytes() > full*3/2 {
		t.Errorf("%d bytes, of rows without gaps %d", x.Bytes(), full)
	}
}

// TestCopiesOfGroups: the operations that fill caches and move what is in them.
func TestCopiesOfGroups(t *testing.T) {
	for _, name := range []string{"cpu", "reference", "reference64"} {
		d, rng := kernelstest.Open(t, name), rand.New(rand.NewPCG(9, 10))
		for _, dtype := range groupTypes {
			rows := groupRows(rng, 150)
			x := d.B.Alloc(d.B.Compute(), 150, 2, groupDim)
			for r, row := range rows {
				kernels.Convert(x.Rows(r, r+1).Reshape(2, groupDim).Rows(1, 2), kernels.FromF32(slices.Clone(row), 1, groupDim))
			}
			head, want := d.B.Alloc(dtype, 150, groupDim), storedRows(dtype, rows)
			d.B.CopyHead(head.Rows(0, 100), x.Rows(0, 100), 1)
			d.B.CopyHead(head.Rows(100, 150), x.Rows(100, 150), 1)
			checkRows(t, name+": CopyHead", head, want)
			ids := []int32{1, 4, 33, 149}
			moved, wide := d.B.Alloc(dtype, 150, groupDim), d.B.Alloc(d.B.Compute(), 4, groupDim)
			d.B.Copy(moved, head)
			checkRows(t, name+": Copy", moved, want)
			d.B.Gather(wide, head, ids)
			for i, r := range ids {
				compare.Close(t, name+": Gather, widened", wide.Rows(i, i+1).Float64s(), kernels.FromF32(want[r], groupDim).Float64s(), 0)
			}
			kept := append(quantisedRows(dtype, [][]float32{want[1], want[4], want[33]}), want[149])
			d.B.Gather(moved.Rows(0, 4), head, ids)
			checkRows(t, name+": Gather", moved.Rows(0, 4), kept)
			d.B.Gather(head.Rows(0, 4), head, ids)
			checkRows(t, name+": Gather in place", head.Rows(0, 4), kept)
		}
	}
}

// TestMergingIntoGroups: what is merged into groups, whose rows are rounded together, has the same bits every time.
func TestMergingIntoGroups(t *testing.T) {
	b, err := kernels.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	rows := groupRows(rand.New(rand.NewPCG(5, 6)), 300)
	var kept []int32
	for r := int32(0); r < 300; r += 3 {
		kept = append(kept, r)
	}
	var want []float32
	for range 10 {
		at := func() int { return 300 }
		kv := kernels.KV{K: filled(kernels.KIVIKeys, 300, rows, at), V: filled(kernels.KIVIValues, 300, rows, at)}
		b.Selector().MergeEvicted([]kernels.KV{kv}, kernels.HostSelection([][]int32{kept}))
		if got := kv.K.Float32s(); want == nil {
			want = got
		} else if !slices.Equal(got, want) {
			t.Fatal("other keys than before")
		}
	}
}

// TestRowsAreUndone: rows that are cut off again leave the others as MarkRows has found them, also where the first of these
// have gone since, and the memory has grown.
func TestRowsAreUndone(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, d := range groupTypes {
		for _, n := range []int{0, 20, 63, 64, 131, 200} {
			for _, gone := range []int{0, 32, 64} {
				if gone > 0 && gone > n-64 {
					continue
				}
				rows := groupRows(rng, n+150)
				x := filled(d, n, rows[:n], func() int { return max(1, n) })
				want := x.Float32s()[gone*groupDim:]
				x.MarkRows()
				more := kernels.NewTensor(d, n-gone+150, groupDim)
				more.Rows(0, n-gone).KeepRows(x, kernels.Ascending(n)[gone:], true)
				more.Rows(n-gone, n-gone+150).AppendRows(slices.Concat(rows[n:]...))
				if n > 0 && slices.Equal(more.Rows(0, n-gone).Float32s(), want) {
					t.Errorf("%d rows of %s: nothing of them has gone into groups", n, d)
				}
				more.CutRows(n - gone)
				if got := more.Rows(0, n-gone).Float32s(); !slices.Equal(got, want) {
					t.Errorf("%d rows of %s, %d of them gone: other numbers than before", n, d, gone)
				}
			}
		}
	}
}
