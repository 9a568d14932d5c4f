package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"glimpse/internal/parallel"
)

func parseBPE(raw json.RawMessage, context modelContext) (model, error) {
	var c struct {
		Type                    string          `json:"type"`
		Dropout                 *float64        `json:"dropout"`
		UnkToken                *string         `json:"unk_token"`
		ContinuingSubwordPrefix *string         `json:"continuing_subword_prefix"`
		EndOfWordSuffix         *string         `json:"end_of_word_suffix"`
		FuseUnk                 bool            `json:"fuse_unk"`
		ByteFallback            bool            `json:"byte_fallback"`
		IgnoreMerges            bool            `json:"ignore_merges"`
		Vocab                   json.RawMessage `json:"vocab"`
		Merges                  json.RawMessage `json:"merges"`
	}
	if err := decodeStrict(raw, &c); err != nil {
		return nil, err
	}
	switch {
	case c.Dropout != nil && *c.Dropout != 0:
		return nil, fmt.Errorf("dropout %v is not supported, want none", *c.Dropout)
	case c.ContinuingSubwordPrefix != nil && *c.ContinuingSubwordPrefix != "":
		return nil, fmt.Errorf("continuing_subword_prefix %q is not supported, want none", *c.ContinuingSubwordPrefix)
	case c.EndOfWordSuffix != nil && *c.EndOfWordSuffix != "":
		return nil, fmt.Errorf("end_of_word_suffix %q is not supported, want none", *c.EndOfWordSuffix)
	}
	var vocab map[string]int
	var merges [][2]string
	var bad, badMerges error
	parallel.For(2, func(i int) { // each takes as long as the other
		if i == 0 {
			vocab, bad = parseVocab(c.Vocab, context.limit)
		} else {
			merges, badMerges = parseMerges(c.Merges)
		}
	})
	if bad != nil {
		return nil, bad
	}
	m := &bpe{
		byteLevel: context.byteLevel, ignoreMerges: c.IgnoreMerges,
		fallback: c.ByteFallback, fuseUnk: c.FuseUnk, unk: -1,
	}
	m.buildVocab(vocab)
	if b := slices.Index(m.bytes[:], -1); c.ByteFallback && context.byteLevel && b >= 0 {
		// Where all bytes have a token, as in what transformers makes of a GGUF file, none is spelled.
		return nil, fmt.Errorf("byte_fallback behind a ByteLevel pre-tokenizer: byte 0x%02X is not in vocab, want all 256", b)
	}
	if c.UnkToken != nil {
		id, ok := vocab[*c.UnkToken]
		if !ok {
			return nil, fmt.Errorf("unk_token %q is not in vocab", *c.UnkToken)
		}
		m.unk = int32(id)
	}
	if badMerges == nil {
		badMerges = m.buildMerges(merges, vocab)
	}
	if badMerges != nil {
		return nil, fmt.Errorf("merges: %w", badMerges)
	}
	return m, nil
}

func parseVocab(raw json.RawMessage, limit int) (vocab map[string]int, err error) {
	if !isNull(raw) {
		if err := json.Unmarshal(raw, &vocab); err != nil {
			return nil, fmt.Errorf("vocab: %w", describeJSON(raw, err))
		}
	}
	return vocab, checkVocab(vocab, limit)
}

func (m *bpe) buildVocab(vocab map[string]int) {
	size := 0
	for _, id := range vocab {
		size = max(size, id+1)
	}
	m.tokens = make([]string, size)
	m.whole = make([]atomic.Uint32, size)
	m.vocab = make(map[string]int32, len(vocab))
	m.odd = make(map[string]int32)
	for token, id := range vocab {
		m.tokens[id] = token
		key, ok := m.vocabKey(token)
		if !ok {
			m.odd[token] = int32(id)
			continue
		}
		m.vocab[key] = int32(id)
		m.longest = max(m.longest, len(key))
	}
	symbol := func(key string) int32 {
		if id, ok := m.vocab[key]; ok {
			return id
		}
		return -1
	}
	for b := range m.bytes {
		if m.byteLevel {
			m.bytes[b] = symbol(string([]byte{byte(b)}))
		} else {
			m.bytes[b] = symbol(fmt.Sprintf("<0x%02X>", b))
		}
	}
	for r := range m.ascii {
		m.ascii[r] = symbol(string(rune(r)))
	}
}

// parseMerges reads the list of merges in either form: "a b", or ["a", "b"] of
// files written since tokens may contain spaces.
func parseMerges(raw json.RawMessage) ([][2]string, error) {
	if isNull(raw) {
		return nil, errors.New("missing")
	}
	if first := bytes.TrimLeft(raw[1:], " \t\r\n"); raw[0] == '[' && len(first) > 0 && first[0] == '"' {
		var lines []string
		if err := json.Unmarshal(raw, &lines); err != nil {
			return nil, fmt.Errorf("want strings or pairs of strings: %w", describeJSON(raw, err))
		}
		pairs := make([][2]string, 0, len(lines))
		for i, line := range lines {
			if strings.HasPrefix(line, "#version") {
				continue
			}
			left, right, ok := strings.Cut(line, " ")
			if !ok || left == "" || right == "" || strings.Contains(right, " ") {
				return nil, fmt.Errorf("[%d]: %q, want two tokens with a space between", i, line)
			}
			pairs = append(pairs, [2]string{left, right})
		}
		return pairs, nil
	}
	var lists [][]string
	if err := json.Unmarshal(raw, &lists); err != nil {
		return nil, fmt.Errorf("want strings or pairs of strings: %w", describeJSON(raw, err))
	}
	pairs := make([][2]string, len(lists))
	for i, l := range lists {
		if len(l) != 2 || l[0] == "" || l[1] == "" {
			return nil, fmt.Errorf("[%d]: %q, want two tokens", i, l)
		}
		pairs[i] = [2]string(l)
	}
	return pairs, nil
}

func (m *bpe) buildMerges(pairs [][2]string, vocab map[string]int) error {
	m.merges = newPairTable(len(pairs))
	m.bridge = newBridgeSet(m.byteLevel)
	// Symbols that stand for a character without being its text would make
	// the ends of their tokens' text meaningless to bridgeSet.
	standIn := make(map[int32]bool)
	if !m.byteLevel {
		standIn[m.unk] = true
		complete := true
		for _, id := range m.bytes {
			standIn[id] = true
			complete = complete && id >= 0
		}
		// Pieces must also stay together where unknown characters that touch
		// are one token, and where an incomplete set of bytes makes the
		// reference reorder them.
		spelled := m.fallback && complete
		if !spelled && (m.fallback || m.unk >= 0 && m.fuseUnk) {
			m.bridge.everywhere = true
		}
	}
	var made []byte
	for rank, pair := range pairs {
		made = append(append(made[:0], pair[0]...), pair[1]...)
		left, ok := vocab[pair[0]]
		right, ok2 := vocab[pair[1]]
		whole, ok3 := vocab[string(made)]
		if !ok || !ok2 || !ok3 {
			token := pair[0]
			if ok && ok2 {
				token = string(made)
			} else if ok {
				token = pair[1]
			}
			return fmt.Errorf("[%d]: %q %q: token %q is not in vocab", rank, pair[0], pair[1], token)
		}
		if standIn[int32(left)] || standIn[int32(right)] {
			m.bridge.everywhere = true
		}
		m.merges.putMerge(int32(left), int32(right), mergeResult(rank, int32(whole)))
		last, _ := utf8.DecodeLastRuneInString(pair[0])
		first, _ := utf8.DecodeRuneInString(pair[1])
		if !m.byteLevel {
			m.bridge.add(runeBridge(last, first))
			continue
		}
		_, odd := m.odd[pair[0]]
		_, odd2 := m.odd[pair[1]]
		if !odd && !odd2 { // others never apply
			m.bridge.add(byteBridge(byte(byteOf[last]), byte(byteOf[first])))
		}
	}
	return nil
}
