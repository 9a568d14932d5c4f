package serving

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"

	"glimpse/serving/toolcall"
)

type blockKind int

const (
	thoughtBlock blockKind = iota
	textBlock
	callBlock
)

// block is a part of an answer that stands by itself where an API tells answers in parts.
type block struct {
	kind  blockKind
	index int             // in the answer
	id    string          // random; an API adds the prefix of its own
	name  string          // of a call, the function's
	text  strings.Builder // of a call, the arguments
	cut   bool            // the answer ended before it
	// tokens of a text, where they are asked for.
	tokens []tokenLogProb
}

// blocks are an answer as it grows.
type blocks struct {
	all []*block
	// to is told of them; nil: nobody is.
	to     blockEvents
	open   bool           // the last one goes on
	tokens []tokenLogProb // of the text that is said now
}

// blockEvents tell of blocks one after another: each begins, grows and ends before the next one does.
type blockEvents interface {
	begin(b *block) error
	grow(b *block, text string) error
	end(b *block) error
}

// addDelta adds what was said.
func (s *blocks) addDelta(d toolcall.Delta) error {
	kind, text, name := textBlock, d.Content, ""
	switch {
	case d.Reasoning != "":
		kind, text = thoughtBlock, d.Reasoning
	case d.Call != nil:
		kind, text, name = callBlock, d.Call.Arguments, d.Call.Name
	}
	if kind != callBlock && text == "" {
		return nil
	}
	if last := len(s.all) - 1; !s.open || s.all[last].kind != kind || name != "" {
		if err := s.start(kind, name); err != nil {
			return err
		}
	}
	b := s.all[len(s.all)-1]
	defer func() { s.tokens = nil }()
	if b.text.WriteString(text); kind == textBlock {
		b.tokens = append(b.tokens, s.tokens...)
	}
	if text == "" || s.to == nil {
		return nil
	}
	return s.to.grow(b, text)
}

func (s *blocks) start(kind blockKind, name string) error {
	if err := s.finish(); err != nil {
		return err
	}
	b := &block{kind: kind, index: len(s.all), id: rand.Text(), name: name}
	s.all, s.open = append(s.all, b), true
	if s.to == nil {
		return nil
	}
	return s.to.begin(b)
}

// finish ends the last block.
func (s *blocks) finish() error {
	if !s.open {
		return nil
	}
	if s.open = false; s.to == nil {
		return nil
	}
	return s.to.end(s.all[len(s.all)-1])
}

// answer lets an answer come, of an exchange that has one, and returns its last chunk. An answer that says nothing is an empty
// text.
func (s *blocks) answer(ctx context.Context, x *exchange, r *replies) (last chunk, err error) {
	err = x.each(ctx, func(_ *choice, said chunk) error {
		s.tokens = append(s.tokens, said.tokens...)
		for _, d := range r.takeText(0, said.text, said.done) {
			if err := s.addDelta(d); err != nil {
				return err
			}
		}
		last = said
		return nil
	})
	if err != nil {
		return last, err
	}
	if len(s.all) == 0 {
		if err := s.start(textBlock, ""); err != nil {
			return last, err
		}
	}
	b := s.all[len(s.all)-1]
	b.cut = finishReason(last.reason) == "length" || b.kind == callBlock && r.cut(0, last.reason)
	return last, s.finish()
}

// blockAnswer is an answer in blocks, in the words of an API.
type blockAnswer interface {
	stream(w http.ResponseWriter, answer func() (chunk, error)) error
	done(last chunk)
	object() fields // as it is
}

// tellBlocks starts an exchange of one answer and tells it, in events or whole.
func (x *exchange) tellBlocks(w http.ResponseWriter, r *http.Request, b *blocks, replies *replies, stream bool, a blockAnswer) error {
	release, err := x.start(r)
	if err != nil {
		return err
	}
	defer release()
	answer := func() (chunk, error) { return b.answer(r.Context(), x, replies) }
	if stream {
		if a.stream(w, answer) != nil {
			x.hangUp()
		}
		return nil
	}
	last, err := answer()
	if err != nil {
		return err
	}
	a.done(last)
	writeJSON(w, http.StatusOK, a.object())
	return nil
}
