package serving

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// The memory of requests before they are admitted is bounded here: their bodies, and what is made of those on the way to
// tokens (values of JSON, the text of a template, grammars). Config.Memory counts only what runs.
const (
	// smallBody is the part of a body that is never waited for, so that requests of usual size pass by large ones.
	smallBody = 64 << 10
	// Bodies of requests that are there take a part of Config.Memory, 1 of bodiesShare, or bodiesLeast largest bodies, beyond
	// the small part of each. One more may be read on where all of that is taken, or no one would ever be whole. Their
	// tokens count, too, once there are any: as much again may be taken for them before others wait.
	bodiesShare   = 32
	bodiesLeast   = 4
	bodiesUnknown = 1 << 30 // where Config.Memory says nothing
	// workedOn is the most that is worked on at once; bodies that come to one largest body together are.
	workedOn = 16
	// workFactor is the memory of the work on a body, in its bytes: measured 6 to 9, the body and its tokens not counted.
	workFactor = 10
	// perRequest is the memory of a request that is answered or waits: the small part of its body, buffers, stacks.
	perRequest = 128 << 10
	// intakePatience is how long a request waits for room.
	intakePatience = 30 * time.Second
	// bodyStall is how long a client may send nothing of a body that others may wait for, and bodyPatience how long it may be waited for in
	// all, beside a second for each slowest bytes that have come.
	bodyStall    = 10 * time.Second
	bodyPatience = time.Minute
)

// intake bounds bodies that are read and worked on. A body counts as it is read, so that a slow one holds what it has sent, and
// until its request is answered, with its tokens.
// Work needs no more bodies to be read, and of several bodies that wait for room one may go on without: neither waits
// for the other in a circle.
type intake struct {
	most            int64 // bytes of one body
	work            *semaphore.Weighted
	refused         func() // is told of a request that found no room
	patience, stall time.Duration
	sending         time.Duration // see bodyPatience

	mu      sync.Mutex
	free    int64         // bytes that bodies may take; below 0 where over has taken more
	over    *body         // that is read beyond them; nil: none
	changed chan struct{} // is closed when there is more room
}

func newIntake(c *Config, refused func()) *intake {
	return &intake{most: c.MaxBody, work: semaphore.NewWeighted(c.MaxBody), refused: refused, patience: intakePatience, stall: bodyStall, sending: bodyPatience, free: c.bodies(), changed: make(chan struct{})}
}

// bodies is the memory of bodies beyond the small part of each.
func (c *Config) bodies() int64 {
	if c.Memory == 0 {
		return bodiesUnknown
	}
	return max(c.Memory/bodiesShare, bodiesLeast*c.MaxBody)
}

// Beside is the most memory that the server takes beside the weights and Memory, but for garbage: bodies that are read, the
// work on those, and what every request has.
func (c *Config) Beside() int64 {
	return 2*c.bodies() + (1+workFactor)*c.MaxBody + int64(c.Rows+c.Queue)*perRequest
}

// body is the body of a request. It belongs to the request's goroutine.
type body struct {
	io.ReadCloser // of at most intake.most bytes
	in            *intake
	ctx           context.Context
	deadline      func(time.Time) error // of reading from the client

	length     int64         // as the client says; below 0 where it does not
	read, held int64         // bytes
	working    int64         // its weight; 0: it is not worked on
	left       time.Duration // that the client may yet be waited for
}

// body takes the body of a request in. close ends it.
func (in *intake) body(w http.ResponseWriter, r *http.Request) *body {
	return &body{ReadCloser: http.MaxBytesReader(w, r.Body, in.most), in: in, ctx: r.Context(), length: r.ContentLength, left: in.sending, deadline: http.NewResponseController(w).SetReadDeadline}
}

// Read reads on as soon as there is room, and tells of the end when there is room to work on the body.
func (b *body) Read(p []byte) (n int, err error) {
	p = p[:min(len(p), smallBody)]
	switch {
	case b.length > b.in.most: // which need not be sent
		return 0, &http.MaxBytesError{Limit: b.in.most}
	case b.read < smallBody:
		p = p[:min(int64(len(p)), smallBody-b.read)]
	case b.read == b.length: // and the end is all that comes
	default:
		if err := b.in.reserve(b, int64(len(p))); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	if b.held > 0 {
		b.deadline(start.Add(min(b.in.stall, b.left))) // where there are any; net/http lifts it at the body's end
	}
	n, err = b.ReadCloser.Read(p)
	b.left = min(b.in.sending, b.left-time.Since(start)+time.Duration(n)*time.Second/slowest)
	b.read += int64(n)
	b.in.resizeBody(b, max(0, b.read-smallBody))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = failure(http.StatusRequestTimeout, invalidRequest, "request_timeout", "the body stopped, or came too slowly, at %d bytes", b.read)
	case err == io.EOF && b.working == 0:
		if wrong := b.in.beginBody(b); wrong != nil {
			err = wrong
		}
	}
	return n, err
}

// reserve waits for room for n more bytes of a body.
func (in *intake) reserve(b *body, n int64) error {
	patience := time.NewTimer(in.patience)
	defer patience.Stop()
	for {
		in.mu.Lock()
		if in.free < n && in.over == nil && in.free >= 0 {
			in.over = b
		}
		if in.free >= n || in.over == b {
			in.free -= n
			b.held += n
			in.mu.Unlock()
			return nil
		}
		changed := in.changed
		in.mu.Unlock()
		select {
		case <-changed:
		case <-b.ctx.Done():
			return b.ctx.Err()
		case <-patience.C:
			return in.busy()
		}
	}
}

// resizeBody makes a body hold n bytes, without waiting where that is more than it does.
func (in *intake) resizeBody(b *body, n int64) {
	if b.held == n {
		return
	}
	in.mu.Lock()
	in.free += b.held - n
	b.held = n
	in.tell()
	in.mu.Unlock()
}

// tell wakes those who wait. The lock is held.
func (in *intake) tell() {
	close(in.changed)
	in.changed = make(chan struct{})
}

// beginBody waits for the turn of a body that was read.
func (in *intake) beginBody(b *body) error {
	in.mu.Lock()
	if in.over == b {
		in.over = nil
		in.tell()
	}
	in.mu.Unlock()
	ctx, cancel := context.WithTimeout(b.ctx, in.patience)
	defer cancel()
	weight := min(in.most, max(b.read, in.most/workedOn, 1))
	if in.work.Acquire(ctx, weight) != nil {
		if err := b.ctx.Err(); err != nil {
			return err
		}
		return in.busy()
	}
	b.working = weight
	return nil
}

// busy is the error of a request that found no room in time.
func (in *intake) busy() error {
	in.refused()
	e := failure(http.StatusServiceUnavailable, serverError, "busy", "the bodies of other requests are being read and worked on: there was no room in %v", in.patience)
	e.retryAfter = 5 * time.Second
	return e
}

// worked ends the work on a request's body, beside which so many tokens remain while the request is answered.
func worked(r *http.Request, tokens int) {
	if b, ok := r.Body.(*body); ok {
		b.rest()
		b.in.resizeBody(b, max(0, b.read+4*int64(tokens)-smallBody))
	}
}

// bytesPerValue is the least that values of JSON take in a body on average. Many small ones, such as [[],[],[]], come to a
// hundred times their bytes in memory; numbers of tokens have 5 digits and a comma.
const bytesPerValue = 6

// checkValues refuses a body of more values than --max-body has room for at bytesPerValue; an object or a list counts as 8.
func checkValues(r *http.Request, raw []byte) error {
	b, ok := r.Body.(*body)
	if !ok {
		return nil
	}
	values, text := int64(0), false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			text = !text
		case text:
			if c == '\\' {
				i++
			}
		case c == '{' || c == '[':
			values += 8
		case c == ',' || c == ':':
			values++
		}
	}
	if most := b.in.most/bytesPerValue + 1000; values > most {
		return failure(http.StatusRequestEntityTooLarge, invalidRequest, "request_too_large", "got a body of more than %d values, objects and lists counted as 8", most)
	}
	return nil
}

// rest ends the work.
func (b *body) rest() {
	if b.working > 0 {
		b.in.work.Release(b.working)
		b.working = 0
	}
}

// endBody ends it all.
func (b *body) endBody() {
	b.rest()
	b.in.resizeBody(b, 0)
	b.in.mu.Lock()
	if b.in.over == b {
		b.in.over = nil
		b.in.tell()
	}
	b.in.mu.Unlock()
}
