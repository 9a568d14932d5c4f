package judging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// server answers the n-th request, from 1, with what handle writes.
func server(t *testing.T, handle func(n int, w http.ResponseWriter, r *http.Request)) (*Judge, *atomic.Int64) {
	t.Helper()
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(int(n.Add(1)), w, r) }))
	t.Cleanup(s.Close)
	return &Judge{URL: s.URL + "/v1", Model: "m", pause: func(context.Context, time.Duration) error { return nil }}, &n
}

func completion(text string) string {
	data, _ := json.Marshal(map[string]any{"choices": []any{map[string]any{"message": map[string]any{"role": "assistant", "content": text}}}})
	return string(data)
}

// TestAsk: the request is what OpenAI's API wants, and the answer its first choice.
func TestAsk(t *testing.T) {
	j, _ := server(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		want := `{"model":"m","messages":[{"role":"system","content":"be fair"},{"role":"user","content":"rate \"it\""}],"temperature":0,"max_tokens":2048}`
		if string(body) != want || r.URL.Path != "/v1/chat/completions" || r.Method != "POST" || r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("%s %s: %s, want %s", r.Method, r.URL.Path, body, want)
		}
		fmt.Fprint(w, completion("Rating: [[7]]"))
	})
	j.Key = "secret"
	for range 2 {
		if text, err := j.Ask(t.Context(), "be fair", `rate "it"`); err != nil || text != "Rating: [[7]]" {
			t.Errorf("%q, %v", text, err)
		}
		j.URL += "/chat/completions"
	}
}

// TestAttempts: what may pass is tried again, a bounded number of times and after what the
// server asks for; what cannot pass is not.
func TestAttempts(t *testing.T) {
	fail := func(code int, header ...string) func(int, http.ResponseWriter, *http.Request) {
		return func(n int, w http.ResponseWriter, _ *http.Request) {
			if n == 3 {
				fmt.Fprint(w, completion("ok"))
				return
			}
			if len(header) > 0 {
				w.Header().Set(header[0], header[1])
			}
			w.WriteHeader(code)
			fmt.Fprint(w, `{"error": "secret of the server"}`)
		}
	}
	for name, c := range map[string]struct {
		handle   func(int, http.ResponseWriter, *http.Request)
		attempts int // "" tries
		tries    int64
		want     string // the error; "" for none
		refused  bool
	}{
		"busy":          {handle: fail(429, "Retry-After", "7"), tries: 3},
		"broken":        {handle: fail(503), tries: 3},
		"too often":     {handle: fail(503), attempts: 2, tries: 2, want: "2 attempts: "},
		"wrong key":     {handle: fail(401), tries: 1, want: "401 Unauthorized", refused: true},
		"no such model": {handle: fail(404), tries: 1, want: "404 Not Found", refused: true},
		"no completion": {handle: func(_ int, w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, attempts: 2, tries: 2, want: "want a chat completion"},
		"no content":    {handle: func(_ int, w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, completion("")) }, attempts: 2, tries: 2, want: "without content"},
		"hangs up": {handle: func(n int, w http.ResponseWriter, _ *http.Request) {
			if n < 3 {
				panic(http.ErrAbortHandler)
			}
			fmt.Fprint(w, completion("ok"))
		}, tries: 3},
		"too slow": {handle: func(_ int, _ http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			<-r.Context().Done()
		}, attempts: 2, tries: 2, want: "2 attempts: no answer within 50ms"},
	} {
		t.Run(name, func(t *testing.T) {
			j, n := server(t, c.handle)
			var waits []time.Duration
			j.pause = func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil }
			var told []string // what takes long
			j.Tell = func(text string) { told = append(told, text) }
			j.Attempts, j.Timeout = c.attempts, 50*time.Millisecond
			if name != "too slow" {
				j.Timeout = 0
			}
			text, err := j.Ask(t.Context(), "s", "u")
			switch {
			case c.want == "" && (err != nil || text != "ok"):
				t.Errorf("%q, %v", text, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want it to say %q", err, c.want)
			}
			if errors.Is(err, ErrRefused) != c.refused {
				t.Errorf("refused %v, want %v", errors.Is(err, ErrRefused), c.refused)
			}
			if n.Load() != c.tries || len(waits) != int(c.tries)-1 {
				t.Errorf("%d tries, %d pauses, want %d tries", n.Load(), len(waits), c.tries)
			}
			if told := strings.Join(told, "; "); name == "busy" && !strings.Contains(told, "429 Too Many Requests") || name == "busy" && !strings.Contains(told, "attempt 2 of 6 in 7s") || name == "broken" && told != "" {
				t.Errorf("told %q", told)
			}
			if name == "busy" && waits[0] != 7*time.Second || name == "broken" && (waits[0] != time.Second || waits[1] != 2*time.Second) {
				t.Errorf("pauses %v", waits)
			}
		})
	}
	// A cancelled context ends it at once.
	j, _ := server(t, fail(503))
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	j.pause = func(ctx context.Context, _ time.Duration) error { cancel(stop); return context.Cause(ctx) }
	if _, err := j.Ask(ctx, "s", "u"); !errors.Is(err, stop) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestValidate(t *testing.T) {
	good := Judge{URL: "https://host/v1", Model: "m"}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Judge){
		"no address":                   func(j *Judge) { j.URL = "" },
		`address "host:80", want http`: func(j *Judge) { j.URL = "host:80" },
		"a user or password":           func(j *Judge) { j.URL = "https://me:pw@host" },
		"no model":                     func(j *Judge) { j.Model = "" },
		"-1 attempts":                  func(j *Judge) { j.Attempts = -1 },
	} {
		j := good
		change(&j)
		if err := j.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want it to say %q", err, want)
		}
	}
}

// TestRating: cases by FastChat's rule.
func TestRating(t *testing.T) {
	for text, want := range map[string]float64{
		"Good. Rating: [[7]]": 7, "[[8.5]]": 8.5, "First [[3]], then [[9]]": 3, "Rating: [6]": 6, "a [2] but [[4]]": 4, "[[10]]": 10,
		"<think>perhaps [[2]]</think> Rating: [[9]]": 9, "[[5.]]": 5,
		"no rating": -1, "[[eleven]]": -1, "[[11]]": -1, "7/10": -1, "": -1, "[[-3]]": -1,
	} {
		got, ok := Rating(text)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
