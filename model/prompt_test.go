package model_test

import (
	"encoding/json"
	"strings"
	"testing"

	"glimpse/datasets"
	"glimpse/model"
	"glimpse/model/chat"
	"glimpse/model/modeltest"
)

// TestRowsWithCalls: arguments of calls in rows are in the prompt as the template writes them, whether they are JSON text or an
// object, and a role that it drops is named.
func TestRowsWithCalls(t *testing.T) {
	m := modeltest.WithTemplate(t, `{% for m in messages %}{% if m.role != 'critic' %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}{% endif %}{% endfor %}`)
	for name, arguments := range map[string]string{"text": `"{\"city\": \"Paris\"}"`, "object": `{"city": "Paris"}`} {
		p := datasets.Prompt{Form: datasets.FormMessages, Messages: []datasets.Message{
			{Role: "critic", Content: "no"}, {Role: "user", Content: "x"},
			{Role: "assistant", NoContent: true, Extra: []datasets.Field{{Name: "tool_calls", Value: json.RawMessage(`[{"function": {"name": "f", "arguments": ` + arguments + `}}]`)}}},
			{Role: "tool", Content: "20"},
		}}
		messages, tools, err := model.ChatOf(p)
		if err != nil {
			t.Fatal(err)
		}
		ids, err := m.EncodeChat(t.Context(), messages, chat.Options{Tools: tools})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := m.Tokenizer.Decode(ids, false); err != nil || got != `<user>x<assistant>{"city": "Paris"}<tool>20` {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if got := strings.Join(m.Unread(p), "|"); !strings.Contains(got, `the role "critic"`) || strings.Contains(got, "tool_calls") {
			t.Errorf("%s: notices %q, want one of the role critic", name, got)
		}
	}
}
