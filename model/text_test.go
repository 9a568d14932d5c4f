package model_test

import (
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"glimpse/model"
	"glimpse/model/builtin"
	"glimpse/model/chat"
	"glimpse/model/modeltest"
)

// TestChatOfARequest: tools, date and variables of a request are its own, and else the model's.
func TestChatOfARequest(t *testing.T) {
	folder := make(fstest.MapFS)
	err := fs.WalkDir(builtin.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(builtin.FS(), path)
		folder[path] = &fstest.MapFile{Data: data}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	folder["tokenizer_config.json"] = &fstest.MapFile{Data: []byte(`{"bos_token": "<bos>", "eos_token": "<eot>",
		"chat_template": "{% for m in messages %}{{ m.content }} {% endfor %}{{ tools[0] if tools else 'map' }} {{ word }} {{ 'knife' if strftime_now('%Y') == '2024' else 'igor' }}{{ ' <header>' if add_generation_prompt }}"}`)}
	m, err := model.OpenFS(folder, "", model.Options{Chat: chat.Options{
		Tools: []any{"kite"}, Extra: map[string]any{"word": "river"}, Now: time.Date(2023, 1, 1, 0, 0, 0, 0, time.UTC),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	say := func(own chat.Options) string {
		ids, err := m.EncodeChat(t.Context(), []chat.Message{{Role: "user", Content: "lamp"}}, own)
		if err != nil {
			t.Fatal(err)
		}
		text, err := m.Tokenizer.Decode(ids, false)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for _, c := range []struct {
		own  chat.Options
		want string
	}{
		{chat.Options{}, "lamp kite river igor <header>"},
		{chat.Options{Tools: []any{"bread"}}, "lamp bread river igor <header>"},
		{chat.Options{Now: time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC), Extra: map[string]any{"word": "lake"}}, "lamp kite lake knife <header>"},
		{chat.Options{}, "lamp kite river igor <header>"}, // and no other request's
	} {
		if got := say(c.own); got != c.want {
			t.Errorf("%+v: %q, want %q", c.own, got, c.want)
		}
	}
	if _, err := m.EncodeChat(t.Context(), []chat.Message{{Role: "user", Content: "lamp"}}, chat.Options{Extra: map[string]any{"wrod": 1}}); err == nil || !strings.Contains(err.Error(), "wrod") {
		t.Errorf("a variable that the template does not read: %v", err)
	}
}

// TestGivenTemplate: a named template begins as the tokenizer begins texts, one of a file as it says; what ends the assistant's
// turns ends answers, and where it cannot that is noted.
func TestGivenTemplate(t *testing.T) {
	tokenizer := func(bos bool) any {
		f := modeltest.ByteTokenizer("<|bos|>", "<|im_start|>", "<|im_end|>").(map[string]any)
		if bos {
			f["post_processor"] = map[string]any{"type": "TemplateProcessing", "pair": []any{},
				"single":         []any{map[string]any{"SpecialToken": map[string]any{"id": "<|bos|>", "type_id": 0}}, map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}}},
				"special_tokens": map[string]any{"<|bos|>": map[string]any{"id": "<|bos|>", "ids": []int{256}, "tokens": []string{"<|bos|>"}}}}
		}
		return f
	}
	const chatml = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
	for _, c := range []struct {
		name, spec, own string
		bos             bool
		want            string
		ends            bool // <|im_end|> ends answers
		note            string
	}{
		{"named, a first token", "chatml", "", true, "<|bos|>" + chatml, true, "it ends responses, too"},
		{"named, none", "chatml", "", false, chatml, true, "it ends responses, too"},
		{"in the place of its own", "chatml", "own", false, chatml, true, "it ends responses, too"},
		{"of its text", "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}", "own", false, "<|bos|>hi", false, "it ends the assistant's turns with no special token of the model"},
		{"of another family", "zephyr", "", false, "<|user|>\nhi<|endoftext|>\n<|assistant|>\n", false, "chat template of zephyr: it ends the assistant's turns with no special token of the model"},
		{"its own", "", "own", false, "own", false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			source, err := chat.ReadSource(c.spec)
			if err != nil {
				t.Fatal(err)
			}
			folder := modeltest.WithFiles(t, map[string]any{
				"tokenizer.json": tokenizer(c.bos), "generation_config.json": map[string]any{"eos_token_id": 0},
				"tokenizer_config.json": map[string]any{"chat_template": c.own, "bos_token": "<|bos|>"},
			})
			m, err := model.OpenFS(folder, "m", model.Options{Template: source})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			ids, err := m.EncodeChat(t.Context(), []chat.Message{{Role: "user", Content: "hi"}}, chat.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := m.Tokenizer.Decode(ids, false); err != nil || got != c.want {
				t.Errorf("%q (%v), want %q", got, err, c.want)
			}
			if ends := slices.Contains(m.Config.EOS, 258); ends != c.ends {
				t.Errorf("ends %v: %t, want %t", m.Config.EOS, ends, c.ends)
			}
			notes := strings.Join(m.Notes, "\n")
			if !strings.Contains(notes, c.note) || c.note == "" && notes != "" {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
		})
	}
}
