package hub

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestRedirects: the storage may be any server, gets no token, and is not spoken to in clear
// text where the hub is not.
func TestRedirects(t *testing.T) {
	for _, c := range []struct {
		hub, to  string
		follows  bool
		hasToken bool
	}{
		{"https://hub", "https://hub:443/x", true, true},
		{"https://hub", "https://cdn.example/x", true, false},
		{"https://hub", "https://cdn.hub/x", true, false},
		{"http://hub:8000", "http://hub:8001/x", true, false},
		{"http://hub", "https://hub/x", true, false},
		{"https://hub", "http://hub/x", false, false},
		{"https://hub", "http://cdn.example/x", false, false},
	} {
		endpoint, err := url.Parse(c.hub)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequest(http.MethodGet, c.to, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer t")
		first, err := http.NewRequest(http.MethodGet, c.hub, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = (&client{endpoint: endpoint}).redirect(r, []*http.Request{first})
		if (err == nil) != c.follows || err == nil && (r.Header.Get("Authorization") != "") != c.hasToken {
			t.Errorf("%s to %s: error %v, headers %v, want followed %v, token %v", c.hub, c.to, err, r.Header, c.follows, c.hasToken)
		}
	}
}

// TestTokenIsMasked: a hub or a proxy may repeat the token.
func TestTokenIsMasked(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"refusal": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Error-Message", strings.Repeat("x", 290)+"hf_secret")
			w.WriteHeader(http.StatusUnauthorized)
		},
		"redirect": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "ftp://host/hf_secret")
			w.WriteHeader(http.StatusFound)
		},
		"description": func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{"sha": "hf_secret"}`)) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newFakeHub(t, wholeModel())
			h.Hub.Config.Handler = answer
			t.Setenv("HF_TOKEN", "hf_secret")
			if _, err := find(t, "org/tiny"); err == nil || strings.Contains(err.Error(), "hf_sec") || name != "redirect" && !strings.Contains(err.Error(), "[key]") {
				t.Errorf("error %v, want the token masked", err)
			}
		})
	}
}

// TestLongPauseIsTold: before a pause that the hub asks for.
func TestLongPauseIsTold(t *testing.T) {
	newFakeHub(t, wholeModel())
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "999999999999999999999")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer s.Close()
	t.Setenv("HF_ENDPOINT", s.URL)
	var log said
	f, err := newFetcher("org/tiny", &log)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	go func() { f.findModel(ctx) }()
	const want = "the hub answered 503 Service Unavailable; attempt 2 of 5 in 1m0s"
	for begin := time.Now(); !strings.Contains(log.String(), want); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 10*time.Second {
			t.Fatalf("told %q, want %q", log.String(), want)
		}
	}
}
