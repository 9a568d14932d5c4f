package judging

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

const testKey = "sk-0123456789/abc+def"

// TestRedirects: key and prompts stay with the server that they are for.
func TestRedirects(t *testing.T) {
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		elsewhere.Add(1)
		fmt.Fprint(w, completion("stolen"))
	}))
	defer other.Close()
	secure := httptest.NewTLSServer(other.Config.Handler)
	defer secure.Close()
	for name, c := range map[string]struct {
		code     int
		location string // "": the server itself
		want     string // of the error; "": followed
	}{
		"307 here":              {code: 307},
		"308 here":              {code: 308},
		"307 to another port":   {code: 307, location: other.URL, want: "redirects to " + other.URL + "/moved"},
		"308 to another scheme": {code: 308, location: secure.URL, want: "redirects to " + secure.URL + "/moved"},
		"301 of a POST":         {code: 301, want: "/moved, which would not be a POST"},
		"302 of a POST":         {code: 302, want: "/moved, which would not be a POST"},
		"303 of a POST":         {code: 303, want: "/moved, which would not be a POST"},
		"301 to another port":   {code: 301, location: other.URL, want: "redirects to " + other.URL + "/moved"},
		"307 without an end":    {code: 307, location: "loop", want: "one of more than 10"},
	} {
		t.Run(name, func(t *testing.T) {
			var bodies []string
			j, n := server(t, func(_ int, w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				bodies = append(bodies, r.Method+r.Header.Get("Authorization")+string(body))
				if r.URL.Path == "/moved" && c.location != "loop" {
					fmt.Fprint(w, completion("ok"))
					return
				}
				w.Header().Set("Location", strings.TrimPrefix(c.location, "loop")+"/moved?key="+testKey)
				w.WriteHeader(c.code)
			})
			j.Key = testKey
			text, err := j.Ask(t.Context(), "s", "u")
			if n := elsewhere.Load(); n != 0 {
				t.Fatalf("another server got %d requests", n)
			}
			if c.want == "" {
				if text != "ok" || err != nil || len(bodies) != 2 || bodies[0] != bodies[1] || !strings.HasPrefix(bodies[1], "POSTBearer "+testKey+"{") {
					t.Errorf("%q, error %v, requests %q", text, err, bodies)
				}
				return
			}
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), testKey) {
				t.Errorf("error %v, want it to say %q and not the key", err, c.want)
			}
			if c.location != "loop" && n.Load() != 1 {
				t.Errorf("%d requests, want 1", n.Load())
			}
		})
	}
}

// TestKeyIsMasked: a server's answers may repeat the key.
func TestKeyIsMasked(t *testing.T) {
	for name, answer := range map[string]struct {
		code int
		text string
	}{
		"refusal":          {401, `{"error": "Incorrect API key provided: ` + testKey + `"}`},
		"escaped":          {401, `{"error": "key ` + strings.ReplaceAll(testKey, "/", `\/`) + `"}`},
		"in an address":    {403, "https://x/?key=sk-0123456789%2Fabc%2Bdef"},
		"cut by the limit": {500, strings.Repeat("x", 290) + testKey},
		"no completion":    {200, testKey},
		"no content":       {200, `{"choices": [], "key": "` + testKey + `"}`},
		"a judgement":      {200, completion("Rating: [[7]] by " + testKey)},
	} {
		t.Run(name, func(t *testing.T) {
			j, _ := server(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(answer.code)
				fmt.Fprint(w, answer.text)
			})
			j.Key, j.Attempts = testKey, 2
			text, err := j.Ask(t.Context(), "s", "u")
			if name != "a judgement" && err == nil {
				t.Fatal("no error")
			}
			if said := fmt.Sprint(text, err); strings.Contains(said, "0123456789") || !strings.Contains(said, "[key]") {
				t.Errorf("%s", said)
			}
		})
	}
}

// TestUnsendableKey: what no header can hold is refused before it is tried six times.
func TestUnsendableKey(t *testing.T) {
	j := Judge{URL: "https://host/v1", Model: "m", Key: "sk-1\nsk-2"}
	if err := j.Validate(); err == nil || !strings.Contains(err.Error(), "key") || strings.Contains(err.Error(), "sk-") {
		t.Errorf("error %v", err)
	}
}
