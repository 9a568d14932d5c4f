package eviction

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// Session is a conversation with an evicted cache: after a turn's prompt has run
// and was evicted it is ready to decode the answer, and then for the next turn,
// whose prompt is appended to what the policy kept.
type Session struct {
	Prompt Prompt // of the last turn
	Cache  *kvcache.Cache
	// Budget is what the next turns keep. A share is of the whole conversation up to the
	// end of a turn's prompt, evicted or not, so that it grows from turn to turn.
	Budget Budget
	// CacheSalt tells prompts apart that may not share their first tokens (Runtime.Prefixes): prompts of one salt may.
	CacheSalt string
	// LogProbs (may be nil) is told what the model gives to the tokens of the next turns' prompts, which is what it gives with
	// nothing evicted: a layer is evicted when all rows have gone through it. Such prompts run whole, whatever others share.
	LogProbs *runner.PromptLogProbs
	// Pool are the indices that decoding is restricted to, where the plan keeps all; else nil.
	Pool [][][]int32

	// PrefillTime is the time to first token of the turn: the whole pass, with
	// everything that the policy adds to it, eviction included.
	PrefillTime time.Duration
	// Reused are the first tokens of the prompt whose pairs were there (Runtime.Prefixes).
	Reused int
	// FullBytes is what the cache of the whole conversation up to the prompt's end
	// would take, PeakBytes the most that the cache, and the copy that a draft is
	// decoded on, held on the way.
	FullBytes, PeakBytes int64
	// Traffic is what the decoding steps of the last turn have read.
	Traffic Traffic

	runtime *Runtime
	policy  *Configured
	history []int32 // all tokens that were run
	pending []int32 // the last generated token, which was not run
	turns   int
	ready   bool // a prompt has run and was not answered

	logits     *runner.Logits
	kept       []*kernels.Selection
	scores     []*Scores
	budgets    []int             // of every layer, where they differ
	thresholds []*kernels.Tensor // by layer, where entries merge
	decode     *Decoding         // nil: nothing is evicted while decoding
	sparse     SparseState
	stepBytes  []int64              // that the steps so far have read, of sparse policies
	stepKept   []*kernels.Selection // of a step, by layer, until all of them are known
	watched    finite               // of the steps
}

// Kept are, per layer and KV head (nil of layers that the policy leaves alone), the indices of the entries that were kept of those
// before the eviction: in the first turn the prompt's, later those that the turns
// before have left and then the prompt's. Where nothing is evicted they are the pool. They and the scores come from the device
// when they are asked for, which panics with a *kernels.DeviceError where that fails.
func (s *Session) Kept() [][][]int32 { return indicesOf(s.kept) }

// Holding is what some layers of a cache hold.
type Holding struct {
	Layers  int     // that hold keys and values
	Entries float64 // per KV head, the mean over their heads; 0 without layers
}

// Holdings are what the layers hold that the policy decides about, to which budgets apply, and those whose sliding window decides.
func (s *Session) Holdings() (decided, windowed Holding) {
	for l, heads := range s.Cache.Lengths() {
		if len(heads) == 0 {
			continue
		}
		of := &windowed
		if s.Prompt.decides(l) {
			of = &decided
		}
		n := 0
		for _, entries := range heads {
			n += entries
		}
		of.Entries += float64(n) / float64(len(heads))
		of.Layers++
	}
	decided.Entries /= float64(max(1, decided.Layers))
	windowed.Entries /= float64(max(1, windowed.Layers))
	return decided, windowed
}

// KeptCounts is the number of heads, of all layers, that keep each of so many tokens; kept has
// the positions by layer and KV head.
func KeptCounts(kept [][][]int32, tokens int) []int {
	out := make([]int, tokens)
	for _, layer := range kept {
		for _, positions := range layer {
			for _, p := range positions {
				out[p]++
			}
		}
	}
	return out
}

// Scores are those that the entries were kept by, [layer][kvHead][entry]; nil where the
// prompt fits the budget and nothing was scored.
func (s *Session) Scores() [][][]float32 { return hostScores(s.scores) }

// NewSession begins a conversation under a policy with a budget.
func (rt *Runtime) NewSession(named *Configured, budget Budget) (*Session, error) {
	if err := budget.Check(); err != nil {
		return nil, err
	}
	m := rt.model
	if err := named.Fits(m); err != nil {
		return nil, err
	}
	s := &Session{
		Prompt:  Prompt{Config: &m.Config, Tokenizer: m.Tokenizer, Windows: named.evictsWindows()},
		Budget:  budget,
		runtime: rt, policy: named,
	}
	s.Cache = s.newCache()
	return s, nil
}

// newCache is an empty cache of the layers that the policy decides about.
func (s *Session) newCache() *kvcache.Cache {
	c := kvcache.New(s.Model())
	if s.Prompt.Windows {
		c.HoldWindows()
	}
	return c
}

// Prefill runs a prompt and evicts its cache to budget entries per KV head and
// layer; a budget of the prompt's length or more keeps everything. response is
// the true response, for a policy that may know it; where such a policy gets
// none, the model's own greedy response with the full cache, of up to rt.MaxNew
// tokens, is generated first.
func (rt *Runtime) Prefill(ctx context.Context, named *Configured, tokens []int32, budget int, response []int32) (*Session, error) {
	s, err := rt.NewSession(named, Pairs(budget))
	if err != nil {
		return nil, err
	}
	if err := s.Turn(ctx, tokens, response); err != nil {
		return nil, err
	}
	return s, nil
}

// Turn appends the prompt of one more turn and evicts, as Prefill does. The last
// token that was generated comes first, since no step has run it. After an error
// the session is unusable.
func (s *Session) Turn(ctx context.Context, tokens, response []int32) (err error) {
	defer kernels.CatchDevice(&err) // in operations of policies between passes
	rt := s.runtime
	if s.turns > 0 && len(tokens) == 0 {
		return fmt.Errorf("turn: empty prompt, want at least 1 token")
	}
	if err := s.Budget.Check(); err != nil {
		return fmt.Errorf("turn: %w", err)
	}
	tokens = slices.Concat(s.pending, tokens)
	p := &s.Prompt
	p.Tokens, p.MaxNew, p.Entries, p.From = tokens, rt.MaxNew, len(tokens)+s.mostEntries(), int(s.Cache.Next())
	p.Budget = s.Budget.Of(p.From + len(tokens))
	p.Response, p.Draft, p.Drafted = response, nil, 0
	s.FullBytes, s.PeakBytes, s.Traffic = 0, 0, Traffic{}
	r := newRequest(s.policy, *p)
	if r.plan.NeedsResponse && response == nil && !p.fits() {
		if p.Response, err = rt.ownResponse(ctx, slices.Concat(s.history, tokens)); err != nil {
			return err
		}
		r.know(func(own *Prompt) { own.Response = p.Response })
	}
	start := time.Now()
	if r.plan.Draft != nil && !p.fits() {
		if p.Draft, s.PeakBytes, err = rt.speculate(ctx, r.plan.Draft, slices.Concat(s.history, tokens)); err != nil {
			return err
		}
		r.know(func(own *Prompt) { own.Draft = p.Draft })
	}
	if s.decode != nil {
		r.carry = s.decode.Carry
	}
	prefix, err := s.prefix(r)
	if err != nil {
		return err
	}
	if s.Reused = 0; prefix != nil {
		defer prefix.Close()
		s.Reused = prefix.Len()
	}
	whole := r.plan.keepsAll(r.prompt.Entries, r.prompt.Budget)
	opt := runner.PrefillOptions{Capture: mergeCaptures([]*request{r}), Prefix: prefix, Pipelined: whole, LogProbs: s.LogProbs, Observe: func(o *runner.Observation) error {
		keep := r.observeLayer(o)
		s.FullBytes += s.Cache.LayerBytes(o.Layer)
		if whole || keep == nil {
			return nil
		}
		s.PeakBytes = max(s.PeakBytes, s.Cache.Bytes())
		return s.Cache.RetainSelection(o.Layer, keep)
	}}
	if s.logits, err = rt.Runner.Forward(ctx, s.Cache, tokens[s.Reused:], opt); err != nil {
		return err
	}
	s.PeakBytes = max(s.PeakBytes, s.Cache.Bytes())
	if s.turns > 0 {
		if s.FullBytes = s.Model().Config.CacheBytes(int(s.Cache.Next()), s.Cache.DType()); s.Prompt.Windows {
			s.FullBytes = int64(s.Cache.Next())*s.Model().Config.CacheBytesPerToken(s.Cache.DType()) + s.Model().Config.CacheBytes(0, s.Cache.DType())
		}
	}
	if err := r.finishSelection(rt.pause); err != nil {
		return err
	}
	if r.plan.Drafted > 0 && !r.idle() {
		held, err := rt.draft(ctx, r, s.Cache, s.logits)
		if err != nil {
			return err
		}
		p.Drafted = r.prompt.Drafted
		s.PeakBytes = max(s.PeakBytes, s.Cache.Bytes()+held)
	}
	if r.plan.waits() && !r.plan.KeepsAll && !r.idle() {
		if err := s.evict(r, rt.pause); err != nil {
			return err
		}
	}
	s.history = append(s.history, tokens...)
	s.beginDecoding(r)
	if err := s.logits.CheckFinite(); err != nil { // and wait for them
		return err
	}
	if err := r.finite(rt.Runner.Model.Backend); err != nil {
		return err
	}
	s.PrefillTime = time.Since(start)
	return s.Cache.Settle()
}

// prefix is what the session's first prompt shares with others; nil where nothing is shared.
func (s *Session) prefix(r *request) (*kvcache.Prefix, error) {
	shared, tokens := s.runtime.Prefixes, r.prompt.Tokens
	if shared == nil || s.Cache.Next() > 0 {
		return nil, nil
	}
	s.Cache.Begin(len(tokens))
	most := r.plan.reusable(len(tokens))
	if s.LogProbs != nil {
		most = 0
	}
	if err := shared.Read(s.Cache, s.CacheSalt, tokens, most, s.runtime.pause); err != nil {
		return nil, err
	}
	prefix := shared.Match(s.Cache, s.CacheSalt, tokens, most)
	s.Cache.Advance(prefix.Len())
	return prefix, nil
}

// Rewind makes the session ready for a turn after which all tokens that were run are the
// given ones, where a chat template has written what was said before in another way. It
// returns how many of their first are run already; Turn takes the rest, which has at least
// one. What was evicted does not come back, and what a policy has gathered of later tokens does
// not leave it: unless every pair is there that a layer holds before any eviction, and nothing was gathered, kept is 0 and the session
// as it began. After an error it is unusable.
func (s *Session) Rewind(tokens []int32) (kept int, err error) {
	intact := s.decode == nil && s.sparse == nil
	for _, l := range s.Prompt.layers() {
		for h := range s.Cache.KVHeads() {
			intact = intact && s.Cache.Entries(l, h) == int(s.Cache.Next())
		}
	}
	if intact {
		most := min(len(tokens)-1, len(s.history))
		for kept < most && tokens[kept] == s.history[kept] {
			kept++
		}
		if !s.Cache.Rewindable(int32(kept)) {
			kept = 0
		}
	}
	s.history, s.pending, s.ready = s.history[:kept:kept], nil, false
	if kept > 0 {
		return kept, s.Cache.Truncate(int32(kept))
	}
	s.Cache, s.decode, s.sparse, s.Pool, s.turns = s.newCache(), nil, nil, nil, 0
	return 0, nil
}

// KeepsTurns tells that the policy drops nothing of a conversation (Plan.KeepsAll): one that goes on has lost nothing to the
// turns before.
func (s *Session) KeepsTurns() bool { return s.policy.keepsTurns() }

// GoesOn is how many of the first tokens of a conversation, given whole to a session that begins, one of the same policy
// has run and said, whose next turn is the rest; 0 where it has run or said anything else, or nothing is left.
func (s *Session) GoesOn(with *Session, conversation []int32) int {
	ran, n := len(with.history), len(with.history)+len(with.pending)
	if len(s.history) > 0 || with.policy != s.policy || n >= len(conversation) || with.ready ||
		!slices.Equal(conversation[ran:n], with.pending) || !slices.Equal(conversation[:ran], with.history) {
		return 0
	}
	return n
}

// Rest frees the state beside the cache that the next turn makes anew: Bytes are then all that
// the session holds, and Kept and Scores are gone.
func (s *Session) Rest() {
	s.logits, s.kept, s.scores, s.sparse, s.Pool = nil, nil, nil, nil, nil
}

// TurnInUnits is Turn that calls pause between units (see [runner.Runner]), and ends with its error.
// Meanwhile answers of other sessions may be decoded in a [Batch]; no other prompt of the
// runtime may run. maxNew is the most tokens of the response, as of Runtime.MaxNew.
func (s *Session) TurnInUnits(ctx context.Context, tokens []int32, maxNew int, pause func() error) error {
	runner, before := s.runtime.Runner, s.runtime.MaxNew
	runner.Pause, s.runtime.MaxNew = pause, maxNew
	defer func() { runner.Pause, s.runtime.MaxNew = nil, before }()
	return s.Turn(ctx, tokens, nil)
}

// Footprint is the memory of a turn and its answer in a batch of so many rows, counted as if all of the
// conversation were one prompt, of up to an eighth more tokens, so that few are counted. Before the first turn any
// goroutine may ask.
func (s *Session) Footprint(ctx context.Context, tokens, maxNew, rows int) (Footprint, error) {
	n := len(s.history) + len(s.pending) + tokens
	step := 1 << max(0, bits.Len(uint(n))-4)
	n = max(n, min((n+step-1)/step*step, s.Model().Config.MaxPositions))
	k := footprintKey{s.policy, FootprintOptions{Tokens: n, Budget: s.Budget.Of(n), MaxNew: maxNew, Rows: rows, LogProbs: s.LogProbs != nil}}
	known := &s.runtime.footprints
	if f, ok := known.Load(k); ok {
		return f.(Footprint), nil
	}
	s.runtime.counting.Lock()
	defer s.runtime.counting.Unlock()
	if f, ok := known.Load(k); ok {
		return f.(Footprint), nil
	}
	f, err := countAnew(ctx, s.Model(), k.policy, k.of)
	if err == nil {
		known.Store(k, f)
	}
	return f, err
}

// footprintKey is what a footprint depends on.
type footprintKey struct {
	policy *Configured
	of     FootprintOptions
}

// Model is what the session runs.
func (s *Session) Model() *model.Model { return s.runtime.model }

func (s *Session) mostEntries() int {
	most := 0
	for l := range s.Cache.Layers() {
		for h := range s.Cache.LayerKVHeads(l) {
			most = max(most, s.Cache.Entries(l, h))
		}
	}
	return most
}

// evict keeps what was selected in all layers of the full cache, a unit each.
func (s *Session) evict(r *request, pause func() error) error {
	s.thresholds = nil
	for l, keep := range r.kept {
		if keep == nil {
			s.thresholds = append(s.thresholds, nil)
			continue
		}
		if r.plan.Merge != nil {
			s.thresholds = append(s.thresholds, r.plan.Merge(s.Cache, l, keep))
		}
		if err := s.Cache.RetainSelection(l, keep); err != nil {
			return err
		}
		if err := pause(); err != nil {
			return err
		}
	}
	return nil
}

// beginDecoding makes the session ready to decode.
func (s *Session) beginDecoding(r *request) {
	s.kept, s.scores, s.budgets = r.kept, r.scores, r.budgets
	s.pending, s.ready, s.stepBytes = nil, true, nil
	s.turns++
	if r.plan.KeepsAll {
		s.Pool = s.Kept()
	}
	if r.plan.Decode != nil {
		s.decode = r.plan.Decode(s)
	}
	if r.plan.Sparse != nil {
		s.sparse = r.plan.Sparse(s)
	}
}

// Bytes is the memory that the session holds: the cache, and what a sparse policy
// keeps beside it.
func (s *Session) Bytes() int64 {
	n := s.Cache.Bytes()
	if s.sparse != nil {
		n += s.sparse.Bytes()
	}
	return n
}
