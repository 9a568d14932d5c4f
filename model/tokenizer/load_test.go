package tokenizer

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// wordsJSON is a closed WordLevel tokenizer.
const wordsJSON = `{"version":"1.0","added_tokens":[
	{"id":0,"content":"<bos>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},
	{"id":1,"content":"<eos>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],
	"normalizer":null,"pre_tokenizer":{"type":"WhitespaceSplit"},"post_processor":null,"decoder":null,
	"model":{"type":"WordLevel","vocab":{"<bos>":0,"<eos>":1,"key":2,"value":3,"query":4,"the":5}}}`

func TestClosedVocabulary(t *testing.T) {
	tok, err := Load([]byte(wordsJSON), nil)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.Encode("<bos>the  key\nvalue<eos>", true)
	if want := []int32{0, 5, 2, 3, 1}; err != nil || !slices.Equal(ids, want) {
		t.Fatalf("got %v, %v; want %v", ids, err, want)
	}
	checkDecode(t, tok, ids, false, "<bos> the key value <eos>")
	checkDecode(t, tok, ids, true, "the key value")

	_, err = tok.Encode("<bos>the kez", false)
	for _, part := range []string{`"kez"`, "byte 9", "closed", `nearest: "key"`} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v does not say %s", err, part)
		}
	}
	if _, err = tok.Encode(strings.Repeat("x", 1<<20), false); err == nil || len(err.Error()) > 400 {
		t.Errorf("a word of 1 MB gives a message of %d bytes", len(err.Error()))
	}
}

func TestLookups(t *testing.T) {
	tok := fixture(t, "llama3")
	space, ok := tok.TokenToID("Ġthe")
	if !ok {
		t.Fatal("no token Ġthe")
	}
	if token, ok := tok.IDToToken(space); !ok || token != "Ġthe" {
		t.Errorf("IDToToken(%d) = %q, %v", space, token, ok)
	}
	if id, ok := tok.Model().TokenToId("Ġthe"); !ok || id != int(space) {
		t.Errorf("Model().TokenToId = %d, %v, want %d", id, ok, space)
	}
	for _, id := range []int32{-1, int32(tok.VocabSize()), 1 << 30} {
		if token, ok := tok.IDToToken(id); ok {
			t.Errorf("IDToToken(%d) = %q", id, token)
		}
		if _, err := tok.Decode([]int32{id}, false); err == nil {
			t.Errorf("Decode of %d: no error", id)
		}
		if got := tok.NewStream(false).Push(id); got != "" {
			t.Errorf("Push(%d) = %q", id, got)
		}
	}
	if _, ok := tok.TokenToID("no such token"); ok {
		t.Error("a token that does not exist was found")
	}
	if got := tok.SpecialIDs(); !slices.Equal(got, []int32{0, 1, 2}) {
		t.Errorf("special ids %v, want 0, 1, 2", got)
	}
	if prefix, suffix := tok.prefix, tok.suffix; !slices.Equal(prefix, []int32{1}) || !slices.Equal(suffix, []int32{2}) {
		t.Errorf("affixes %v and %v, want 1 and 2", prefix, suffix)
	}
}

func TestEncodeInvalidUTF8(t *testing.T) {
	for _, text := range []string{"ab\xff", "ab\xe2\x82", "ab\xed\xa0\x80"} {
		if _, err := fixture(t, "llama3").Encode(text, false); err == nil || !strings.Contains(err.Error(), "byte 2") {
			t.Errorf("%q: error %v, want one that names byte 2", text, err)
		}
	}
}

// change returns the closed tokenizer with one part replaced.
func change(old, new string) string {
	s := strings.Replace(wordsJSON, old, new, 1)
	if s == wordsJSON {
		panic("nothing replaced: " + old)
	}
	return s
}

func TestLoadRefuses(t *testing.T) {
	normalizer := func(s string) string { return change(`"normalizer":null`, `"normalizer":`+s) }
	pre := func(s string) string { return change(`{"type":"WhitespaceSplit"}`, s) }
	post := func(s string) string { return change(`"post_processor":null`, `"post_processor":`+s) }
	decoder := func(s string) string { return change(`"decoder":null`, `"decoder":`+s) }
	bpe := func(s string) string {
		i := strings.Index(wordsJSON, `"model"`)
		return wordsJSON[:i] + `"model":{"type":"BPE",` + s + `}}`
	}
	vocab := `"vocab":{"<bos>":0,"<eos>":1,"a":2,"b":3,"ab":4}`
	for _, c := range []struct{ name, json, want string }{
		{"empty", "", "ends after 0 bytes"},
		{"truncated", wordsJSON[:200], "ends after 200 bytes"},
		{"not json", wordsJSON[:1] + "?" + wordsJSON[1:], "malformed JSON at byte 2 (line 1, column 2)"},
		{"trailing data", wordsJSON + "{}", "more data"},
		{"array", "[]", "array"},
		{"unknown top-level key", change(`"version"`, `"speed":1,"version"`), `"speed"`},
		{"other version", change(`"1.0"`, `"2.0"`), `"2.0"`},
		{"no model", `{}`, "model: missing"},
		{"unknown model", change(`"WordLevel"`, `"Unigram"`), `"Unigram" is not supported (supported: BPE, WordLevel)`},
		{"untyped model", change(`"type":"WordLevel",`, ``), `"type" is missing`},
		{"unknown model field", change(`"type":"WordLevel"`, `"type":"WordLevel","fast":true`), `"fast"`},
		{"empty vocab", change(`"vocab":{"<bos>":0,"<eos>":1,"key":2,"value":3,"query":4,"the":5}`, `"vocab":{}`), "vocab is empty"},
		{"negative id", change(`"key":2`, `"key":-2`), "id -2"},
		{"huge id", change(`"key":2`, `"key":2000000000`), "id 2000000000"},
		{"fractional id", change(`"key":2`, `"key":2.5`), "2.5"},
		{"id given twice", change(`"key":2`, `"key":3`), `"key" and "value"`},
		{"added token contradicts vocab", change(`"id":1,`, `"id":7,`), `"<eos>": id 7`},
		{"added token takes a word's id", change(`"id":1,"content":"<eos>"`, `"id":3,"content":"<x>"`), `already given to "value"`},
		{"added token with huge id", change(`"id":1,"content":"<eos>"`, `"id":2000000000,"content":"<x>"`), "id 2000000000"},
		{"long added token", change(`"content":"<eos>"`, `"content":"`+strings.Repeat("x", 5000)+`"`), "already"},
		{"normalizer", normalizer(`{"type":"NFKC"}`), `normalizer: type "NFKC" is not supported`},
		{"normalizer in a sequence", normalizer(`{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Lowercase"}]}`), `normalizers[1]: type "Lowercase"`},
		{"regular expression in normalizer", normalizer(`{"type":"Replace","pattern":{"Regex":"(a)\\1"},"content":""}`), `Replace: pattern: regular expression "(a)\\1": byte 5: \1 is not supported`},
		{"deep nesting", normalizer(strings.Repeat(`{"type":"Sequence","normalizers":[`, 50) + `{"type":"NFC"}` + strings.Repeat(`]}`, 50)), "nested"},
		{"pre-tokenizer", pre(`{"type":"BertPreTokenizer"}`), `pre_tokenizer: type "BertPreTokenizer" is not supported`},
		{"split pattern", pre(`{"type":"Split","pattern":{"Regex":"[a-z"},"behavior":"Isolated","invert":false}`), `regular expression "[a-z": byte 4: class without an end`},
		{"split by nothing", pre(`{"type":"Split","pattern":{"String":""},"behavior":"Isolated","invert":false}`), "want a non-empty String"},
		{"split without a pattern", pre(`{"type":"Split","pattern":{},"behavior":"Isolated","invert":false}`), "want either a String or a Regex"},
		{"split behaviour", pre(`{"type":"Split","pattern":{"Regex":"\\s+"},"behavior":"Merged","invert":false}`), `behavior "Merged", want Removed, Isolated`},
		{"after ByteLevel", pre(`{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Metaspace","replacement":"_"}]}`), "pretokenizers[1]: Metaspace: not supported after ByteLevel"},
		{"punctuation", pre(`{"type":"Punctuation","behavior":"Merged"}`), `behavior "Merged", want Removed, Isolated`},
		{"bytes for words", pre(`{"type":"ByteLevel"}`), "WordLevel: not supported behind a ByteLevel"},
		{"metaspace replacement", pre(`{"type":"Metaspace","replacement":"ab","prepend_scheme":"always"}`), `"ab"`},
		{"metaspace scheme", pre(`{"type":"Metaspace","replacement":"_","prepend_scheme":"last"}`), `"last"`},
		{"post-processor", post(`{"type":"RobertaProcessing"}`), `post_processor: type "RobertaProcessing"`},
		{"template without text", post(`{"type":"TemplateProcessing","single":[],"pair":[],"special_tokens":{}}`), "no sequence"},
		{"template with unknown token", post(`{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<x>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{}}`), `"<x>"`},
		{"template with unknown id", post(`{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<x>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<x>":{"id":"<x>","ids":[99],"tokens":["<x>"]}}}`), "id 99"},
		{"decoder", decoder(`{"type":"WordPiece","prefix":"##","cleanup":true}`), `decoder: type "WordPiece"`},
		{"decoder order", decoder(`{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Replace","pattern":{"String":"ab"},"content":"b"}]}`), "Replace: not supported after Fuse"},
		{"decoder strips the end", decoder(`{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Strip","content":" ","start":0,"stop":1}]}`), "stop 1"},
		{"merges missing", bpe(vocab), "merges: missing"},
		{"merge of one token", bpe(vocab + `,"merges":["ab"]`), `[0]: "ab"`},
		{"merge of three tokens", bpe(vocab + `,"merges":[["a","b","a"]]`), "[0]"},
		{"merge outside vocab", bpe(vocab + `,"merges":[["a","b"],["b","a"]]`), `[1]: "b" "a": token "ba" is not in vocab`},
		{"dropout", bpe(vocab + `,"merges":[],"dropout":0.1`), "dropout 0.1"},
		{"subword prefix", bpe(vocab + `,"merges":[],"continuing_subword_prefix":"##"`), `"##"`},
		{"word suffix", bpe(vocab + `,"merges":[],"end_of_word_suffix":"</w>"`), `"</w>"`},
		{"byte fallback without all bytes", strings.Replace(bpe(vocab+`,"merges":[],"byte_fallback":true`), `{"type":"WhitespaceSplit"}`, `{"type":"ByteLevel"}`, 1), "byte_fallback behind a ByteLevel pre-tokenizer: byte 0x00 is not in vocab, want all 256"},
		{"unknown token outside vocab", bpe(vocab + `,"merges":[],"unk_token":"?"`), `unk_token "?"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Load([]byte(c.json), nil)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "tokenizer.json: ") {
				t.Errorf("error %v, want one about tokenizer.json that says %s", err, c.want)
			}
		})
	}
}

func TestMergeForms(t *testing.T) {
	for _, merges := range []string{`["#version: 0.2","a b","ab a"]`, `[["a","b"],["ab","a"]]`} {
		json := `{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"aba":3},"merges":` + merges + `}}`
		tok, err := Load([]byte(json), nil)
		if err != nil {
			t.Fatal(err)
		}
		if ids, err := tok.Encode("abaab", false); err != nil || !slices.Equal(ids, []int32{3, 2}) {
			t.Errorf("merges %s: %v, %v", merges, ids, err)
		}
		if _, err := tok.Encode("abc", false); err == nil || !strings.Contains(err.Error(), `"c" at byte 2`) {
			t.Errorf("merges %s: error %v, want one that names \"c\" at byte 2", merges, err)
		}
	}
}

func TestLoadDir(t *testing.T) {
	data, err := os.ReadFile("testdata/llama3.json")
	if err != nil {
		t.Fatal(err)
	}
	config := `{"tokenizer_class":"%s","add_bos_token":%t,"add_eos_token":false,
		"bos_token":{"content":"<bos>","lstrip":false},"eos_token":"<eos>","pad_token":null,"unk_token":"[UNK]",
		"model_max_length":1e30,"chat_template":[{"name":"tool_use","template":"T"},{"name":"default","template":"D"}],
		"added_tokens_decoder":{"1":{"content":"<bos>","special":true},"900":{"content":"<more>","special":true}}}`
	for _, c := range []struct {
		name, class      string
		addBOS, template bool
		prefix, suffix   []int32
		want             Config
	}{
		{"generic class keeps the file's template", "PreTrainedTokenizerFast", false, false, []int32{1}, []int32{2},
			Config{BOS: "<bos>", EOS: "<eos>", UNK: "[UNK]", ChatTemplate: "D", ChatTemplateFrom: "tokenizer_config.json"}},
		{"llama class without bos", "LlamaTokenizerFast", false, false, nil, nil,
			Config{BOS: "<bos>", EOS: "<eos>", UNK: "[UNK]", ChatTemplate: "D", ChatTemplateFrom: "tokenizer_config.json"}},
		{"llama class with bos, template in its own file", "LlamaTokenizer", true, true, []int32{1}, nil,
			Config{BOS: "<bos>", EOS: "<eos>", UNK: "[UNK]", ChatTemplate: "F", ChatTemplateFrom: "chat_template.jinja"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := fstest.MapFS{
				"tokenizer.json":        {Data: data},
				"tokenizer_config.json": {Data: fmt.Appendf(nil, config, c.class, c.addBOS)},
			}
			if c.template {
				dir["chat_template.jinja"] = &fstest.MapFile{Data: []byte("F")}
			}
			tok, err := LoadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			if tok.Config() != c.want {
				t.Errorf("config %+v, want %+v", tok.Config(), c.want)
			}
			if prefix, suffix := tok.prefix, tok.suffix; !slices.Equal(prefix, c.prefix) || !slices.Equal(suffix, c.suffix) {
				t.Errorf("affixes %v and %v, want %v and %v", prefix, suffix, c.prefix, c.suffix)
			}
			if ids, err := tok.Encode("<more>", false); err != nil || !slices.Equal(ids, []int32{487}) || !tok.IsSpecial(487) || tok.VocabSize() != 488 {
				t.Errorf("token of added_tokens_decoder: ids %v, %v, vocabulary of %d", ids, err, tok.VocabSize())
			}
		})
	}
	for _, c := range []struct{ name, config, want string }{
		{"not json", `{`, "malformed"},
		{"bos outside the vocabulary", `{"bos_token":"<none>"}`, `bos_token "<none>"`},
		{"token of a wrong type", `{"eos_token":3}`, "neither"},
		{"empty template", `{"chat_template":[{"name":"x","template":""}]}`, "none of the 1 is named \"default\""},
		{"template of a wrong type", `{"chat_template":3}`, "neither a string nor a list"},
		{"special tokens of a wrong type", `{"additional_special_tokens":"<x>"}`, "neither a list nor an object"},
		{"bad id", `{"added_tokens_decoder":{"x":{"content":"y"}}}`, `"x"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Load(data, []byte(c.config))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "tokenizer_config.json: ") {
				t.Errorf("error %v, want one about tokenizer_config.json that says %s", err, c.want)
			}
		})
	}
	if _, err := LoadDir(fstest.MapFS{}); err == nil || !strings.Contains(err.Error(), "tokenizer.json") {
		t.Errorf("empty folder: error %v", err)
	}
}

// TestChatTemplates checks which of a folder's templates is taken, and that it is said.
func TestChatTemplates(t *testing.T) {
	const named = `{"chat_template":[{"name":"tool_use","template":"T"},{"name":"chat","template":"C"},{"name":"rag","template":"R"}]}`
	for _, c := range []struct {
		name           string
		files          map[string]string
		template, from string
	}{
		{"none", nil, "", ""},
		{"one", map[string]string{"tokenizer_config.json": `{"chat_template":"A"}`}, "A", "tokenizer_config.json"},
		{"list without default", map[string]string{"tokenizer_config.json": named}, "C",
			`tokenizer_config.json: "chat" of 3, none of which is named "default"`},
		{"list with tools only", map[string]string{"tokenizer_config.json": `{"chat_template":[{"name":"tool_use","template":"T"}]}`}, "T",
			`tokenizer_config.json: "tool_use" of 1, none of which is named "default"`},
		{"object", map[string]string{"tokenizer_config.json": `{"chat_template":{"z":"Z","default":"D"}}`}, "D", "tokenizer_config.json"},
		{"processor's file", map[string]string{"chat_template.json": `{"chat_template":"P"}`}, "P", "chat_template.json"},
		{"processor's file beside another", map[string]string{"chat_template.json": `{"chat_template":"P"}`, "tokenizer_config.json": named}, "C",
			`tokenizer_config.json: "chat" of 3, none of which is named "default"`},
		{"file of its own", map[string]string{"chat_template.jinja": "J", "chat_template.json": `{"chat_template":"P"}`, "tokenizer_config.json": named}, "J", "chat_template.jinja"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := fstest.MapFS{"tokenizer.json": {Data: []byte(wordsJSON)}}
			for name, content := range c.files {
				dir[name] = &fstest.MapFile{Data: []byte(content)}
			}
			tok, err := LoadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			if got := tok.Config(); got.ChatTemplate != c.template || got.ChatTemplateFrom != c.from {
				t.Errorf("template %q from %q, want %q from %q", got.ChatTemplate, got.ChatTemplateFrom, c.template, c.from)
			}
			if chosen := strings.Contains(c.from, "none of which"); chosen != (len(tok.Notes()) == 1) {
				t.Errorf("notes %q", tok.Notes())
			}
		})
	}
	for name, content := range map[string]string{"chat_template.json": "{", "special_tokens_map.json": "[]", "added_tokens.json": `{"x":"y"}`} {
		_, err := LoadDir(fstest.MapFS{"tokenizer.json": {Data: []byte(wordsJSON)}, name: {Data: []byte(content)}})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
