package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// decoderTable is a decoder, compiled to what each token contributes.
type decoderTable struct {
	pieces []string // by id: the text of the token, or the bytes of it
	bytes  []bool   // by id: pieces[id] is bytes that may be a part of a character

	joiner    string   // between tokens
	tokens    []string // by id: the token before the decoder
	firstDrop string   // removed throughout the first token, which then counts as it was ("" for nothing)
	stripLeft int      // how many times strip is removed at the start of the text
	strip     string

	// Bytes that are no text: one U+FFFD for each byte of the whole run of such tokens,
	// what is well-formed in it included (ByteFallback of tokenizers 0.22), or one per
	// maximal subpart of a character (Unicode Standard, section 3.9, D93b).
	wholeRuns bool
}

// parseDecoder compiles a decoder for the tokens, by id. The literal ones are
// text, even where they look like the byte alphabet.
func parseDecoder(raw json.RawMessage, tokens []string, literal []bool) (decoderTable, error) {
	d := decoderTable{pieces: tokens, tokens: tokens, bytes: make([]bool, len(tokens))}
	if isNull(raw) {
		d.joiner = " "
		return d, nil
	}
	steps, err := flattenDecoder(raw, 0)
	if err == nil && len(steps) > maxSteps {
		err = errSteps
	}
	if err != nil {
		return d, err
	}
	size := 0
	for _, token := range tokens {
		size += len(token)
	}
	b := decoderBuilder{table: d, pieces: slices.Clone(tokens), literal: literal, limit: growth(size)}
	for i, s := range steps {
		if err := decoderKinds[s.kind](&b, s.raw); err != nil {
			if len(steps) > 1 {
				return d, fmt.Errorf("step %d: %s: %w", i+1, s.kind, err)
			}
			return d, fmt.Errorf("%s: %w", s.kind, err)
		}
		b.last = s.kind
	}
	b.table.pieces = b.pieces
	return b.table, nil
}

// decoderBuilder is a decoder that is being compiled, step by step.
type decoderBuilder struct {
	table   decoderTable
	pieces  []string
	literal []bool
	last    string // the step before, "" at the start
	fused   bool   // tokens have been joined
	limit   int    // bytes of all pieces
}

// decoderKinds are the steps that are implemented. Each looks at the one before
// it, since tables by token can express only some orders; the files of the
// supported models have no others.
var decoderKinds = map[string]func(b *decoderBuilder, raw json.RawMessage) error{
	"ByteLevel":    (*decoderBuilder).byteLevel,
	"ByteFallback": (*decoderBuilder).byteFallback,
	"Fuse":         (*decoderBuilder).fuse,
	"Metaspace":    (*decoderBuilder).metaspace,
	"Replace":      (*decoderBuilder).replace,
	"Strip":        (*decoderBuilder).stripStep,
}

type decoderStep struct {
	kind string
	raw  json.RawMessage
}

// flattenDecoder lists the steps of a decoder with its sequences opened.
func flattenDecoder(raw json.RawMessage, depth int) ([]decoderStep, error) {
	if depth > maxNesting {
		return nil, errNesting
	}
	kind, err := kindOf(raw)
	if err != nil {
		return nil, err
	}
	if kind != "Sequence" {
		if _, ok := decoderKinds[kind]; !ok {
			return nil, unsupported(kind, decoderKinds)
		}
		return []decoderStep{{kind, raw}}, nil
	}
	var c struct {
		Type     string            `json:"type"`
		Decoders []json.RawMessage `json:"decoders"`
	}
	if err := decodeStrict(raw, &c); err != nil {
		return nil, fmt.Errorf("in Sequence: %w", err)
	}
	var steps []decoderStep
	if err := sequenceParts("decoders", c.Decoders, func(_ int, part json.RawMessage) error {
		inner, err := flattenDecoder(part, depth+1)
		steps = append(steps, inner...)
		return err
	}); err != nil {
		return nil, fmt.Errorf("in Sequence: %w", err)
	}
	return steps, nil
}

// requireBefore is an error unless the step before is one of those given.
func (b *decoderBuilder) requireBefore(kinds ...string) error {
	if slices.Contains(kinds, b.last) {
		return nil
	}
	if b.last == "" {
		return errors.New("not supported as the first step")
	}
	return fmt.Errorf("not supported after %s", b.last)
}

func (b *decoderBuilder) byteLevel(raw json.RawMessage) error {
	if err := decodeStrict(raw, new(byteLevelConfig)); err != nil {
		return err
	}
	for id, token := range b.pieces {
		if bytes, ok := alphabetBytes(token); ok && !b.literal[id] {
			b.pieces[id] = bytes
		}
		b.table.bytes[id] = true
	}
	b.table.wholeRuns = false // an earlier step's are bytes like any other now
	return b.requireBefore("", "Replace", "Fuse")
}

func (b *decoderBuilder) replace(raw json.RawMessage) error {
	replace, pattern, err := parseReplace(raw)
	if err != nil {
		return err
	}
	left := b.limit
	for id, token := range b.pieces {
		if b.pieces[id], err = replace(token, left); err != nil {
			return err
		}
		left -= len(b.pieces[id])
	}
	if b.fused && (pattern.String == nil || utf8.RuneCountInString(*pattern.String) != 1) {
		return errors.New("not supported after Fuse but for a single character, since it could match across tokens")
	}
	return b.requireBefore("", "Replace", "Fuse")
}

func (b *decoderBuilder) byteFallback(raw json.RawMessage) error {
	for id, token := range b.pieces {
		if v, ok := fallbackByte(token); ok {
			b.pieces[id], b.table.bytes[id] = string([]byte{v}), true
		}
	}
	b.table.wholeRuns = true
	return errors.Join(b.requireBefore("", "Replace"), noOptions(raw))
}

// fallbackByte reads a token of the form <0x0A>.
func fallbackByte(token string) (byte, bool) {
	if len(token) != 6 || !strings.HasPrefix(token, "<0x") || token[5] != '>' {
		return 0, false
	}
	v, err := strconv.ParseUint(token[3:5], 16, 8)
	return byte(v), err == nil
}

// fuse joins the tokens, which a table of pieces does anyway.
func (b *decoderBuilder) fuse(raw json.RawMessage) error {
	b.fused = true
	return errors.Join(b.requireBefore("", "Replace", "ByteFallback"), noOptions(raw))
}

func (b *decoderBuilder) stripStep(raw json.RawMessage) error {
	var c struct {
		Type    string `json:"type"`
		Content string `json:"content"`
		Start   int    `json:"start"`
		Stop    int    `json:"stop"`
	}
	if err := decodeStrict(raw, &c); err != nil {
		return err
	}
	switch {
	case utf8.RuneCountInString(c.Content) != 1:
		return fmt.Errorf("content %q: want one character", c.Content)
	case c.Start < 0:
		return fmt.Errorf("start %d, want 0 or more", c.Start)
	case c.Stop != 0:
		// The end of a text that is being generated is not known.
		return fmt.Errorf("stop %d is not supported, want 0", c.Stop)
	}
	b.table.stripLeft, b.table.strip = c.Start, c.Content
	return b.requireBefore("Fuse", "ByteLevel") // which join the tokens
}

func (b *decoderBuilder) metaspace(raw json.RawMessage) error {
	m, err := parseMetaspace(raw)
	if err != nil {
		return err
	}
	if m.scheme != "never" {
		b.table.firstDrop = m.mark
	}
	for id, token := range b.pieces {
		b.pieces[id] = strings.ReplaceAll(token, m.mark, " ")
	}
	return b.requireBefore("")
}

// Stream decodes ids one at a time, for text that is being generated. It is not
// safe for concurrent use.
type Stream struct {
	t           *Tokenizer
	skipSpecial bool
	keep        []int32

	started bool
	strip   int    // how many times decoder.strip may still be removed
	held    []byte // the start of a character
	out     []byte
}

// NewStream returns a stream at the start of a text. skipSpecial leaves special
// tokens out but for those to keep.
func (t *Tokenizer) NewStream(skipSpecial bool, keep ...int32) *Stream {
	return &Stream{t: t, skipSpecial: skipSpecial, keep: keep, strip: t.decoder.stripLeft}
}

// Piece is what a token adds to a text that has begun: characters, or bytes that may be a part of one.
func (t *Tokenizer) Piece(id int32) string {
	if !t.hasToken(id) {
		return ""
	}
	return t.decoder.joiner + t.decoder.pieces[id]
}

// Push adds an id and returns the text that is certain now, which may be empty:
// bytes are held back until they form a character. What Push and Flush return,
// put together, is what Decode returns for the ids. An id that the vocabulary
// does not have adds nothing (a model may have more rows than tokens).
func (s *Stream) Push(id int32) string {
	s.out = s.out[:0]
	s.pushToken(id)
	return string(s.out)
}

// Flush ends the text: it returns U+FFFD for what is held back, and puts the
// stream at the start of a new text.
func (s *Stream) Flush() string {
	s.out = s.out[:0]
	s.drain(true)
	text := string(s.out)
	*s = Stream{t: s.t, skipSpecial: s.skipSpecial, keep: s.keep, strip: s.t.decoder.stripLeft, held: s.held[:0], out: s.out}
	return text
}

func (s *Stream) pushToken(id int32) {
	t := s.t
	if !t.hasToken(id) || s.skipSpecial && t.special[id] && !slices.Contains(s.keep, id) {
		return
	}
	text := t.decoder.pieces[id]
	if s.started {
		s.emit(t.decoder.joiner)
	} else if t.decoder.firstDrop != "" {
		// Metaspace's rule: the first token loses its marks, all of them. A
		// real space in an added token stays.
		text = strings.ReplaceAll(t.decoder.tokens[id], t.decoder.firstDrop, "")
	}
	s.started = true
	if t.decoder.bytes[id] {
		s.held = append(s.held, text...)
		s.drain(false)
		return
	}
	s.drain(true)
	s.emit(text)
}

// drain emits the characters that are held, and keeps the start of one that is
// not complete unless the bytes after it are known not to complete it, or it is final: none follow. Of whole runs
// all is kept, since a later byte may spoil it.
func (s *Stream) drain(final bool) {
	b := s.held
	if s.t.decoder.wholeRuns {
		if !final {
			return
		}
		if text := string(b); utf8.ValidString(text) {
			s.emit(text)
		} else {
			s.emit(strings.Repeat("\uFFFD", len(b)))
		}
		s.held = b[:0]
		return
	}
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			if !final && !utf8.FullRune(b) {
				break
			}
			n = maximalSubpart(b)
			s.emit("\uFFFD")
		} else {
			s.emit(string(b[:n]))
		}
		b = b[n:]
	}
	s.held = append(s.held[:0], b...)
}

// maximalSubpart returns how many bytes at the start of b, which is not a
// character, could have been the start of one; at least 1.
func maximalSubpart(b []byte) int {
	for n := min(3, len(b)); n > 1; n-- {
		if !utf8.FullRune(b[:n]) {
			return n
		}
	}
	return 1
}

// emit appends text, without what is to be stripped from the start.
func (s *Stream) emit(text string) {
	for s.strip > 0 && text != "" {
		rest, ok := strings.CutPrefix(text, s.t.decoder.strip)
		if !ok {
			s.strip = 0
			break
		}
		text = rest
		s.strip--
	}
	s.out = append(s.out, text...)
}
