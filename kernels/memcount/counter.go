// Package memcount counts the memory and the operations of a backend, by running what would run
// on it.
package memcount

import (
	"cmp"
	"runtime"
	"sync"
	"weak"

	"glimpse/kernels"
	"glimpse/kernels/cuda"
)

// Counter is a Backend without numbers: operations do nothing, tensors read as zeros, and
// what is counted is the memory that another backend would need for the same calls. A
// pass or a training step that is run on it says what the real one will take, by the
// real one's own code, in the time of its calls. Live are the tensors that something
// refers to, so Peak is what must be there and not what a lazy collector lets lie.
type Counter struct {
	kernels.Decomposed
	name    string
	compute kernels.DType
	traits  kernels.Traits
	kept    func(rows, heads, kvHeads, entries int) int64 // KeptBytes
	*memory
	graph *graph // that records; it is then the backend of that graph alone
}

// memory is what is counted.
type memory struct {
	mu         sync.Mutex
	blocks     []blockRef
	live, peak int64
	sure       int64   // a peak without dead tensors
	temporary  int64   // most of one operation
	scratch    int64   // of it what a device keeps for the next operations
	workspace  int64   // that a device keeps for all products
	next       uintptr // address
	peakless   bool    // peaks are not looked for
	work       Work    // nil: not counted
	ground     int64   // memory that peaks are looked for beside
	part       int64   // of a peak, up to which one is taken as it looks; 0: finest
}

var _ kernels.Backend = (*Counter)(nil)

// New returns a Counter that counts as of would.
func New(of kernels.Backend) *Counter {
	return newCounter(Counter{name: of.Name(), compute: of.Compute(), traits: of.Traits(), kept: of.KeptBytes, memory: newMemory()})
}

// NewCUDA returns a Counter that counts as the backend cuda would on a device that need not be there, of so many
// multiprocessors and so much memory.
func NewCUDA(processors int, bytes int64) *Counter {
	traits := kernels.Traits{Device: true, Graphs: true, Processors: processors, Shared: 227 << 10, Memory: bytes}
	return newCounter(Counter{name: "cuda", compute: kernels.F32, traits: traits, kept: kernels.Decomposed{}.KeptBytes, memory: newMemory()})
}

func newMemory() *memory { return &memory{next: 1 << 46} }

// newCounter is a Counter whose operations are its own.
func newCounter(of Counter) *Counter {
	d := &of
	d.Decomposed = kernels.Decompose(d)
	return d
}

// block is memory that is only counted. Its address is one that no memory has.
type block struct {
	at   uintptr
	size int64
	gone bool // an arena has given it back
	// Go packs objects below 16 bytes together, and they die together.
	_ uintptr
}

func (m *block) Address() uintptr { return m.at }
func (*block) Read([]byte, int)   {} // into fresh memory: zeros
func (*block) Write(int, []byte)  {}

type blockRef struct {
	block weak.Pointer[block]
	size  int64
}

// Live is the memory of the tensors that are referred to.
func (d *Counter) Live() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dropDead()
	return d.live
}

// Held is Live, and what the device keeps for temporary memory.
func (d *Counter) Held() int64 { return d.Live() + d.scratch + d.workspace }

// Peak is the most memory that was needed at once so far, temporary memory included.
func (d *Counter) Peak() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.peak
}

// Temporary is the most temporary memory of one operation so far.
func (d *Counter) Temporary() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.temporary
}

// SeekPeaks starts and stops looking for peaks, whose garbage collections take most of the
// time: none are there where nothing dies, and some callers read the size of arenas alone.
func (d *Counter) SeekPeaks(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.peakless = !on
	d.notePeak(0)
}

// SeekFrom looks for peaks above one that is known to be reached, to a part of it (1/part), and leaves alone what is below:
// the fewer collections, the higher the known one and the coarser the part.
func (d *Counter) SeekFrom(known, part int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sure, d.part = max(d.sure, known), part
}

// SeekBeside looks for peaks to a part of what is there beside the memory that lives now, which it returns, not to a part of all.
func (d *Counter) SeekBeside() int64 {
	live := d.Live()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ground = live
	return live
}

// Sure is a peak that is known to have been reached: at most a part below Peak.
func (d *Counter) Sure() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sure
}

// FinestPart is that to which peaks are looked for unless it is said otherwise.
const FinestPart = 200

// dropDead drops the blocks that nothing refers to.
func (d *memory) dropDead() {
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

// notePeak counts what is in use besides live tensors. Dead ones are looked for only where
// there would be a new peak, and one worth it: up to half a percent, or another part, is taken as it looks.
func (d *memory) notePeak(more int64) {
	if d.peakless {
		return
	}
	more += d.scratch + d.workspace
	slack := max((d.sure-d.ground)/cmp.Or(d.part, FinestPart), 32<<10)
	if d.live+more > d.sure+slack {
		d.dropDead()
		d.sure = max(d.sure, d.live+more)
	}
	d.peak = max(d.peak, min(d.live+more, d.sure+slack))
}

// temp counts temporary memory of one operation.
func (d *Counter) temp(bytes int64) {
	if !d.traits.Device || bytes <= 0 {
		return
	}
	if d.graph != nil {
		d.graph.takeTemporary(bytes)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.temporary = max(d.temporary, bytes)
	if d.traits.Exact {
		d.notePeak(bytes)
		return
	}
	if bytes > d.scratch { // what there was before is still in use
		before := d.scratch
		d.scratch = bytes
		d.notePeak(before)
	} else {
		d.notePeak(0)
	}
}

// TakeBytes counts temporary memory of one operation that is not run.
func (d *Counter) TakeBytes(bytes int64) { d.temp(bytes) }

// countProduct counts temporary memory of a product of rows x [m, k] and a weight.
func (d *Counter) countProduct(m, n, k int, x, w *kernels.Tensor) {
	if w.DType != kernels.F32 || !cuda.SplitsK(m, n, k) {
		d.keepWorkspace()
	}
	d.temp(cuda.ProductScratch(m, n, k, x, w))
}

// keepWorkspace counts what all products of cuBLASLt share: of exact devices nothing.
func (d *Counter) keepWorkspace() {
	if !d.traits.Device || d.traits.Exact {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.workspace = cuda.MaxWorkspace
	d.notePeak(0)
}

// ArenaLayout and Free: as the backend it counts for. No graph is replayed.
func (d *Counter) ArenaLayout() kernels.ArenaLayout {
	return kernels.ArenaLayout{Align: 256, Apart: d.traits.Exact}
}

func (d *Counter) Free(ts []*kernels.Tensor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range ts {
		b, _ := t.Block()
		if m := b.(*block); !m.gone {
			m.gone = true
			d.live -= m.size
		}
	}
}

// Traits are the traits of the backend it counts for.
func (d *Counter) Traits() kernels.Traits { return d.traits }

// OwnMemory is true: of no tensor is there memory on the host.
func (d *Counter) OwnMemory() bool { return true }

// KeptBytes is as of the backend it counts for.
func (d *Counter) KeptBytes(rows, heads, kvHeads, entries int) int64 {
	return d.kept(rows, heads, kvHeads, entries)
}

// RoPETable has no numbers: it would read zeros after seconds of cosines.
func (d *Counter) RoPETable(freqs []float32, positions int, _ float64) *kernels.RoPETable {
	return &kernels.RoPETable{Cos: d.Alloc(d.compute, positions, len(freqs)), Sin: d.Alloc(d.compute, positions, len(freqs))}
}

func (d *Counter) CopyPairs(dst []kernels.KV, k, v *kernels.Tensor) {
	kernels.CheckCopyPairs(dst, k, v)
	d.temp(16 * int64(len(dst)))
}

func (d *Counter) AddLowRank(y, x, a, b *kernels.Tensor, scale float64, temp kernels.Allocator) {
	m, rank := x.Dim0(), a.Dim0()
	if !d.traits.Device || m*rank > cuda.SplitKResults {
		d.Decomposed.AddLowRank(y, x, a, b, scale, temp)
		return
	}
	kernels.CheckAddLowRank(y, x, a, b)
	d.countWeights(m, a)
	d.countWeights(m, b)
	d.temp(cuda.SplitKScratch(m, rank, x.Width()))
}

// RoundsToBF16 is as of the backend it counts for.
func (d *Counter) RoundsToBF16(rows int, w *kernels.Tensor) bool {
	return d.traits.Device && cuda.RoundsBy(rows, w)
}

// TakesBias is as of the backend it counts for.
func (d *Counter) TakesBias() error {
	if d.traits.Device {
		return kernels.NoBiases(d.name)
	}
	return nil
}

// Alloc implements Allocator.
func (d *Counter) Alloc(t kernels.DType, shape ...int) *kernels.Tensor {
	size := int64(kernels.StoredBytes(t, shape...))
	if d.traits.Device && !d.traits.Exact {
		size = kernels.BlockClass(size)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	m := &block{at: d.next, size: size}
	y := kernels.NewInBlock(t, m, shape...)
	d.next += uintptr(size)
	d.live += size
	d.blocks = append(d.blocks, blockRef{weak.Make(m), size})
	if d.graph != nil && d.graph.recording {
		d.graph.keep = append(d.graph.keep, m)
	}
	d.notePeak(0)
	runtime.KeepAlive(y)
	return y
}

// Place copies nothing.
func (d *Counter) Place(host *kernels.Tensor) *kernels.Tensor {
	if d.traits.Device && d.Placed(host.DType) == host.DType {
		return kernels.PlaceInOrder(d, host)
	}
	return d.Alloc(d.Placed(host.DType), host.Shape...)
}

// Placed is as of the backend it counts for.
func (d *Counter) Placed(t kernels.DType) kernels.DType {
	if d.traits.Device {
		return cuda.Placed(t)
	}
	return t
}

// Name is that of the backend it counts for; Compute and the operations implement Backend.
func (d *Counter) Name() string           { return d.name }
func (d *Counter) Compute() kernels.DType { return d.compute }

func (d *Counter) Linear(y, x, w, bias *kernels.Tensor, alpha, beta float64) {
	kernels.CheckLinear(y, x, w, bias)
	d.countWeights(x.Dim0(), w)
	if d.takesDecodeLinears(x, kernels.LinearRows{Weight: w}) {
		d.temp(cuda.OrderScratch(x.Dim0(), w))
		return
	}
	d.countProduct(x.Dim0(), w.Dim0(), x.Width(), x, w)
}

// takesDecodeLinears is as of the device it counts for.
func (d *Counter) takesDecodeLinears(x *kernels.Tensor, layers ...kernels.LinearRows) bool {
	return d.traits.Device && cuda.TakesDecodeLinears(x, layers)
}

func (d *Counter) GatedLinear(y, x *kernels.Tensor, gate, up kernels.LinearRows, temp kernels.Allocator) {
	if !d.takesDecodeLinears(x, gate, up) {
		d.Decomposed.GatedLinear(y, x, gate, up, temp)
		return
	}
	kernels.CheckGatedLinear(y, x, gate, up)
	d.countWeights(x.Dim0(), gate.Weight)
	d.countWeights(x.Dim0(), up.Weight)
}

// TakesExperts is as of the device it counts for.
func (d *Counter) TakesExperts(rows int, e *kernels.FewExperts) bool {
	if !d.traits.Device || !cuda.TakesExperts(rows, e) {
		return false
	}
	if e.Table == nil {
		e.Table = d.Alloc(kernels.I32, len(e.Each), cuda.ExpertInts)
	}
	return true
}

func (d *Counter) FewExperts(y, x, logits, gates *kernels.Tensor, e *kernels.FewExperts, rows int, scale float64, temp kernels.Allocator) {
	kernels.CheckFewExperts(y, x, logits, gates, e, rows)
	through := e.Each[:e.TopK:e.TopK] // as many as any others
	if e.Shared {
		through = append(through, e.Each[e.Experts()])
	}
	for _, l := range through {
		d.countWeights(rows, l.Up.Weight)
		d.countWeights(rows, l.Gate.Weight)
		d.countWeights(rows, l.Down.Weight)
	}
	cuda.ExpertsTemporary(rows, e, temp)
}

func (d *Counter) AttentionSelected(out, lse *kernels.Tensor, a *kernels.Attend, s *kernels.Selection, temp kernels.Allocator) {
	if !d.traits.Device {
		d.Decomposed.AttentionSelected(out, lse, a, s, temp)
		return
	}
	kernels.CheckAttention("AttentionSelected", out, lse, a)
	kernels.CheckSelected("AttentionSelected", a, s)
	d.countAttention(a, attentionProducts(out))
	d.temp(cuda.AttendScratch(a, out != nil, d.traits.Processors))
}

func (d *Counter) MatMul(c, a, w *kernels.Tensor, alpha, beta float64) {
	d.countWeights(a.Dim0(), w)
	d.countProduct(a.Dim0(), w.Width(), a.Width(), a, w)
}

func (d *Counter) MatMulTA(c, a, b *kernels.Tensor, alpha, beta float64) {
	d.countWeights(a.Dim0(), c)
	d.keepWorkspace()
}

func (d *Counter) Fill(y *kernels.Tensor, value float64)        {}
func (d *Counter) Copy(y, x *kernels.Tensor)                    { kernels.MustFit(x.Len(), y.Shape) }
func (d *Counter) Gather(y, table *kernels.Tensor, ids []int32) { d.temp(4 * int64(len(ids))) }
func (d *Counter) CopyHead(y, x *kernels.Tensor, h int)         { kernels.CheckCopyHead(y, x, h) }
func (d *Counter) Add(y, a, b *kernels.Tensor) {
	kernels.CheckLengths("Add", y, a, b)
	d.countElements(y, a, b)
}
func (d *Counter) Axpy(y *kernels.Tensor, alpha float64, x *kernels.Tensor) {}

func (d *Counter) AddRows(y, x *kernels.Tensor, rows []int32, weights []float64) {
	kernels.CheckAddRows(y, x, rows, weights)
}

func (d *Counter) Norm(y, x, add *kernels.Tensor, n kernels.Norm) {
	kernels.CheckNorm("Norm", x, n, y, add)
	if add != nil {
		d.Add(x, x, add)
	}
	d.countElements(y, x)
}

func (d *Counter) NormGrad(dx, x, dy *kernels.Tensor, n kernels.Norm) {
	kernels.CheckNorm("NormGrad", x, n, dx, dy)
	d.countElements(dx, x, dy)
}

func (d *Counter) RoPE(y, x *kernels.Tensor, pos []int32, table *kernels.RoPETable, inverse bool) {
	kernels.CheckRoPE(y, x, pos, table)
	d.temp(4 * int64(len(pos)))
	d.countElements(y, x)
}

func (d *Counter) SiLUMul(y, gate, up *kernels.Tensor) {
	kernels.CheckLengths("SiLUMul", y, gate, up)
	d.countElements(y, gate, up)
}
func (d *Counter) SiLUMulGrad(dgate, dup, gate, up, dy *kernels.Tensor) {
	d.countElements(dgate, dup, gate, up, dy)
}
func (d *Counter) GateMul(act kernels.Gate, y, gate, up *kernels.Tensor) {
	kernels.CheckLengths("GateMul", y, gate, up)
	d.countElements(y, gate, up)
}
func (d *Counter) GateMulGrad(act kernels.Gate, dgate, dup, gate, up, dy *kernels.Tensor) {
	d.countElements(dgate, dup, gate, up, dy)
}
func (d *Counter) SoftCap(y, x *kernels.Tensor, limit float64) { d.countElements(y, x) }
func (d *Counter) GELU(y, x *kernels.Tensor)                   { d.countElements(y, x) }
func (d *Counter) GELUGrad(dx, x, dy *kernels.Tensor)          { d.countElements(dx, x, dy) }

func (d *Counter) Attention(out, lse *kernels.Tensor, a *kernels.Attend) {
	kernels.CheckAttention("Attention", out, lse, a)
	d.countAttention(a, attentionProducts(out))
	d.temp(cuda.AttendScratch(a, out != nil, d.traits.Processors))
}

func (d *Counter) ObservedScores(logScore, lse *kernels.Tensor, a *kernels.Attend) {
	kernels.CheckObservedScores("ObservedScores", logScore, lse, a)
	d.countAttention(a, 1)
	d.temp(cuda.ObserveScratch(a))
}

func (d *Counter) ObserveAttention(out, lse, logScore *kernels.Tensor, a *kernels.Attend) {
	kernels.CheckAttention("ObserveAttention", out, lse, a)
	kernels.CheckObservedScores("ObserveAttention", logScore, lse, a)
	d.countAttention(a, attentionProducts(out))
	if k := a.Kept; k != nil {
		numbers := int(d.KeptBytes(a.Rows(), a.Heads(), a.KVHeads(), a.MostEntries()) / 4)
		if numbers > 0 && (k.Counted == nil || k.Counted.Len() < numbers) {
			k.Counted = d.Alloc(kernels.F32, numbers)
		}
	}
	d.temp(cuda.ObserveAttentionScratch(a, out != nil, d.traits.Processors))
}

func (d *Counter) MergeScores(acc, other *kernels.Tensor, wAcc, wOther float64) {}

func (d *Counter) AttentionGrad(dq, dk, dv *kernels.Tensor, a *kernels.Attend, out, lse, logScore, dOut, dLogScore *kernels.Tensor) {
	kernels.CheckAttentionGrad(dq, dk, dv, a, out, lse, logScore, dOut, dLogScore)
	d.countAttention(a, attentionProducts(dOut)) // of the queries; their own pairs are few
	d.temp(cuda.GradScratch(a, d.traits))
}

func (d *Counter) ScoreKL(loss, dLogScore, logScore, logTarget *kernels.Tensor, weight float64)  {}
func (d *Counter) ScoreMSE(loss, dLogScore, logScore, logTarget *kernels.Tensor, weight float64) {}
func (d *Counter) AdamW(p, g, m, v *kernels.Tensor, step kernels.AdamWStep)                      {}
func (d *Counter) SumSquares(t *kernels.Tensor) float64                                          { return 0 }
