package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"glimpse/internal/modelfile"
	"glimpse/internal/regularfile"
)

// maxFileBytes bounds the files of a model folder that LoadDir reads; the
// largest tokenizer.json in use is about 35 MB.
const maxFileBytes = 256 << 20

// sparseIDs is how many ids a small file may use without listing them all. The
// id table is otherwise bounded by the bytes of the file, so that a short file
// with one huge id cannot take the memory.
const sparseIDs = 1 << 20

// LoadDir loads a tokenizer from a model folder: tokenizer.json and, where they
// exist, tokenizer_config.json, special_tokens_map.json, added_tokens.json,
// config.json, which may name the tokenizer's class, chat_template.jinja and
// chat_template.json.
func LoadDir(dir fs.FS) (*Tokenizer, error) {
	data, err := readBounded(dir, "tokenizer.json")
	if errors.Is(err, fs.ErrNotExist) {
		if _, old := fs.Stat(dir, "tokenizer.model"); old == nil {
			err = fmt.Errorf("%w; tokenizer.model must first be converted, with AutoTokenizer of transformers and save_pretrained", err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer: load: %w", err)
	}
	f := files{tokenizer: data}
	for _, other := range []struct {
		name string
		into *[]byte
	}{
		{"tokenizer_config.json", &f.config}, {"special_tokens_map.json", &f.specialMap}, {"added_tokens.json", &f.added}, {"config.json", &f.model},
	} {
		if *other.into, err = readOptional(dir, other.name); err != nil {
			return nil, fmt.Errorf("tokenizer: load: %w", err)
		}
	}
	if f.config == nil {
		f.config = []byte("{}") // what it does not say has defaults that replace parts of tokenizer.json
	}
	t, err := f.loadFiles()
	if err != nil {
		return nil, err
	}
	if err := t.loadTemplate(dir); err != nil {
		return nil, fmt.Errorf("tokenizer: load: %w", err)
	}
	return t, nil
}

// readOptional is readBounded with nil for a file that does not exist.
func readOptional(dir fs.FS, name string) ([]byte, error) {
	data, err := readBounded(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

func readBounded(dir fs.FS, name string) ([]byte, error) {
	if strings.HasSuffix(name, ".json") {
		return modelfile.ReadJSON(dir, name, maxFileBytes)
	}
	data, err := regularfile.ReadFS(dir, name, maxFileBytes)
	if err != nil {
		return nil, err
	}
	// Templates write messages, not whole pages.
	if err := modelfile.Foreign(data); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return data, nil
}

// file is tokenizer.json. Its parts are read once their type is known.
type file struct {
	Version       string          `json:"version"`
	Truncation    json.RawMessage `json:"truncation"`
	Padding       json.RawMessage `json:"padding"`
	AddedTokens   []addedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         json.RawMessage `json:"model"`
}

// files are the contents of a folder's files; all but the first may be nil.
type files struct{ tokenizer, config, specialMap, added, model []byte }

// loadFiles makes a tokenizer of them. The error names the file, and its part that is malformed or not supported.
func (f files) loadFiles() (*Tokenizer, error) {
	c, err := parseConfig(f.config)
	if err != nil {
		return nil, fmt.Errorf("tokenizer_config.json: %w", err)
	}
	if c.Class == "" {
		c.Class = tokenizerClass(f.model)
	}
	if err := c.addLegacy(f.specialMap, f.added); err != nil {
		return nil, err
	}
	t, err := loadJSON(f.tokenizer, c)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	if err := t.applyConfig(c); err != nil {
		return nil, fmt.Errorf("tokenizer_config.json: %w", err)
	}
	return t, nil
}

// loadJSON makes a tokenizer from tokenizer.json. Added tokens that only the files beside
// it list are added too, as transformers does.
func loadJSON(data []byte, c *configFile) (*Tokenizer, error) {
	var f file
	if err := decodeStrict(data, &f); err != nil {
		return nil, err
	}
	if f.Version != "" && f.Version != "1.0" {
		return nil, fmt.Errorf("version %q, want \"1.0\"", f.Version)
	}
	var t Tokenizer
	var byteLevel bool
	var err error
	if t.normalize, err = parseNormalizer(f.Normalizer); err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	if t.split, byteLevel, err = parsePreTokenizer(f.PreTokenizer, c.prefixSpace()); err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
	}
	limit := max(len(data), sparseIDs)
	if t.model, err = parseModel(f.Model, modelContext{byteLevel, limit}); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	f.AddedTokens = append(f.AddedTokens, c.extraTokens(f.AddedTokens, t.model)...)
	if err := t.buildTokens(f.AddedTokens, c.Doubled, limit); err != nil {
		return nil, err
	}
	normalized, err := normalizeAdded(f.AddedTokens, t.normalize)
	if err != nil {
		return nil, fmt.Errorf("added_tokens: %w", err)
	}
	t.added = newAddedVocabulary(f.AddedTokens, normalized)
	if t.prefix, t.suffix, err = parsePostProcessor(f.PostProcessor, &t); err != nil {
		return nil, fmt.Errorf("post_processor: %w", err)
	}
	if t.decoder, err = parseDecoder(f.Decoder, t.tokens, t.literalTokens(f.AddedTokens)); err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	return &t, nil
}

// buildTokens fills the tables by id from the model's vocabulary, the added tokens and the
// ids that double others.
func (t *Tokenizer) buildTokens(added []addedToken, doubled map[int]int, limit int) error {
	size := 0
	for _, id := range t.model.entries {
		size = max(size, int(id)+1)
	}
	for _, a := range added {
		if a.ID < 0 || a.ID >= limit {
			return fmt.Errorf("added_tokens: %q: id %d, want 0 to %d", a.Content, a.ID, limit-1)
		}
		size = max(size, a.ID+1)
	}
	for id := range doubled {
		if id < 0 || id >= limit {
			return fmt.Errorf("doubled_tokens: id %d, want 0 to %d", id, limit-1)
		}
		size = max(size, id+1)
	}
	t.tokens = make([]string, size)
	t.known = make([]bool, size)
	t.special = make([]bool, size)
	for token, id := range t.model.entries {
		t.tokens[id], t.known[id] = token, true
	}
	for _, a := range added {
		if id, ok := t.model.TokenToId(a.Content); ok && id != a.ID {
			return fmt.Errorf("added_tokens: %q: id %d, but the model's vocabulary says %d", a.Content, a.ID, id)
		}
		if t.known[a.ID] && t.tokens[a.ID] != a.Content {
			return fmt.Errorf("added_tokens: %q: id %d is already given to %q", a.Content, a.ID, t.tokens[a.ID])
		}
		t.tokens[a.ID], t.known[a.ID] = a.Content, true
		t.special[a.ID] = t.special[a.ID] || a.Special
	}
	for id, first := range doubled {
		if t.known[id] || first < 0 || first >= size || !t.known[first] {
			return fmt.Errorf("doubled_tokens: id %d: got %d, want one without a token and one with", id, first)
		}
	}
	for id, first := range doubled {
		t.tokens[id], t.known[id], t.special[id] = t.tokens[first], true, t.special[first]
	}
	return nil
}

// literalTokens tells which tokens are text for the decoder and not the byte alphabet: added
// ones that are not the model's own. It only matters outside ASCII, where the reference
// returns broken characters (huggingface/tokenizers, issue 1392).
func (t *Tokenizer) literalTokens(added []addedToken) (literal []bool) {
	literal = make([]bool, len(t.tokens))
	for _, a := range added {
		_, own := t.model.TokenToId(a.Content)
		literal[a.ID] = !own
	}
	return literal
}

// checkVocab refuses ids that are out of range or given out twice.
func checkVocab(vocab map[string]int, limit int) error {
	if len(vocab) == 0 {
		return errors.New("vocab is empty")
	}
	size := 0
	for token, id := range vocab {
		if id < 0 || id >= limit {
			return fmt.Errorf("vocab: token %q: id %d, want 0 to %d", token, id, limit-1)
		}
		size = max(size, id+1)
	}
	owner := make([]string, size)
	taken := make([]bool, size)
	for token, id := range vocab {
		if taken[id] {
			return fmt.Errorf("vocab: id %d is given to both %q and %q", id, min(token, owner[id]), max(token, owner[id]))
		}
		owner[id], taken[id] = token, true
	}
	return nil
}

// modelContext is what a model needs to know of the rest of the file.
type modelContext struct {
	byteLevel bool // words are bytes in GPT-2's alphabet
	limit     int  // ids must be below it
}

// modelKinds are the model types of tokenizer.json that are implemented.
var modelKinds = map[string]func(raw json.RawMessage, c modelContext) (model, error){
	"WordLevel": parseWordLevel,
	"BPE":       parseBPE,
}

func parseModel(raw json.RawMessage, c modelContext) (model, error) {
	if isNull(raw) {
		return nil, errors.New("missing")
	}
	kind, err := kindOf(raw)
	if err != nil {
		return nil, err
	}
	parse, ok := modelKinds[kind]
	if !ok {
		return nil, unsupported(kind, modelKinds)
	}
	m, err := parse(raw, c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	return m, nil
}

// unsupported is the error for a component type that is not in the table.
func unsupported[V any](kind string, table map[string]V) error {
	return fmt.Errorf("type %q is not supported (supported: %s)", kind, strings.Join(slices.Sorted(maps.Keys(table)), ", "))
}

// component reads a component, which may be nested so deep, by its kind.
func component(raw json.RawMessage, depth int, kinds map[string]func() error) error {
	if depth > maxNesting {
		return errNesting
	}
	kind, err := kindOf(raw)
	if err != nil {
		return err
	}
	read, ok := kinds[kind]
	if !ok {
		return unsupported(kind, kinds)
	}
	if err := read(); err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	return nil
}

// sequenceParts reads the components of a Sequence, which are in a field of it.
func sequenceParts(field string, list []json.RawMessage, read func(i int, part json.RawMessage) error) error {
	if len(list) > maxSteps {
		return errSteps
	}
	for i, part := range list {
		if err := read(i, part); err != nil {
			return fmt.Errorf("%s[%d]: %w", field, i, err)
		}
	}
	return nil
}

// noOptions reads a component that has nothing but its type.
func noOptions(raw json.RawMessage) error {
	return decodeStrict(raw, &struct {
		Type string `json:"type"`
	}{})
}

// kindOf returns the "type" of a component. It stands first in most files, and the
// megabytes that may follow are not read here.
func kindOf(raw json.RawMessage) (string, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if start, err := d.Token(); err != nil {
		return "", describeJSON(raw, err)
	} else if start != json.Delim('{') {
		return "", fmt.Errorf("got %s, want an object with a \"type\"", shorten(raw))
	}
	merges := false
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return "", describeJSON(raw, err)
		}
		if key == "type" {
			var kind string
			if err := d.Decode(&kind); err != nil {
				return "", describeJSON(raw, err)
			}
			if kind != "" {
				return kind, nil
			}
			continue
		}
		merges = merges || key == "merges"
		var skipped json.RawMessage
		if err := d.Decode(&skipped); err != nil {
			return "", describeJSON(raw, err)
		}
	}
	if merges { // files older than the field are BPE if they have merges
		return "BPE", nil
	}
	return "", errors.New(`"type" is missing`)
}

func isNull(raw json.RawMessage) bool {
	return len(raw) == 0 || bytes.Equal(bytes.TrimSpace(raw), []byte("null"))
}

// decodeStrict decodes one JSON value; a field that the target does not have is
// an error, because it could change what the component does.
func decodeStrict(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return describeJSON(data, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("byte %d: more data after the JSON value", d.InputOffset())
	}
	return nil
}

// describeJSON adds the place to an error of encoding/json.
func describeJSON(data []byte, err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("malformed JSON at %s: %w", place(data, syntax.Offset), err)
	case errors.As(err, &kind):
		return fmt.Errorf("field %q is a JSON %s, want %s", kind.Field, kind.Value, kind.Type)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("malformed JSON: the file ends after %d bytes inside a value", len(data))
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

func place(data []byte, offset int64) string {
	offset = min(max(offset, 0), int64(len(data)))
	before := data[:offset]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := len(before) - bytes.LastIndexByte(before, '\n') - 1
	return fmt.Sprintf("byte %d (line %d, column %d)", offset, line, column)
}
