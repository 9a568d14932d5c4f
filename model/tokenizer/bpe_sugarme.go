package tokenizer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	sugar "github.com/sugarme/tokenizer"
)

// The rest of sugarme's Model, and what goes with it.

func (m *bpe) entries(yield func(string, int32) bool) {
	for _, id := range m.vocab {
		if !yield(m.tokens[id], id) {
			return
		}
	}
	for token, id := range m.odd {
		if !yield(token, id) {
			return
		}
	}
}

// Tokenize implements sugarme's Model: sequence is one word, for byte-level
// models in the byte alphabet.
func (m *bpe) Tokenize(sequence string) ([]sugar.Token, error) {
	word, ok := m.vocabKey(sequence)
	if !ok {
		return nil, fmt.Errorf("tokenizer: %q is not in the byte alphabet", sequence)
	}
	if word == "" {
		return nil, nil
	}
	ids, err := m.appendIDs(nil, word, 0)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	tokens := make([]sugar.Token, len(ids))
	at := 0
	for i, id := range ids {
		end := at + m.covers(sequence[at:], id)
		tokens[i] = sugar.Token{Id: int(id), Value: m.tokens[id], Offsets: []int{at, end}}
		at = end
	}
	return tokens, nil
}

// covers returns how many bytes at the start of rest a token stands for.
func (m *bpe) covers(rest string, id int32) int {
	token := m.tokens[id]
	if strings.HasPrefix(rest, token) {
		return len(token)
	}
	if _, ok := fallbackByte(token); ok && m.fallback {
		return min(1, len(rest))
	}
	// The unknown token: one character, or all the unknown ones.
	n := 0
	for n < len(rest) {
		_, size := utf8.DecodeRuneInString(rest[n:])
		if _, known := m.vocab[rest[n:n+size]]; known || n > 0 && !m.fuseUnk {
			break
		}
		n += size
	}
	return n
}

// TokenToId implements sugarme's Model.
func (m *bpe) TokenToId(token string) (int, bool) {
	key, ok := m.vocabKey(token)
	id, known := m.vocab[key]
	if !ok {
		id, known = m.odd[token]
	}
	return int(id), known
}

// IdToToken implements sugarme's Model.
func (m *bpe) IdToToken(id int) (string, bool) {
	if id < 0 || id >= len(m.tokens) {
		return "", false
	}
	token := m.tokens[id]
	owner, ok := m.TokenToId(token)
	return token, ok && owner == id
}

// GetVocab implements sugarme's Model. The caller owns the map.
func (m *bpe) GetVocab() map[string]int {
	vocab := make(map[string]int, m.GetVocabSize())
	for token, id := range m.entries {
		vocab[token] = int(id)
	}
	return vocab
}

// GetVocabSize implements sugarme's Model.
func (m *bpe) GetVocabSize() int { return len(m.vocab) + len(m.odd) }

// Save implements sugarme's Model: it writes vocab.json and merges.txt into a
// folder.
func (m *bpe) Save(path string, prefix ...string) error {
	list := slices.DeleteFunc(slices.Clone(m.merges.slots), func(s pairSlot) bool { return s.key == 0 })
	slices.SortFunc(list, func(a, b pairSlot) int { return cmp.Compare(a.value, b.value) })
	var merges strings.Builder
	merges.WriteString("#version: 0.2\n")
	for _, s := range list {
		left, right := s.pair()
		fmt.Fprintf(&merges, "%s %s\n", m.tokens[left], m.tokens[right])
	}
	if err := saveJSON(path, "vocab.json", prefix, m.GetVocab()); err != nil {
		return err
	}
	return saveBytes(path, "merges.txt", prefix, []byte(merges.String()))
}
