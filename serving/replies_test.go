package serving_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// reply is an answer of the chat API.
type reply struct {
	Content   string
	Reasoning string `json:"reasoning_content"`
	ToolCalls []struct {
		Index    int
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
	reason string
}

func (a reply) String() string {
	text := "(" + a.Reasoning + ")" + a.Content
	for _, c := range a.ToolCalls {
		var compact bytes.Buffer
		if json.Compact(&compact, []byte(c.Function.Arguments)) != nil {
			compact = *bytes.NewBufferString(c.Function.Arguments)
		}
		text += "|" + c.Function.Name + compact.String()
	}
	return text
}

// both sends the body of a chat as it is and as a stream, which must say the same, and returns it.
func (s *served) both(t *testing.T, body string) (out reply) {
	t.Helper()
	var whole struct {
		Choices []struct {
			Message reply
			Reason  string `json:"finish_reason"`
		}
	}
	status, answer := s.post(t, "/v1/chat/completions", body)
	raw, err := json.Marshal(answer)
	if err == nil {
		err = json.Unmarshal(raw, &whole)
	}
	if err != nil || status != 200 || len(whole.Choices) != 1 {
		t.Fatalf("%s: %d %s, %v", body, status, raw, err)
	}
	out, out.reason = whole.Choices[0].Message, whole.Choices[0].Reason
	r, err := http.Post(s.url+"/v1/chat/completions", "application/json", strings.NewReader(strings.Replace(body, "{", `{"stream":true,`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var streamed reply
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		var part struct {
			Choices []struct {
				Delta  reply
				Reason string `json:"finish_reason"`
			}
		}
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		if err := json.Unmarshal([]byte(data), &part); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		for _, c := range part.Choices {
			streamed.Content += c.Delta.Content
			streamed.Reasoning += c.Delta.Reasoning
			streamed.reason = c.Reason
			for _, call := range c.Delta.ToolCalls {
				if call.Index == len(streamed.ToolCalls) {
					streamed.ToolCalls = append(streamed.ToolCalls, call)
					continue
				}
				streamed.ToolCalls[call.Index].Function.Arguments += call.Function.Arguments
			}
		}
	}
	if streamed.String() != out.String() || streamed.reason != out.reason {
		t.Errorf("%s:\nstreamed %s, %s\nwhole    %s, %s", body, streamed, streamed.reason, out, out.reason)
	}
	return out
}

const thinkTemplate = callsTemplate + `{% if enable_thinking is defined and enable_thinking %}<think>
{% elif enable_thinking is defined %}<think>

</think>

{% endif %}`

// TestThoughtsApart: what a model thinks before its answer is not its content, unless that is asked for.
func TestThoughtsApart(t *testing.T) {
	s := serveTemplate(t, thinkTemplate, "<think>", "</think>", "<tool_call>", "</tool_call>")
	says := func(text, more string) string {
		return `{"messages":[{"role":"user","content":"x"}],"max_tokens":200,"structured_outputs":{"choice":[` + jsonOf(t, text) + `]}` + more + `}`
	}
	const tools = `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"enum":[1]}},"required":["a"],"additionalProperties":false}}}]`
	for _, c := range []struct{ name, body, want, reason string }{
		{"apart", says("<think>\nHm.\n</think>\n\nHello.", ""), "(Hm.)Hello.", "stop"},
		{"in the content", says("<think>\nHm.\n</think>\n\nHello.", `,"reasoning_format":"none"`), "()<think>\nHm.\n</think>\n\nHello.", "stop"},
		{"none", says("Hello.", ""), "()Hello.", "stop"},
		{"begun by the prompt", `{"messages":[{"role":"user","content":"x"}],"max_tokens":200,"structured_outputs":{"choice":["Hello."]},"chat_template_kwargs":{"enable_thinking":true},"logit_bias":{"257":100}}`, "()Hello.", "stop"},
		{"begun by the prompt, and JSON", `{"messages":[{"role":"user","content":"x"}],"max_tokens":200,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"const":"a"}}},"chat_template_kwargs":{"enable_thinking":true},"logit_bias":{"257":100}}`, `()"a"`, "stop"},
		{"begun by the prompt, in the content", `{"messages":[{"role":"user","content":"x"}],"max_tokens":200,"structured_outputs":{"choice":["Hello."]},"chat_template_kwargs":{"enable_thinking":true},"reasoning_format":"none"}`, "()Hello.", "stop"},
		{"ended by the prompt", says("Hello.", `,"chat_template_kwargs":{"enable_thinking":false}`), "()Hello.", "stop"},
		{"a call after a thought", `{"messages":[{"role":"user","content":"x"}],"max_tokens":200,"tool_choice":"required","parallel_tool_calls":false,"chat_template_kwargs":{"enable_thinking":true},"logit_bias":{"257":100}` + tools + `}`, `()|f{"a":1}`, "tool_calls"},
		{"a call that a stop text cuts", says("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", `,"stop":"1"`+tools), `()|f{"a":`, "stop"},
		{"a whole call before a stop text", says("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", `,"stop":"</tool_call>"`+tools), `()|f{"a":1}`, "tool_calls"},
		{"a call in a thought", says("<think>I <tool_call>{}</tool_call></think>No.", ""), "(I <tool_call>{}</tool_call>)No.", "stop"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := s.both(t, c.body)
			if got.String() != c.want || got.reason != c.reason {
				t.Errorf("got  %s, %s\nwant %s, %s", got, got.reason, c.want, c.reason)
			}
		})
	}
	if status, answer := s.post(t, "/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"reasoning_format":"loud"}`); status != 400 || !strings.Contains(jsonOf(t, answer), `"reasoning_format"`) {
		t.Errorf("%d %v, want 400 of reasoning_format", status, answer)
	}
}

// TestChannels: gpt-oss' channels are thoughts, content and calls, with texts and calls that an answer must be.
func TestChannels(t *testing.T) {
	s := serveTemplate(t, `{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}<|start|>{{ m.role }}<|channel|>final<|message|>{{ m.content }}<|end|>{% endfor %}<|start|>assistant`, "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>")
	const head = `{"messages":[{"role":"user","content":"x"}],"max_tokens":200,`
	const tools = `"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"enum":[1]}},"required":["a"],"additionalProperties":false}}}]`
	if got := s.both(t, head+`"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"const":"a"}}}}`); got.String() != `()"a"` {
		t.Errorf("JSON: %s", got)
	}
	if got := s.both(t, head+`"tool_choice":"required",`+tools+`}`); got.String() != `()|f{"a":1}` {
		t.Errorf("a call: %s", got)
	}
}

// TestAllowedTools: the model is told of the tools that it may call, and calls one where it must.
func TestAllowedTools(t *testing.T) {
	s := serveTemplate(t, callsTemplate)
	const tools = `"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g","parameters":{"type":"object","properties":{},"additionalProperties":false}}}]`
	allowed := func(mode string, names ...string) string {
		var list []any
		for _, n := range names {
			list = append(list, map[string]any{"type": "function", "function": map[string]any{"name": n}})
		}
		return `"tool_choice":` + jsonOf(t, map[string]any{"type": "allowed_tools", "allowed_tools": map[string]any{"mode": mode, "tools": list}})
	}
	const head = `{"messages":[{"role":"user","content":"x"}],`
	if _, answer := s.post(t, "/apply-template", head+tools+`,`+allowed("auto", "g")+`}`); answer["prompt"] != "<tools>g</tools><|user|>x<|assistant|>" {
		t.Errorf("%v, want a prompt with g alone", answer)
	}
	if got := s.both(t, head+`"max_tokens":200,`+tools+`,`+allowed("required", "g")+`}`); got.String() != "()|g{}" {
		t.Errorf("%s, want a call of g", got)
	}
	for name, body := range map[string]string{
		"a tool that there is not": tools + `,` + allowed("auto", "h"), "no tools": allowed("required", "g"), "a mode": tools + `,` + allowed("some", "g"), "an empty list": tools + `,` + allowed("auto"),
	} {
		if status, answer := s.post(t, "/v1/chat/completions", head+body+`}`); status != 400 || !strings.Contains(jsonOf(t, answer), `"tool_choice`) {
			t.Errorf("%s: %d %v, want 400 of tool_choice", name, status, answer)
		}
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
