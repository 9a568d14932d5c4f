package tasks

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/evaluation"
	"glimpse/model"
	"glimpse/model/chat"
	"glimpse/model/modeltest"
)

// chatModel has a token for every byte, and a chat template that puts around into each message.
func chatModel(t *testing.T, name, around string) *model.Model {
	t.Helper()
	golden, err := os.ReadFile(filepath.Join(modeltest.Testdata(t), "golden", "llama3.1", "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	return textModel(t, name, golden, map[string]any{"chat_template": "{% for m in messages %}" + around + "{{ m['content'] }}{% endfor %}"}, 256)
}

// TestNoRoomForTheMessage: the error counts the tokens that stand around the message, however
// long that is, and whatever is cut.
func TestNoRoomForTheMessage(t *testing.T) {
	m := chatModel(t, "chat around", "0123456789")
	for _, c := range []struct {
		name     string
		messages []chat.Message
		around   int
	}{
		{"a long message", []chat.Message{{Role: "user", Content: strings.Repeat("x", 300)}}, 10},
		{"a short one", []chat.Message{{Role: "user", Content: "xy"}}, 10},
		{"after another", []chat.Message{{Role: "system", Content: "##########"}, {Role: "user", Content: strings.Repeat("x", 40)}}, 30},
	} {
		for _, how := range []evaluation.Truncation{evaluation.TruncateLeft, evaluation.TruncateMiddle} {
			s := &evaluation.Setting{Model: m, MaxPrompt: 8, Truncate: how}
			_, err := s.EncodePrompt(t.Context(), evaluation.Prompt{Messages: c.messages}, 1)
			want := fmt.Sprintf("%d tokens around the message of the user leave nothing of it in 8", c.around)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s, truncated %s: error %v, want %q", c.name, how, err, want)
			}
		}
	}
}
