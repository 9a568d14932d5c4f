package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/model/modeltest"
)

// TestSystemPromptAndMessages: a system prompt, a conversation and its tools go through the chat
// template as the text does that it writes of them.
func TestSystemPromptAndMessages(t *testing.T) {
	folder := spoken(t, modeltest.GoldenNamed(t, "qwen3"), 1)
	config, err := json.Marshal(map[string]string{"bos_token": "<|bos|>", "eos_token": "<|end|>", "tokenizer_class": "PreTrainedTokenizerFast",
		"chat_template": "{{ bos_token }}{% for t in tools or [] %}[{{ t.name }}]{% endfor %}{% for m in messages %}{{ m.role }}{{ m.name or '' }}: {{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}me:{% endif %}"})
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if err := os.WriteFile(filepath.Join(folder, "tokenizer_config.json"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		out, log, err := execute(t, append([]string{"run", "--policy", "full", "--max-new", "8", "--model", folder}, args...)...)
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, log)
		}
		return out
	}
	const system, user, said = "be brief", "the river", "was higher"
	for name, c := range map[string]struct {
		args []string
		want string // what the template writes
	}{
		"system":              {[]string{"--system", system, user}, "<|bos|>system: be brief<|end|>user: the river<|end|>me:"},
		"empty system":        {[]string{"--system", "", user}, "<|bos|>system: <|end|>user: the river<|end|>me:"},
		"system of a file":    {[]string{"--system", "@" + write("system", system+"\n"), user}, "<|bos|>system: be brief<|end|>user: the river<|end|>me:"},
		"messages":            {[]string{"--messages", write("m.json", `[{"role":"system","content":"be brief"},{"role":"user","content":"the river"}]`)}, "<|bos|>system: be brief<|end|>user: the river<|end|>me:"},
		"messages and system": {[]string{"--system", system, "--messages", write("m.json", `[{"role":"user","content":"the river"},{"role":"assistant","content":"x"}]`)}, "<|bos|>system: be brief<|end|>user: the river<|end|>me:"},
		"tools and names": {[]string{"--messages", write("m.json", `{"tools":[{"name":"look"}],"messages":[{"role":"user","content":"a"},{"role":"tool","name":"look","content":"b"}]}`)},
			"<|bos|>[look]user: a<|end|>toollook: b<|end|>me:"},
	} {
		if got, want := run(c.args...), run("--raw", c.want); got != want {
			t.Errorf("%s: %q, with the text it stands for %q", name, got, want)
		}
	}

	// A conversation has it before the first message, also one that is begun anew with another.
	args := []string{"--model", folder, "--policy", "full", "--max-new", "8"}
	out, log, err := converse(t, "/system\n"+user+"\n/system "+said+"\n/system\n"+user+"\n", append(args, "--system", system, "--json")...)
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for i, prompt := range []string{system, said} {
		var turn struct {
			Turn   int
			Answer string
		}
		if len(lines) != 2 || json.Unmarshal([]byte(lines[i]), &turn) != nil {
			t.Fatalf("turns:\n%s", out)
		}
		want := strings.TrimSpace(run("--raw", "<|bos|>system: "+prompt+"<|end|>user: the river<|end|>me:"))
		if turn.Answer != want || turn.Turn != 1 {
			t.Errorf("after %q: %+v, want the first turn to answer %q", prompt, turn, want)
		}
		if !strings.Contains(log, prompt+"\n") {
			t.Errorf("no %q in\n%s", prompt, log)
		}
	}
	if _, log, err = converse(t, "/system\n", args...); err != nil || !strings.Contains(log, "There is no system prompt.") {
		t.Errorf("%v; said\n%s", err, log)
	}
	if _, _, err = converse(t, "/system x\n", "--policy", "full"); err == nil || !strings.Contains(err.Error(), "/system: system prompt: model glimpse-reference: chat template: the reference model knows the roles user and assistant only") {
		t.Errorf("a template without the role: %v", err)
	}
}
