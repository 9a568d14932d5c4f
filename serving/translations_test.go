package serving_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"glimpse/serving"
	"glimpse/serving/toolcall"
)

// thoughtsTemplate is callsTemplate, tells of earlier thoughts, and may ask for none.
var thoughtsTemplate = "{% if enable_thinking is defined %}{{ enable_thinking }}{% endif %}" + strings.Replace(callsTemplate, "<|{{ m.role }}|>", "<|{{ m.role }}|>{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}", 1)

// said is an answer of any API.
type said struct {
	Text, Arguments, Name string
	Tokens                float64 // of the prompt
	Reason                string
	Prompt                string // that the model saw
}

// prompt is the text of a prompt, of the usage that says what was kept of it.
func prompt(usage any) string {
	var b strings.Builder
	for _, token := range list(object(object(usage)["eviction"])["tokens"]) {
		b.WriteString(text(list(token)[0]))
	}
	return b.String()
}

func object(v any) map[string]any { o, _ := v.(map[string]any); return o }

func list(v any) []any { l, _ := v.([]any); return l }

func text(v any) string { s, _ := v.(string); return s }

// ofChat reads an answer of /v1/chat/completions.
func ofChat(o map[string]any) (a said) {
	choice := object(list(o["choices"])[0])
	message := object(choice["message"])
	a.Text, a.Reason = text(message["content"]), text(choice["finish_reason"])
	if calls := list(message["tool_calls"]); len(calls) > 0 {
		f := object(object(calls[0])["function"])
		a.Name, a.Arguments = text(f["name"]), text(f["arguments"])
	}
	a.Tokens, _ = object(o["usage"])["prompt_tokens"].(float64)
	a.Prompt = prompt(o["usage"])
	return a
}

// ofResponse reads a response.
func ofResponse(o map[string]any) (a said) {
	a.Reason = map[string]string{"completed": "stop", "incomplete": "length"}[text(o["status"])]
	for _, item := range list(o["output"]) {
		switch item := object(item); item["type"] {
		case "message":
			for _, part := range list(item["content"]) {
				a.Text += text(object(part)["text"])
			}
		case "function_call":
			if a.Name, a.Arguments = text(item["name"]), text(item["arguments"]); a.Reason == "stop" {
				a.Reason = "tool_calls"
			}
		}
	}
	a.Tokens, _ = object(o["usage"])["input_tokens"].(float64)
	a.Prompt = prompt(o["usage"])
	return a
}

// ofMessage reads a message of Anthropic's API.
func ofMessage(o map[string]any) (a said) {
	reason := text(o["stop_reason"])
	a.Reason = map[string]string{"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}[reason]
	for _, b := range list(o["content"]) {
		switch b := object(b); b["type"] {
		case "text":
			a.Text += text(b["text"])
		case "tool_use":
			raw, _ := json.Marshal(b["input"])
			a.Name, a.Arguments = text(b["name"]), string(raw)
		}
	}
	for _, name := range []string{"input_tokens", "cache_read_input_tokens"} {
		n, _ := object(o["usage"])[name].(float64)
		a.Tokens += n
	}
	a.Prompt = prompt(o["usage"])
	return a
}

const (
	schemaOfF      = `{"type":"object","properties":{"a":{"type":"integer","minimum":0,"maximum":99}},"required":["a"],"additionalProperties":false}`
	chatTools      = `"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":` + schemaOfF + `}}]`
	responseTools  = `"tools":[{"type":"function","name":"f","description":"d","parameters":` + schemaOfF + `}]`
	anthropicTools = `"tools":[{"name":"f","description":"d","input_schema":` + schemaOfF + `,"cache_control":{"type":"ephemeral"}}]`
)

// translations are the same requests in three APIs; empty where one has no such.
var translations = []struct{ name, chat, response, message string }{
	{"a text", `"messages":[{"role":"user","content":"hi"}]`, `"input":"hi"`, `"messages":[{"role":"user","content":"hi"}]`},
	{"a system's text", `"messages":[{"role":"system","content":"be"},{"role":"user","content":"hi"}]`, `"instructions":"be","input":[{"role":"user","content":[{"type":"input_text","text":"h"},{"type":"input_text","text":"i"}]}]`,
		`"system":[{"type":"text","text":"be","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"text","text":"h"},{"type":"text","text":"i"}]}]`},
	{"two texts of the system", `"messages":[{"role":"system","content":"be\n\nquick"},{"role":"user","content":"hi"}]`, `"instructions":"be","input":[{"type":"message","role":"developer","content":[{"type":"input_text","text":"quick"}]},{"type":"message","role":"user","content":"hi"}]`, ""},
	{"turns", `"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]`,
		`"input":[{"role":"user","content":"a"},{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"b","annotations":[],"logprobs":[]}]},{"role":"user","content":"c"}]`,
		`"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"text","text":"b"}]},{"role":"user","content":"c"}]`},
	{"an answer that has begun", `"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]`, `"input":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]`, `"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]`},
	{"calls and results", chatTools + `,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}},{"id":"2","type":"function","function":{"name":"f","arguments":"{\"a\": 2}"}}]},{"role":"tool","tool_call_id":"1","content":"x"},{"role":"tool","tool_call_id":"2","content":"y"},{"role":"user","content":"c"}]`,
		responseTools + `,"input":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"type":"function_call","id":"fc_1","call_id":"1","name":"f","arguments":"{\"a\": 1}","status":"completed"},{"type":"function_call","call_id":"2","name":"f","arguments":"{\"a\": 2}"},{"type":"function_call_output","call_id":"1","output":"x"},{"type":"function_call_output","call_id":"2","output":[{"type":"input_text","text":"y"}]},{"role":"user","content":"c"}]`,
		anthropicTools + `,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"text","text":"b"},{"type":"tool_use","id":"1","name":"f","input":{"a":1}},{"type":"tool_use","id":"2","name":"f","input":{"a":2}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"x"},{"type":"tool_result","tool_use_id":"2","content":[{"type":"text","text":"y"}]},{"type":"text","text":"c"}]}]`},
	{"a call without a text", chatTools + `,"messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"x"}]`,
		responseTools + `,"input":[{"role":"user","content":"a"},{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"1","output":"x"}]`,
		anthropicTools + `,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"x"}]}]`},
	{"thoughts", `"messages":[{"role":"user","content":"a"},{"role":"assistant","reasoning_content":"t","content":"b"},{"role":"user","content":"c"}]`,
		`"input":[{"role":"user","content":"a"},{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"t"}]},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]`,
		`"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":""},{"type":"text","text":"b"}]},{"role":"user","content":"c"}]`},
	{"opaque thoughts", `"messages":[{"role":"user","content":"a"},{"role":"assistant","reasoning_content":"t","content":"b"},{"role":"user","content":"c"}]`,
		`"input":[{"role":"user","content":"a"},{"type":"reasoning","summary":[],"content":null,"encrypted_content":"glimpse:` + base64.StdEncoding.EncodeToString([]byte("t")) + `"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]`, ""},
	{"thoughts of another server", `"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]`,
		`"input":[{"role":"user","content":"a"},{"type":"reasoning","summary":[],"encrypted_content":"gAAAAAB"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]`,
		`"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"redacted_thinking","data":"x"},{"type":"text","text":"b"}]},{"role":"user","content":"c"}]`},
	{"a call that must be", chatTools + `,"messages":[{"role":"user","content":"a"}],"tool_choice":"required","parallel_tool_calls":false,"max_tokens":200`,
		responseTools + `,"input":"a","tool_choice":"required","parallel_tool_calls":false,"max_output_tokens":200`,
		anthropicTools + `,"messages":[{"role":"user","content":"a"}],"tool_choice":{"type":"any","disable_parallel_tool_use":true},"max_tokens":200`},
	{"a call of a function", chatTools + `,"messages":[{"role":"user","content":"a"}],"tool_choice":{"type":"function","function":{"name":"f"}},"max_tokens":200`,
		responseTools + `,"input":"a","tool_choice":{"type":"function","name":"f"},"max_output_tokens":200`, anthropicTools + `,"messages":[{"role":"user","content":"a"}],"tool_choice":{"type":"tool","name":"f"},"max_tokens":200`},
	{"a call of an allowed tool", chatTools + `,"messages":[{"role":"user","content":"a"}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"f"}}]}},"parallel_tool_calls":false,"max_tokens":200`,
		responseTools + `,"input":"a","tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"f"}]},"parallel_tool_calls":false,"max_output_tokens":200`, ""},
	{"no thoughts", `"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":{"enable_thinking":false}`, `"input":"a","chat_template_kwargs":{"enable_thinking":false}`, `"messages":[{"role":"user","content":"a"}],"thinking":{"type":"disabled"}`},
	{"thoughts that are asked for", `"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":{"enable_thinking":true}`, "", `"messages":[{"role":"user","content":"a"}],"thinking":{"type":"enabled","budget_tokens":1024}`},
	{"no call", chatTools + `,"messages":[{"role":"user","content":"a"}],"tool_choice":"none"`, responseTools + `,"input":"a","tool_choice":"none"`, anthropicTools + `,"messages":[{"role":"user","content":"a"}],"tool_choice":{"type":"none"}`},
	{"a schema", `"messages":[{"role":"user","content":"a"}],"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":` + schemaOfF + `}},"max_tokens":200`,
		`"input":"a","text":{"format":{"type":"json_schema","name":"n","schema":` + schemaOfF + `},"verbosity":"low"},"max_output_tokens":200`,
		`"messages":[{"role":"user","content":"a"}],"output_config":{"format":{"type":"json_schema","schema":` + schemaOfF + `}},"max_tokens":200`},
	{"what changes nothing", `"messages":[{"role":"user","content":"hi"}]`,
		`"input":"hi","reasoning":null,"include":["reasoning.encrypted_content"],"truncation":"auto","store":true,"metadata":{"a":"b"},"previous_response_id":null,"prompt_cache_key":"x","client_metadata":{"a":"b"},"tools":[{"type":"web_search","external_web_access":false}]`,
		`"messages":[{"role":"user","content":"hi"}],"metadata":{"user_id":"x"},"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":1}],"cache_control":{"type":"ephemeral"},"service_tier":"auto"`},
}

// body is a request of so many tokens at the most, where it does not say.
func body(fields, bound string, stream bool) string {
	if !strings.Contains(fields, `"`+bound+`"`) {
		fields += `,"` + bound + `":12`
	}
	return fmt.Sprintf(`{%s,"temperature":0,"eviction":{"kept":true},"stream":%v}`, fields, stream)
}

// TestTranslations: a conversation in the words of /v1/responses and of /v1/messages has the prompt, and so the answer, that it has as a chat.
func TestTranslations(t *testing.T) {
	s := serveTemplate(t, thoughtsTemplate)
	for _, c := range translations {
		t.Run(c.name, func(t *testing.T) {
			status, answer := s.post(t, "/v1/chat/completions", body(c.chat, "max_tokens", false))
			if status != http.StatusOK {
				t.Fatalf("%d %v", status, answer)
			}
			want := ofChat(answer)
			if want.Prompt == "" {
				t.Fatalf("no prompt in %v", answer)
			}
			for _, api := range []struct {
				path, fields, bound string
				read                func(map[string]any) said
			}{{"/v1/responses", c.response, "max_output_tokens", ofResponse}, {"/v1/messages", c.message, "max_tokens", ofMessage}} {
				if api.fields == "" {
					continue
				}
				status, answer := s.post(t, api.path, body(api.fields, api.bound, false))
				if got := api.read(answer); status != http.StatusOK || !sameSaid(got, want) {
					t.Errorf("%s: %d %+v, want %+v", api.path, status, got, want)
				}
				events := s.eventsOf(t, api.path, body(api.fields, api.bound, true))
				whole := ofResponseEvents
				if api.path == "/v1/messages" {
					whole = ofMessageEvents
				}
				if got := api.read(whole(t, events)); !sameSaid(got, want) {
					t.Errorf("%s: a stream says %+v, want %+v", api.path, got, want)
				}
			}
			if c.message != "" {
				status, answer := s.post(t, "/v1/messages/count_tokens", "{"+c.message+"}")
				if status != http.StatusOK || answer["input_tokens"] != want.Tokens {
					t.Errorf("counted %d %v, want %v", status, answer, want.Tokens)
				}
			}
		})
	}
}

// sameSaid compares answers, and arguments as JSON.
func sameSaid(a, b said) bool {
	var x, y any
	if json.Unmarshal([]byte(a.Arguments), &x) == nil && json.Unmarshal([]byte(b.Arguments), &y) == nil && reflect.DeepEqual(x, y) {
		a.Arguments = b.Arguments
	}
	return a == b
}

// event is one of a stream.
type event struct {
	name string
	data map[string]any
}

// eventsOf are those of a stream, which have their names twice.
func (s *served) eventsOf(t *testing.T, path, body string) (all []event) {
	t.Helper()
	r, err := http.Post(s.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if kind := r.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		t.Fatalf("%s %s: %d of type %s", path, body, r.StatusCode, kind)
	}
	return parseEvents(t, readAll(t, r.Body))
}

func parseEvents(t *testing.T, stream string) (all []event) {
	t.Helper()
	for _, raw := range strings.Split(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		name, data, _ := strings.Cut(strings.TrimPrefix(raw, "event: "), "\ndata: ")
		e := event{name: name}
		if err := json.Unmarshal([]byte(data), &e.data); err != nil || e.data["type"] != name {
			t.Fatalf("event %q: %v", raw, err)
		}
		all = append(all, e)
	}
	return all
}

// ofResponseEvents holds the events of a stream against what OpenAI's API says of their order, and the last one's response against what they
// have told.
func ofResponseEvents(t *testing.T, events []event) map[string]any {
	t.Helper()
	last := len(events) - 1
	if events[0].name != "response.created" || events[1].name != "response.in_progress" || events[last].name != "response.completed" && events[last].name != "response.incomplete" {
		t.Fatalf("%s, %s … %s", events[0].name, events[1].name, events[last].name)
	}
	var items []any
	var item map[string]any // that is open
	told, part := "", false
	for i, e := range events {
		if e.data["sequence_number"] != float64(i) {
			t.Fatalf("event %d has number %v", i, e.data["sequence_number"])
		}
		if i < 2 || i == last {
			continue
		}
		if e.data["output_index"] != float64(len(items)) {
			t.Fatalf("%s has index %v, want %d", e.name, e.data["output_index"], len(items))
		}
		if id := e.data["item_id"]; item != nil && id != nil && id != item["id"] {
			t.Fatalf("%s is of item %v, want %v", e.name, id, item["id"])
		}
		switch e.name {
		case "response.output_item.added":
			if item != nil {
				t.Fatal("an item begins in another")
			}
			item, told = object(e.data["item"]), ""
		case "response.content_part.added":
			part = true
		case "response.content_part.done":
			part = false
			if object(e.data["part"])["text"] != told {
				t.Errorf("a part of %v, told were %q", e.data["part"], told)
			}
		case "response.output_text.delta", "response.reasoning_text.delta":
			if !part {
				t.Fatal("a text in no part")
			}
			told += text(e.data["delta"])
		case "response.function_call_arguments.delta", "response.custom_tool_call_input.delta":
			told += text(e.data["delta"])
		case "response.output_text.done", "response.reasoning_text.done", "response.function_call_arguments.done", "response.custom_tool_call_input.done":
			if done := text(e.data["text"]) + text(e.data["arguments"]) + text(e.data["input"]); done != told {
				t.Errorf("%s with %q, told were %q", e.name, done, told)
			}
		case "response.output_item.done":
			done := object(e.data["item"])
			if item == nil || part || done["id"] != item["id"] || done["type"] != item["type"] || done["call_id"] != item["call_id"] {
				t.Fatalf("item %v ends as %v", item, done)
			}
			items, item = append(items, done), nil
		default:
			t.Fatalf("event %s", e.name)
		}
	}
	response := object(events[last].data["response"])
	if !reflect.DeepEqual(response["output"], items) || item != nil || "response."+text(response["status"]) != events[last].name {
		t.Errorf("%s with %v, told were %v", events[last].name, response, items)
	}
	return response
}

// ofMessageEvents is the message that a stream of Anthropic's API tells, in the order that the API says.
func ofMessageEvents(t *testing.T, events []event) map[string]any {
	t.Helper()
	last := len(events) - 1
	if events[0].name != "message_start" || events[last-1].name != "message_delta" || events[last].name != "message_stop" {
		t.Fatalf("%s … %s, %s", events[0].name, events[last-1].name, events[last].name)
	}
	message := object(events[0].data["message"])
	var content []any
	var block map[string]any
	told := ""
	for _, e := range events[1 : last-1] {
		if e.name == "ping" {
			continue
		}
		if e.data["index"] != float64(len(content)) {
			t.Fatalf("%s has index %v, want %d", e.name, e.data["index"], len(content))
		}
		switch e.name {
		case "content_block_start":
			if block != nil {
				t.Fatal("a block begins in another")
			}
			block, told = object(e.data["content_block"]), ""
		case "content_block_delta":
			d := object(e.data["delta"])
			told += text(d["text"]) + text(d["thinking"]) + text(d["partial_json"])
		case "content_block_stop":
			switch block["type"] {
			case "text":
				block["text"] = told
			case "thinking":
				block["thinking"] = told
			default:
				var input any
				if err := json.Unmarshal([]byte(told), &input); err != nil {
					t.Errorf("input %q: %v", told, err)
				}
				block["input"] = input
			}
			content, block = append(content, block), nil
		default:
			t.Fatalf("event %s", e.name)
		}
	}
	if block != nil {
		t.Error("a block has no end")
	}
	delta := object(events[last-1].data["delta"])
	message["content"], message["stop_reason"], message["stop_sequence"], message["usage"] = content, delta["stop_reason"], delta["stop_sequence"], events[last-1].data["usage"]
	return message
}

// TestBlocks: thoughts, texts and calls of an answer are told one after another, whole and in their order, and what has failed says so.
func TestBlocks(t *testing.T) {
	s := serve(t, nil)
	call := func(index int, name, arguments string) toolcall.Delta {
		return toolcall.Delta{Call: &toolcall.CallDelta{Index: index, Name: name, Arguments: arguments}}
	}
	think, say := func(text string) toolcall.Delta { return toolcall.Delta{Reasoning: text} }, func(text string) toolcall.Delta { return toolcall.Delta{Content: text} }
	for _, c := range []struct {
		name   string
		deltas []toolcall.Delta
		want   string // kinds and texts
	}{
		{"thoughts and a text", []toolcall.Delta{think("a"), think("b"), say("c"), say(""), say("d")}, "thinking ab, text cd"},
		{"a text between calls", []toolcall.Delta{call(0, "f", ""), call(0, "", `{"a":`), call(0, "", `1}`), say("x"), call(1, "g", "{}")}, `f {"a":1}, text x, g {}`},
		{"calls behind each other", []toolcall.Delta{call(0, "f", `{}`), call(1, "f", `{"b":2}`)}, `f {}, f {"b":2}`},
		{"all", []toolcall.Delta{think("a"), say("b"), call(0, "f", `{"c":[]}`)}, `thinking a, text b, f {"c":[]}`},
	} {
		tell := func(path string, err error) []event {
			w := httptest.NewRecorder()
			serving.Tell(w, s.model, path, err, c.deltas...)
			return parseEvents(t, w.Body.String())
		}
		var got []string
		response := ofResponseEvents(t, tell("/v1/responses", nil))
		for _, item := range list(response["output"]) {
			switch item := object(item); item["type"] {
			case "reasoning":
				got = append(got, "thinking "+text(object(list(item["content"])[0])["text"]))
				if sealed := text(item["encrypted_content"]); sealed != "glimpse:"+base64.StdEncoding.EncodeToString([]byte(text(object(list(item["content"])[0])["text"]))) {
					t.Errorf("%s: encrypted_content %q", c.name, sealed)
				}
			case "message":
				got = append(got, "text "+text(object(list(item["content"])[0])["text"]))
			default:
				got = append(got, text(item["name"])+" "+text(item["arguments"]))
			}
		}
		if joined := strings.Join(got, ", "); joined != c.want {
			t.Errorf("%s: a response of %s, want %s", c.name, joined, c.want)
		}
		got = nil
		message := ofMessageEvents(t, tell("/v1/messages", nil))
		for _, b := range list(message["content"]) {
			switch b := object(b); b["type"] {
			case "tool_use":
				raw, _ := json.Marshal(b["input"])
				got = append(got, text(b["name"])+" "+string(raw))
			default:
				got = append(got, text(b["type"])+" "+text(b["text"])+text(b["thinking"]))
			}
		}
		if joined := strings.Join(got, ", "); joined != c.want {
			t.Errorf("%s: a message of %s, want %s", c.name, joined, c.want)
		}
		if want := map[bool]string{true: "tool_use", false: "end_turn"}[strings.Contains(c.want, "{")]; message["stop_reason"] != want {
			t.Errorf("%s: stop reason %v, want %s", c.name, message["stop_reason"], want)
		}
		if u := object(message["usage"]); u["input_tokens"] != 2.0 || u["cache_read_input_tokens"] != 1.0 {
			t.Errorf("%s: usage %v", c.name, u)
		}
		events := tell("/v1/responses", errors.New("broken"))
		if failed := events[len(events)-2]; failed.name != "response.failed" || text(object(object(failed.data["response"])["error"])["message"]) != "broken" || events[len(events)-1].name != "error" {
			t.Errorf("%s: a failure is told as %v", c.name, failed)
		}
		events = tell("/v1/messages", errors.New("broken"))
		if failed := events[len(events)-1]; failed.name != "error" || object(failed.data["error"])["type"] != "api_error" {
			t.Errorf("%s: a failure is told as %v", c.name, failed)
		}
	}
}

// TestAnthropicStops: which of the stop sequences has ended an answer.
func TestAnthropicStops(t *testing.T) {
	s := serve(t, nil)
	p := user(question)
	status, answer := s.post(t, "/v1/messages", fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"temperature":0,"max_tokens":30}`, question))
	said := ofMessage(answer).Text
	words := strings.Fields(said)
	if status != http.StatusOK || len(words) < 2 || answer["stop_reason"] != "end_turn" || answer["stop_sequence"] != nil {
		t.Fatalf("%d %v to %v", status, answer, p)
	}
	_, answer = s.post(t, "/v1/messages", fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"temperature":0,"max_tokens":30,"stop_sequences":["no such",%q]}`, question, words[1]))
	if got := ofMessage(answer).Text; answer["stop_reason"] != "stop_sequence" || answer["stop_sequence"] != words[1] || strings.TrimSpace(got) != words[0] {
		t.Errorf("%v, want %q up to %q", answer, words[0], words[1])
	}
}

// TestCustomTools: a tool whose input is a text is a function of one to the model, and none to the client.
func TestCustomTools(t *testing.T) {
	s := serveTemplate(t, thoughtsTemplate)
	const fields = `"input":"a","tools":[{"type":"custom","name":"patch","format":{"type":"grammar","syntax":"lark","definition":"start: /.*/"}}],"tool_choice":{"type":"custom","name":"patch"},"max_output_tokens":80`
	_, answer := s.post(t, "/v1/responses", body(fields, "max_output_tokens", false))
	whole := object(list(answer["output"])[0])
	if whole["type"] != "custom_tool_call" || whole["name"] != "patch" || whole["call_id"] == nil {
		t.Fatalf("%v", answer)
	}
	streamed := object(list(ofResponseEvents(t, s.eventsOf(t, "/v1/responses", body(fields, "max_output_tokens", true)))["output"])[0])
	if streamed["input"] != whole["input"] {
		t.Errorf("a stream calls with %q, want %q", streamed["input"], whole["input"])
	}
	history := fmt.Sprintf(`"input":[{"role":"user","content":"a"},{"type":"custom_tool_call","call_id":"1","name":"patch","input":"x\ny"},{"type":"custom_tool_call_output","call_id":"1","output":"done"}],%s`, strings.SplitN(fields, ",", 2)[1])
	if status, answer := s.post(t, "/v1/responses", body(history, "max_output_tokens", false)); status != http.StatusOK {
		t.Errorf("a history of such calls: %d %v", status, answer)
	}
}

// TestNamespaces: a tool of a namespace is a function to the model, whose name has both; a client sees them apart, and sends them so.
func TestNamespaces(t *testing.T) {
	s := serveTemplate(t, thoughtsTemplate)
	const weather = `{"type":"function","name":"weather","parameters":{"type":"object","properties":{"day":{"enum":["monday"]}},"required":["day"],"additionalProperties":false}}`
	const tools = `"tools":[{"type":"namespace","name":"mcp__w","description":"Weather.","tools":[` + weather + `,{"type":"custom","name":"note"}]},{"type":"namespace","name":"mcp__v","tools":[` + weather + `]}]`
	for _, c := range []struct{ namespace, name, kind string }{
		{"mcp__w", "weather", "function"}, {"mcp__v", "weather", "function"}, {"mcp__w", "note", "custom"},
	} {
		fields := fmt.Sprintf(`"input":"a",%s,"tool_choice":{"type":%q,"namespace":%q,"name":%q},"max_output_tokens":80`, tools, c.kind, c.namespace, c.name)
		_, answer := s.post(t, "/v1/responses", body(fields, "max_output_tokens", false))
		events := ofResponseEvents(t, s.eventsOf(t, "/v1/responses", body(fields, "max_output_tokens", true)))
		for _, output := range []any{answer["output"], events["output"]} {
			if call := object(list(output)[0]); call["namespace"] != c.namespace || call["name"] != c.name || strings.HasPrefix(call["type"].(string), "custom") != (c.kind == "custom") {
				t.Errorf("%+v: %v", c, call)
			}
		}
	}
	flat := strings.NewReplacer(`"namespace":"mcp__w","name":"weather"`, `"name":"mcp__w__weather"`)
	history := `"input":[{"role":"user","content":"a"},{"type":"function_call","call_id":"1","namespace":"mcp__w","name":"weather","arguments":"{}"},{"type":"function_call_output","call_id":"1","output":"done"}],"max_output_tokens":8`
	_, apart := s.post(t, "/v1/responses", body(history, "max_output_tokens", false))
	_, joined := s.post(t, "/v1/responses", body(flat.Replace(history), "max_output_tokens", false))
	if got, want := ofResponse(apart), ofResponse(joined); got != want || got.Tokens == 0 {
		t.Errorf("a history is %+v, want %+v", got, want)
	}
}

// TestTruncation: with auto a conversation that is too long loses its first turns, as few as need be, and not the system's text.
func TestTruncation(t *testing.T) {
	s := serveTemplate(t, thoughtsTemplate)
	long := strings.Repeat("x", s.model.Config.MaxPositions*6/10) // a token a byte
	input := fmt.Sprintf(`"max_output_tokens":12,"temperature":0,"instructions":"ivan razor","input":[{"role":"user","content":%q},{"role":"assistant","content":"karl"},{"role":"user","content":%q},{"role":"assistant","content":"karl"},{"role":"user","content":%q}]`, long, long, question)
	status, answer := s.post(t, "/v1/responses", "{"+input+"}")
	if e := object(answer["error"]); status != http.StatusBadRequest || e["code"] != "context_length_exceeded" {
		t.Fatalf("cut though nothing asks for it: %d %v", status, answer)
	}
	status, answer = s.post(t, "/v1/responses", "{"+input+`,"truncation":"auto"}`)
	got := ofResponse(answer)
	rest := fmt.Sprintf(`"max_output_tokens":12,"temperature":0,"instructions":"ivan razor","input":[{"role":"user","content":%q},{"role":"assistant","content":"karl"},{"role":"user","content":%q}]`, long, question)
	_, answer = s.post(t, "/v1/responses", "{"+rest+"}")
	if want := ofResponse(answer); status != http.StatusOK || got != want || got.Tokens == 0 {
		t.Errorf("%d %+v, want the answer %+v to the last turns", status, got, want)
	}
}

// TestTranslationRefusals: what cannot be answered is refused by the field of the API that was asked.
func TestTranslationRefusals(t *testing.T) {
	s := serveTemplate(t, thoughtsTemplate)
	for _, c := range []struct{ path, body, says string }{
		{"/v1/responses", `{"input":"a","previous_response_id":"resp_1"}`, "not stored"},
		{"/v1/responses", `{"input":"a","conversation":"conv_1"}`, "not stored"},
		{"/v1/responses", `{"input":"a","background":true}`, "background"},
		{"/v1/responses", `{"input":"a","n":2}`, "n: got 2"},
		{"/v1/messages", `{"messages":[{"role":"user","content":"a"}],"max_tokens":9,"n":2}`, "n: got 2"},
		{"/v1/responses", `{"input":"a","truncation":"some"}`, "truncation"},
		{"/v1/responses", `{"input":[{"role":"user","content":[{"type":"input_image","image_url":"x"}]}]}`, "input[0].content[0]"},
		{"/v1/responses", `{"input":[{"type":"function_call_output","call_id":"1","output":"x"}]}`, "input[0].call_id"},
		{"/v1/responses", `{"input":[{"type":"item_reference","id":"1"}]}`, "input[0].type"},
		{"/v1/responses", `{"input":[{"role":"critic","content":"a"}]}`, "input[0].role"},
		{"/v1/responses", `{"input":[]}`, "input"},
		{"/v1/responses", `{"input":"a","tools":[{"type":"function"}]}`, "tools[0].name"},
		{"/v1/responses", `{"input":"a","tools":["x"]}`, "tools[0]"},
		{"/v1/responses", `{"input":"a","tools":[{"type":"namespace","tools":[]}]}`, "tools[0]"},
		{"/v1/responses", `{"input":"a","tools":[{"type":"namespace","name":"n","tools":[{"type":"namespace","name":"m","tools":[]}]}]}`, "tools[0].tools[0]"},
		{"/v1/responses", `{"input":"a","tool_choice":"required"}`, "tool_choice"},
		{"/v1/responses", `{"input":"a","tool_choice":{"type":"web_search"}}`, "tool_choice"},
		{"/v1/responses", `{"input":"a","text":{"format":{"type":"xml"}}}`, "xml"},
		{"/v1/messages", `{"messages":[{"role":"user","content":"a"}]}`, "max_tokens: is missing"},
		{"/v1/messages", `{"max_tokens":1,"messages":[]}`, "messages"},
		{"/v1/messages", `{"max_tokens":1,"messages":[{"role":"tool","content":"a"}]}`, "messages[0].role"},
		{"/v1/messages", `{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]}`, "messages[0].content[0].type"},
		{"/v1/messages", `{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]}]}`, "messages[0].content[0].type"},
		{"/v1/messages", `{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"a"}]}]}`, "messages[0].content[0].tool_use_id"},
		{"/v1/messages", `{"max_tokens":1,"messages":[{"role":"user","content":7}]}`, "messages[0].content"},
		{"/v1/messages", `{"max_tokens":1,"messages":[{"role":"user","content":"a"}],"tools":[{"name":"f"}]}`, "tools[0]"},
		{"/v1/messages", `{"max_tokens":1,"messages":[{"role":"user","content":"a"}],"tool_choice":{"type":"some"}}`, "tool_choice.type"},
		{"/v1/messages", `{"max_tokens":1,"messages":[{"role":"user","content":"a"}],"thinking":{"type":"some"}}`, "thinking.type"},
		{"/v1/messages", `{"max_tokens":1,"messages":[{"role":"user","content":"a"}],"temperature":9}`, "temperature"},
		{"/v1/messages", `{`, "not JSON"},
		{"/v1/messages/count_tokens", `{"messages":7}`, "messages"},
	} {
		status, answer := s.post(t, c.path, c.body)
		e := object(answer["error"])
		if status != http.StatusBadRequest || !strings.Contains(text(e["message"]), c.says) || e["type"] != "invalid_request_error" {
			t.Errorf("%s %s: %d %v, want 400 that says %q", c.path, c.body, status, answer, c.says)
		}
		if isAnthropic := answer["type"] == "error" && text(answer["request_id"]) != ""; isAnthropic != strings.HasPrefix(c.path, "/v1/messages") {
			t.Errorf("%s: the error has the form %v", c.path, answer)
		}
	}
	if status, answer := s.post(t, "/v1/messages", `{"model":"no-such-model","max_tokens":1,"messages":[{"role":"user","content":"a"}]}`); status != http.StatusNotFound || object(answer["error"])["type"] != "not_found_error" {
		t.Errorf("another model: %d %v", status, answer)
	}
}
