package serving_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"glimpse/datasets"
	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/runner"
	"glimpse/serving"

	_ "glimpse/gates"
	_ "glimpse/lora"
	_ "glimpse/softtokens"
)

// served is a running server of the built-in model, and OpenAI's client for it.
type served struct {
	openai.Client
	url    string
	http   *httptest.Server
	server *serving.Server
	model  *engine.Model
}

// serve starts a server; change may be nil.
func serve(t testing.TB, change func(c *serving.Config)) *served { return serveModel(t, "", change) }

// serveModel is serve of the model in a folder.
func serveModel(t testing.TB, folder string, change func(c *serving.Config)) *served {
	t.Helper()
	m, err := engine.Open(t.Context(), &engine.Options{Model: folder, Device: "cpu", CacheDType: "auto", Policies: "snapkv"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	c := serving.Config{
		Name: "tiny", Policy: "snapkv", Budget: eviction.Pairs(64), Choice: model.SamplingChoice{From: model.SamplingOfModel}, MaxNew: 64,
		Rows: 4, Queue: 100, Memory: 1 << 30, Prefix: 256 << 20, MaxGap: 100 * time.Millisecond, MaxBody: 1 << 20, Seed: 1,
		Version: "test", Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&c)
	}
	s, err := serving.New(m, c)
	if err != nil {
		m.Close()
		t.Fatal(err)
	}
	h := httptest.NewUnstartedServer(s)
	h.Listener = serving.Listen(h.Config, h.Listener)
	h.Start()
	served := &served{url: h.URL, http: h, server: s, model: m}
	t.Cleanup(func() {
		h.Close()
		if served.server == nil { // which a test has closed
			return
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	key := "none"
	if len(c.Keys) > 0 {
		key = c.Keys[0]
	}
	served.Client = openai.NewClient(option.WithBaseURL(h.URL+"/v1"), option.WithAPIKey(key), option.WithMaxRetries(0))
	return served
}

// document is the tokens of a prompt of the synthetic task "section", which the model answers.
func (s *served) document(t testing.TB, tokens int, which uint64) []int32 {
	t.Helper()
	stream, err := datasets.NewStream([]string{"section"}, datasets.Train, tokens, which)
	if err != nil {
		t.Fatal(err)
	}
	e, err := stream.At(0)
	if err != nil {
		t.Fatal(err)
	}
	return e.Prompt
}

func ids(tokens []int32) openai.CompletionNewParamsPromptUnion {
	var all []int64
	for _, id := range tokens {
		all = append(all, int64(id))
	}
	return openai.CompletionNewParamsPromptUnion{OfArrayOfTokens: all}
}

// post sends a body as it is.
func (s *served) post(t testing.TB, path, body string) (status int, answer map[string]any) {
	t.Helper()
	r, err := http.Post(s.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		t.Fatalf("%s %s: %v in %q", path, body, err, raw)
	}
	return r.StatusCode, answer
}

// alone is what the engine answers to a prompt by itself.
func (s *served) alone(t testing.TB, tokens []int32, policy string, budget, maxNew int) string {
	t.Helper()
	named, err := s.model.PolicyWith(policy, "")
	if err != nil {
		t.Fatal(err)
	}
	rt := eviction.NewRuntime(s.model.Model)
	session, err := rt.NewSession(named.Configured, eviction.Pairs(budget))
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(rt, 1)
	if err != nil {
		t.Fatal(err)
	}
	a, err := e.Submit(engine.Request{Session: session, Prompt: tokens, Generate: runner.GenerateOptions{MaxNew: maxNew}})
	for err == nil && !a.Done() {
		_, err = e.Step(t.Context())
	}
	if err = cmp.Or(err, a.Err()); err != nil {
		t.Fatal(err)
	}
	return a.Text()
}

const question = "never karl lantern"

func user(text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: "tiny", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)}}
}

// TestAnswersOfTheEngine: under every policy a request is answered as by itself, with others beside it, streamed or not,
// and once more from the shared prefix.
func TestAnswersOfTheEngine(t *testing.T) {
	s := serve(t, nil)
	var all sync.WaitGroup
	for _, policy := range []string{"full", "snapkv", "h2o", "d2o", "quest", "lookaheadkv", "judgeq", "rocketkv", "laq", "streamingllm"} {
		tokens := s.document(t, 400, 3)
		want := s.alone(t, tokens, policy, 96, 16)
		for round := range 2 {
			all.Go(func() {
				p := openai.CompletionNewParams{Model: openai.CompletionNewParamsModel("tiny@" + policy + ":96"), Prompt: ids(tokens), MaxTokens: openai.Int(16), Temperature: openai.Float(0)}
				got, err := s.Completions.New(t.Context(), p)
				if err != nil {
					t.Errorf("%s: %v", policy, err)
					return
				}
				if got.Choices[0].Text != want {
					t.Errorf("%s, round %d: %q, want %q", policy, round, got.Choices[0].Text, want)
				}
				stream, text := s.Completions.NewStreaming(t.Context(), p), ""
				for stream.Next() {
					text += stream.Current().Choices[0].Text
				}
				if err := stream.Err(); err != nil || text != want {
					t.Errorf("%s, streamed: %q, error %v, want %q", policy, text, err, want)
				}
			})
		}
	}
	all.Wait()
}

// TestPrefixIsFound: of a document that many ask about, what it begins with runs once, for policies that may.
func TestPrefixIsFound(t *testing.T) {
	s := serve(t, nil)
	tokens := s.document(t, 900, 5)
	for _, c := range []struct {
		policy string
		again  int64
	}{{"snapkv", 832}, {"full", 832}, {"lookaheadkv", 832}, {"cam", 0}} {
		for round := range 2 {
			tokens := append(slices.Clone(tokens[:880]), s.document(t, 900, uint64(10+round))[880:]...)
			got, err := s.Completions.New(t.Context(), openai.CompletionNewParams{Model: openai.CompletionNewParamsModel("tiny@" + c.policy + ":96"), Prompt: ids(tokens), MaxTokens: openai.Int(8), Temperature: openai.Float(0)})
			if err != nil {
				t.Fatal(err)
			}
			if n := got.Usage.PromptTokensDetails.CachedTokens; (round > 0 || c.policy != "snapkv") && n != c.again {
				t.Errorf("%s: %d tokens of the prompt were found, want %d", c.policy, n, c.again)
			}
			if want := s.alone(t, tokens, c.policy, 96, 8); got.Choices[0].Text != want {
				t.Errorf("%s: %q, want %q", c.policy, got.Choices[0].Text, want)
			}
			if got.Usage.PromptTokens != int64(len(tokens)) {
				t.Errorf("%d prompt tokens, want %d", got.Usage.PromptTokens, len(tokens))
			}
		}
	}
}

func TestChatStreams(t *testing.T) {
	s := serve(t, nil)
	p := user(question)
	p.MaxTokens, p.Temperature, p.N = openai.Int(20), openai.Float(0.8), openai.Int(3)
	p.Seed, p.Logprobs, p.TopLogprobs = openai.Int(7), openai.Bool(true), openai.Int(3)
	whole, err := s.Chat.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if len(whole.Choices) != 3 {
		t.Fatalf("%d choices, want 3", len(whole.Choices))
	}
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	stream := s.Chat.Completions.NewStreaming(t.Context(), p)
	texts, reasons, roles, logProbs := map[int64]string{}, map[int64]string{}, map[int64]int{}, map[int64]int{}
	id, usages := "", 0
	for stream.Next() {
		c := stream.Current()
		if id == "" {
			id = c.ID
		}
		if c.ID != id {
			t.Errorf("id %q after %q", c.ID, id)
		}
		if len(c.Choices) == 0 {
			usages++
			if c.Usage.CompletionTokens != whole.Usage.CompletionTokens || c.Usage.PromptTokens != whole.Usage.PromptTokens {
				t.Errorf("usage %+v, want %+v", c.Usage, whole.Usage)
			}
			continue
		}
		d := c.Choices[0]
		if d.Delta.Role != "" {
			if texts[d.Index] != "" {
				t.Error("the role comes after text")
			}
			roles[d.Index]++
		}
		if reasons[d.Index] != "" {
			t.Error("something comes after the reason")
		}
		texts[d.Index] += d.Delta.Content
		reasons[d.Index] += d.FinishReason
		logProbs[d.Index] += len(d.Logprobs.Content)
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if usages != 1 {
		t.Errorf("%d chunks with the usage, want 1", usages)
	}
	for _, c := range whole.Choices {
		if texts[c.Index] != c.Message.Content || reasons[c.Index] != c.FinishReason || roles[c.Index] != 1 || logProbs[c.Index] != len(c.Logprobs.Content) {
			t.Errorf("choice %d was streamed as %q, %s, %d roles, %d probabilities; whole it is %q, %s, %d", c.Index, texts[c.Index], reasons[c.Index], roles[c.Index], logProbs[c.Index],
				c.Message.Content, c.FinishReason, len(c.Logprobs.Content))
		}
		for _, token := range c.Logprobs.Content {
			if len(token.TopLogprobs) != 3 || token.TopLogprobs[0].Logprob < token.TopLogprobs[2].Logprob {
				t.Fatalf("top_logprobs %v", token.TopLogprobs)
			}
		}
	}
}

// TestSeeds: the same seed gives the same answers, however many others are beside them.
func TestSeeds(t *testing.T) {
	s := serve(t, nil)
	ask := func(seed int64) string {
		p := user(question)
		p.MaxTokens, p.Temperature, p.Seed = openai.Int(24), openai.Float(1), openai.Int(seed)
		a, err := s.Chat.Completions.New(t.Context(), p)
		if err != nil {
			t.Error(err)
			return ""
		}
		return a.Choices[0].Message.Content
	}
	want, other := ask(11), ask(12)
	if want == other {
		t.Error("two seeds give the same answer")
	}
	var all sync.WaitGroup
	for i := range 24 {
		all.Go(func() {
			if i%2 == 0 {
				ask(int64(100 + i))
			} else if got := ask(11); got != want {
				t.Errorf("%q beside others, want %q", got, want)
			}
		})
	}
	all.Wait()
}

func TestResponses(t *testing.T) {
	s := serve(t, nil)
	p := responses.ResponseNewParams{Model: "tiny", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(question)}, MaxOutputTokens: openai.Int(12), Temperature: openai.Float(0)}
	whole, err := s.Responses.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	chat := user(question)
	chat.MaxTokens, chat.Temperature = openai.Int(12), openai.Float(0)
	want, err := s.Chat.Completions.New(t.Context(), chat)
	if err != nil {
		t.Fatal(err)
	}
	if whole.OutputText() != want.Choices[0].Message.Content || whole.Usage.OutputTokens != want.Usage.CompletionTokens {
		t.Errorf("%q, want %q", whole.OutputText(), want.Choices[0].Message.Content)
	}
	stream, text, completed := s.Responses.NewStreaming(t.Context(), p), "", 0
	for stream.Next() {
		e := stream.Current()
		text += e.Delta
		if e.Type == "response.completed" || e.Type == "response.incomplete" {
			completed++
			if e.Response.OutputText() != text {
				t.Errorf("%q in the end, %q streamed", e.Response.OutputText(), text)
			}
		}
	}
	if err := stream.Err(); err != nil || completed != 1 || text != whole.OutputText() {
		t.Errorf("%q streamed, %d ends, error %v", text, completed, err)
	}
}

// TestRefusals: what is wrong is told as OpenAI tells it, with the field, and nothing of it runs.
func TestRefusals(t *testing.T) {
	s := serve(t, nil)
	message := `"messages":[{"role":"user","content":"never"}]`
	for _, c := range []struct {
		path, body string
		status     int
		param      string
		says       string
	}{
		{"/v1/chat/completions", `{"messages":null}`, 400, "messages", "want a list"},
		{"/v1/chat/completions", `{"messages":"x"}`, 400, "messages", "want a list"},
		{"/v1/chat/completions", `{"messages":[123]}`, 400, "messages[0]", "want an object"},
		{"/v1/chat/completions", `{"messages":[{}]}`, 400, "messages[0]", "no role"},
		{"/v1/chat/completions", `{"messages":[]}`, 400, "messages", "at least one"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, 400, "messages[0].content[0]", "want text"},
		{"/v1/chat/completions", `{`, 400, "", "not JSON"},
		{"/v1/chat/completions", "\xff\xfe", 400, "", "not UTF-8"},
		{"/v1/chat/completions", `{` + message + `} {}`, 400, "", "after top-level value"},
		{"/v1/chat/completions", `{` + message + `,"temperature":"hot"}`, 400, "temperature", "got a string"},
		{"/v1/chat/completions", `{` + message + `,"temperature":-1}`, 400, "temperature", "want 0 to 2"},
		{"/v1/chat/completions", `{` + message + `,"top_p":1.5}`, 400, "top_p", "want 0 to 1"},
		{"/v1/chat/completions", `{` + message + `,"n":0}`, 400, "n", "want 1 to"},
		{"/v1/chat/completions", `{` + message + `,"max_tokens":0}`, 400, "max_tokens", "at least 1"},
		{"/v1/chat/completions", `{` + message + `,"max_tokens":1000000}`, 400, "max_tokens", "context"},
		{"/v1/chat/completions", `{` + message + `,"logprobs":true,"top_logprobs":21}`, 400, "top_logprobs", "want 0 to 20"},
		{"/v1/chat/completions", `{` + message + `,"top_logprobs":2}`, 400, "top_logprobs", "logprobs"},
		{"/v1/chat/completions", `{` + message + `,"logit_bias":{"99999999":1}}`, 400, "logit_bias", "want an id"},
		{"/v1/chat/completions", `{` + message + `,"logit_bias":{"1":1000}}`, 400, "logit_bias", "want -100 to 100"},
		{"/v1/chat/completions", `{` + message + `,"stop":["a",""]}`, 400, "stop", "is empty"},
		{"/v1/chat/completions", `{` + message + `,"stream_options":{}}`, 400, "stream_options", "stream"},
		{"/v1/chat/completions", `{` + message + `,"audio":{}}`, 400, "audio", "not supported"},
		{"/v1/chat/completions", `{` + message + `,"eviction":{"policy":"none"}}`, 400, "eviction", "none"},
		{"/v1/chat/completions", `{` + message + `,"eviction":{"budget":"-3"}}`, 400, "eviction.budget", ""},
		{"/v1/chat/completions", `{` + message + `,"model":"gpt-4"}`, 404, "", "does not exist"},
		{"/v1/completions", `{"prompt":""}`, 400, "prompt", "empty"},
		{"/v1/completions", `{"prompt":[]}`, 400, "prompt", "want a text"},
		{"/v1/completions", `{}`, 400, "prompt", "missing"},
		{"/v1/completions", `{"prompt":[999999]}`, 400, "prompt", "want 0 to"},
		{"/v1/completions", `{"prompt":[-1]}`, 400, "prompt", "want 0 to"},
		{"/v1/completions", `{"prompt":[1,2],"logprobs":21}`, 400, "logprobs", "want 0 to 20"},
		{"/v1/completions", `{"prompt":"never","best_of":2}`, 400, "best_of", "want 1"},
		{"/v1/responses", `{"input":null}`, 400, "input", "want a text"},
		{"/v1/responses", `{"input":"never","previous_response_id":"x"}`, 400, "previous_response_id", "not stored"},
		{"/v1/embeddings", `{}`, 501, "", "language model"},
		{"/v1/nothing", `{}`, 404, "", "no such endpoint"},
		{"/detokenize", `{"tokens":[99999999]}`, 400, "tokens", "vocabulary"},
		{"/v1/adapters", `{"from":"/nowhere/at/all"}`, 400, "from", "nowhere"},
	} {
		status, answer := s.post(t, c.path, c.body)
		e, _ := answer["error"].(map[string]any)
		param, _ := e["param"].(string)
		says, _ := e["message"].(string)
		if status != c.status || param != c.param || !strings.Contains(says, c.says) || e["type"] == "" {
			t.Errorf("%s %s: %d %v, want %d of %q that says %q", c.path, c.body, status, e, c.status, c.param, c.says)
		}
	}
	if status, answer := s.post(t, "/v1/completions", `{"prompt":"`+strings.Repeat("x", 2<<20)+`"}`); status != 413 {
		t.Errorf("a body of 2 MiB: %d %v, want 413", status, answer)
	}
}

func TestKeys(t *testing.T) {
	s := serve(t, func(c *serving.Config) { c.Keys = []string{"one", "two"} })
	if _, err := s.Models.List(t.Context()); err != nil {
		t.Error(err)
	}
	for path, want := range map[string]int{"/health": 200, "/": 200, "/v1/models": 401, "/metrics": 401, "/v1/adapters": 401, "/page/../server.go": 404, "/page/%2e%2e/server.go": 404} {
		r, err := http.Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		if r.Body.Close(); r.StatusCode != want {
			t.Errorf("%s without a key: %d, want %d", path, r.StatusCode, want)
		}
	}
	_, err := s.Models.List(t.Context(), option.WithAPIKey("three"))
	if e := (*openai.Error)(nil); !errors.As(err, &e) || e.StatusCode != 401 || e.Code != "invalid_api_key" {
		t.Errorf("a wrong key: error %v", err)
	}
	for _, c := range []struct {
		header, value string
		status        int
	}{
		{"X-Api-Key", "two", 200}, {"Authorization", "Bearer one", 200}, {"Authorization", "bearer one", 200}, {"Authorization", "BEARER  one", 200},
		{"Authorization", "Basic one", 401}, {"Authorization", "Bearer", 401}, {"Authorization", "one", 401}, {"Authorization", "Bearer ONE", 401},
	} {
		r, err := http.NewRequest("GET", s.url+"/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(c.header, c.value)
		if a, err := http.DefaultClient.Do(r); err != nil || a.StatusCode != c.status {
			t.Errorf("%s: %s: %v, error %v, want %d", c.header, c.value, a, err, c.status)
		}
	}
}

// TestMethods: a path that is there under another method says which.
func TestMethods(t *testing.T) {
	s := serve(t, nil)
	for _, c := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", "/v1/chat/completions", 405, "POST"}, {"PUT", "/v1/completions", 405, "POST"}, {"POST", "/v1/models", 405, "GET, HEAD"},
		{"DELETE", "/v1/adapters", 405, "GET, HEAD, POST"}, {"GET", "/v1/adapters/a", 405, "DELETE"}, {"POST", "/health", 405, "GET, HEAD"},
		{"POST", "/", 405, "GET, HEAD"}, {"GET", "/v1/embeddings", 405, "POST"}, {"GET", "/v1/nothing", 404, ""}, {"HEAD", "/health", 200, ""},
	} {
		r, err := http.NewRequest(c.method, s.url+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		if a.StatusCode != c.status || a.Header.Get("Allow") != c.allow {
			t.Errorf("%s %s: %d, Allow %q, want %d, %q", c.method, c.path, a.StatusCode, a.Header.Get("Allow"), c.status, c.allow)
		}
	}
}

// TestCancelled: a client that is gone ends its answer within a step, and leaves room for others.
func TestCancelled(t *testing.T) {
	s := serve(t, func(c *serving.Config) { c.Rows, c.Queue, c.MaxNew = 1, 0, 3000 })
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		p := user(question)
		p.Temperature = openai.Float(1)
		stream := s.Chat.Completions.NewStreaming(ctx, p, option.WithJSONSet("ignore_eos", true))
		for range 3 {
			if !stream.Next() {
				t.Fatal(stream.Err())
			}
		}
		if status, answer := s.post(t, "/v1/completions", `{"prompt":[5]}`); status != 429 {
			t.Errorf("a second answer: %d %v, want 429", status, answer)
		}
		cancel()
		stream.Close()
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if status, _ := s.post(t, "/v1/completions", `{"prompt":[5],"max_tokens":1}`); status == 200 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the answer of a client that is gone goes on")
			}
		}
	}
}

// TestQueue: more requests than rows all finish, and beyond the queue they are refused.
func TestQueue(t *testing.T) {
	s := serve(t, func(c *serving.Config) { c.Rows, c.Queue = 2, 10 })
	var all sync.WaitGroup
	var mu sync.Mutex
	counts := map[int]int{}
	for i := range 40 {
		all.Go(func() {
			p := user(question)
			p.MaxTokens, p.Seed, p.Temperature = openai.Int(30), openai.Int(int64(i)), openai.Float(1)
			_, err := s.Chat.Completions.New(t.Context(), p)
			status := 200
			if e := (*openai.Error)(nil); errors.As(err, &e) {
				if status = e.StatusCode; e.Response.Header.Get("Retry-After") == "" {
					t.Error("429 without Retry-After")
				}
			} else if err != nil {
				t.Error(err)
			}
			mu.Lock()
			counts[status]++
			mu.Unlock()
		})
	}
	all.Wait()
	if counts[200] < 12 || counts[200]+counts[429] != 40 {
		t.Errorf("answers by status: %v", counts)
	}
	var last sync.WaitGroup // clients that try again are all served
	retrying := openai.NewClient(option.WithBaseURL(s.url+"/v1"), option.WithAPIKey("none"), option.WithMaxRetries(20))
	for range 16 {
		last.Go(func() {
			p := user(question)
			p.MaxTokens = openai.Int(5)
			if _, err := retrying.Chat.Completions.New(t.Context(), p); err != nil {
				t.Error(err)
			}
		})
	}
	last.Wait()
}

func TestMemoryIsExact(t *testing.T) {
	s := serve(t, func(c *serving.Config) { c.Memory, c.Prefix = 6<<20, 0 })
	tokens := s.document(t, 3000, 2)
	_, err := s.Completions.New(t.Context(), openai.CompletionNewParams{Model: "tiny@full", Prompt: ids(tokens), MaxTokens: openai.Int(8)})
	if e := (*openai.Error)(nil); !errors.As(err, &e) || e.StatusCode != 400 || e.Code != "insufficient_memory" || !strings.Contains(e.Message, "want at most 6.0 MiB") {
		t.Errorf("a prompt that can never fit: error %v", err)
	}
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			if _, err := s.Completions.New(t.Context(), openai.CompletionNewParams{Model: "tiny@snapkv:32", Prompt: ids(tokens[:200]), MaxTokens: openai.Int(20)}); err != nil {
				t.Errorf("%+v", err.(*openai.Error).Message)
			}
		})
	}
	all.Wait()
}

func TestMetricsAndTokens(t *testing.T) {
	s := serve(t, nil)
	p := user(question)
	p.MaxTokens = openai.Int(5)
	if _, err := s.Chat.Completions.New(t.Context(), p, option.WithJSONSet("ignore_eos", true)); err != nil {
		t.Fatal(err)
	}
	r, err := http.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"glimpse_generation_tokens_total 5\n", `glimpse_request_success_total{finished_reason="length"} 1`, "glimpse_time_to_first_token_seconds_count 1",
		"glimpse_num_requests_running 0", "glimpse_num_requests_waiting 0", "glimpse_kv_cache_usage_perc", `glimpse_kv_kept_bytes_total{policy="snapkv"}`, "glimpse_prompt_tokens_total",
		"glimpse_e2e_request_latency_seconds_count 1", "glimpse_request_queue_time_seconds_count 1", "glimpse_inter_token_latency_seconds_count 4", "glimpse_request_time_per_output_token_seconds_count 1", "glimpse_prefix_cache_hits 0",
	} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("no %q in the metrics", want)
		}
	}
	_, tokens := s.post(t, "/tokenize", `{"prompt":"`+question+`"}`)
	list, _ := json.Marshal(tokens["tokens"])
	if _, text := s.post(t, "/detokenize", fmt.Sprintf(`{"tokens":%s}`, list)); !strings.Contains(fmt.Sprint(text["prompt"]), question) {
		t.Errorf("%v from %s", text, list)
	}
	_, rendered := s.post(t, "/apply-template", `{"messages":[{"role":"user","content":"`+question+`"},{"role":"assistant","content":"karl"}]}`)
	if text := fmt.Sprint(rendered["prompt"]); !strings.Contains(text, question) || !strings.HasSuffix(text, "karl") {
		t.Errorf("an answer that has begun: %q", text)
	}
}

// TestAdaptersComeAndGo: while answers go on, which keep theirs.
func TestAdaptersComeAndGo(t *testing.T) {
	s := serve(t, nil)
	_, listed := s.post(t, "/v1/adapters", `{"from":"shipped"}`)
	if !strings.Contains(fmt.Sprint(listed), "two adapters") && fmt.Sprint(listed["data"]) == "[]" {
		t.Errorf("shipped adapters: %v", listed)
	}
	tokens := s.document(t, 400, 3)
	ask := func() error {
		_, err := s.Completions.New(t.Context(), openai.CompletionNewParams{Model: "tiny@lookaheadkv:96", Prompt: ids(tokens), MaxTokens: openai.Int(16)})
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { ask() })
	}
	r, err := http.NewRequest("DELETE", s.url+"/v1/adapters/shipped", nil)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := http.DefaultClient.Do(r); err != nil || a.StatusCode != 200 {
		t.Errorf("unload: %v, %v", a, err)
	}
	all.Wait()
	if err := ask(); err == nil {
		t.Error("an adapter that is gone: want an error")
	}
	if status, answer := s.post(t, "/v1/adapters", `{"from":"shipped"}`); status != 200 {
		t.Errorf("load: %d %v", status, answer)
	}
	if err := ask(); err != nil {
		t.Error(err)
	}
}

// TestShortPromptsAreWhole: the server's own budget leaves them whole, and one that a request names does not.
func TestShortPromptsAreWhole(t *testing.T) {
	s := serve(t, func(c *serving.Config) { c.Budget = c.Budget.WholeBelow(100) })
	for _, c := range []struct {
		tokens   int
		eviction string
		kept     float64
	}{{90, "", 90}, {100, "", 64}, {90, `, "eviction": {"budget": "16"}`, 16}} {
		prompt, err := json.Marshal(s.document(t, c.tokens, 1))
		if err != nil {
			t.Fatal(err)
		}
		status, answer := s.post(t, "/v1/completions", fmt.Sprintf(`{"model": "tiny", "prompt": %s, "max_tokens": 2%s}`, prompt, c.eviction))
		usage, _ := answer["usage"].(map[string]any)
		of, _ := usage["eviction"].(map[string]any)
		if status != 200 || of["kept_entries"] != c.kept {
			t.Errorf("%d tokens%s: status %d, usage %v, want %v entries", c.tokens, c.eviction, status, usage, c.kept)
		}
	}
}
