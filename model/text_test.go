package model_test

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"glimpse/model"
	"glimpse/model/builtin"
	"glimpse/model/chat"
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
