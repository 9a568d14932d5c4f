package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"glimpse/eviction"
	"glimpse/internal/bytesize"
	"glimpse/model"
	"glimpse/model/runner"
)

// Request is a prompt and how it is answered.
type Request struct {
	// Session is the conversation that goes on: its prompt is appended to what the turns before
	// have left. One whose prompt has run already is answered as it is, without a Prompt.
	Session *eviction.Session
	Prompt  []int32
	// Context is how many of the first tokens of Prompt are a context, of a Session that begins: they are evicted by its policy and to
	// its budget before what follows is known, and what follows is not. An engine with a budget keeps what is left of them for other
	// requests with the same policy, budget and salt (Session.CacheSalt). Of a Prompt that is no more than that nothing is answered. 0: there is none.
	Context int
	// Owner is whose conversation it is. The Prompt of a Session that begins may be a conversation that goes on: where the
	// engine keeps a session of it and of the same owner ([Engine.Keep]), that takes the place of Session, and only what it
	// has not run or said is run.
	Owner string

	// Generate are the settings of the answer, which is no longer than the context has room for.
	// Its OnToken comes before the events of a token. Of one that is Forced nothing else is read.
	Generate runner.GenerateOptions
	// Stop are texts that end the answer where they begin; with SkipLeading not those at its
	// beginning.
	Stop        []string
	SkipLeading bool
	// Keep are special tokens that are a part of the text.
	Keep []int32

	// Progress (may be nil) is told of passes over the prompt.
	Progress runner.Progress
	// Begun (may be nil) is called when the prompt has run, before the first step of the answer.
	Begun func()
}

// Answer is what a request has come to so far.
type Answer struct {
	Request  Request
	text     *detokenizer
	need     eviction.Footprint // where the engine has a budget
	sequence *runner.Sequence   // an empty one before the prompt has run
	room     int                // most tokens that the context has room for
	known    int                // tokens of the prompt that a kept session has run and said
	standing int                // those that it has run
	cut      bool               // cancelled
	// compressed: the prompt was a context alone.
	compressed bool
	err        error // before the first token
}

// Done tells that nothing more comes.
func (a *Answer) Done() bool { return a.err != nil || a.compressed || a.sequence.Done() }

// Reason is why an answer is done.
type Reason string

const (
	End         Reason = "end"     // an end token
	StopText    Reason = "stop"    // a stop text
	MaxNew      Reason = "max-new" // the most tokens of an answer
	Context     Reason = "context" // the end of the model's context
	Interrupted Reason = "interrupt"
	Failed      Reason = "error"
)

// Reason is why it is done; "" where it is not.
func (a *Answer) Reason() Reason {
	switch {
	case !a.Done():
		return ""
	case a.text.stopped >= 0:
		return StopText
	case a.Ended(), a.compressed:
		return End
	case a.cut:
		return Interrupted
	case a.Err() != nil:
		return Failed
	case len(a.Tokens()) >= a.room:
		return Context
	}
	return MaxNew
}

// StopText is the stop text that has ended it; "" where none has.
func (a *Answer) StopText() string { return a.text.stopText() }

// Tokens are the tokens of the answer so far, without the end token.
func (a *Answer) Tokens() []int32 { return a.sequence.Tokens() }

// Ended tells whether there was an end token, or a stop text.
func (a *Answer) Ended() bool { return a.text.stopped >= 0 || a.sequence.Ended() }

// Text is what was said so far, up to a stop text; "" where the model has no tokenizer.
func (a *Answer) Text() string { return a.text.said(a.Done()) }

// LogProbs are the log-probabilities of the tokens so far, for an answer that was given (GenerateOptions.Forced).
func (a *Answer) LogProbs() []float64 { return a.sequence.LogProbs() }

// Standing is how many tokens of the prompt a kept session or context had run; 0 where there was none.
func (a *Answer) Standing() int { return a.standing }

// Err is what has ended it early; nil where it goes on or has ended as it should. The session
// is then unusable.
func (a *Answer) Err() error { return cmp.Or(a.err, a.sequence.Err()) }

// Event is something that has happened to a request: its answer has begun, a token was said, or
// it is done.
type Event struct {
	Answer *Answer
	Text   string // that was said, without what a stop text may have begun in
	Done   bool
}

// Engine runs the requests of one model. It belongs to one goroutine, as the sessions of its
// requests do until they are done.
type Engine struct {
	// More is asked after each unit of prompts whether another one may run before the next step of the answers;
	// ran units have run since the last step. A unit is a chunk of a prompt in one layer, or a token of a draft.
	// nil: all prompts that there is room for run first. Answers don't depend on it.
	More func(ran int) bool
	// Budget is the most memory, in bytes beside weights and adapters, that the requests which run take
	// together; 0: no limit. What a request needs is counted by the code that will run it
	// ([eviction.Session.Footprint]). Requests run in the order in which they were submitted, each once
	// there is room for it. Answers don't depend on it. It stays as long as there are requests.
	Budget int64

	runtime *eviction.Runtime
	rows    int
	steps   int64 // memory of the steps so far, beside the sessions
	batch   *runner.Batch
	waiting []*Answer
	filling *Answer // whose prompt runs; nil: none
	units   *runner.Units
	live    []*Answer
	kept    kept
}

// New returns an engine that decodes at most rows answers together.
func New(rt *eviction.Runtime, rows int) (*Engine, error) {
	e := &Engine{runtime: rt, rows: rows}
	return e, e.newBatch()
}

// newBatch makes an empty batch, with a runner of its own: steps that it has recorded stay when prompts run between them.
func (e *Engine) newBatch() (err error) {
	e.batch, err = runner.New(e.runtime.Runner.Model).NewBatch(e.rows)
	return err
}

// Len is the number of requests that are not done.
func (e *Engine) Len() int {
	n := len(e.waiting) + len(e.live)
	if e.filling != nil {
		n++
	}
	return n
}

// Submit takes a request, which nothing has run of until the next step. One that needs more than the
// budget is refused (model.ErrMemory).
func (e *Engine) Submit(r Request) (*Answer, error) {
	if r.Session == nil {
		return nil, errors.New("engine: got a request without a session, want one")
	}
	if r.Context > 0 {
		if err := r.Session.Compresses(); err != nil {
			return nil, fmt.Errorf("engine: %w", err)
		}
	}
	a := &Answer{Request: r, sequence: new(runner.Sequence), text: newDetokenizer(r.Session.Model(), r.Stop, r.SkipLeading, r.Keep...)}
	if e.Budget > 0 {
		var err error
		if a.need, err = e.Count(&a.Request); err != nil {
			return nil, fmt.Errorf("engine: request with a prompt of %d tokens: %w", len(r.Prompt), err)
		}
	}
	e.waiting = append(e.waiting, a)
	return a, nil
}

// Cancel ends a request where it is, as if all had been said: one whose prompt has not run is
// done with context.Canceled, and its session unusable. What is done already stays so.
func (e *Engine) Cancel(a *Answer) error {
	if a.Done() {
		return nil
	}
	a.cut = true
	switch {
	case e.filling == a:
		e.units.Stop()
		e.filling = nil
	case slices.Contains(e.live, a):
		e.live = without(e.live, a)
		e.batch.Remove(a.sequence)
		return a.sequence.Err()
	default:
		e.waiting = without(e.waiting, a)
	}
	a.err = context.Canceled
	return nil
}

// Close cancels the prompt that is running, after which others may run: for an engine that is left
// before its requests are done.
func (e *Engine) Close() {
	if e.filling != nil {
		e.Cancel(e.filling) // of a prompt there is no error
	}
}

func without(all []*Answer, a *Answer) []*Answer {
	return slices.DeleteFunc(all, func(other *Answer) bool { return other == a })
}

// Step runs units of prompts and then a step of every answer, and returns what has happened,
// request by request in the order in which their answers began. Errors of requests are theirs.
//
// The error is that of all: of ctx, before which at most units of a prompt have run and after which
// the engine may go on; or of the device, with which every answer ends.
func (e *Engine) Step(ctx context.Context) (events []Event, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for ran := 0; ran == 0 || e.More == nil || e.More(ran); ran++ {
		a, more := e.advance(context.WithoutCancel(ctx))
		if a != nil {
			events = append(events, Event{Answer: a, Done: a.Done()})
		}
		if !more {
			break
		}
		if err := ctx.Err(); err != nil { // what has run stays
			return events, err
		}
	}
	if len(e.live) == 0 {
		return events, nil
	}
	before := make([]int, len(e.live))
	for i, a := range e.live {
		before[i] = len(a.Tokens())
	}
	_, err = e.batch.Step(ctx)
	if err != nil && !errors.Is(err, ctx.Err()) { // of the device, on which kept sessions are, too
		e.LetGo(0)
	}
	for i, a := range e.live {
		if done := a.Done(); done || len(a.Tokens()) > before[i] {
			events = append(events, Event{Answer: a, Text: a.text.more(done), Done: done})
		}
	}
	e.live = slices.DeleteFunc(e.live, (*Answer).Done)
	return events, err
}

// advance runs a unit of the prompt whose turn it is. It returns a request whose answer begins
// or which has failed, and whether there is more to run.
func (e *Engine) advance(ctx context.Context) (begun *Answer, more bool) {
	if e.filling == nil {
		if len(e.waiting) == 0 || e.batch.Room() == 0 || !e.admit(e.waiting[0]) {
			return nil, false
		}
		a := e.waiting[0]
		e.waiting = slices.Delete(e.waiting, 0, 1) // and refer to it no more
		if len(a.Request.Prompt) == 0 {
			return e.beginAnswer(a), true
		}
		e.filling, e.units = a, runner.NewUnits(ctx, func(ctx context.Context) error {
			return e.runPrompt(ctx, a)
		})
	}
	if e.units.RunUnit() {
		return nil, true
	}
	a := e.filling
	a.err = e.units.Err()
	e.filling, e.units = nil, nil
	if a.err != nil {
		return a, true
	}
	return e.beginAnswer(a), true
}

// beginAnswer lets the answer of a request whose prompt has run join the others.
func (e *Engine) beginAnswer(a *Answer) *Answer {
	if a.compressed {
		if a.Request.Begun != nil {
			a.Request.Begun()
		}
		return a
	}
	opt, s := a.Request.Generate, a.Request.Session
	a.room = s.Model().Config.MaxPositions - int(s.Cache.Next()) + 1 // the last token is not run
	if opt.Forced != nil {
		opt = runner.GenerateOptions{Forced: opt.Forced}
	} else {
		opt.MaxNew = min(opt.MaxNew, a.room)
		own := opt.OnToken
		opt.OnToken = func(id int32) error {
			err := a.text.pushToken(id)
			if own != nil {
				err = errors.Join(own(id), err)
			}
			return err
		}
	}
	sequence, err := s.Join(e.batch, opt)
	if err != nil {
		a.err = err
		return a
	}
	a.sequence = sequence
	e.live = append(e.live, a)
	if a.Request.Begun != nil {
		a.Request.Begun()
	}
	return a
}

// Count is what a request needs in an engine with a budget, and model.ErrMemory where there can be no room for it. It may
// take as long as the request would on a model without numbers, once for all that are alike. Of requests that begin a
// conversation any goroutine may ask, so that the engine need not count what is submitted then.
func (e *Engine) Count(r *Request) (need eviction.Footprint, err error) {
	s, maxNew := r.Session, max(r.Generate.MaxNew, len(r.Generate.Forced))
	of := eviction.FootprintOptions{MaxNew: maxNew, Rows: e.rows, Enough: e.Budget / int64(e.rows), Context: r.Context}
	if need, err = s.Footprint(context.Background(), len(r.Prompt), of); err != nil {
		return need, err
	}
	if n := need.Need(); n > e.Budget {
		return need, fmt.Errorf("%w: got a need of %s beside the weights, want at most %s", model.ErrMemory, bytesize.FormatMemory(n), bytesize.FormatMemory(e.Budget))
	}
	return need, nil
}

// admit tells whether there is room for a request beside those that run, and makes it: sessions that are kept go, those that
// have waited longest first, and scratch memory that others have left, that of prompts always, since what is counted has
// none, and that of steps where nothing runs. Of a conversation that goes on its session is taken.
func (e *Engine) admit(a *Answer) bool {
	if e.Budget == 0 {
		return true
	}
	if e.steps > 0 && len(e.live) == 0 {
		e.newBatch() // as before, without an error
		e.steps = 0
	}
	steps := max(e.steps, a.need.Steps)
	need := a.need.Need() - a.need.Steps + steps - e.steps + e.needs() // nothing is filling
	if need > e.Budget {
		return false
	}
	e.resume(a) // what it takes is counted in its need
	e.LetGo(e.Budget - need)
	if a.need.Passes > 0 { // which a bound does not tell apart
		e.runtime.ReleaseScratch()
	}
	e.steps = steps
	return true
}
