package serving

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/internal/panics"
	"glimpse/model/runner"
)

// worker is the goroutine that the engine belongs to. Others ask it by do, which it attends to between steps.
type worker struct {
	engine   *engine.Engine
	runtime  *eviction.Runtime
	maxGap   time.Duration
	memory   int64 // of sessions and shared prefixes; 0: it is not bounded
	commands chan func()
	stop     chan struct{}
	stopped  chan struct{}
	metrics  *metrics
	log      *slog.Logger
	recorder *recorder // nil: nothing is recorded
	idle     *idle     // nil: nothing is done then

	choices map[*engine.Answer]*choice
	stepped time.Duration // what a step of the answers takes, see most
	unit    time.Duration // what a unit of a prompt takes
	longest time.Duration // the longest step while answers were decoded
	resting time.Duration // the longest unit of idle work
	letGo   int64         // sessions that waited, as was told last
}

// idleStep bounds the steps of prompts that run alone, so that others are heard.
const idleStep = 50 * time.Millisecond

// maxCommands is how many others are attended to between two steps.
const maxCommands = 64

func newWorker(e *engine.Engine, rt *eviction.Runtime, c *Config, m *metrics) *worker {
	return &worker{
		engine: e, runtime: rt, memory: c.Memory, maxGap: c.MaxGap, metrics: m, log: c.Log,
		commands: make(chan func()), stop: make(chan struct{}), stopped: make(chan struct{}),
		choices: make(map[*engine.Answer]*choice),
	}
}

// errStopped: the server is going down.
var errStopped = errors.New("the server is shutting down")

// do calls f between two steps. A panic of it is its error.
func (w *worker) do(f func()) (err error) {
	done := make(chan struct{})
	select {
	case w.commands <- func() {
		defer close(done)
		defer panics.Catch(&err)
		f()
	}:
	case <-w.stopped:
		return errStopped
	}
	<-done
	return err
}

// runEngine steps the engine until stop is closed; what is not done then is cancelled.
func (w *worker) runEngine() {
	defer close(w.stopped)
	for {
		if w.engine.Len() == 0 {
			if !w.rest() {
				return
			}
			continue
		}
		for asked := 0; asked < maxCommands; asked++ {
			select {
			case f := <-w.commands:
				f()
				continue
			case <-w.stop:
				w.failAll(errStopped)
				return
			default:
			}
			break
		}
		w.runUnits()
	}
}

// rest does a unit of idle work, or waits where there is none for what others ask. It is false when all is to stop.
func (w *worker) rest() bool {
	start := time.Now()
	if w.idle.unit() {
		if took := time.Since(start); took > w.resting {
			w.resting = took
			w.metrics.idleUnit.Set(took.Seconds())
		}
		select {
		case f := <-w.commands:
			f()
		case <-w.stop:
			w.idle.yield()
			return false
		default:
		}
	} else {
		select {
		case f := <-w.commands:
			f()
		case <-w.stop:
			return false
		}
	}
	if w.engine.Len() > 0 {
		w.idle.yield()
	}
	return true
}

// runUnits runs units of prompts as long as another one, and the answers' step behind them, end within the longest gap
// between two tokens. One always runs.
func (w *worker) runUnits() {
	decoding := w.decoding()
	room := idleStep
	if decoding > 0 {
		room = w.maxGap - w.stepped
	}
	start := time.Now()
	last := start
	w.engine.More = func(int) bool {
		now := time.Now()
		w.unit, last = most(w.unit, now.Sub(last)), now
		return now.Sub(start)+w.unit <= room
	}
	events, err := w.step()
	if took := time.Since(start); decoding > 0 {
		w.stepped = most(w.stepped, time.Since(last))
		if took > w.longest {
			w.longest = took
			w.metrics.gap.Set(took.Seconds())
		}
	}
	for _, e := range events {
		w.tell(e)
	}
	if err != nil { // of the device, or of a pass that has panicked: every answer ends with it
		w.metrics.failed.Inc()
		w.failAll(err)
	}
	w.metrics.stepped(w)
}

// step takes a step of the engine. What belongs to one answer fails with that answer; the error of a panic is that of all.
func (w *worker) step() (events []engine.Event, err error) {
	defer panics.Catch(&err)
	return w.engine.Step(context.Background())
}

// tell takes an event to its choice, which fails where that panics.
func (w *worker) tell(e engine.Event) {
	c := w.choices[e.Answer]
	var err error
	func() {
		defer panics.Catch(&err)
		c.say(e)
	}()
	if err != nil {
		w.engine.Cancel(e.Answer)
		c.failed(err)
	}
	if err != nil || e.Done {
		w.keepSession(c)
		delete(w.choices, e.Answer)
	}
}

// most is the longest time that it was told; shorter ones bring it down within some steps.
func most(before, now time.Duration) time.Duration {
	return max(now, before-before/16)
}

// decoding is the number of answers that have begun.
func (w *worker) decoding() (n int) {
	for _, c := range w.choices {
		if c.begun {
			n++
		}
	}
	return n
}

// failAll ends everything.
func (w *worker) failAll(err error) {
	for a, c := range w.choices {
		w.engine.Cancel(a)
		c.failed(err)
	}
	clear(w.choices)
}

// job is a request whose choices (n of them) are answered.
type job struct {
	worker  *worker
	choices []*choice
	wake    chan struct{} // something was said
}

// choice is one answer. What the worker writes, it writes under the lock.
type choice struct {
	job    *job
	index  int
	policy string
	texts  []string // of the prompt's tokens, where the usage is to say what was kept of them
	// conversation: another request may go on with it.
	conversation bool
	// generation is what it was asked for by; nil where nothing may be kept after the answer.
	generation *generation
	answer     *engine.Answer
	entered    time.Time

	// Of the worker alone.
	begun bool
	held  int64 // bytes after the prompt
	pairs int
	first time.Time // token
	last  time.Time // token

	mu   sync.Mutex
	said chunk
	err  error
}

// chunk is what was said since the last time.
type chunk struct {
	text     string
	tokens   []tokenLogProb // where they are asked for
	started  bool           // the first token is there, or the end
	done     bool
	count    int // tokens so far
	reason   engine.Reason
	stop     string // the stop text that has ended it
	usage    usage
	ttft     time.Duration
	finished time.Time
}

// submit begins the answers of a job, one of each request.
func (w *worker) submit(requests []engine.Request, opt func(r *engine.Request, c *choice)) (*job, error) {
	j := &job{worker: w, wake: make(chan struct{}, 1)}
	var failed error
	err := w.do(func() {
		for i := range requests {
			c := &choice{job: j, index: i, entered: time.Now()}
			opt(&requests[i], c)
			requests[i].Begun = c.beginChoice
			if c.answer, failed = w.engine.Submit(requests[i]); failed != nil {
				j.cancel()
				return
			}
			w.choices[c.answer] = c
			j.choices = append(j.choices, c)
		}
		w.metrics.stepped(w)
	})
	if err != nil { // a panic
		j.hangUp()
	}
	return j, w.logged(cmp.Or(err, failed))
}

// logged is an error of an answer, which the log has where it is a panic.
func (w *worker) logged(err error) error {
	if p := new(panics.Error); errors.As(err, &p) {
		w.metrics.panics.Inc()
		w.log.Error("an answer panicked", "panic", p.Error(), "stack", string(p.Stack))
	}
	return err
}

// session is the answer's, of a conversation that goes on the one that was kept.
func (c *choice) session() *eviction.Session { return c.answer.Request.Session }

// beginChoice is called when the prompt has run.
func (c *choice) beginChoice() {
	s := c.session()
	c.begun, c.held, c.pairs, c.first = true, s.Bytes(), s.Cache.Pairs(), time.Now()
}

// keepSession holds the session of an answer for the next turn, if it is one of a conversation.
func (w *worker) keepSession(c *choice) {
	if c.conversation {
		w.engine.Keep(c.answer)
	}
}

// cancel ends the answers that go on; it is the worker's own.
func (j *job) cancel() {
	for _, c := range j.choices {
		if _, goes := j.worker.choices[c.answer]; goes {
			j.worker.engine.Cancel(c.answer)
			j.worker.keepSession(c)
			delete(j.worker.choices, c.answer)
			c.failed(context.Canceled)
		}
	}
}

// hangUp ends the answers of a client that is gone.
func (j *job) hangUp() { j.worker.do(j.cancel) }

// say takes an event of the choice's answer.
func (c *choice) say(e engine.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.answer
	c.said.text += e.Text
	for range len(a.Tokens()) - c.said.count { // the first step gives two
		now := time.Now()
		if c.said.count > 0 {
			c.job.worker.metrics.interToken.Observe(now.Sub(c.last).Seconds())
		}
		c.said.count++
		c.last = now
	}
	if !c.said.started && (c.said.count > 0 || e.Done) {
		c.said.started, c.said.ttft = true, time.Since(c.entered)
	}
	if e.Done {
		c.said.done, c.said.reason, c.err, c.said.finished = true, a.Reason(), a.Err(), time.Now()
		c.said.usage, c.said.stop = c.used(), a.StopText()
		c.job.worker.metrics.finished(c)
		c.job.worker.ended(c)
	}
	c.job.notify()
}

func (c *choice) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said.done, c.err, c.said.started, c.said.reason = true, err, true, engine.Interrupted
	c.said.finished = time.Now()
	c.job.worker.metrics.finished(c)
	c.job.notify()
}

func (j *job) notify() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// takeChunk returns what has come since the last time.
func (c *choice) takeChunk() (chunk, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.said
	c.said.text, c.said.tokens = "", nil
	return out, c.err
}

// each calls f with what the choices say, as it comes, until all are done or ctx ends, when they are cancelled.
func (j *job) each(ctx context.Context, f func(c *choice, said chunk) error) error {
	open := len(j.choices)
	ended := make([]bool, open)
	for open > 0 {
		select {
		case <-j.wake:
		case <-ctx.Done():
			j.hangUp()
			return ctx.Err()
		}
		for i, c := range j.choices {
			if ended[i] {
				continue
			}
			said, err := c.takeChunk()
			if err == nil {
				err = f(c, said)
			}
			if err != nil {
				j.hangUp()
				return j.worker.logged(err)
			}
			if said.done {
				ended[i] = true
				open--
			}
		}
	}
	return nil
}

// tokenLogProb is a token of an answer with the likeliest ones in its place.
type tokenLogProb struct {
	id      int32
	logProb float64
	top     []runner.LogProb
}

// onLogProb keeps the numbers of a token, which come before the token's event, on the worker's goroutine.
func (c *choice) onLogProb(id int32, logProb float64, top []runner.LogProb) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said.tokens = append(c.said.tokens, tokenLogProb{id, logProb, top})
}
