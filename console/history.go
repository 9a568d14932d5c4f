package console

import (
	"os"
	"path/filepath"
)

// historyVariable names the file of the lines that were typed in chats; "off": none.
const historyVariable = "GLIMPSE_HISTORY"

// historyFile is where chats keep the lines that were typed: what GLIMPSE_HISTORY says, or
// else glimpse/chat_history in the user's folder of states (XDG Base Directory Specification
// 0.8). It is empty where nothing is kept.
func historyFile() string {
	switch path := os.Getenv(historyVariable); path {
	case "off":
		return ""
	case "":
	default:
		return path
	}
	states := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(states) { // which the specification says to ignore
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		states = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(states, "glimpse", "chat_history")
}
