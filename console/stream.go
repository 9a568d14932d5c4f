package console

import (
	"context"
	"io"

	"glimpse/engine"
)

// textTo is where the text of an answer goes: it is kept, and shown unless an object is printed in
// its place.
func (o Options) textTo(kept, shown io.Writer) io.Writer {
	if o.JSON {
		return kept
	}
	return io.MultiWriter(kept, shown)
}

// stream answers a request, which is alone in its engine, and writes the text as it comes. A context
// that ends cuts the answer short.
func stream(ctx context.Context, e *engine.Engine, r engine.Request, to io.Writer) (*engine.Answer, error) {
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
			if _, err := io.WriteString(to, event.Text); err != nil {
				return a, err
			}
		}
	}
	return a, a.Err()
}
