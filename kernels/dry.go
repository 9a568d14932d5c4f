package kernels

import (
	"runtime"
	"sync"
	"weak"
)

// Dry is a Backend without numbers: operations do nothing, tensors read as zeros, and
// what is counted is the memory that another backend would need for the same calls. A
// pass or a training step that is run on it says what the real one will take, by the
// real one's own code, in the time of its calls. Live are the tensors that something
// refers to, so Peak is what must be there and not what a lazy collector lets lie.
type Dry struct {
	Decomposed
	name    string
	compute DType
	traits  Traits
	*dryMemory
	graph *dryGraph // that records; it is then the backend of that graph alone
}

// dryMemory is what is counted.
type dryMemory struct {
	mu         sync.Mutex
	blocks     []dryRef
	live, peak int64
	sure       int64   // a peak without dead tensors
	temporary  int64   // most of one operation
	scratch    int64   // of it what a device keeps for the next operations
	workspace  int64   // that a device keeps for all products
	next       uintptr // address
	peakless   bool    // peaks are not looked for
}

var _ Backend = (*Dry)(nil)

// NewDry returns a Dry that counts as of would.
func NewDry(of Backend) *Dry {
	return newDry(Dry{name: of.Name(), compute: of.Compute(), traits: of.Traits(), dryMemory: &dryMemory{next: 1 << 46}})
}

// newDry is a Dry whose operations are its own.
func newDry(of Dry) *Dry {
	d := &of
	d.Decomposed = Decompose(d)
	return d
}

// dryBlock is memory that is only counted. Its address is one that no memory has.
type dryBlock struct {
	at   uintptr
	size int64
	gone bool // an arena has given it back
	// Go packs objects below 16 bytes together, and they die together.
	_ uintptr
}

func (m *dryBlock) Address() uintptr { return m.at }
func (*dryBlock) Read([]byte, int)   {} // into fresh memory: zeros
func (*dryBlock) Write(int, []byte)  {}

type dryRef struct {
	block weak.Pointer[dryBlock]
	size  int64
}

// Live is the memory of the tensors that are referred to.
func (d *Dry) Live() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.collect()
	return d.live
}

// Held is Live, and what the device keeps for temporary memory.
func (d *Dry) Held() int64 { return d.Live() + d.scratch + d.workspace }

// Peak is the most memory that was needed at once so far, temporary memory included.
func (d *Dry) Peak() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.peak
}

// Temporary is the most temporary memory of one operation so far.
func (d *Dry) Temporary() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.temporary
}

// ResetTemporary lets Temporary begin again.
func (d *Dry) ResetTemporary() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.temporary = 0
}

// SeekPeaks starts and stops looking for peaks, whose garbage collections take most of the
// time: none are there where nothing dies, and some callers read the size of arenas alone.
func (d *Dry) SeekPeaks(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.peakless = !on
	d.note(0)
}

// collect drops the blocks that nothing refers to.
func (d *dryMemory) collect() {
	runtime.GC()
	kept := d.blocks[:0]
	d.live = 0
	for _, r := range d.blocks {
		if m := r.block.Value(); m != nil && !m.gone {
			kept = append(kept, r)
			d.live += r.size
		}
	}
	clear(d.blocks[len(kept):])
	d.blocks = kept
}

// note counts what is in use besides live tensors. Dead ones are looked for only where
// there would be a new peak, and one worth it: up to half a percent is taken as it looks.
func (d *dryMemory) note(more int64) {
	if d.peakless {
		return
	}
	more += d.scratch + d.workspace
	slack := max(d.sure/200, 32<<10)
	if d.live+more > d.sure+slack {
		d.collect()
		d.sure = max(d.sure, d.live+more)
	}
	d.peak = max(d.peak, min(d.live+more, d.sure+slack))
}

// temp counts temporary memory of one operation.
func (d *Dry) temp(bytes int64) {
	if !d.traits.Device || bytes <= 0 {
		return
	}
	if d.graph != nil {
		d.graph.take(bytes)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.temporary = max(d.temporary, bytes)
	if d.traits.Exact {
		d.note(bytes)
		return
	}
	if bytes > d.scratch { // what there was before is still in use
		before := d.scratch
		d.scratch = bytes
		d.note(before)
	} else {
		d.note(0)
	}
}

// Take counts temporary memory of one operation that is not run.
func (d *Dry) Take(bytes int64) { d.temp(bytes) }

// product counts temporary memory of a product of rows x [m, k] and a weight.
func (d *Dry) product(m, n, k int, x, w *Tensor) {
	if w.DType != F32 || !thin(m, n, k) {
		d.keepWorkspace()
	}
	d.temp(productScratch(m, n, k, x, w))
}

// keepWorkspace counts what all products of cuBLASLt share: of exact devices nothing.
func (d *Dry) keepWorkspace() {
	if !d.traits.Device || d.traits.Exact {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.workspace = maxWorkspace
	d.note(0)
}

// maxWorkspace is the most that an algorithm of a matrix product asks for, and what a
// device keeps for it.
const maxWorkspace = 32 << 20

// ArenaLayout and Free: as the backend it counts for, of which no graph is replayed.
func (d *Dry) ArenaLayout() ArenaLayout { return ArenaLayout{Align: 256, Apart: d.traits.Exact} }

func (d *Dry) Free(ts []*Tensor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range ts {
		b, _ := t.Block()
		if m := b.(*dryBlock); !m.gone {
			m.gone = true
			d.live -= m.size
		}
	}
}

// Traits are those of the backend it counts for.
func (d *Dry) Traits() Traits { return d.traits }

// OwnMemory is true: of no tensor is there memory on the host.
func (d *Dry) OwnMemory() bool { return true }

// RoomFor is as of the backend it counts for.
func (d *Dry) RoomFor(t DType, n, width int) int { return roomFor(d.traits, t, n, width) }

// RoPETable has no numbers: it would read zeros after seconds of cosines.
func (d *Dry) RoPETable(freqs []float32, positions int, _ float64) *RoPETable {
	return &RoPETable{Cos: d.Alloc(d.compute, positions, len(freqs)), Sin: d.Alloc(d.compute, positions, len(freqs))}
}

func (d *Dry) CopyPairs(dst []KV, k, v *Tensor) {
	checkCopyPairs(dst, k, v)
	d.temp(16 * int64(len(dst)))
}

func (d *Dry) AddLowRank(y, x, a, b *Tensor, scale float64, temp Allocator) {
	m, rank := x.Dim0(), a.Dim0()
	if !d.traits.Device || m*rank > thinResults {
		d.Decomposed.AddLowRank(y, x, a, b, scale, temp)
		return
	}
	checkAddLowRank(y, x, a, b)
	d.temp(thinScratch(m, rank, x.Width()))
}

// PrefillChunk is as of the backend it counts for.
func (d *Dry) PrefillChunk(rowBytes int64) int {
	if !d.traits.Device {
		return 0
	}
	return ChunkRows(d.traits.Processors, d.traits.Memory, rowBytes)
}

// RoundsToBF16 is as of the backend it counts for.
func (d *Dry) RoundsToBF16(rows int, w *Tensor) bool {
	return d.traits.Device && d.traits.Fuses && roundsBy(rows, w)
}

// Alloc implements Allocator.
func (d *Dry) Alloc(t DType, shape ...int) *Tensor {
	size := int64(ShapeLen(shape)) * int64(t.Size())
	if d.traits.Device && !d.traits.Exact {
		size = blockClass(size)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	m := &dryBlock{at: d.next, size: size}
	y := NewInBlock(t, m, shape...)
	d.next += uintptr(size)
	d.live += size
	d.blocks = append(d.blocks, dryRef{weak.Make(m), size})
	if d.graph != nil && d.graph.recording {
		d.graph.keep = append(d.graph.keep, m)
	}
	d.note(0)
	runtime.KeepAlive(y)
	return y
}

// Place copies nothing.
func (d *Dry) Place(host *Tensor) *Tensor { return d.Alloc(host.DType, host.Shape...) }

// Name is that of the backend it counts for; Compute and the operations implement Backend.
func (d *Dry) Name() string   { return d.name }
func (d *Dry) Compute() DType { return d.compute }

func (d *Dry) Linear(y, x, w, bias *Tensor, alpha, beta float64) {
	checkLinear(y, x, w, bias)
	if d.takesFew(x, LinearRows{Weight: w}) {
		return
	}
	d.product(x.Dim0(), w.Dim0(), x.Width(), x, w)
}

// takesFew is as of the device it counts for.
func (d *Dry) takesFew(x *Tensor, layers ...LinearRows) bool {
	return d.traits.Device && !d.traits.FewRowsOff && takesFew(x, layers)
}

func (d *Dry) GatedLinear(y, x *Tensor, gate, up LinearRows, temp Allocator) {
	if !d.takesFew(x, gate, up) {
		d.Decomposed.GatedLinear(y, x, gate, up, temp)
		return
	}
	checkGatedLinear(y, x, gate, up)
}

func (d *Dry) AttentionSelected(out, lse *Tensor, a *Attend, s *Selection, temp Allocator) {
	if !d.traits.Device {
		d.Decomposed.AttentionSelected(out, lse, a, s, temp)
		return
	}
	checkAttention("AttentionSelected", out, lse, a)
	checkSelected("AttentionSelected", a, s)
	d.temp(attendScratch(a, out != nil, d.traits.Processors))
}

func (d *Dry) MatMul(c, a, w *Tensor, alpha, beta float64) {
	d.product(a.Dim0(), w.Width(), a.Width(), a, w)
}

func (d *Dry) MatMulTA(c, a, b *Tensor, alpha, beta float64) { d.keepWorkspace() }
func (d *Dry) Fill(y *Tensor, value float64)                 {}
func (d *Dry) Copy(y, x *Tensor)                             { MustFit(x.Len(), y.Shape) }
func (d *Dry) Gather(y, table *Tensor, ids []int32)          { d.temp(4 * int64(len(ids))) }
func (d *Dry) CopyHead(y, x *Tensor, h int)                  { checkCopyHead(y, x, h) }
func (d *Dry) Add(y, a, b *Tensor)                           { checkLengths("Add", y, a, b) }
func (d *Dry) Axpy(y *Tensor, alpha float64, x *Tensor)      {}

func (d *Dry) RMSNorm(y, x, w *Tensor, eps float64)            { checkNorm("RMSNorm", x, w, y) }
func (d *Dry) RMSNormGrad(dx, x, w, dy *Tensor, eps float64)   { checkNorm("RMSNormGrad", x, w, dx, dy) }
func (d *Dry) LayerNorm(y, x, w, b *Tensor, eps float64)       { checkNorm("LayerNorm", x, w, y) }
func (d *Dry) LayerNormGrad(dx, x, w, dy *Tensor, eps float64) {}

func (d *Dry) RoPE(x *Tensor, pos []int32, table *RoPETable, inverse bool) {
	checkRoPE(x, pos, table)
	d.temp(4 * int64(len(pos)))
}

func (d *Dry) SiLUMul(y, gate, up *Tensor)                  { checkLengths("SiLUMul", y, gate, up) }
func (d *Dry) SiLUMulGrad(dgate, dup, gate, up, dy *Tensor) {}
func (d *Dry) GELU(y, x *Tensor)                            {}
func (d *Dry) GELUGrad(dx, x, dy *Tensor)                   {}

func (d *Dry) Attention(out, lse *Tensor, a *Attend) {
	checkAttention("Attention", out, lse, a)
	d.temp(attendScratch(a, out != nil, d.traits.Processors))
}

func (d *Dry) ObservedScores(logScore, lse *Tensor, a *Attend) {
	checkObservedScores("ObservedScores", logScore, lse, a)
	d.temp(observeScratch(a))
}

func (d *Dry) ObserveAttention(out, lse, logScore *Tensor, a *Attend) {
	checkAttention("ObserveAttention", out, lse, a)
	checkObservedScores("ObserveAttention", logScore, lse, a)
	d.temp(observeAttentionScratch(a, out != nil, d.traits.Processors))
}

func (d *Dry) MergeScores(acc, other *Tensor, wAcc, wOther float64) {}

func (d *Dry) AttentionGrad(dq, dk, dv *Tensor, a *Attend, out, lse, logScore, dOut, dLogScore *Tensor) {
	checkAttentionGrad(dq, dk, dv, a, out, lse, logScore, dOut, dLogScore)
	d.temp(gradScratch(a, d.traits))
}

func (d *Dry) ScoreKL(loss, dLogScore, logScore, logTarget *Tensor, weight float64)  {}
func (d *Dry) ScoreMSE(loss, dLogScore, logScore, logTarget *Tensor, weight float64) {}
func (d *Dry) AdamW(p, g, m, v *Tensor, step AdamWStep)                              {}
func (d *Dry) SumSquares(t *Tensor) float64                                          { return 0 }
