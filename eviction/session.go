package eviction

import (
	"context"
	"fmt"
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
	// Keep is what stays of the conversation, by its tokens, when the next turns are evicted. What has gone does not come back.
	Keep Keep
	// LogProbs (may be nil) is told what the model gives to the tokens of the next turns' prompts, which is what it gives with
	// nothing evicted: a layer is evicted when all rows have gone through it. Such prompts run whole, whatever others share.
	LogProbs *runner.PromptLogProbs
	// Context (may be nil) is what the conversation begins with: [Session.Rewind] goes back to it, and no further.
	Context *Context
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
	history []int32    // all tokens that were run
	rows    int        // learned rows that stand between them
	stands  []standing // these, by where they stand
	pending []int32    // the last generated token, which was not run
	turns   int
	ready   bool // a prompt has run and was not answered

	logits     *runner.Logits
	kept       []*kernels.Selection
	scores     []*Scores
	budgets    []int             // of every layer, where they differ
	allowed    [][]int           // of every layer's heads, of a plan with a floor
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
		if len(heads) == 0 || s.Model().Config.Recurrent(l) {
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
		Prompt:  Prompt{Config: &m.Config, Tokenizer: m.Tokenizer, Turn: m.UserTurn, Windows: named.evictsWindows()},
		Budget:  budget,
		runtime: rt, policy: named,
	}
	s.begin()
	return s, nil
}

// begin makes the session one that has run nothing.
func (s *Session) begin() {
	s.Cache, s.decode, s.sparse, s.Pool, s.turns = s.newCache(), nil, nil, nil, 0
	s.history, s.pending, s.rows, s.stands, s.ready = nil, nil, 0, nil, false
}

// newCache is an empty cache of the layers that the policy decides about.
func (s *Session) newCache() *kvcache.Cache {
	c := kvcache.New(s.Model())
	if s.Prompt.Windows {
		c.HoldWindows()
	}
	return c
}

// Prefill runs a prompt and evicts its cache to prompt.Budget entries per KV head and layer; a budget of the prompt's length or
// more keeps everything. Of the prompt's other fields it reads those that [Session.Turn] does.
func (rt *Runtime) Prefill(ctx context.Context, named *Configured, prompt Prompt) (*Session, error) {
	s, err := rt.NewSession(named, Pairs(prompt.Budget))
	if err != nil {
		return nil, err
	}
	if err := s.Turn(ctx, prompt); err != nil {
		return nil, err
	}
	return s, nil
}

// Turn appends the prompt of one more turn and evicts, as Prefill does; of its fields Tokens, MaxNew, Response and Progress. The last token
// that was generated comes first, since no step has run it. Response is the true response, for a policy that may know it; where
// such a policy gets none, the model's own greedy response with the full cache is generated first, of up to MaxNew tokens. After
// an error the session is unusable.
//
// Under a context with a pause ([runner.WithPause]) the turn runs in units: meanwhile answers of other sessions may be decoded; no
// other prompt of the runtime may run.
func (s *Session) Turn(ctx context.Context, prompt Prompt) (err error) {
	defer kernels.CatchDevice(&err) // in operations of policies between passes
	if s.turns > 0 && len(prompt.Tokens) == 0 {
		return fmt.Errorf("turn: empty prompt, want at least 1 token")
	}
	r, err := s.observer(ctx, prompt)
	if err != nil {
		return err
	}
	start := time.Now()
	s.FullBytes, s.PeakBytes, s.Traffic, s.Reused = 0, 0, Traffic{}, 0
	p := &pass{runtime: s.runtime, cache: s.Cache, before: s.history, prompt: r.prompt, observers: []*observer{r}, session: s}
	if err := p.run(ctx); err != nil {
		return err
	}
	s.PeakBytes = max(s.PeakBytes, s.Cache.Bytes()+r.held)
	for _, d := range p.drafts {
		s.PeakBytes = max(s.PeakBytes, d.bytes)
	}
	if c, n := &s.Model().Config, int(s.Cache.Next())-s.rows; s.turns > 0 && s.Prompt.Windows {
		s.FullBytes = int64(n)*c.CacheBytesPerToken(s.Cache.DType()) + c.CacheBytes(0, s.Cache.DType())
	} else if s.turns > 0 {
		s.FullBytes = c.CacheBytes(n, s.Cache.DType())
	}
	if r.plan.waits() && !r.plan.KeepsAll && !r.idle() {
		if err := s.evict(ctx, r); err != nil {
			return err
		}
	}
	s.logits, s.history = p.logits, append(s.history, r.prompt.Tokens...)
	s.beginDecoding(r)
	if err := p.finite(s.runtime.Runner.Model.Backend); err != nil { // and wait for them
		return err
	}
	s.PrefillTime = time.Since(start)
	return s.Cache.Settle()
}

// observer is the policy, as it observes the prompt of the next turn.
func (s *Session) observer(ctx context.Context, prompt Prompt) (*observer, error) {
	if err := s.Budget.Check(); err != nil {
		return nil, fmt.Errorf("turn: %w", err)
	}
	p := s.Prompt
	p.Tokens, p.MaxNew, p.Context = slices.Concat(s.pending, prompt.Tokens), prompt.MaxNew, prompt.Context
	p.Response, p.Progress = prompt.Response, prompt.Progress
	p.Draft, p.Drafted = nil, 0
	p.Entries, p.From = len(p.Tokens)+s.mostEntries(), int(s.Cache.Next())
	p.Keep = s.positions(s.Keep)
	p.Budget = s.pairs(p.From - s.rows + len(p.Tokens))
	r := newObserver(s.policy, p)
	if r.plan.NeedsResponse && p.Response == nil && !p.fits() {
		response, err := s.runtime.ownResponse(ctx, slices.Concat(s.history, p.Tokens), &p)
		if err != nil {
			return nil, err
		}
		r.know(func(own *Prompt) { own.Response = response })
	}
	if s.decode != nil {
		r.carry = s.decode.Carry
	}
	return r, nil
}

// observed is told of a layer of the prompt, and what an observer has selected of it. whole: it stays.
func (s *Session) observed(r *observer, o *runner.Observation, keep *kernels.Selection, whole bool) error {
	s.FullBytes += s.Cache.LayerBytes(o.Layer)
	if whole || keep == nil {
		return nil
	}
	s.PeakBytes = max(s.PeakBytes, s.Cache.Bytes())
	return s.retain(r, o.Layer, keep)
}

// prefix is what the session's first prompt shares with others; nil where nothing is shared, as by a study.
func (s *Session) prefix(ctx context.Context, p *pass) (*kvcache.Prefix, error) {
	if s == nil || s.runtime.Prefixes == nil || s.Cache.Next() > 0 {
		return nil, nil
	}
	shared, tokens := s.runtime.Prefixes, p.prompt.Tokens
	s.Cache.Begin(len(tokens))
	most := p.observers[0].plan.reusable(len(tokens))
	if s.LogProbs != nil {
		most = 0
	}
	if err := shared.Read(s.Cache, s.CacheSalt, tokens, most, func() error { return runner.Pause(ctx) }); err != nil {
		return nil, err
	}
	prefix := shared.Match(s.Cache, s.CacheSalt, tokens, most)
	s.Reused = prefix.Len()
	s.Cache.Advance(s.Reused)
	return prefix, nil
}

// Rewind makes the session ready for a turn after which all tokens that were run are the
// given ones, where a chat template has written what was said before in another way. It
// returns how many of their first are run already; Turn takes the rest, which has at least
// one. What was evicted does not come back, and what a policy has gathered of later tokens does
// not leave it: unless every pair is there that a layer holds before any eviction, and nothing was gathered, the session is as it
// began, and kept 0, or its Context where tokens begin with that. After an error it is unusable.
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
	if c := s.Context; c != nil && kept < len(c.Tokens) && c.begins(tokens) {
		return len(c.Tokens), s.Resume(c, len(tokens)-len(c.Tokens))
	}
	if kept == 0 {
		s.begin()
		return 0, nil
	}
	s.history, s.pending, s.ready = s.history[:kept:kept], nil, false
	return kept, s.Cache.Truncate(int32(kept))
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

// Conversation is all tokens that were run, and the last one that was generated.
func (s *Session) Conversation() []int32 { return slices.Concat(s.history, s.pending) }

// KeepRest makes the next turns evict nothing more, as behind a context that was evicted before anything was asked. What a
// policy reads in a step stays bounded.
func (s *Session) KeepRest() {
	if _, sparse := s.policy.decodes(); !sparse {
		s.Budget = Budget{share: millionths}
	}
}

// Rest frees the state beside the cache that the next turn makes anew: Bytes are then all that
// the session holds, and Kept and Scores are gone.
func (s *Session) Rest() {
	s.logits, s.kept, s.scores, s.sparse, s.Pool = nil, nil, nil, nil, nil
}

// Model is what the session runs.
func (s *Session) Model() *model.Model { return s.runtime.model }

// headLimits are how many entries the heads of a layer hold while decoding: as many as the last prompt has left each where it
// was evicted to its budget, or with a floor might have left it, else budget.
func (s *Session) headLimits(layer, budget int) []int {
	switch {
	case s.Prompt.Entries <= budget:
		return slices.Repeat([]int{budget}, s.kept[layer].Heads())
	case s.allowed[layer] != nil:
		return s.allowed[layer]
	}
	return lengthsOf(s.kept[layer])
}

// standing are learned rows that stand behind so many tokens of a conversation.
type standing struct{ tokens, rows int }

func (s *Session) stand(tokens, rows int) {
	s.rows += rows
	s.stands = append(s.stands, standing{tokens, rows})
}

// positions is what stays by positions in the cache, where learned rows stand between tokens.
func (s *Session) positions(k Keep) Keep {
	behind := func(token int, before bool) int {
		at := token
		for _, x := range s.stands {
			if x.tokens < token || x.tokens == token && !before {
				at += x.rows
			}
		}
		return at
	}
	out := Keep{Spans: slices.Clone(k.Spans), Fair: slices.Clone(k.Fair)}
	for i, x := range out.Spans {
		out.Spans[i] = Span{behind(x.From, false), behind(x.To, true)}
	}
	for i, token := range out.Fair {
		out.Fair[i] = behind(token, false)
	}
	return out
}

// pairs is what the budget comes to for a conversation of so many tokens, beside what stays of it.
func (s *Session) pairs(tokens int) int {
	n, _ := s.Budget.Beside(tokens, s.Keep.Tokens(tokens))
	return n
}

// staying are the entries of a layer that stay while decoding; nil where nothing has to.
func (s *Session) staying(layer int) *staying {
	k := Keep{Spans: s.Prompt.Keep.Spans}
	return k.in(s.Cache, layer, 0)
}

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
func (s *Session) evict(ctx context.Context, r *observer) error {
	s.thresholds = nil
	if r.plan.Stay != nil {
		if err := s.runtime.Runner.Append(ctx, s.Cache, r.plan.Stay); err != nil {
			return err
		}
		s.PeakBytes = max(s.PeakBytes, s.Cache.Bytes())
		s.stand(len(s.history)+len(r.prompt.Tokens), r.plan.Stay.Rows())
	}
	for l, keep := range r.kept {
		if keep == nil {
			s.thresholds = append(s.thresholds, nil)
			continue
		}
		if r.plan.Stay != nil {
			keep = s.withNewest(l, keep, r.plan.Staying)
		}
		if r.plan.Merge != nil {
			s.thresholds = append(s.thresholds, r.plan.Merge(s.Cache, l, keep))
		}
		if err := s.retain(r, l, keep); err != nil {
			return err
		}
		if err := runner.Pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

// withNewest is a selection of a layer's entries with the newest ones besides.
func (s *Session) withNewest(layer int, keep *kernels.Selection, newest int) *kernels.Selection {
	var all [][]int32
	for h, idx := range keep.Indices() {
		n := s.Cache.Entries(layer, h)
		all = append(all, append(slices.Clip(idx), upTo(n-newest, n)...))
	}
	return kernels.HostSelection(all)
}

// beginDecoding makes the session ready to decode after the prompt.
func (s *Session) beginDecoding(r *observer) {
	s.Prompt = r.prompt
	s.Prompt.Budget = r.budget
	s.kept, s.scores, s.budgets, s.allowed = r.kept, r.scores, r.budgets, r.allowed
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
