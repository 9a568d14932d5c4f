package runner_test

import (
	"slices"
	"strings"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/formats"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestHalfCaches: a cache in bf16 holds what the same pass computes, rounded, in half
// the memory, on every device; eviction moves it as it is.
func TestHalfCaches(t *testing.T) {
	shape := modeltest.Llama{Hidden: 32, Heads: 4, KVHeads: 2, HeadDim: 8, Intermediate: 40, Layers: 2, Seed: 6}
	open := func(device string) *model.Model {
		m := shape.Open(t, device)
		if err := m.SetCacheDType("bf16"); err != nil {
			t.Fatal(err)
		}
		return m
	}
	exact := open("reference64")
	prompt := modeltest.Tokens(exact, 3, 45)
	_, want, wantLogits := start(t, exact, prompt)
	for _, device := range devices {
		m := open(device)
		r, cache, logits := start(t, m, prompt)
		if cache.DType() != kernels.BF16 || m.CacheDType() != kernels.BF16 {
			t.Fatalf("%s: the cache is %s", device, cache.DType())
		}
		_, wide, wideLogits := start(t, shape.Open(t, device), prompt)
		if cache.Bytes() != int64(45*2*2*2*8*2) || cache.Bytes()*int64(m.Backend.Compute().Size()) != 2*wide.Bytes() || cache.LayerPairBytes(0) != 32 {
			t.Errorf("%s: %d bytes, %d a pair; in %s %d", device, cache.Bytes(), cache.LayerPairBytes(0), m.Backend.Compute(), wide.Bytes())
		}
		// Numbers near the middle between two of bf16 may be rounded either way; tensor
		// cores round queries and probabilities besides.
		tol := 1e-2
		if device == "cuda" {
			tol = 3e-2
		}
		compare.Close(t, device+": logits", logits, wantLogits, tol, compare.Floor(1))
		for l := range m.Config.Layers {
			for h, kv := range cache.View(l) {
				other := want.View(l)[h]
				compare.Close(t, device+": keys", kv.K.Float64s(), other.K.Float64s(), tol, compare.Floor(0.1))
				compare.Close(t, device+": values", kv.V.Float64s(), other.V.Float64s(), tol, compare.Floor(0.1))
				if l == 0 { // which no rounding has reached
					for what, x := range map[string][2]*kernels.Tensor{"keys": {kv.K, wide.View(0)[h].K}, "values": {kv.V, wide.View(0)[h].V}} {
						rounded := kernels.NewTensor(kernels.BF16, x[1].Shape...)
						kernels.Convert(rounded, kernels.FromF64(x[1].Float64s(), x[1].Shape...))
						compare.Close(t, device+": first layer: "+what, x[0].Float64s(), rounded.Float64s(), 0)
					}
				}
			}
		}
		if compare.Compare(logits, wideLogits, compare.Floor(1)).Err == 0 {
			t.Errorf("%s: nothing was rounded", device)
		}
		keep := [][]int32{{0, 7, 44}, {1, 2, 3, 9, 20}}
		kept, err := cache.Fork([][][]int32{keep, keep})
		if err != nil {
			t.Fatal(err)
		}
		before := cache.View(0)[1].V.Float64s()
		if err := cache.Retain(0, keep); err != nil {
			t.Fatal(err)
		}
		for i, j := range keep[1] {
			compare.Close(t, device+": kept", cache.View(0)[1].V.Float64s()[8*i:][:8], before[8*j:][:8], 0)
			compare.Close(t, device+": copied", kept.View(0)[1].V.Float64s()[8*i:][:8], before[8*j:][:8], 0)
		}
		key := cache.View(0)[0].K.Rows(1, 2)
		kernels.Convert(key, kernels.FromF64([]float64{1, 1.00390625, 3, 4, 5, 6, 7, 8}, key.Shape...))
		compare.Close(t, device+": merged", key.Float64s(), []float64{1, 1, 3, 4, 5, 6, 7, 8}, 0)
		if _, err := r.Step(background, cache, 5, runner.Capture{}, nil); err != nil {
			t.Fatal(err)
		}
		if got, _, err := r.Continue(background, kept, runner.HostLogits(logits), runner.GenerateOptions{MaxNew: 5, IgnoreEnd: true}); err != nil || len(got) != 5 {
			t.Errorf("%s: response %v, %v", device, got, err)
		}
	}
}

// TestCachesOfBlocks: a cache in blocks holds what the same pass computes, as Narrow writes it, and
// eviction moves blocks as they are.
func TestCachesOfBlocks(t *testing.T) {
	shape := modeltest.Llama{Hidden: 32, Heads: 4, KVHeads: 2, HeadDim: 64, Intermediate: 40, Layers: 2, Seed: 6}
	for _, f := range formats.Cached() {
		open := func(device string) *model.Model {
			m := shape.Open(t, device)
			if err := m.SetCacheDType(f.CacheName()); err != nil {
				t.Fatal(err)
			}
			counted, _ := m.Counted()
			if counted.CacheDType() != m.CacheDType() {
				t.Errorf("caches of %s are counted as %s", m.CacheDType(), counted.CacheDType())
			}
			c := kvcache.New(counted) // which is cut as one that is there
			if c.ReserveLayer(0, 45, 45); c.Truncate(0) != nil || c.Bytes() != 0 {
				t.Errorf("caches of %s: %d bytes are counted of no entries", m.CacheDType(), c.Bytes())
			}
			return m
		}
		exact, m := open("reference64"), open("cpu")
		prompt := modeltest.Tokens(exact, 3, 45)
		_, _, wantLogits := start(t, exact, prompt)
		r, cache, logits := start(t, m, prompt)
		_, wide, _ := start(t, shape.Open(t, "cpu"), prompt)
		if want := int64(45 * 2 * 2 * 2 * 2 * f.Bytes); cache.Bytes() != want || cache.LayerPairBytes(0) != int64(4*f.Bytes) {
			t.Errorf("%s: %d bytes, %d a pair, want %d", f.Name, cache.Bytes(), cache.LayerPairBytes(0), want)
		}
		compare.Close(t, f.Name+": logits", logits, wantLogits, 3e-2, compare.Floor(1))
		row, block := make([]float32, 64), make([]byte, 2*f.Bytes)
		for h, kv := range cache.View(0) { // which no rounding has reached
			for j := range 45 {
				kernels.Read(row, wide.View(0)[h].V, 64*j)
				f.Narrow(block, row)
				if got := kv.V.Rows(j, j+1).Memory(); string(got) != string(block) {
					t.Fatalf("%s, head %d, entry %d: % x, want % x", f.Name, h, j, got, block)
				}
			}
		}
		before := slices.Clone(cache.View(1)[1].K.Rows(20, 21).Memory())
		keep := [][]int32{{0, 7, 44}, {1, 2, 3, 9, 20}}
		if err := cache.Retain(1, keep); err != nil {
			t.Fatal(err)
		}
		if got := cache.View(1)[1].K.Rows(4, 5).Memory(); string(got) != string(before) {
			t.Errorf("%s: kept % x, want % x", f.Name, got, before)
		}
		if got, _, err := r.Continue(background, cache, runner.HostLogits(logits), runner.GenerateOptions{MaxNew: 5, IgnoreEnd: true}); err != nil || len(got) != 5 {
			t.Errorf("%s: response %v, %v", f.Name, got, err)
		}
	}
	err := modeltest.Llama{HeadDim: 8}.Open(t, "cpu").SetCacheDType("q8_0")
	if err == nil || !strings.Contains(err.Error(), `got "q8_0", whose blocks have 32 numbers, want float32 or bf16 for heads of 8`) {
		t.Errorf("heads of 8: %v", err)
	}
}

// TestCachesOfGroups: so does one in the groups of KIVI, whose newest tokens are BF16. What a prompt and an answer
// leave does not depend on the passes in which the prompt came.
func TestCachesOfGroups(t *testing.T) {
	shape := modeltest.Llama{Hidden: 32, Heads: 4, KVHeads: 2, HeadDim: 32, Intermediate: 40, Layers: 2, Seed: 6}
	open := func(device string) *model.Model {
		m := shape.Open(t, device)
		if err := m.SetCacheDType("kivi4"); err != nil {
			t.Fatal(err)
		}
		return m
	}
	exact, m := open("reference64"), open("cpu")
	const n = 150 // 96 tokens in three groups
	prompt := modeltest.Tokens(exact, 3, n)
	_, _, wantLogits := start(t, exact, prompt)
	r, cache, logits := start(t, m, prompt)
	_, wide, _ := start(t, shape.Open(t, "cpu"), prompt)
	compare.Close(t, "logits", logits, wantLogits, 3e-2, compare.Floor(1))
	each := int64(96*32*5/8 + 2*64*32) // with room for the 64 newest
	if full := m.Config.CacheBytes(n, cache.DType()); cache.Bytes() != 8*each || full != 8*each {
		t.Errorf("%d bytes of %d, want %d", cache.Bytes(), full, 8*each)
	}
	counted, _ := m.Counted()
	if c := kvcache.New(counted); c.DType() != cache.DType() {
		t.Errorf("counted as %s", c.DType())
	} else if c.ReserveLayer(0, n, n); c.Bytes() != 4*each {
		t.Errorf("a layer is counted as %d bytes, want %d", c.Bytes(), 4*each)
	} else if c.Undoable(); c.Truncate(0) != nil { // of what is counted nothing lies in groups
		t.Error("steps that are counted cannot be undone")
	}
	for h, kv := range cache.View(0) { // which no rounding has reached
		f, _ := formats.All.Lookup("Q4_1")
		keys, values := wide.View(0)[h].K.Float32s(), wide.View(0)[h].V.Float32s()
		bf16 := func(x float32) float32 { return formats.BF16ToF32(formats.F32ToBF16(x)) }
		block, back := make([]byte, f.Bytes), make([]float32, 32)
		for group := range 3 {
			for i := range 32 {
				channel, token := make([]float32, 32), make([]float32, 32)
				for j := range 32 {
					channel[j], token[j] = bf16(keys[(32*group+j)*32+i]), bf16(values[(32*group+i)*32+j])
				}
				f.Narrow(block, channel)
				f.Decode(back, block)
				for j, want := range back {
					if got := kv.K.At((32*group+j)*32 + i); got != float64(want) {
						t.Fatalf("head %d, key %d, channel %d: %v, want %v", h, 32*group+j, i, got, want)
					}
				}
				f.Narrow(block, token)
				f.Decode(back, block)
				compare.Close(t, "value", kv.V.Rows(32*group+i, 32*group+i+1).Float32s(), back, 0)
			}
		}
		for i := 96 * 32; i < n*32; i++ {
			if kv.K.At(i) != float64(bf16(keys[i])) || kv.V.At(i) != float64(bf16(values[i])) {
				t.Fatalf("head %d: element %d of the newest tokens is not rounded to BF16 alone", h, i)
			}
		}
	}
	before := cache.View(1)[1].K.Rows(30, 149).Float32s()
	keep := [][]int32{{0, 7, 44}, kernels.Ascending(149)}
	for i := range keep[1] {
		keep[1][i]++
	}
	fork, err := cache.Fork([][][]int32{keep, keep})
	if err != nil {
		t.Fatal(err)
	}
	if err := cache.Retain(1, keep); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]*kvcache.Cache{"kept": cache, "forked": fork} {
		compare.Close(t, what, c.View(1)[1].K.Rows(29, 148).Float32s(), before, 0)
	}
	if fork.Bytes() >= wide.Bytes()/4 {
		t.Errorf("a fork has %d bytes", fork.Bytes())
	}
	at := cache.Next()
	tokens, _, err := r.Continue(background, cache, runner.HostLogits(logits), runner.GenerateOptions{MaxNew: 70, IgnoreEnd: true})
	if err != nil || len(tokens) != 70 {
		t.Fatalf("response %v, %v", tokens, err)
	}
	if err := cache.Truncate(at + 5); err != nil || cache.Entries(1, 1) != 154 {
		t.Errorf("%d entries after truncation, %v", cache.Entries(1, 1), err)
	}
	if more, _, err := r.Continue(background, cache, runner.HostLogits(logits), runner.GenerateOptions{MaxNew: 40, IgnoreEnd: true}); err != nil || len(more) != 40 {
		t.Errorf("response %v, %v", more, err)
	}
	if x := kvcache.NewPrefixCache(m, 1<<20).Match(kvcache.New(m), "", prompt, n); x.Len() != 0 {
		t.Errorf("%d tokens of a prefix", x.Len())
	}
	if err := (modeltest.Llama{HeadDim: 8}).Open(t, "cpu").SetCacheDType("kivi4"); err == nil || !strings.Contains(err.Error(), "heads of 8") {
		t.Errorf("heads of 8: %v", err)
	}
}

func TestCacheDTypes(t *testing.T) {
	m := modeltest.Llama{}.Open(t, "cpu")
	for name, want := range map[string]kernels.DType{"": kernels.F32, "float32": kernels.F32, "bf16": kernels.BF16, "bfloat16": kernels.BF16, "auto": kernels.F32} {
		if err := m.SetCacheDType(name); err != nil || m.CacheDType() != want {
			t.Errorf("%q: %s (%v), want %s", name, m.CacheDType(), err, want)
		}
	}
	_, err := model.Open("", model.Options{CacheDType: "int3"})
	if err == nil || !strings.Contains(err.Error(), `cache dtype: got "int3", want auto, float32, bf16, fp8, q4_0, q4_1, q5_0, q5_1, q8_0, kivi4`) {
		t.Errorf("error %v", err)
	}
	cut, err := m.Cut(1)
	if err != nil || cut.CacheDType() != m.CacheDType() {
		t.Errorf("a cut model has caches of %s (%v)", cut.CacheDType(), err)
	}
}
