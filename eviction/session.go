package eviction

import (
	"context"
	"fmt"
	"slices"
	"time"

	"glimpse/kernels"
	"glimpse/model"
)

// Session is a conversation with an evicted cache: after a turn's prompt has run
// and was evicted it is ready to decode the answer, and then for the next turn,
// whose prompt is appended to what the policy kept.
type Session struct {
	Prompt Prompt // of the last turn
	Cache  *model.Cache
	// Budget is what the next turns keep. A share is of the whole conversation up to the
	// end of a turn's prompt, evicted or not, so that it grows from turn to turn.
	Budget Budget
	// Pool are the indices that decoding is restricted to, of a PoolKeeper; else nil.
	Pool [][][]int32

	// PrefillTime is the time to first token of the turn: the whole pass, with
	// everything that the policy adds to it, eviction included.
	PrefillTime time.Duration
	// FullBytes is what the cache of the whole conversation up to the prompt's end
	// would take, PeakBytes the most that the cache, and the copy that a draft is
	// decoded on, held on the way.
	FullBytes, PeakBytes int64
	// Traffic is what the decoding steps of the last turn have read.
	Traffic Traffic

	runtime *Runtime
	name    string // of the policy
	method  Method
	second  SparseDecoder // of a composition
	history []int32       // all tokens that were run
	pending []int32       // the last generated token, which was not run
	turns   int
	ready   bool // a prompt has run and was not answered

	logits     *model.Logits
	kept       []*kernels.Selection
	scores     []*Scores
	budgets    []int             // of every layer, where they differ
	thresholds []*kernels.Tensor // by layer, of a Merger
	decode     DecodeState
	sparse     SparseState
	stepBytes  []int64              // that the steps so far have read, of sparse policies
	stepKept   []*kernels.Selection // of a step, by layer, until all of them are known
}

// Logits are those of the prompt's last token. They, what was kept and the scores come
// from the device when they are asked for, which panics with a *kernels.DeviceError
// where that fails.
func (s *Session) Logits() []float32 {
	logits, err := s.logits.Float32s()
	if err != nil { // Turn has checked them
		panic(err)
	}
	return logits
}

// Kept are, per layer and KV head, the indices of the entries that were kept of those
// before the eviction: in the first turn the prompt's, later those that the turns
// before have left and then the prompt's. Of a PoolKeeper, which evicts nothing, they
// are the pool.
func (s *Session) Kept() [][][]int32 { return indicesOf(s.kept) }

// Scores are those that the entries were kept by, [layer][kvHead][entry]; nil where the
// prompt fits the budget and nothing was scored.
func (s *Session) Scores() [][][]float32 { return rowsOf(s.scores) }

// Traffic is memory traffic of the attention of decoding steps, in bytes over all
// layers and heads: of the keys and values that the steps attend to, their own
// included, and of what was read to choose them.
type Traffic struct {
	Steps      int
	Bytes      int64 // in all
	Estimation int64 // of them, to choose
	Most       int64 // of any one step

	step int64
}

// PerStep is the mean over steps, 0 before the first.
func (t Traffic) PerStep() float64 { return float64(t.Bytes) / float64(max(1, t.Steps)) }

// Plus is the traffic of both.
func (t Traffic) Plus(other Traffic) Traffic {
	return Traffic{
		Steps: t.Steps + other.Steps, Bytes: t.Bytes + other.Bytes,
		Estimation: t.Estimation + other.Estimation, Most: max(t.Most, other.Most),
	}
}

func (t *Traffic) add(layer int, read, estimation int64) {
	if layer == 0 {
		t.Steps++
		t.step = 0
	}
	t.step += read + estimation
	t.Bytes += read + estimation
	t.Estimation += estimation
	t.Most = max(t.Most, t.step)
}

// NewSession begins a conversation under a policy with a budget.
func (rt *Runtime) NewSession(named *Configured, budget Budget) (*Session, error) {
	if err := budget.Check(); err != nil {
		return nil, err
	}
	m := rt.Runner.Model
	if err := named.Fits(m); err != nil {
		return nil, err
	}
	return &Session{
		Prompt:  Prompt{Config: &m.Config, Tokenizer: m.Tokenizer},
		Cache:   m.NewCache(),
		Budget:  budget,
		runtime: rt, name: named.Name, method: named.Method, second: named.Second,
	}, nil
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
	defer kernels.CatchDevice(&err) // of what policies compute between passes
	rt := s.runtime
	if s.turns > 0 && len(tokens) == 0 {
		return fmt.Errorf("turn: empty prompt, want at least 1 token")
	}
	if err := s.Budget.Check(); err != nil {
		return fmt.Errorf("turn: %w", err)
	}
	tokens = slices.Concat(s.pending, tokens)
	s.Prompt.Budget = s.Budget.Of(int(s.Cache.Next()) + len(tokens))
	entries := len(tokens) + s.mostEntries()
	if _, ok := as[Responder](s.method); ok && response == nil && entries > s.Prompt.Budget {
		if response, err = rt.ownResponse(ctx, slices.Concat(s.history, tokens)); err != nil {
			return err
		}
	}
	start := time.Now()
	s.Prompt.Tokens, s.Prompt.Response, s.Prompt.MaxNew = tokens, response, rt.MaxNew
	s.Prompt.Entries = entries
	s.Prompt.From, s.Prompt.Draft, s.Prompt.Drafted = int(s.Cache.Next()), nil, 0
	s.FullBytes, s.PeakBytes, s.Traffic = 0, 0, Traffic{}
	if spec, ok := as[Speculator](s.method); ok && s.Prompt.Entries > s.Prompt.Budget {
		var err error
		if s.Prompt.Draft, s.PeakBytes, err = rt.speculate(ctx, spec, slices.Concat(s.history, tokens)); err != nil {
			return err
		}
	}
	r := &request{name: s.name, method: s.method, prompt: firstStage(s.Prompt, s.second)}
	r.carry, _ = s.decode.(Carrier)
	drafter, _ := as[Drafter](s.method)
	_, waits := s.method.(CrossLayerAllocator)
	_, keepsAll := s.method.(PoolKeeper)
	opt := model.PrefillOptions{Capture: merge([]*request{r}), Observe: func(o *model.Observation) error {
		keep, err := r.observe(o)
		if err != nil {
			return err
		}
		s.FullBytes += s.Cache.LayerBytes(o.Layer)
		s.PeakBytes = max(s.PeakBytes, s.Cache.Bytes())
		if drafter != nil || waits || keepsAll { // more is to be seen of the full cache
			return nil
		}
		return s.Cache.RetainSelection(o.Layer, keep)
	}}
	if s.logits, err = rt.Runner.Forward(ctx, s.Cache, tokens, opt); err != nil {
		return err
	}
	if s.turns > 0 {
		s.FullBytes = int64(s.Cache.Next()) * int64(s.Cache.Layers()*s.Cache.KVHeads()) * s.Cache.PairBytes()
	}
	r.finish()
	if drafter != nil && !r.idle() {
		held, err := rt.draft(ctx, drafter, r, s.Cache, s.logits)
		if err != nil {
			return err
		}
		s.Prompt.Drafted = r.prompt.Drafted
		s.PeakBytes = max(s.PeakBytes, s.Cache.Bytes()+held)
	}
	if (drafter != nil || waits) && !r.idle() {
		if err := s.evict(r); err != nil {
			return err
		}
	}
	s.history = append(s.history, tokens...)
	s.begin(r)
	if err := s.logits.Check(); err != nil { // and wait for them
		return err
	}
	if err := r.finite(rt.Runner.Model.Backend); err != nil {
		return err
	}
	s.PrefillTime = time.Since(start)
	return s.Cache.Settle()
}

// firstStage is the prompt as the first stage of a composition sees it.
func firstStage(p Prompt, second SparseDecoder) Prompt {
	if second != nil {
		_, p.Budget = splitPrompt(p, adaptiveSplit)
	}
	return p
}

func (s *Session) mostEntries() int {
	most := 0
	for l := range s.Cache.Layers() {
		for h := range s.Cache.KVHeads() {
			most = max(most, s.Cache.Entries(l, h))
		}
	}
	return most
}

// evict keeps what was selected in all layers of the full cache.
func (s *Session) evict(r *request) error {
	merger, _ := s.method.(Merger)
	s.thresholds = nil
	for l, keep := range r.kept {
		if merger != nil {
			s.thresholds = append(s.thresholds, merger.Merge(s.Cache, l, keep))
		}
		if err := s.Cache.RetainSelection(l, keep); err != nil {
			return err
		}
	}
	return nil
}

// begin makes the session ready to decode.
func (s *Session) begin(r *request) {
	s.kept, s.scores, s.budgets = r.kept, r.scores, r.budgets
	s.pending, s.ready, s.stepBytes = nil, true, nil
	s.turns++
	if _, ok := s.method.(PoolKeeper); ok {
		s.Pool = s.Kept()
	}
	if d, ok := s.method.(DecodeEvicter); ok {
		s.decode = d.StartDecode(s)
	}
	if d, ok := s.method.(SparseDecoder); ok {
		s.sparse = d.StartSparse(s)
	}
	if s.second != nil {
		s.sparse = s.second.StartSparse(s)
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

// Generate decodes the answer to the last prompt, evicting on the way where the
// policy does and reading what it chooses. Every prompt can be answered once.
func (s *Session) Generate(ctx context.Context, opt model.GenerateOptions) (tokens []int32, ended bool, err error) {
	defer kernels.CatchDevice(&err)
	if !s.ready {
		return nil, false, fmt.Errorf("generate: the last prompt is answered already, want another turn first")
	}
	s.ready = false
	if s.decode != nil {
		opt.Capture = s.decode.Capture()
	}
	if s.sparse != nil {
		opt.Sparse = s.chooseSparsely
		opt.SparseOnDevice = s.sparse.Recordable()
	}
	if opt.Prompt == nil {
		opt.Prompt = s.history
	}
	opt.Observe = func(o *model.Observation) error {
		if s.sparse == nil {
			s.Traffic.add(o.Layer, s.seenBytes(o.Layer), 0)
		}
		if s.decode == nil {
			return nil
		}
		return s.evictStep(o)
	}
	tokens, ended, err = s.runtime.Runner.Continue(ctx, s.Cache, s.logits, opt)
	if err == nil {
		s.countLater()
	}
	if n := len(tokens); n > 0 {
		ran := n - 1
		if ended {
			ran = n
		}
		s.history = append(s.history, tokens[:ran]...)
		s.pending = slices.Clone(tokens[ran:])
	}
	return tokens, ended, err
}

// evictStep lets the policy evict after a decoding step.
func (s *Session) evictStep(o *model.Observation) error {
	if st, ok := s.decode.(JointState); ok && o.Joint != nil {
		if o.Layer < o.Cache.Layers()-1 {
			return nil
		}
		var entries []int
		for l := range o.Cache.Layers() {
			for h := range o.Cache.KVHeads() {
				entries = append(entries, o.Cache.Entries(l, h))
			}
		}
		if keep := st.StepAll(o.Joint, entries); keep != nil {
			return o.Cache.RetainAll(keep)
		}
		return nil
	}
	keep, err := s.decode.Step(o)
	if err != nil {
		return err
	}
	return s.retainStep(o, keep)
}

// retainStep retains what a layer keeps after a decoding step, nil for everything. Where
// all layers have run, and the host knows what all of them keep, that waits for the last.
func (s *Session) retainStep(o *model.Observation, keep *kernels.Selection) error {
	if !o.StepDone || !o.Cache.Backend().Selector().OwnMemory() || keep != nil && keep.OnDevice() {
		if keep == nil {
			return nil
		}
		return o.Cache.RetainSelection(o.Layer, keep)
	}
	s.stepKept = append(slices.Grow(s.stepKept, o.Layer)[:o.Layer], keep)
	if o.Layer < o.Cache.Layers()-1 {
		return nil
	}
	var all [][]int32
	if !slices.Contains(s.stepKept, nil) {
		for _, keep := range s.stepKept {
			all = append(all, keep.Indices()...)
		}
		return o.Cache.RetainAll(kernels.HostSelection(all))
	}
	for l, keep := range s.stepKept {
		if keep == nil {
			continue
		}
		if err := o.Cache.RetainSelection(l, keep); err != nil {
			return err
		}
	}
	return nil
}

// countLater adds to the traffic what the device has counted.
func (s *Session) countLater() {
	if s.sparse == nil {
		return
	}
	for step, n := range s.sparse.Estimated() {
		s.Traffic.Bytes += n
		s.Traffic.Estimation += n
		s.Traffic.Most = max(s.Traffic.Most, s.stepBytes[step]+n)
		if step == len(s.stepBytes)-1 {
			s.Traffic.step += n
		}
	}
}

// chooseSparsely lets the policy choose and counts what is read.
func (s *Session) chooseSparsely(step *model.SparseStep) error {
	estimation, err := s.sparse.Select(step)
	if err != nil {
		return err
	}
	read := s.seenBytes(step.Layer)
	if chosen := step.Selection; chosen != nil {
		read = 0
		for h := range chosen.Heads() {
			read += int64(chosen.Len(h)) * s.Cache.PairBytes()
		}
		if !chosen.OnDevice() {
			step.Selection, step.Entries = nil, chosen.Indices()
		}
	} else if step.Entries != nil {
		read = 0
		for _, idx := range step.Entries {
			read += int64(len(idx)) * s.Cache.PairBytes()
		}
	}
	s.Traffic.add(step.Layer, read, estimation)
	if step.Layer == 0 {
		s.stepBytes = append(s.stepBytes, 0)
	}
	s.stepBytes[len(s.stepBytes)-1] = s.Traffic.step
	return nil
}

// seenBytes are the keys and values of a layer that its last token sees.
func (s *Session) seenBytes(layer int) int64 {
	n, window := 0, s.Prompt.Config.Window(layer)
	for h := range s.Cache.KVHeads() {
		if window == 0 { // positions may be on the device only
			n += s.Cache.Entries(layer, h)
			continue
		}
		pos := s.Cache.Positions(layer, h)
		n += s.Cache.Seen(layer, h, pos[len(pos)-1], window)
	}
	return int64(n) * s.Cache.PairBytes()
}
