package console

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"glimpse/engine"
	"glimpse/kernels"
)

// reply is an answer in a terminal.
type reply struct {
	*engine.Answer
	text  string  // without spaces around it
	speed float64 // tokens a second
}

// statistics are what its session knows of an answer.
func (r reply) statistics(schema string, policy engine.Policy) turnStatistics {
	s := r.Request.Session
	return turnStatistics{
		Schema: schema, Device: kernels.DeviceOf(s.Model().Backend), Policy: policy.NameWithAdapter(), Budget: s.Prompt.Budget,
		Answer: r.text, Ended: r.Ended(), Stop: r.Reason(), PromptTokens: len(r.Request.Prompt), AnswerTokens: len(r.Tokens()),
		Position: int(s.Cache.Next()), StepBytes: s.Traffic.PerStep(), TTFTMillis: ms(s.PrefillTime), Speed: r.speed,
	}
}

// ask answers a request, which is alone in its engine, and shows the text as it comes, unless show is nil. A context that ends
// cuts the answer short.
func ask(ctx context.Context, e *engine.Engine, r engine.Request, show io.Writer) (out reply, err error) {
	var text strings.Builder
	say := func(more string) error {
		text.WriteString(more)
		if show == nil {
			return nil
		}
		_, err := io.WriteString(show, more)
		return err
	}
	start, begun := time.Now(), r.Begun
	r.Begun = func() {
		if start = time.Now(); begun != nil {
			begun()
		}
	}
	if r.Session.Model().Tokenizer == nil {
		r.Generate.OnToken = func(id int32) error { return say(fmt.Sprint(id, " ")) }
	}
	if out.Answer, err = e.Submit(r); err != nil {
		return out, err
	}
	for !out.Done() {
		events, err := e.Step(ctx)
		if ctx.Err() != nil {
			err = e.Cancel(out.Answer)
		}
		if err != nil {
			return out, err
		}
		for _, event := range events {
			if err := say(event.Text); err != nil {
				return out, err
			}
		}
	}
	out.text, out.speed = strings.TrimSpace(text.String()), float64(len(out.Tokens()))/time.Since(start).Seconds()
	return out, out.Err()
}
