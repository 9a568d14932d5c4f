package serving_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strings"
	"testing"

	"glimpse/serving"
)

// TestPageIsServed: the page's files need no key and forbid everything but themselves.
func TestPageIsServed(t *testing.T) {
	s := serve(t, func(c *serving.Config) { c.Keys = []string{"one"} })
	for path, c := range map[string]struct{ file, kind string }{
		"/": {"page.html", "text/html"}, "/page/page.css": {"page.css", "text/css"}, "/page/page.js": {"page.js", "text/javascript"},
		"/page/markdown.js": {"markdown.js", "text/javascript"}, "/page/chats.js": {"chats.js", "text/javascript"}, "/page/policies.js": {"policies.js", "text/javascript"},
	} {
		r, err := http.Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r.Body)
		r.Body.Close()
		want, missing := os.ReadFile("page/" + c.file)
		if err != nil || missing != nil || r.StatusCode != 200 || !bytes.Equal(got, want) {
			t.Errorf("%s: status %d, %d bytes, want those %d of %s (%v, %v)", path, r.StatusCode, len(got), len(want), c.file, err, missing)
		}
		if kind := r.Header.Get("Content-Type"); !strings.HasPrefix(kind, c.kind) {
			t.Errorf("%s: Content-Type %q, want %s", path, kind, c.kind)
		}
		policy := r.Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: Content-Security-Policy %q lacks %s", path, policy, want)
			}
		}
		if strings.Contains(policy, "unsafe") || r.Header.Get("X-Content-Type-Options") != "nosniff" || r.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: headers %v", path, r.Header)
		}
	}
}

// TestKeptTokens: the usage has the texts of the prompt's tokens, and shares that add up to what was kept, streamed
// and not, of a chat and of plain tokens.
func TestKeptTokens(t *testing.T) {
	s := serve(t, nil)
	heads := float64(s.model.Config.Layers * s.model.Config.KVHeads)
	document, err := json.Marshal(s.document(t, 300, 3))
	if err != nil {
		t.Fatal(err)
	}
	prompts := map[string]string{"/v1/chat/completions": `"messages":[{"role":"user","content":"never karl lantern"}]`, "/v1/completions": `"prompt":` + string(document)}
	for path, prompt := range prompts {
		for _, choice := range []struct{ policy, budget string }{{"snapkv", "5"}, {"streamingllm", "50%"}, {"pyramidkv", "40%"}, {"full", "1"}} {
			body := fmt.Sprintf(`{%s,"temperature":0,"eviction":{"policy":%q,"budget":%q,"kept":true}`, prompt, choice.policy, choice.budget)
			usage := s.usage(t, path, body+"}")
			tokens, sum := usage.Eviction.Tokens, 0.0
			for _, token := range tokens {
				share := token[1].(float64)
				if n := share * heads; n < 0 || n > heads || math.Abs(n-math.Round(n)) > 1e-9 {
					t.Errorf("%s %v: %q is kept by %v of %v heads", path, choice, token[0], n, heads)
				}
				sum += share
			}
			if len(tokens) != usage.PromptTokens || len(tokens) == 0 || math.Abs(sum-usage.Eviction.KeptEntries) > 1e-9 {
				t.Errorf("%s %v: %d tokens whose shares add up to %v, want %d and %v", path, choice, len(tokens), sum, usage.PromptTokens, usage.Eviction.KeptEntries)
			}
			if all := float64(len(tokens)); (sum == all) != (choice.policy == "full") {
				t.Errorf("%s %v: %v of %v are kept", path, choice, sum, all)
			}
			if streamed := s.usage(t, path, body+`,"stream":true}`); fmt.Sprint(streamed.Eviction.Tokens) != fmt.Sprint(tokens) {
				t.Errorf("%s %v: streamed %v, want %v", path, choice, streamed.Eviction.Tokens, tokens)
			}
		}
	}
	chat := s.usage(t, "/v1/chat/completions", "{"+prompts["/v1/chat/completions"]+`,"eviction":{"kept":true}}`)
	text := ""
	for _, token := range chat.Eviction.Tokens {
		text += token[0].(string)
	}
	if !strings.Contains(text, "never karl lantern") {
		t.Errorf("the tokens read %q", text)
	}
	if silent := s.usage(t, "/v1/completions", "{"+prompts["/v1/completions"]+"}"); silent.Eviction.Tokens != nil {
		t.Errorf("%d tokens that nobody asked for", len(silent.Eviction.Tokens))
	}
}

// TestPromptProgress: a stream that asks for it tells how far the prompt has run, up to the end, and what of it was there before.
func TestPromptProgress(t *testing.T) {
	s := serve(t, nil)
	message := strings.Repeat("never karl lantern away farm ", 60)
	ask := func(more string) (progress []map[string]int, prompt int) {
		t.Helper()
		r, err := http.Post(s.url+"/v1/chat/completions", "application/json", strings.NewReader(fmt.Sprintf(
			`{"messages":[{"role":"user","content":%q}],"max_tokens":2,"stream":true,"stream_options":{"include_usage":true}%s}`, message, more)))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		raw, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != 200 {
			t.Fatalf("status %d, %v: %s", r.StatusCode, err, raw)
		}
		said := false
		for _, line := range strings.Split(string(raw), "\n") {
			data, ok := strings.CutPrefix(line, "data: ")
			if !ok || data == "[DONE]" {
				continue
			}
			var part struct {
				Choices []struct{ Delta struct{ Content string } }
				Prompt  map[string]int `json:"prompt_progress"`
				Usage   *usageOf
			}
			if err := json.Unmarshal([]byte(data), &part); err != nil {
				t.Fatalf("%v in %s", err, data)
			}
			if part.Prompt != nil {
				if len(part.Choices) > 0 || said {
					t.Errorf("progress in or behind a part of the answer: %s", data)
				}
				progress = append(progress, part.Prompt)
			}
			said = said || len(part.Choices) > 0 && part.Choices[0].Delta.Content != ""
			if part.Usage != nil {
				prompt = part.Usage.PromptTokens
			}
		}
		return progress, prompt
	}
	if progress, _ := ask(""); len(progress) > 0 {
		t.Errorf("told without being asked: %v", progress)
	}
	message = "lantern " + message
	for _, again := range []bool{false, true} {
		progress, prompt := ask(`,"return_progress":true,"eviction":{"policy":"snapkv","budget":"25%"}`)
		if len(progress) == 0 {
			t.Fatal("nothing is told")
		}
		before := -1
		for _, p := range progress {
			if p["total"] != prompt || p["processed"] <= before || p["processed"] < p["cache"] || p["cache"] > 0 != again || p["time_ms"] < 0 {
				t.Errorf("told %v of %d tokens after %d, again: %t", p, prompt, before, again)
			}
			before = p["processed"]
		}
		if before != prompt {
			t.Errorf("ends at %d of %d tokens", before, prompt)
		}
	}
}

// usageOf is the usage of an answer.
type usageOf struct {
	PromptTokens int `json:"prompt_tokens"`
	Eviction     struct {
		KeptEntries float64  `json:"kept_entries"`
		Tokens      [][2]any `json:"tokens"`
	} `json:"eviction"`
}

// usage is that of an answer, or of the last part of a stream.
func (s *served) usage(t *testing.T, path, body string) usageOf {
	t.Helper()
	r, err := http.Post(s.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	raw, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != 200 {
		t.Fatalf("%s: status %d, %v: %s", body, r.StatusCode, err, raw)
	}
	if parts := strings.Split(strings.TrimSpace(string(raw)), "\n\ndata: "); len(parts) > 1 {
		raw = []byte(parts[len(parts)-2]) // before [DONE]
	}
	var answer struct{ Usage usageOf }
	if err := json.Unmarshal(raw, &answer); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return answer.Usage
}
