package serving

import (
	"sync"
	"time"

	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/model/runner"
)

// choice is an answer as its client has it: what was said of it since the client took the last. What the worker writes of that, it
// writes under the lock.
type choice struct {
	*exchange
	index   int
	request engine.Request
	answer  *engine.Answer // of the request, when it was submitted
	texts   []string       // of the prompt's tokens, where the usage is to say what was kept of them
	goesOn  bool           // another request may go on with its conversation
	entered time.Time

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
	ran      int            // tokens of the prompt so far, where that is asked for
	cached   int            // of these, those that were there
	started  bool           // the first token is there, or the end
	done     bool
	count    int // tokens so far
	reason   engine.Reason
	stop     string // the stop text that has ended it
	usage    usage
	ttft     time.Duration
	finished time.Time
}

// session is the answer's, of a conversation that goes on the one that was kept.
func (c *choice) session() *eviction.Session { return c.answer.Request.Session }

// progressEvery is how often it is told how far a prompt has run.
const progressEvery = 250 * time.Millisecond

// onPrefill is engine.Request.Progress. Tokens that were found in a cache count as read when the pass begins.
func (c *choice) onPrefill(tokens int) func(more int) {
	all, last := len(c.request.Prompt), time.Time{}
	ran := all - tokens
	c.mu.Lock()
	if c.said.ran == 0 {
		c.said.cached = ran
	}
	c.mu.Unlock()
	return func(more int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		ran += more
		if now := time.Now(); ran == all || now.Sub(last) >= progressEvery {
			c.said.ran, last = max(c.said.ran, ran), now // of a draft's pass there is less
			c.notify()
		}
	}
}

// beginAnswer is called when the prompt has run.
func (c *choice) beginAnswer() {
	s := c.session()
	if c.made != nil && s.Context != nil && c.answer.Standing() == 0 {
		c.made(s.Context)
	}
	c.begun, c.held, c.pairs, c.first = true, s.Bytes(), s.Cache.Pairs(), time.Now()
}

// say takes an event of the choice's answer.
func (c *choice) say(e engine.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, w := c.answer, c.server.worker
	c.said.text += e.Text
	for range len(a.Tokens()) - c.said.count { // the first step gives two
		now := time.Now()
		if c.said.count > 0 {
			w.metrics.interToken.Observe(now.Sub(c.last).Seconds())
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
		w.metrics.finished(c)
		w.ended(c)
	}
	c.notify()
}

func (c *choice) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said.done, c.err, c.said.started, c.said.reason = true, err, true, engine.Interrupted
	c.said.finished = time.Now()
	c.server.worker.metrics.finished(c)
	c.notify()
}

// takeChunk returns what has come since the last time.
func (c *choice) takeChunk() (chunk, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.said
	c.said.text, c.said.tokens = "", nil
	return out, c.err
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
