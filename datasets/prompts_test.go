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
		{ID: "chat", Form: datasets.FormMessages, Messages: []datasets.Message{{Role: "system"}, {Role: "user", Content: "a\nb"}}},
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
		{"wrong type", `{"prompt": ["a"]}`, `p:2: field "prompt": got ["a"], want a string`},
		{"null", `{"text": null}`, `p:2: field "text": got null, want a string`},
		{"empty text", `{"text": ""}`, `p:2: field "text": got an empty string`},
		{"letter case", `{"Prompt": "a"}`, `p:2: got no prompt`},
		{"messages not an array", `{"messages": {"role": "user"}}`, `p:2: field "messages": got {"role": "user"}, want an array`},
		{"no messages", `{"messages": []}`, `p:2: field "messages": got no messages`},
		{"message not an object", `{"messages": ["hi"]}`, `p:2: field "messages": element 0: got "hi", want a JSON object`},
		{"null message", `{"messages": [null]}`, `p:2: field "messages": element 0: got null, want a JSON object`},
		{"no role", `{"messages": [{"content": "a"}]}`, `p:2: field "messages": element 0: field "role": missing`},
		{"content in parts", `{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}`, `element 0: field "content": got [{"type": "text", "text": "a"}], want a string`},
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

// The reader accepts only lines that encoding/json accepts too, and sets what the
// form says.
func FuzzPrompts(f *testing.F) {
	f.Add(`{"prompt": "a"}` + "\n" + `{"text": "b", "id": 1}`)
	f.Add(`{"messages": [{"role": "user", "content": "c"}], "x": {"y": [1, {}]}}`)
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
		case datasets.FormPrompt, datasets.FormText:
			if p.Text == "" || p.Text != fields[string(p.Form)] {
				t.Fatalf("text %q of %q", p.Text, line)
			}
		case datasets.FormMessages:
			if len(p.Messages) == 0 || len(p.Messages) != len(fields["messages"].([]any)) {
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
