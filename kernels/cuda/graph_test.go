//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/cuda"
	"glimpse/kernels/kernelstest"
)

func newGraph(t testing.TB, d kernelstest.Device) kernels.Graph {
	t.Helper()
	g := d.B.NewGraph()
	if g == nil {
		t.Fatal("the device has no graphs")
	}
	t.Cleanup(g.Close)
	return g
}

// calls counts what f queues on the device; 0 of a backend that is none.
func calls(d kernelstest.Device, f func()) int {
	device, ok := d.B.(interface{ Calls() int64 })
	if !ok {
		f()
		return 0
	}
	before := device.Calls()
	f()
	return int(device.Calls() - before)
}

// smallModel is some rows through operations of every sort: with lists of the host,
// copies, products that split and that widen their weights, attention.
type smallModel struct {
	d            kernelstest.Device
	table        *kernels.RoPETable
	weight, half *kernels.Tensor
}

func newSmallModel(d kernelstest.Device) *smallModel {
	rng := rand.New(rand.NewPCG(1, 2))
	return &smallModel{d, kernels.NewRoPETable(d.B, []float32{1, 0.25}, 64, 1), d.Weight(rng, kernels.BF16, 12, 12), d.Weight(rng, kernels.F16, 12, 12)}
}

// pass prepares rows drawn from seed; run computes on them.
func (m *smallModel) pass(rows int, seed uint64) (run func(b kernels.Backend, alloc kernels.Allocator) *kernels.Tensor) {
	rng := rand.New(rand.NewPCG(seed, 3))
	var ids, pos []int32
	for r := range rows {
		ids, pos = append(ids, rng.Int32N(12)), append(pos, rng.Int32N(3)+int32(3*r))
	}
	var past []kernels.KV
	for range 3 {
		n := rows + rng.IntN(40)
		past = append(past, kernels.KV{K: m.d.Tensor(kernelstest.Random(rng, 4*n, 1), n, 4), V: m.d.Tensor(kernelstest.Random(rng, 4*n, 1), n, 4)})
	}
	return func(b kernels.Backend, alloc kernels.Allocator) *kernels.Tensor {
		x, u, y := alloc.Alloc(kernels.F32, rows, 12), alloc.Alloc(kernels.F32, rows, 12), alloc.Alloc(kernels.F32, rows, 12)
		b.Gather(x, m.weight, ids)
		b.Copy(u, x)
		heads := u.Reshape(rows, 3, 4)
		b.RoPE(heads, heads, pos, m.table, false)
		b.Linear(x, u, m.weight, nil, 1, 0)
		b.Attention(u, nil, &kernels.Attend{Q: x.Reshape(rows, 3, 4), Past: past, Scale: 0.5})
		b.Linear(y, u, m.half, nil, 1, 0)
		return y
	}
}

// TestCUDAGraphRuns: operations that start as a graph have the bits of those that
// start one by one, from run to run on other shapes and lists, and take fewer calls
// of the driver.
func TestCUDAGraphRuns(t *testing.T) {
	d := openCUDA(t)
	warnings, restore := cuda.CatchWarnings(d.B)
	defer restore()
	g, m := newGraph(t, d), newSmallModel(d)
	arena := kernels.NewArena(g.Backend())
	for i, rows := range []int{5, 5, 7, 1, 20, 5} {
		run := m.pass(rows, uint64(i))
		var got, want *kernels.Tensor
		plain := calls(d, func() { want = run(d.B, d.B) })
		inGraph := calls(d, func() {
			if err := g.Run(func() error { arena.Release(nil); got = run(g.Backend(), arena); return nil }); err != nil {
				t.Fatal(err)
			}
		})
		compare.Close(t, fmt.Sprintf("run %d of %d rows", i, rows), got.Float64s(), want.Float64s(), 0)
		// Of the guarded driver every list is a copy of its own; else one takes them all.
		if n := cuda.Recorded(g); n < 9 || plain < n+3 || inGraph > 4 {
			t.Errorf("run %d: %d operations in the graph: %d calls of the driver with it, %d without", i, n, inGraph, plain)
		}
	}
	if len(*warnings) > 0 {
		t.Errorf("warnings %q", *warnings)
	}
}

// TestCUDAGraphsBesideOtherWork: what others queue while a graph is recorded is no
// part of it, and happens at once.
func TestCUDAGraphsBesideOtherWork(t *testing.T) {
	d := openCUDA(t)
	g := newGraph(t, d)
	x, y := d.Tensor([]float64{1, 2, 3}, 3), d.Tensor([]float64{5, 5, 5}, 3)
	if !g.Record(func() {
		g.Backend().Add(x, x, x)
		done := make(chan []float64)
		go func() {
			d.B.Add(y, y, x)
			done <- y.Float64s()
		}()
		compare.Close(t, "meanwhile", <-done, []float64{6, 7, 8}, 0)
	}) {
		t.Fatal("nothing was recorded")
	}
	compare.Close(t, "recorded only", x.Float64s(), []float64{1, 2, 3}, 0)
	for i := range 3 {
		g.Replay()
		f := math.Pow(2, float64(i+1))
		compare.Close(t, "replayed", x.Float64s(), []float64{f, 2 * f, 3 * f}, 0)
	}
	compare.Close(t, "of the others", y.Float64s(), []float64{6, 7, 8}, 0)
}

// TestCUDAGraphFallsBack: where recording fails everything goes on without, with the
// same results, one warning says why, and later recordings are tried again.
func TestCUDAGraphFallsBack(t *testing.T) {
	d := openCUDA(t)
	for name, c := range map[string]struct {
		graphs string
		f      func(b kernels.Backend, x *kernels.Tensor) error
		want   string
	}{
		"driver refuses":   {"0", nil, "cuStreamBeginCapture: error 801 (not supported)"},
		"result read":      {"", func(b kernels.Backend, x *kernels.Tensor) error { b.SumSquares(x); return nil }, "SumSquares: waits for the device, which cannot be recorded"},
		"tensor read":      {"", func(_ kernels.Backend, x *kernels.Tensor) error { x.Float64s(); return nil }, "read: reads device memory, which cannot be recorded"},
		"tensor written":   {"", func(_ kernels.Backend, x *kernels.Tensor) error { kernels.Convert(x, x.OnHost()); return nil }, "read: reads device memory, which cannot be recorded"},
		"out of memory":    {"", func(b kernels.Backend, x *kernels.Tensor) error { return outOfMemory(b) }, "out of memory"},
		"error of its own": {"", func(kernels.Backend, *kernels.Tensor) error { return errOwn }, errOwn.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			if c.graphs != "" {
				needHostDriver(t, d)
				t.Setenv("HOSTCUDA_GRAPHS", c.graphs)
			}
			warnings, restore := cuda.CatchWarnings(d.B)
			defer restore()
			for range 2 {
				g := newGraph(t, d)
				b := g.Backend()
				x := b.Alloc(kernels.F32, 3)
				kernels.Convert(x, kernels.FromF64([]float64{1, 2, 3}, 3))
				runs := 0
				err := g.Run(func() error {
					runs++
					b.Add(x, x, x)
					if c.f != nil {
						return c.f(b, x)
					}
					return nil
				})
				if name == "error of its own" && !errors.Is(err, errOwn) || name == "out of memory" && (err == nil || !strings.Contains(err.Error(), "out of memory")) {
					t.Errorf("error %v", err)
				} else if err != nil && name != "error of its own" && name != "out of memory" {
					t.Error(err)
				}
				if runs < 1 || runs > 2 {
					t.Errorf("ran %d times", runs)
				}
				compare.Close(t, "result", x.Float64s(), []float64{2, 4, 6}, 0)
				tries, add := 1, func() { b.Add(x, x, x) }
				for tries < 100 && !g.Record(add) {
					tries++
				}
				if refused := tries == 100; tries < 10 || refused != (c.graphs != "") {
					t.Errorf("recorded at try %d after a failure", tries)
				}
			}
			if len(*warnings) != 1 || !strings.Contains((*warnings)[0], "cuda:0: a CUDA graph could not be recorded") || !strings.Contains((*warnings)[0], c.want) {
				t.Errorf("warnings %q, want one with %q", *warnings, c.want)
			}
		})
	}
	t.Run("lists in a replay", func(t *testing.T) {
		warnings, restore := cuda.CatchWarnings(d.B)
		defer restore()
		g, m := newGraph(t, d), newSmallModel(d)
		if run := m.pass(2, 1); g.Record(func() { run(g.Backend(), g.Backend()) }) {
			t.Error("the first list would be replayed")
		}
		if len(*warnings) != 1 || !strings.Contains((*warnings)[0], "Gather: takes data from the host") {
			t.Errorf("warnings %q", *warnings)
		}
	})
	t.Run("switched off", func(t *testing.T) {
		t.Setenv("GLIMPSE_CUDA_GRAPHS", "0")
		if g := d.B.NewGraph(); g != nil {
			t.Error("there is a graph")
		}
	})
}

var errOwn = errors.New("nothing to do with graphs")

func outOfMemory(b kernels.Backend) (err error) {
	defer kernels.CatchDevice(&err)
	b.Alloc(kernels.F32, 1<<50)
	return nil
}

// TestCUDAGraphKeepsMemory: memory that a recorded graph uses is not handed out while
// the graph is there, though no tensor refers to it any more, and is free afterwards.
func TestCUDAGraphKeepsMemory(t *testing.T) {
	d := openCUDA(t)
	before := cuda.InUse(d.B)
	func() {
		g := d.B.NewGraph()
		b := g.Backend()
		y := d.Tensor([]float64{0, 0, 0}, 3)
		if !g.Record(func() {
			x := b.Alloc(kernels.F32, 3)
			b.Fill(x, 1)
			b.Add(y, y, x)
		}) {
			t.Fatal("nothing was recorded")
		}
		for i := range 3 {
			runtime.GC()
			if cuda.InUse(d.B) < before+24 {
				t.Fatal("the graph's memory was given back")
			}
			other := d.Tensor([]float64{7, 7, 7}, 3)
			g.Replay()
			compare.Close(t, "replayed", y.Float64s(), []float64{float64(i + 1), float64(i + 1), float64(i + 1)}, 0)
			compare.Close(t, "another tensor", other.Float64s(), []float64{7, 7, 7}, 0)
		}
	}()
	if after := cuda.InUse(d.B); after != before {
		t.Errorf("%d bytes are in use, %d before", after, before)
	}
}

// TestCUDASteps: decoding steps of two sequences that are recorded once and replayed
// for token after token have the bits of single operations, and their attention and
// appended pairs are those of the reference.
func TestCUDASteps(t *testing.T) {
	d, exact := openCUDA(t), kernelstest.Open(t, "reference64")
	_, restore := cuda.CatchWarnings(d.B)
	defer restore()
	for _, s := range []struct {
		name           string
		heads, kvHeads int
		dim, window    int
		entries        []int // per layer and KV head, before the first step; the second sequence has them the other way round
		pairs          kernels.DType
	}{
		{"first token", 1, 1, 4, 0, []int{0, 0}, kernels.F32},
		{"ragged", 6, 3, 8, 0, []int{0, 250, 3, 17, 90, 1}, kernels.F32},
		{"window", 4, 2, 16, 5, []int{3, 40, 0, 9}, kernels.F32},
		{"many entries", 2, 1, 4, 0, []int{669, 520}, kernels.F32},
		{"bf16", 4, 2, 80, 0, []int{30, 300, 31, 0}, kernels.BF16},
		{"bf16, window, wide heads", 2, 1, 256, 20, []int{30, 7}, kernels.BF16},
		{"bf16, many queries of a head", 70, 1, 8, 0, []int{33, 5}, kernels.BF16},
	} {
		t.Run(s.name, func(t *testing.T) {
			const rows, sequences, layers, steps, vocab = 3, 2, 2, 6, 9
			rng := rand.New(rand.NewPCG(4, uint64(len(s.name))))
			g := newGraph(t, d)
			b := g.Backend()
			angles := make([]float32, s.dim/2)
			for i := range angles {
				angles[i] = float32(math.Pow(0.9, float64(i)))
			}
			table := kernels.NewRoPETable(d.B, angles, 2048, 1)
			embedding := d.Weight(rng, kernels.BF16, vocab, s.heads*s.dim)
			// Pairs with room, and the same numbers for single operations.
			type head struct {
				k, v, plainK, plainV *kernels.Tensor
				pos                  []int32
			}
			var heads [sequences][]head // [layers·kvHeads]
			var longest [sequences][layers]int
			var next [sequences]int32
			for q := range sequences {
				for i := range s.entries {
					n := s.entries[i]
					if q == 1 {
						n = s.entries[len(s.entries)-1-i]
					}
					room := n + steps + rng.IntN(3)
					fresh := func() (a, b *kernels.Tensor) {
						x := kernelstest.Random(rng, room*s.dim, 1)
						return d.Stored(s.pairs, x, room, s.dim), d.Stored(s.pairs, x, room, s.dim)
					}
					var h head
					h.k, h.plainK = fresh()
					h.v, h.plainV = fresh()
					for j := range n {
						h.pos = append(h.pos, int32(2*j))
					}
					heads[q] = append(heads[q], h)
					longest[q][i/s.kvHeads] = max(longest[q][i/s.kvHeads], n+steps)
				}
				next[q] = int32(2*slices.Max(s.entries) + 1 + q)
			}
			x := b.Alloc(kernels.F32, rows, s.heads, s.dim)
			own := func() *kernels.Tensor {
				return d.Tensor(kernelstest.Random(rng, rows*s.kvHeads*s.dim, 1), rows, s.kvHeads, s.dim)
			}
			k, v := own(), own()
			outs := []*kernels.Tensor{d.Garbage(rows, s.heads*s.dim), d.Garbage(rows, s.heads*s.dim)}
			state := b.NewSteps(rows, layers, s.kvHeads)
			scale := 1 / math.Sqrt(float64(s.dim))
			if !g.Record(func() {
				b.StartStep(state, sequences)
				b.StepGather(x, embedding, state)
				b.StepRoPE(x, state, table)
				for q := range sequences {
					for l := range layers {
						b.StepAttention(outs[l].Rows(q, q+1), x.Rows(q, q+1), k.Rows(q, q+1), v.Rows(q, q+1), state, kernels.StepLayer{
							Sequence: q, Layer: l, Pairs: s.pairs, Longest: longest[q][l : l+1], Windowed: s.window > 0 && l == 1, Scale: scale,
						})
					}
				}
			}) {
				t.Fatal("nothing was recorded")
			}
			views := func(q, l int, plain bool) (kvs []kernels.KV) {
				for _, h := range heads[q][l*s.kvHeads : (l+1)*s.kvHeads] {
					n := len(h.pos)
					kv := kernels.KV{K: h.k.Rows(0, n), V: h.v.Rows(0, n), Positions: h.pos}
					if plain {
						kv.K, kv.V = h.plainK.Rows(0, n), h.plainV.Rows(0, n)
					}
					kvs = append(kvs, kv)
				}
				return kvs
			}
			for step := range steps {
				tokens := []int32{rng.Int32N(vocab), rng.Int32N(vocab)}
				var first []int32
				for q := range sequences {
					if step == 0 || step == 3+q { // as if the cache had changed
						b.SetSteps(state, q, next[q], [][]kernels.KV{views(q, 0, false), views(q, 1, false)})
					}
					for _, h := range heads[q] {
						if s.window > 0 {
							at, _ := slices.BinarySearch(h.pos, next[q]-int32(s.window)+1)
							first = append(first, int32(at))
						}
					}
				}
				if step == 2 { // as if they had been drawn on the device
					drawn := kernels.NewTensor(kernels.I32, rows)
					copy(drawn.I32(), tokens)
					kernels.Convert(state.Tokens(), drawn)
					b.SetStep(state, nil, first)
				} else {
					b.SetStep(state, tokens, first)
				}
				g.Replay()

				for q := range sequences {
					y := d.B.Alloc(kernels.F32, 1, s.heads, s.dim)
					d.B.Gather(y.Reshape(1, s.heads*s.dim), embedding, tokens[q:q+1])
					d.B.RoPE(y, y, next[q:q+1], table, false)
					where := fmt.Sprintf("step %d sequence %d", step, q)
					compare.Close(t, where+": queries", x.Rows(q, q+1).Float64s(), y.Float64s(), 0)
					for i := range heads[q] {
						h, n := &heads[q][i], len(heads[q][i].pos)
						d.B.CopyHead(h.plainK.Rows(n, n+1), k.Rows(q, q+1), i%s.kvHeads)
						d.B.CopyHead(h.plainV.Rows(n, n+1), v.Rows(q, q+1), i%s.kvHeads)
						h.pos = append(h.pos, next[q])
					}
					for l := range layers {
						where := fmt.Sprintf("%s layer %d", where, l)
						a := &kernels.Attend{Q: y, Past: views(q, l, true), Scale: scale, Positions: next[q : q+1]}
						if l == 1 {
							a.Window = s.window
						}
						got, want := outs[l].Rows(q, q+1).Float64s(), d.Garbage(1, s.heads*s.dim)
						d.B.Attention(want, nil, a)
						if kernels.EntryBucket(longest[q][l]) == kernels.EntryBucket(longest[q][l]-steps+step+1) {
							compare.Close(t, where, got, want.Float64s(), 0)
						}
						e := *a
						e.Q, e.Past = exact.Tensor(y.Float64s(), y.Shape...), nil
						for i, kv := range views(q, l, false) {
							compare.Close(t, where+": keys", kv.K.Float64s(), a.Past[i].K.Float64s(), 0)
							compare.Close(t, where+": values", kv.V.Float64s(), a.Past[i].V.Float64s(), 0)
							e.Past = append(e.Past, kernels.KV{K: exact.Tensor(kv.K.Float64s(), kv.K.Shape...), V: exact.Tensor(kv.V.Float64s(), kv.V.Shape...), Positions: kv.Positions})
						}
						reference := exact.Garbage(1, s.heads*s.dim)
						exact.B.Attention(reference, nil, &e)
						tol := 3e-5
						if s.heads/s.kvHeads >= 64 { // on tensor cores
							tol = 2e-2
						}
						compare.Close(t, where+": reference", got, reference.Float64s(), tol, compare.Floor(kernelstest.Magnitude(reference.Float64s())))
					}
					next[q]++
				}
			}
		})
	}
}

// TestEntryBuckets: a bucket holds its entries, grows with them, wastes little, and
// lasts a while.
func TestEntryBuckets(t *testing.T) {
	last := 0
	for n := range 1 << 16 {
		b := kernels.EntryBucket(n)
		if b < n || b < last || b > max(256, n+n/8+256) || b%256 != 0 || kernels.EntryBucket(b) != b {
			t.Fatalf("EntryBucket(%d) = %d after %d", n, b, last)
		}
		last = b
	}
}
