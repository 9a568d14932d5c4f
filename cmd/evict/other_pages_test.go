package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"glimpse/internal/browsertest"
)

// TestOtherPagesInABrowser: a page of another origin has no answer of a server without keys, whatever it sends, nor does the server write one;
// one that --cors-origin lets in reads answers, also those that a browser asks for permission first.
func TestOtherPagesInABrowser(t *testing.T) {
	b := browsertest.Start(t)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "<!doctype html><title>another page</title>")
	}))
	defer other.Close()
	const body = `'{"messages":[{"role":"user","content":"never"}],"max_tokens":2}'`
	for _, c := range []struct {
		name    string
		args    []string
		answers string // to each of the requests below
		written int
	}{
		{"refused", nil, "none none opaque none", 0},
		{"let in", []string{"--cors-origin", other.URL}, "200 404 opaque 200", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, url, _ := serveProgram(t, c.args...)
			b.Open(other.URL, 1280, "light")
			var got []string
			for _, request := range []string{
				`"/v1/chat/completions", {method: "POST", headers: {"Content-Type": "application/json", "Authorization": "Bearer none"}, body: ` + body + `}`,
				`"/v1/adapters/none", {method: "DELETE"}`,
				`"/v1/chat/completions", {method: "POST", mode: "no-cors", body: ` + body + `}`,
				`"/v1/models"`,
			} {
				var answer string
				b.Eval(fmt.Sprintf(`fetch(%q + %s).then(r => r.type === "opaque" ? "opaque" : r.text().then(() => String(r.status)), () => "none")`, url, request), &answer)
				got = append(got, answer)
			}
			if answers := strings.Join(got, " "); answers != c.answers {
				t.Errorf("answers %s, want %s", answers, c.answers)
			}
			r, err := http.Get(url + "/metrics")
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			metrics, err := io.ReadAll(r.Body)
			if want := fmt.Sprintf("glimpse_e2e_request_latency_seconds_count %d\n", c.written); err != nil || !strings.Contains(string(metrics), want) {
				t.Errorf("the metrics lack %q (error %v)", want, err)
			}
		})
	}
}
