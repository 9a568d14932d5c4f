package kernels

import (
	"fmt"
	"slices"

	"glimpse/internal/registry"
)

// Backends lists the constructors of all backends by name.
var Backends = registry.Registry[func() (Backend, error)]{Noun: "device"}

// Open makes the named backend; "cuda:N" is the N-th device of its kind. The name
// "auto" is resolved by ChooseDevice.
func Open(name string) (Backend, error) {
	if ordinal, ok, err := cudaOrdinal(name); err != nil {
		return nil, err
	} else if ok {
		return cudaDevices.Open(ordinal)
	}
	if !slices.Contains(Backends.Names(), name) {
		return nil, unknownDevice(name)
	}
	open, err := Backends.Lookup(name)
	if err != nil {
		return nil, err
	}
	return open()
}

// Backend is a device: memory and the operations of the forward pass, of decoding steps,
// of the adapters' backward pass and of the optimiser. Operations read and write the
// backend's own tensors; activations have type Compute, the weights of matrix
// products and embedding tables F32, BF16, F16, blocks (see Placed) or Compute, all other operands
// type Compute, but for the pairs of a cache (KV), which may also be BF16 or, on
// host memory, blocks that can be written, and which Copy, Gather, CopyHead and CopyPairs fill. A
// product with bfloat16 weights may round its other operand to bfloat16, one with blocks too, or to bytes; sums are always of type Compute.
// Outputs must not overlap inputs unless an operation says so.
//
// Every backend has every operation. What can be done by simpler ones is written once, in
// [Decomposed], which backends embed; they override what they do better, with the same bits
// unless an operation says otherwise.
//
// Operations panic on shapes that do not fit, which is a programmer's error;
// whatever comes from a file is checked before it gets here.
type Backend interface {
	DeviceInfo
	Memory
	Measuring

	Products
	Elements
	Norms
	Attention
	Losses
	Optimizer
	Sampler

	// NewGraph returns an empty graph of recorded work; nil where there are none, or
	// GLIMPSE_CUDA_GRAPHS=0 switches them off.
	NewGraph() Graph
	// Selector is what scores and selects entries of a cache: the backend where it does so
	// in its own memory, else its HostSelector.
	Selector() Selector
	// HostSelector is what scores and selects them on the host.
	HostSelector() Selector
}

// WindowBlock is the number of entries in which a cache frees those that have left a sliding window: tiles of
// attention divide it, and entries that no row sees any more change no bit.
const WindowBlock = 512

// KV is the keys and values that one KV head of one layer keeps, each
// [entries, headDim], in ascending order of position.
type KV struct {
	K, V *Tensor
	// Positions [entries] are read where a sliding window is set; nil means 0, 1, 2…
	Positions []int32
	// Bias [n], of the compute type, is added to the logits of the first n entries, after a soft cap. Later entries have none, and nil is
	// none at all. Only backends whose TakesBias is nil read it, and AttentionGrad takes none.
	Bias *Tensor
}

// Entries is the number of pairs kept.
func (kv KV) Entries() int { return kv.K.Dim0() }

// First are the first n pairs.
func (kv KV) First(n int) KV {
	if kv.K = kv.K.Rows(0, n); kv.V != nil {
		kv.V = kv.V.Rows(0, n)
	}
	if kv.Positions != nil {
		kv.Positions = kv.Positions[:n]
	}
	if kv.Bias != nil && kv.Bias.Len() > n {
		kv.Bias = kv.Bias.Rows(0, n)
	}
	return kv
}

// Biased is the number of first entries that have a bias.
func (kv KV) Biased() int {
	if kv.Bias == nil {
		return 0
	}
	return kv.Bias.Len()
}

// NoBiases is the error of a device whose attention reads no KV.Bias.
func NoBiases(device string) error {
	return fmt.Errorf("device %s: attention takes no biases of entries, want device cpu for them", device)
}

// BiasedAmong is how many of the entries at ascending indices have a bias: the first ones.
func (kv KV) BiasedAmong(ids []int32) int {
	n, _ := slices.BinarySearch(ids, int32(kv.Biased()))
	return n
}

// Attend describes rows of queries that attend to a cache.
//
// Query head h reads KV head h / (heads / len(Past)). Where K and V are nil, the
// rows are the last entries of every head of Past, and row r sees the entries up
// to its own. Where K and V are given, they are the rows' own pairs, which are
// not in Past: row r sees all of Past and own pairs 0…r.
type Attend struct {
	Q     *Tensor // [rows, heads, headDim], rotated
	Past  []KV    // one per KV head
	K, V  *Tensor // [rows, kvHeads, headDim], or nil; V may be nil where no output is asked for
	Scale float64 // of the logits, usually headDim^-1/2

	// SoftCap, where it is positive, bounds the scaled logits: they become SoftCap ·
	// tanh(logit / SoftCap) (Gemma 2, arXiv:2408.00118, §2).
	SoftCap float64
	// Sinks [heads] are a logit of each query head that counts in the softmax's denominator,
	// and so in lse, and has no value (gpt-oss, arXiv:2508.10925, §2.1.1); nil: none.
	Sinks *Tensor

	// Window, where it is positive, is a sliding window: of all that it would see, a row
	// sees only the pairs at its own position and at the Window−1 positions before it.
	Window    int
	Positions []int32 // of the rows and of K and V, ascending; needed with a window

	// Kept is memory for a device to keep what it computed in ObserveAttention and
	// would compute again in AttentionGrad. Nil keeps nothing.
	Kept *Kept
}

// Kept is what ObserveAttention leaves for AttentionGrad of the same Attend: the memory is
// reused from call to call, its contents are the backend's own business.
type Kept struct {
	Logits  []float32 // per KV head [rows·group, entries], less the row's lse
	Valid   bool      // since ObserveAttention of this Attend
	Counted *Tensor   // of a backend that only counts memory: what Logits would take
}

// Rows, Heads, KVHeads, HeadDim and Group (query heads per KV head) read the
// extents off the tensors.
func (a *Attend) Rows() int    { return a.Q.Shape[0] }
func (a *Attend) Heads() int   { return a.Q.Shape[1] }
func (a *Attend) HeadDim() int { return a.Q.Shape[2] }
func (a *Attend) KVHeads() int { return len(a.Past) }
func (a *Attend) Group() int   { return a.Heads() / a.KVHeads() }

// MostEntries is how many the KV head has that has most in Past.
func (a *Attend) MostEntries() (n int) {
	for _, kv := range a.Past {
		n = max(n, kv.Entries())
	}
	return n
}

// Visible are the entries [from, to) of KV head g that row r sees in Past. Both
// ends ascend with r.
func (a *Attend) Visible(g, r int) (from, to int) {
	to = a.Past[g].Entries()
	if a.K == nil {
		to = max(0, to-(a.Rows()-1-r))
	}
	if a.Window <= 0 {
		return 0, to
	}
	first := int(a.Positions[r]) - a.Window + 1
	if p := a.Past[g].Positions; p != nil {
		from, _ = slices.BinarySearch(p, int32(max(0, first)))
	} else {
		from = max(0, first)
	}
	return min(from, to), to
}

// VisibleOwn are the own pairs [from, to) that row r sees.
func (a *Attend) VisibleOwn(r int) (from, to int) {
	if a.K == nil {
		return 0, 0
	}
	if a.Window > 0 {
		for a.Positions[from] <= a.Positions[r]-int32(a.Window) {
			from++
		}
	}
	return from, r + 1
}
