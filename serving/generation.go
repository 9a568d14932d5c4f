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

// generation is a request that was read: prompts, each with a number of answers, and how they are answered.
type generation struct {
	server    *Server
	id, model string
	prompts   [][]int32
	choices   int // of each prompt
	policy    engine.Policy
	budget    eviction.Budget
	maxNew    int // noBound: what the server takes, or the context has room for
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
	// grammar is the language of the answers, and constraint makes one of it for each; nil: nothing is constrained.
	grammar    *constraint.Grammar
	constraint func() model.Constraint
}

// generation reads what all endpoints share.
func (s *Server) generation(prefix string, r *settings) (*generation, error) {
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
	g := &generation{server: s, id: prefix + rand.Text(), model: cmp.Or(r.Model, s.Name), choices: or(r.N, 1), maxNew: or(r.MaxTokens, noBound), budget: s.Budget, kept: r.wantsKept(), stop: r.Stop, stopIDs: r.StopTokenIDs, ignoreEnd: r.IgnoreEOS}
	if least, most := or(r.MinTokens, 0), g.most(); least > most {
		return nil, refuse("min_tokens", "got %d, want at most %d, the most tokens of the answer", least, most)
	}
	if r.Eviction != nil {
		choice.Policy = cmp.Or(r.Eviction.Policy, choice.Policy)
		choice.Budget = cmp.Or(r.Eviction.Budget, choice.Budget)
		choice.Adapter = cmp.Or(r.Eviction.Adapter, choice.Adapter)
	}
	if choice.Budget != "" {
		if err := g.budget.Set(choice.Budget); err != nil {
			return nil, refuse("eviction.budget", "%v", err)
		}
	}
	choice.Policy = cmp.Or(choice.Policy, s.Policy)
	if g.policy, err = s.policy(choice); err != nil {
		return nil, err
	}
	if g.sampling, err = r.sampling(s.model.Model, s.Choice); err != nil {
		return nil, err
	}
	if r.Seed == nil {
		g.sampling.Seed = s.Seed
		if g.sampling.Temperature > 0 {
			g.sampling.Seed = uint64(mathrand.Int64())
		}
	}
	for _, id := range r.StopTokenIDs {
		if id < 0 || int(id) >= s.model.Config.Vocab {
			return nil, refuse("stop_token_ids", "got %d, want 0 to %d", id, s.model.Config.Vocab-1)
		}
	}
	return g, g.constrain(r.StructuredOutputs.grammar())
}

// most is the number of tokens that an answer has at the most, where the context has room.
func (g *generation) most() int {
	if g.maxNew == noBound {
		return g.server.MaxNew
	}
	return g.maxNew
}

// checkPrompt refuses a prompt that cannot run.
func (g *generation) checkPrompt(s *Server, param string, tokens []int32) error {
	m := s.model.Config
	switch {
	case len(tokens) == 0:
		return refuse(param, "got an empty prompt, want at least one token")
	case len(tokens) >= m.MaxPositions:
		return refuse(param, "got a prompt of %d tokens, want fewer than %d, the context of model %s", len(tokens), m.MaxPositions, s.Name).coded("context_length_exceeded")
	case g.maxNew > m.MaxPositions+1-len(tokens):
		return refuse("max_tokens", "got %d after a prompt of %d tokens, want at most %d in all, the context of model %s", g.maxNew, len(tokens), m.MaxPositions, s.Name).coded("context_length_exceeded")
	}
	if g.kept && len(tokens) > maxKept {
		return refuse("eviction.kept", "got a prompt of %d tokens, want at most %d to say what was kept of them", len(tokens), maxKept)
	}
	for i, id := range tokens {
		if id < 0 || int(id) >= m.Vocab {
			return refuse(param, "token %d: got id %d, want 0 to %d", i, id, m.Vocab-1)
		}
	}
	return nil
}

// start submits the answers of a generation, prompt by prompt. release counts them out again.
func (s *Server) start(r *http.Request, g *generation) (j *job, release func(), err error) {
	remembered, err := keeps(r.Header)
	if err != nil {
		return nil, nil, err
	}
	if err := g.makeConstraint(); err != nil {
		return nil, nil, err
	}
	tokens := 0
	for _, ids := range g.prompts {
		tokens += len(ids)
	}
	worked(r, tokens)
	n := len(g.prompts) * g.choices
	if release, err = s.admit(n); err != nil {
		return nil, nil, err
	}
	requests := make([]engine.Request, n)
	sum := sha256.Sum256([]byte(keyOf(r)))
	owner := string(sum[:])
	for i := range requests {
		if requests[i], err = s.request(g, owner, i); err == nil && s.worker.engine.Budget > 0 {
			_, err = s.worker.engine.Count(&requests[i]) // here, where it holds nobody up
		}
		if err != nil {
			release()
			return nil, nil, err
		}
	}
	j, err = s.worker.submit(requests, func(r *engine.Request, c *choice) {
		if c.policy = g.policy.NameWithAdapter(); g.conversation {
			c.conversation, r.Owner = r.Session.KeepsTurns(), owner
		}
		if g.kept {
			c.texts = s.model.Texts(r.Prompt)
		}
		if remembered {
			c.generation = g
		}
		if g.logProbs {
			r.Generate.OnLogProb = c.onLogProb
		}
		if g.endLogProbs {
			r.Generate.OnEnd = c.onLogProb
		}
		if g.promptLogProbs {
			r.Session.LogProbs.Each = c.onLogProb
		}
	})
	if err != nil {
		release()
		return nil, nil, err
	}
	return j, release, nil
}

// request is the i-th answer's, of a new session. With one key, or none, all prompts are one owner's.
func (s *Server) request(g *generation, owner string, i int) (engine.Request, error) {
	tokens := g.prompts[i/g.choices]
	session, err := s.worker.runtime.NewSession(g.policy.Configured, g.budget)
	if err != nil {
		return engine.Request{}, err
	}
	if len(s.roles) > 1 && !s.SharedPrefixes {
		session.CacheSalt = owner
	}
	if g.promptLogProbs {
		session.LogProbs = &runner.PromptLogProbs{Top: g.top}
	}
	opt := runner.GenerateOptions{
		MaxNew: min(g.most(), s.model.Config.MaxPositions-len(tokens)+1), Sampling: g.sampling, Stop: g.stopIDs,
		IgnoreEnd: g.ignoreEnd, TopLogProbs: g.top,
	}
	opt.Sampling.Seed += uint64(i % g.choices)
	if g.constraint != nil {
		opt.Sampling.Processors.Constraint = g.constraint()
	}
	return engine.Request{Session: session, Prompt: tokens, Generate: opt, Stop: g.stop, Keep: g.keep}, nil
}

// created is the time of an answer as the API writes it.
func created() int64 { return time.Now().Unix() }

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

// writeEvent writes an event.
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
	if err != nil {
		e.writeEvent(map[string]any{"error": ofModel(err)})
	}
	e.writeData("", "[DONE]")
}
