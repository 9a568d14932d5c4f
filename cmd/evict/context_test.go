package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/datasets"
)

// contextText is a text of the built-in model's words, the beginning of a section's prompt.
func contextText(t *testing.T) (text, question string) {
	t.Helper()
	s, err := datasets.NewStream([]string{"section"}, datasets.Test, 300, 1)
	if err != nil {
		t.Fatal(err)
	}
	e, err := s.At(0)
	if err != nil {
		t.Fatal(err)
	}
	words, err := datasets.WordsText(e.Prompt)
	if err != nil {
		t.Fatal(err)
	}
	_, words, _ = strings.Cut(words, "<user> ")
	words, _, _ = strings.Cut(words, " <eot>")
	at := strings.LastIndex(words, " <")
	return words[:at], words[at+1:]
}

// contextFile is a file with that text.
func contextFile(t *testing.T) string {
	t.Helper()
	text, _ := contextText(t)
	path := filepath.Join(t.TempDir(), "doc.txt")
	if err := os.WriteFile(path, []byte(text+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestCompress: a document is evicted once; what asks the file answers, run after run and turn after turn, as a session behind the context does, and what was
// kept of it is shown.
func TestCompress(t *testing.T) {
	folder := t.TempDir()
	doc, kv := contextFile(t), filepath.Join(folder, "doc.kv")
	_, question := contextText(t)
	compress := []string{"compress", doc, "--policy", "snapkv", "--budget", "40", "--out", kv}
	_, info, err := execute(t, compress...)
	if err != nil || !strings.Contains(info, "policy snapkv, budget 40: kept") {
		t.Fatalf("error %v, said %q", err, info)
	}
	before, err := os.ReadFile(kv)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := execute(t, compress...); err == nil || !strings.Contains(err.Error(), "--replace") {
		t.Errorf("a file that exists: error %v", err)
	}
	if _, _, err := execute(t, append(compress, "--replace")...); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(kv); err != nil || string(again) != string(before) {
		t.Errorf("the same context has other bytes, error %v", err)
	}
	answer := func(args ...string) (said struct {
		Answer  string
		Context struct {
			Tokens         int
			Policy, Budget string
		}
		Position int
		Pairs    float64
	}) {
		t.Helper()
		out, _, err := execute(t, args...)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(out, "\n{")
		if err := json.Unmarshal([]byte(first), &said); err != nil {
			t.Fatal(err, out)
		}
		return said
	}
	first := answer("run", "--context", kv, question, "--max-new", "8", "--json")
	if c := first.Context; c.Policy != "snapkv" || c.Budget != "40" || c.Tokens < 200 || first.Pairs > 80 {
		t.Errorf("%+v", first)
	}
	if again := answer("run", "--context", kv, question, "--max-new", "8", "--json"); again != first {
		t.Errorf("%+v, before %+v", again, first)
	}
	out, _, err := converse(t, question+"\n<copy>\n", "--context", kv, "--max-new", "8", "--json")
	if err != nil || strings.Count(out, "\n") != 2 || !strings.Contains(out, `"answer":"`+first.Answer+`"`) {
		t.Errorf("error %v, said %s, want first %q", err, out, first.Answer)
	}
	if out, _, err = execute(t, "inspect", "--context", kv, "--json"); err != nil || !strings.Contains(out, `"policy": "snapkv"`) {
		t.Errorf("error %v, shown %s", err, out)
	}
	for _, c := range []struct{ args, says string }{
		{"run --policy snapkv --context " + kv + " x", "--policy: the context was evicted when it was made"},
		{"run --budget 9 --context " + kv + " x", "--budget: the context was"},
		{"run --example section --context " + kv, "want a text behind --context"},
		{"run --system x --context " + kv + " x", "--system and --raw"},
		{"run --cache-dtype bf16 --context " + kv + " x", "--cache-dtype float32"},
		{"run --context " + doc + " x", "--context"},
		{"compress " + doc, "--out"},
		{"compress " + doc + " --policy tova --out " + kv + "2", "policy tova: it decides while it decodes"},
		{"compress " + doc + " --policy snapkv --out " + doc + " --replace", "what this command reads"},
	} {
		if _, _, err := execute(t, strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, want one that says %q", c.args, err, c.says)
		}
	}
}
