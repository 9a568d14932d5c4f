package hub

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"glimpse/internal/patience"
)

// said is a log that can be read.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// TestStalledDescription: a hub that stops in the middle of what it says of a model is
// asked again, is told of, and is given up in the end.
func TestStalledDescription(t *testing.T) {
	for name, stalls := range map[string]int32{"once": 1, "always": attempts + 1} {
		t.Run(name, func(t *testing.T) {
			h := newFakeHub(t, wholeModel())
			real := h.Hub.Config.Handler
			var asked atomic.Int32
			h.Hub.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, "/api/") && asked.Add(1) <= stalls {
					io.WriteString(w, `{"sha": "aaaa`)
					w.(http.Flusher).Flush()
					<-r.Context().Done()
					return
				}
				real.ServeHTTP(w, r)
			})
			var log said
			f, err := newFetcher("org/tiny", &log)
			if err != nil {
				t.Fatal(err)
			}
			f.client.pause, f.client.http.Silence, f.client.http.Notice = time.Millisecond, 200*time.Millisecond, 50*time.Millisecond
			begin := time.Now()
			_, err = f.findModel(t.Context())
			if stalls == 1 && err != nil || stalls > 1 && !errors.Is(err, patience.ErrStalled) {
				t.Errorf("error %v", err)
			}
			if took := time.Since(begin); took > 20*time.Second {
				t.Errorf("took %v", took)
			}
			if !strings.Contains(log.String(), "waiting for more of an answer of 127.0.0.1") {
				t.Errorf("told %q", log.String())
			}
		})
	}
}

// TestFinalConnectionErrors: what the next attempt gets, too, is not tried again.
func TestFinalConnectionErrors(t *testing.T) {
	newFakeHub(t, wholeModel()) // for the environment
	for name, secure := range map[string]bool{"unknown certificate": true, "no TLS": false} {
		t.Run(name, func(t *testing.T) {
			var connections atomic.Int64
			server := httptest.NewUnstartedServer(http.NotFoundHandler())
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					connections.Add(1)
				}
			}
			if secure {
				server.StartTLS()
			} else {
				server.Start()
			}
			defer server.Close()
			t.Setenv("HF_ENDPOINT", strings.Replace(server.URL, "http:", "https:", 1))
			if _, err := find(t, "org/tiny"); err == nil {
				t.Error("no error")
			}
			if n := connections.Load(); n != 1 {
				t.Errorf("%d connections, want 1", n)
			}
		})
	}
}
