package kernels

// Sizes of device memory, which operations take and forecasts count.

// blockClass is the size of the block for so many bytes: eight steps between powers of
// two, so that blocks are used again for tensors that are a little smaller.
func blockClass(bytes int64) int64 {
	step := int64(256)
	for step*16 < bytes {
		step *= 2
	}
	return (bytes + step - 1) / step * step
}

// Activations that meet bf16 weights are split into three bf16 parts, so that the
// product is as exact as in float32 and still reads the weights once, up to exactRows rows and, for more rows, up to
// exactWork multiplications. The rows of decoding, of adapters and of gradients wait
// for the weights and not for the tensor cores, and small models take no time.
// Longer prompts of larger models are rounded to bf16 once.
const exactRows = 64

var exactWork = 1 << 30

// rounds tells that the activations of a product with bf16 weights are rounded.
func rounds(m, n, k int) bool { return m > exactRows && m*n*k > exactWork }

// SetExactWork changes the size of a product from which on the activations of more than
// 64 rows are rounded to bf16, and returns a function that undoes it: for tests, whose
// products are small. No other goroutine may multiply meanwhile.
func SetExactWork(n int) (restore func()) {
	before := exactWork
	exactWork = n
	return func() { exactWork = before }
}

// roundsBy tells it of rows that meet a weight [n, k].
func roundsBy(rows int, w *Tensor) bool { return w.DType == BF16 && rounds(rows, w.Dim0(), w.Width()) }

// As in cuda/thin.cu.
const (
	thinRows    = 32
	thinColumns = 8
	thinDepth   = 128

	thinResults   = 4096
	updateColumns = 64
	updateThreads = 256
)

// thin tells that a product in float32 has so few results and so long sums that it is
// split along these: low-rank factors, and what comes back from them. A library's product
// would be one tile, on one processor, through the whole sum.
func thin(m, n, k int) bool { return m > 0 && m <= 128 && n > 0 && n <= 64 && k >= 4*thinDepth }

// thinScratch is the temporary memory of such a product.
func thinScratch(m, n, k int) int64 {
	return 4 * int64(m) * int64(n) * int64((k+thinDepth-1)/thinDepth)
}

// widenedBytes is the memory of f16 weights that are widened at once.
const widenedBytes = 64 << 20

// productScratch is the temporary memory of a product x [m, k] · [k, n] with a weight.
func productScratch(m, n, k int, x, w *Tensor) int64 {
	if w.DType == F32 && thin(m, n, k) {
		return thinScratch(m, n, k)
	}
	wide := int64(0)
	if x.DType == BF16 && w.DType != BF16 {
		wide = 4 * int64(m) * int64(k)
	}
	switch {
	case x.DType == BF16 && w.DType != F16:
		return wide
	case w.DType == BF16 && rounds(m, n, k):
		return 2 * int64(m) * int64(k)
	case w.DType == BF16:
		return 6*int64(m)*int64(k) + 12*int64(m)*int64(n)
	case w.DType == F16:
		return min(widenedBytes, 4*int64(w.Len())) + wide
	}
	return 0
}

// As in cuda/attention.h.
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

// longest is the number of entries of the longest head, as steps that may be recorded for
// more count them.
func (a *Attend) longest() int {
	entries := 0
	for _, kv := range a.Past {
		entries = max(entries, kv.Entries())
	}
	if a.Rows() == 1 && a.K == nil {
		entries = EntryBucket(entries)
	}
	return entries
}

// stepShape tells that decoding steps over heads of dim elements, of bf16 or of float32,
// read them in pieces of 16 bytes.
func stepShape(dim int, half bool) bool { return half && dim%8 == 0 || !half && dim%4 == 0 }

// stepQueries is the number of queries of a KV head that a block of a decoding step has.
func stepQueries(group int, half bool) int {
	if group <= 4 || !half {
		return 4
	}
	return 8
}

// stepBlock is the least number of entries of a block of a decoding step, as in
// cuda/attention_decode.cu.
const stepBlock = 256

// stepBlocks cuts a decoding step into tiles of queries of a KV head, and the entries of a
// head into most parts at most: so many that all blocks run at the same time, as many on a
// processor as the kernel's registers allow. A head's own parts depend on its entries
// alone.
func stepBlocks(group, kvHeads, processors int, half bool) (tiles, most int) {
	queries, resident := stepQueries(group, half), 3
	if queries == 8 {
		resident = 2
	}
	tiles = (group + queries - 1) / queries
	return tiles, max(1, resident*processors/(tiles*kvHeads))
}

// stepParts is the largest number of parts of a head of up to so many entries.
func stepParts(entries, most int) int { return max(1, min(most, (entries+stepBlock-1)/stepBlock)) }

func (a *Attend) splits(tile, processors int) int64 {
	entries := a.longest()
	_, splits, _ := splitEntries(a.Rows()*a.Group(), tile, a.KVHeads(), entries, max(1, processors))
	return int64(splits)
}

// mmaRows is the number of queries of a KV head from which on tensor cores are worth
// their rounding: a prompt's, never those of decoding or of observed rows alone.
const mmaRows = 64

// onTensorCores tells that prefill attention runs there: over caches in bf16.
func (a *Attend) onTensorCores() bool {
	return a.Past[0].K.DType == BF16 && a.K == nil && a.Rows() > 1 && a.Rows()*a.Group() >= mmaRows && a.HeadDim()%8 == 0
}

// As in cuda/attention_observe.cu: queries of a block, each as a sum of so many parts.
const (
	queryParts   = 3
	sweepQueries = 64
)

// exactQueries is the number of queries of a KV head from which on tensor cores are
// worth splitting them: fewer leave most of a tile empty.
const exactQueries = 16

// exactShape tells that tensor cores can work on so many observed queries without loss.
func exactShape(queries, dim int) bool { return queries >= exactQueries && dim%8 == 0 }

// observedExactly tells that observed rows run there: over caches in bf16.
func (a *Attend) observedExactly() bool {
	return a.Past[0].K.DType == BF16 && a.Rows() > 1 && exactShape(a.Rows()*a.Group(), a.HeadDim())
}

// pastBytes is the size of struct Past of cuda/attention.h.
const pastBytes = 32

// attendScratch is the temporary memory of Attention: what the splits are merged from.
func attendScratch(a *Attend, values bool, processors int) int64 {
	n := pastBytes * int64(a.KVHeads())
	if a.Window > 0 {
		n += 4 * int64(a.Rows()*(a.KVHeads()+1))
	}
	if a.onTensorCores() {
		return n
	}
	if half := a.Past[0].K.DType == BF16; values && a.Rows() == 1 && a.K == nil && stepShape(a.HeadDim(), half) {
		_, most := stepBlocks(a.Group(), a.KVHeads(), max(1, processors), half)
		parts := stepParts(a.longest(), most)
		if parts == 1 {
			parts = 0
		}
		return n + 4*int64(a.Heads()*(1+parts*(2+a.HeadDim())))
	}
	each, total, tile := int64(2), int64(a.Rows()*a.Heads()), attendQueries
	if values {
		each += int64(a.HeadDim())
	}
	splits := int64(0)
	if a.observedExactly() {
		tile = sweepQueries
		n += 2 * queryParts * total * int64(a.HeadDim())
		if a.K != nil {
			n += pastBytes * int64(a.KVHeads())
			splits++ // own pairs
		}
	}
	return n + 4*each*(splits+a.splits(tile, processors))*total
}

// gradScratch is the temporary memory of AttentionGrad.
func gradScratch(a *Attend, processors int) int64 {
	total := int64(a.Rows() * a.Heads())
	return pastBytes*int64(a.KVHeads()) + 4*total*(2+a.splits(attendQueries, processors)*(1+2*int64(a.HeadDim())))
}
