package serving

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/internal/panics"
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
	events, err := w.stepEngine()
	if took := time.Since(start); decoding > 0 {
		w.stepped = most(w.stepped, time.Since(last))
		if took > w.longest {
			w.longest = took
			w.metrics.gap.Set(took.Seconds())
		}
	}
	for _, e := range events {
		w.tellChoice(e)
	}
	if err != nil { // of the device, or of a pass that has panicked: every answer ends with it
		w.metrics.failed.Inc()
		w.failAll(err)
	}
	w.metrics.stepped(w)
}

// stepEngine takes a step of the engine. What belongs to one answer fails with that answer; the error of a panic is that of all.
func (w *worker) stepEngine() (events []engine.Event, err error) {
	defer panics.Catch(&err)
	return w.engine.Step(context.Background())
}

// tellChoice takes an event to its choice, which fails where that panics.
func (w *worker) tellChoice(e engine.Event) {
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

// submit begins the answers of an exchange, all or none.
func (w *worker) submit(x *exchange) error {
	var failed error
	err := w.do(func() {
		for _, c := range x.choices {
			if c.answer, failed = w.engine.Submit(c.request); failed != nil {
				x.cancel()
				return
			}
			w.choices[c.answer] = c
		}
		w.metrics.stepped(w)
	})
	if err != nil { // a panic
		x.hangUp()
	}
	return w.logged(cmp.Or(err, failed))
}

// logged is an error of an answer, which the log has where it is a panic.
func (w *worker) logged(err error) error {
	if p := new(panics.Error); errors.As(err, &p) {
		w.metrics.panics.Inc()
		w.log.Error("an answer panicked", "panic", p.Error(), "stack", string(p.Stack))
	}
	return err
}

// keepSession holds the session of an answer for the next turn, if it is one of a conversation.
func (w *worker) keepSession(c *choice) {
	if c.goesOn {
		w.engine.Keep(c.answer)
	}
}
