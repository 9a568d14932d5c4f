package serving_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"glimpse/serving"
)

// raw sends a body as it is; said is the error's message, ignored the header.
func (s *served) raw(t testing.TB, path, body string) (status int, param, said, ignored string) {
	t.Helper()
	r, err := http.Post(s.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	ignored = r.Header.Get(serving.IgnoredHeader)
	r.Body.Close()
	status, answer := s.post(t, path, body)
	if status != r.StatusCode {
		t.Errorf("%s %q: %d, then %d", path, body, r.StatusCode, status)
	}
	e, _ := answer["error"].(map[string]any)
	param, _ = e["param"].(string)
	said, _ = e["message"].(string)
	return status, param, said, ignored
}

// logBuffer is a log that is read while it is written.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestBodies: what JSON says and what it does not, RFC 7493 (I-JSON).
func TestBodies(t *testing.T) {
	s := serve(t, func(c *serving.Config) { c.MaxNew = 2 })
	const chat, text = "/v1/chat/completions", "/v1/completions"
	message := `"messages":[{"role":"user","content":"never"}],"max_tokens":2`
	for _, c := range []struct {
		name, path, body string
		status           int
		param, says      string
	}{
		{"stop: number", chat, `{` + message + `,"stop":5}`, 400, "stop", "got a number, want a string or a list of strings"},
		{"stop: number in a list", chat, `{` + message + `,"stop":["a",1]}`, 400, "stop[1]", "got a number, want a string"},
		{"stop: boolean", text, `{"prompt":"never","stop":true}`, 400, "stop", "got a boolean"},
		{"stop: object", "/v1/responses", `{"input":"never","stop":{}}`, 400, "stop", "got an object"},
		{"stop: null in a list", chat, `{` + message + `,"stop":[null]}`, 400, "stop[0]", "got null, want a string"},
		{"stop: null", chat, `{` + message + `,"stop":null}`, 200, "", ""},
		{"stop: list", chat, `{` + message + `,"stop":["a","b"]}`, 200, "", ""},

		{"Latin-1", chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"caf\xe9\"}]}", 400, "messages[0].content", "not UTF-8"},
		{"Latin-1, key", chat, "{" + message + ",\"\xe9\":1}", 400, "", "not UTF-8"},
		{"half a surrogate pair", chat, `{"messages":[{"role":"user","content":"\ud83d"}]}`, 400, "messages[0].content", "surrogate"},
		{"surrogate pair", chat, `{` + message + `,"stop":"\ud83d\ude00"}`, 200, "", ""},
		{"byte order mark", chat, "\xef\xbb\xbf{" + message + "}", 200, "", ""},
		{"UTF-16", chat, "{\x00\"\x00", 400, "", "not JSON"},
		{"empty", chat, " \n", 400, "", "the body is empty"},
		{"list", chat, `[]`, 400, "", "got a list, want an object"},
		{"NaN", chat, `{` + message + `,"temperature":NaN}`, 400, "temperature", "not JSON"},

		{"key twice", chat, `{` + message + `,"seed":1,"seed":2}`, 400, "seed", "twice"},
		{"key twice, nested", chat, `{"messages":[{"role":"user","content":"a","content":"b"}]}`, 400, "messages[0].content", "twice"},
		{"key twice, escaped", chat, `{` + message + `,"seed":1,"\u0073eed":2}`, 400, "seed", "twice"},

		{"whole number with a point", chat, `{` + message + `,"seed":2.0,"n":1.0,"top_k":2e1}`, 200, "", ""},
		{"whole number, token id", text, `{"prompt":[5.0,7],"max_tokens":1e0}`, 200, "", ""},
		{"fraction", chat, `{"messages":[],"max_tokens":2.5}`, 400, "max_tokens", "got 2.5, want an integer"},
		{"number beyond integers", chat, `{"messages":[],"max_tokens":1e300}`, 400, "max_tokens", "want an integer of"},
		{"number beyond int64", chat, `{` + message + `,"seed":9223372036854775808}`, 400, "seed", "want an integer of"},
		{"smallest int64", chat, `{` + message + `,"seed":-9223372036854775808}`, 200, "", ""},
		{"token id beyond int32", text, `{"prompt":[5,4294967301]}`, 400, "prompt[1]", "want an integer of"},
		{"number beyond float64", chat, `{` + message + `,"temperature":1e999}`, 400, "temperature", "out of range"},
		{"number as text", chat, `{` + message + `,"n":"1"}`, 400, "n", "got a string, want an integer"},

		{"token id null", text, `{"prompt":[5,null]}`, 400, "prompt[1]", "got null, want an integer"},
		{"token id null, second list", text, `{"prompt":[[5],[null]]}`, 400, "prompt[1][0]", "got null"},
		{"text null", text, `{"prompt":["never",null]}`, 400, "prompt[1]", "got null, want a string"},
		{"token id null, detokenize", "/detokenize", `{"tokens":[null]}`, 400, "tokens[0]", "got null"},
		{"stop token id null", chat, `{` + message + `,"stop_token_ids":[null]}`, 400, "stop_token_ids[0]", "got null"},
		{"mixed prompts", text, `{"prompt":[5,"never"]}`, 400, "prompt[1]", "got a string, want an integer"},
		{"fields that are null", chat, `{` + message + `,"user":null,"n":null,"stream":null,"seed":null,"tools":null,"logit_bias":null,"response_format":null,"eviction":null,"stream_options":null,"stop_token_ids":null,"temperature":null,"chat_template_kwargs":null}`, 200, "", ""},

		{"function, key of another case", chat, `{` + message + `,"tool_choice":{"type":"function","FUNCTION":{"name":"f"}}}`, 400, "tool_choice", "want {"},
		{"max_tokens, largest int64", chat, `{"messages":[{"role":"user","content":"never"}],"max_tokens":9223372036854775807}`, 400, "max_tokens", "context"},
		{"max_tokens, largest int64, completions", text, `{"prompt":"never","max_tokens":9223372036854775807}`, 400, "max_tokens", "context"},
		{"max_tokens -1", chat, `{"messages":[{"role":"user","content":"never"}],"max_tokens":-1}`, 200, "", ""},
		{"max_tokens -2", chat, `{"messages":[{"role":"user","content":"never"}],"max_tokens":-2}`, 400, "max_tokens", "at least 1, or -1"},
		{"max_completion_tokens -1", chat, `{"messages":[{"role":"user","content":"never"}],"max_completion_tokens":-1}`, 200, "", ""},
		{"max_completion_tokens 0", chat, `{"messages":[{"role":"user","content":"never"}],"max_completion_tokens":0}`, 400, "max_completion_tokens", "at least 1"},
		{"max_output_tokens -1", "/v1/responses", `{"input":"never","max_output_tokens":-1}`, 200, "", ""},
		{"n_predict -1", text, `{"prompt":"never","n_predict":-1}`, 200, "", ""},
		{"n_predict -3", text, `{"prompt":"never","n_predict":-3}`, 400, "n_predict", "at least 1"},
		{"max_tokens null", chat, `{"messages":[{"role":"user","content":"never"}],"max_tokens":null,"max_completion_tokens":null}`, 200, "", ""},
		{"min_tokens above max_tokens", chat, `{` + message + `,"min_tokens":3}`, 400, "min_tokens", "got 3, want at most 2"},
		{"min_tokens above the server's bound", chat, `{"messages":[{"role":"user","content":"never"}],"min_tokens":9223372036854775807}`, 400, "min_tokens", "want at most 2"},
		{"min_tokens as many", chat, `{` + message + `,"min_tokens":2}`, 200, "", ""},
		{"top_k, largest int64", chat, `{` + message + `,"top_k":9223372036854775807,"temperature":1}`, 200, "", ""},
		{"n, largest int64", chat, `{` + message + `,"n":9223372036854775807}`, 400, "n", "want 1 to"},
		{"repeat_penalty", chat, `{` + message + `,"repeat_penalty":0}`, 400, "repetition_penalty", "want"},
		{"eviction, misspelt", chat, `{` + message + `,"eviction":{"polcy":"full"}}`, 400, "eviction.polcy", "unknown field"},
		{"eviction, key of another case", chat, `{` + message + `,"eviction":{"Policy":"full"}}`, 400, "eviction.Policy", "unknown field"},
		{"eviction, policy misspelt", chat, `{` + message + `,"eviction":{"policy":"fulll"}}`, 400, "eviction", "fulll"},
		{"eviction, policy misspelt in the model", chat, `{` + message + `,"model":"tiny@fulll"}`, 400, "eviction", "fulll"},
		{"adapter, misspelt", "/v1/adapters", `{"from":"shipped","nmae":"a"}`, 400, "nmae", "unknown field"},
		{"asks for audio", chat, `{` + message + `,"modalities":["text","audio"]}`, 400, "modalities", "want"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, param, says, _ := s.raw(t, c.path, c.body)
			if status != c.status || param != c.param || !strings.Contains(says, c.says) {
				t.Errorf("%s %s: %d of %q: %q, want %d of %q that says %q", c.path, c.body, status, param, says, c.status, c.param, c.says)
			}
		})
	}
}

// TestRenamedFields: what llama.cpp and vLLM call otherwise constrains answers as the field of our name does.
func TestRenamedFields(t *testing.T) {
	s := serveTemplate(t, callsTemplate)
	for _, c := range []struct{ name, fields, want string }{
		{"structured_outputs", `"structured_outputs":{"json":null,"choice":["xyz"]}`, "xyz"},
		{"llama.cpp's grammar", `"grammar":"root ::= \"xyz\""`, "xyz"},
		{"llama.cpp's schema", `"json_schema":{"const":"xyz"}`, `"xyz"`},
		{"vLLM's schema", `"guided_json":{"const":"xyz"},"json_schema":null,"grammar":""`, `"xyz"`},
		{"vLLM's choice", `"guided_choice":["xyz"]`, "xyz"},
		{"vLLM's regex", `"guided_regex":"x[y]z"`, "xyz"},
		{"vLLM's grammar", `"guided_grammar":"root ::= \"xyz\""`, "xyz"},
		{"ours over another's", `"structured_outputs":{"choice":["abc"]},"grammar":"root ::= \"xyz\""`, "abc"},
		{"two of another's", `"guided_regex":"a","grammar":"root ::= \"xyz\""`, ""},
		{"llama.cpp's bound", `"n_predict":3,"guided_choice":["xyzabc"]`, "xyz"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, answer := s.post(t, "/v1/completions", `{"prompt":"x",`+c.fields+`}`)
			if c.want == "" {
				if status != 400 {
					t.Errorf("%d %v, want 400", status, answer)
				}
				return
			}
			if choices, _ := answer["choices"].([]any); status != 200 || len(choices) != 1 || choices[0].(map[string]any)["text"] != c.want {
				t.Errorf("%d %v, want %q", status, answer, c.want)
			}
		})
	}
}

// TestNullIDs: ids that clients leave null are as if they were not there.
func TestNullIDs(t *testing.T) {
	s := serveTemplate(t, callsTemplate)
	for _, c := range []struct{ name, path, body string }{
		{"chat", "/v1/chat/completions", `{"model":null,"user":null,"messages":[{"role":"user","content":"x","name":null},{"role":"assistant","content":null,"tool_calls":[{"id":null,"type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":null,"content":"1"}],"max_tokens":2}`},
		{"completions", "/v1/completions", `{"model":null,"user":null,"prompt":"x","max_tokens":2,"suffix":null,"best_of":null}`},
		{"responses", "/v1/responses", `{"model":null,"previous_response_id":null,"conversation":null,"input":[{"id":null,"type":"message","role":"user","content":"x"},{"id":null,"status":null,"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"id":null,"type":"function_call_output","call_id":"c","output":"1"}],"max_output_tokens":2}`},
		{"messages", "/v1/messages", `{"model":null,"max_tokens":2,"metadata":{"user_id":null},"container":null,"messages":[{"role":"user","content":"x"}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if status, _, says, ignored := s.raw(t, c.path, c.body); status != 200 || ignored != "" {
				t.Errorf("%d %q, ignored %q, want 200", status, says, ignored)
			}
		})
	}
}

// TestIgnoredFields: fields that change nothing are named in a header, and refused where the server is strict.
func TestIgnoredFields(t *testing.T) {
	var log logBuffer
	s := serve(t, func(c *serving.Config) { c.MaxNew, c.Log = 2, slog.New(slog.NewTextHandler(&log, nil)) })
	strict := serve(t, func(c *serving.Config) { c.MaxNew, c.StrictFields = 2, true })
	message := `"messages":[{"role":"user","content":"never"}]`
	many := ""
	for i := range 40 {
		many += `,"f` + strings.Repeat("x", i) + `":1`
	}
	for _, c := range []struct{ name, path, body, ignored string }{
		{"Ollama's", "/v1/chat/completions", `{` + message + `,"keep_alive":"5m","think":true,"num_ctx":4096}`, "keep_alive, think, num_ctx"},
		{"llama.cpp's", "/v1/completions", `{"prompt":"never","cache_prompt":true}`, "cache_prompt"},
		{"vLLM's", "/v1/chat/completions", `{` + message + `,"skip_special_tokens":false}`, "skip_special_tokens"},
		{"OpenAI's", "/v1/responses", `{"input":"never","verbosity":"low"}`, "verbosity"},
		{"key of another case", "/v1/chat/completions", `{` + message + `,"MAX_TOKENS":1}`, "MAX_TOKENS"},
		{"content part", "/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"text","text":"never","detail":"low"},{"type":"text","text":" karl","detail":1}]}]}`, "messages[].content[].detail"},
		{"message", "/v1/chat/completions", `{"messages":[{"role":"user","content":"never","mood":"glad"}]}`, "messages[].mood"},
		{"format", "/v1/chat/completions", `{` + message + `,"response_format":{"type":"text","pretty":true}}`, "response_format.pretty"},
		{"schema", "/v1/chat/completions", `{"messages":[{"role":"user","content":"never"}],"response_format":{"type":"json_schema","json_schema":{"schema":{"enum":[1]},"title":"t"}}}`, "response_format.json_schema.title"},
		{"format of responses", "/v1/responses", `{"input":"never","text":{"format":{"type":"text","pretty":true}}}`, "text.format.pretty"},
		{"stream options", "/v1/chat/completions", `{` + message + `,"stream":true,"stream_options":{"chunk":1}}`, "stream_options.chunk"},
		{"structured outputs", "/v1/completions", `{"prompt":"never","structured_outputs":{"choice":["never"],"disable_any_whitespace":true}}`, "structured_outputs.disable_any_whitespace"},
		{"effort without a template for it", "/v1/chat/completions", `{` + message + `,"reasoning_effort":"low"}`, "reasoning_effort"},
		{"option without a template for it", "/v1/chat/completions", `{` + message + `,"chat_template_kwargs":{"enable_thinking":false}}`, "chat_template_kwargs.enable_thinking"},
		{"tokenize", "/tokenize", `{"prompt":"never","with_pieces":true}`, "with_pieces"},
		{"strange names", "/tokenize", `{"prompt":"never","a\r\nb, c":1,"é":1}`, `"a\r\nb, c", "\u00e9"`},
		{"many", "/tokenize", `{"prompt":"never"` + many + `}`, "..."},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := http.Post(s.url+c.path, "application/json", strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			said, err := io.ReadAll(r.Body)
			got := r.Header.Get(serving.IgnoredHeader)
			if c.name == "many" && strings.Count(got, ",") == 32 {
				_, got, _ = strings.Cut(got, "xxx, ...")
				got = "..." + got
			}
			answered := r.StatusCode == 200 || strings.Contains(string(said), "no token of the model may follow") // of the built-in model's few words
			if err != nil || !answered || got != c.ignored {
				t.Errorf("%s: %d, ignored %q, want %q; error %v in %.200s", c.body, r.StatusCode, got, c.ignored, err, said)
			}
			field, _, _ := strings.Cut(c.ignored, ", ")
			status, param, says, _ := strict.raw(t, c.path, c.body)
			param = regexp.MustCompile(`\[\d+\]`).ReplaceAllString(param, "[]")
			if c.name != "many" && c.name != "strange names" && (status != 400 || param != field || !strings.Contains(says, "unknown field")) {
				t.Errorf("strict, %s: %d of %q: %q, want 400 of %q", c.body, status, param, says, field)
			}
		})
	}
	for _, body := range []string{
		`{` + message + `,"store":true,"metadata":{"a":"b"},"user":"u","service_tier":"auto","prompt_cache_key":"k","safety_identifier":"i"}`, // which change no answer
		`{"messages":[{"role":"user","content":"never"},{"role":"assistant","content":"karl","refusal":null,"annotations":[]},{"role":"user","content":"lantern"}],"keep_alive":null}`,
	} {
		for _, s := range []*served{s, strict} {
			if status, _, says, ignored := s.raw(t, "/v1/chat/completions", body); status != 200 || ignored != "" {
				t.Errorf("%s: %d %q, ignored %q, want 200 and nothing ignored", body, status, says, ignored)
			}
		}
	}
	if n := strings.Count(log.String(), "fields of requests were ignored"); n != 1 || !strings.Contains(log.String(), "keep_alive, think, num_ctx") {
		t.Errorf("%d lines of the log within a minute name ignored fields, want 1: %s", n, log.String())
	}
	if status, _, says, _ := s.raw(t, "/tokenize", `{"prompt":"never"`+`,"x":1`+unknownFields(1100)+`}`); status != 400 || !strings.Contains(says, "more than 1000 fields") {
		t.Errorf("1,101 unknown fields: %d %q, want 400", status, says)
	}
}

func unknownFields(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(`,"y` + strings.Repeat("z", i%40) + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676)) + `":0`)
	}
	return b.String()
}

// TestPanicsAreAnswered: with 500, a stack in the log and a count, and an answer that has begun is cut off.
func TestPanicsAreAnswered(t *testing.T) {
	var log logBuffer
	s := serve(t, func(c *serving.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	s.server.Handle("POST /fails", func(http.ResponseWriter, *http.Request) error {
		var none []int
		return errors.New(string(rune(none[1])))
	})
	s.server.Handle("POST /fails-late", func(w http.ResponseWriter, _ *http.Request) error {
		w.Write([]byte("{"))
		panic("late")
	})
	if status, answer := s.post(t, "/fails", `{}`); status != 500 || answer["error"].(map[string]any)["code"] != "internal_error" || strings.Contains(answer["error"].(map[string]any)["message"].(string), "index") {
		t.Errorf("a handler that panics: %d %v, want 500 that tells nothing of the inside", status, answer)
	}
	if r, err := http.Post(s.url+"/fails-late", "application/json", nil); err == nil {
		if _, err = io.ReadAll(r.Body); err == nil {
			t.Error("an answer whose handler panics ends as if it were whole")
		}
		r.Body.Close()
	}
	for _, want := range []string{"a handler panicked", "index out of range", "decode_test.go", "panic=late"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in the log %s", want, log.String())
		}
	}
	r, err := http.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if raw, err := io.ReadAll(r.Body); err != nil || !strings.Contains(string(raw), "glimpse_handler_panics_total 2\n") {
		t.Errorf("the metrics do not count 2 panics (error %v)", err)
	}
}
