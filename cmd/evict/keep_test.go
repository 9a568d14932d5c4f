package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/model/modeltest"
)

// TestRunKeeps: what --keep and --keep-pattern say stays, and what cannot be had is refused by name.
func TestRunKeeps(t *testing.T) {
	folder := spoken(t, modeltest.GoldenNamed(t, "qwen3"), 1)
	config, err := json.Marshal(map[string]string{"tokenizer_class": "PreTrainedTokenizerFast",
		"chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}{% if add_generation_prompt %}me:{% endif %}"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "tokenizer_config.json"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("the river was higher ", 10)
	conversation := filepath.Join(t.TempDir(), "conversation.json")
	raw, err := json.Marshal([]map[string]string{{"role": "system", "content": "be brief"}, {"role": "user", "content": text + "73519 " + text}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(conversation, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	base := []string{"run", "--model", folder, "--policy", "snapkv", "--budget", "32", "--max-new", "2", "--messages", conversation}
	for _, c := range []struct {
		flags []string
		says  string
	}{
		{[]string{"--keep", "system"}, " tokens stay"},
		{[]string{"--keep-pattern", "[0-9]{4,}"}, " tokens stay"},
		{[]string{"--keep", "last"}, "and grows to "},
		{[]string{"--keep", "last,strict"}, "half is for the rest"},
		{[]string{"--keep", "sistem"}, `did you mean "system"`},
		{[]string{"--keep-pattern", "("}, "missing closing"},
		{[]string{"--keep", "fair", "--policy", "streamingllm"}, "cannot be shared out"},
		{[]string{"--keep", "system", "--raw"}, "does not go into a chat template"},
	} {
		_, stderr, err := execute(t, append(slices.Clone(base), c.flags...)...)
		if said := fmt.Sprint(stderr, err); !strings.Contains(said, c.says) {
			t.Errorf("%v: got %q, want %q in it", c.flags, said, c.says)
		}
	}
}
