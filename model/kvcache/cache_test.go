package kvcache

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"glimpse/kernels"
	"glimpse/model"
)

const testDim = 4

// newTestCache is an empty cache that no model stands behind.
func newTestCache(t testing.TB, device string, layers, kvHeads, headDim int) *Cache {
	t.Helper()
	b, err := kernels.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	m := &model.Model{Backend: b, Config: model.Config{Layers: layers, KVHeads: kvHeads, HeadDim: headDim}}
	return New(m)
}

// grow appends n entries to every layer, as a pass does. Every key and value
// tells its layer, head and position.
func (c *Cache) grow(n int) {
	pos := Positions(c.next, n)
	d := c.On(0).Compute()
	for l := range c.layers {
		k, v := make([]float64, n*c.KVHeads()*c.pairs(0).dim), make([]float64, n*c.KVHeads()*c.pairs(0).dim)
		for r := range n {
			for h := range c.KVHeads() {
				for i := range c.pairs(0).dim {
					at := (r*c.KVHeads()+h)*c.pairs(0).dim + i
					k[at] = entryValue(l, h, pos[r], i)
					v[at] = -k[at]
				}
			}
		}
		tensor := func(x []float64) *kernels.Tensor {
			t := c.On(0).Alloc(d, n, c.KVHeads(), c.pairs(0).dim)
			kernels.Convert(t, kernels.FromF64(x, n, c.KVHeads(), c.pairs(0).dim))
			return t
		}
		c.Append(l, tensor(k), tensor(v), pos)
	}
	c.next += int32(n)
}

func entryValue(layer, head int, pos int32, i int) float64 {
	return float64(pos)*100 + float64(layer*30+head*10+i)
}

// check holds the cache against the positions that every head should have.
func (c *Cache) check(t *testing.T, what string, want [][][]int32, next int32) {
	t.Helper()
	held := int64(0)
	for l := range want {
		view := c.View(l)
		layer := int64(0)
		for h, pos := range want[l] {
			if got := c.Positions(l, h); !slices.Equal(got, pos) || c.Entries(l, h) != len(pos) {
				t.Fatalf("%s: layer %d head %d holds positions %v, want %v", what, l, h, got, pos)
			}
			if view[h].Entries() != len(pos) || view[h].V.Dim0() != len(pos) {
				t.Fatalf("%s: layer %d head %d views %d entries, want %d", what, l, h, view[h].Entries(), len(pos))
			}
			k, v := view[h].K.Float64s(), view[h].V.Float64s()
			for j, p := range pos {
				for i := range c.pairs(0).dim {
					if w := entryValue(l, h, p, i); k[j*c.pairs(0).dim+i] != w || v[j*c.pairs(0).dim+i] != -w {
						t.Fatalf("%s: layer %d head %d entry %d is not that of position %d", what, l, h, j, p)
					}
				}
			}
			hc := &c.pairs(l).heads[h]
			if hc.k != nil {
				layer += int64(hc.k.Bytes() + hc.v.Bytes())
			}
			if hc.capacity() > c.pairs(l).grown(len(pos)) {
				t.Fatalf("%s: layer %d head %d has room for %d entries and holds %d", what, l, h, hc.capacity(), len(pos))
			}
		}
		if got := c.LayerBytes(l); got != layer {
			t.Fatalf("%s: layer %d: LayerBytes %d, the tensors have %d", what, l, got, layer)
		}
		held += layer
	}
	if c.Bytes() != held || c.Next() != next {
		t.Fatalf("%s: Bytes %d and Next %d, want %d and %d", what, c.Bytes(), c.Next(), held, next)
	}
}

// someOf draws ascending indices below n.
func someOf(rng *rand.Rand, n int) []int32 {
	keep := []int32{}
	p := rng.Float64()
	for j := range n {
		if rng.Float64() < p {
			keep = append(keep, int32(j))
		}
	}
	return keep
}

// TestCacheAgainstLists drives a cache at random and holds it against plain lists
// of positions.
func TestCacheAgainstLists(t *testing.T) {
	const layers, kvHeads = 2, 3
	for _, device := range kernels.Backends.Names() {
		rng := rand.New(rand.NewPCG(5, 6))
		c := newTestCache(t, device, layers, kvHeads, testDim)
		want := make([][][]int32, layers)
		for l := range want {
			want[l] = make([][]int32, kvHeads)
		}
		pick := func(pos, idx []int32) []int32 {
			out := make([]int32, len(idx))
			for i, j := range idx {
				out[i] = pos[j]
			}
			return out
		}
		for step := range 400 {
			what := fmt.Sprintf("%s, step %d", device, step)
			switch op := rng.IntN(6); op {
			case 0, 1: // a prompt, or a token
				n := 1
				if op == 0 {
					n = rng.IntN(40)
				}
				for l := range want {
					for h := range want[l] {
						want[l][h] = append(slices.Clone(want[l][h]), Positions(c.next, n)...)
					}
				}
				c.grow(n)
			case 2, 3:
				l := rng.IntN(layers)
				keep := make([][]int32, kvHeads)
				for h := range keep {
					keep[h] = someOf(rng, len(want[l][h]))
					want[l][h] = pick(want[l][h], keep[h])
				}
				if err := c.Retain(l, keep); err != nil {
					t.Fatal(err)
				}
			case 4:
				keep, reduced := make([][][]int32, layers), make([][][]int32, layers)
				for l := range keep {
					keep[l], reduced[l] = make([][]int32, kvHeads), make([][]int32, kvHeads)
					for h := range keep[l] {
						keep[l][h] = someOf(rng, len(want[l][h]))
						reduced[l][h] = pick(want[l][h], keep[l][h])
					}
				}
				less, err := c.Fork(keep)
				if err != nil {
					t.Fatal(err)
				}
				less.check(t, what+", retained", reduced, c.next)
				all, err := c.Fork(nil)
				if err != nil {
					t.Fatal(err)
				}
				all.check(t, what+", copy", want, c.next)
				// The copies are their own: what happens to them leaves c alone.
				less.grow(3)
				all.grow(3)
			case 5:
				if rng.IntN(4) > 0 {
					continue
				}
				next := int32(rng.IntN(int(c.next) + 1))
				for l := range want {
					for h, pos := range want[l] {
						n := 0
						for n < len(pos) && pos[n] < next {
							n++
						}
						want[l][h] = pos[:n]
					}
				}
				if err := c.Truncate(next); err != nil {
					t.Fatal(err)
				}
				c.check(t, what+", truncated", want, next)
			}
			c.check(t, what, want, c.next)
		}
	}
}

// TestCacheErrorsChangeNothing: refused indices leave the cache as it was.
func TestCacheErrorsChangeNothing(t *testing.T) {
	c := newTestCache(t, "cpu", 2, 2, testDim)
	c.grow(30)
	if err := c.Retain(1, [][]int32{{1, 5, 7}, {0, 29}}); err != nil {
		t.Fatal(err)
	}
	all := Positions(0, 30)
	want := [][][]int32{{all, all}, {{1, 5, 7}, {0, 29}}}
	some := [][]int32{{0}, {0}}
	for name, f := range map[string]func() error{
		"Retain: too few heads":          func() error { return c.Retain(0, [][]int32{{1}}) },
		"Retain: too many heads":         func() error { return c.Retain(0, [][]int32{{1}, {1}, {1}}) },
		"Retain: nil":                    func() error { return c.Retain(0, nil) },
		"Retain: descending":             func() error { return c.Retain(0, [][]int32{{1, 2}, {2, 1}}) },
		"Retain: twice":                  func() error { return c.Retain(0, [][]int32{{1, 2}, {2, 2}}) },
		"Retain: negative":               func() error { return c.Retain(0, [][]int32{{1, 2}, {-1}}) },
		"Retain: past the end":           func() error { return c.Retain(0, [][]int32{{1, 2}, {30}}) },
		"Retain: past the kept":          func() error { return c.Retain(1, [][]int32{{0, 3}, {0}}) },
		"Fork: too few layers":           func() error { _, err := c.Fork([][][]int32{some}); return err },
		"Fork: no layers":                func() error { _, err := c.Fork([][][]int32{}); return err },
		"Fork: too few heads":            func() error { _, err := c.Fork([][][]int32{some, {{0}}}); return err },
		"Fork: descending":               func() error { _, err := c.Fork([][][]int32{{{0}, {3, 2}}, some}); return err },
		"Fork: negative":                 func() error { _, err := c.Fork([][][]int32{{{0}, {-1}}, some}); return err },
		"Fork: past the end":             func() error { _, err := c.Fork([][][]int32{some, {{0}, {2}}}); return err },
		"Truncate: beyond the sequence":  func() error { return c.Truncate(31) },
		"Truncate: a negative position":  func() error { return c.Truncate(-1) },
		"Truncate: beyond, by a minimum": func() error { return c.Truncate(-1 << 31) },
	} {
		if err := f(); err == nil {
			t.Errorf("%s: accepted", name)
		}
		c.check(t, name, want, 30)
	}
}

// TestEmptyCache: nothing was run yet.
func TestEmptyCache(t *testing.T) {
	for _, device := range kernels.Backends.Names() {
		c := newTestCache(t, device, 2, 2, testDim)
		none := [][][]int32{{{}, {}}, {{}, {}}}
		c.check(t, device, none, 0)
		if err := c.Retain(0, [][]int32{{}, nil}); err != nil {
			t.Error(err)
		}
		for _, keep := range [][][][]int32{nil, none} {
			copied, err := c.Fork(keep)
			if err != nil {
				t.Fatal(err)
			}
			copied.check(t, device, none, 0)
			copied.grow(2)
			copied.check(t, device, [][][]int32{{{0, 1}, {0, 1}}, {{0, 1}, {0, 1}}}, 2)
		}
		if err := c.Truncate(0); err != nil {
			t.Error(err)
		}
		c.check(t, device, none, 0)
	}
}

// TestRetainFreesMemory measures the heap around an eviction: keys, values and
// positions of what was evicted are gone, and so they are after Truncate.
func TestRetainFreesMemory(t *testing.T) {
	heap := func() int64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	const layers, kvHeads, dim, n = 2, 2, 8, 100_000
	for name, evict := range map[string]func(c *Cache) error{
		"Retain": func(c *Cache) error {
			for l := range layers {
				if err := c.Retain(l, [][]int32{Positions(0, 50), Positions(7, 90)}); err != nil {
					return err
				}
			}
			return nil
		},
		"Truncate": func(c *Cache) error { return c.Truncate(100) },
	} {
		c := newTestCache(t, "cpu", layers, kvHeads, dim)
		before := heap()
		c.grow(n)
		full := heap()
		if got, want := c.Bytes(), int64(layers*kvHeads*n*dim*2*4); got != want {
			t.Fatalf("%d entries take %d bytes, want %d", n, got, want)
		}
		if err := evict(c); err != nil {
			t.Fatal(err)
		}
		kept := heap()
		if left := kept - before; left > 200_000 {
			t.Errorf("%s: %d bytes remain of %d, the cache says %d", name, left, full-before, c.Bytes())
		}
		if c.Bytes() > int64(layers*kvHeads*100*dim*2*4) {
			t.Errorf("%s: Bytes still %d", name, c.Bytes())
		}
		runtime.KeepAlive(c)
	}
}

// TestSteadyDecodingDoesNotGrow evicts after every token, as h2o does.
func TestSteadyDecodingDoesNotGrow(t *testing.T) {
	const budget = 40
	c := newTestCache(t, "cpu", 2, 2, testDim)
	c.grow(budget)
	rng := rand.New(rand.NewPCG(9, 9))
	var address [2]uintptr
	var bytes int64
	for step := range 1000 {
		c.grow(1)
		for l := range c.Layers() {
			keep := make([][]int32, c.KVHeads())
			for h := range keep {
				evicted := int32(rng.IntN(budget + 1))
				keep[h] = slices.DeleteFunc(Positions(0, budget+1), func(j int32) bool { return j == evicted })
			}
			if err := c.Retain(l, keep); err != nil {
				t.Fatal(err)
			}
		}
		if step == 0 {
			bytes = c.Bytes()
		}
		for l := range address {
			if at := c.View(l)[0].K.Addr(); step == 0 {
				address[l] = at
			} else if at != address[l] {
				t.Fatalf("step %d: the keys of layer %d moved: memory is allocated anew", step, l)
			}
			for h := range c.KVHeads() {
				if c.Entries(l, h) != budget || cap(c.Positions(l, h)) > 4*budget {
					t.Fatalf("step %d: layer %d head %d: %d entries, room for %d positions", step, l, h, c.Entries(l, h), cap(c.Positions(l, h)))
				}
			}
		}
		if c.Bytes() != bytes {
			t.Fatalf("step %d: %d bytes, %d before", step, c.Bytes(), bytes)
		}
	}
	if want := int64(2 * 2 * c.pairs(0).grown(budget) * testDim * 2 * 4); bytes > want {
		t.Errorf("%d bytes for %d entries, want at most %d", bytes, budget, want)
	}
}
