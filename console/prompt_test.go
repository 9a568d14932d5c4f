package console

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/model"
	"glimpse/model/chat"
	"glimpse/model/modeltest"
)

// TestPromptSource: exactly one way of giving a prompt, and what each of them reads.
func TestPromptSource(t *testing.T) {
	m, err := model.Open("", model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ids := func(ids []int32, err error) []int32 {
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	raw := func(text string) []int32 { return ids(m.Encode(text)) }
	said := func(texts ...string) []int32 { // of the user and the assistant in turn
		var messages []chat.Message
		for i, text := range texts {
			messages = append(messages, chat.Message{Role: []string{"user", "assistant"}[i%2], Content: text})
		}
		return ids(m.EncodeChat(t.Context(), messages, chat.Options{}))
	}
	system := "be brief"
	for name, c := range map[string]struct {
		source PromptSource
		stdin  string
		ids    []int32 // nil: only that there are some
		fails  string
	}{
		"ids":             {source: PromptSource{IDs: write("ids", "1, 2\n[3]\t4\r\n")}, ids: []int32{1, 2, 3, 4}},
		"no number":       {source: PromptSource{IDs: write("bad", "1\ntwo\n")}, fails: `line 2: got "two", want a token id`},
		"no ids":          {source: PromptSource{IDs: write("none", " \n")}, fails: "empty, want at least one token"},
		"missing file":    {source: PromptSource{IDs: filepath.Join(dir, "missing")}, fails: "no such file"},
		"example":         {source: PromptSource{Example: "needle", Tokens: 128}},
		"unknown example": {source: PromptSource{Example: "hay", Tokens: 128}, fails: `unknown example "hay", want one of: hops`},
		"misspelt":        {source: PromptSource{Example: "neddle", Tokens: 128}, fails: `did you mean "needle"?`},
		"standard input":  {source: PromptSource{Text: []string{"-"}, Raw: true}, stdin: "<bos>"},
		"a line":          {source: PromptSource{Text: []string{"-"}, Raw: true}, stdin: "map\n", ids: raw("map")},
		"a line of DOS":   {source: PromptSource{Text: []string{"-"}, Raw: true}, stdin: "map\r\n", ids: raw("map")},
		"lines":           {source: PromptSource{Text: []string{"-"}, Raw: true}, stdin: "map <newline>\n\n", ids: raw("map <newline>\n")},
		"a question last": {source: PromptSource{Text: []string{"-", "river"}}, stdin: "map\n", ids: said("map\n\nriver")},
		"blank":           {source: PromptSource{Text: []string{" "}}, ids: said(" ")},
		"blank line":      {source: PromptSource{Text: []string{"-"}}, stdin: "\n\n", ids: said("\n")},
		"nothing said":    {source: PromptSource{Text: []string{"-"}}, stdin: "\n", fails: "got an empty string, want text"},
		"nothing raw":     {source: PromptSource{Text: []string{"-"}, Raw: true}, stdin: "", fails: "got an empty string, want text"},
		"blank raw":       {source: PromptSource{Text: []string{" "}, Raw: true}, fails: "empty, want at least one token"},
		"said nothing":    {source: PromptSource{Messages: write("m1", `[{"role": "user", "content": ""}]`)}, fails: "got an empty string, want text"},
		"messages":        {source: PromptSource{Messages: write("m2", `[{"role": "user", "content": "map"}]`)}, ids: said("map")},
		"messages in an object": {source: PromptSource{Messages: "-"}, ids: said("map"),
			stdin: "\ufeff {\"id\": 3, \"messages\": [{\"role\": \"user\", \"content\": \"map\"}, {\"role\": \"assistant\", \"content\": \"river\"}], \"tools\": null}\n"},
		"a conversation": {source: PromptSource{Messages: "-"}, ids: said("map", "river", "<copy>"),
			stdin: `[{"role": "user", "content": "map"}, {"role": "assistant", "content": "river"}, {"role": "user", "content": "<copy>"}]`},
		"no role":         {source: PromptSource{Messages: "-"}, stdin: `[{"role": "user", "content": "map"}, {"content": "x"}]`, fails: "messages[1]: "},
		"only an answer":  {source: PromptSource{Messages: "-"}, stdin: `[{"role": "assistant", "content": "map"}]`, fails: "no message to answer"},
		"no messages":     {source: PromptSource{Messages: "-"}, stdin: `{"message": []}`, fails: "no message to answer"},
		"two rows":        {source: PromptSource{Messages: "-"}, stdin: "{\"messages\": []}\n{\"messages\": []}", fails: "after top-level value"},
		"tools of a word": {source: PromptSource{Messages: "-"}, stdin: `{"messages": [{"role": "user", "content": "map"}], "tools": "search"}`, fails: `tools: got "search", want an array`},
		"system twice":    {source: PromptSource{Messages: "-", System: &system}, stdin: `[{"role": "system", "content": "x"}, {"role": "user", "content": "map"}]`, fails: "have a system prompt of their own"},
		"nothing":         {fails: "got none, want one of"},
		"two":             {source: PromptSource{Text: []string{"a"}, Example: "section"}, fails: "got a text and --example, want one of"},
	} {
		t.Run(name, func(t *testing.T) {
			c.source.Seed = 1
			p, err := c.source.Read(context.Background(), m, strings.NewReader(c.stdin))
			switch {
			case c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)):
				t.Fatalf("error %v, want it to say %q", err, c.fails)
			case c.fails == "" && err != nil:
				t.Fatal(err)
			case c.fails == "" && (len(p.IDs) == 0 || c.ids != nil && !slices.Equal(p.IDs, c.ids)):
				t.Fatalf("ids %v, want %v", p.IDs, c.ids)
			}
		})
	}
}

// TestMessagesWithCalls: arguments of calls that are JSON text are an object for the template, and a role that it drops is an error.
func TestMessagesWithCalls(t *testing.T) {
	m := modeltest.WithTemplate(t, `{% for m in messages %}{% if m.role != 'User' %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls %}{{ c.function.arguments.city }}{% endfor %}{% endif %}{% endfor %}`)
	items := `[{"role":"user","content":"Look up"},{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"lookup","arguments":"{\"city\": \"Paris\"}"}}]},{"role":"tool","tool_call_id":"a","content":"20"}`
	p, err := (&PromptSource{Messages: "-"}).Read(t.Context(), m, strings.NewReader(items+"]"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := m.Tokenizer.Decode(p.IDs, false); err != nil || got != "<user>Look up<assistant>Paris<tool>20" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := (&PromptSource{Messages: "-"}).Read(t.Context(), m, strings.NewReader(items+`,{"role":"User","content":"x"}]`)); err == nil || !strings.Contains(err.Error(), `"User"`) {
		t.Errorf("error %v, want one that names the role User", err)
	}
}
