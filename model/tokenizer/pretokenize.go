package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// parsePreTokenizer reads the pre_tokenizer. A nil splitter means that a piece
// is one word. byteLevel tells whether words are to be read as bytes: the
// ByteLevel component itself, a change of alphabet, is left to the model. prefixSpace
// replaces the add_prefix_space of a ByteLevel that is alone, if it is not nil.
func parsePreTokenizer(raw json.RawMessage, prefixSpace *bool) (s splitter, byteLevel bool, err error) {
	if isNull(raw) {
		return nil, false, nil
	}
	if kind, err := kindOf(raw); err == nil && kind == "ByteLevel" && prefixSpace != nil {
		chain, err := parseByteLevel(raw, prefixSpace)
		if err != nil {
			return nil, false, fmt.Errorf("ByteLevel: %w", err)
		}
		return chain, true, nil
	}
	chain, byteLevel, err := parsePreTokenizerAt(raw, 0, false)
	if err != nil {
		return nil, false, err
	}
	switch len(chain) {
	case 0:
		return nil, byteLevel, nil
	case 1:
		return chain[0], byteLevel, nil
	}
	return chain, byteLevel, nil
}

// parsePreTokenizerAt reads a component; afterBytes tells that ByteLevel has run
// before it.
func parsePreTokenizerAt(raw json.RawMessage, depth int, afterBytes bool) (chain splitterChain, byteLevel bool, err error) {
	one := func(s splitter, err error) error {
		if err == nil && afterBytes {
			s = onBytes(s)
		}
		chain = splitterChain{s}
		return err
	}
	beforeBytes := func(parse func() error) func() error {
		if afterBytes {
			return func() error { return errors.New("not supported after ByteLevel") }
		}
		return parse
	}
	err = component(raw, depth, map[string]func() error{
		"WhitespaceSplit": func() error { return one(stretchSplit{notSpace}, noOptions(raw)) },
		"Whitespace":      func() error { return one(stretchSplit{wordOrOther}, noOptions(raw)) },
		"Metaspace":       beforeBytes(func() error { return one(parseMetaspace(raw)) }),
		"Split":           func() error { return one(parseSplit(raw)) },
		"Punctuation":     func() error { return one(parsePunctuation(raw)) },
		"Digits":          func() error { return one(parseDigits(raw)) },
		"ByteLevel": beforeBytes(func() error {
			byteLevel = true
			chain, err = parseByteLevel(raw, nil)
			return err
		}),
		"Sequence": func() error {
			var c struct {
				Type          string            `json:"type"`
				Pretokenizers []json.RawMessage `json:"pretokenizers"`
			}
			if err := decodeStrict(raw, &c); err != nil {
				return err
			}
			err := sequenceParts("pretokenizers", c.Pretokenizers, func(_ int, part json.RawMessage) error {
				steps, bytes, err := parsePreTokenizerAt(part, depth+1, afterBytes || byteLevel)
				chain, byteLevel = append(chain, steps...), byteLevel || bytes
				return err
			})
			if err == nil && len(chain) > maxSteps {
				err = errSteps
			}
			return err
		},
	})
	return chain, byteLevel, err
}

// onBytes makes a splitter one for what comes after ByteLevel.
func onBytes(s splitter) splitter {
	switch s := s.(type) {
	case threeDigitSplit:
		return s // ASCII digits stand for themselves, and nothing else for them
	case classSplit:
		s.characters = byteCharacter
		return s
	}
	return alphabetSplit{s}
}

// splitterChain runs each splitter on what the one before it yields.
type splitterChain []splitter

func (c splitterChain) split(p piece, yield func(piece) error) error {
	if len(c) == 0 {
		return yield(p)
	}
	return c[0].split(p, func(q piece) error { return c[1:].split(q, yield) })
}

// stretchSplit yields the stretches of characters of one class, but for class 0.
type stretchSplit struct{ class func(rune) int }

// notSpace is 1 but for white space.
func notSpace(r rune) int {
	if unicode.IsSpace(r) {
		return 0
	}
	return 1
}

// wordOrOther is for \w+|[^\w\s]+.
func wordOrOther(r rune) int {
	if isWordRune(r) {
		return 2
	}
	return notSpace(r)
}

func (s stretchSplit) split(p piece, yield func(piece) error) error {
	start, class := 0, 0
	for i, r := range p.text {
		c := s.class(r)
		if c == class {
			continue
		}
		if class != 0 {
			if err := yield(piece{p.text[start:i], p.at + start}); err != nil {
				return err
			}
		}
		start, class = i, c
	}
	if class != 0 {
		return yield(piece{p.text[start:], p.at + start})
	}
	return nil
}

// metaspace writes spaces as a visible character, SentencePiece's ▁, puts one
// in front, and cuts before each.
type metaspace struct {
	mark   string
	scheme string // when one is put in front: always, first (at the start of the whole text), never
	cut    bool
}

func parseMetaspace(raw json.RawMessage) (metaspace, error) {
	var c struct {
		Type           string `json:"type"`
		Replacement    string `json:"replacement"`
		PrependScheme  string `json:"prepend_scheme"`
		Split          *bool  `json:"split"`
		AddPrefixSpace *bool  `json:"add_prefix_space"` // before prepend_scheme
		StrRep         string `json:"str_rep"`          // of old versions: replacement again
	}
	if err := decodeStrict(raw, &c); err != nil {
		return metaspace{}, err
	}
	if utf8.RuneCountInString(c.Replacement) != 1 {
		return metaspace{}, fmt.Errorf("replacement %q: want one character", c.Replacement)
	}
	m := metaspace{mark: c.Replacement, scheme: c.PrependScheme, cut: c.Split == nil || *c.Split}
	switch {
	case c.PrependScheme == "" && c.AddPrefixSpace != nil && !*c.AddPrefixSpace:
		m.scheme = "never"
	case c.PrependScheme == "":
		m.scheme = "always"
	case c.PrependScheme != "always" && c.PrependScheme != "first" && c.PrependScheme != "never":
		return m, fmt.Errorf("prepend_scheme %q, want always, first or never", c.PrependScheme)
	}
	return m, nil
}

func (m metaspace) split(p piece, yield func(piece) error) error {
	text := strings.ReplaceAll(p.text, " ", m.mark)
	if (m.scheme == "always" || m.scheme == "first" && p.at == 0) && !strings.HasPrefix(text, m.mark) {
		text = m.mark + text
	}
	if !m.cut {
		return yield(piece{text, p.at})
	}
	for start := 0; start < len(text); {
		// The mark that opens a word belongs to it.
		end := len(text)
		skip := 0
		if strings.HasPrefix(text[start:], m.mark) {
			skip = len(m.mark)
		}
		if i := strings.Index(text[start+skip:], m.mark); i >= 0 {
			end = start + skip + i
		}
		if err := yield(piece{text[start:end], p.at}); err != nil {
			return err
		}
		start = end
	}
	return nil
}

// patternSplit cuts a piece by the scanner of one of splitPatterns.
type patternSplit struct {
	next func(s string, i int) int // end of the word that starts at byte i
}

func (s patternSplit) split(p piece, yield func(piece) error) error {
	for i := 0; i < len(p.text); {
		end := s.next(p.text, i)
		if err := yield(piece{p.text[i:end], p.at + i}); err != nil {
			return err
		}
		i = end
	}
	return nil
}

// prefixSpace puts a space before a piece that starts with none.
type prefixSpace struct{}

func (prefixSpace) split(p piece, yield func(piece) error) error {
	if !strings.HasPrefix(p.text, " ") {
		p.text = " " + p.text
	}
	return yield(p)
}

func parseByteLevel(raw json.RawMessage, prefixSpaceSet *bool) (splitterChain, error) {
	c := byteLevelConfig{AddPrefixSpace: true, UseRegex: true}
	if err := decodeStrict(raw, &c); err != nil {
		return nil, err
	}
	if prefixSpaceSet != nil {
		c.AddPrefixSpace = *prefixSpaceSet
	}
	var chain splitterChain
	if c.AddPrefixSpace {
		chain = append(chain, prefixSpace{})
	}
	if c.UseRegex {
		chain = append(chain, patternSplit{scanGPT2})
	}
	return chain, nil
}

// byteLevelConfig is ByteLevel as pre-tokenizer, post-processor and decoder.
type byteLevelConfig struct {
	Type           string `json:"type"`
	AddPrefixSpace bool   `json:"add_prefix_space"`
	TrimOffsets    bool   `json:"trim_offsets"` // offsets are not kept
	UseRegex       bool   `json:"use_regex"`
}
