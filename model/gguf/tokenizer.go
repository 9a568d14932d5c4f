package gguf

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"glimpse/internal/listing"
	"glimpse/internal/parallel"
)

// Types of tokens, as in tokenizer.ggml.token_type.
const (
	normalToken  = 1
	unknownToken = 2
	controlToken = 3
	userToken    = 4
	unusedToken  = 5
)

// vocabulary are the keys below tokenizer.ggml.
type vocabulary struct {
	*metadata
	tokens []string // by id; "" for rows of the embedding without a token
	types  []int64
	// doubled are ids whose token an earlier id has, too: texts are encoded as the earlier one, and both are decoded.
	doubled map[int]int
}

// tokenizer translates the tokenizer and the chat template: tokenizer.json and
// tokenizer_config.json.
func (m *metadata) tokenizer(architecture string) (tokenizer, settings object, err error) {
	of := *m
	of.prefix, of.err = "tokenizer.ggml.", nil
	v := &vocabulary{metadata: &of, doubled: map[int]int{}}
	defer func() { m.notes = of.notes }()
	v.readTokens()
	if v.err != nil {
		return nil, nil, v.err
	}
	kind, _ := value(v.metadata, "tokenizer.ggml.model", v.file.String)
	switch kind {
	case "gpt2":
		tokenizer = v.byteLevel()
	case "llama":
		tokenizer = v.sentencePiece()
	case "gemma4":
		tokenizer = v.gemma()
	default:
		v.reportFault("key \"tokenizer.ggml.model\": got %.60q, want gpt2, llama or gemma4", kind)
	}
	if v.err != nil {
		return nil, nil, v.err
	}
	tokenizer["version"] = "1.0"
	tokenizer["added_tokens"] = v.added(architecture == "phi3" && kind == "llama")
	settings = object{"tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": false, "doubled_tokens": v.doubled}
	for role, name := range map[string]string{"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"} {
		if id, ok := v.special(name, kind); ok {
			settings[role] = v.tokens[id]
		}
	}
	tokenizer["post_processor"] = v.affixes(kind)
	settings["chat_template"] = v.templates()
	return tokenizer, settings, v.err
}

// readTokens takes over tokens and types.
func (v *vocabulary) readTokens() {
	var ok bool
	if v.tokens, ok = value(v.metadata, "tokenizer.ggml.tokens", v.file.Strings); !ok || len(v.tokens) == 0 {
		v.reportFault("key \"tokenizer.ggml.tokens\" is missing")
		return
	}
	if v.types, ok = value(v.metadata, "tokenizer.ggml.token_type", v.file.Ints); !ok {
		v.types = slices.Repeat([]int64{normalToken}, len(v.tokens))
	}
	v.types, ok = perToken(v, "tokenizer.ggml.token_type", v.types)
	if !ok {
		return
	}
	owner := make(map[string]int, len(v.tokens))
	for id, token := range v.tokens {
		switch {
		case token == "": // as llama.cpp calls it
			token = fmt.Sprintf("[EMPTY_%d]", id)
		case v.types[id] == unusedToken && token == fmt.Sprintf("[PAD%d]", id):
			v.tokens[id] = "" // how llama.cpp's converter fills rows that no token has
			continue
		case !utf8.ValidString(token):
			v.reportFault("key \"tokenizer.ggml.tokens\": token %d is %.60q, want valid UTF-8", id, token)
			return
		}
		v.tokens[id] = token
		if first, twice := owner[token]; twice {
			v.doubled[id] = first
			continue
		}
		owner[token] = id
	}
	for n, id := range slices.Sorted(maps.Keys(v.doubled)) {
		if n == listing.Most {
			v.note("key \"tokenizer.ggml.tokens\": and %d more", len(v.doubled)-n)
			break
		}
		v.note("key \"tokenizer.ggml.tokens\": tokens %d and %d are both %.60q: texts are encoded as the first", v.doubled[id], id, v.tokens[id])
	}
}

// perToken are the values of a key that has one for each token. Further ones are left out, as llama.cpp does; ok is false
// where there are fewer.
func perToken[T any](v *vocabulary, key string, values []T) (of []T, ok bool) {
	switch n := len(v.tokens); {
	case len(values) < n:
		v.reportFault("key %q: got %d, want %d, one for each token", key, len(values), n)
		return nil, false
	case len(values) > n:
		v.note("key %q: got %d for %d tokens: the last %d are ignored", key, len(values), n, len(values)-n)
		return values[:n], true
	}
	return values, true
}

// encodes tells that texts are encoded as an id: it has a token that no earlier id has.
func (v *vocabulary) encodes(id int) bool {
	_, twice := v.doubled[id]
	return v.tokens[id] != "" && !twice
}

// ids are the ids by token.
func (v *vocabulary) ids() map[string]int {
	ids := make(map[string]int, len(v.tokens))
	for id, token := range v.tokens {
		if v.encodes(id) {
			ids[token] = id
		}
	}
	return ids
}

// special is the id of a token by its role. SentencePiece has ids for some by default.
func (v *vocabulary) special(role, kind string) (id int, ok bool) {
	n, ok := v.int(role + "_token_id")
	if !ok && kind == "llama" {
		n, ok = map[string]int{"unknown": 0, "bos": 1, "eos": 2}[role], role != "padding"
	}
	return n, ok && n >= 0 && n < len(v.tokens) && v.tokens[n] != "" // llama.cpp, too, ignores others
}

// flag is a setting.
func (v *vocabulary) flag(name string, absent bool) bool {
	if set, ok := value(v.metadata, "tokenizer.ggml."+name, v.file.Bool); ok {
		return set
	}
	return absent
}

// added are the tokens that are found in texts before anything else; special ones are left out of
// answers. Those of Phi-3 take the white space behind them, which files do not say.
func (v *vocabulary) added(phi3 bool) []object {
	list := []object{}
	for id, token := range v.tokens {
		special := v.types[id] == controlToken || v.types[id] == unknownToken
		if !v.encodes(id) || !special && v.types[id] != userToken {
			continue
		}
		strips := phi3 && (special || token == "</s>") && !slices.Contains([]string{"<unk>", "<s>", "<|endoftext|>"}, token)
		list = append(list, object{
			"id": id, "content": token, "special": special, "single_word": false, "lstrip": false, "rstrip": strips, "normalized": false,
		})
	}
	return list
}

// bpe is the model of tokenizer.json. Readers find its type first.
type bpe struct {
	Type         string   `json:"type"`
	Unknown      string   `json:"unk_token,omitempty"`
	FuseUnknown  bool     `json:"fuse_unk"`
	ByteFallback bool     `json:"byte_fallback"`
	IgnoreMerges bool     `json:"ignore_merges"`
	Vocab        tokenIDs `json:"vocab"`
	Merges       any      `json:"merges"`
}

// model is a BPE with merges, as lines where no token has a space.
func (v *vocabulary) model(kind string, merges [][2]string) *bpe {
	m := &bpe{Type: "BPE", Vocab: tokenIDs{v}, Merges: merges}
	if id, ok := v.special("unknown", kind); ok {
		m.Unknown = v.tokens[id]
	}
	lines := make([]string, len(merges))
	for i, pair := range merges {
		if lines[i] = pair[0] + " " + pair[1]; strings.Count(lines[i], " ") > 1 || strings.HasPrefix(lines[i], "#version") {
			return m
		}
	}
	m.Merges = lines
	return m
}

// tokenIDs are the ids by token, in the order of ids.
type tokenIDs struct{ of *vocabulary }

func (x tokenIDs) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for id, token := range x.of.tokens {
		if !x.of.encodes(id) {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		key, err := json.Marshal(token)
		if err != nil {
			return nil, err
		}
		out = strconv.AppendInt(append(append(out, key...), ':'), int64(id), 10)
	}
	return append(out, '}'), nil
}

// byteLevel translates a tokenizer of GPT-2's kind.
func (v *vocabulary) byteLevel() object {
	name, given := value(v.metadata, "tokenizer.ggml.pre", v.file.String)
	name = cmp.Or(name, defaultPre)
	pre, err := preTokenizers.Lookup(name)
	if err != nil {
		v.reportFault("key \"tokenizer.ggml.pre\": %w", err)
		return nil
	}
	if name == defaultPre {
		v.note("key \"tokenizer.ggml.pre\": %s: words are cut as llama.cpp cuts them then, which may not be how the model was trained and make answers worse; a file that today's converter makes says it",
			map[bool]string{true: "got \"" + name + "\"", false: "is missing"}[given])
	}
	merges := v.storedMerges()
	if v.err != nil {
		return nil
	}
	model := v.model("gpt2", merges)
	model.IgnoreMerges = pre.ignoreMerges
	out := object{"pre_tokenizer": object{"type": "Sequence", "pretokenizers": pre.steps}, "decoder": byteLevel(true), "model": model}
	if pre.nfc {
		out["normalizer"] = object{"type": "NFC"}
	}
	return out
}

// storedMerges are the merges of a file that has them.
func (v *vocabulary) storedMerges() [][2]string {
	lines, ok := value(v.metadata, "tokenizer.ggml.merges", v.file.Strings)
	if !ok {
		v.reportFault("key \"tokenizer.ggml.merges\" is missing")
		return nil
	}
	merges := make([][2]string, len(lines))
	for i, line := range lines {
		// A token may begin with a space.
		space := strings.IndexByte(line[min(1, len(line)):], ' ') + 1
		if space == 0 {
			v.reportFault("key \"tokenizer.ggml.merges\": merge %d is %.60q, want two tokens with a space between", i, line)
			return nil
		}
		merges[i] = [2]string{line[:space], line[space+1:]}
	}
	return merges
}

// replace is a normalizer or a decoder.
func replace(from, to string) object {
	return object{"type": "Replace", "pattern": object{"String": from}, "content": to}
}

// gemma translates a tokenizer of Gemma 4: a BPE of SentencePiece's kind with merges, and no space before a text.
func (v *vocabulary) gemma() object {
	if v.flag("add_space_prefix", false) {
		v.reportFault("key \"tokenizer.ggml.add_space_prefix\": got true, want false, as of every Gemma 4")
	}
	model := v.model("gemma4", v.storedMerges())
	model.FuseUnknown, model.ByteFallback = true, true
	return object{
		"normalizer":    replace(" ", "▁"),
		"pre_tokenizer": object{"type": "Split", "pattern": object{"String": " "}, "behavior": "MergedWithPrevious", "invert": false},
		"decoder":       object{"type": "Sequence", "decoders": []any{replace("▁", " "), object{"type": "ByteFallback"}, object{"type": "Fuse"}}},
		"model":         model,
	}
}

// sentencePiece translates a BPE of SentencePiece as transformers does (LlamaConverter, which is
// called legacy there, as llama.cpp is in this).
func (v *vocabulary) sentencePiece() object {
	scores, _ := value(v.metadata, "tokenizer.ggml.scores", v.file.Floats)
	scores, ok := perToken(v, "tokenizer.ggml.scores", scores)
	if !ok {
		return nil
	}
	normalizers := []any{replace(" ", "▁")}
	decoders := []any{replace("▁", " "), object{"type": "ByteFallback"}, object{"type": "Fuse"}}
	if v.flag("add_space_prefix", true) {
		normalizers = append([]any{object{"type": "Prepend", "prepend": "▁"}}, normalizers...)
		decoders = append(decoders, object{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	model := v.model("llama", v.merges(scores))
	model.FuseUnknown, model.ByteFallback = true, true
	return object{
		"normalizer": object{"type": "Sequence", "normalizers": normalizers}, "decoder": object{"type": "Sequence", "decoders": decoders}, "model": model,
	}
}

// tokensAtATime are those whose merges one thread looks for before it takes others.
const tokensAtATime = 1 << 12

// merges are the pairs of tokens that make a token, the best score first. Of pairs that
// make the same token the order follows their ids.
func (v *vocabulary) merges(scores []float64) [][2]string {
	ids := v.ids()
	type merge struct{ left, right, made int }
	parts := make([][]merge, (len(v.tokens)+tokensAtATime-1)/tokensAtATime)
	parallel.For(len(parts), func(part int) {
		for made := part * tokensAtATime; made < min(len(v.tokens), (part+1)*tokensAtATime); made++ {
			token := v.tokens[made]
			if v.types[made] != normalToken || !v.encodes(made) {
				continue
			}
			for i := range token {
				if left, ok := ids[token[:i]]; ok {
					if right, ok := ids[token[i:]]; ok {
						parts[part] = append(parts[part], merge{left, right, made})
					}
				}
			}
		}
	})
	all := slices.Concat(parts...)
	slices.SortStableFunc(all, func(a, b merge) int {
		return cmp.Or(cmp.Compare(scores[b.made], scores[a.made]), cmp.Compare(a.made, b.made), cmp.Compare(a.left, b.left), cmp.Compare(a.right, b.right))
	})
	pairs := make([][2]string, len(all))
	for i, p := range all {
		pairs[i] = [2]string{v.tokens[p.left], v.tokens[p.right]}
	}
	return pairs
}

// affixes is the post_processor that puts tokens around texts; nil for none.
func (v *vocabulary) affixes(kind string) any {
	pre, _, _ := v.file.String("tokenizer.ggml.pre")
	known, _ := preTokenizers.Lookup(pre)
	text := object{"Sequence": object{"id": "A", "type_id": 0}}
	single, tokens := []any{text}, object{}
	around := func(role string, add bool) []any {
		id, ok := v.special(role, kind)
		if !ok || !add {
			return nil
		}
		token := v.tokens[id]
		tokens[token] = object{"id": token, "ids": []int{id}, "tokens": []string{token}}
		return []any{object{"SpecialToken": object{"id": token, "type_id": 0}}}
	}
	single = append(around("bos", v.flag("add_bos_token", kind == "llama" || kind == "gemma4" || known.addBOS)), single...)
	single = append(single, around("eos", v.flag("add_eos_token", false))...)
	if len(tokens) == 0 {
		return nil
	}
	return object{"type": "TemplateProcessing", "single": single, "pair": []any{}, "special_tokens": tokens}
}

// templates are the chat templates by their names, that without a name as the default one.
func (v *vocabulary) templates() []object {
	const key = "tokenizer.chat_template"
	list := []object{}
	for _, k := range v.file.Keys() {
		name, named := strings.CutPrefix(k, key+".")
		if k == key {
			name, named = "default", true
		}
		if !named {
			continue
		}
		if template, ok := value(v.metadata, k, v.file.String); ok {
			list = append(list, object{"name": name, "template": template})
		}
	}
	return list
}
