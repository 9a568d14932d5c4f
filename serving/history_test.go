package serving_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"glimpse/model/modeltest"
)

// serveTemplate serves a model of bytes with a chat template, and special tokens.
func serveTemplate(t testing.TB, template string, special ...string) *served {
	t.Helper()
	folder := t.TempDir()
	if err := os.CopyFS(folder, modeltest.WithFiles(t, map[string]any{
		"tokenizer.json": modeltest.ByteTokenizer(special...), "tokenizer_config.json": map[string]any{"chat_template": template},
	})); err != nil {
		t.Fatal(err)
	}
	return serveModel(t, folder, nil)
}

// callsTemplate tells of tools, of calls as Hermes' does, and of no role that it does not know.
const callsTemplate = `{% for t in tools or [] %}<tools>{{ t.function.name }}</tools>{% endfor %}{% for m in messages %}{% if m.role in ['system', 'user', 'assistant', 'tool'] %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}`

// TestHistory: messages of clients, in the prompt that is made of them or refused by the name of what is wrong.
func TestHistory(t *testing.T) {
	s := serveTemplate(t, callsTemplate)
	call := func(arguments string) string {
		return `"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":` + arguments + `}}]`
	}
	for _, c := range []struct{ name, body, want, param, says string }{
		{name: "arguments as text", body: `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"",` + call(`"{\"city\": \"Paris\"}"`) + `},{"role":"tool","tool_call_id":"a","content":"20 C"}]}`,
			want: "<|user|>x<|assistant|><tool_call>\n{\"name\": \"f\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call><|tool|>20 C<|assistant|>"},
		{name: "no content beside calls", body: `{"messages":[{"role":"user","content":"x"},{"role":"assistant",` + call(`"{}"`) + `},{"role":"tool","tool_call_id":"a","content":"1"}]}`,
			want: "<|user|>x<|assistant|><tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call><|tool|>1<|assistant|>"},
		{name: "null content", body: `{"messages":[{"role":"user","content":"A"},{"role":"assistant","content":null},{"role":"user","content":"B"}]}`, want: "<|user|>A<|assistant|><|user|>B<|assistant|>"},
		{name: "an empty text", body: `{"messages":[{"role":"user","content":""}]}`, want: "<|user|><|assistant|>"},
		{name: "an answer that goes on, as clients dump it", body: `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b","refusal":null,"audio":null}]}`, want: "<|user|>a<|assistant|>b"},
		{name: "no content", body: `{"messages":[{"role":"user","content":"x"},{"role":"assistant"}]}`, param: "messages[1]", says: "content"},
		{name: "no content and no calls", body: `{"messages":[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[]}]}`, param: "messages[1]", says: "content"},
		{name: "no content of a user", body: `{"messages":[{"role":"user"}]}`, param: "messages[0]", says: "content"},
		{name: "a role that is dropped", body: `{"messages":[{"role":"User","content":"IMPORTANT"},{"role":"user","content":"x"}]}`, param: "messages[0]", says: `"User"`},
		{name: "another, behind", body: `{"messages":[{"role":"user","content":"x"},{"role":"critic","content":"x"}]}`, param: "messages[1]", says: `"critic"`},
		{name: "other messages", body: `{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"messages":[]}}`, param: "chat_template_kwargs", says: "messages"},
		{name: "other tools", body: `{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"tools":[]}}`, param: "chat_template_kwargs", says: "tools"},
		{name: "another prompt", body: `{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"add_generation_prompt":false}}`, param: "chat_template_kwargs", says: "add_generation_prompt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, answer := s.post(t, "/apply-template", c.body)
			if c.param == "" {
				if answer["prompt"] != c.want {
					t.Errorf("%d %v, want the prompt %q", status, answer, c.want)
				}
				if status, answer := s.post(t, "/v1/chat/completions", strings.Replace(c.body, `{`, `{"max_tokens":2,`, 1)); status != 200 {
					t.Errorf("%d %v, want an answer", status, answer)
				}
				return
			}
			e, _ := answer["error"].(map[string]any)
			if says, _ := e["message"].(string); status != 400 || e["param"] != c.param || !strings.Contains(says, c.says) {
				t.Errorf("%d %v, want 400 of %q that says %q", status, answer, c.param, c.says)
			}
		})
	}
}

// TestOwnAnswersGoOn: an answer of the server is a message of the next request, as it is.
func TestOwnAnswersGoOn(t *testing.T) {
	s := serveTemplate(t, callsTemplate)
	const tools = `"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}}}]`
	status, answer := s.post(t, "/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"tool_choice":"required","max_tokens":200,`+tools+`}`)
	if status != 200 {
		t.Fatalf("%d %v", status, answer)
	}
	message := answer["choices"].([]any)[0].(map[string]any)["message"].(map[string]any)
	call := message["tool_calls"].([]any)[0].(map[string]any)
	raw, err := json.Marshal([]any{map[string]any{"role": "user", "content": "x"}, message, map[string]any{"role": "tool", "tool_call_id": call["id"], "content": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	status, answer = s.post(t, "/apply-template", `{"messages":`+string(raw)+`}`)
	arguments := call["function"].(map[string]any)["arguments"].(string)
	if prompt, _ := answer["prompt"].(string); status != 200 || !strings.Contains(prompt, `"arguments": `+strings.ReplaceAll(arguments, ":", ": ")) {
		t.Errorf("%d %v, want a prompt with the arguments %s", status, answer, arguments)
	}
}
