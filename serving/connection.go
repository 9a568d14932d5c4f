package serving

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// connection knows whether its client has ended its side, after which it may read on (a half-closed connection) or be gone.
// TCP does not tell these apart before something is written to it.
type connection struct {
	net.Conn
	ended atomic.Bool // the client's side
	fresh atomic.Bool // something was read since the last write, so that a probe is at the beginning of an answer

	mu sync.Mutex // of writes
}

type connectionKey struct{}

// sendBuffer bounds what the kernel holds of an answer. A write that waits goes on when about a third of it is free, so that
// one of megabytes, as the kernel would make it, takes slow clients for stalled ones.
const sendBuffer = 256 << 10

// Listen lets a server of HTTP tell clients that are gone from those that have only ended their side.
func Listen(server *http.Server, l net.Listener) net.Listener {
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if c, ok := c.(*connection); ok { // under TLS, whose clients do not half-close, it is another one
			return context.WithValue(ctx, connectionKey{}, c)
		}
		return ctx
	}
	return listener{l}
}

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if c, ok := c.(*net.TCPConn); ok {
		c.SetWriteBuffer(sendBuffer)
	}
	return &connection{Conn: c}, nil
}

func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.fresh.Store(true)
	}
	if errors.Is(err, io.EOF) {
		c.ended.Store(true)
	}
	return n, err
}

func (c *connection) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fresh.Store(false)
	return c.Conn.Write(p)
}

// probe writes an answer before the answer (RFC 9110, section 15.2), which clients pass over, where none has begun. The
// machine of a client that is gone resets the connection then, so that the next one fails.
func (c *connection) probe() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.fresh.Load() {
		return nil
	}
	_, err := io.WriteString(c.Conn, "HTTP/1.1 100 Continue\r\n\r\n")
	return err
}

// Bounds of the time between two probes.
const (
	firstProbe = 100 * time.Millisecond
	lastProbe  = time.Second
)

// whilePresent is the request with a context that ends when its client is gone. That of net/http ends as soon as the client
// has ended its side. stop is called when the request was answered.
func whilePresent(w *answerWriter, r *http.Request) (request *http.Request, stop func()) {
	c, ok := r.Context().Value(connectionKey{}).(*connection)
	if !ok || r.ProtoMajor != 1 || r.ProtoMinor < 1 { // clients of HTTP/1.0 know no answers before the answer
		return r, func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	unwatch := context.AfterFunc(r.Context(), func() {
		defer cancel()
		for wait := firstProbe; c.ended.Load(); wait = min(2*wait, lastProbe) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			if w.probe(c) != nil {
				return
			}
		}
	})
	return r.WithContext(ctx), func() {
		unwatch()
		cancel()
	}
}
