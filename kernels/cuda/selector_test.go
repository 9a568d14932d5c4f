//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/kernels"
	"glimpse/kernels/cuda"
	"glimpse/kernels/kernelstest"
)

func openSelector(t testing.TB) (kernelstest.Device, kernels.Selector) {
	t.Helper()
	d := openCUDA(t)
	return d, d.B.Selector()
}

// drawn is a draw by definition: sort, cut, walk.
func drawn(logits []float32, d kernels.Draw) int32 {
	ids := make([]int32, len(logits))
	for i := range ids {
		ids[i] = int32(i)
	}
	slices.SortStableFunc(ids, func(a, b int32) int { return cmp.Compare(logits[b], logits[a]) })
	if d.Temperature == 0 {
		return ids[0]
	}
	if d.TopK > 0 {
		ids = ids[:min(d.TopK, len(ids))]
	}
	p, sum := make([]float64, len(ids)), 0.0
	for i, id := range ids {
		p[i] = math.Exp(float64(logits[id]-logits[ids[0]]) / d.Temperature)
		sum += p[i]
	}
	if d.TopP > 0 && d.TopP < 1 {
		kept := 0.0
		for i := range p {
			if kept += p[i]; kept >= d.TopP*sum {
				p, sum = p[:i+1], kept
				break
			}
		}
	}
	u := d.U * sum
	for i := range p {
		if u -= p[i]; u < 0 {
			return ids[i]
		}
	}
	return ids[len(p)-1]
}

// TestCUDADrawOfEquals: of equal logits every id has its share, the lower ones first.
func TestCUDADrawOfEquals(t *testing.T) {
	d := openCUDA(t)
	const vocab = 5300 // several segments
	shares := []float64{0, 0.2, 0.5, 0.8, 0.9999}
	draws := make([]kernels.Draw, len(shares))
	for i, u := range shares {
		draws[i] = kernels.Draw{Temperature: 0.5, U: u}
	}
	logits := d.Garbage(len(draws), vocab)
	d.B.Fill(logits, -3)
	for i, id := range d.B.Draw(logits, draws) {
		if want := int32(shares[i] * vocab); id != want {
			t.Errorf("at %v of %d equal tokens: drew %d, want %d", shares[i], vocab, id, want)
		}
	}
}

// TestCUDADraw: the ids that sorting gives, for rows with settings of their own.
func TestCUDADraw(t *testing.T) {
	d := openCUDA(t)
	drawer := d.B
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 8))
		rows, vocab := 1+rng.IntN(4), []int{1, 2, 33, 500, 1100, 6500}[seed%6]
		var flat []float32
		var draws []kernels.Draw
		for range rows {
			for range vocab {
				v := float32(3 * rng.NormFloat64())
				if seed%3 == 0 {
					v = float32(rng.IntN(5)) - 2 // plateaus, zeros of both signs
					v *= float32(1 - 2*rng.IntN(2))
				}
				flat = append(flat, v)
			}
			draw := kernels.Draw{Temperature: []float64{0, 0.5, 1, 1, 1e-300, 1e300}[rng.IntN(6)], U: rng.Float64()}
			if rng.IntN(2) == 0 {
				draw.TopK = 1 + rng.IntN(vocab+3)
			}
			if rng.IntN(2) == 0 {
				draw.TopP = rng.Float64()
			}
			if rng.IntN(8) == 0 {
				draw.U = 0
			}
			draws = append(draws, draw)
		}
		got := drawer.Draw(d.B.Place(kernels.FromF32(slices.Clone(flat), rows, vocab)), draws)
		for i, id := range got {
			if want := drawn(flat[i*vocab:][:vocab], draws[i]); id != want {
				t.Errorf("seed %d: row %d of %d tokens, %+v: drew %d, want %d", seed, i, vocab, draws[i], id, want)
			}
		}
		bad := rng.IntN(rows)
		flat[bad*vocab+rng.IntN(vocab)] = float32([]float64{math.NaN(), math.Inf(1), math.Inf(-1)}[seed%3])
		for i, id := range drawer.Draw(d.B.Place(kernels.FromF32(flat, rows, vocab)), draws) {
			if i == bad && id != -1 || i != bad && id != got[i] {
				t.Errorf("seed %d: row %d of rows of which %d is not finite gave %d", seed, i, bad, id)
			}
		}
	}
}

func init() {
	fuzzOps["ScoreMoments"] = func(f *fuzzer) *fuzzCall {
		entries, rows := f.momentEntries(60), kernels.PassRows{Count: 1, Next: 3}
		log, _ := f.LogScores(f.rng, entries, f.size(3), slices.Max(entries))
		square := f.B.Alloc(kernels.F32, log.Shape...)
		f.B.Copy(square, log)
		means, spreads := f.out(len(entries), slices.Max(entries)), f.out(len(entries), slices.Max(entries))
		c := of("ScoreMoments", func() { f.sel().ScoreMoments(means, spreads, entries, log, square, rows) }, refs{&means, &spreads}, &log, &square)
		c.counts = append(c.counts, &entries)
		return c
	}
	fuzzOps["StartMoments"] = func(f *fuzzer) *fuzzCall {
		s, seen := kernels.HostSelection([][]int32{{0, 2, 3}, {1}, nil}), []int32{4, 5, 6}
		moments, means, spreads := f.place(kernels.F64, make([]float64, 3*3*5), 3, 3, 5), f.in(3, 4), f.in(3, 4)
		c := of("StartMoments", func() { f.sel().StartMoments(moments, means, spreads, s, [][]int32{seen, {1}, nil}) }, refs{&moments}, &means, &spreads)
		return c
	}
	fuzzOps["AddMoments"] = func(f *fuzzer) *fuzzCall {
		entries := f.momentEntries(60)
		known, width := slices.Clone(entries), slices.Max(entries)
		log, _ := f.LogScores(f.rng, entries, f.size(3), width)
		means, spreads := f.out(len(entries), width), f.out(len(entries), width)
		moments := f.place(kernels.F64, make([]float64, 3*len(entries)*(width+2)), 3, len(entries), width+2)
		c := of("AddMoments", func() { f.sel().AddMoments(means, spreads, moments, entries, known, log) }, refs{&means, &spreads, &moments}, &log)
		c.counts = append(c.counts, &entries, &known)
		return c
	}
	fuzzOps["CarryMoments"] = func(f *fuzzer) *fuzzCall {
		entries := f.momentEntries(60)
		known, width := slices.Clone(entries), slices.Max(entries)
		means, spreads := f.in(len(entries), width), f.in(len(entries), width)
		moments := f.place(kernels.F64, make([]float64, 3*len(entries)*(width+2)), 3, len(entries), width+2)
		rows := kernels.PassRows{Count: 1, Next: 3}
		c := of("CarryMoments", func() { f.sel().CarryMoments(means, spreads, entries, moments, known, rows) }, refs{&means, &spreads}, &moments)
		c.counts = append(c.counts, &entries, &known)
		return c
	}
	fuzzOps["SelectSpread"] = func(f *fuzzer) *fuzzCall {
		entries := kernelstest.Ragged(f.rng, 100)
		means, spreads := f.in(len(entries), slices.Max(entries)+1), f.in(len(entries), slices.Max(entries)+1)
		c := of("SelectSpread", func() { f.sel().SelectSpread(means, spreads, entries, 20, 9, 2, 3).Indices() }, nil, &means, &spreads)
		c.counts = append(c.counts, &entries)
		return c
	}
}

// momentEntries is ragged, but every head has an entry.
func (f *fuzzer) momentEntries(most int) []int { return kernelstest.SomeEntries(f.rng, most) }

func init() {
	pairs := func(f *fuzzer, c *fuzzCall, entries []int, dim int) (past []kernels.KV) {
		for _, n := range entries {
			past = append(past, kernels.KV{K: f.in(n, dim), V: f.in(n, dim)})
		}
		for h := range past {
			c.tensors = append(c.tensors, &past[h].K, &past[h].V)
		}
		return past
	}
	fuzzOps["AttentionVariances"] = func(f *fuzzer) *fuzzCall {
		entries := kernelstest.SomeEntries(f.rng, 90)
		log, _ := f.LogScores(f.rng, entries, 1, slices.Max(entries))
		c := of("AttentionVariances", func() { f.sel().AttentionVariances(log, entries, 7) }, nil, &log)
		c.counts = append(c.counts, &entries)
		return c
	}
	fuzzOps["MergeEvicted"] = func(f *fuzzer) *fuzzCall {
		c := of("MergeEvicted", nil, nil)
		past := pairs(f, c, []int{5, 4, 2, 0}, f.size(40))
		s := kernels.HostSelection([][]int32{{0, 2, 3}, {1}, nil, nil})
		c.run = func() { f.sel().MergeEvicted(past, s) }
		return c
	}
	fuzzOps["MergeStep"] = func(f *fuzzer) *fuzzCall {
		c := of("MergeStep", nil, nil)
		past, thresholds := pairs(f, c, []int{4, 2, 3}, f.size(40)), f.place(kernels.F64, make([]float64, 3), 3)
		s := kernels.HostSelection([][]int32{{0, 2, 3}, {1}, {0, 1, 2}})
		c.tensors, c.run = append(c.tensors, &thresholds), func() { f.sel().MergeStep(past, s, thresholds, 0.5) }
		return c
	}
	fuzzOps["MergeRecent"] = func(f *fuzzer) *fuzzCall {
		c := of("MergeRecent", nil, nil)
		past, sums := pairs(f, c, []int{6, 5, 7}, f.size(40)), f.in(3, 7)
		c.tensors, c.run = append(c.tensors, &sums), func() { f.sel().MergeRecent(past, sums, 2, 3, [][]float64{{0.1}, nil, {0.5, 0.9}}) }
		return c
	}
}

// TestCUDAMergeMemory: a merge takes memory for entries, not for pairs of them, and gives
// its own bits.
func TestCUDAMergeMemory(t *testing.T) {
	d, sel := openSelector(t)
	const n, dim = 2000, 8
	rng := rand.New(rand.NewPCG(1, 55))
	var keep [][]int32
	for range 2 {
		idx := []int32{}
		for _, j := range rng.Perm(n)[:n/2] {
			idx = append(idx, int32(j))
		}
		slices.Sort(idx)
		keep = append(keep, idx)
	}
	var first [][]float64
	for run := range 2 {
		draw, past := rand.New(rand.NewPCG(2, 55)), make([]kernels.KV, 2)
		for h := range past {
			past[h] = kernels.KV{K: d.Tensor(kernelstest.Random(draw, n*dim, 1), n, dim), V: d.Tensor(kernelstest.Random(draw, n*dim, 1), n, dim)}
		}
		var thresholds *kernels.Tensor
		took := cuda.Temporary(d.B, func() { thresholds = sel.MergeEvicted(past, kernels.HostSelection(keep)) })
		if most := int64(2 * (20*n + 4*n + 1000)); took > most {
			t.Errorf("%d bytes for 2 heads of %d entries, want at most %d", took, n, most)
		}
		got := [][]float64{thresholds.Float64s()}
		for _, kv := range past {
			got = append(got, kv.K.Float64s(), kv.V.Float64s())
		}
		if run == 0 {
			first = got
		} else if !slices.EqualFunc(got, first, slices.Equal[[]float64]) {
			t.Error("the same pairs are merged to other bits")
		}
	}
}

// onDevice holds the operations of policies on the device against those of the tests.
func onDevice(t *testing.T, op string) {
	d, sel := openSelector(t)
	kernelstest.SelectorTests[op](t, d, sel)
}

func TestCUDAAttentionVariances(t *testing.T) { onDevice(t, "AttentionVariances") }
func TestCUDAMeanScores(t *testing.T)         { onDevice(t, "MeanScores") }
func TestCUDAMergeScores(t *testing.T)        { onDevice(t, "MergeScores") }
func TestCUDACompact(t *testing.T)            { onDevice(t, "Compact") }
func TestCUDAMergeEvicted(t *testing.T)       { onDevice(t, "MergeEvicted") }
func TestCUDAMergeRecent(t *testing.T)        { onDevice(t, "MergeRecent") }
func TestCUDAMergeStep(t *testing.T)          { onDevice(t, "MergeStep") }
func TestCUDAMoments(t *testing.T)            { onDevice(t, "Moments") }
func TestCUDAPoolScores(t *testing.T)         { onDevice(t, "PoolScores") }
func TestCUDAScores(t *testing.T)             { onDevice(t, "Scores") }
func TestCUDASelect(t *testing.T)             { onDevice(t, "Select") }
func TestCUDASelectSpread(t *testing.T)       { onDevice(t, "SelectSpread") }
func TestCUDAShareBudget(t *testing.T)        { onDevice(t, "ShareBudget") }
func TestCUDASparseEstimate(t *testing.T)     { onDevice(t, "SparseEstimate") }
func TestCUDASparseMean(t *testing.T)         { onDevice(t, "SparseMean") }
func TestCUDASparseSelect(t *testing.T)       { onDevice(t, "SparseSelect") }
func TestCUDASums(t *testing.T)               { onDevice(t, "Sums") }

// TestCUDASelectLong: several blocks of a row choose what one does, with ties across their ends, heads of
// other lengths and budgets, and numbers that are none.
func TestCUDASelectLong(t *testing.T) {
	d, sel := openSelector(t)
	const processors = 16
	defer cuda.SetProcessors(d.B, processors)()
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 33))
		sink, recent := rng.IntN(4), rng.IntN(40)
		entries, budgets := []int{4500 + rng.IntN(3000)}, []int{sink + recent + []int{1, 2, 60, 333}[seed%4]}
		for range seed % 3 {
			n := 1 + rng.IntN([]int{300, 4000, 9000}[rng.IntN(3)])
			entries, budgets = append(entries, n), append(budgets, sink+recent+rng.IntN(200))
		}
		width := slices.Max(entries) + rng.IntN(3)
		flat := make([]float32, len(entries)*width)
		for i := range flat {
			switch v := rng.Float32(); seed % 3 {
			case 0:
				flat[i] = v
			case 1: // plateaus
				flat[i] = float32(int(8*v)) - 4
			case 2: // most of them equal
				flat[i] = []float32{0, 0, 0, float32(math.Copysign(0, -1)), float32(math.NaN()), float32(math.Inf(-1)), float32(math.Inf(1)), -v}[rng.IntN(8)]
			}
		}
		if k := budgets[0] - sink - recent; len(entries) == 1 && k > 1 { // the best are where two parts meet
			n := entries[0] - sink - recent
			end := sink + cuda.SelectChunk(n, k, 1, processors)
			flat[end-1], flat[end] = 5, 5
		}
		s := sel.Select(d.B.Place(kernels.FromF32(slices.Clone(flat), len(entries), width)), entries, budgets, sink, recent)
		if !cuda.Launched(d.B, "select_top_part") {
			t.Errorf("seed %d: every row of %v has one block", seed, entries)
		}
		for h, got := range s.Indices() {
			n := entries[h]
			var want []int32
			if n <= budgets[h] {
				for i := range n {
					want = append(want, int32(i))
				}
			} else {
				for i := range sink {
					want = append(want, int32(i))
				}
				for _, i := range kernels.TopK(flat[h*width+sink:h*width+n-recent], budgets[h]-sink-recent) {
					want = append(want, i+int32(sink))
				}
				for i := n - recent; i < n; i++ {
					want = append(want, int32(i))
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("seed %d: head %d of %v, budgets %v, %d sinks, %d recent: keeps %v, want %v", seed, h, entries, budgets, sink, recent, got, want)
			}
		}
	}
}

// TestCUDAVariances: bit for bit those of sums in order, which share out budgets.
func TestCUDAVariances(t *testing.T) {
	d := openCUDA(t)
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 51))
		var tensors []*kernels.Tensor
		var entries [][]int
		var want []float64
		first := kernelstest.SomeEntries(rng, 5)
		for range 1 + rng.IntN(4) {
			n := make([]int, len(first))
			for h := range n {
				n[h] = 1 + rng.IntN([]int{4, 100, 2500}[seed%3])
			}
			width := slices.Max(n) + rng.IntN(3)
			scores := d.Tensor(kernelstest.Random(rng, len(n)*width, 1), len(n), width)
			tensors, entries = append(tensors, scores), append(entries, n)
			columns := make([]float64, slices.Max(n))
			for _, row := range kernelstest.RowsOf(scores, n) {
				for j, v := range row {
					columns[j] += float64(v) / float64(len(n))
				}
			}
			mean, sum := 0.0, 0.0
			for _, v := range columns {
				mean += v / float64(len(columns))
			}
			for _, v := range columns {
				sum += (v - mean) * (v - mean)
			}
			want = append(want, sum/float64(len(columns)))
		}
		if got := cuda.Variances(d.B, tensors, entries); !slices.Equal(got, want) {
			t.Errorf("seed %d: %v entries: variances %v, want %v", seed, entries, got, want)
		}
	}
}
