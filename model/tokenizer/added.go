package tokenizer

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"glimpse/model/tokenizer/onig"
)

// maxAddedToken bounds the bytes of one added token. Matching walks at most this
// far from each byte of the text.
const maxAddedToken = 4096

// addedToken is an entry of added_tokens.
type addedToken struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// addedVocabulary finds the added tokens in a text. Those that are not
// normalised are looked for before normalisation, the others after it, in what
// the normaliser makes of them.
type addedVocabulary struct {
	ids             map[string]int32
	raw, normalized addedMatcher
}

// normalizeAdded returns what the normaliser makes of the added tokens that are to be
// normalised, and the others as they are.
func normalizeAdded(tokens []addedToken, n normalizer) ([]string, error) {
	out := make([]string, len(tokens))
	for i, a := range tokens {
		if len(a.Content) > maxAddedToken {
			return nil, fmt.Errorf("id %d: token of %d bytes, at most %d are supported", a.ID, len(a.Content), maxAddedToken)
		}
		out[i] = a.Content
		if !a.Normalized {
			continue
		}
		var err error
		if out[i], err = n.normalize(a.Content, maxAddedToken); err != nil {
			return nil, fmt.Errorf("id %d: %w", a.ID, err)
		}
	}
	return out, nil
}

// newAddedVocabulary takes the tokens, and what normalizeAdded returned for them.
func newAddedVocabulary(tokens []addedToken, normalized []string) addedVocabulary {
	v := addedVocabulary{ids: make(map[string]int32, len(tokens))}
	for i, a := range tokens {
		if a.Content == "" {
			continue // no text can match it
		}
		v.ids[a.Content] = int32(a.ID)
		switch {
		case !a.Normalized:
			v.raw.addPattern(a.Content, a)
		case normalized[i] != "":
			v.normalized.addPattern(normalized[i], a)
		}
	}
	return v
}

// addedMatcher is a trie over the bytes of the tokens.
type addedMatcher struct {
	nodes   []trieNode
	entries []addedToken
	first   [256]bool // bytes that some token starts with
}

type trieNode struct {
	edges []trieEdge
	entry int32 // index into entries, or -1
}

type trieEdge struct {
	label byte
	to    int32
}

// childAt returns the node behind the edge for b, or -1.
func (n *trieNode) childAt(b byte) int32 {
	for _, e := range n.edges {
		if e.label == b {
			return e.to
		}
	}
	return -1
}

func (m *addedMatcher) addPattern(pattern string, token addedToken) {
	if m.nodes == nil {
		m.nodes = []trieNode{{entry: -1}}
	}
	m.first[pattern[0]] = true
	node := int32(0)
	for i := range len(pattern) {
		next := m.nodes[node].childAt(pattern[i])
		if next < 0 {
			next = int32(len(m.nodes))
			m.nodes = append(m.nodes, trieNode{entry: -1})
			m.nodes[node].edges = append(m.nodes[node].edges, trieEdge{pattern[i], next})
		}
		node = next
	}
	if m.nodes[node].entry < 0 { // as in the reference, the first of two equal patterns counts
		m.nodes[node].entry = int32(len(m.entries))
		m.entries = append(m.entries, token)
	}
}

// match returns the longest token that starts at byte i of text.
func (m *addedMatcher) match(text string, i int) (entry *addedToken, end int) {
	node := int32(0)
	for j := i; j < len(text); j++ {
		if node = m.nodes[node].childAt(text[j]); node < 0 {
			break
		}
		if e := m.nodes[node].entry; e >= 0 {
			entry, end = &m.entries[e], j+1
		}
	}
	return entry, end
}

// split cuts p at the tokens, leftmost first and longest at each place, and
// calls token for each and rest for what lies between them, in order.
//
// The flags do what the reference does: a single_word token counts only where no
// word character touches it; lstrip and rstrip tokens swallow the white space
// beside them.
func (m *addedMatcher) split(p piece, token func(int32), rest func(piece) error) error {
	if len(m.entries) == 0 {
		return rest(p)
	}
	text := p.text
	done := 0
	for i := 0; i < len(text); {
		if !m.first[text[i]] {
			i++
			continue
		}
		e, end := m.match(text, i)
		if e == nil {
			i++
			continue
		}
		start := i
		i = end
		if e.SingleWord && (wordEndsAt(text[:start]) || wordStartsAt(text[end:])) {
			continue
		}
		// Not past what earlier tokens took: tokens that are themselves white
		// space would otherwise look at all of it again and again.
		if e.LStrip && done < start {
			start = done + len(strings.TrimRightFunc(text[done:start], unicode.IsSpace))
		}
		if e.RStrip {
			end = len(text) - len(strings.TrimLeftFunc(text[max(end, done):], unicode.IsSpace))
		}
		if done < start {
			if err := rest(piece{text[done:start], p.at + done}); err != nil {
				return err
			}
		}
		token(int32(e.ID))
		// An earlier token's rstrip may have swallowed past this one's end.
		done = max(done, end)
	}
	if done < len(text) {
		return rest(piece{text[done:], p.at + done})
	}
	return nil
}

func wordEndsAt(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return s != "" && isWordRune(r)
}

func wordStartsAt(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return s != "" && isWordRune(r)
}

// isWordRune is \w of Rust's regex crate: letters and other alphabetic
// characters, marks, decimal digits, connectors and join controls (Unicode
// Technical Standard 18, Annex C).
func isWordRune(r rune) bool {
	if r < utf8.RuneSelf {
		return r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	return onig.IsWord(r)
}
