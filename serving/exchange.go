package serving

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"strings"
	"time"

	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/runner"
	"glimpse/serving/constraint"
)

// exchange is a request of a client that was read: prompts, each with a number of answers, and how they are answered. When it
// has started it has the answers, as choices.
type exchange struct {
	server    *Server
	id, model string
	prompts   [][]int32
	n         int // answers of each prompt
	policy    engine.Policy
	budget    eviction.Budget
	rules     engine.KeepRules
	stays     []eviction.Keep // of the prompts, where something does
	maxNew    int             // noBound: what the server takes, or the context has room for
	sampling  model.Sampling
	stop      []string
	stopIDs   []int32
	ignoreEnd bool
	keep      []int32 // special tokens that are text
	logProbs  bool
	top       int
	// endLogProbs and promptLogProbs: what is told of an answer's tokens is told of the end token, and before of the
	// prompt's tokens but the first.
	endLogProbs, promptLogProbs bool
	kept                        bool // the usage says what was kept of every token
	// conversation: the prompts are whole conversations, which go on where policies keep turns.
	conversation bool
	// standard: policy and budget are the server's own, as the request names none.
	standard bool
	// context is how many of the first tokens of the prompt are a context, and named the one that was asked for (nil: none).
	context int
	named   *namedContext
	made    func(*eviction.Context) // is told of the context when it was made; nil: nobody is
	// progress: chunks tell how far prompts have run.
	progress bool
	// grammar is the language of the answers, and constraint makes one of it for each; nil: nothing is constrained.
	grammar    *constraint.Grammar
	constraint func() model.Constraint

	choices    []*choice
	wake       chan struct{} // something was said
	owner      string        // whose it is
	remembered bool          // something of it may be kept after its answers
}

// newExchange reads what all endpoints share.
func (s *Server) newExchange(req *http.Request, prefix string, r *settings) (*exchange, error) {
	if err := r.checkRanges(); err != nil {
		return nil, err
	}
	base, choice, err := modelName(r.Model)
	if err != nil {
		return nil, refuse("model", "%v", err)
	}
	if base != s.Name && base != "" {
		return nil, failure(http.StatusNotFound, invalidRequest, "model_not_found", "the model %.100q does not exist: want %q, or %s@POLICY:BUDGET", r.Model, s.Name, s.Name)
	}
	x := &exchange{server: s, owner: ownerOf(req), wake: make(chan struct{}, 1), id: prefix + rand.Text(), model: cmp.Or(r.Model, s.Name), n: or(r.N, 1), maxNew: or(r.MaxTokens, noBound), budget: s.Budget, rules: s.Keep, kept: r.wantsKept(), stop: r.Stop, stopIDs: r.StopTokenIDs, ignoreEnd: r.IgnoreEOS}
	if least, most := or(r.MinTokens, 0), x.most(); least > most {
		return nil, refuse("min_tokens", "got %d, want at most %d, the most tokens of the answer", least, most)
	}
	if r.Eviction != nil && r.Eviction.Context != "" {
		if x.named, err = s.contexts.find(s.salt(x.owner), r.Eviction.Context); err != nil {
			return nil, err
		}
		if r.Eviction.evictionChoice != (evictionChoice{}) || choice != (evictionChoice{}) {
			return nil, refuse("eviction.context", "the context was evicted by its own policy and budget, want no others")
		}
		choice = x.named.Eviction
	} else if r.Eviction != nil {
		choice.Policy = cmp.Or(r.Eviction.Policy, choice.Policy)
		choice.Budget = cmp.Or(r.Eviction.Budget, choice.Budget)
		choice.Adapter = cmp.Or(r.Eviction.Adapter, choice.Adapter)
	}
	if x.standard = choice == (evictionChoice{}); x.standard && s.watch.keepsAll() {
		choice.Policy = "full"
	}
	if choice.Budget != "" {
		if err := x.budget.Set(choice.Budget); err != nil {
			return nil, refuse("eviction.budget", "%v", err)
		}
	}
	if err := x.readKeep(r.Eviction); err != nil {
		return nil, err
	}
	choice.Policy = cmp.Or(choice.Policy, s.Policy)
	if x.policy, err = s.policy(choice); err != nil {
		return nil, err
	}
	if x.sampling, err = r.sampling(s.model.Model, s.Choice); err != nil {
		return nil, err
	}
	if r.Seed == nil {
		x.sampling.Seed = s.Seed
		if x.sampling.Temperature > 0 {
			x.sampling.Seed = uint64(mathrand.Int64())
		}
	}
	for _, id := range r.StopTokenIDs {
		if id < 0 || int(id) >= s.model.Config.Vocab {
			return nil, refuse("stop_token_ids", "got %d, want 0 to %d", id, s.model.Config.Vocab-1)
		}
	}
	return x, x.constrain(r.StructuredOutputs.grammar())
}

// encode makes a conversation the prompt.
func (x *exchange) encode(ctx context.Context, c *conversation) error {
	c.named, c.compresses = x.named, (x.named != nil || x.policy.Name != "full") && x.policy.Compresses() == nil
	ids, n, err := c.encode(ctx, x.server.model.Model)
	x.prompts, x.stays, x.context, x.conversation = [][]int32{ids}, nil, n, true
	if err != nil || x.policy.Configured.Name == engine.Lossless {
		return err
	}
	if x.named != nil { // as it was made
		return x.stay("messages", x.named.Stays)
	}
	c.rendered.IDs = ids
	keep, err := x.rules.Of(ctx, x.server.model.Tokenizer, &c.rendered)
	if err != nil {
		return refuse("eviction.keep", "%v", err)
	}
	return x.stay("messages", keep)
}

// readKeep takes what a request says of what stays.
func (x *exchange) readKeep(r *evictionRequest) error {
	if r == nil {
		return nil
	}
	if r.Keep != nil {
		if err := x.rules.Names(*r.Keep); err != nil {
			return refuse("eviction.keep", "%v", err)
		}
	}
	if r.KeepPattern != nil {
		if err := x.rules.Match(*r.KeepPattern); err != nil {
			return refuse("eviction.keep_pattern", "%v", err)
		}
	}
	return nil
}

// stayTexts takes what stays of prompts that are texts: what the pattern matches.
func (x *exchange) stayTexts(texts []string) error {
	if x.rules.Pattern == nil || x.policy.Configured.Name == engine.Lossless {
		return nil
	}
	for i, text := range texts {
		keep, err := x.rules.OfText(x.server.model.Tokenizer, text, x.prompts[i])
		if err != nil {
			return err
		}
		if err := x.stay("prompt", keep); err != nil {
			return err
		}
	}
	return nil
}

// stay takes what stays of the next prompt. param is the field that the prompt comes from.
func (x *exchange) stay(param string, keep eviction.Keep) error {
	tokens := len(x.prompts[len(x.stays)])
	if x.context > 0 {
		tokens = x.context // behind which nothing is evicted
	}
	if err := x.rules.CheckKeep(x.policy, x.budget, tokens, keep); err != nil {
		return refuse("eviction.keep", "%v", err)
	}
	if stays := keep.Tokens(tokens); stays > 0 {
		if pairs, grown := x.budget.Beside(tokens, stays); grown {
			x.server.Log.Info("the budget grows beside what stays", "id", x.id, "field", param, "tokens", tokens, "stay", stays, "budget", x.budget.Describe(tokens), "grown_to", pairs)
		}
	}
	x.stays = append(x.stays, keep)
	return nil
}

// most is the number of tokens that an answer has at the most, where the context has room.
func (x *exchange) most() int {
	if x.maxNew == noBound {
		return x.server.MaxNew
	}
	return x.maxNew
}

// checkPrompt refuses a prompt that cannot run.
func (x *exchange) checkPrompt(s *Server, param string, tokens []int32) error {
	m := s.model.Config
	switch {
	case len(tokens) == 0:
		return refuse(param, "got an empty prompt, want at least one token")
	case len(tokens) >= m.MaxPositions:
		return refuse(param, "got a prompt of %d tokens, want fewer than %d, the context of model %s", len(tokens), m.MaxPositions, s.Name).coded("context_length_exceeded")
	case x.maxNew > m.MaxPositions+1-len(tokens):
		return refuse("max_tokens", "got %d after a prompt of %d tokens, want at most %d in all, the context of model %s", x.maxNew, len(tokens), m.MaxPositions, s.Name).coded("context_length_exceeded")
	}
	if x.kept && len(tokens) > maxKept {
		return refuse("eviction.kept", "got a prompt of %d tokens, want at most %d to say what was kept of them", len(tokens), maxKept)
	}
	for i, id := range tokens {
		if id < 0 || int(id) >= m.Vocab {
			return refuse(param, "token %d: got id %d, want 0 to %d", i, id, m.Vocab-1)
		}
	}
	return nil
}

// start submits the answers, prompt by prompt. release counts them out again.
func (x *exchange) start(r *http.Request) (release func(), err error) {
	s := x.server
	if x.remembered, err = keeps(r.Header); err != nil {
		return nil, err
	}
	if err := x.makeConstraint(); err != nil {
		return nil, err
	}
	tokens := 0
	for _, ids := range x.prompts {
		tokens += len(ids)
	}
	worked(r, tokens)
	n := len(x.prompts) * x.n
	if release, err = s.admit(n); err != nil {
		return nil, err
	}
	for i := range n {
		c, err := x.newChoice(i)
		if err == nil && s.worker.engine.Budget > 0 {
			_, err = s.worker.engine.Count(&c.request) // here, where it holds nobody up
		}
		if err != nil {
			release()
			return nil, err
		}
		x.choices = append(x.choices, c)
	}
	if err == nil && x.context > 0 && s.contexts.files != nil {
		err = x.readContext(r.Context())
	}
	if err == nil {
		err = s.worker.submit(x)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// readContext gives the engine the context from disk, where neither it nor another request has it, and has one that is made written.
func (x *exchange) readContext(ctx context.Context) (err error) {
	s, c := x.server, x.choices[0]
	session, tokens := c.request.Session, c.request.Prompt[:x.context]
	origin, err := s.model.ContextOrigin(ctx, x.policy, x.budget)
	if err != nil {
		return err
	}
	origin.Chat = true
	path := s.contexts.files.pathOf(origin, x.budget.Of(len(tokens)), session.Keep.Up(len(tokens)), session.CacheSalt, tokens)
	x.made = func(made *eviction.Context) { s.contexts.files.keep(writtenContext{made, origin, path}) }
	there := false
	if err := s.worker.do(func() { there = s.worker.engine.HasContext(session, tokens) }); err != nil || there {
		return err
	}
	if read := s.contexts.files.readContext(ctx, path, tokens); read != nil {
		return s.worker.do(func() { s.worker.engine.TakeContext(session, read) })
	}
	return nil
}

// ownerOf is whose a request is: its key's, by a hash.
func ownerOf(r *http.Request) string {
	sum := sha256.Sum256([]byte(keyOf(r)))
	return string(sum[:])
}

// salt is what keeps the prompts and contexts of an owner apart from others'.
func (s *Server) salt(owner string) string {
	if len(s.roles) > 1 && !s.SharedPrefixes {
		return owner
	}
	return ""
}

// newChoice is the i-th answer, of a new session. With one key, or none, all prompts are one owner's.
func (x *exchange) newChoice(i int) (*choice, error) {
	s, tokens := x.server, x.prompts[i/x.n]
	session, err := s.worker.runtime.NewSession(x.policy.Configured, x.budget)
	if err != nil {
		return nil, err
	}
	if session.CacheSalt = s.salt(x.owner); x.stays != nil {
		session.Keep = x.stays[i/x.n]
	}
	c := &choice{exchange: x, index: i, entered: time.Now()}
	opt := runner.GenerateOptions{
		MaxNew: min(x.most(), s.model.Config.MaxPositions-len(tokens)+1), Sampling: x.sampling, Stop: x.stopIDs,
		IgnoreEnd: x.ignoreEnd, TopLogProbs: x.top,
	}
	opt.Sampling.Seed += uint64(i % x.n)
	if x.constraint != nil {
		opt.Sampling.Processors.Constraint = x.constraint()
	}
	if x.logProbs {
		opt.OnLogProb = c.onLogProb
	}
	if x.endLogProbs {
		opt.OnEnd = c.onLogProb
	}
	if x.promptLogProbs {
		session.LogProbs = &runner.PromptLogProbs{Top: x.top, Each: c.onLogProb}
	}
	if x.kept {
		c.texts = s.model.Texts(tokens)
	}
	c.request = engine.Request{Session: session, Prompt: tokens, Generate: opt, Stop: x.stop, Keep: x.keep, Begun: c.beginAnswer}
	if !x.promptLogProbs {
		c.request.Context = x.context
	}
	if x.progress {
		c.request.Progress = c.onPrefill
	}
	if x.conversation {
		c.goesOn, c.request.Owner = session.KeepsTurns(), x.owner
	}
	return c, nil
}

// cancel ends the answers that go on; it is the worker's own.
func (x *exchange) cancel() {
	w := x.server.worker
	for _, c := range x.choices {
		if _, goes := w.choices[c.answer]; goes {
			w.engine.Cancel(c.answer)
			w.keepSession(c)
			delete(w.choices, c.answer)
			c.failed(context.Canceled)
		}
	}
}

// hangUp ends the answers of a client that is gone.
func (x *exchange) hangUp() { x.server.worker.do(x.cancel) }

func (x *exchange) notify() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// each calls f with what the choices say, as it comes, until all are done or ctx ends, when they are cancelled.
func (x *exchange) each(ctx context.Context, f func(c *choice, said chunk) error) error {
	open := len(x.choices)
	ended := make([]bool, open)
	for open > 0 {
		select {
		case <-x.wake:
		case <-ctx.Done():
			x.hangUp()
			return ctx.Err()
		}
		for i, c := range x.choices {
			if ended[i] {
				continue
			}
			said, err := c.takeChunk()
			if err == nil {
				err = f(c, said)
			}
			if err != nil {
				x.hangUp()
				return x.server.worker.logged(err)
			}
			if said.done {
				ended[i] = true
				open--
			}
		}
	}
	return nil
}

// events are the server-sent events of an answer.
type events struct{ w http.ResponseWriter }

// newEvents begins a stream. Proxies are told not to hold it back.
func newEvents(w http.ResponseWriter) *events {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	return &events{w: w}
}

func (e *events) writeEvent(v any) error { return e.writeData("", jsonOf(v)) }

func (e *events) writeData(name, data string) error {
	var b strings.Builder
	if name != "" {
		fmt.Fprintf(&b, "event: %s\n", name)
	}
	fmt.Fprintf(&b, "data: %s\n\n", data)
	if _, err := e.w.Write([]byte(b.String())); err != nil {
		return context.Canceled // of a client that is gone
	}
	return http.NewResponseController(e.w).Flush()
}

// endStream is how a stream of completions ends, well or not; usage is what comes last, nil for nothing.
func (e *events) endStream(err error, out completion, usage *usage) {
	if err == nil && usage != nil {
		out.Choices, out.Usage = []any{}, usage
		err = e.writeEvent(out)
	}
	e.end(err)
}

// end is how a stream ends, well or not.
func (e *events) end(err error) {
	if err != nil {
		e.writeEvent(map[string]any{"error": ofModel(err)})
	}
	e.writeData("", "[DONE]")
}
