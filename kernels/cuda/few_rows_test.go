//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/cuda"
	"glimpse/kernels/kernelstest"
)

// layer is a linear layer of drawn numbers.
func layer(d kernelstest.Device, rng *rand.Rand, dtype kernels.DType, n, k int, bias bool) (l kernels.LinearRows) {
	l.Weight = d.Weight(rng, dtype, n, k)
	if bias {
		l.Bias = d.Tensor(kernelstest.Random(rng, n, 1), n)
	}
	return l
}

// TestCUDADecodeLinear: products of up to eight rows are one launch, those of bias included, and
// as exact as in float32 for weights of every type, for tails of groups, chunks and columns,
// and however many warps share the columns.
func TestCUDADecodeLinear(t *testing.T) {
	d, exact := openCUDA(t), kernelstest.Open(t, "reference64")
	rng := rand.New(rand.NewPCG(8, 1))
	shapes := [][3]int{{1, 8, 1}, {1, 2064, 9}, {3, 1032, 10}, {8, 4104, 3}, {2, 264, 2050}, {5, 8, 8195}, {1, 16, 8195}, {8, 24, 2049}}
	for range 24 {
		shapes = append(shapes, [3]int{1 + rng.IntN(8), 8 * (1 + rng.IntN(200)), 1 + rng.IntN(70)})
	}
	for i, s := range shapes {
		m, k, n := s[0], s[1], s[2]
		dtype, v, bias := kernelstest.WeightTypes[i%3], kernelstest.Variants[i%4], i%2 == 0
		what := fmt.Sprintf("%d rows, weight %dx%d of %s, alpha=%v beta=%v bias=%v", m, n, k, dtype, v.Alpha, v.Beta, bias)
		run := func(d kernelstest.Device, count bool) []float64 {
			rng := rand.New(rand.NewPCG(uint64(i), 5))
			x, l, y := d.Tensor(kernelstest.Random(rng, m*k, 1), m, k), layer(d, rng, dtype, n, k, bias), d.Target(rng, v.Beta, m, n)
			product := func() { d.B.Linear(y, x, l.Weight, l.Bias, v.Alpha, v.Beta) }
			if !count {
				product()
			} else if got := calls(d, product); got != 1 {
				t.Errorf("%s: %d launches, want 1", what, got)
			}
			return y.Float64s()
		}
		want := run(exact, false)
		compare.Close(t, what, run(d, true), want, 1e-6, compare.Floor(math.Sqrt(float64(k))))
	}
}

// TestCUDADecodeLinearBits: a row has the same bits in every place among up to eight rows, and
// products that are computed at once have those of single ones.
func TestCUDADecodeLinearBits(t *testing.T) {
	d := openCUDA(t)
	for i, c := range []struct {
		k     int
		n     []int // the first two of one size
		dtype kernels.DType
		bias  bool
	}{
		{264, []int{40, 40, 9}, kernels.BF16, true},
		{1304, []int{33, 33, 7}, kernels.BF16, false},
		{40, []int{2056, 2056, 8195}, kernels.BF16, true},
		{136, []int{19, 19, 1}, kernels.F32, true},
		{520, []int{5, 5, 2060}, kernels.F16, false},
	} {
		rng := rand.New(rand.NewPCG(9, uint64(i)))
		var layers []kernels.LinearRows
		for _, n := range c.n {
			layers = append(layers, layer(d, rng, c.dtype, n, c.k, c.bias))
		}
		x := d.Tensor(kernelstest.Random(rng, 8*c.k, 1), 8, c.k)
		single := func(x *kernels.Tensor, l kernels.LinearRows) *kernels.Tensor {
			y := d.Garbage(x.Dim0(), l.Weight.Dim0())
			d.B.Linear(y, x, l.Weight, l.Bias, 1, 0)
			return y
		}
		var rows [8][]*kernels.Tensor
		for r := range rows {
			for _, l := range layers {
				rows[r] = append(rows[r], single(x.Rows(r, r+1), l))
			}
		}
		for _, m := range []int{1, 2, 3, 5, 8} {
			if c.n[2] > 8192 && m != 3 {
				continue // as the others; so many columns take their time here
			}
			for parts := 1; parts <= 3; parts++ {
				at := layers[3-parts:]
				for j := range at {
					at[j].Y = d.Garbage(m, at[j].Weight.Dim0())
				}
				what := fmt.Sprintf("case %d: %d products of %d rows", i, parts, m)
				if !cuda.InOneLaunch(d.B, x.Rows(0, m), at...) {
					t.Fatalf("%s: refused", what)
				}
				if n := calls(d, func() { d.B.LinearGroup(x.Rows(0, m), at...) }); n != 1 {
					t.Errorf("%s: %d launches, want 1", what, n)
				}
				for j, l := range at {
					for r := range m {
						compare.Close(t, fmt.Sprintf("%s: product %d row %d", what, j, r), l.Y.Rows(r, r+1).Float64s(), rows[r][3-parts+j].Float64s(), 0)
					}
				}
			}
			what := fmt.Sprintf("case %d: gate of %d rows", i, m)
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

// TestCUDADecodeLinearRefused: what the kernels do not take is computed as larger products are,
// and what fits nothing is refused by its name.
func TestCUDADecodeLinearRefused(t *testing.T) {
	d, exact := openCUDA(t), kernelstest.Open(t, "reference64")
	rng := rand.New(rand.NewPCG(10, 1))
	for name, c := range map[string]struct {
		m, k, from int
		dtype      kernels.DType
	}{
		"nine rows":               {9, 16, 0, kernels.BF16},
		"rows of 18 bytes":        {2, 9, 0, kernels.BF16},
		"rows of 24 bytes":        {2, 6, 0, kernels.F32},
		"a weight that is askew":  {2, 16, 1, kernels.BF16},
		"rows x that are askew":   {1, 16, -1, kernels.BF16},
		"rows of a single number": {1, 1, 0, kernels.BF16},
	} {
		const n = 5
		run := func(d kernelstest.Device) (y, x *kernels.Tensor, l kernels.LinearRows) {
			rng := rand.New(rand.NewPCG(3, 4))
			askew := func(whole *kernels.Tensor, from int, shape ...int) *kernels.Tensor {
				return whole.Rows(from, from+shape[0]*shape[1]).Reshape(shape...)
			}
			l.Weight = askew(d.Stored(c.dtype, kernelstest.Random(rng, n*c.k+1, 1), n*c.k+1), max(0, c.from), n, c.k)
			x = askew(d.Tensor(kernelstest.Random(rng, c.m*c.k+1, 1), c.m*c.k+1), max(0, -c.from), c.m, c.k)
			y = d.Garbage(c.m, n)
			d.B.Linear(y, x, l.Weight, nil, 1, 0)
			return y, x, l
		}
		got, x, l := run(d)
		want, _, _ := run(exact)
		compare.Close(t, name, got.Float64s(), want.Float64s(), 1e-5, compare.Floor(kernelstest.Magnitude(want.Float64s())))
		l.Y = d.Garbage(c.m, l.Weight.Dim0())
		d.B.LinearGroup(x, l)
		compare.Close(t, name+", in a group", l.Y.Float64s(), got.Float64s(), 0)
		if cuda.InOneLaunch(d.B, x, l) {
			t.Errorf("%s: taken", name)
		}
	}
	l := layer(d, rng, kernels.BF16, 3, 8, false)
	x := d.Garbage(2, 8)
	if mixed := layer(d, rng, kernels.F32, 3, 8, false); cuda.InOneLaunch(d.B, x, l, mixed) || cuda.InOneLaunch(d.B, x, l, l, l, l) || cuda.InOneLaunch(d.B, x) {
		t.Error("weights of two types, four weights, or none are taken")
	}
}

// TestCUDAHeads: norms and rotation of all heads are one launch and a list, with the bits of
// the single operations.
func TestCUDAHeads(t *testing.T) {
	d := openCUDA(t)
	f := d.B
	for i, c := range []struct {
		rows, heads, kvHeads, dim int
		query, key                bool
	}{{1, 4, 2, 8, false, false}, {3, 3, 3, 128, true, true}, {2, 5, 1, 80, false, true}, {1, 1, 1, 2, true, false}, {9, 2, 1, 256, true, true}} {
		rng := rand.New(rand.NewPCG(11, uint64(i)))
		heads := func(n int) (a, b *kernels.Tensor) {
			x := kernelstest.Random(rng, c.rows*n*c.dim, 1)
			return d.Tensor(x, c.rows, n, c.dim), d.Tensor(x, c.rows, n, c.dim)
		}
		q, wantQ := heads(c.heads)
		k, wantK := heads(c.kvHeads)
		norms := kernels.HeadNorms{Eps: 1e-5}
		if c.query {
			norms.Query = d.Tensor(kernelstest.Random(rng, c.dim, 1), c.dim)
		}
		if c.key {
			norms.Key = d.Tensor(kernelstest.Random(rng, c.dim, 1), c.dim)
		}
		table, pos := angles(d, c.dim), make([]int32, c.rows)
		for r := range pos {
			pos[r] = rng.Int32N(50)
		}
		for _, one := range []struct{ x, w *kernels.Tensor }{{wantQ, norms.Query}, {wantK, norms.Key}} {
			if one.w != nil {
				flat := one.x.Reshape(one.x.Len()/c.dim, c.dim)
				d.B.Norm(flat, flat, nil, kernels.Norm{Weight: one.w, Eps: norms.Eps})
			}
			d.B.RoPE(one.x, one.x, pos, table, false)
		}
		if n := calls(d, func() { f.RotateHeads(q, k, norms, pos, table) }); n != 2 {
			t.Errorf("case %d: %d launches and copies, want 2", i, n)
		}
		compare.Close(t, fmt.Sprintf("case %d: queries", i), q.Float64s(), wantQ.Float64s(), 0)
		compare.Close(t, fmt.Sprintf("case %d: keys", i), k.Float64s(), wantK.Float64s(), 0)
	}
}

// angles is a table of 50 positions.
func angles(d kernelstest.Device, dim int) *kernels.RoPETable {
	freqs := make([]float32, dim/2)
	for i := range freqs {
		freqs[i] = float32(math.Pow(0.9, float64(i)))
	}
	return kernels.NewRoPETable(d.B, freqs, 50, 1)
}

// TestCUDAStepHeads: a recorded step that norms, rotates and appends at once leaves the
// queries, keys, values and pairs of single operations, in every sequence and layer, and
// nothing elsewhere.
func TestCUDAStepHeads(t *testing.T) {
	d := openCUDA(t)
	const rows, sequences, layers, heads, kvHeads, dim, room = 3, 2, 2, 4, 2, 48, 7
	for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16} {
		rng := rand.New(rand.NewPCG(12, uint64(dtype)))
		g := newGraph(t, d)
		b := g.Backend()
		state := b.NewSteps(rows, layers, kvHeads)
		var pairs [sequences][layers][]kernels.KV
		var next [sequences]int32
		for s := range sequences {
			var past [][]kernels.KV
			for l := range layers {
				var kvs []kernels.KV
				for range kvHeads {
					kv := kernels.KV{K: d.B.Alloc(dtype, room, dim), V: d.B.Alloc(dtype, room, dim)}
					d.B.Fill(kv.K, 7)
					d.B.Fill(kv.V, 7)
					pairs[s][l] = append(pairs[s][l], kv)
					n := rng.IntN(room - 2)
					kvs = append(kvs, kernels.KV{K: kv.K.Rows(0, n), V: kv.V.Rows(0, n)})
				}
				past = append(past, kvs)
			}
			next[s] = int32(20 + 5*s)
			b.SetSteps(state, s, next[s], past)
			for l := range layers {
				for h := range past[l] {
					pairs[s][l][h].Positions = make([]int32, past[l][h].Entries()) // how many there are
				}
			}
		}
		table := angles(d, dim)
		norms := kernels.HeadNorms{Query: d.Tensor(kernelstest.Random(rng, dim, 1), dim), Key: d.Tensor(kernelstest.Random(rng, dim, 1), dim), Eps: 1e-5}
		type projected struct{ q, k, v, wantQ, wantK *kernels.Tensor }
		var all [layers]projected
		for l := range all {
			q, k := kernelstest.Random(rng, rows*heads*dim, 1), kernelstest.Random(rng, rows*kvHeads*dim, 1)
			all[l] = projected{
				d.Tensor(q, rows, heads, dim), d.Tensor(k, rows, kvHeads, dim), d.Tensor(kernelstest.Random(rng, rows*kvHeads*dim, 1), rows, kvHeads, dim),
				d.Tensor(q, rows, heads, dim), d.Tensor(k, rows, kvHeads, dim),
			}
		}
		if !g.Record(func() {
			b.StartStep(state, sequences)
			for l, p := range all {
				b.StepHeads(p.q, p.k, p.v, norms, table, state, sequences, l, dtype)
			}
		}) {
			t.Fatal("nothing was recorded")
		}
		if n := cuda.Recorded(g); n != 1+layers {
			t.Errorf("%d operations were recorded, want %d", n, 1+layers)
		}
		g.Replay()
		pos := []int32{next[0], next[1], 0}
		for l, p := range all {
			d.B.Norm(p.wantQ.Reshape(rows*heads, dim), p.wantQ.Reshape(rows*heads, dim), nil, kernels.Norm{Weight: norms.Query, Eps: norms.Eps})
			d.B.Norm(p.wantK.Reshape(rows*kvHeads, dim), p.wantK.Reshape(rows*kvHeads, dim), nil, kernels.Norm{Weight: norms.Key, Eps: norms.Eps})
			d.B.RoPE(p.wantQ, p.wantQ, pos, table, false)
			d.B.RoPE(p.wantK, p.wantK, pos, table, false)
			what := fmt.Sprintf("%s layer %d", dtype, l)
			compare.Close(t, what+": queries", p.q.Float64s(), p.wantQ.Float64s(), 0)
			compare.Close(t, what+": keys", p.k.Float64s(), p.wantK.Float64s(), 0)
			for s := range sequences {
				for h, kv := range pairs[s][l] {
					n := len(kv.Positions)
					wantK, wantV := d.B.Alloc(dtype, room, dim), d.B.Alloc(dtype, room, dim)
					d.B.Fill(wantK, 7)
					d.B.Fill(wantV, 7)
					d.B.CopyHead(wantK.Rows(n, n+1), p.wantK.Rows(s, s+1), h)
					d.B.CopyHead(wantV.Rows(n, n+1), p.v.Rows(s, s+1), h)
					what := fmt.Sprintf("%s sequence %d head %d", what, s, h)
					compare.Close(t, what+": cached keys", kv.K.Float64s(), wantK.Float64s(), 0)
					compare.Close(t, what+": cached values", kv.V.Float64s(), wantV.Float64s(), 0)
				}
			}
		}
	}
}

// TestCUDADecodeNorm: few wide rows are normed by a kernel of their own, with and without a
// sum before, in place, for tails of its loads; the sum and the norm together have the bits
// of the two operations.
func TestCUDADecodeNorm(t *testing.T) {
	d, exact := openCUDA(t), kernelstest.Open(t, "reference64")
	for i, c := range []struct {
		rows, width int
		few         bool
	}{{1, 4096, true}, {3, 516, true}, {8, 1028, true}, {1, 16384, true}, {2, 12292, true}, {9, 600, false}, {2, 512, false}, {2, 601, false}, {1, 16388, false}} {
		what := fmt.Sprintf("%d rows of %d", c.rows, c.width)
		run := func(d kernelstest.Device) (norm, inPlace, sum, sumNorm []float64) {
			rng := rand.New(rand.NewPCG(13, uint64(i)))
			x, delta, w := d.Tensor(kernelstest.Random(rng, c.rows*c.width, 1), c.rows, c.width), d.Tensor(kernelstest.Random(rng, c.rows*c.width, 1), c.rows, c.width), d.Tensor(kernelstest.Random(rng, c.width, 1), c.width)
			y, n := d.Garbage(c.rows, c.width), kernels.Norm{Weight: w, Eps: 1e-3}
			d.B.Norm(y, x, nil, n)
			norm = y.Float64s()
			d.B.Copy(y, x)
			d.B.Norm(y, y, nil, n)
			inPlace = y.Float64s()
			d.B.Norm(y, x, delta, n)
			return norm, inPlace, x.Float64s(), y.Float64s()
		}
		norm, inPlace, sum, sumNorm := run(d)
		if cuda.Launched(d.B, "few_rms_norm") {
			t.Fatal("reading waits for the device")
		}
		wantNorm, _, wantSum, wantSumNorm := run(exact)
		compare.Close(t, what, norm, wantNorm, 1e-6, compare.Floor(1))
		compare.Close(t, what+": in place", inPlace, norm, 0)
		compare.Close(t, what+": sum", sum, wantSum, 1e-6, compare.Floor(1))
		compare.Close(t, what+": norm of the sum", sumNorm, wantSumNorm, 1e-6, compare.Floor(1))
		x, w := d.Tensor(sum, c.rows, c.width), d.Tensor(kernelstest.Random(rand.New(rand.NewPCG(1, 1)), c.width, 1), c.width)
		y := d.Garbage(c.rows, c.width)
		d.B.Norm(y, x, nil, kernels.Norm{Weight: w, Eps: 1e-3})
		if got := cuda.Launched(d.B, "few_rms_norm"); got != c.few {
			t.Errorf("%s: by the kernel of decode norms: %v, want %v", what, got, c.few)
		}
		y.Float64s()
		a, b := kernelstest.NewAddNorm(d, c.rows, c.width, false), kernelstest.NewAddNorm(d, c.rows, c.width, false)
		wantY, _ := a.Apart()
		gotY, _ := b.Together()
		compare.Close(t, what+": bits", gotY.Float64s(), wantY.Float64s(), 0)
	}
}

// TestCUDAStepAttentions: sequences that attend at once have the bits of those that attend
// one after the other, whatever their lengths, with a window and without; where there would be
// too much to merge they do not, and neither do heads that are no whole loads.
func TestCUDAStepAttentions(t *testing.T) {
	d := openCUDA(t)
	for i, c := range []struct {
		heads, kvHeads, dim int
		entries             []int // of the sequences
		dtype               kernels.DType
		windowed, together  bool
		launches            int
		bounded             bool // by a soft cap, beside sinks
	}{
		{4, 2, 16, []int{9, 3, 250}, kernels.F32, false, true, 2, true},
		{4, 2, 16, []int{9, 3, 250}, kernels.F32, false, true, 1, false},
		{4, 2, 64, []int{700, 9, 300}, kernels.BF16, true, true, 2, false},
		{7, 1, 32, []int{40, 1}, kernels.BF16, false, true, 1, false},
		{2, 1, 12, []int{40, 700}, kernels.BF16, false, false, 0, false},
	} {
		rng := rand.New(rand.NewPCG(14, uint64(i)))
		g := newGraph(t, d)
		b := g.Backend()
		n := len(c.entries)
		const layers = 2
		state := b.NewSteps(n, layers, c.kvHeads)
		var first []int32
		var all [][][]kernels.KV // steps hold addresses alone
		for s, entries := range c.entries {
			var past [][]kernels.KV
			for range layers {
				var kvs []kernels.KV
				for range c.kvHeads {
					kvs = append(kvs, kernels.KV{K: d.Stored(c.dtype, kernelstest.Random(rng, entries*c.dim, 1), entries, c.dim), V: d.Stored(c.dtype, kernelstest.Random(rng, entries*c.dim, 1), entries, c.dim)})
					first = append(first, rng.Int32N(int32(entries)))
				}
				past = append(past, kvs)
			}
			b.SetSteps(state, s, int32(entries), past)
			all = append(all, past)
		}
		b.SetStep(state, nil, first)
		q := d.Tensor(kernelstest.Random(rng, n*c.heads*c.dim, 1), n, c.heads, c.dim)
		got, want := d.Garbage(n, c.heads*c.dim), d.Garbage(n, c.heads*c.dim)
		at := kernels.StepLayer{Layer: 1, Pairs: c.dtype, Windowed: c.windowed, Appended: true, Scale: 0.3}
		if c.bounded {
			at.SoftCap, at.Sinks = 1, d.Tensor(kernelstest.Random(rng, c.heads, 1), c.heads)
		}
		together := at
		together.Longest = c.entries
		var done bool
		if launches := calls(d, func() { done = cuda.AttendTogether(d.B, got, q, state, together) }); done != c.together || launches != c.launches {
			t.Errorf("case %d: at once: %v in %d launches, want %v in %d", i, done, launches, c.together, c.launches)
		}
		for s, entries := range c.entries {
			at.Sequence, at.Longest = s, []int{entries}
			none := d.Garbage(1, c.kvHeads, c.dim)
			b.StepAttention(want.Rows(s, s+1), q.Rows(s, s+1), none, none, state, at)
		}
		if done {
			compare.Close(t, fmt.Sprintf("case %d", i), got.Float64s(), want.Float64s(), 0)
		}
		want.Float64s() // wait
		runtime.KeepAlive(all)
		g.Close()
	}
}
