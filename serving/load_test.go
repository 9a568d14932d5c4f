package serving_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"glimpse/serving"
)

// loadVariable is a duration for which TestLoad goes on with 1,000 clients, which most of the time wait or are turned
// away:
//
//	GLIMPSE_LOAD=5m go test ./serving -race -run TestLoad -v -timeout 30m
const loadVariable = "GLIMPSE_LOAD"

// TestLoad: many clients with prompts of mixed lengths and policies, some of which vanish, send half a body, far too
// much or what is no text, or read slowly; adapters come and go. Nobody else gets an error but 429, answers are those of
// prompts by themselves, the memory stays below the limit, and nothing stays behind.
func TestLoad(t *testing.T) {
	clients, rounds, queue := 100, 3, 10_000
	if testing.Short() {
		clients = 24
	}
	until := time.Time{} // rounds count
	if text := os.Getenv(loadVariable); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("%s: %v", loadVariable, err)
		}
		clients, queue, until = 1000, 400, time.Now().Add(d)
	}
	s := serve(t, func(c *serving.Config) {
		c.Queue, c.Memory, c.Prefix, c.AdapterDirs = queue, 24<<20, 8<<20, []string{reference}
	})
	type prompt struct {
		tokens []int32
		model  string
		want   string
	}
	var prompts []prompt
	for i, policy := range []string{"full", "snapkv", "lookaheadkv", "h2o", "quest", "streamingllm", "d2o", "tova"} {
		tokens := s.document(t, 100+150*i, uint64(i))
		prompts = append(prompts, prompt{tokens, fmt.Sprintf("tiny@%s:64", policy), s.alone(t, tokens, policy, 64, 12)})
	}
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	client := openai.NewClient(option.WithBaseURL(s.url+"/v1"), option.WithAPIKey("none"), option.WithMaxRetries(5), option.WithHTTPClient(&http.Client{Transport: transport}))
	params := func(p prompt) openai.CompletionNewParams {
		return openai.CompletionNewParams{Model: openai.CompletionNewParamsModel(p.model), Prompt: ids(p.tokens), MaxTokens: openai.Int(12), Temperature: openai.Float(0)}
	}
	heap := func() uint64 {
		for _, p := range prompts { // what each leaves for the next, on the first time
			if _, err := client.Completions.New(t.Context(), params(p)); err != nil {
				t.Fatal(err)
			}
		}
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	bytes, before := heap(), runtime.NumGoroutine()
	var most atomic.Uint64
	var answered, vanished, refused, full, adapters atomic.Int64
	done := make(chan struct{})
	var beside sync.WaitGroup
	every := func(pause time.Duration, f func()) {
		beside.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(pause):
					f()
				}
			}
		})
	}
	every(20*time.Millisecond, func() {
		r, err := http.Get(s.url + "/metrics")
		if err != nil {
			return
		}
		raw, _ := io.ReadAll(r.Body)
		r.Body.Close()
		for line := range strings.Lines(string(raw)) {
			var share float64
			if _, err := fmt.Sscanf(line, "glimpse_kv_cache_usage_perc %g", &share); err == nil {
				most.Store(max(most.Load(), uint64(1e6*share)))
			}
		}
	})
	every(200*time.Millisecond, func() {
		if status, answer := s.post(t, "/v1/adapters", `{"name":"second","from":"../adapters/reference/judgeq"}`); status != 200 {
			t.Errorf("an adapter was not loaded: %d %v", status, answer)
		}
		r, err := http.NewRequest("DELETE", s.url+"/v1/adapters/second", nil)
		if err != nil {
			t.Error(err)
			return
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil || a.StatusCode != 200 {
			t.Errorf("an adapter was not unloaded: %v, %v", a, err)
			return
		}
		a.Body.Close()
		adapters.Add(1)
	})
	post := func(length int, body io.Reader) (status int) { // 0 where the server hung up
		r, err := http.NewRequest("POST", s.url+"/v1/completions", body)
		if err != nil {
			t.Error(err)
			return 0
		}
		r.Header.Set("Content-Type", "application/json")
		r.ContentLength = int64(length)
		a, err := transport.RoundTrip(r)
		if err != nil {
			return 0
		}
		io.Copy(io.Discard, a.Body)
		a.Body.Close()
		return a.StatusCode
	}
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for n := 0; n < rounds || time.Now().Before(until); n++ {
				p := prompts[r.IntN(len(prompts))]
				switch r.IntN(16) {
				case 0, 1: // it vanishes
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(200))*time.Millisecond)
					stream := client.Completions.NewStreaming(ctx, params(p))
					for stream.Next() {
					}
					stream.Close()
					cancel()
					vanished.Add(1)
				case 2: // half a body
					c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
					if err != nil {
						t.Error(err)
						return
					}
					fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"prompt\":")
					c.Close()
					vanished.Add(1)
				case 3:
					const length = 10 << 20
					if status := post(length, io.LimitReader(rand.NewChaCha8([32]byte{}), length)); status != 0 && status != http.StatusRequestEntityTooLarge {
						t.Errorf("10 MiB: %d", status)
					}
					refused.Add(1)
				case 4:
					body := "{\"prompt\":\"\xff\"}"
					if status := post(len(body), strings.NewReader(body)); status != http.StatusBadRequest {
						t.Errorf("invalid UTF-8: %d", status)
					}
					refused.Add(1)
				case 5: // it reads slowly
					stream := client.Completions.NewStreaming(t.Context(), params(p))
					var text strings.Builder
					for stream.Next() {
						for _, c := range stream.Current().Choices {
							text.WriteString(c.Text)
						}
						time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
					}
					check(t, p.model, text.String(), p.want, stream.Err(), &answered, &full)
					stream.Close()
				default:
					got, err := client.Completions.New(t.Context(), params(p))
					text := ""
					if err == nil {
						text = got.Choices[0].Text
					}
					check(t, p.model, text, p.want, err, &answered, &full)
				}
			}
		})
	}
	all.Wait()
	close(done)
	beside.Wait()
	share := float64(most.Load()) / 1e6
	t.Logf("%d clients: %d answers, %d clients that vanished, %d bodies refused, %d times 429 after the last try, %d adapters loaded and unloaded, at most %.0f%% of the memory",
		clients, answered.Load(), vanished.Load(), refused.Load(), full.Load(), adapters.Load(), 100*share)
	if answered.Load() == 0 || adapters.Load() == 0 {
		t.Error("no answer, or no adapter, at all")
	}
	if full.Load() > 0 && until.IsZero() {
		t.Errorf("%d times 429 with a queue for all", full.Load())
	}
	if share == 0 || share > 1 {
		t.Errorf("%.3f of the memory was used at most, want more than 0 and at most 1", share)
	}
	after := heap()
	transport.CloseIdleConnections()
	http.DefaultClient.CloseIdleConnections()
	if t.Logf("heap: %.1f MB before, %.1f after", float64(bytes)/1e6, float64(after)/1e6); after > bytes+16<<20 {
		t.Errorf("the heap has %d bytes, %d before", after, bytes)
	}
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before+4; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

// check counts an answer, which is to be the one that is wanted, or 429.
func check(t *testing.T, name, got, want string, err error, answered, full *atomic.Int64) {
	t.Helper()
	var refused *openai.Error
	switch {
	case errors.As(err, &refused) && refused.StatusCode == http.StatusTooManyRequests:
		full.Add(1)
	case err != nil:
		t.Errorf("%s: %v", name, err)
	case got != want:
		t.Errorf("%s: %q, want %q", name, got, want)
	default:
		answered.Add(1)
	}
}

// TestSlowReader: a client that does not read holds nobody up.
func TestSlowReader(t *testing.T) {
	s := serve(t, func(c *serving.Config) { c.MaxNew = 2000 })
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.(*net.TCPConn).SetReadBuffer(1)
	body := `{"messages":[{"role":"user","content":"never"}],"stream":true,"ignore_eos":true,"logprobs":true,"top_logprobs":20}`
	fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	for range 20 {
		p := user(question)
		p.MaxTokens = openai.Int(10)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if _, err := s.Chat.Completions.New(ctx, p); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
}

// FuzzRequests: whatever is sent, the server answers it or says what is wrong with it.
func FuzzRequests(f *testing.F) {
	s := serve(f, func(c *serving.Config) { c.MaxNew = 4 })
	paths := []string{"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/tokenize", "/detokenize", "/apply-template", "/v1/adapters"}
	for _, body := range []string{
		`{"messages":[{"role":"user","content":"never karl"}],"max_tokens":3,"n":2,"stream":true,"logprobs":true,"top_logprobs":3,"stream_options":{"include_usage":true}}`,
		`{"prompt":["never","karl"],"max_tokens":2,"echo":true,"stop":["x"],"seed":-1,"logit_bias":{"5":-100}}`,
		`{"prompt":[[5,6],[7]],"structured_outputs":{"choice":["never","karl"]}}`,
		`{"messages":[{"role":"assistant","content":"never"}],"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"object"}}}}`,
		`{"input":[{"role":"user","content":[{"type":"input_text","text":"never"}]}],"text":{"format":{"type":"text"}}}`,
		`{"input":[{"type":"reasoning","summary":[],"encrypted_content":"glimpse:/w=="},{"type":"function_call","call_id":"1","name":"f","arguments":"{"},{"type":"function_call_output","call_id":"1","output":[]}],"tools":[{"type":"custom","name":"f","format":{}}],"truncation":"auto"}`,
		`{"max_tokens":2,"system":[],"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1"}]}],"thinking":{"type":"enabled"}}`,
		`{"tokens":[1,2,3]}`, `{"prompt":"never"}`, `{"from":""}`, `{`, `[]`, `null`, "\xff", `{"messages":[null]}`, `{"eviction":{"policy":"snapkv(kernel=1)","budget":"1%"},"prompt":"never"}`,
		`{"messages":[{"role":"user","content":"x","tool_calls":[{}]}],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"tool_choice":"required"}`,
	} {
		f.Add(0, body)
		f.Add(1, body)
		f.Add(2, body)
		f.Add(3, body)
		f.Add(4, body)
	}
	f.Fuzz(func(t *testing.T, path int, body string) {
		r := httptest.NewRequest("POST", paths[((path%len(paths))+len(paths))%len(paths)], strings.NewReader(body))
		r.Host = "localhost"
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.server.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Errorf("%s: %d %s", r.URL.Path, w.Code, w.Body)
		}
	})
}
