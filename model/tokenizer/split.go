package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"glimpse/model/tokenizer/onig"
)

// finder calls match with the matches of a pattern in a text, in order.
type finder func(text string, match func(start, end int) error) error

// behavior is what becomes of the matches and of the texts between them.
type behavior string

const (
	removed            behavior = "Removed"            // matches are dropped
	isolated           behavior = "Isolated"           // each is a word
	contiguous         behavior = "Contiguous"         // those that touch are one word
	mergedWithPrevious behavior = "MergedWithPrevious" // they end the word before them
	mergedWithNext     behavior = "MergedWithNext"     // they begin the word after them
)

func (b behavior) checkKnown() error {
	switch b {
	case removed, isolated, contiguous, mergedWithPrevious, mergedWithNext:
		return nil
	}
	return fmt.Errorf("behavior %q, want Removed, Isolated, Contiguous, MergedWithPrevious or MergedWithNext", string(b))
}

// findSplit cuts a piece at the matches of a pattern.
type findSplit struct {
	find     finder
	behavior behavior
	invert   bool // what lies between the matches counts as the matches
	regex    bool // find runs a regular expression
}

// span is a part of a piece.
type span struct {
	start, end int
	match      bool
}

func (s findSplit) split(p piece, yield func(piece) error) error {
	if s.behavior == contiguous || s.behavior == mergedWithPrevious || s.behavior == mergedWithNext {
		return s.merged(p, yield)
	}
	return s.spans(p.text, func(x span) error {
		if x.start == x.end || x.match && s.behavior == removed {
			return nil
		}
		return yield(piece{p.text[x.start:x.end], p.at + x.start})
	})
}

// spans calls visit with the matches and with what lies between them, in order.
// Matches of nothing are among them: they keep what is beside them apart.
func (s findSplit) spans(text string, visit func(span) error) error {
	done := 0
	err := s.find(text, func(start, end int) error {
		if done < start {
			if err := visit(span{done, start, s.invert}); err != nil {
				return err
			}
		}
		done = end
		return visit(span{start, end, !s.invert})
	})
	if err == nil && done < len(text) {
		err = visit(span{done, len(text), s.invert})
	}
	return err
}

// merged joins matches with what is beside them. A match joins only what is not one
// itself, and one other than a match only under contiguous.
func (s findSplit) merged(p piece, yield func(piece) error) error {
	var all []span
	if err := s.spans(p.text, func(x span) error {
		all = append(all, x)
		return nil
	}); err != nil {
		return err
	}
	joins := func(x, before span) bool {
		if s.behavior == contiguous {
			return x.match == before.match
		}
		return x.match && !before.match
	}
	if s.behavior == mergedWithNext {
		slices.Reverse(all)
	}
	var words []span
	for i, x := range all {
		if i > 0 && joins(x, all[i-1]) {
			word := &words[len(words)-1]
			word.start, word.end = min(word.start, x.start), max(word.end, x.end)
		} else {
			words = append(words, x)
		}
	}
	if s.behavior == mergedWithNext {
		slices.Reverse(words)
	}
	for _, x := range words {
		if x.start == x.end {
			continue
		}
		if err := yield(piece{p.text[x.start:x.end], p.at + x.start}); err != nil {
			return err
		}
	}
	return nil
}

func findString(what string) finder {
	return func(text string, match func(start, end int) error) error {
		for at := 0; ; {
			i := strings.Index(text[at:], what)
			if i < 0 {
				return nil
			}
			if err := match(at+i, at+i+len(what)); err != nil {
				return err
			}
			at += i + len(what)
		}
	}
}

// findRunes finds the characters of a class, one by one.
func findRunes(in func(rune) bool) finder {
	return func(text string, match func(start, end int) error) error {
		for i, r := range text {
			if in(r) {
				if err := match(i, i+utf8.RuneLen(r)); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// splitPattern is a Pattern of tokenizer.json: a plain string or a regular
// expression.
type splitPattern struct {
	String *string `json:"String"`
	Regex  *string `json:"Regex"`
}

// newFinder returns a finder for the pattern.
func (p splitPattern) newFinder() (finder, error) {
	switch {
	case p.String != nil && p.Regex != nil, p.String == nil && p.Regex == nil:
		return nil, errors.New("pattern: want either a String or a Regex")
	case p.String != nil && *p.String == "":
		return nil, errors.New("pattern: want a non-empty String")
	case p.String != nil:
		return findString(*p.String), nil
	}
	re, err := onig.Compile(*p.Regex)
	if err != nil {
		return nil, fmt.Errorf("pattern: %w", err)
	}
	return re.Each, nil
}

// parseSplit reads a Split. The patterns of the models in wide use have scanners of
// their own, which are several times as fast.
func parseSplit(raw json.RawMessage) (splitter, error) {
	var c struct {
		Type     string       `json:"type"`
		Pattern  splitPattern `json:"pattern"`
		Behavior behavior     `json:"behavior"`
		Invert   bool         `json:"invert"`
	}
	if err := decodeStrict(raw, &c); err != nil {
		return nil, err
	}
	if err := c.Behavior.checkKnown(); err != nil {
		return nil, err
	}
	if c.Pattern.Regex != nil && c.Pattern.String == nil {
		if *c.Pattern.Regex == threeDigits && c.Behavior == isolated && !c.Invert {
			return threeDigitSplit{}, nil
		}
		// These match everything, so that keeping the matches and dropping what
		// lies between is the same as keeping both.
		if next, ok := splitPatterns[*c.Pattern.Regex]; ok && (c.Behavior == isolated || c.Behavior == removed && c.Invert) {
			return patternSplit{next}, nil
		}
	}
	find, err := c.Pattern.newFinder()
	return findSplit{find, c.Behavior, c.Invert, c.Pattern.Regex != nil}, err
}

// alphabetSplit cuts bytes where a splitter cuts ByteLevel's characters for
// them: what comes after ByteLevel in a file sees those.
type alphabetSplit struct{ inner splitter }

func (s alphabetSplit) split(p piece, yield func(piece) error) error {
	var written strings.Builder
	place := make([]int, 0, len(p.text)+len(p.text)/4+1) // by byte of written: that of the text
	for i := range len(p.text) {
		n, _ := written.WriteRune(byteRunes[p.text[i]])
		for range n {
			place = append(place, i)
		}
	}
	place = append(place, len(p.text))
	return s.inner.split(piece{text: written.String()}, func(q piece) error {
		start, end := place[q.at], place[q.at+len(q.text)]
		return yield(piece{p.text[start:end], p.at + start})
	})
}
