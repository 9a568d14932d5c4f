package stdin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWaiting: bytes in a pipe are seen and stay there; nothing else is waited for.
func TestWaiting(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if Waiting(out) {
		t.Error("an empty pipe has something")
	}
	if _, err := in.WriteString("text"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 8)
	for range 2 {
		if !Waiting(out) {
			t.Error("the text of a pipe is not seen")
		}
	}
	if n, err := out.Read(got); err != nil || string(got[:n]) != "text" {
		t.Errorf("read %q (%v), want the text", got[:n], err)
	}
	in.Close()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if Waiting(out) || Waiting(file) || Waiting(strings.NewReader("text")) {
		t.Error("the end of a pipe, a file or a reader is a pipe with bytes")
	}
}
