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
	write(filepath.Join(spoken, "tokenizer_config.json"), `{"bos_token": "<|bos|>", "eos_token": "<|end|>", "tokenizer_class": "PreTrainedTokenizerFast",
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

// TestGenerateChatOptions: the variables and the date of the command line, or of a
// configuration, are those of the chat template.
func TestGenerateChatOptions(t *testing.T) {
	g := modeltest.GoldenNamed(t, "llama2")
	m := modeltest.OpenFolder(t, os.DirFS(g.Folder), "cpu")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(g.Folder)); err != nil {
		t.Fatal(err)
	}
	prompts, out, config := filepath.Join(dir, "prompts.jsonl"), filepath.Join(dir, "pairs.jsonl"), filepath.Join(dir, "config.yaml")
	for path, text := range map[string]string{
		filepath.Join(dir, "tokenizer_config.json"): `{"bos_token": "<|bos|>", "eos_token": "<|end|>", "tokenizer_class": "PreTrainedTokenizerFast",
			"chat_template": "{{ bos_token }}{{ strftime_now('%d') }}{% for m in messages %}{{ m.content }}{% endfor %}{{ 'yes' if enable_thinking else 'no' }}"}`,
		prompts: `{"prompt": "the rain"}`,
		config:  "sources: [{path: " + prompts + "}]\nchat_options: [enable_thinking=true]\nchat_date: 2025-01-31\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--prompts", prompts, "--chat-option", "enable_thinking=false", "--chat-date", "2024-12-05"}, "<|bos|>05the rainno"},
		{[]string{config}, "<|bos|>31the rainyes"},
		{[]string{"--prompts", prompts, "--chat-template", "{{ bos_token }}{{ messages[0].content }}!"}, "<|bos|>the rain!"},
	} {
		os.Remove(out)
		if _, _, err := execute(t, t.Context(), append([]string{"generate", "--model", dir, "--max-new", "2", "--out", out}, c.args...)...); err != nil {
			t.Fatalf("%v: %v", c.args, err)
		}
		_, pairs, err := datasets.ReadPairs(out)
		if err != nil || len(pairs) != 1 {
			t.Fatalf("%d pairs, %v", len(pairs), err)
		}
		want, err := m.Tokenizer.Encode(c.want, false)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(pairs[0].PromptIDs, want) {
			t.Errorf("%v: prompt %v, want that of %q, %v", c.args, pairs[0].PromptIDs, c.want, want)
		}
	}
	for _, args := range [][]string{{"--chat-option", "enable_thinkng=false", "--prompts", prompts}, {"--chat-option", "enable_thinking=false"}, {"--chat-template", "chatml"}} {
		os.Remove(out)
		if _, _, err := execute(t, t.Context(), append([]string{"generate", "--model", dir, "--out", out}, args...)...); err == nil || !strings.Contains(err.Error(), "chat") {
			t.Errorf("%v: error %v", args, err)
		}
	}
}
