package evaluation

import (
	"context"
	"fmt"

	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/internal/stats"
	"glimpse/model/runner"
)

// conversation is one cell's part in a sample: its evicted cache answers turn by turn, and
// is then, evicted anew, run over the full cache's answer.
type conversation struct {
	bench    *Bench
	study    *eviction.Study
	choice   *eviction.Choice
	sample   *Sample
	forced   []int32 // the full cache's answer; nil: it is not run
	measures Measures

	answersOfFull []Output  // to the questions about a context; nil: they are not run
	nlls          []float64 // of those that were run

	session *eviction.Session
	turn    int
	forcing bool
	read    eviction.Traffic
	said    int
	answers []Output
	err     error
}

// converse lets all cells answer, as many together as a batch takes. What a cell answers does
// not depend on the others. Errors of cells are theirs.
func (b *Bench) converse(ctx context.Context, cells []*conversation) error {
	of := make(map[*engine.Answer]*conversation)
	defer func() { // where an error leaves any
		for a := range of {
			b.engine.Cancel(a)
		}
	}()
	submit := func(c *conversation) error {
		r, more, err := c.nextRequest(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil || !more:
			c.endConversation(err)
			return nil
		}
		a, err := b.engine.Submit(r)
		if err == nil {
			of[a] = c
		}
		return err
	}
	for next := 0; ; {
		for ; next < len(cells) && len(of) < b.Batch; next++ {
			if err := submit(cells[next]); err != nil {
				return err
			}
		}
		if len(of) == 0 {
			return nil
		}
		events, err := b.engine.Step(ctx)
		if err != nil {
			return err
		}
		for _, e := range events {
			if !e.Done {
				continue
			}
			a, c := e.Answer, of[e.Answer]
			delete(of, a)
			if a.Err() != nil {
				c.endConversation(fmt.Errorf("turn %d: %w", c.turn+1, a.Err()))
				continue
			}
			if c.forcing {
				c.likelihood(a.LogProbs())
			} else {
				c.answered(a)
			}
			if err := submit(c); err != nil {
				return err
			}
		}
	}
}

// endConversation is the end of a conversation, with an error or without.
func (c *conversation) endConversation(err error) {
	if c.err = err; err != nil {
		err = fmt.Errorf("policy %s: %w", c.choice.Configured.Name, err)
		c.err = err
	}
	c.session = nil // and its cache
}

// nextRequest is what the engine is to do next: the first turn, another one, or the full cache's
// answer; more is false where nothing is left.
func (c *conversation) nextRequest(ctx context.Context) (r engine.Request, more bool, err error) {
	switch turns := c.sample.Turns; {
	case c.sample.Context != nil:
		return c.nextQuestion(ctx)
	case c.forcing:
		return r, false, nil
	case c.session == nil:
		if c.session, err = c.study.Session(c.choice); err != nil {
			return r, false, err
		}
		c.measures[MeasureKept] = float64(c.session.Bytes())
		return c.request(c.turn, nil), true, nil
	case c.turn < len(turns):
		ids, whole, err := turns[c.turn].Prompt(ctx, c.answers)
		if err == nil && whole {
			ids, err = c.reread(ids)
		}
		if err != nil {
			return r, false, fmt.Errorf("turn %d: %w", c.turn+1, err)
		}
		return c.request(c.turn, ids), true, nil
	}
	c.measures[MeasureAnswered] = float64(c.said)
	if c.read.Steps > 0 {
		c.measures[MeasureTraffic] = c.read.PerStep()
	}
	if c.session = nil; len(c.forced) == 0 {
		return r, false, nil
	}
	c.forcing = true
	c.session, err = c.study.Session(c.choice)
	return engine.Request{Session: c.session, Generate: runner.GenerateOptions{Forced: c.forced}}, true, err
}

// nextQuestion asks a copy of the evicted context the next question, or runs the full cache's answer after it.
func (c *conversation) nextQuestion(ctx context.Context) (r engine.Request, more bool, err error) {
	at, n := c.turn, len(c.sample.Turns)
	if c.forcing = at == n && c.answersOfFull != nil; c.forcing {
		at = len(c.nlls)
	}
	if at == n {
		if c.session = nil; c.forcing {
			c.measures[MeasureNLL], _ = stats.Mean(c.nlls)
			return r, false, nil
		}
		c.measures[MeasureAnswered] = float64(c.said)
		if c.read.Steps > 0 {
			c.measures[MeasureTraffic] = c.read.PerStep()
		}
		return r, false, nil
	}
	if c.session, err = c.study.Session(c.choice); err != nil {
		return r, false, err
	}
	c.measures[MeasureKept] = float64(c.session.Bytes())
	c.session.KeepRest()
	ids, _, err := c.sample.Turns[at].Prompt(ctx, nil)
	if err != nil {
		return r, false, fmt.Errorf("question %d: %w", at+1, err)
	}
	if r = c.request(at, ids); c.forcing {
		r.Generate = runner.GenerateOptions{Forced: c.answersOfFull[at].IDs}
	}
	return r, true, nil
}

// request is a turn's, whose prompt has run where there are no ids.
func (c *conversation) request(turn int, ids []int32) engine.Request {
	t := &c.sample.Turns[turn]
	return engine.Request{
		Session: c.session, Prompt: ids, Stop: t.Stop, SkipLeading: t.SkipLeading,
		Generate: runner.GenerateOptions{MaxNew: t.MaxNew, Sampling: c.bench.Sampling},
	}
}

// reread is what the session must run of a conversation that is given whole.
func (c *conversation) reread(ids []int32) ([]int32, error) {
	before := int(c.session.Cache.Next())
	kept, err := c.session.Rewind(ids)
	c.measures[MeasureReread] += float64(before - kept)
	return ids[kept:], err
}

// answered takes down the answer of a turn.
func (c *conversation) answered(a *engine.Answer) {
	c.answers = append(c.answers, Output{Text: a.Text(), IDs: a.Tokens(), Ended: a.Ended()})
	c.said += len(a.Tokens())
	c.read = c.read.Plus(c.session.Traffic)
	c.turn++
}

// likelihood takes down that of the full cache's answer.
func (c *conversation) likelihood(logProbs []float64) {
	mean, _ := stats.Mean(logProbs)
	if c.sample.Context != nil {
		c.nlls = append(c.nlls, -mean)
		return
	}
	c.measures[MeasureNLL] = -mean
}
