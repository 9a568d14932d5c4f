package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/datasets"
	"glimpse/model/modeltest"
)

// TestPromptForms: which prompts of a file go into the chat template, with and
// without --raw and for a model that has none; and every end token ends a response.
func TestPromptForms(t *testing.T) {
	g := modeltest.GoldenNamed(t, "llama2")
	m := modeltest.OpenFolder(t, os.DirFS(g.Folder), "cpu")
	dir := t.TempDir()
	spoken := filepath.Join(dir, "spoken")
	if err := os.CopyFS(spoken, os.DirFS(g.Folder)); err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(spoken, "tokenizer_config.json"), `{"bos_token": "<|bos|>", "eos_token": "<|end|>",
		"chat_template": "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}me:{% endif %}"}`)
	generate := func(folder, lines string, args ...string) ([]datasets.Pair, error) {
		t.Helper()
		prompts, out := filepath.Join(dir, "prompts.jsonl"), filepath.Join(dir, "pairs.jsonl")
		write(prompts, lines)
		os.Remove(out)
		_, _, err := execute(t, t.Context(), append([]string{"generate", "--model", folder, "--prompts", prompts, "--max-new", "16", "--out", out}, args...)...)
		if err != nil {
			return nil, err
		}
		_, pairs, err := datasets.ReadPairs(out)
		return pairs, err
	}
	const text, inTemplate = "the rain", "<|bos|>user: the rain<|end|>me:"
	prompt, plain, chat := `{"prompt": "the rain"}`, `{"text": "the rain"}`, `{"messages": [{"role": "user", "content": "the rain"}]}`
	for name, c := range map[string]struct {
		folder, line string
		args         []string
		want, err    string
	}{
		"prompt":                       {spoken, prompt, nil, inTemplate, ""},
		"messages":                     {spoken, chat, nil, inTemplate, ""},
		"text":                         {spoken, plain, nil, text, ""},
		"prompt, raw":                  {spoken, prompt, []string{"--raw"}, text, ""},
		"text, raw":                    {spoken, plain, []string{"--raw"}, text, ""},
		"messages, raw":                {spoken, chat, []string{"--raw"}, "", "messages need the chat template"},
		"prompt without a template":    {g.Folder, prompt, nil, text, ""},
		"messages without a template":  {g.Folder, chat, nil, "", "has no chat template"},
		"prompt without either, raw":   {g.Folder, prompt, []string{"--raw"}, text, ""},
		"prompt beyond the vocabulary": {g.Folder, `{"prompt_ids": [256]}`, nil, "", "256"},
	} {
		t.Run(name, func(t *testing.T) {
			pairs, err := generate(c.folder, c.line, c.args...)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error %v, want it to say %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want, err := m.Encode(c.want)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(pairs[0].PromptIDs, want) {
				t.Errorf("prompt %v, want %v: %q", pairs[0].PromptIDs, want, c.want)
			}
		})
	}
	p := g.Prompts[0]
	end := p.Greedy[7]
	write(filepath.Join(spoken, "generation_config.json"), `{"eos_token_id": [255, `+fmt.Sprint(end)+`]}`)
	ids, err := json.Marshal(p.IDs)
	if err != nil {
		t.Fatal(err)
	}
	pairs, err := generate(spoken, `{"prompt_ids": `+string(ids)+`}`)
	if err != nil {
		t.Fatal(err)
	}
	if want := p.Greedy[:slices.Index(p.Greedy, end)]; !slices.Equal(pairs[0].ResponseIDs, want) {
		t.Errorf("response %v, want %v, which ends before %d", pairs[0].ResponseIDs, want, end)
	}
}
