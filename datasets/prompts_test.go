package datasets_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"glimpse/datasets"
)

func TestReadPrompts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine.jsonl")
	file := `{"prompt": "Hi <user>, 你好", "chosen": 1}
{"text": "running text", "id": 17}
  {"messages": [{"role": "system", "content": ""}, {"role": "user", "content": "a\nb", "name": "x"}], "id": "chat"}

{"prompt_ids": [1, 3, 7]}`
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(file, "\n", "\r\n")), 0o666); err != nil {
		t.Fatal(err)
	}
	got, err := datasets.ReadPrompts(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []datasets.Prompt{
		{ID: "mine.jsonl:1", Form: datasets.FormPrompt, Text: "Hi <user>, 你好"},
		{ID: "17", Form: datasets.FormText, Text: "running text"},
		{ID: "chat", Form: datasets.FormMessages, Messages: []datasets.Message{{Role: "system"}, {Role: "user", Content: "a\nb", Extra: []datasets.Field{{Name: "name", Value: json.RawMessage(`"x"`)}}}}},
		{ID: "mine.jsonl:5", Form: datasets.FormIDs, IDs: []int32{1, 3, 7}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if err := got[3].CheckIDs(8); err != nil {
		t.Error(err)
	}
	if err := got[3].CheckIDs(7); err == nil || err.Error() != "prompt mine.jsonl:5: prompt_ids: element 2: got id 7, want 0 to 6" {
		t.Errorf("error %v", err)
	}
}

func TestPromptErrors(t *testing.T) {
	for _, c := range []struct{ name, line, want string }{
		{"no form", `{"id": "a"}`, `p:2: got no prompt, want one of the fields ["prompt" "text" "messages" "prompt_ids" "conversations" "conversation"]`},
		{"two forms", `{"text": "a", "prompt": "b"}`, `p:2: got both "prompt" and "text"`},
		{"wrong type", `{"prompt": 5}`, `p:2: field "prompt": got 5, want a string`},
		{"list of texts", `{"prompt": ["a"]}`, `p:2: field "prompt": element 0: got "a", want a JSON object`},
		{"null", `{"text": null}`, `p:2: field "text": got null, want a string`},
		{"empty text", `{"text": ""}`, `p:2: field "text": got an empty string`},
		{"letter case", `{"Prompt": "a"}`, `p:2: got no prompt`},
		{"messages not an array", `{"messages": {"role": "user"}}`, `p:2: field "messages": got {"role": "user"}, want an array`},
		{"no messages", `{"messages": []}`, `p:2: field "messages": got no messages`},
		{"message not an object", `{"messages": ["hi"]}`, `p:2: field "messages": element 0: got "hi", want a JSON object`},
		{"null message", `{"messages": [null]}`, `p:2: field "messages": element 0: got null, want a JSON object`},
		{"no role", `{"messages": [{"content": "a"}]}`, `p:2: field "messages": element 0: field "role": missing`},
		{"no content", `{"messages": [{"role": "user"}]}`, `element 0: field "content": missing, want a string or a list of parts`},
		{"null content", `{"messages": [{"role": "user", "content": null, "name": "a"}]}`, `element 0: field "content": got null, want a string or a list of parts`},
		{"assistant without anything", `{"messages": [{"role": "assistant", "content": null, "tool_calls": null}]}`, `element 0: field "content": got null`},
		{"image", `{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "b"}}]}]}`, `element 0: field "content": part 1: got "image_url", want text`},
		{"image of no type", `{"messages": [{"role": "user", "content": [{"type": "x", "image": "a"}]}]}`, `part 0: got "image", want text`},
		{"sound", `{"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}`, `part 0: got "input_audio", want text`},
		{"part without text", `{"messages": [{"role": "user", "content": [{"type": "text"}]}]}`, `part 0: field "text": missing`},
		{"part that is none", `{"messages": [{"role": "user", "content": ["a"]}]}`, `part 0: got "a", want a JSON object`},
		{"images beside", `{"messages": [{"role": "user", "content": "a"}], "images": ["b"]}`, `field "images": got ["b"], want none`},
		{"tools of text", `{"messages": [{"role": "user", "content": "a"}], "tools": "w"}`, `field "tools": got "w", want a list of functions`},
		{"tool that is none", `{"prompt": "a", "tools": "[1]"}`, `field "tools": element 0: got 1, want a JSON object`},
		{"unknown speaker", `{"conversations": [{"from": "narrator", "value": "a"}]}`, `element 0: field "from": got "narrator", want human, gpt, system`},
		{"completion", `{"prompt": "a", "completion": 1}`, `field "completion": got 1, want a string or a list of messages`},
		{"no ids", `{"prompt_ids": []}`, `p:2: field "prompt_ids": got no ids`},
		{"bad id", `{"prompt_ids": [true]}`, `p:2: field "prompt_ids": element 0: got true`},
		{"name of the wrong type", `{"text": "a", "id": [1]}`, `p:2: field "id": got [1], want a string or a whole number`},
		{"excerpt is cut at a rune", `{"text": ["` + strings.Repeat("é", 100) + `"]}`, "é…, want a string"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := datasets.NewPromptReader("p", strings.NewReader("{\"text\": \"good\"}\n"+c.line))
			if _, err := r.Next(); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Next(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want %q in it", err, c.want)
			}
		})
	}
	if _, err := datasets.NewPromptReader("p", strings.NewReader("\n \n")).Next(); !errors.Is(err, datasets.ErrEmpty) || !strings.HasPrefix(err.Error(), "p: ") {
		t.Errorf("blank file: %v, want ErrEmpty", err)
	}
}

// TestChatFields: what stands beside the turns of a chat, and what is not read is named.
func TestChatFields(t *testing.T) {
	user := datasets.Message{Role: "user", Content: "q"}
	for _, c := range []struct {
		name, line string
		want       datasets.Prompt // without its ID
	}{
		{"fields in order", `{"messages": [{"role": "assistant", "z": 1, "content": "q", "a": {"y": null, "x": 2}, "n": null}]}`,
			datasets.Prompt{Form: "messages", Messages: []datasets.Message{{Role: "assistant", Content: "q", Extra: []datasets.Field{{"z", json.RawMessage("1")}, {"a", json.RawMessage(`{"y": null, "x": 2}`)}}}}}},
		{"parts of a column", `{"messages": [{"role": "user", "content": [{"image": null, "type": "text", "text": "a"}, {"type": "text", "text": "b", "image": null}]}]}`,
			datasets.Prompt{Form: "messages", Messages: []datasets.Message{{Role: "user", Content: "ab", Extra: []datasets.Field{{"content", json.RawMessage(`[{"type":"text","text":"a"},{"type":"text","text":"b"}]`)}}}}}},
		{"no content and null", `{"messages": [{"role": "assistant", "tool_calls": []}, {"role": "assistant", "content": null, "tool_calls": []}]}`,
			datasets.Prompt{Form: "messages", Messages: []datasets.Message{
				{Role: "assistant", NoContent: true, Extra: []datasets.Field{{"tool_calls", json.RawMessage("[]")}}},
				{Role: "assistant", Extra: []datasets.Field{{"content", json.RawMessage("null")}, {"tool_calls", json.RawMessage("[]")}}}}}},
		{"system and tools", `{"prompt": "q", "system": "s", "tools": [{"a": 1}]}`,
			datasets.Prompt{Form: "messages", Messages: []datasets.Message{{Role: "system", Content: "s"}, user}, Tools: json.RawMessage(`[{"a": 1}]`)}},
		{"no tools beside a prompt", `{"prompt": "q", "system": null, "tools": "[]"}`, datasets.Prompt{Form: "prompt", Text: "q"}},
		{"another system message", `{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}], "system": "s", "system_prompt": "other"}`,
			datasets.Prompt{Form: "messages", Messages: []datasets.Message{{Role: "system", Content: "s"}, user}, Dropped: []string{"system_prompt"}}},
		{"system that is no text", `{"prompt": "q", "system": 5}`, datasets.Prompt{Form: "prompt", Text: "q", Dropped: []string{"system"}}},
		{"another prompt", `{"prompt": "p", "messages": [{"role": "user", "content": "q"}]}`, datasets.Prompt{Form: "messages", Messages: []datasets.Message{user}, Dropped: []string{"prompt"}}},
		{"the same prompt", `{"prompt": "q", "messages": [{"role": "user", "content": "q"}]}`, datasets.Prompt{Form: "messages", Messages: []datasets.Message{user}}},
		{"what no prompt is made of", `{"messages": [{"role": "user", "content": "q"}], "documents": [{"a": 1}], "functions": [], "chat_template_kwargs": {"b": 1}, "score": 1, "images": []}`,
			datasets.Prompt{Form: "messages", Messages: []datasets.Message{user}, Dropped: []string{"documents", "chat_template_kwargs"}}},
		{"call of no name", `{"conversations": [{"from": "function_call", "value": "{}"}]}`, datasets.Prompt{Form: "messages", Messages: []datasets.Message{{Role: "assistant", Content: "{}"}}}},
		{"calls", `{"conversations": [{"from": "FUNCTION_CALL", "value": "[{\"name\": \"a\"}, {\"name\": \"b\", \"arguments\": {\"c\": 1}}]", "weight": 0}]}`,
			datasets.Prompt{Form: "messages", Messages: []datasets.Message{{Role: "assistant", Extra: []datasets.Field{
				{"tool_calls", json.RawMessage(`[{"type":"function","function":{"name":"a","arguments":{}}},{"type":"function","function":{"name":"b","arguments":{"c": 1}}}]`)},
				{"weight", json.RawMessage("0")}}}}}},
		{"completion of text", `{"prompt": "q", "completion": "a"}`, datasets.Prompt{Form: "prompt", Text: "q", Chosen: "a"}},
		{"completion of messages", `{"prompt": "q", "completion": [{"role": "assistant", "content": "a"}]}`,
			datasets.Prompt{Form: "messages", Messages: []datasets.Message{user, {Role: "assistant", Content: "a"}}}},
		{"completion beside a system message", `{"prompt": "q", "completion": "a", "system_prompt": "s"}`,
			datasets.Prompt{Form: "messages", Messages: []datasets.Message{{Role: "system", Content: "s"}, user, {Role: "assistant", Content: "a"}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := datasets.NewPromptReader("p", strings.NewReader(c.line)).Next()
			if err != nil {
				t.Fatal(err)
			}
			c.want.ID = "p:1"
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

// The reader accepts only lines that encoding/json accepts too, and sets what the
// form says.
func FuzzPrompts(f *testing.F) {
	f.Add(`{"prompt": "a"}` + "\n" + `{"text": "b", "id": 1}`)
	f.Add(`{"messages": [{"role": "user", "content": "c"}], "x": {"y": [1, {}]}}`)
	f.Add(`{"messages": [{"role": "user", "content": [{"type": "text", "text": "c"}], "n": null}, {"role": "assistant", "tool_calls": [{}]}], "tools": "[{}]", "system": "s"}`)
	f.Add(`{"prompt": [{"role": "user", "content": "c"}], "completion": [{"from": "Function_Call", "value": "{\"name\": 1}"}], "documents": [1]}`)
	f.Add(`{"prompt_ids": [1,2 , 3], "id": "z"}`)
	f.Add("\ufeff" + `{"prompt": "a", "score": NaN, "m": {"x": [-Infinity, "NaN"]}, "id": 2.0}`)
	f.Add(`{"prompt": "\ud800", "prompt": 1,}`)
	f.Fuzz(func(t *testing.T, line string) {
		line = strings.NewReplacer("\n", " ", "\r", " ", "\xff\xfe", " ", "\xfe\xff", " ").Replace(line)
		r := datasets.NewPromptReader("p", strings.NewReader(line))
		p, err := r.Next()
		if err != nil {
			if !strings.HasPrefix(err.Error(), "p:") {
				t.Fatalf("error %v does not begin with the file", err)
			}
			return
		}
		line = strings.TrimPrefix(line, "\ufeff")
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			if strings.Contains(line, "NaN") || strings.Contains(line, "Infinity") {
				return // what Python writes
			}
			t.Fatalf("accepted %q, encoding/json says %v", line, err)
		}
		switch p.Form {
		case datasets.FormFewShot:
			if p.Text != fields["prompt"] || p.Chosen != fields["chosen"] {
				t.Fatalf("text %q, chosen %q of %q", p.Text, p.Chosen, line)
			}
		case datasets.FormPrompt, datasets.FormText:
			if p.Text == "" || p.Text != fields[string(p.Form)] {
				t.Fatalf("text %q of %q", p.Text, line)
			}
		case datasets.FormMessages:
			if len(p.Messages) == 0 {
				t.Fatalf("messages %v of %q", p.Messages, line)
			}
		case datasets.FormIDs:
			for i, v := range fields["prompt_ids"].([]any) {
				if float64(p.IDs[i]) != v {
					t.Fatalf("ids %v of %q", p.IDs, line)
				}
			}
		default:
			t.Fatalf("form %q of %q", p.Form, line)
		}
		if _, err := r.Next(); err != io.EOF {
			t.Fatalf("after the only line: %v, want io.EOF", err)
		}
	})
}
