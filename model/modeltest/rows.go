package modeltest

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"glimpse/model"
	"glimpse/model/chat"
)

// Rendering is what transformers' chat template makes of a conversation: a text, the message of
// raise_exception, or another error.
type Rendering struct{ Out, Err, Fails *string }

// Check holds ids, or the error instead, against the rendering. The error names the row.
func (r Rendering) Check(t testing.TB, m *model.Model, row string, ids []int32, err error) {
	t.Helper()
	if r.Out == nil {
		want := ""
		if r.Err != nil {
			want = *r.Err
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), row) {
			t.Errorf("error %v, want it to name the row %s and to say %q", err, row, want)
		}
		return
	}
	if err != nil {
		t.Errorf("error %v, want %q", err, *r.Out)
		return
	}
	if got, err := m.Tokenizer.Decode(ids, false); err != nil || got != *r.Out {
		t.Errorf("got  %q, %v\nwant %q", got, err, *r.Out)
	}
}

// RowTemplate is a chat template with what it makes of every row.
type RowTemplate struct {
	Name       string
	Model      *model.Model // that has the template, and a token for every byte
	Renderings []Rendering
}

// RowTemplates are the templates of lab/golden/row_fixtures.py with the path of its rows. Public models' templates
// are in the folder that GLIMPSE_DATA names, and are left out without it.
func RowTemplates(t testing.TB) (rows string, all []RowTemplate) {
	t.Helper()
	folder := filepath.Join(filepath.Dir(Testdata(t)), "chat", "testdata", "rows")
	var expected map[string][]Rendering
	ReadJSON(t, filepath.Join(folder, "expected.json"), &expected)
	data := os.Getenv("GLIMPSE_DATA")
	if data == "" {
		t.Log("GLIMPSE_DATA does not name a data folder: the templates of public models are not tested")
	}
	for _, name := range slices.Sorted(maps.Keys(expected)) {
		source, err := os.ReadFile(filepath.Join(folder, name))
		if os.IsNotExist(err) {
			if data == "" {
				continue
			}
			source, err = os.ReadFile(filepath.Join(data, "chat_templates", name))
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, RowTemplate{name, WithTemplate(t, string(source)), expected[name]})
	}
	return filepath.Join(folder, "rows.jsonl"), all
}

// WithTemplate is a random model with ByteTokenizer("<|bos|>", "<|end|>") and the chat template, for
// which it is the 9th of March 2025.
func WithTemplate(t testing.TB, template string) *model.Model {
	t.Helper()
	folder := WithFiles(t, map[string]any{
		"tokenizer.json":        ByteTokenizer("<|bos|>", "<|end|>"),
		"tokenizer_config.json": map[string]any{"chat_template": template, "bos_token": "<|bos|>", "eos_token": "<|end|>"},
	})
	o := model.Options{Chat: chat.Options{Now: time.Date(2025, 3, 9, 7, 5, 4, 0, time.UTC)}}
	return open(t, "cpu", func() (*model.Model, error) { return model.OpenFS(folder, "bytes", o) })
}

// WithFiles is the folder of a random model of 264 tokens with further files, each the JSON of its value.
func WithFiles(t testing.TB, files map[string]any) fstest.MapFS {
	t.Helper()
	folder, err := Llama{Hidden: 8, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 4, Intermediate: 8, Vocab: 264, MaxPositions: 1 << 14, Tied: true, Seed: 1}.Folder()
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range files {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		folder[name] = &fstest.MapFile{Data: data, Mode: 0o644}
	}
	return folder
}

// ByteTokenizer is a tokenizer.json with a token for every byte, and the special ones after them.
func ByteTokenizer(special ...string) any {
	vocab, added, shifted := map[string]int{}, []any{}, rune(0)
	for b := range rune(256) {
		letter := b // GPT-2's alphabet: what cannot be printed is moved behind the others
		if b <= ' ' || b >= 0x7f && b <= 0xa0 || b == 0xad {
			letter, shifted = 256+shifted, shifted+1
		}
		vocab[string(letter)] = int(b)
	}
	for i, text := range special {
		added = append(added, map[string]any{"id": 256 + i, "content": text, "special": true})
	}
	level := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}
	return map[string]any{
		"version": "1.0", "added_tokens": added, "pre_tokenizer": level, "decoder": level,
		"model": map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}},
	}
}
