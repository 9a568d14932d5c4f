package kernels

import (
	"context"
	"time"

	"glimpse/internal/collective"
)

// DeviceInfo says what a backend computes on.
type DeviceInfo interface {
	// Name is the registered name.
	Name() string
	// Device is the name that Open takes: cuda:0, cpu.
	Device() string
	// Model is the name of the device, on the host of the arithmetic: what results depend on.
	Model() string
	// Compute is the type of activations, F32 or F64.
	Compute() DType
	// Traits is what the memory that its operations take depends on.
	Traits() Traits
	// Exact is the backend of the same device that rounds nothing to less than the type of activations for a product's sake: rows,
	// or weights of blocks. The error says that the device has none.
	Exact() (Backend, error)
	// SameRows is the least number of rows among which Linear gives each the bits that it has among so
	// many rows, and so for all numbers between.
	SameRows(rows int) int
}

// Memory is where tensors lie.
type Memory interface {
	Allocator

	// OwnMemory tells that the backend does not compute on host memory.
	OwnMemory() bool
	// Place returns host tensor t as operations take it: t itself where the backend
	// computes on host memory, a copy in its own memory otherwise, of type Placed.
	Place(t *Tensor) *Tensor
	// Placed is the type in which tensors of a type are held: itself, or BF16 of blocks that
	// the backend does not multiply by.
	Placed(d DType) DType
	// ArenaLayout is how an Arena cuts its memory.
	ArenaLayout() ArenaLayout
	// Free ends the life of tensors that the backend has allocated, and to which nothing
	// refers any more. It need not be called: without it the garbage collector finds them.
	Free(ts []*Tensor)
	// Connect connects the device with the devices of the other ranks of g, which all call it;
	// nil where the memory is the host's. The error is a *NoLinkError where there is no
	// way between them.
	Connect(ctx context.Context, g collective.Group) (Link, error)
	// KeptBytes is what Attend.Kept holds on the host after ObserveAttention of so many rows
	// and entries. What a device keeps is counted as its memory.
	KeptBytes(rows, heads, kvHeads, entries int) int64
	// Wait waits until all work that was asked for is done.
	Wait()
}

// Measuring is how a device measures its own time and counts its memory.
type Measuring interface {
	// Time is the time from before f's work to its end, on a device by events in the
	// order of the work: it contains waits for the host. It returns f's error.
	Time(f func() error) (time.Duration, error)
	// Memory is what a device's memory is used for, after a garbage collection; all 0 on
	// the host, whose memory is not the backend's.
	Memory() MemoryUse
	// ResetPeak gives free memory back to the driver and makes MemoryUse.Peak what is
	// held now.
	ResetPeak()
	// LimitMemory bounds MemoryUse.Held to so many bytes, 0 to what there is, and
	// returns a function that undoes it. GLIMPSE_CUDA_MEMORY does so from the start.
	// The host has no limit.
	LimitMemory(bytes int64) (restore func())
}

// Products are the matrix products.
type Products interface {
	// Linear computes y [m, out] = alpha · x [m, in] · w [out, in]ᵀ + bias [out] +
	// beta · y. bias may be nil; y is not read where beta is 0.
	Linear(y, x, w, bias *Tensor, alpha, beta float64)
	// MatMul computes c [m, n] = alpha · a [m, k] · b [k, n] + beta · c, where b
	// may be a weight: with w [out, in] it is the gradient of Linear's input.
	MatMul(c, a, b *Tensor, alpha, beta float64)
	// MatMulTA computes c [m, n] = alpha · a [k, m]ᵀ · b [k, n] + beta · c, the
	// gradient of a weight.
	MatMulTA(c, a, b *Tensor, alpha, beta float64)

	// LinearGroup computes linear layers of the same rows x [rows, k]: few rows, which wait
	// for the weights alone, in one launch.
	LinearGroup(x *Tensor, layers ...LinearRows)
	// GatedLinear computes y [rows, n] = SiLUMul of two linear layers of rows x [rows, k],
	// whose own Y are not used. Results in between are allocated by temp.
	GatedLinear(y, x *Tensor, gate, up LinearRows, temp Allocator)
	// TakesExperts tells that the backend has FewExperts of so many rows. Else the host routes, and rows are grouped by
	// expert.
	TakesExperts(rows int, e *FewExperts) bool
	// FewExperts computes y [n, out], whose rows after the first ones are 0, of x [n, k]: scale times the sum over the
	// experts that a row's logits [n, experts] choose, and the shared one, weighed with the logistic function of gates
	// [n, 1] or 1. A row has the same bits among all numbers of rows that TakesExperts takes, and what a recorded graph
	// holds serves for whatever is chosen. Results in between are allocated by temp.
	FewExperts(y, x, logits, gates *Tensor, e *FewExperts, rows int, scale float64, temp Allocator)
	// RoundsToBF16 tells that Linear rounds so many rows to BF16 before it multiplies them
	// by w. Then they may be in BF16: norms, SiLUMul and GELU write that, once for all
	// products that read it, and Linear reads it, with the bits of rounding afterwards.
	RoundsToBF16(rows int, w *Tensor) bool

	// AddLowRank computes y [rows, out] += scale · (x [rows, in] · a [rank, in]ᵀ) ·
	// b [out, rank]ᵀ. x may be in BF16 where RoundsToBF16 says so. Results in between are
	// allocated by temp.
	AddLowRank(y, x, a, b *Tensor, scale float64, temp Allocator)
	// LowRank is a linear layer with a low-rank update (Hu et al. 2022, arXiv:2106.09685,
	// eq. 3): low [m, r] = x [m, in] · a [r, in]ᵀ and y [m, out] = x · w [out, in]ᵀ +
	// bias + scale · low · up [out, r]ᵀ. bias may be nil.
	LowRank(y, low, x, w, bias, a, up *Tensor, scale float64)
	// LowRankGrad computes from dy [m, out], at x and low, with dLow [m, r] = scale · dy · up:
	// dx [m, in] = dy · w + dLow · a, da [r, in] = dLowᵀ · x, dup [out, r] = scale · dyᵀ · low.
	LowRankGrad(dx, dLow, da, dup, dy, x, low, w, a, up *Tensor, scale float64)
}

// LinearRows is a linear layer and its output: Y [rows, n], Weight [n, k] as stored, Bias
// [n] or nil.
type LinearRows struct {
	Y, Weight, Bias *Tensor
}

// Elements are the operations on elements and rows.
type Elements interface {
	// Fill sets every element of y.
	Fill(y *Tensor, value float64)
	// Copy copies x, which may lie in the memory of another backend, into y of this one, of the same type and length: what goes from one
	// device of a model to the next, too.
	Copy(y, x *Tensor)
	// Gather copies rows ids of table [vocab, width] into y [len(ids), width]. y may
	// be the first rows of table where ids ascend, which compacts it in place.
	Gather(y, table *Tensor, ids []int32)
	// CopyHead copies head h of x [rows, heads, headDim] into y [rows, headDim].
	CopyHead(y, x *Tensor, h int)
	// CopyPairs is CopyHead of every head of k and v [rows, heads, headDim] into dst, of
	// which each has rows pairs.
	CopyPairs(dst []KV, k, v *Tensor)
	// Add computes y = a + b; y may be a or b.
	Add(y, a, b *Tensor)
	// Axpy computes y += alpha · x.
	Axpy(y *Tensor, alpha float64, x *Tensor)
	// AddRows adds weights[i] · x[i] to row rows[i] of y, for every i: y, x [at least len(rows)] are rows of one
	// width, and no row of y is named twice.
	AddRows(y, x *Tensor, rows []int32, weights []float64)

	// SiLUMul computes y = gate · sigmoid(gate) · up.
	SiLUMul(y, gate, up *Tensor)
	// SiLUMulGrad computes the gradients of both inputs from dy.
	SiLUMulGrad(dgate, dup, gate, up, dy *Tensor)
	// GateMul is what a gate lets through; y may be in BF16, as that of SiLUMul.
	GateMul(act Gate, y, gate, up *Tensor)
	// GateMulGrad computes the gradients of both inputs from dy.
	GateMulGrad(act Gate, dgate, dup, gate, up, dy *Tensor)
	// SoftCap computes y = limit · tanh(x / limit); y may be x.
	SoftCap(y, x *Tensor, limit float64)
	// GELU computes y = x · Φ(x), Φ the standard normal distribution function.
	GELU(y, x *Tensor)
	// GELUGrad computes dx from dy at x.
	GELUGrad(dx, x, dy *Tensor)
}

// Norms are the norms of rows, and rotations.
type Norms interface {
	// Norm normalises every row of x [rows, width] as n says and writes it to y, which may be x. With
	// add [rows, width], or nil, x becomes x + add first: what comes between two blocks of a network.
	Norm(y, x, add *Tensor, n Norm)
	// NormGrad computes dx from dy at x.
	NormGrad(dx, x, dy *Tensor, n Norm)

	// RoPE writes x [rows, heads, headDim], rotated by the angles of table at positions pos [rows], to y, which may
	// be x: with c, s the cosine and sine of angle i,
	// (x_i, x_{i+d/2}) becomes (c·x_i − s·x_{i+d/2}, s·x_i + c·x_{i+d/2}). d is twice the
	// table's width, and headDim at most: later dimensions stay as they are.
	// inverse rotates back, which is also its gradient.
	RoPE(y, x *Tensor, pos []int32, table *RoPETable, inverse bool)
	// RotateHeads is RMSNorm of every head of q [rows, heads, headDim] and k [rows, kvHeads,
	// headDim] where norms has a weight [headDim], and RoPE of all of it, in place.
	RotateHeads(q, k *Tensor, norms HeadNorms, pos []int32, table *RoPETable)
	// RoPETable is the table of NewRoPETable.
	RoPETable(freqs []float32, positions int, scale float64) *RoPETable
}

// Norm is how rows are normalised: x / sqrt(mean(x²) + Eps) · Weight (RMSNorm), or with a Bias
// (x − mean(x)) / sqrt(var(x) + Eps) · Weight + Bias (LayerNorm). Weight and Bias are [width].
type Norm struct {
	Weight, Bias *Tensor
	Eps          float64
}

// HeadNorms are the weights [headDim] of RMSNorm of queries and keys, or nil.
type HeadNorms struct {
	Query, Key *Tensor
	Eps        float64
}

// Attention is softmax attention, what is learned of it, and its gradient.
type Attention interface {
	// TakesBias is nil where attention adds KV.Bias to logits; else it says that the device does not.
	TakesBias() error
	// Attention computes softmax attention, tile by tile with an online softmax:
	// out [rows, heads·headDim], and lse [heads, rows], the logarithm of each
	// row's softmax denominator over all entries it sees and its head's sink. Either may be nil.
	Attention(out, lse *Tensor, a *Attend)
	// AttentionSelected is Attention of a single row, which is the last entry of every
	// head of Past, over the selected entries of every KV head: of each at least one that
	// the row sees, and no other where the selection is on a device. a.V is not read, and
	// out, lse [heads, 1] are as of Attention over these entries alone. Either may
	// be nil. What a backend that cannot read them where they lie gathers is allocated by
	// temp.
	AttentionSelected(out, lse *Tensor, a *Attend, s *Selection, temp Allocator)
	// ObservedScores computes the logarithm of the mean over rows of the
	// attention probabilities on every entry of Past: logScore[h, j] =
	// log(1/rows · Σ_r exp(logit_rj − lse_r)), entries that row r does not see
	// counting as zero. logScore is [heads, width] with width at least the
	// entries of each head; columns past a head's entries are not written. This
	// is the one reduction that the losses train and the policies select by
	// (LookaheadKV, arXiv:2603.10899, eq. 2; Judge Q, arXiv:2509.10798, eq. 3).
	ObservedScores(logScore, lse *Tensor, a *Attend)
	// ObserveAttention is Attention followed by ObservedScores, in one pass over the
	// cache where the device can. out may be nil.
	ObserveAttention(out, lse, logScore *Tensor, a *Attend)
	// ObservedPeaks is ObservedScores of the largest probability of any row in the place of their mean: logScore[h, j] =
	// max_r (logit_rj − lse_r), −Inf where no row sees an entry and past a head's entries (KVzip, arXiv:2505.23416, eq. 2, by query head). What a
	// backend without a kernel for it needs is allocated by temp.
	ObservedPeaks(logScore, lse *Tensor, a *Attend, temp Allocator)
	// MergeScores combines two observations of the same heads and width: acc =
	// log((wAcc · exp(acc) + wOther · exp(other)) / (wAcc + wOther)); −Inf is the
	// logarithm of an unseen column.
	MergeScores(acc, other *Tensor, wAcc, wOther float64)
	// AttentionGrad computes the gradients of the rows' own queries, keys and
	// values (a.K is required) from dOut [rows, heads·headDim] and dLogScore
	// [heads, entries], either may be nil, at the out, lse and logScore
	// that Attention and ObservedScores gave. dv may be nil where dOut is.
	AttentionGrad(dq, dk, dv *Tensor, a *Attend, out, lse, logScore, dOut, dLogScore *Tensor)
}

// Losses are what adapters are trained by.
type Losses interface {
	// ScoreKL adds weight · Σ_h KL(p_h ‖ s_h) to the F64 scalar loss, where p_h
	// and s_h are exp(logTarget[h]) and exp(logScore[h]) normalised to sum 1
	// (LookaheadKV, arXiv:2603.10899, eq. 5), and writes dLogScore, its gradient. Both are [heads, n]
	// as ObservedScores writes them; logarithms, because a head that looks elsewhere
	// has targets too small for a float32, which still have shares. A head whose
	// target is nothing but −Inf adds 0.
	ScoreKL(loss, dLogScore, logScore, logTarget *Tensor, weight float64)
	// ScoreMSE adds weight · Σ_{h,j} (exp(logTarget) − exp(logScore))² to loss
	// (Judge Q, arXiv:2509.10798, eq. 5) and writes dLogScore.
	ScoreMSE(loss, dLogScore, logScore, logTarget *Tensor, weight float64)
}

// Optimizer updates parameters. The Multi operations take all tensors of an adapter
// at once: of large models they are hundreds of small ones, and a call for each would take
// longer than its work.
type Optimizer interface {
	// AdamW updates parameter p and moments m, v from gradient g.
	AdamW(p, g, m, v *Tensor, step AdamWStep)
	// SumSquares is Σ t², in float64 and in index order.
	SumSquares(t *Tensor) float64

	// MultiFill sets every element of all ts.
	MultiFill(ts []*Tensor, value float64)
	// MultiAxpy computes ys[i] += alpha · xs[i].
	MultiAxpy(ys []*Tensor, alpha float64, xs []*Tensor)
	// MultiSumSquares is sum + Σ t² over all ts, in float64 and in an order that their sizes
	// decide: lists one after the other, which may be on several devices, give what all at
	// once do.
	MultiSumSquares(sum float64, ts []*Tensor) float64
	// MultiAdamW updates parameters ps and moments ms, vs from gradients gs.
	MultiAdamW(ps, gs, ms, vs []*Tensor, step AdamWStep)
}

// AdamWStep holds the scalars of one AdamW update (Loshchilov & Hutter 2019,
// algorithm 2) after bias correction is folded in.
type AdamWStep struct {
	Beta1, Beta2 float64
	Correct1     float64 // 1 − Beta1^t
	Correct2     float64 // 1 − Beta2^t
	Epsilon      float64
	LearningRate float64
	WeightDecay  float64 // decoupled: p −= LearningRate · WeightDecay · p
	GradScale    float64 // multiplies g first: clipping and averaging
}

// Sampler chooses tokens.
type Sampler interface {
	// Draw chooses a token from each row of logits [rows, vocab]; −1 stands for a row
	// that is not finite.
	Draw(logits *Tensor, draws []Draw) []int32
	// DrawsInPlace tells that Draw reads logits where they lie, so that the host need not
	// have them.
	DrawsInPlace() bool
}
