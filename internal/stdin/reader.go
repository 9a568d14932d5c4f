package stdin

import (
	"context"
	"io"
)

// NewReader reads from in and ends with ctx, also where in is a terminal or a pipe that
// nothing comes from. A read that is left behind takes what comes next.
func NewReader(ctx context.Context, in io.Reader) io.Reader { return &reader{ctx: ctx, in: in} }

type reader struct {
	ctx  context.Context
	in   io.Reader
	read chan readResult // of the read under way; nil: none
	rest []byte
	err  error
}

type readResult struct {
	data []byte
	err  error
}

func (r *reader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 && r.err == nil {
		if r.read == nil {
			r.read = make(chan readResult, 1)
			go func(done chan readResult) {
				buffer := make([]byte, max(len(p), 512))
				n, err := r.in.Read(buffer)
				done <- readResult{buffer[:n], err}
			}(r.read)
		}
		select {
		case <-r.ctx.Done():
			return 0, context.Cause(r.ctx)
		case got := <-r.read:
			r.rest, r.err, r.read = got.data, got.err, nil
		}
	}
	if n := copy(p, r.rest); n > 0 {
		r.rest = r.rest[n:]
		return n, nil
	}
	return 0, r.err
}
