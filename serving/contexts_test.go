package serving_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"glimpse/eviction"
	"glimpse/model/chat"
	"glimpse/model/runner"
	"glimpse/serving"
)

// contextBudget is what contexts of the tests are evicted to.
const contextBudget = 48

// behind is what a fresh compression of a text answers to a question that stands behind it in the same message.
func (s *served) behind(t testing.TB, policy, text, question string) string {
	t.Helper()
	named, err := s.model.PolicyWith(policy, "")
	if err != nil {
		t.Fatal(err)
	}
	context, err := s.model.EncodeContext(t.Context(), nil, text)
	if err != nil {
		t.Fatal(err)
	}
	rest, err := s.model.EncodeBehind(t.Context(), []chat.Message{{Role: "user", Content: question}})
	if err != nil {
		t.Fatal(err)
	}
	session, err := eviction.NewRuntime(s.model.Model).NewSession(named.Configured, eviction.Pairs(contextBudget))
	if err == nil {
		err = session.Compress(t.Context(), eviction.Prompt{Tokens: context}, 0)
	}
	if err == nil {
		err = session.Turn(t.Context(), eviction.Prompt{Tokens: rest})
	}
	if err != nil {
		t.Fatal(err)
	}
	tokens, _, err := session.Generate(t.Context(), runner.GenerateOptions{MaxNew: turnNew})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s.model.Tokenizer.Decode(tokens, true)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(answer)
}

// marked is a request whose message has a part that ends a context, and a question.
func marked(text, question string) string {
	return bodyOf(map[string]any{"max_tokens": turnNew, "temperature": 0, "messages": []any{map[string]any{"role": "user", "content": []any{
		map[string]any{"type": "text", "text": text, "cache_control": map[string]string{"type": "ephemeral"}},
		map[string]any{"type": "text", "text": question},
	}}}})
}

func bodyOf(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// contextAnswer is the answer of a chat, with the tokens that did not run.
func contextAnswer(t testing.TB, status int, answer map[string]any) (text string, cached int) {
	t.Helper()
	if status != 200 {
		t.Fatalf("status %d: %v", status, answer)
	}
	text, _ = answer["choices"].([]any)[0].(map[string]any)["message"].(map[string]any)["content"].(string)
	details := answer["usage"].(map[string]any)["prompt_tokens_details"].(map[string]any)
	return strings.TrimSpace(text), int(details["cached_tokens"].(float64))
}

func ofContexts(c *serving.Config) {
	c.Prefix, c.Budget = 0, eviction.Pairs(contextBudget)
}

// questions are some about the words of a document.
func questions(s *served, t testing.TB, n int) (all []string) {
	for i := range n {
		all = append(all, s.message(t, 40, uint64(100+i)))
	}
	return all
}

// TestMarkedContexts: what comes before cache_control is evicted before what follows is known, is found again by its tokens, and answers to the bit as a
// fresh compression does, also when many ask at once; in OpenAI's and Anthropic's form, as a part, a message and the system's text.
func TestMarkedContexts(t *testing.T) {
	s := serve(t, ofContexts)
	text := s.message(t, 300, 1) + " "
	asked := questions(s, t, 6)
	for i, question := range asked[:2] {
		got, cached := answered(s.post(t, "/v1/chat/completions", marked(text, question)))(t)
		if want := s.behind(t, "snapkv", text, question); got != want || (cached > 200) != (i > 0) {
			t.Errorf("question %d: %q, %d tokens were there, want %q", i, got, cached, want)
		}
	}
	var all sync.WaitGroup
	for _, question := range asked {
		want := s.behind(t, "snapkv", text, question)
		all.Go(func() {
			status, answer := s.post(t, "/v1/chat/completions", marked(text, question))
			if got, cached := contextAnswer(t, status, answer); got != want || cached < 200 {
				t.Errorf("%q among others, %d tokens were there, want %q", got, cached, want)
			}
		})
	}
	all.Wait()
	if n := s.metric(t, "glimpse_contexts"); n != 1 {
		t.Errorf("%v contexts are kept, want 1", n)
	}
	status, answer := s.post(t, "/v1/messages", marked(text, asked[0]))
	if status != 200 || strings.TrimSpace(fmt.Sprint(answer["content"].([]any)[0].(map[string]any)["text"])) != s.behind(t, "snapkv", text, asked[0]) {
		t.Errorf("messages: %d %v", status, answer)
	}
	// What nothing follows, and what a policy that evicts nothing gets, is a prompt as any other.
	for _, request := range []string{
		bodyOf(map[string]any{"max_tokens": 4, "messages": []any{map[string]any{"role": "user", "content": text, "cache_control": map[string]string{"type": "ephemeral"}}}}),
		strings.Replace(marked(text, asked[0]), `{"max_tokens"`, `{"eviction":{"policy":"full"},"max_tokens"`, 1),
	} {
		if _, cached := answered(s.post(t, "/v1/chat/completions", request))(t); cached != 0 {
			t.Errorf("%d tokens were there", cached)
		}
	}
}

func answered(status int, answer map[string]any) func(t testing.TB) (string, int) {
	return func(t testing.TB) (string, int) { return contextAnswer(t, status, answer) }
}

// TestNamedContexts: a context is made, told, asked by its name, and forgotten; it answers as its messages do with a mark.
func TestNamedContexts(t *testing.T) {
	s := serve(t, ofContexts)
	text := s.message(t, 300, 1)
	question := questions(s, t, 1)[0]
	status, made := s.post(t, "/v1/contexts", bodyOf(map[string]any{"name": "doc", "text": text, "eviction": map[string]any{"kept": true}}))
	if status != 200 || made["tokens"].(float64) < 200 || made["kept_entries"].(float64) != contextBudget || len(made["kept"].([]any)) != int(made["tokens"].(float64)) {
		t.Fatalf("%d %v", status, made)
	}
	ask := func(name string, more string) (int, map[string]any) {
		return s.post(t, "/v1/chat/completions", `{"max_tokens":`+fmt.Sprint(turnNew)+`,"temperature":0,"eviction":{"context":"`+name+`"`+more+`},"messages":[{"role":"user","content":"`+question+`"}]}`)
	}
	got, cached := answered(ask("doc", ""))(t)
	if want := s.behind(t, "snapkv", text+"\n\n", question); got != want || cached != int(made["tokens"].(float64)) {
		t.Errorf("%q, %d tokens were there, want %q and %v", got, cached, want, made["tokens"])
	}
	if _, cached := answered(s.post(t, "/v1/chat/completions", marked(text+"\n\n", question)))(t); cached < 200 {
		t.Errorf("the same with a mark: %d tokens were there", cached)
	}
	// One of a policy that evicts nothing is there whole.
	status, made = s.post(t, "/v1/contexts", bodyOf(map[string]any{"name": "doc", "text": text, "eviction": map[string]any{"policy": "full"}}))
	if status != 200 || made["kept_entries"] != made["tokens"] {
		t.Fatalf("%d %v", status, made)
	}
	if _, cached := answered(ask("doc", ""))(t); cached != int(made["tokens"].(float64)) {
		t.Errorf("%d tokens were there, want %v", cached, made["tokens"])
	}
	if status, all := s.post(t, "/v1/contexts", bodyOf(map[string]any{"text": text, "eviction": map[string]any{"policy": "tova"}})); status != 400 {
		t.Errorf("a policy that decides while it decodes: %d %v", status, all)
	}
	for _, c := range []struct{ body, says string }{
		{`{"name":"a"}`, "messages"}, {`{"text":"x","messages":[{"role":"user","content":"x"}]}`, "messages"}, {`{"text":"map","ttl":0}`, "ttl"}, {`{"text":"map","ttl":9223372036854775807}`, "ttl"},
		{`{"text":"map","eviction":{"context":"doc"}}`, "eviction.context"}, {`{"text":"map","name":"a/b"}`, "name"}, {`{"text":"map","nmae":"a"}`, "nmae"},
	} {
		status, answer := s.post(t, "/v1/contexts", c.body)
		if said := fmt.Sprint(answer["error"]); status != 400 || !strings.Contains(said, c.says) {
			t.Errorf("%s: %d %s, want 400 that says %q", c.body, status, said, c.says)
		}
	}
	if status, answer := ask("doc", `,"budget":"9"`); status != 400 {
		t.Errorf("another budget: %d %v", status, answer)
	}
	if status, answer := s.post(t, "/v1/completions", `{"prompt":"map","eviction":{"context":"doc"}}`); status != 400 {
		t.Errorf("a prompt: %d %v", status, answer)
	}
	if status, answer, err := s.send(t.Context(), "GET", "/v1/contexts", "none", ""); err != nil || status != 200 || !strings.Contains(fmt.Sprint(answer), "name:doc") {
		t.Errorf("%d %v %v", status, answer, err)
	}
	if status, answer, err := s.send(t.Context(), "DELETE", "/v1/contexts/doc", "none", ""); err != nil || status != 200 {
		t.Errorf("%d %v %v", status, answer, err)
	}
	if status, _ := ask("doc", ""); status != 404 {
		t.Errorf("a context that is gone: %d", status)
	}
}

// contextEvents are the events of a context that is made with a text, each as JSON has it.
func (s *served) contextEvents(t testing.TB, text, more string) (all []map[string]any) {
	t.Helper()
	r, err := http.Post(s.url+"/v1/contexts", "application/json", strings.NewReader(`{"stream":true,"text":"`+text+`"`+more+`}`))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	raw, err := io.ReadAll(r.Body)
	events, ended := strings.CutSuffix(string(raw), "data: [DONE]\n\n")
	if err != nil || r.StatusCode != 200 || !ended {
		t.Fatalf("status %d, %v: %s", r.StatusCode, err, raw)
	}
	for _, event := range strings.Split(strings.TrimSpace(events), "\n\n") {
		var one map[string]any
		if err := json.Unmarshal([]byte(strings.TrimPrefix(event, "data: ")), &one); err != nil {
			t.Fatalf("%v in %q", err, event)
		}
		all = append(all, one)
	}
	return all
}

// TestStreamedContexts: a stream tells how far its own tokens have run, whatever else waits, up to all of them, and then the context.
func TestStreamedContexts(t *testing.T) {
	s := serve(t, ofContexts)
	var all sync.WaitGroup
	for i := range 3 {
		text := s.message(t, 300+200*i, uint64(i+1))
		all.Go(func() {
			events := s.contextEvents(t, text, fmt.Sprintf(`,"name":"doc%d","eviction":{"kept":true}`, i))
			made, ran := events[len(events)-1], 0.0
			for _, e := range events[:len(events)-1] {
				if e["object"] != "context.progress" || e["tokens"] != made["tokens"] || e["tokens_done"].(float64) <= ran {
					t.Errorf("document %d: %v behind %v tokens", i, e, ran)
				}
				ran = e["tokens_done"].(float64)
			}
			if made["object"] != "context" || made["name"] != fmt.Sprint("doc", i) || ran != made["tokens"] || len(made["kept"].([]any)) != int(ran) {
				t.Errorf("document %d: %v tokens have run, and then %v", i, ran, made)
			}
			if events := s.contextEvents(t, text, ""); len(events) != 1 || events[0]["tokens"] != made["tokens"] { // what is there need not run
				t.Errorf("document %d once more: %v", i, events)
			}
		})
		all.Go(func() {
			if status, answer := s.post(t, "/v1/chat/completions", `{"max_tokens":2,"messages":[{"role":"user","content":"`+s.message(t, 200, uint64(20+i))+`"}]}`); status != 200 {
				t.Errorf("a question beside them: %d %v", status, answer)
			}
		})
	}
	all.Wait()
	if status, answer := s.post(t, "/v1/contexts", `{"stream":true,"text":"map","eviction":{"policy":"tova"}}`); status != 400 || !strings.Contains(fmt.Sprint(answer), "it decides while it decodes") {
		t.Errorf("a policy that decides while it decodes: %d %v", status, answer)
	}
}

// gone is a client that is gone after the first event.
type gone struct {
	*httptest.ResponseRecorder
	wrote chan struct{}
}

func (g *gone) Write(p []byte) (int, error) {
	if g.Body.Len() > 0 {
		return 0, io.ErrClosedPipe
	}
	close(g.wrote)
	return g.ResponseRecorder.Write(p)
}

// TestStreamedContextIsLeft: a client that is gone while its document runs leaves no name, and nothing that others would be answered from.
func TestStreamedContextIsLeft(t *testing.T) {
	s := serve(t, ofContexts)
	text, question := s.message(t, 600, 1), questions(s, t, 1)[0]
	ctx, hangUp := context.WithCancel(t.Context())
	w := &gone{httptest.NewRecorder(), make(chan struct{})}
	go func() {
		<-w.wrote
		hangUp()
	}()
	r := httptest.NewRequestWithContext(ctx, "POST", s.url+"/v1/contexts", strings.NewReader(`{"stream":true,"name":"doc","text":"`+text+`"}`))
	r.Header.Set("Content-Type", "application/json")
	s.server.ServeHTTP(w, r)
	if got := w.Body.String(); !strings.HasPrefix(got, `data: {"object":"context.progress"`) || strings.Count(got, "data:") != 1 {
		t.Fatalf("the client has read %q", got)
	}
	if status, answer, err := s.send(t.Context(), "GET", "/v1/contexts", "none", ""); err != nil || fmt.Sprint(answer["data"]) != "[]" {
		t.Errorf("%d %v %v", status, answer, err)
	}
	got, _ := answered(s.post(t, "/v1/chat/completions", marked(text+" ", question)))(t)
	if want := s.behind(t, "snapkv", text+" ", question); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestContextsOfKeys: a key's contexts are its own, by name and by tokens.
func TestContextsOfKeys(t *testing.T) {
	s := serve(t, func(c *serving.Config) {
		ofContexts(c)
		c.Keys = []string{"one", "two"}
	})
	text := s.message(t, 300, 1)
	make := bodyOf(map[string]any{"name": "doc", "text": text})
	if status, answer, err := s.send(t.Context(), "POST", "/v1/contexts", "one", make); err != nil || status != 200 {
		t.Fatalf("%d %v %v", status, answer, err)
	}
	if status, _, err := s.send(t.Context(), "GET", "/v1/contexts/doc", "two", ""); err != nil || status != 404 {
		t.Errorf("another key's context: %d, error %v", status, err)
	}
	for key, there := range map[string]bool{"one": true, "two": false} {
		status, answer, err := s.send(t.Context(), "POST", "/v1/chat/completions", key, marked(text+"\n\n", "map"))
		if err != nil {
			t.Fatal(err)
		}
		if _, cached := contextAnswer(t, status, answer); (cached > 0) != there {
			t.Errorf("key %s: %d tokens were there", key, cached)
		}
	}
}

// TestContextsOnDisk: another server, later, has the name and what was kept, and answers the same without running the document; a file that is damaged is made
// anew.
func TestContextsOnDisk(t *testing.T) {
	folder := t.TempDir()
	onDisk := func(c *serving.Config) {
		ofContexts(c)
		c.ContextDir, c.ContextDirSize = folder, 1<<30
	}
	first := serve(t, onDisk)
	text, question := first.message(t, 300, 1), questions(first, t, 1)[0]
	if status, answer := first.post(t, "/v1/contexts", bodyOf(map[string]any{"name": "doc", "text": text})); status != 200 {
		t.Fatalf("%d %v", status, answer)
	}
	ask := `{"max_tokens":` + fmt.Sprint(turnNew) + `,"temperature":0,"eviction":{"context":"doc"},"messages":[{"role":"user","content":"` + question + `"}]}`
	want, _ := answered(first.post(t, "/v1/chat/completions", ask))(t)
	first.http.Close()
	if err := first.server.Close(); err != nil {
		t.Fatal(err)
	}
	first.server = nil
	files, err := filepath.Glob(filepath.Join(folder, "*.kv"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files, error %v", len(files), err)
	}
	for _, damaged := range []bool{false, true} {
		if damaged {
			raw, err := os.ReadFile(files[0])
			if err != nil {
				t.Fatal(err)
			}
			raw[len(raw)/2] ^= 1
			if err := os.WriteFile(files[0], raw, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s := serve(t, onDisk)
		got, cached := answered(s.post(t, "/v1/chat/completions", ask))(t)
		if got != want || (cached > 200) == damaged {
			t.Errorf("damaged %v: %q, %d tokens were there, want %q", damaged, got, cached, want)
		}
		s.http.Close()
		if err := s.server.Close(); err != nil {
			t.Fatal(err)
		}
		s.server = nil
	}
}
