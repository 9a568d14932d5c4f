package datasets_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"glimpse/datasets"
	"glimpse/datasets/datasetstest"
)

func TestVocabulary(t *testing.T) {
	datasetstest.WordKinds(t) // 480 different words
	words := datasets.Vocabulary()
	template := strings.Fields(`<pad> <bos> <eot> <user> <header> <assistant> <newline>
		<context> </context> <ask> <all> <chain> <copy> <marks> <passage> </passage>
		<mark> calls first second third fourth`)
	if got := words[:len(template)]; !slices.Equal(got, template) {
		t.Errorf("template words %q, want %q", got, template)
	}
	plain := regexp.MustCompile(`^[a-z]+$`)
	for id, w := range words[32:] {
		if id+32 >= 384 && id+32 < 400 {
			continue // words of questions, datasetstest.Ordinals and reserved ones
		}
		if !plain.MatchString(w) {
			t.Errorf("word %d is %q, want lower-case letters", 32+id, w)
		}
	}
	words[0] = "changed"
	if datasets.Vocabulary()[0] != "<pad>" {
		t.Error("the caller's slice is the package's own")
	}
}

func TestText(t *testing.T) {
	if got, err := datasets.WordsText([]int32{1, 3, 32}); err != nil || got != "<bos> <user> adam" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, id := range []int32{-1, 480} {
		if _, err := datasets.WordsText([]int32{0, id}); err == nil || !strings.Contains(err.Error(), "element 1: got id") {
			t.Errorf("id %d: error %v, want one that names the element", id, err)
		}
	}
}

// The reference model's tokenizer was made from the same words.
func TestReferenceTokenizerHasTheVocabulary(t *testing.T) {
	data, err := os.ReadFile("../model/builtin/reference/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Model struct{ Vocab map[string]int }
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	words := datasets.Vocabulary()
	if len(file.Model.Vocab) != len(words) {
		t.Errorf("tokenizer holds %d words, want %d", len(file.Model.Vocab), len(words))
	}
	for id, w := range words {
		if got, ok := file.Model.Vocab[w]; !ok || got != id {
			t.Errorf("tokenizer has word %q at %d (%t), want %d", w, got, ok, id)
		}
	}
}
