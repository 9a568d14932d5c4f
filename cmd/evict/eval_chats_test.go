package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEvalSaysWhatIsDropped: fields of chats that no prompt is made of are named once.
func TestEvalSaysWhatIsDropped(t *testing.T) {
	rows := filepath.Join(t.TempDir(), "rows.jsonl")
	row := `{"messages": [{"role": "user", "content": "anna calls"}, {"role": "assistant", "content": "bruno"}], "tools": [{"a": 1}], "documents": ["b"]}` + "\n"
	if err := os.WriteFile(rows, []byte(row+row), 0o644); err != nil {
		t.Fatal(err)
	}
	_, log, err := execute(t, "eval", "--data", rows, "--policy", "full", "--max-new", "2")
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	for _, notice := range []string{`field "tools" of rows is not in their prompts: the chat template of model glimpse-reference does not read it`, `field "documents" of rows is not in their prompts`} {
		if n := strings.Count(log, notice); n != 1 {
			t.Errorf("%q is said %d times, want once:\n%s", notice, n, log)
		}
	}
}
