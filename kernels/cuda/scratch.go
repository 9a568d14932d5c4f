package cuda

import (
	"math/bits"

	"glimpse/kernels"
)

// Sizes of device memory, which operations take and forecasts count (kernels/memcount). Where
// an operation has several launches the size is a formula: TestCUDAScratch and
// TestCUDAScratchOfProducts hold it to what the launchers take, never less and at most a
// tenth more.

// Activations that meet bf16 weights, or blocks, are split into three bf16 parts, so that the
// product is as exact as in float32 and still reads the weights once, up to exactRows rows and, for more rows, up to
// exactWork multiplications. The rows of decoding, of adapters and of gradients wait
// for the weights and not for the tensor cores, and small models take no time.
// Longer prompts of larger models are rounded to bf16 once, for f16 weights, too, which meet float32 else.
const exactRows = 64

var exactWork = 1 << 30

// rounds tells that the activations of a product with weights in half precision, or with blocks, are rounded.
func rounds(m, n, k int) bool { return m > exactRows && m*n*k > exactWork }

// SetExactWork changes the size of a product from which on the activations of more than
// 64 rows are rounded to bf16, and returns a function that undoes it: for tests, whose
// products are small. No other goroutine may multiply meanwhile.
func SetExactWork(n int) (restore func()) {
	before := exactWork
	exactWork = n
	return func() { exactWork = before }
}

// RoundsBy tells it of rows that meet a weight [n, k].
func RoundsBy(rows int, w *kernels.Tensor) bool {
	return w.DType != kernels.F32 && rounds(rows, w.Dim0(), w.Width())
}

// As in thin.cu.
const (
	splitKRows    = 32
	splitKColumns = 8
	splitKDepth   = 128

	SplitKResults = 4096
	updateColumns = 64
	updateThreads = 256
)

// SplitsK tells that a product in float32 has so few results and so long sums that it is
// split along these: low-rank factors, and what comes back from them. A library's product
// would be one tile, on one processor, through the whole sum.
func SplitsK(m, n, k int) bool { return m > 0 && m <= 128 && n > 0 && n <= 64 && k >= 4*splitKDepth }

// SplitKScratch is the temporary memory of such a product.
func SplitKScratch(m, n, k int) int64 {
	return 4 * int64(m) * int64(n) * int64((k+splitKDepth-1)/splitKDepth)
}

// ProductScratch is the temporary memory of a product x [m, k] · [k, n] with a weight.
func ProductScratch(m, n, k int, x, w *kernels.Tensor) (bytes int64) {
	if w.DType == kernels.F32 && SplitsK(m, n, k) {
		return SplitKScratch(m, n, k)
	}
	large, wide := rounds(m, n, k), w.DType == kernels.F32
	half := x.DType == kernels.BF16 || large
	if element := widenedSize(w.DType, half); element > 0 {
		bytes = int64(element*widenedRows(w.Dim0(), w.Width(), element)) * int64(w.Width())
	}
	if w.DType == kernels.F16 && half {
		bytes = f16Scratch(m, k)
	}
	switch {
	case x.DType == kernels.BF16 && wide:
		bytes += 4 * int64(m) * int64(k)
	case x.DType == kernels.BF16 || wide:
	case large:
		bytes += 2 * int64(m) * int64(k)
	case w.DType != kernels.F16:
		bytes += 6*int64(m)*int64(k) + 12*int64(m)*int64(n)
	}
	return bytes
}

// As in f16.cu.
const (
	f16Span  = 256 * 8 * 4
	f16Parts = 1024
	f16Begin = 4 * (2 + f16Parts + 62) // of the rows, behind two factors and the parts: a multiple of 256
)

// f16Scratch is the memory of rows [m, k] in f16.
func f16Scratch(m, k int) int64 { return f16Begin + 2*int64(m)*int64(k) }

// As in attention.h.
const (
	attendColumns = 32
	attendQueries = 16
)

// minSplit is the least number of entries that are worth a block of their own: a
// decoding step over 2,048 entries of 8 KV heads has 128 blocks.
const minSplit = 128

// splitEntries cuts the entries that so many queries of a KV head attend to, in tiles of
// queries, so that every processor has some blocks. It depends on shapes and the device
// alone.
func splitEntries(queries, tile, kvHeads, entries, processors int) (tiles, splits, chunk int) {
	tiles = (queries + tile - 1) / tile
	blocks := tiles * kvHeads
	splits = max(1, min((4*processors+blocks-1)/blocks, (entries+minSplit-1)/minSplit))
	chunk = max(attendColumns, ((entries+splits-1)/splits+attendColumns-1)/attendColumns*attendColumns)
	return tiles, max(1, (entries+chunk-1)/chunk), chunk
}

// longestHead is the number of entries of the longest head.
func longestHead(a *kernels.Attend) int {
	n := 0
	for _, kv := range a.Past {
		n = max(n, kv.Entries())
	}
	return n
}

// longest is entries as steps that may be recorded for more count them.
func longestBucket(a *kernels.Attend) int {
	entries := longestHead(a)
	if a.Rows() == 1 && a.K == nil {
		entries = kernels.EntryBucket(entries)
	}
	return entries
}

// StepBuckets are the buckets of kernels.Stepper. Where the kernels of cuda/attention_decode.cu fit, what cuts a head is its
// own number of entries, whatever the step was recorded for: then one bucket, a power of two, serves for all sequences.
func StepBuckets(longest [][]int, fits bool) (buckets [][]int) {
	for _, layers := range longest {
		var own []int
		for l, entries := range layers {
			if fits {
				for _, other := range longest {
					entries = max(entries, other[l])
				}
				entries = 1 << bits.Len(uint(max(entries, 1)-1))
			}
			own = append(own, kernels.EntryBucket(entries))
		}
		buckets = append(buckets, own)
	}
	return buckets
}

// StepFits tells whether decoding steps over heads of so many elements fit them.
func StepFits(headDim int, pairs kernels.DType) bool {
	return stepShape(headDim, pairs == kernels.BF16)
}

// stepShape tells that decoding steps over heads of dim elements, of bf16 or of float32,
// read them in pieces of 16 bytes.
func stepShape(dim int, half bool) bool { return half && dim%8 == 0 || !half && dim%4 == 0 }

// stepQueries is the number of queries of a KV head that a block of a decoding step has. The kernels that bound
// logits are for groups of up to four, as in Gemma 2: larger ones take several blocks.
func stepQueries(group int, half, capped bool) int {
	if group <= 4 || !half || capped {
		return 4
	}
	return 8
}

// stepBlock is the least number of entries of a block of a decoding step, as in
// cuda/attention_decode.cu.
const stepBlock = 256

// stepBlocks cuts a decoding step into tiles of so many queries of a KV head, and the entries of a
// head into most parts at most: so many that all blocks run at the same time, as many on a
// processor as the kernel's registers allow. A head's own parts depend on its entries
// alone.
func stepBlocks(queries, group, kvHeads, processors int) (tiles, most int) {
	resident := 3
	if queries == 8 {
		resident = 2
	}
	tiles = (group + queries - 1) / queries
	return tiles, max(1, resident*processors/(tiles*kvHeads))
}

// stepParts is the largest number of parts of a head of up to so many entries.
func stepParts(entries, most int) int { return max(1, min(most, (entries+stepBlock-1)/stepBlock)) }

func entrySplits(a *kernels.Attend, tile, processors int) int64 {
	entries := longestBucket(a)
	_, splits, _ := splitEntries(a.Rows()*a.Group(), tile, a.KVHeads(), entries, max(1, processors))
	return int64(splits)
}

// mmaRows is the number of queries of a KV head from which on tensor cores are worth
// their rounding: a prompt's, never decoding's or observed rows alone.
const mmaRows = 64

// onTensorCores tells that prefill attention runs there: over caches in bf16.
func onTensorCores(a *kernels.Attend) bool {
	return a.Past[0].K.DType == kernels.BF16 && a.K == nil && a.Rows() > 1 && a.Rows()*a.Group() >= mmaRows && a.HeadDim()%8 == 0
}

// As in attention_observe.cu: queries of a block, each as a sum of so many parts.
const (
	queryParts   = 3
	sweepQueries = 64
)

// exactQueries is the number of queries of a KV head from which on tensor cores are
// worth splitting them: fewer leave most of a tile empty.
const exactQueries = 16

// exactShape tells that tensor cores can work on so many observed queries without loss.
func exactShape(queries, dim int) bool { return queries >= exactQueries && dim%8 == 0 }

// observedExactly tells that observed rows run there: over caches in bf16, where nothing bounds logits.
func observedExactly(a *kernels.Attend) bool {
	return a.Past[0].K.DType == kernels.BF16 && a.Rows() > 1 && a.SoftCap == 0 && exactShape(a.Rows()*a.Group(), a.HeadDim())
}

// observesInBF16 tells that so many rows are observed that their queries are rounded to
// bf16, like a prompt's queries and like the activations of products of so many rows: over
// caches in bf16. Rows whose gradient follows stay exact, as the gradient is, and so do rows with bounded logits.
func observesInBF16(a *kernels.Attend) bool {
	return a.Kept == nil && a.SoftCap == 0 && a.Past[0].K.DType == kernels.BF16 && a.HeadDim()%8 == 0 && a.HeadDim() <= maxTileDim && rounds(a.Rows(), a.Heads()*a.HeadDim(), longestHead(a))
}

// PastBytes is the size of struct Past of cuda/attention.h.
const PastBytes = 32

// describeScratch is the temporary memory that describes a.
func describeScratch(a *kernels.Attend) int64 {
	n := PastBytes * int64(a.KVHeads())
	if a.Window > 0 {
		n += 4 * int64(a.Rows()*(a.KVHeads()+1))
	}
	return n
}

// AttendScratch is the temporary memory of Attention.
func AttendScratch(a *kernels.Attend, values bool, processors int) int64 {
	n, half := describeScratch(a), a.Past[0].K.DType == kernels.BF16
	step := values && a.Rows() == 1 && a.K == nil && stepShape(a.HeadDim(), half)
	if a.Sinks != nil && !step {
		n += 4 * int64(a.Rows()*a.Heads()) // the softmax, where nobody has asked for it
	}
	switch {
	case onTensorCores(a):
		return n
	case observesInBF16(a): // copies of the past with the rows' own pairs
		sides := int64(1)
		if values {
			sides = 2
		}
		for _, kv := range a.Past {
			n += 2 * sides * int64((kv.Entries()+a.Rows())*a.HeadDim())
		}
		if a.Window > 0 {
			n += 4 * int64(a.Rows()*a.KVHeads())
		}
		return n + PastBytes*int64(a.KVHeads())
	}
	if step {
		_, most := stepBlocks(stepQueries(a.Group(), half, a.SoftCap > 0), a.Group(), a.KVHeads(), max(1, processors))
		parts := stepParts(longestBucket(a), most)
		if parts == 1 {
			parts = 0
		}
		return n + 4*int64(a.Heads()*(1+parts*(2+a.HeadDim())))
	}
	return n + splitScratch(a, values, processors)
}

// splitScratch is what the splits of the entries are merged from.
func splitScratch(a *kernels.Attend, values bool, processors int) (n int64) {
	each, total, tile := int64(2), int64(a.Rows()*a.Heads()), attendQueries
	if values {
		each += int64(a.HeadDim())
	}
	splits := int64(0)
	if observedExactly(a) {
		tile = sweepQueries
		n += 2 * queryParts * total * int64(a.HeadDim())
		if a.K != nil {
			n += PastBytes * int64(a.KVHeads())
			splits++ // own pairs
		}
	}
	return n + 4*each*(splits+entrySplits(a, tile, processors))*total
}

// ObserveAttentionScratch is the temporary memory of ObserveAttention.
func ObserveAttentionScratch(a *kernels.Attend, values bool, processors int) int64 {
	switch {
	case observesInBF16(a):
		return AttendScratch(a, values, processors) + 2*int64(a.Q.Len())
	case observedExactly(a):
		return describeScratch(a) + splitScratch(a, values, processors)
	}
	return AttendScratch(a, values, processors)
}

// ObserveScratch is the temporary memory of ObservedScores: the queries in bf16.
func ObserveScratch(a *kernels.Attend) int64 {
	n := describeScratch(a)
	switch each := 2 * int64(a.Q.Len()); {
	case observesInBF16(a):
		n += each
	case observedExactly(a):
		n += queryParts * each
	}
	return n
}

// maxTileDim is the largest head of the kernels for observed rows that are many and for the
// gradient on tensor cores.
const maxTileDim = 128

// gradQueries are the queries of a warp of the gradient on tensor cores.
const gradQueries = 16

// gradScoresPad lies between rows of scores in its shared memory.
const gradScoresPad = 8

// gradBlock is how AttentionGrad's kernel on tensor cores is cut for heads of so many
// elements: a block has queryWarps warps with 16 queries of a KV head each, times sharers that
// share the tiles of 32 entries of each. It is as large as the queries and so much shared
// memory allow.
type gradBlock struct{ width, group, queryWarps, sharers int }

// shared is the shared memory of a block: queries and dOut in parts, and two stages of tiles, with
// the upstream gradients and scores of the block's heads.
func (k gradBlock) shared() int {
	tile := attendColumns * k.sharers
	return 2*(k.width+8)*(2*queryParts*gradQueries*k.queryWarps+2*2*tile) + 4*2*2*min(k.group, gradQueries*k.queryWarps)*(tile+gradScoresPad)
}

// gradOnTensorCores tells whether the gradient runs there, and how: over caches in bf16, where nothing bounds logits.
func gradOnTensorCores(a *kernels.Attend, shared int) (k gradBlock, ok bool) {
	queries, dim := a.Rows()*a.Group(), a.HeadDim()
	if a.Past[0].K.DType != kernels.BF16 || a.SoftCap > 0 || !exactShape(queries, dim) || dim > maxTileDim {
		return k, false
	}
	k.group = a.Group()
	if k.width = 64; dim > 64 {
		k.width = maxTileDim
	}
	most := 4
	for most > 1 && gradQueries*most/2 >= queries {
		most /= 2
	}
	for k.queryWarps = most; k.queryWarps > 0; k.queryWarps /= 2 {
		for k.sharers = 8 / k.queryWarps; k.sharers > 0; k.sharers /= 2 {
			if k.sharers <= 4 && k.shared() <= shared {
				return k, true
			}
		}
	}
	return k, false
}

// splitGrad cuts the entries so that there are two blocks for every processor: one is there at
// a time, and what the splits leave behind is read again.
func (k gradBlock) splitGrad(queries, kvHeads, entries, processors int) (tiles, splits, chunk int) {
	tiles = (queries + gradQueries*k.queryWarps - 1) / (gradQueries * k.queryWarps)
	splits = max(1, min(2*processors/(tiles*kvHeads), (entries+minSplit-1)/minSplit))
	chunk = max(attendColumns, ((entries+splits-1)/splits+attendColumns-1)/attendColumns*attendColumns)
	return tiles, max(1, (entries+chunk-1)/chunk), chunk
}

// GradScratch is the temporary memory of AttentionGrad.
func GradScratch(a *kernels.Attend, of kernels.Traits) int64 {
	total, dim := int64(a.Rows()*a.Heads()), int64(a.HeadDim())
	n := describeScratch(a) + 4*total*2
	splits := entrySplits(a, attendQueries, of.Processors)
	if k, ok := gradOnTensorCores(a, of.Shared); ok {
		_, s, _ := k.splitGrad(a.Rows()*a.Group(), a.KVHeads(), longestHead(a), max(1, of.Processors))
		splits = int64(s)
		n += 2 * 2 * queryParts * total * dim
	}
	return n + 4*total*splits*(1+2*dim)
}

// MaxWorkspace is the most that an algorithm of a matrix product asks for, and what a
// device keeps for it.
const MaxWorkspace = 32 << 20
