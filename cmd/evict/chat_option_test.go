package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/model/modeltest"
)

// thinking is a golden folder whose chat template reads a variable and the date.
func thinking(t *testing.T) string {
	t.Helper()
	dir := spoken(t, modeltest.GoldenNamed(t, "qwen3"), 1)
	const config = `{"bos_token": "<|bos|>", "eos_token": "<|end|>", "tokenizer_class": "PreTrainedTokenizerFast",
		"chat_template": "{{ bos_token }}{{ strftime_now('%d') }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}me:{{ 'yes' if enable_thinking else 'no' }}{% endif %}"}`
	if err := os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestChatOptions: the variables and the date of the command line are those of the
// chat template, in every command that renders one.
func TestChatOptions(t *testing.T) {
	folder := thinking(t)
	const text = "the river was higher"
	run := func(args ...string) string {
		t.Helper()
		out, log, err := execute(t, append([]string{"run", "--policy", "full", "--max-new", "8", "--model", folder}, args...)...)
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, log)
		}
		return out
	}
	for _, c := range []struct{ option, date, want string }{
		{"enable_thinking=true", "2025-01-31", "<|bos|>31user: " + text + "<|end|>me:yes"},
		{"enable_thinking=false", "2024-12-05T10:11:12", "<|bos|>05user: " + text + "<|end|>me:no"},
	} {
		want := run("--raw", c.want)
		if got := run("--chat-option", c.option, "--chat-date", c.date, text); got != want {
			t.Errorf("%s, %s: %q, with the text it stands for %q", c.option, c.date, got, want)
		}
		// inspect tells how many tokens the prompt has.
		inspect := func(args ...string) string {
			out, log, err := execute(t, append([]string{"inspect", "--policy", "snapkv", "--budget", "8", "--json", "--model", folder}, args...)...)
			if err != nil {
				t.Fatalf("%v: %v\n%s", args, err, log)
			}
			return out
		}
		if got, want := inspect("--chat-option", c.option, "--chat-date", c.date, "--prompt", text), inspect("--raw", "--prompt", c.want); got != want {
			t.Errorf("inspect %s, %s: %q, with the text it stands for %q", c.option, c.date, got, want)
		}
	}
	for _, option := range []string{"enable_thinking=true", "enable_thinking=false"} {
		args := []string{"--chat-option", option, "--chat-date", "2025-01-31"}
		out, log, err := converse(t, text+"\n", append([]string{"--model", folder, "--policy", "full", "--max-new", "8"}, args...)...)
		if want := run(append(args, text)...); err != nil || strings.TrimSpace(out) != strings.TrimSpace(want) {
			t.Errorf("chat %s: %q, %v, want what run answers, %q\n%s", option, out, err, want, log)
		}
	}
	if today := run(text); today == "" { // strftime_now is there without a date
		t.Error("no answer")
	}
	for _, c := range []struct {
		name, want string
		args       []string
	}{
		{"not JSON", `value "flase" is not JSON`, []string{"--chat-option", "enable_thinking=flase", text}},
		{"no value", "want NAME=VALUE", []string{"--chat-option", "enable_thinking", text}},
		{"twice", "given twice", []string{"--chat-option", "a=1", "--chat-option", "a=2", text}},
		{"the messages", "not for the command line", []string{"--chat-option", "messages=[]", text}},
		{"unknown to the template", "enable_thinkng: the chat template does not read it", []string{"--chat-option", "enable_thinkng=false", text}},
		{"raw", "does not go into a chat template", []string{"--raw", "--chat-option", "enable_thinking=false", text}},
		{"a date that is none", `chat date "today"`, []string{"--chat-date", "today", text}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := execute(t, append([]string{"run", "--policy", "full", "--max-new", "2", "--model", folder}, c.args...)...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one that says %q", err, c.want)
			}
		})
	}
}
