package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/model/modeltest"
)

// untemplated is the folder of a random model without a chat template; changes are further files, nil for none of the name.
func untemplated(t *testing.T, changes map[string]any) string {
	t.Helper()
	files := map[string]any{"tokenizer.json": modeltest.ByteTokenizer("<|im_start|>", "<|im_end|>"), "generation_config.json": map[string]any{"eos_token_id": 260}}
	for name, v := range changes {
		files[name] = v
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, modeltest.WithFiles(t, files)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestWithoutTemplate: what needs a chat template says whether that or the tokenizer is missing, before the weights are read, and
// --chat-template gives one.
func TestWithoutTemplate(t *testing.T) {
	data := filepath.Join(t.TempDir(), "d.jsonl")
	messages := filepath.Join(t.TempDir(), "m.json")
	template := filepath.Join(t.TempDir(), "t.jinja")
	for path, text := range map[string]string{
		data:     `{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}], "answers": ["x"]}` + "\n",
		messages: `[{"role": "user", "content": "a"}]`, template: "{% for m in messages %}[{{ m.content }}]{% endfor %}",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	whole, broken := untemplated(t, nil), untemplated(t, map[string]any{"tokenizer.json": map[string]any{"model": map[string]any{"type": "Unigram"}}})
	commands := [][]string{
		{"run", "--messages", messages}, {"run", "--system", "s", "hi"}, {"chat"}, {"eval", "--data", data, "--samples", "1"},
	}
	for _, command := range commands {
		for folder, want := range map[string]string{
			whole: "has no chat template; --chat-template gives it one, of a file or by a name, as chatml", broken: `tokenizer: tokenizer.json: model: type "Unigram" is not supported`,
		} {
			_, log, err := execute(t, append(command, "--policy", "full", "--model", folder, "--max-new", "2")...)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: error %v, want %q\n%s", command, err, want, log)
			}
		}
		for _, given := range []string{"chatml", template} {
			_, log, err := execute(t, append(command, "--policy", "full", "--model", whole, "--max-new", "2", "--chat-template", given)...)
			if err != nil || !strings.Contains(log, "chat template of "+given) {
				t.Errorf("%q with %s: %v, want it to run and to say so\n%s", command, given, err, log)
			}
		}
		if _, _, err := execute(t, append(command, "--policy", "full", "--model", whole, "--chat-template", "no/such")...); err == nil || !strings.Contains(err.Error(), `--chat-template: chat template: no file, and unknown template "no/such"`) {
			t.Errorf("%q with a template that is none: %v", command, err)
		}
	}
	for args, want := range map[string]string{"": "has no chat template; ", "--chat-template chatml": ""} {
		out, _, err := execute(t, append([]string{"eval", "--dry-run", "--data", data, "--policy", "full", "--model", whole}, strings.Fields(args)...)...)
		if (err == nil) != (want == "") || !strings.Contains(out, want) {
			t.Errorf("eval --dry-run %s: %v, want %q\n%s", args, err, want, out)
		}
	}
	if _, _, err := execute(t, "serve", "--listen", "127.0.0.1:0", "--model", broken); err == nil || !strings.Contains(err.Error(), `serve: model `) || !strings.Contains(err.Error(), "Unigram") {
		t.Errorf("serve: %v, want it not to start without a tokenizer", err)
	}
}

// TestServeWithoutTemplate: the server says when it starts that it answers no chats, and answers them with the template that it is given.
func TestServeWithoutTemplate(t *testing.T) {
	folder := untemplated(t, nil)
	for args, want := range map[string]int{"": http.StatusBadRequest, "--chat-template chatml": http.StatusOK} {
		_, url, log := serveProgram(t, append([]string{"--model", folder}, strings.Fields(args)...)...)
		r, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(`{"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if said := strings.Contains(log.String(), "chats are refused"); r.StatusCode != want || said != (want != http.StatusOK) {
			t.Errorf("%q: status %d, said that chats are refused: %t, want status %d\n%s", args, r.StatusCode, said, want, fmt.Sprint(log))
		}
	}
}
