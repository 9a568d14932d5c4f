package chat

import (
	"context"
	"slices"
	"strings"
	"sync"
)

// roles are those that a template was asked about; true: it tells what they say.
type roles struct {
	mu    sync.Mutex
	known map[string]bool
}

// maxRoles bounds the roles that are remembered, whose names clients make up.
const maxRoles = 64

// Dropped is the first role of the messages that the template passes over: nothing that it says gets into the text. ok is
// false where there is none. A role that the template refuses is not dropped; rendering tells of it.
func (t *Template) Dropped(ctx context.Context, messages []Message, o Options) (role string, ok bool) {
	var asked []string
	for _, m := range messages {
		if slices.Contains(asked, m.Role) || !says(m) {
			continue
		}
		asked = append(asked, m.Role)
		if !t.tells(m.Role) && t.loses(ctx, m.Role, messages, o) {
			return m.Role, true
		}
	}
	return "", false
}

// says tells whether a message has content that a template is to tell of; beside calls many leave it out.
func says(m Message) bool {
	if calls, _ := m.Extra.Get("tool_calls"); calls != nil {
		return false
	}
	if v, ok := m.Extra.Get("content"); ok {
		parts, _ := v.([]any)
		return len(parts) > 0
	}
	return m.Content != ""
}

// tells asks the template about a role, once: whether what it says is in the text of one of some short conversations. A role
// that is refused in all of them counts as told.
func (t *Template) tells(role string) bool {
	t.roles.mu.Lock()
	known, ok := t.roles.known[role]
	t.roles.mu.Unlock()
	if ok {
		return known
	}
	said := Message{Role: role, Content: probeText}
	user, assistant := Message{Role: "user", Content: "u"}, Message{Role: "assistant", Content: "a"}
	refused := true
	for _, messages := range [][]Message{{said, user}, {user, said, user}, {user, assistant, said}, {user, said}, {said}} {
		text, err := t.Render(context.Background(), messages, t.probing())
		if known = strings.Contains(text, probeText); known {
			break
		}
		refused = refused && err != nil
	}
	known = known || refused
	t.roles.mu.Lock()
	defer t.roles.mu.Unlock()
	if t.roles.known == nil || len(t.roles.known) >= maxRoles {
		t.roles.known = make(map[string]bool)
	}
	t.roles.known[role] = known
	return known
}

// loses renders the conversation with a word that nobody says at the end of all messages of the role, which is lost with
// them. Where that fails it is not known to be.
func (t *Template) loses(ctx context.Context, role string, messages []Message, o Options) bool {
	marked := slices.Clone(messages)
	for i, m := range marked {
		if m.Role == role && says(m) {
			marked[i] = m.WithText(m.Content + probeText)
		}
	}
	text, err := t.Render(ctx, marked, o)
	return err == nil && !strings.Contains(text, probeText)
}
