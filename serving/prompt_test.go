package serving

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/model"
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
		"standard input":  {source: PromptSource{Text: "-", Raw: true}, stdin: "<bos>"},
		"nothing said":    {source: PromptSource{Text: " "}, fails: "empty, want at least one token"},
		"nothing":         {fails: "got none, want one of"},
		"two":             {source: PromptSource{Text: "a", Example: "section"}, fails: "got a text and --example, want one of"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := c.source.Read(context.Background(), m, strings.NewReader(c.stdin), 1)
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
