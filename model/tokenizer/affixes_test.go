package tokenizer

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"testing/fstest"
)

// TestAffixes: what stands before and after a text is what transformers puts there, by the
// class of the tokenizer, by what its settings are and by whether they are there.
func TestAffixes(t *testing.T) {
	var golden struct {
		Tokenizer json.RawMessage
		Cases     []struct {
			Files map[string]json.RawMessage
			IDs   []int32
		}
	}
	data, err := os.ReadFile("testdata/affixes.json")
	if err == nil {
		err = json.Unmarshal(data, &golden)
	}
	if err != nil || len(golden.Cases) < 50 {
		t.Fatalf("%d cases, %v", len(golden.Cases), err)
	}
	for _, c := range golden.Cases {
		dir := fstest.MapFS{"tokenizer.json": {Data: golden.Tokenizer}}
		for name, text := range c.Files {
			dir[name] = &fstest.MapFile{Data: text}
		}
		tok, err := LoadDir(dir)
		if err != nil {
			t.Errorf("%s: %v", c.Files, err)
			continue
		}
		if ids, err := tok.Encode("a", true); err != nil || !slices.Equal(ids, c.IDs) {
			t.Errorf("%s: %v, %v, want %v", c.Files, ids, err, c.IDs)
		}
	}
	for _, config := range []string{`{"tokenizer_class": "LlamaTokenizer", "add_bos_token": "yes"}`, `{"tokenizer_class": "LlamaTokenizer", "add_bos_token": true, "bos_token": "<none>"}`} {
		if _, err := Load(golden.Tokenizer, []byte(config)); err == nil {
			t.Error(fmt.Sprint("accepted: ", config))
		}
	}
}
