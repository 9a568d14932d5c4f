package kvcache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/kernels"
)

// TestRetainAll: what is kept of all layers at once is what is kept of each of them by
// itself, through evictions of one and the other kind, further entries, drops, and
// positions that are read in between.
func TestRetainAll(t *testing.T) {
	devices := []string{"cpu"}
	if slices.Contains(kernels.Backends.Names(), "cuda") {
		devices = append(devices, "cuda")
	}
	for _, device := range devices {
		for seed := range uint64(12) {
			t.Run(fmt.Sprintf("%s/%d", device, seed), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 8))
				const layers, kvHeads = 3, 2
				all, each := newTestCache(t, device, layers, kvHeads, testDim), newTestCache(t, device, layers, kvHeads, testDim)
				if seed%4 == 3 {
					all.layers[1], each.layers[1] = &windowed{pairs: all.pairs(1), window: 9}, &windowed{pairs: each.pairs(1), window: 9}
				}
				check := func(what string) {
					t.Helper()
					for l := range layers {
						for h := range kvHeads {
							if got, want := all.Positions(l, h), each.Positions(l, h); !slices.Equal(got, want) {
								t.Fatalf("%s: layer %d head %d: positions %v, want %v", what, l, h, got, want)
							}
							got, want := all.View(l)[h], each.View(l)[h]
							if !slices.Equal(got.K.Float64s(), want.K.Float64s()) || !slices.Equal(got.V.Float64s(), want.V.Float64s()) {
								t.Fatalf("%s: layer %d head %d: other pairs", what, l, h)
							}
						}
					}
					if all.Bytes() != each.Bytes() {
						t.Fatalf("%s: %d bytes, want %d", what, all.Bytes(), each.Bytes())
					}
				}
				grow := func(n int) { all.grow(n); each.grow(n) }
				grow(40)
				for step := range 14 {
					what := fmt.Sprint("step ", step)
					grow(1 + rng.IntN(3))
					var keep [][]int32
					for l := range layers {
						for h := range kvHeads {
							var idx []int32
							for j := range each.Entries(l, h) {
								if rng.IntN(12) > 0 || step == 5 && rng.IntN(3) > 0 {
									idx = append(idx, int32(j))
								}
							}
							keep = append(keep, idx)
						}
					}
					selected := kernels.HostSelection(keep)
					if sel := all.On(0).Selector(); sel.OwnMemory() && rng.IntN(4) > 0 {
						selected = onDevice(sel, all, keep)
					}
					if rng.IntN(5) == 0 { // layer by layer
						for l := range layers {
							s := kernels.HostSelection(keep[l*kvHeads : (l+1)*kvHeads])
							if selected.OnDevice() {
								s = selected.HeadRange(l*kvHeads, (l+1)*kvHeads)
							}
							if err := all.RetainSelection(l, s); err != nil {
								t.Fatal(err)
							}
						}
					} else if err := all.RetainAll(selected); err != nil {
						t.Fatal(err)
					}
					for l := range layers {
						if err := each.Retain(l, keep[l*kvHeads:(l+1)*kvHeads]); err != nil {
							t.Fatal(err)
						}
					}
					switch rng.IntN(6) {
					case 0:
						check(what)
					case 1:
						all.Positions(1, 0)
					case 2:
						for _, c := range []*Cache{all, each} {
							if err := c.Truncate(c.next - 2); err != nil {
								t.Fatal(err)
							}
						}
					}
				}
				check("at the end")
				for _, bad := range [][][]int32{{{0}}, {{0}, {0}, {0}, {0}, {0}, {1000}}, {{0}, {0}, {0}, {0}, {0}, {3, 1}}} {
					if all.RetainAll(kernels.HostSelection(bad)) == nil {
						t.Errorf("%v is retained", bad)
					}
				}
				check("after errors")
			})
		}
	}
}

// onDevice is indices of entries of c as a selection on its device.
func onDevice(d kernels.Selector, c *Cache, keep [][]int32) *kernels.Selection {
	var entries, budgets []int
	for l := range c.layers {
		for i := range c.pairs(l).heads {
			entries = append(entries, c.Entries(l, i))
		}
	}
	width := slices.Max(entries)
	scores := make([]float32, len(keep)*width)
	for h, idx := range keep {
		budgets = append(budgets, len(idx))
		for _, j := range idx {
			scores[h*width+int(j)] = 1
		}
	}
	return d.Select(d.Place(kernels.FromF32(scores, len(keep), width)), entries, budgets, 0, 0)
}
