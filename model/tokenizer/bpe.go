package tokenizer

import (
	"fmt"
	"slices"
	"sync/atomic"
	"unicode/utf8"
)

// bpe is byte-pair encoding: a word starts as single symbols, and of the
// neighbouring pairs in the list of merges the one that is listed first is
// replaced, the leftmost of equals, until none is left.
//
// The symbols are bytes behind a ByteLevel pre-tokenizer and characters
// elsewhere. Inside, a byte-level vocabulary is kept as the bytes its tokens
// stand for, so that text never has to be written in the byte alphabet.
type bpe struct {
	byteLevel    bool
	ignoreMerges bool // a word that is in the vocabulary is one token, whatever the merges make of it

	vocab   map[string]int32 // by text, or by bytes
	odd     map[string]int32 // byte-level tokens that no bytes can give
	tokens  []string         // by id, as the file writes them
	longest int              // bytes of the longest key of vocab

	merges pairTable
	bridge bridgeSet // where merges can reach across

	bytes    [256]int32           // symbol of a byte; for models over characters, of <0xNN>; -1 for none
	ascii    [utf8.RuneSelf]int32 // for models over characters: symbol of an ASCII character; -1 for none
	fallback bool                 // characters outside the vocabulary are spelled in bytes
	fuseUnk  bool                 // a run of unknown characters is one unknown token
	unk      int32                // -1 for none

	// By id: whether the token's own text encodes to the token. Most words of
	// most texts are tokens, and for those a look at this replaces the merging.
	whole []atomic.Uint32
}

var _ model = (*bpe)(nil)

// States of bpe.whole.
const (
	wholeUnknown = iota
	wholeYes
	wholeNo
)

// appendIDs implements model.
func (m *bpe) appendIDs(dst []int32, word string, at int) ([]int32, error) {
	if m.ignoreMerges && len(word) <= m.longest {
		if id, ok := m.vocab[word]; ok {
			return append(dst, id), nil
		}
	}
	if m.byteLevel {
		return m.appendBytes(dst, word, at)
	}
	return m.appendRunes(dst, word, at)
}

// shortWord is the length in bytes up to which a byte-level word is encoded
// whole; longer ones are first cut where no merge reaches across.
const shortWord = 32

func (m *bpe) appendBytes(dst []int32, word string, at int) ([]int32, error) {
	if len(word) <= shortWord {
		return m.appendPart(dst, word, at)
	}
	start := 0
	for i := 1; i < len(word); i++ {
		if m.bridge.has(byteBridge(word[i-1], word[i])) {
			continue
		}
		var err error
		if dst, err = m.appendPart(dst, word[start:i], at+start); err != nil {
			return dst, err
		}
		start = i
	}
	return m.appendPart(dst, word[start:], at+start)
}

func (m *bpe) appendRunes(dst []int32, word string, at int) ([]int32, error) {
	start := 0
	last, i := utf8.DecodeRuneInString(word)
	for i < len(word) {
		r, n := rune(word[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRuneInString(word[i:])
		}
		if !m.bridge.has(runeBridge(last, r)) {
			var err error
			if dst, err = m.appendPart(dst, word[start:i], at+start); err != nil {
				return dst, err
			}
			start = i
		}
		last = r
		i += n
	}
	return m.appendPart(dst, word[start:], at+start)
}

// appendPart appends the ids of a part of a word whose encoding does not depend
// on what is beside it.
func (m *bpe) appendPart(dst []int32, part string, at int) ([]int32, error) {
	if len(part) > m.longest {
		return m.mergePart(dst, part, at)
	}
	id, ok := m.vocab[part]
	if !ok {
		return m.mergePart(dst, part, at)
	}
	state := &m.whole[id]
	switch state.Load() {
	case wholeYes:
		return append(dst, id), nil
	case wholeNo:
		return m.mergePart(dst, part, at)
	}
	n := len(dst)
	dst, err := m.mergePart(dst, part, at)
	if err == nil {
		if len(dst) == n+1 && dst[n] == id {
			state.Store(wholeYes)
		} else {
			state.Store(wholeNo)
		}
	}
	return dst, err
}

// mergePart appends the ids of a part by its merges.
func (m *bpe) mergePart(dst []int32, part string, at int) ([]int32, error) {
	n := len(dst)
	dst, err := m.symbols(dst, part, at)
	if err != nil {
		return dst[:n], err
	}
	kept := m.merges.applyMerges(dst[n:])
	return dst[:n+kept], nil
}

// symbols appends the symbols that a part starts as.
func (m *bpe) symbols(dst []int32, part string, at int) ([]int32, error) {
	if m.byteLevel {
		for i := range len(part) {
			id := m.bytes[part[i]]
			if id < 0 {
				if id = m.unk; id < 0 {
					return dst, fmt.Errorf("byte 0x%02X at byte %d is not in the vocabulary, which has no unknown token", part[i], at+i)
				}
				if m.fuseUnk && i > 0 && m.bytes[part[i-1]] < 0 {
					continue
				}
			}
			dst = append(dst, id)
		}
		return dst, nil
	}
	pending := false // an unknown token is still to be written
	flush := func() {
		if pending {
			dst = append(dst, m.unk)
			pending = false
		}
	}
	for i := 0; i < len(part); {
		b := part[i]
		n := 1
		var id int32
		if b < utf8.RuneSelf {
			id = m.ascii[b]
		} else {
			_, n = utf8.DecodeRuneInString(part[i:])
			var ok bool
			if id, ok = m.vocab[part[i:i+n]]; !ok {
				id = -1
			}
		}
		char := part[i : i+n]
		i += n
		switch {
		case id >= 0:
			flush()
			dst = append(dst, id)
		case m.fallback && !slices.ContainsFunc([]byte(char), func(b byte) bool { return m.bytes[b] < 0 }):
			// The reference writes a pending unknown token after these.
			for k := range len(char) {
				dst = append(dst, m.bytes[char[k]])
			}
		case m.unk >= 0:
			if !m.fuseUnk {
				flush()
			}
			pending = true
		default:
			return dst, fmt.Errorf("character %q at byte %d is not in the vocabulary, which has no unknown token", char, at+i-n)
		}
	}
	flush()
	return dst, nil
}

// vocabKey is what a token is in vocab, if it can be there.
func (m *bpe) vocabKey(token string) (key string, ok bool) {
	if m.byteLevel {
		return alphabetBytes(token)
	}
	return token, true
}
