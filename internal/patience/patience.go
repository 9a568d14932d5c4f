// Package patience is how long anything waits for a server: [Silence] without a byte in
// either direction ends a request, and after [Notice] a person is told what is waited
// for. A [Client] keeps to that from the first byte of a request to the last of its
// answer, whoever reads it.
package patience

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Silence without a byte is the most that is waited for. It is also for the
	// ResponseHeaderTimeout of transports, which counts from the end of a request.
	Silence = 30 * time.Second
	// Notice is when a person is told.
	Notice = 5 * time.Second
	// maxSilent is the number of requests in a row without an answer after which a
	// server is given up.
	maxSilent = 2
)

var (
	// ErrSilent is the error of a server that takes requests and answers none.
	ErrSilent = errors.New("the server does not answer")
	// ErrStalled is the error of a request or an answer that stops in the middle.
	ErrStalled = errors.New("no data for a while")
)

// Hopeless tells of errors of the connection that another attempt gets, too.
func Hopeless(err error) bool {
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &certificate) || errors.Is(err, http.ErrSchemeMismatch) || errors.Is(err, ErrSilent)
}

// Doer sends requests, as an [http.Client] does.
type Doer interface {
	Do(*http.Request) (*http.Response, error)
}

// Client is a Doer that loses patience. It is safe for concurrent use.
type Client struct {
	Doer Doer
	// Tell takes what is waited for; nil tells nobody.
	Tell func(text string)
	// Silence and Notice replace the package's, but for 0.
	Silence, Notice time.Duration

	silent atomic.Int32 // requests in a row without an answer
}

// Do implements Doer. The body of the answer, which the caller closes, fails with
// ErrStalled where it stops.
func (c *Client) Do(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	w := &wait{client: c, cancel: cancel, host: r.URL.Host}
	request := r.WithContext(ctx)
	var upload *wait
	if r.Body != nil && r.Body != http.NoBody {
		upload = &wait{client: c, cancel: cancel, host: r.URL.Host}
		request.Body = &sent{ReadCloser: r.Body, wait: upload}
	}
	told := w.tell("waiting for an answer of %s")
	answer, err := c.Doer.Do(request)
	told()
	upload.stopForGood()
	if err != nil {
		if errors.Is(context.Cause(ctx), ErrStalled) {
			err = fmt.Errorf("%s: %w", r.URL.Host, ErrStalled)
		}
		cancel(nil)
		return nil, c.countFailure(r, err)
	}
	c.silent.Store(0)
	answer.Body = &received{ReadCloser: answer.Body, wait: w, ctx: ctx}
	return answer, nil
}

// countFailure gives a server up that does not answer.
func (c *Client) countFailure(r *http.Request, err error) error {
	var timeout net.Error
	late := errors.Is(err, ErrStalled) || errors.As(err, &timeout) && timeout.Timeout()
	if r.Context().Err() != nil || !late {
		c.silent.Store(0)
		return err
	}
	if n := c.silent.Add(1); n >= maxSilent {
		return fmt.Errorf("%s: %w: %w", r.URL.Host, ErrSilent, err)
	}
	return err
}

// wait is one direction of a request.
type wait struct {
	client *Client
	cancel context.CancelCauseFunc
	host   string

	mu    sync.Mutex
	timer *time.Timer
	done  bool
}

// tell tells unless what it returns is called before.
func (w *wait) tell(text string) (stop func()) {
	if w.client.Tell == nil {
		return func() {}
	}
	timer := time.AfterFunc(cmp.Or(w.client.Notice, Notice), func() { w.client.Tell(fmt.Sprintf(text, w.host)) })
	return func() { timer.Stop() }
}

// startWaiting begins to wait, and again where it has.
func (w *wait) startWaiting() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.halt()
	if !w.done {
		w.timer = time.AfterFunc(cmp.Or(w.client.Silence, Silence), func() { w.cancel(ErrStalled) })
	}
}

func (w *wait) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.halt()
}

// stopForGood ends the wait for good: a transport may read on when the answer has come.
func (w *wait) stopForGood() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.halt()
	w.done = true
}

func (w *wait) halt() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// sent is the body of a request: the time between two reads of it is that in which the
// server takes nothing. A transport reads it on one goroutine.
type sent struct {
	io.ReadCloser
	wait *wait
}

func (s *sent) Read(p []byte) (int, error) {
	s.wait.stop()
	n, err := s.ReadCloser.Read(p)
	s.wait.startWaiting() // after the last read until the answer begins
	return n, err
}

// received is the body of an answer.
type received struct {
	io.ReadCloser
	wait *wait
	ctx  context.Context

	since time.Time // when bytes were counted from
	bytes int       // since then
	told  bool      // that it is slow
}

func (b *received) Read(p []byte) (int, error) {
	b.wait.startWaiting()
	told := b.wait.tell("waiting for more of an answer of %s")
	n, err := b.ReadCloser.Read(p)
	told()
	b.wait.stop()
	b.tellSlow(n)
	if err != nil && err != io.EOF && errors.Is(context.Cause(b.ctx), ErrStalled) {
		err = fmt.Errorf("%s: %w", b.wait.host, ErrStalled)
	}
	return n, err
}

// slow is the rate, in bytes a second, below which a person is told: an answer that drips is none
// that stalls.
const slow = 1024

// tellSlow counts n bytes more, and tells once of an answer that is slow.
func (b *received) tellSlow(n int) {
	now := time.Now()
	if b.since.IsZero() {
		b.since = now
	}
	b.bytes += n
	notice := cmp.Or(b.wait.client.Notice, Notice)
	if now.Sub(b.since) < notice {
		return
	}
	if float64(b.bytes) < slow*now.Sub(b.since).Seconds() && !b.told && b.wait.client.Tell != nil {
		b.told = true
		b.wait.client.Tell(fmt.Sprintf("waiting for more of an answer of %s: %d bytes in %v", b.wait.host, b.bytes, now.Sub(b.since).Round(time.Millisecond)))
	}
	b.since, b.bytes = now, 0
}

func (b *received) Close() error {
	err := b.ReadCloser.Close()
	b.wait.cancel(nil)
	return err
}

// Sleep waits for so long, or as long as ctx lasts, whose cause is the error then.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// After is what a server wants to be waited for: Retry-After in seconds or as a date (RFC 9110,
// section 10.2.3), at most so long; 0 where it says nothing.
func After(h http.Header, most time.Duration) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds >= 0 {
		return time.Duration(min(seconds, most.Seconds()) * float64(time.Second))
	}
	if date, err := http.ParseTime(text); err == nil {
		return min(max(0, time.Until(date)), most)
	}
	return 0
}
