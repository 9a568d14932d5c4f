package toolcall

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"glimpse/model/chat"
)

// outlines are what templates write of calls in families of which the data folder has none: Granite 3,
// Phi-4-mini, Ministral 3, Mistral Small 3.2, Seed-OSS and Qwen3-Coder.
var outlines = map[string]struct{ format, source string }{
	"granite": {"granite", `{{ '<|start_of_role|>system<|end_of_role|>Answer with <|tool_call|> and a list.' }}{% for m in messages %}<|start_of_role|>{{ m.role }}<|end_of_role|>
{{- m.content }}{% if m.tool_calls %}<|tool_call|>[{% for c in m.tool_calls %}{{ c.function | tojson }}{% if not loop.last %}, {% endif %}{% endfor %}]{% endif %}<|end_of_text|>{% endfor %}`},
	"phi4": {"phi4", `{% for t in tools %}<|tool|>{{ t.function | tojson }}<|/tool|>{% endfor %}{% for m in messages %}<|{{ m.role }}|>
{{- m.content }}{% for c in m.tool_calls %}<|tool_call|>{{ c.function | tojson }}<|/tool_call|>{% endfor %}<|end|>{% endfor %}`},
	"ministral":     {"mistral-args", `{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ '[TOOL_CALLS]' + c.function.name + '[ARGS]' + (c.function.arguments | tojson) }}{% endfor %}</s>{% endfor %}`},
	"mistral-small": {"mistral-args", `{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ '[TOOL_CALLS]' + c.function.name + '[CALL_ID]' + c.id + '[ARGS]' + (c.function.arguments | tojson) }}{% endfor %}</s>{% endfor %}`},
	"seed-oss": {"seed-oss", `{% for m in messages %}<seed:bos>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls %}{{ "\n<seed:tool_call>\n<function=" + c.function.name + ">\n" }}{% for k, v in c.function.arguments | items %}{{ "<parameter=" + k + ">" + (v if v is string else v | string) + "</parameter>\n" }}{% endfor %}{{ "</function>\n</seed:tool_call>" }}{% endfor %}<seed:eos>{% endfor %}`},
	"qwen3-coder": {"qwen3-coder", `{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls %}{{ "\n<tool_call>\n<function=" + c.function.name + ">\n" }}{% for k, v in c.function.arguments | items %}{{ "<parameter=" + k + ">\n" + (v if v is string else v | string) + "\n</parameter>\n" }}{% endfor %}{{ "</function>\n</tool_call>" }}{% endfor %}<|im_end|>{% endfor %}`},
}

// formats of the data folder's templates; "" for those whose model is told of no tools.
var formats = map[string]string{
	"Mistral-7B-Instruct-v0.3":                 "mistral",
	"Qwen2.5":                                  "hermes",
	"Qwen3":                                    "hermes",
	"meta-llama-Llama-3.1-8B-Instruct":         "llama",
	"meta-llama-Llama-3.2-3B-Instruct":         "llama",
	"deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "",
}

func templates(t *testing.T) map[string]struct{ format, source string } {
	all := map[string]struct{ format, source string }{}
	for name, o := range outlines {
		all[name] = o
	}
	root := os.Getenv("GLIMPSE_DATA")
	if root == "" {
		t.Log("GLIMPSE_DATA does not name a data folder: the templates of public models are not tested")
		return all
	}
	files, err := filepath.Glob(filepath.Join(root, "chat_templates", "*.jinja"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no templates in %s: %v", root, err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".jinja")
		want, ok := formats[name]
		if !ok {
			t.Errorf("template %s: say its format in the table of this test", name)
		}
		all[name] = struct{ format, source string }{want, string(source)}
	}
	return all
}

// TestDetect: each template has one format, and those without tools have none.
func TestDetect(t *testing.T) {
	for name, c := range templates(t) {
		t.Run(name, func(t *testing.T) {
			var found []string
			for _, n := range Formats.Names() {
				if format(t, n).detect(c.source) {
					found = append(found, n)
				}
			}
			d := Detect(c.source)
			if d.Calls.Name != c.format || len(found) > 1 {
				t.Errorf("formats %q, detected %q, want %q", found, d.Calls.Name, c.format)
			}
			t.Logf("format %q, thoughts %q", d.Calls.Name, d.Thoughts.Name)
		})
	}
	for _, source := range []string{"", "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}", "[INST] {{ messages[0].content }} [/INST]",
		"<|start_header_id|>{{ m.role }}<|end_header_id|>"} {
		if d := Detect(source); d.Calls.Name+d.Thoughts.Name != "" {
			t.Errorf("template %q: formats %s, %s", source, d.Calls.Name, d.Thoughts.Name)
		}
	}
	smollm3 := `{% for tool in xml_tools %}{{ tool }}{% endfor %}{{ "Write\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>" }}{% if python_tools %}<code></code>{% endif %}`
	if d := Detect(smollm3); d.Calls.Name != "hermes" { // it prints the content of messages alone
		t.Errorf("SmolLM3: format %q", d.Calls.Name)
	}
	for name, want := range map[string]string{"hermes": "<tool_call> </tool_call>", "llama": "<|python_tag|>", "mistral": "[TOOL_CALLS] [CALL_ID] [ARGS]", "seed-oss": "<seed:tool_call> </seed:tool_call>"} {
		if got := strings.Join((Dialect{Calls: format(t, name)}).Markers(true), " "); got != want {
			t.Errorf("markers of %s: %s, want %s", name, got, want)
		}
	}
	if _, err := Formats.Lookup("hermas"); err == nil || !strings.Contains(err.Error(), `"hermes"`) {
		t.Errorf("error %v does not name what was meant", err)
	}
}

// TestRoundTrip: calls of a message, written by the template, are read as the same calls.
func TestRoundTrip(t *testing.T) {
	arguments := []string{
		`{"city": "Paris é \"x\" {[<b>]} \\ it's", "days": 3, "metric": true, "at": null}`,
		`{"city": "a\nb", "area": {"names": ["x", "it's \"y\" \\", null, 1.5, false, {"k": []}]}}`,
		`{}`,
		`{"city": ""}`,
	}
	for name, c := range templates(t) {
		if c.format == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			template, err := chat.Parse(c.source)
			if err != nil {
				t.Fatal(err)
			}
			for n := range len(arguments) {
				list := []string{arguments[n]}
				if c.format != "llama" && n > 0 {
					list = arguments[:n+1]
				}
				for _, content := range []string{"", "Let me look."} {
					checkRoundTrip(t, template, format(t, c.format), content, list)
				}
			}
		})
	}
}

func checkRoundTrip(t *testing.T, template *chat.Template, f Format, content string, arguments []string) {
	t.Helper()
	var declared []map[string]any
	for _, tool := range tools {
		declared = append(declared, map[string]any{"type": "function", "function": map[string]any{"name": tool.Name, "description": "A tool.", "parameters": tool.Parameters}})
	}
	var calls []map[string]any
	for _, a := range arguments {
		calls = append(calls, map[string]any{"id": "abcdefghi", "type": "function", "function": map[string]any{"name": "get_weather", "arguments": json.RawMessage(a)}})
	}
	var messages []chat.Message
	if err := json.Unmarshal(encode(t, []map[string]any{{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": content, "tool_calls": calls}}), &messages); err != nil {
		t.Fatal(err)
	}
	o := chat.Options{BOS: "<BOS>", EOS: "<EOS>"}
	value, err := chat.ParseJSON(encode(t, declared))
	if err != nil {
		t.Fatal(err)
	}
	o.Tools = value.([]any)
	whole, err := template.Render(context.Background(), messages, o)
	if err != nil {
		t.Fatal(err)
	}
	o.AddGenerationPrompt = true
	prompt, err := template.Render(context.Background(), messages[:1], o)
	if err != nil {
		t.Fatal(err)
	}
	n := 0 // the answer is what follows what both have
	for n < min(len(prompt), len(whole)) && prompt[n] == whole[n] {
		n++
	}
	text := whole[n:]
	for _, end := range []string{"<|im_end|>\n", "<EOS>", "<|eot_id|>", "<|end_of_text|>", "<|end|>", "<seed:eos>", "</s>"} {
		text = strings.TrimSuffix(text, end)
	}
	got := parse(t, f, text)
	if len(got.Calls) != len(arguments) {
		t.Fatalf("%d calls, want %d, of %q", len(got.Calls), len(arguments), text)
	}
	for i, a := range arguments {
		if got.Calls[i].Name != "get_weather" || !reflect.DeepEqual(decode(t, got.Calls[i].Arguments), decode(t, a)) {
			t.Errorf("call %d: %v, want %s, of %q", i, got.Calls[i], a, text)
		}
	}
	if strings.Contains(text, content) && !strings.Contains(got.Content, content) || strings.Contains(got.Content, "{") {
		t.Errorf("content %q of %q", got.Content, text)
	}
	checkCuts(t, f, text, got)
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func decode(t *testing.T, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Errorf("%q: %v", text, err)
	}
	return v
}
