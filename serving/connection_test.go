package serving_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"glimpse/serving"
)

// dial opens a connection to the server and sends a request.
func (s *served) dial(t *testing.T, request string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

func posting(path, version, body string) string {
	return fmt.Sprintf("POST %s HTTP/%s\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, version, len(body), body)
}

// answerOf reads an answer behind those before it, which it counts.
func answerOf(c net.Conn) (status int, body string, before int, err error) {
	c.SetReadDeadline(time.Now().Add(30 * time.Second))
	for r := bufio.NewReader(c); ; before++ {
		a, err := http.ReadResponse(r, nil)
		if err != nil {
			return 0, "", before, err
		}
		if a.StatusCode >= 200 {
			raw, err := io.ReadAll(a.Body)
			return a.StatusCode, string(raw), before, err
		}
	}
}

// TestHalfClosed: a client that has ended its side after the request gets its answer.
func TestHalfClosed(t *testing.T) {
	s := serve(t, nil)
	s.server.Handle("POST /slow", func(w http.ResponseWriter, r *http.Request) error {
		io.ReadAll(r.Body)
		select {
		case <-r.Context().Done():
			return r.Context().Err()
		case <-time.After(time.Second):
		}
		_, err := io.WriteString(w, "slow")
		return err
	})
	chat := `{"messages":[{"role":"user","content":"never karl lantern"}],"max_tokens":500,"ignore_eos":true`
	for _, c := range []struct{ name, path, body, want string }{
		{"whole answer", "/v1/chat/completions", chat + `}`, `"finish_reason":"length"`},
		{"stream", "/v1/chat/completions", chat + `,"stream":true}`, "data: [DONE]\n\n"},
		{"before the answer begins", "/slow", `{}`, "slow"},
		{"error", "/v1/chat/completions", `{`, "not JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := s.dial(t, posting(c.path, "1.1", c.body))
			if err := conn.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			_, got, before, err := answerOf(conn)
			if err != nil || !strings.Contains(got, c.want) {
				t.Errorf("%.100q, error %v, want %q", got, err, c.want)
			}
			if c.path == "/slow" && (before < 2 || before > 6) {
				t.Errorf("%d probes within a second, want 2 to 6", before)
			}
		})
	}
}

// TestNoAnswerForWhoSeemsGone: a client of HTTP/1.0 that has ended its side cannot be told from one that is gone. It reads the end of the
// connection, not 200 with nothing.
func TestNoAnswerForWhoSeemsGone(t *testing.T) {
	s := serve(t, nil)
	for _, path := range []string{"/v1/chat/completions", "/v1/messages"} {
		conn := s.dial(t, posting(path, "1.0", `{"messages":[{"role":"user","content":"never karl lantern"}],"max_tokens":3000,"ignore_eos":true}`))
		if err := conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		if got, err := io.ReadAll(conn); err != nil || len(got) > 0 {
			t.Errorf("%s: read %q, %v, want the end", path, got, err)
		}
	}
}

// TestTooLargeBodiesNeedNotBeSent: a client that says how much it will send is told at once that it is too much.
func TestTooLargeBodiesNeedNotBeSent(t *testing.T) {
	s := serve(t, func(c *serving.Config) { c.MaxBody = 1 << 20 })
	for _, expect := range []string{"", "Expect: 100-continue\r\n"} {
		conn := s.dial(t, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+expect+"Content-Length: 1048577\r\n\r\n")
		conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		got := make([]byte, 12)
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != "HTTP/1.1 413" {
			t.Errorf("%q: read %q, %v, want 413", expect, got, err)
		}
	}
}

// TestPausesOfAnswers: a stream in which nothing is written for longer than a client may keep an answer waiting is not cut off.
func TestPausesOfAnswers(t *testing.T) {
	s := serve(t, nil)
	s.server.SetPatience(100 * time.Millisecond)
	s.server.Handle("POST /pauses", func(w http.ResponseWriter, r *http.Request) error {
		io.ReadAll(r.Body)
		for range 3 {
			io.WriteString(w, "data: {}\n\n")
			http.NewResponseController(w).Flush()
			time.Sleep(300 * time.Millisecond)
		}
		_, err := io.WriteString(w, "data: [DONE]\n\n")
		return err
	})
	for version := 1; version <= 2; version++ {
		h := httptest.NewUnstartedServer(s.server)
		h.EnableHTTP2 = version == 2
		h.StartTLS()
		defer h.Close()
		r, err := h.Client().Post(h.URL+"/pauses", "application/json", strings.NewReader(`{}`))
		if err != nil || r.ProtoMajor != version {
			t.Fatalf("%v, error %v, want an answer of HTTP/%d", r, err, version)
		}
		got, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || !strings.HasSuffix(string(got), "[DONE]\n\n") {
			t.Errorf("HTTP/%d: read %q, %v", version, got, err)
		}
	}
}

// TestGoneClients: the context of a request ends soon after its client is gone, before and after the answer has begun.
func TestGoneClients(t *testing.T) {
	s := serve(t, nil)
	ended := make(chan time.Time, 1)
	wait := func(_ http.ResponseWriter, r *http.Request) error {
		io.ReadAll(r.Body)
		select {
		case <-r.Context().Done():
			ended <- time.Now()
		case <-time.After(20 * time.Second):
			ended <- time.Time{}
		}
		return r.Context().Err()
	}
	s.server.Handle("POST /waits", wait)
	s.server.Handle("POST /streams", func(w http.ResponseWriter, r *http.Request) error {
		io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		io.WriteString(w, "data: {}\n\n")
		http.NewResponseController(w).Flush()
		return wait(w, r)
	})
	for _, c := range []struct {
		name, path, version string
		gone                func(c *net.TCPConn)
	}{
		{"closed", "/waits", "1.1", func(c *net.TCPConn) { c.Close() }},
		{"reset", "/waits", "1.1", func(c *net.TCPConn) { c.SetLinger(0); c.Close() }},
		{"half-closed, then closed", "/waits", "1.1", func(c *net.TCPConn) { c.CloseWrite(); time.Sleep(300 * time.Millisecond); c.Close() }},
		{"closed in a stream", "/streams", "1.1", func(c *net.TCPConn) { c.Close() }},
		{"closed in a stream that was read", "/streams", "1.1", func(c *net.TCPConn) {
			for got := ""; !strings.Contains(got, "data: {}"); {
				b := make([]byte, 4096)
				n, err := c.Read(b)
				if got += string(b[:n]); err != nil {
					t.Fatal(err)
				}
			}
			c.Close()
		}},
		{"HTTP/1.0", "/waits", "1.0", func(c *net.TCPConn) { c.Close() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := s.dial(t, posting(c.path, c.version, `{}`))
			time.Sleep(100 * time.Millisecond)
			c.gone(conn)
			start := time.Now()
			if at := <-ended; at.IsZero() || at.Sub(start) > 5*time.Second {
				t.Errorf("the request of a client that is gone goes on for %v", at.Sub(start))
			}
		})
	}
}

// TestStalledClients: clients that do not take their answers are cut off, and hold no memory from then on; slow ones are
// served.
func TestStalledClients(t *testing.T) {
	const size, clients = 8 << 20, 20
	s := serve(t, nil)
	s.server.SetPatience(500 * time.Millisecond)
	var open atomic.Int64
	s.server.Handle("POST /large", func(w http.ResponseWriter, r *http.Request) error {
		open.Add(1)
		defer open.Add(-1)
		_, err := w.Write(make([]byte, size))
		return err
	})
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	connect := func() net.Conn { return s.dial(t, posting("/large", "1.1", `{}`)) }
	drained := func(what string) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); open.Load() > 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d answers are still held", what, open.Load())
			}
		}
	}
	before := heap()
	for range clients {
		connect()
	}
	time.Sleep(200 * time.Millisecond)
	if held := heap() - before; held < clients*size/2 {
		t.Fatalf("%d clients that do not read hold %d bytes: the test sees nothing", clients, held)
	}
	drained("clients that do not read")
	if held := heap() - before; held > size {
		t.Errorf("%d clients that were cut off hold %d bytes", clients, held)
	}
	dripping := connect()
	go func() {
		for b := make([]byte, 100); ; time.Sleep(20 * time.Millisecond) {
			if _, err := dripping.Read(b); err != nil {
				return
			}
		}
	}()
	time.Sleep(50 * time.Millisecond)
	drained("a client that reads 5 kB/s")

	h := httptest.NewUnstartedServer(s.server)
	h.EnableHTTP2 = true
	h.StartTLS()
	defer h.Close()
	r, err := h.Client().Post(h.URL+"/large", "application/json", strings.NewReader(`{}`))
	if err != nil || r.ProtoMajor != 2 {
		t.Fatalf("%v, error %v, want an answer of HTTP/2", r, err)
	}
	defer r.Body.Close()
	drained("a client of HTTP/2 that does not read")

	slow, got := connect(), 0
	for b := make([]byte, 64<<10); ; time.Sleep(10 * time.Millisecond) { // over a second in all, far above the slowest rate
		n, err := slow.Read(b)
		if got += n; got >= size {
			break
		}
		if err != nil {
			t.Fatalf("a slow client has got %d of %d bytes: %v", got, size, err)
		}
	}
}
