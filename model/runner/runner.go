package runner

import (
	"context"
	"fmt"

	"glimpse/internal/simd"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
)

// Runner runs a model on one goroutine and owns the scratch memory of its
// passes.
type Runner struct {
	Model  *model.Model
	on     kernels.Backend // of its operations
	arena  *kernels.Arena  // in the memory of on
	stages []*Runner       // one for each device of the model; callers have the first
	batch  batchPass       // of StepBatch

	// Decoding steps as graphs: stepped is the rows of those that were taken without,
	// noGraph where the device has none.
	recorded *recordedSteps
	stepped  int
	noGraph  bool
	prepares bool // it prepares segments of a recorded step
}

// New returns a runner with empty scratch memory.
func New(m *model.Model) *Runner { return newStages(m)[0] }

// ScratchBytes is the scratch memory that the passes so far have needed.
func (r *Runner) ScratchBytes() (n int64) {
	for _, s := range r.stages {
		n += s.arena.Bytes()
	}
	return n
}

// Progress is told of a pass over several tokens when it begins. What it returns is told how many more of the tokens
// are done, each layer doing its share of them. That may be called concurrently where a model is on several devices.
type Progress func(tokens int) (done func(more int))

// PrefillOptions are the settings of one pass over a prompt.
type PrefillOptions struct {
	// Chunk is how many rows go through a layer at once; 0 is what suits the backend.
	Chunk int
	// Capture and Observe: what is observed, and by whom.
	Capture Capture
	Observe Observer
	// Pipelined lets the chunks of a prompt follow each other through the devices of a model
	// that has several, each with chunks of its own at the same time. The caches of all
	// layers are then full before the first is observed, and of them an observer reads only
	// that of the layer which it is told of. Without an observer it is always so.
	Pipelined bool
	// Prefix (may be nil) is the first tokens of the prompt, before those that run: its pairs enter every
	// layer of the cache, which is at their end and otherwise empty, when the layer's turn has come.
	Prefix *kvcache.Prefix
	// LogProbs (may be nil) is told what the model gives to the tokens of the prompt that run.
	LogProbs *PromptLogProbs
	// Progress may be nil.
	Progress Progress
	// CacheOnly computes keys and values and nothing that only logits need.
	CacheOnly bool

	// appendProbes runs probes with the last rows wherever; for tests.
	appendProbes bool
}

// Prefill runs tokens at the positions that follow those in the cache, appends
// their keys and values, and returns the logits [vocab] of the last one; nil
// with CacheOnly. All rows go through one layer before the next layer runs.
//
// It fails without a change of the cache on an empty prompt, a token outside the
// vocabulary or a prompt that does not fit the context (ErrContext); after any
// later error, from ctx or an observer, the cache is unusable.
func (r *Runner) Prefill(ctx context.Context, cache *kvcache.Cache, tokens []int32, opt PrefillOptions) (logits []float32, err error) {
	l, err := r.Forward(ctx, cache, tokens, opt)
	if err != nil || l == nil {
		return nil, err
	}
	return l.Float32s()
}

// Forward is Prefill that leaves the logits where they were computed, and does not
// wait for them on a device that samples.
func (r *Runner) Forward(ctx context.Context, cache *kvcache.Cache, tokens []int32, opt PrefillOptions) (logits *Logits, err error) {
	defer kernels.CatchDevice(&err)
	m := r.Model
	if err := checkTokens(m, cache, tokens); err != nil {
		return nil, err
	}
	cache.Begin(len(tokens))
	if cap := opt.Capture; opt.Observe == nil && (len(cap.Windows)+len(cap.PeakWindows)+len(cap.afterPrompt()) > 0 || cap.Squares || cap.everyRow()) {
		return nil, fmt.Errorf("prefill: something is captured but there is no observer")
	}
	r.release()
	defer r.release()

	n := len(tokens)
	p := r.newPrefillPass(ctx, cache, opt, tokens)
	if opt.Progress != nil && n > 1 {
		p.done = opt.Progress(n)
	}
	cache.BeginPrefill()
	defer cache.EndPrefill()
	last, err := p.runStages(ctx)
	if err != nil {
		return nil, err
	}
	cache.Advance(n)
	if opt.CacheOnly {
		return nil, nil
	}
	return last.logits(last.last)
}

// ObserveQueries returns the scores [heads, entries] that given queries [rows,
// heads, headDim] of each of the layers that read a layer's pairs, with own keys [rows, kvHeads, headDim], all rotated to the
// positions that follow the cache, pay to it, joined as in an Observation. The result is the
// caller's.
func (r *Runner) ObserveQueries(cache *kvcache.Cache, layer int, queries []*kernels.Tensor, keys *kernels.Tensor) *kernels.Tensor {
	r.release()
	defer r.release()
	on := r.layerRunner(layer)
	var scores *kernels.Tensor
	for i, reader := range r.Model.Config.Readers(layer) {
		a := on.attend(cache, reader, queries[i], kvcache.Positions(cache.Next(), keys.Dim0()))
		a.K = keys
		if one, _ := on.observeAttention(nil, a, false, on.on); i == 0 {
			scores = one
		} else {
			on.on.MergeScores(scores, one, float64(i), 1)
		}
	}
	return scores
}

func checkTokens(m *model.Model, cache *kvcache.Cache, tokens []int32) error {
	if len(tokens) == 0 {
		return fmt.Errorf("prefill: empty prompt, want at least 1 token")
	}
	for i, id := range tokens {
		if id < 0 || int(id) >= m.Config.Vocab {
			return fmt.Errorf("prefill: token %d: id %d, want 0 to %d", i, id, m.Config.Vocab-1)
		}
	}
	if end := int(cache.Next()) + len(tokens); end > m.Config.MaxPositions {
		return fmt.Errorf("prefill: %d tokens at position %d, want at most %d: %w", len(tokens), cache.Next(), m.Config.MaxPositions, model.ErrContext)
	}
	return nil
}

func (r *Runner) alloc(shape ...int) *kernels.Tensor {
	return r.arena.Alloc(r.on.Compute(), shape...)
}

// logits applies the head to the normalised row h [1, hidden]. They stay on a device that samples; others go to the host.
func (r *Runner) logits(h *kernels.Tensor) (*Logits, error) {
	m, memory := r.Model, kernels.Allocator(r.arena)
	if samplesOnDevice(m) { // they outlive the pass
		memory = r.on
	}
	y := memory.Alloc(r.on.Compute(), 1, m.Config.Vocab)
	headLogits(m, r.on, y, h)
	if samplesOnDevice(m) {
		return &Logits{device: y, model: m}, nil
	}
	logits := y.Float32s()
	return HostLogits(logits), checkLogits(m, logits)
}

// finite reports whether all of x are neither NaN nor infinite.
func finite(x []float32) bool {
	if sum := simd.Sum(x); sum-sum == 0 {
		return true
	}
	for _, v := range x { // the sum of large numbers may be infinite
		if v-v != 0 {
			return false
		}
	}
	return true
}

func (r *Runner) norm(x *kernels.Tensor, n model.Norm) *kernels.Tensor {
	return r.normInto(r.alloc(x.Dim0(), x.Width()), x, n)
}

// normInto writes x through n to h, or, with the zero Norm, x.
func (r *Runner) normInto(h, x *kernels.Tensor, n model.Norm) *kernels.Tensor {
	if n.Weight == nil {
		r.on.Copy(h, x)
	} else {
		r.on.Norm(h, x, nil, n.Of(&r.Model.Config))
	}
	return h
}

// addNorm adds delta to the residual stream x and writes the norm of the sum to h, or, with the zero Norm, the sum.
func (r *Runner) addNorm(h, x, delta *kernels.Tensor, n model.Norm) {
	if n.Weight == nil {
		r.on.Add(x, x, delta)
		r.on.Copy(h, x)
	} else {
		r.on.Norm(h, x, delta, n.Of(&r.Model.Config))
	}
}
