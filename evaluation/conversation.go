package evaluation

import (
	"bytes"
	"context"
	"fmt"

	"glimpse/eviction"
	"glimpse/internal/stats"
	"glimpse/model"
	"glimpse/model/tokenizer"
)

// conversation is one cell's part in a sample: its evicted cache answers turn by turn, and
// is then, evicted anew, run over the full cache's answer.
type conversation struct {
	bench    *Bench
	study    *eviction.Study
	plan     *eviction.Choice
	sample   *Sample
	forced   []int32 // the full cache's answer; nil: it is not run
	measures Measures

	session *eviction.Session
	heard   *listener
	turn    int
	forcing bool
	read    eviction.Traffic
	said    int
	answers []Answer
	err     error
}

// converse lets all cells answer, as many together as a batch takes. What a cell answers does
// not depend on the others. Errors of cells are theirs.
func (b *Bench) converse(ctx context.Context, cells []*conversation) error {
	if b.Batch <= 1 {
		for _, c := range cells {
			if err := c.alone(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	if b.batch == nil {
		var err error
		if b.batch, err = b.Runtime.NewBatch(b.Batch); err != nil {
			return err
		}
	}
	of := make(map[*eviction.Answer]*conversation)
	join := func(c *conversation) error {
		a, err := c.join(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case a == nil:
			c.end(err)
		default:
			of[a] = c
		}
		return nil
	}
	next := 0
	for {
		for ; next < len(cells) && b.batch.Room() > 0; next++ {
			if err := join(cells[next]); err != nil {
				return b.abandon(err)
			}
		}
		if b.batch.Len() == 0 {
			if next == len(cells) {
				return nil
			}
			continue
		}
		ended, err := b.batch.Step(ctx)
		if err != nil {
			return b.abandon(err)
		}
		for _, a := range ended {
			c := of[a]
			delete(of, a)
			if a.Err() != nil {
				c.end(fmt.Errorf("turn %d: %w", c.turn+1, a.Err()))
				continue
			}
			if c.forcing {
				c.likelihood(a.LogProbs())
			} else {
				c.answered(a.Tokens(), a.Ended())
			}
			if err := join(c); err != nil {
				return b.abandon(err)
			}
		}
	}
}

// abandon leaves a batch that was stopped.
func (b *Bench) abandon(err error) error {
	b.batch = nil
	return err
}

// end is the end of a conversation, with an error or without.
func (c *conversation) end(err error) {
	if c.err = err; err != nil {
		err = fmt.Errorf("policy %s: %w", c.plan.Configured.Name, err)
		c.err = err
	}
	c.session = nil // and its cache
}

// prepare makes the session ready for what comes next: the first turn, another one, or the
// full cache's answer. more is false where nothing does.
func (c *conversation) prepare(ctx context.Context) (more bool, err error) {
	switch turns := c.sample.Turns; {
	case c.forcing:
		return false, nil
	case c.session == nil:
		if c.session, err = c.study.Session(c.plan); err != nil {
			return false, err
		}
		c.measures[MeasureKept] = float64(c.session.Bytes())
		return true, nil
	case c.turn < len(turns):
		ids, whole, err := turns[c.turn].Prompt(ctx, c.answers)
		if err == nil && whole {
			ids, err = c.reread(ids)
		}
		if err != nil {
			return false, fmt.Errorf("turn %d: %w", c.turn+1, err)
		}
		c.bench.Runtime.MaxNew = turns[c.turn].MaxNew
		if err := c.session.Turn(ctx, ids, nil); err != nil {
			return false, fmt.Errorf("turn %d: %w", c.turn+1, err)
		}
		return true, nil
	}
	c.measures[MeasureAnswered] = float64(c.said)
	if c.read.Steps > 0 {
		c.measures[MeasureTraffic] = c.read.PerStep()
	}
	if c.session = nil; len(c.forced) == 0 {
		return false, nil
	}
	c.forcing = true
	c.session, err = c.study.Session(c.plan)
	return true, err
}

// reread is what the session must run of a conversation that is given whole.
func (c *conversation) reread(ids []int32) ([]int32, error) {
	before := int(c.session.Cache.Next())
	kept, err := c.session.Rewind(ids)
	c.measures[MeasureReread] += float64(before - kept)
	return ids[kept:], err
}

// options are those of the turn's answer.
func (c *conversation) options() model.GenerateOptions {
	var opt model.GenerateOptions
	c.heard, opt = c.bench.listen(&c.sample.Turns[c.turn], int(c.session.Cache.Next()))
	return opt
}

// join enters the batch with what comes next; nil where nothing does.
func (c *conversation) join(ctx context.Context) (*eviction.Answer, error) {
	more, err := c.prepare(ctx)
	switch {
	case err != nil || !more:
		return nil, err
	case c.forcing:
		return c.bench.batch.Force(c.session, c.forced)
	}
	return c.bench.batch.Generate(c.session, c.options())
}

// alone answers and is run without a batch.
func (c *conversation) alone(ctx context.Context) error {
	for {
		more, err := c.prepare(ctx)
		if err == nil && more && c.forcing {
			var logProbs []float64
			if logProbs, err = c.session.Force(ctx, c.forced); err == nil {
				c.likelihood(logProbs)
			}
		} else if err == nil && more {
			var tokens []int32
			var ended bool
			if tokens, ended, err = c.session.Generate(ctx, c.options()); err == nil {
				c.answered(tokens, ended)
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil || !more {
			c.end(err)
			return nil
		}
	}
}

// answered takes down the answer of a turn.
func (c *conversation) answered(tokens []int32, ended bool) {
	c.answers = append(c.answers, c.heard.answer(tokens, ended))
	c.said += len(tokens)
	c.read = c.read.Plus(c.session.Traffic)
	c.turn++
}

// likelihood takes down that of the full cache's answer.
func (c *conversation) likelihood(logProbs []float64) {
	mean, _ := stats.Mean(logProbs)
	c.measures[MeasureNLL] = -mean
}

// listener turns tokens into the text of an answer and ends it at a stop text.
type listener struct {
	stream  *tokenizer.Stream // nil without a tokenizer
	text    []byte
	stop    []string
	skip    bool // stop texts at the beginning
	stopped int  // where in text a stop text begins, -1 before
}

// listen makes the options of one answer after so many tokens; the last token of an answer
// is not run.
func (b *Bench) listen(t *Turn, position int) (*listener, model.GenerateOptions) {
	m := b.Runtime.Runner.Model
	l := &listener{stop: t.Stop, skip: t.SkipLeading, stopped: -1}
	if m.Tokenizer != nil {
		l.stream = m.Tokenizer.NewStream(true)
	}
	return l, model.GenerateOptions{MaxNew: min(t.MaxNew, m.Config.MaxPositions-position+1), Sampling: b.Sampling, OnToken: l.hear}
}

func (l *listener) hear(id int32) error {
	if l.stream == nil {
		return nil
	}
	from := len(l.text)
	l.text = append(l.text, l.stream.Push(id)...)
	for _, s := range l.stop {
		if s == "" {
			continue
		}
		start := max(l.leading(), from-len(s)+1) // it may have begun in what came before
		if at := bytes.Index(l.text[start:], []byte(s)); at >= 0 && (l.stopped < 0 || start+at < l.stopped) {
			l.stopped = start + at
		}
	}
	if l.stopped >= 0 {
		return model.ErrStop
	}
	return nil
}

// leading is the length of the stop texts at the beginning that do not end the answer.
func (l *listener) leading() int {
	n := 0
	for more := l.skip; more; {
		more = false
		for _, s := range l.stop {
			if s != "" && bytes.HasPrefix(l.text[n:], []byte(s)) {
				n, more = n+len(s), true
			}
		}
	}
	return n
}

// answer is what was said; ended tells of an end token.
func (l *listener) answer(ids []int32, ended bool) Answer {
	if l.stream == nil {
		return Answer{IDs: ids, Ended: ended}
	}
	if l.stopped >= 0 {
		return Answer{Text: string(l.text[:l.stopped]), IDs: ids, Ended: true}
	}
	return Answer{Text: string(l.text) + l.stream.Flush(), IDs: ids, Ended: ended}
}
