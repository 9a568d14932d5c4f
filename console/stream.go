package console

import (
	"context"

	"glimpse/engine"
)

// stream answers a request, which is alone in its engine, and says the text as it comes. A context
// that ends cuts the answer short.
func stream(ctx context.Context, e *engine.Engine, r engine.Request, say func(text string) error) (*engine.Answer, error) {
	a, err := e.Submit(r)
	if err != nil {
		return nil, err
	}
	for !a.Done() {
		events, err := e.Step(ctx)
		if ctx.Err() != nil {
			err = e.Cancel(a)
		}
		if err != nil {
			return a, err
		}
		for _, event := range events {
			if err := say(event.Text); err != nil {
				return a, err
			}
		}
	}
	return a, a.Err()
}
