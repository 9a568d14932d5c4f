package tokenizer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"glimpse/internal/suggest"

	sugar "github.com/sugarme/tokenizer"
)

// wordLevel is the WordLevel model: a word is in the list or it is not.
type wordLevel struct {
	vocab map[string]int
	words map[int]string
	unk   int32 // -1 for none
}

var _ model = (*wordLevel)(nil)

func parseWordLevel(raw json.RawMessage, context modelContext) (model, error) {
	var c struct {
		Type     string         `json:"type"`
		Vocab    map[string]int `json:"vocab"`
		UnkToken *string        `json:"unk_token"`
	}
	if err := decodeStrict(raw, &c); err != nil {
		return nil, err
	}
	if context.byteLevel {
		return nil, fmt.Errorf("not supported behind a ByteLevel pre-tokenizer")
	}
	if err := checkVocab(c.Vocab, context.limit); err != nil {
		return nil, err
	}
	m := &wordLevel{vocab: c.Vocab, words: make(map[int]string, len(c.Vocab)), unk: -1}
	for w, id := range c.Vocab {
		m.words[id] = w
	}
	if c.UnkToken != nil {
		if id, ok := c.Vocab[*c.UnkToken]; ok {
			m.unk = int32(id)
		}
	}
	return m, nil
}

func (m *wordLevel) appendIDs(dst []int32, word string, at int) ([]int32, error) {
	if id, ok := m.vocab[word]; ok {
		return append(dst, int32(id)), nil
	}
	if m.unk >= 0 {
		return append(dst, m.unk), nil
	}
	return dst, m.unknown(word, at)
}

// UnknownWordError is a word that a closed vocabulary does not have.
type UnknownWordError struct {
	Word    string // or its beginning
	At      int    // byte in the text
	Words   int    // in the vocabulary
	Nearest []string
}

func (e *UnknownWordError) Error() string {
	msg := fmt.Sprintf("word %q at byte %d is not in the vocabulary, which is closed: only its %d words can be used", e.Word, e.At, e.Words)
	for i, word := range e.Nearest {
		msg += []string{"; nearest: ", ", "}[min(i, 1)] + strconv.Quote(word)
	}
	return msg
}

// unknown explains why a word has no id.
func (m *wordLevel) unknown(word string, at int) error {
	const shown = 64
	e := &UnknownWordError{Word: word, At: at, Words: len(m.vocab)}
	if len(word) > shown {
		// The nearest word of a whole paragraph means nothing and costs its length
		// times the vocabulary.
		e.Word = strings.ToValidUTF8(word[:shown], "") + "…"
		return e
	}
	e.Nearest = m.nearest(word, 3)
	return e
}

// nearest returns up to n vocabulary entries by edit distance to word, then by
// name.
func (m *wordLevel) nearest(word string, n int) []string {
	type candidate struct {
		word     string
		distance int
	}
	target := strings.ToLower(word)
	var all []candidate
	for w := range m.vocab {
		longer := max(utf8.RuneCountInString(target), utf8.RuneCountInString(w))
		if d := suggest.Distance(target, strings.ToLower(w)); d <= longer/2+1 {
			all = append(all, candidate{w, d})
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.word, b.word))
	})
	var words []string
	for _, c := range all[:min(n, len(all))] {
		words = append(words, c.word)
	}
	return words
}

func (m *wordLevel) entries(yield func(string, int32) bool) {
	for w, id := range m.vocab {
		if !yield(w, int32(id)) {
			return
		}
	}
}

// Tokenize implements sugarme's Model.
func (m *wordLevel) Tokenize(sequence string) ([]sugar.Token, error) {
	ids, err := m.appendIDs(nil, sequence, 0)
	if err != nil {
		return nil, err
	}
	id := int(ids[0])
	return []sugar.Token{{Id: id, Value: m.words[id], Offsets: []int{0, len(sequence)}}}, nil
}

// TokenToId implements sugarme's Model.
func (m *wordLevel) TokenToId(token string) (int, bool) {
	id, ok := m.vocab[token]
	return id, ok
}

// IdToToken implements sugarme's Model.
func (m *wordLevel) IdToToken(id int) (string, bool) {
	w, ok := m.words[id]
	return w, ok
}

// GetVocab implements sugarme's Model. The caller owns the map.
func (m *wordLevel) GetVocab() map[string]int { return maps.Clone(m.vocab) }

// GetVocabSize implements sugarme's Model.
func (m *wordLevel) GetVocabSize() int { return len(m.vocab) }

// Save implements sugarme's Model: it writes vocab.json into a folder.
func (m *wordLevel) Save(path string, prefix ...string) error {
	return saveJSON(path, "vocab.json", prefix, m.vocab)
}
