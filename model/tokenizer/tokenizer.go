package tokenizer

import (
	"fmt"
	"unicode/utf8"

	sugar "github.com/sugarme/tokenizer"
)

// Tokenizer is a tokenizer.json made ready to run. It is safe for concurrent
// use.
type Tokenizer struct {
	model     model
	added     addedVocabulary
	normalize normalizer
	split     splitter // nil: a piece is one word

	// The ids around the text when special tokens are wanted.
	prefix, suffix []int32

	decoder decoderTable
	tokens  []string // id → token; "" at ids that are not given out
	known   []bool   // id → is given out
	special []bool   // id → is a special token
	config  Config
}

// model gives the ids of one word.
type model interface {
	sugar.Model

	// appendIDs appends the ids of a word, which starts at the given byte of
	// the text (for error messages).
	appendIDs(dst []int32, word string, at int) ([]int32, error)

	// entries goes through the vocabulary: tokens as the file writes them.
	entries(yield func(token string, id int32) bool)
}

// piece is a part of the text on its way through the pipeline.
type piece struct {
	text string
	at   int // the byte of the whole text it starts at, exact unless a normaliser changed the text
}

// splitter cuts a piece into words, and may rewrite it on the way.
type splitter interface {
	split(p piece, yield func(piece) error) error
}

// Encode returns the ids of a text. addSpecial adds the ids the file's
// post-processor puts around a text (for Llama, the beginning-of-sequence
// token); texts made by a chat template already hold them, so they are encoded
// without. Added tokens are recognised in the text in both cases.
//
// Errors: the text is not valid UTF-8, or it holds something that the
// vocabulary cannot express.
func (t *Tokenizer) Encode(text string, addSpecial bool) ([]int32, error) {
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("tokenizer: encode: text is not valid UTF-8 at byte %d of %d", firstInvalid(text), len(text))
	}
	// English has a little over four bytes per token; one growth step covers
	// most of the rest.
	ids := make([]int32, 0, len(text)/4+len(t.prefix)+len(t.suffix)+4)
	if addSpecial {
		ids = append(ids, t.prefix...)
	}
	word := func(p piece) (err error) {
		if p.text != "" {
			ids, err = t.model.appendIDs(ids, p.text, p.at)
		}
		return err
	}
	token := func(id int32) { ids = append(ids, id) }

	normalized := func(p piece) error {
		if p.text == "" {
			return nil
		}
		if t.split == nil {
			return word(p)
		}
		return t.split.split(p, word)
	}
	limit := growth(len(text))
	raw := func(p piece) error {
		if t.normalize != nil {
			var err error
			if p.text, err = t.normalize.normalize(p.text, limit); err != nil {
				return err
			}
			limit -= len(p.text)
		}
		return t.added.normalized.split(p, token, normalized)
	}
	if err := t.added.raw.split(piece{text: text}, token, raw); err != nil {
		return nil, fmt.Errorf("tokenizer: encode: %w", err)
	}
	if addSpecial {
		ids = append(ids, t.suffix...)
	}
	return ids, nil
}

// firstInvalid returns the index of the first byte that is not part of a valid
// UTF-8 sequence, or len(s).
func firstInvalid(s string) int {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(s)
}

// Decode returns the text of ids. skipSpecial leaves special tokens out. Bytes
// that do not form a character (a model may generate any ids) become U+FFFD.
//
// An id that the vocabulary does not have is an error.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) (string, error) {
	for i, id := range ids {
		if !t.hasToken(id) {
			return "", fmt.Errorf("tokenizer: decode: id %d at index %d is not in the vocabulary (size %d)", id, i, len(t.tokens))
		}
	}
	s := t.NewStream(skipSpecial)
	for _, id := range ids {
		s.pushToken(id)
	}
	s.drain(true)
	return string(s.out), nil
}

func (t *Tokenizer) hasToken(id int32) bool {
	return id >= 0 && int(id) < len(t.known) && t.known[id]
}

// VocabSize returns one more than the largest id, which is the least number of
// embedding rows a model needs for this tokenizer.
func (t *Tokenizer) VocabSize() int { return len(t.tokens) }

// IDToToken returns the token of an id as the file writes it (for byte-level
// models, in GPT-2's byte alphabet), and whether there is one.
func (t *Tokenizer) IDToToken(id int32) (string, bool) {
	if !t.hasToken(id) {
		return "", false
	}
	return t.tokens[id], true
}

// TokenToID returns the id of a token as the file writes it, and whether there
// is one.
func (t *Tokenizer) TokenToID(token string) (int32, bool) {
	if id, ok := t.added.ids[token]; ok {
		return id, true
	}
	id, ok := t.model.TokenToId(token)
	return int32(id), ok
}

// SpecialIDs returns the ids of the special tokens, ascending. The caller owns
// the slice.
func (t *Tokenizer) SpecialIDs() []int32 {
	var ids []int32
	for id, special := range t.special {
		if special {
			ids = append(ids, int32(id))
		}
	}
	return ids
}

// IsSpecial tells whether an id is a special token.
func (t *Tokenizer) IsSpecial(id int32) bool {
	return t.hasToken(id) && t.special[id]
}

// Config returns what tokenizer_config.json says; zero without one.
func (t *Tokenizer) Config() Config { return t.config }

// SetChatTemplate puts a template in the place of the files' own. Nobody else may use the tokenizer meanwhile.
func (t *Tokenizer) SetChatTemplate(source, from string) {
	t.config.ChatTemplate, t.config.ChatTemplateFrom, t.config.ChatTemplateChosen = source, from, true
}

// Begins tells whether texts begin with a token.
func (t *Tokenizer) Begins(token string) bool {
	id, ok := t.TokenToID(token)
	return ok && len(t.prefix) > 0 && t.prefix[0] == id
}

// Notes are what a user should know of how the folder was read, one line each.
func (t *Tokenizer) Notes() []string {
	var notes []string
	if c := t.config; c.ChatTemplateChosen {
		notes = append(notes, "chat template of "+c.ChatTemplateFrom)
	}
	if n := engines(t.split); n > 0 {
		notes = append(notes, fmt.Sprintf("tokenizer.json: %d split patterns are run as regular expressions, which is slower than the built-in ones", n))
	}
	return notes
}

// engines counts the regular expressions of a splitter that have no scanner.
func engines(s splitter) (n int) {
	switch s := s.(type) {
	case splitterChain:
		for _, part := range s {
			n += engines(part)
		}
	case alphabetSplit:
		return engines(s.inner)
	case findSplit:
		if s.regex {
			return 1
		}
	}
	return n
}

// Model returns the model as sugarme's interface, for use in its pipelines.
func (t *Tokenizer) Model() sugar.Model { return t.model }
