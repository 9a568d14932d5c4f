package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/model/modeltest"
)

// spoken is a golden folder with a chat template and two end tokens, the second
// one known to generation_config.json alone.
func spoken(t *testing.T, g modeltest.Golden, end int32) string {
	t.Helper()
	dir := t.TempDir()
	files := modeltest.Files(t, g.Folder)
	files["tokenizer_config.json"] = []byte(`{"bos_token": "<|bos|>", "eos_token": "<|end|>", "tokenizer_class": "PreTrainedTokenizerFast",
		"chat_template": "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}me:{% endif %}"}`)
	files["generation_config.json"] = fmt.Appendf(nil, `{"bos_token_id": 254, "eos_token_id": [255, %d]}`, end)
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestTemplateAndEndTokens: a prompt goes into the template unless --raw is given,
// with its special tokens as such, and every end token ends the answer.
func TestTemplateAndEndTokens(t *testing.T) {
	g := modeltest.GoldenNamed(t, "qwen3")
	run := func(folder string, args ...string) string {
		t.Helper()
		out, log, err := execute(t, append([]string{"run", "--policy", "full", "--max-new", "12", "--model", folder}, args...)...)
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, log)
		}
		return strings.TrimSuffix(out, "\n")
	}
	const unused = 1
	text := "the river was higher"
	folder := spoken(t, g, unused)
	whole := run(folder, text)
	if by := run(folder, "--raw", "<|bos|>user: "+text+"<|end|>me:"); by != whole {
		t.Errorf("with the template %q, with its text %q", whole, by)
	}
	if raw, plain := run(folder, "--raw", text), run(g.Folder, text); raw != plain || raw == whole {
		t.Errorf("--raw %q, a model without a template %q, with it %q", raw, plain, whole)
	}
	p := g.Prompts[0]
	m := modeltest.OpenFolder(t, os.DirFS(g.Folder), "cpu")
	for _, n := range []int{1, 6} {
		end := p.Greedy[n]
		want := p.Greedy[:n]
		for i, id := range want {
			if id == end {
				want = want[:i]
				break
			}
		}
		text, err := m.Tokenizer.Decode(want, true)
		if err != nil {
			t.Fatal(err)
		}
		if got := run(spoken(t, g, end), "--raw", p.Text); got != text {
			t.Errorf("end token %d: printed %q, want %q", end, got, text)
		}
	}
}
