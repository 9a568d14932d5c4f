package serving_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// bodies are requests with many fields, by endpoint.
var bodies = map[string]string{
	"/v1/chat/completions": `{"model":"tiny","messages":[{"role":"system","content":"never"},{"role":"user","content":[{"type":"text","text":"never"}],"name":"karl"},
		{"role":"assistant","content":"karl","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"lantern","tool_call_id":"c"},{"role":"user","content":"never"}],
		"temperature":0.5,"top_p":0.9,"top_k":5,"min_p":0.1,"seed":1,"n":1,"presence_penalty":0.1,"frequency_penalty":0.1,"repetition_penalty":1.1,"repeat_penalty":1.1,"logit_bias":{"5":1},
		"max_tokens":2,"max_completion_tokens":2,"n_predict":2,"min_tokens":1,"ignore_eos":true,"stop":["karl"],"stop_token_ids":[7],"stream":false,"logprobs":true,"top_logprobs":2,
		"eviction":{"policy":"snapkv","budget":"50%","kept":true},"response_format":{"type":"text"},"chat_template_kwargs":{"a":1},"reasoning_effort":"low",
		"add_generation_prompt":true,"continue_final_message":false,"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"type":"string"}}},"strict":false}}],
		"tool_choice":"auto","parallel_tool_calls":true,"user":"u","metadata":{},"modalities":["text"],"best_of":1,"suffix":""}`,
	"/v1/completions": `{"model":"tiny@snapkv:50%","prompt":["never"],"max_tokens":2,"temperature":0,"n":2,"best_of":1,"echo":true,"logprobs":2,"add_special_tokens":false,"stop":"karl",
		"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false},"eviction":{"policy":"h2o","budget":"16"}}`,
	"/v1/responses": `{"model":"tiny","input":[{"role":"user","content":[{"type":"input_text","text":"never"}]},{"type":"message","role":"assistant","content":"karl"},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
		{"type":"function_call_output","call_id":"c","output":"20"},{"role":"user","content":"never"}],
		"instructions":"never","max_output_tokens":2,"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}],"tool_choice":"auto","text":{"format":{"type":"text"}},"previous_response_id":null,"background":false,"truncation":"disabled","include":[],
		"parallel_tool_calls":true,"reasoning":{"effort":"low","summary":"auto"},"stream":false,"store":false,"temperature":0.5}`,
	"/v1/messages": `{"model":"tiny","max_tokens":2,"system":[{"type":"text","text":"never"}],"messages":[{"role":"user","content":[{"type":"text","text":"never"}]},{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"20"}]}],"temperature":0.5,"top_k":5,"stop_sequences":["karl"],"stream":true,"tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"auto"},"thinking":{"type":"disabled"},"metadata":{"user_id":"u"}}`,
	"/v1/messages/count_tokens": `{"model":"tiny","messages":[{"role":"user","content":"never"}],"system":"never"}`,
	"/tokenize":                 `{"model":"tiny","prompt":"never","add_special_tokens":true}`,
	"/detokenize":               `{"model":"tiny","tokens":[5,7]}`,
	"/apply-template":           `{"messages":[{"role":"user","content":"never"}],"add_generation_prompt":true,"chat_template_kwargs":{}}`,
	"/v1/adapters":              `{"name":"a","from":"nowhere"}`,
}

// checkBody sends a body and checks that the answer is one of the API, whatever the body is: no panic, no error of the server.
func checkBody(t *testing.T, s *served, path, body string) (status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, "POST", s.url+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.RemoteAddr = "127.0.0.1:1" // of the server's own machine
	w := httptest.NewRecorder()
	s.server.ServeHTTP(w, r)
	answer := w.Body.String()
	switch {
	case ctx.Err() != nil: // a long answer, whose client is gone
	case w.Code != 200 && (w.Code < 400 || w.Code >= 500):
		t.Errorf("%s %s: %d %s", path, body, w.Code, answer)
	case strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream"):
		for line := range strings.Lines(answer) {
			if data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: "); ok && data != "[DONE]" && !json.Valid([]byte(data)) {
				t.Errorf("%s %s: an event is no JSON: %s", path, body, data)
			}
		}
	default:
		var parsed struct {
			Error *struct {
				Message, Type string
			}
		}
		if err := json.Unmarshal([]byte(answer), &parsed); err != nil || (w.Code != 200) != (parsed.Error != nil) || parsed.Error != nil && (parsed.Error.Message == "" || parsed.Error.Type == "") {
			t.Errorf("%s %s: %d %s (error %v), want an object, of an error with its message and type", path, body, w.Code, answer, err)
		}
	}
	return w.Code
}

// strange are values that fields may have instead of theirs.
var strange = []string{`5`, `[1]`, `true`, `{}`, `null`, `""`, `[]`, `[null]`, `{"a":{"b":[1]}}`, `-1`, `2.0`, `1e300`, `9223372036854775807`, `"\u0000"`, `[[]]`, `["",5]`}

// substituted calls f with a value in which every part in turn is every strange value.
func substituted(v any, whole func(part any) any, f func(any)) {
	for _, other := range strange {
		f(whole(json.RawMessage(other)))
	}
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			substituted(v[key], func(part any) any {
				changed := maps.Clone(v)
				changed[key] = part
				return whole(changed)
			}, f)
		}
	case []any:
		for i := range v {
			substituted(v[i], func(part any) any {
				changed := slices.Clone(v)
				changed[i] = part
				return whole(changed)
			}, f)
		}
	}
}

// TestStrangeFields: every field of every endpoint with values that it should not have.
func TestStrangeFields(t *testing.T) {
	s := serveTemplate(t, callsTemplate)
	for path, body := range bodies {
		t.Run(path, func(t *testing.T) {
			var v any
			if err := json.Unmarshal([]byte(body), &v); err != nil {
				t.Fatal(err)
			}
			if status := checkBody(t, s, path, body); status != 200 && path != "/v1/adapters" {
				t.Errorf("%s: %d, want 200", body, status)
			}
			seen := 0
			substituted(v, func(part any) any { return part }, func(v any) {
				raw, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				checkBody(t, s, path, string(raw))
				seen++
			})
			if seen < 2*len(strange) {
				t.Errorf("%d bodies", seen)
			}
		})
	}
	if n := s.metric(t, "glimpse_handler_panics_total"); n != 0 {
		t.Errorf("%v handlers panicked", n)
	}
}

// FuzzBodies: whatever a body is, its answer is one of the API.
func FuzzBodies(f *testing.F) {
	paths := slices.Sorted(maps.Keys(bodies))
	for i, path := range paths {
		f.Add(i, bodies[path])
		for _, v := range strange {
			f.Add(i, v)
			f.Add(i, fmt.Sprintf(`{"stop":%s}`, v))
		}
	}
	s := serveTemplate(f, callsTemplate)
	f.Fuzz(func(t *testing.T, i int, body string) {
		checkBody(t, s, paths[uint(i)%uint(len(paths))], body)
	})
}
