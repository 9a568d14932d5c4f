package chat

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// conversationOf is a conversation in which every content is another text.
const conversationOf = `[{"role":"system","content":"Rules: say ONE."},{"role":"user","content":"  First question\n"},{"role":"assistant","content":"An answer."},
	{"role":"user","content":"What is the weather?"},{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"weather","arguments":{"city":"Paris"}}}]},
	{"role":"tool","content":"20 C"},{"role":"user","content":"Last question: é?"}]`

const weatherTool = `[{"type":"function","function":{"name":"weather","description":"tells the weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}]`

// checkContents holds Contents to the texts that stand where it says.
func checkContents(t *testing.T, source string) {
	template, err := Parse(source)
	if err != nil {
		t.Fatal(err)
	}
	var messages []Message
	if err := json.Unmarshal([]byte(conversationOf), &messages); err != nil {
		t.Fatal(err)
	}
	tools, err := ParseJSON([]byte(weatherTool))
	if err != nil {
		t.Fatal(err)
	}
	o := Options{AddGenerationPrompt: true, Tools: tools.([]any)}
	text, err := template.Render(context.Background(), messages, o)
	if err != nil { // of a template that takes no tools, or no system prompt
		messages, o.Tools = messages[1:4], nil
		if text, err = template.Render(context.Background(), messages, o); err != nil {
			t.Skip(err)
		}
	}
	contents, told, err := template.Contents(context.Background(), messages, o, text)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for i, m := range messages {
		r := contents[i]
		if r.From < at || r.To < r.From || r.To > len(text) {
			t.Fatalf("message %d: range %v after %d of %d", i, r, at, len(text))
		}
		at = r.To
		if got := text[r.From:r.To]; strings.TrimSpace(got) != strings.TrimSpace(m.Content) && strings.Contains(text, strings.TrimSpace(m.Content)) {
			t.Errorf("message %d: got %q, want %q\n%s", i, got, m.Content, text)
		}
	}
	said := text[told.From:told.To]
	if reads := len(o.Tools) > 0 && strings.Contains(text, "tells the weather"); reads && (!strings.Contains(said, "tells the weather") || strings.Contains(said, "question")) {
		t.Errorf("the tools are %q", said)
	}
}

func TestContents(t *testing.T) {
	for _, source := range []string{printsObjects, `{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}`,
		`{% for t in tools %}{{ t.function.description }};{% endfor %}{% for m in messages %}<{{ m.role }}>{% if m.content %}{{ m.content.strip() + '.' }}{% endif %}{% endfor %}`,
		`{% for m in messages %}{% if m.role == 'system' %}{{ m.content | upper }}{% else %}[{{ m.content }}]{% endif %}{% endfor %}`} {
		checkContents(t, source)
	}
	folders := []string{"testdata"}
	if root := os.Getenv("GLIMPSE_DATA"); root != "" {
		folders = append(folders, filepath.Join(root, "chat_templates"))
	}
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.jinja"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", folder, files, err)
		}
		for _, file := range files {
			t.Run(filepath.Base(file), func(t *testing.T) {
				source, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				checkContents(t, string(source))
			})
		}
	}
}
