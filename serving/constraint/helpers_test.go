package constraint

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"glimpse/model/tokenizer"
)

// byteVocabulary is a token for each byte and one that ends.
var byteVocabulary = func() *Vocabulary {
	tokens := make([][]byte, 257)
	for b := range 256 {
		tokens[b] = []byte{byte(b)}
	}
	return NewVocabulary(tokens, []int32{256})
}()

// read runs a text through a grammar, and returns how many bytes it reads and whether the
// text may end there.
func read(g *Grammar, text string) (n int, ends bool) {
	m := NewMatcher(g, byteVocabulary)
	for n < len(text) && m.Accept(int32(text[n])) == nil {
		n++
	}
	return n, m.Accept(256) == nil
}

func admits(g *Grammar, text string) bool {
	n, ends := read(g, text)
	return ends && n == len(text)
}

func mustSchema(t testing.TB, schema string, strict bool) *Grammar {
	t.Helper()
	g, err := Schema(json.RawMessage(schema), strict)
	if err != nil {
		t.Fatalf("%v in %s", err, schema)
	}
	return g
}

func mustGBNF(t testing.TB, text string) *Grammar {
	t.Helper()
	g, err := GBNF(text)
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return g
}

// validator is another implementation of JSON Schema.
func validator(t testing.TB, schema string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func valid(s *jsonschema.Schema, text []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

// pieces is a vocabulary of every byte, of pieces of texts that a JSON answer has, some of
// them cut within a character, and of random bytes. Token 0 has no text, the last one ends.
func pieces(r *rand.Rand, texts ...string) *Vocabulary {
	tokens := [][]byte{nil}
	for b := range 256 {
		tokens = append(tokens, []byte{byte(b)})
	}
	texts = append(texts, `{"a": "b", "c": [1, 2.5e-3, true], "d": null}`, "{\n  \"name\": \"x\",\n  \"é世🙂\": false\n}",
		`\"\\\u00e9\ud83d\ude00`, "äöü世界🙂", `"},{"`, `"}]}`, `": "`, `, "`, "12345678", "        ")
	for range 600 {
		text := texts[r.IntN(len(texts))]
		if text == "" {
			continue
		}
		from := r.IntN(len(text))
		tokens = append(tokens, []byte(text[from:min(len(text), from+1+r.IntN(8))]))
	}
	for range 100 {
		t := make([]byte, 1+r.IntN(3))
		for i := range t {
			t[i] = byte(r.IntN(256))
		}
		tokens = append(tokens, t)
	}
	tokens = append(tokens, []byte("</s>"))
	return NewVocabulary(tokens, []int32{int32(len(tokens) - 1)})
}

// mask returns the allowed ids.
func allowedIDs(m *Matcher, n int) []int32 {
	logits := make([]float32, n)
	if m.Mask(logits) != nil {
		return nil
	}
	var ids []int32
	for id, x := range logits {
		if !math.IsInf(float64(x), -1) {
			ids = append(ids, int32(id))
		}
	}
	return ids
}

// sample draws an answer under the mask. Once it has so many tokens, those that end it or
// close something are drawn first, so that it comes to its end.
func sample(t testing.TB, r *rand.Rand, g *Grammar, v *Vocabulary, length int) []byte {
	t.Helper()
	m := NewMatcher(g, v)
	var text []byte
	for n := 0; ; n++ {
		ids := allowedIDs(m, len(v.tokens))
		if len(ids) == 0 {
			t.Fatalf("no token may follow %q", text)
		}
		id := ids[r.IntN(len(ids))]
		if n > length {
			closing := make(map[string]int32)
			for _, i := range ids {
				closing[string(v.tokens[i])] = i
			}
			order := []string{"</s>", "}", "]", "\""}
			if closing["}"] > 0 && closing["]"] > 0 { // within a string
				order = []string{"\"", "</s>"}
			}
			for _, text := range order {
				if closing[text] > 0 {
					id = closing[text]
					break
				}
			}
		}
		if n > length+3000 {
			t.Fatalf("the answer does not come to its end: %.300q", text)
		}
		if err := m.Accept(id); err != nil {
			t.Fatalf("after %q: %v", text, err)
		}
		if id == v.end[0] {
			return text
		}
		text = append(text, v.tokens[id]...)
	}
}

// realVocabulary is a tokenizer's of the folder that GLIMPSE_DATA names, with one more token
// that ends. Without the variable the test is skipped.
func realVocabulary(t testing.TB, name string) (*Vocabulary, *tokenizer.Tokenizer) {
	t.Helper()
	root := os.Getenv("GLIMPSE_DATA")
	if root == "" {
		t.Skip("GLIMPSE_DATA does not name a data folder: real tokenizers are not tested")
	}
	data, err := os.ReadFile(filepath.Join(root, "tokenizers", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.LoadDir(fstest.MapFS{"tokenizer.json": {Data: data}})
	if err != nil {
		t.Fatal(err)
	}
	tokens := make([][]byte, tok.VocabSize()+1)
	for id := range tok.VocabSize() {
		if !tok.IsSpecial(int32(id)) {
			tokens[id] = []byte(tok.Piece(int32(id)))
		}
	}
	return NewVocabulary(tokens, []int32{int32(tok.VocabSize())}), tok
}

// Ended tells whether nothing but the end may follow.
func (m *Matcher) Ended() bool {
	return m.ended || m.set.ends && len(m.set.frames) == 0
}
