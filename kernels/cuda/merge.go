//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"gorgonia.org/cu"

	"glimpse/kernels"
)

var _ = kernelsOf("merge",
	"score_columns", "column_variance", "mean_similarity", "draw_merges", "key_norms_f32", "key_norms_bf16",
	"nearest_keys_f32", "nearest_keys_bf16", "merge_pairs_f32", "merge_pairs_bf16", "step_similar_f32", "step_similar_bf16",
	"merge_one_f32", "merge_one_bf16", "merge_recent_f32", "merge_recent_bf16",
)

// As in merge.cu.
const (
	mergeThreads = 256 // of its blocks
	keyWarps     = 8   // keys that a block looks at, or entries that it merges into
	keyTile      = 64  // evicted keys of a block that compares
)

func blocks(n, each int) int { return (n + each - 1) / each }

// layerScores is struct LayerScores of merge.cu.
type layerScores struct {
	scores      cu.DevicePtr
	width, most int32
}

// variances are, per layer, the variance over entries of the mean over heads of
// scores[l] [kvHeads, width], where entries [l][kvHead] are in use, with sums in index order.
func (b *cuda) variances(scores []*kernels.Tensor, entries [][]int) []float64 {
	const op = "variances"
	if len(scores) == 0 || len(scores) != len(entries) {
		panic(fmt.Sprintf("kernels: %s: scores of %d layers, entries of %d", op, len(scores), len(entries)))
	}
	out := make([]float64, len(scores))
	most := 0
	for l, t := range scores {
		kernels.CheckEntries(op, t, entries[l])
		if len(entries[l]) != len(entries[0]) || slices.Max(entries[l]) == 0 {
			panic(fmt.Sprintf("kernels: %s: entries %v of layer %d, of %d KV heads", op, entries[l], l, len(entries[0])))
		}
		most = max(most, slices.Max(entries[l]))
	}
	b.do(op, func() {
		layers := make([]layerScores, len(scores))
		for l, t := range scores {
			layers[l] = layerScores{b.f32(op, t), int32(t.Width()), int32(slices.Max(entries[l]))}
		}
		at, means, result := upload(b, op, layers), b.temporary(op, 8*int64(len(scores)*most)), b.temporary(op, 8*int64(len(scores)))
		b.launch("score_columns", columns(most, len(scores)), elementThreads, 0, means, at, upload(b, op, int32s(slices.Concat(entries...))), len(entries[0]), most)
		b.launch("column_variance", [3]int{len(scores), 1, 1}, mergeThreads, 0, result, means, at, most)
		b.download(op, unsafe.Pointer(&out[0]), result, 8*int64(len(out)))
	})
	runtime.KeepAlive(scores)
	return out
}

// merged is struct Merged of merge.cu.
type merged struct {
	k, v, ids     cu.DevicePtr
	kept, entries int32
}

// mergers describes the heads, and says what is largest among them.
func (b *cuda) mergers(op string, past []kernels.KV, s *kernels.Selection) (at cu.DevicePtr, kept, evicted, entries int) {
	heads := make([]merged, len(past))
	ids, width := b.indices(op, s)
	for h, kv := range past {
		heads[h] = merged{b.address(op, kv.K), b.address(op, kv.V), ids + cu.DevicePtr(4*h*width), int32(s.Lens[h]), int32(kv.Entries())}
		kept, evicted, entries = max(kept, s.Lens[h]), max(evicted, kv.Entries()-s.Lens[h]), max(entries, kv.Entries())
	}
	return upload(b, op, heads), kept, evicted, entries
}

// checkPairs panics unless the heads' keys and values are such as merge, and returns what
// their kernels' names end with.
func checkPairs(op string, past []kernels.KV, heads int) string {
	if len(past) != heads || heads == 0 {
		panic(fmt.Sprintf("kernels: %s: pairs of %d KV heads, want %d", op, len(past), heads))
	}
	for h, kv := range past {
		if kv.K.DType != past[0].K.DType || kv.V.DType != past[0].K.DType || kv.K.Width() != past[0].K.Width() || !slices.Equal(kv.K.Shape, kv.V.Shape) ||
			kv.K.Width() < 1 || kv.K.Width() > maxHeadDim {
			panic(fmt.Sprintf("kernels: %s: %s keys %v and %s values %v of head %d", op, kv.K.DType, kv.K.Shape, kv.V.DType, kv.V.Shape, h))
		}
	}
	suffix := map[kernels.DType]string{kernels.F32: "_f32", kernels.BF16: "_bf16"}[past[0].K.DType]
	if suffix == "" {
		panic(fmt.Sprintf("kernels: %s: pairs of %s", op, past[0].K.DType))
	}
	return suffix
}

// checkMerged is checkPairs for a selection of the pairs.
func checkMerged(op string, past []kernels.KV, s *kernels.Selection) string {
	suffix := checkPairs(op, past, s.Heads())
	for h, kv := range past {
		if s.Spans[h] > kv.Entries() || s.Lens[h] > kv.Entries() {
			panic(fmt.Sprintf("kernels: %s: %d of %d pairs below %d of head %d", op, s.Lens[h], kv.Entries(), s.Spans[h], h))
		}
	}
	return suffix
}

func (b *cuda) MergeEvicted(past []kernels.KV, s *kernels.Selection) *kernels.Tensor {
	const op = "MergeEvicted"
	suffix := checkMerged(op, past, s)
	thresholds, n, dim := b.Alloc(kernels.F64, len(past)), len(past), past[0].K.Width()
	b.do(op, func() {
		heads, kept, evicted, entries := b.mergers(op, past, s)
		nearest, similar, norms := b.temporary(op, 4*int64(n*evicted)), b.temporary(op, 8*int64(n*evicted)), b.temporary(op, 8*int64(n*entries))
		if evicted > 0 {
			b.launch("key_norms"+suffix, [3]int{blocks(entries, keyWarps), n, 1}, mergeThreads, 0, norms, heads, entries, dim)
			b.launch("nearest_keys"+suffix, [3]int{blocks(evicted, keyTile), n, 1}, mergeThreads, 0, nearest, similar, heads, norms, evicted, entries, dim)
		}
		b.launch("mean_similarity", [3]int{n, 1, 1}, mergeThreads, 0, b.at(op, thresholds, kernels.F64), similar, heads, evicted)
		b.launch("merge_pairs"+suffix, [3]int{blocks(kept, keyWarps), n, 2}, mergeThreads, 0, heads, nearest, similar, b.at(op, thresholds, kernels.F64), evicted, dim)
	})
	runtime.KeepAlive(past)
	runtime.KeepAlive(s)
	return thresholds
}

func (b *cuda) MergeStep(past []kernels.KV, s *kernels.Selection, thresholds *kernels.Tensor, beta float64) {
	const op = "MergeStep"
	suffix := checkMerged(op, past, s)
	n, dim := len(past), past[0].K.Width()
	if thresholds.Len() != n || !(beta >= 0 && beta <= 1) {
		panic(fmt.Sprintf("kernels: %s: thresholds %v of %d KV heads, beta %v", op, thresholds.Shape, n, beta))
	}
	for h, kv := range past {
		if out := kv.Entries() - s.Lens[h]; out > 1 || out == 1 && s.Lens[h] == 0 {
			panic(fmt.Sprintf("kernels: %s: %d of %d pairs of head %d are kept, want all but one", op, s.Lens[h], kv.Entries(), h))
		}
	}
	b.do(op, func() {
		heads, _, _, entries := b.mergers(op, past, s)
		similar := b.temporary(op, 8*int64(n*entries))
		b.launch("step_similar"+suffix, [3]int{blocks(entries, keyWarps), n, 1}, mergeThreads, 0, similar, heads, entries, dim)
		b.launch("merge_one"+suffix, [3]int{n, 1, 1}, mergeThreads, 0, heads, similar, b.at(op, thresholds, kernels.F64), entries, dim, beta)
	})
	runtime.KeepAlive(past)
	runtime.KeepAlive(s)
	runtime.KeepAlive(thresholds)
}

// recentValues is struct Values of merge.cu.
type recentValues struct {
	v                        cu.DevicePtr
	entries, sink, recent, _ int32
}

func (b *cuda) MergeRecent(past []kernels.KV, sums *kernels.Tensor, sink, recent int, draws [][]float64) {
	const op = "MergeRecent"
	suffix := checkPairs(op, past, len(draws))
	entries, outs := make([]int, len(past)), 0
	for h, kv := range past {
		entries[h] = kv.Entries()
		if want := max(0, kv.Entries()-sink-recent); sink < 0 || recent < 1 || len(draws[h]) != want {
			panic(fmt.Sprintf("kernels: %s: %d draws for %d pairs of head %d with %d sinks and %d recent ones", op, len(draws[h]), kv.Entries(), h, sink, recent))
		}
		outs = max(outs, len(draws[h]))
	}
	kernels.CheckEntries(op, sums, entries)
	n, dim := len(past), past[0].K.Width()
	flat, heads := make([]float64, n*outs), make([]recentValues, n)
	b.do(op, func() {
		total := b.f32(op, sums)
		for h, kv := range past {
			copy(flat[h*outs:], draws[h])
			b.address(op, kv.K)
			heads[h] = recentValues{v: b.address(op, kv.V), entries: int32(entries[h]), sink: int32(sink), recent: int32(recent)}
		}
		if outs == 0 {
			return
		}
		at, merges := upload(b, op, heads), b.temporary(op, 4*int64(n*outs))
		b.launch("draw_merges", [3]int{n, 1, 1}, mergeThreads, 0, merges, total, upload(b, op, flat), at, sums.Width(), outs)
		b.launch("merge_recent"+suffix, columns(recent*dim, n), elementThreads, 0, at, merges, outs, dim)
	})
	runtime.KeepAlive(past)
	runtime.KeepAlive(sums)
}
