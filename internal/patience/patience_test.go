package patience_test

import (
	"bytes"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"glimpse/internal/patience"
)

const silence = 300 * time.Millisecond

// client waits a hundredth of what the product waits.
func client(t *testing.T) (c *patience.Client, told func() string) {
	var mu sync.Mutex
	var texts []string
	transport := &http.Transport{ResponseHeaderTimeout: silence}
	t.Cleanup(transport.CloseIdleConnections)
	return &patience.Client{
			Doer: &http.Client{Transport: transport}, Silence: silence, Notice: silence / 3,
			Tell: func(text string) { mu.Lock(); texts = append(texts, text); mu.Unlock() },
		}, func() string {
			mu.Lock()
			defer mu.Unlock()
			return strings.Join(texts, "; ")
		}
}

func serve(t *testing.T, handle http.HandlerFunc) string {
	leave := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handle(w, r)
		if r.URL.Path == "/stall" {
			select {
			case <-r.Context().Done():
			case <-leave:
			}
		}
	}))
	t.Cleanup(func() { close(leave); s.Close() })
	return s.URL
}

// soon fails where something took much longer than the silence that ends it.
func soon(t *testing.T, begin time.Time) {
	t.Helper()
	if took := time.Since(begin); took < silence/2 || took > 20*silence {
		t.Errorf("given up after %v, want about %v", took, silence)
	}
}

func get(t *testing.T, c *patience.Client, url string) ([]byte, error) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return io.ReadAll(answer.Body)
}

// TestStalledAnswer: what has come is kept, and the error says why no more does.
func TestStalledAnswer(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"sha": `)
		w.(http.Flusher).Flush()
	})
	c, told := client(t)
	begin := time.Now()
	got, err := get(t, c, url+"/stall")
	if string(got) != `{"sha": ` || !errors.Is(err, patience.ErrStalled) {
		t.Errorf("%q, error %v", got, err)
	}
	soon(t, begin)
	if !strings.Contains(told(), "waiting for more of an answer of 127.0.0.1") {
		t.Errorf("told %q", told())
	}
}

// TestSlowAnswer: one that comes byte by byte is none that stalls, however long it takes.
func TestSlowAnswer(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		for range 10 {
			time.Sleep(silence / 6)
			io.WriteString(w, "x")
			w.(http.Flusher).Flush()
		}
	})
	said := ""
	for range 5 { // a busy machine may keep a server waiting for longer than it sleeps
		c, told := client(t)
		if got, err := get(t, c, url); len(got) != 10 || err != nil {
			t.Errorf("%q, error %v", got, err)
		}
		// That it is slow is another matter.
		if said = told(); strings.Count(said, "waiting for more") == strings.Count(said, "bytes in") {
			return
		}
	}
	t.Errorf("told %q", said)
}

// TestNoAnswer: two requests without one are enough.
func TestNoAnswer(t *testing.T) {
	url := serve(t, func(http.ResponseWriter, *http.Request) {})
	c, told := client(t)
	for i := range 2 {
		begin := time.Now()
		_, err := get(t, c, url+"/stall")
		if err == nil || errors.Is(err, patience.ErrSilent) != (i == 1) || patience.Hopeless(err) != (i == 1) {
			t.Errorf("request %d: error %v", i, err)
		}
		soon(t, begin)
	}
	if !strings.Contains(told(), "waiting for an answer of 127.0.0.1") {
		t.Errorf("told %q", told())
	}
}

// TestStalledRequest: a server that takes no more of what is sent.
func TestStalledRequest(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close() // reads nothing: the buffers on the way fill up
		}
	}()
	c, _ := client(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+l.Addr().String(), bytes.NewReader(make([]byte, 64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if _, err := c.Do(r); !errors.Is(err, patience.ErrStalled) {
		t.Errorf("error %v", err)
	}
	soon(t, begin)
}

// TestHopeless: certificates and servers without TLS are the same the next time.
func TestHopeless(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	c, _ := client(t)
	if _, err := get(t, c, secure.URL); err == nil || !patience.Hopeless(err) {
		t.Errorf("unknown certificate: %v", err)
	}
	if _, err := get(t, c, strings.Replace(serve(t, func(http.ResponseWriter, *http.Request) {}), "http:", "https:", 1)); err == nil || !patience.Hopeless(err) {
		t.Errorf("no TLS: %v", err)
	}
	if _, err := get(t, c, "http://127.0.0.1:1"); err == nil || patience.Hopeless(err) {
		t.Errorf("nobody listens: %v", err)
	}
}

// TestAfter: what a server asks to be waited for, whatever it writes there.
func TestAfter(t *testing.T) {
	date := func(in time.Duration) string { return time.Now().Add(in).UTC().Format(http.TimeFormat) }
	for text, want := range map[string][2]time.Duration{
		"": {}, "soon": {}, "-5": {}, "NaN": {}, date(-time.Hour): {},
		"7":   {7 * time.Second, 7 * time.Second},
		"120": {time.Minute, time.Minute}, "1e18": {time.Minute, time.Minute}, "99999999999999999999": {time.Minute, time.Minute},
		date(30 * time.Second): {25 * time.Second, 30 * time.Second}, date(time.Hour): {time.Minute, time.Minute},
	} {
		if got := patience.After(http.Header{"Retry-After": {text}}, time.Minute); got < want[0] || got > want[1] {
			t.Errorf("%q: %v, want %v to %v", text, got, want[0], want[1])
		}
	}
}

// TestDrippingAnswer: one that never pauses for long and never ends is told of, once.
func TestDrippingAnswer(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		for range 60 {
			time.Sleep(silence / 30)
			io.WriteString(w, "x")
			w.(http.Flusher).Flush()
		}
	})
	c, told := client(t)
	if got, err := get(t, c, url); len(got) != 60 || err != nil {
		t.Errorf("%q, error %v", got, err)
	}
	if n := strings.Count(told(), "bytes in"); n != 1 {
		t.Errorf("told %q, want it once", told())
	}
}
