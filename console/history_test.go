package console

import (
	"path/filepath"
	"testing"
)

func TestHistoryFile(t *testing.T) {
	home := t.TempDir()
	for _, c := range []struct{ variable, states, want string }{
		{"", "", filepath.Join(home, ".local/state/glimpse/chat_history")},
		{"", "/var/states", "/var/states/glimpse/chat_history"},
		{"", "relative", filepath.Join(home, ".local/state/glimpse/chat_history")},
		{"lines.txt", "/var/states", "lines.txt"},
		{"off", "/var/states", ""},
	} {
		t.Setenv("HOME", home)
		t.Setenv("XDG_STATE_HOME", c.states)
		t.Setenv(historyVariable, c.variable)
		if got := historyFile(); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
