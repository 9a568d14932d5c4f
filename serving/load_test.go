package serving_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
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

// TestLoad: many clients with prompts of mixed lengths and policies, some of which vanish, send half a body or never
// read; adapters come and go. Nobody else gets an error, answers are those of prompts by themselves, the memory stays
// below the limit, and nothing stays behind.
func TestLoad(t *testing.T) {
	clients, rounds := 200, 3
	if testing.Short() {
		clients = 40
	}
	s := serve(t, func(c *serving.Config) { c.Queue, c.Memory, c.Prefix = 10_000, 48<<20, 8<<20 })
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
	before := runtime.NumGoroutine()
	var most atomic.Uint64
	watched, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			r, err := http.Get(s.url + "/metrics")
			if err != nil {
				continue
			}
			raw, _ := io.ReadAll(r.Body)
			r.Body.Close()
			for line := range strings.Lines(string(raw)) {
				var share float64
				if _, err := fmt.Sscanf(line, "glimpse_kv_cache_usage_perc %g", &share); err == nil {
					most.Store(max(most.Load(), uint64(1e6*share)))
				}
			}
		}
	}()
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	client := openai.NewClient(option.WithBaseURL(s.url+"/v1"), option.WithAPIKey("none"), option.WithMaxRetries(5), option.WithHTTPClient(&http.Client{Transport: transport}))
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for range rounds {
				p := prompts[r.IntN(len(prompts))]
				params := openai.CompletionNewParams{Model: openai.CompletionNewParamsModel(p.model), Prompt: ids(p.tokens), MaxTokens: openai.Int(12), Temperature: openai.Float(0)}
				switch r.IntN(8) {
				case 0: // it vanishes
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(200))*time.Millisecond)
					stream := client.Completions.NewStreaming(ctx, params)
					for stream.Next() {
					}
					stream.Close()
					cancel()
				case 1: // half a body
					c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
					if err != nil {
						t.Error(err)
						return
					}
					fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"prompt\":")
					c.Close()
				default:
					got, err := client.Completions.New(t.Context(), params)
					if err != nil {
						t.Errorf("%s: %v", p.model, err)
					} else if got.Choices[0].Text != p.want {
						t.Errorf("%s: %q, want %q", p.model, got.Choices[0].Text, p.want)
					}
				}
			}
		})
	}
	all.Wait()
	close(stop)
	<-watched
	if share := float64(most.Load()) / 1e6; share == 0 || share > 1 {
		t.Errorf("%.3f of the memory was used at most, want more than 0 and at most 1", share)
	}
	transport.CloseIdleConnections()
	http.DefaultClient.CloseIdleConnections()
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before+4; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
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
	fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
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
	paths := []string{"/v1/chat/completions", "/v1/completions", "/v1/responses", "/tokenize", "/detokenize", "/apply-template", "/v1/adapters"}
	for _, body := range []string{
		`{"messages":[{"role":"user","content":"never karl"}],"max_tokens":3,"n":2,"stream":true,"logprobs":true,"top_logprobs":3,"stream_options":{"include_usage":true}}`,
		`{"prompt":["never","karl"],"max_tokens":2,"echo":true,"stop":["x"],"seed":-1,"logit_bias":{"5":-100}}`,
		`{"prompt":[[5,6],[7]],"structured_outputs":{"choice":["never","karl"]}}`,
		`{"messages":[{"role":"assistant","content":"never"}],"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"object"}}}}`,
		`{"input":[{"role":"user","content":[{"type":"input_text","text":"never"}]}],"text":{"format":{"type":"text"}}}`,
		`{"tokens":[1,2,3]}`, `{"prompt":"never"}`, `{"from":""}`, `{`, `[]`, `null`, "\xff", `{"messages":[null]}`, `{"eviction":{"policy":"snapkv(kernel=1)","budget":"1%"},"prompt":"never"}`,
		`{"messages":[{"role":"user","content":"x","tool_calls":[{}]}],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"tool_choice":"required"}`,
	} {
		f.Add(0, body)
		f.Add(1, body)
		f.Add(2, body)
		f.Add(3, body)
	}
	f.Fuzz(func(t *testing.T, path int, body string) {
		r := httptest.NewRequest("POST", paths[((path%len(paths))+len(paths))%len(paths)], strings.NewReader(body))
		w := httptest.NewRecorder()
		s.server.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Errorf("%s: %d %s", r.URL.Path, w.Code, w.Body)
		}
	})
}
