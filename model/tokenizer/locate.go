package tokenizer

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Locate finds the tokens of parts of a text: of each part, in bytes [from, to), the smallest range of tokens that holds all of it. ids
// are the text's tokens. Where these give another text (of normalised characters, or a space in front), tokens that begin or end with a
// part alike, encoded by itself, tell how far the range may reach: it may then have some tokens more.
func (t *Tokenizer) Locate(text string, ids []int32, parts [][2]int) (tokens [][2]int, err error) {
	starts, whole := t.starts(text, ids)
	for _, part := range parts {
		var found [2]int
		switch {
		case part[0] >= part[1]:
		case whole:
			found = [2]int{firstAfter(starts, part[0]) - 1, firstAt(starts, part[1])}
		default:
			if found, err = t.around(text, ids, part); err != nil {
				return nil, err
			}
		}
		tokens = append(tokens, found)
	}
	return tokens, nil
}

// starts are where in the text each token begins, tokens of one character where that does, and behind them the end; whole is false
// where the tokens give another text.
func (t *Tokenizer) starts(text string, ids []int32) (starts []int, whole bool) {
	stream, at := t.NewStream(false), 0
	for _, id := range ids {
		starts = append(starts, at)
		said := stream.Push(id)
		if !strings.HasPrefix(text[at:], said) {
			if !t.special[id] { // else one that stands around the text
				return nil, false
			}
			continue
		}
		at += len(said)
	}
	return append(starts, at), at == len(text)
}

// firstAfter is the first place of a start behind the byte.
func firstAfter(starts []int, at int) int {
	i, _ := slices.BinarySearchFunc(starts, at, func(start, at int) int {
		if start <= at {
			return -1
		}
		return 1
	})
	// tokens of one character begin together: the range has all of them
	for i > 1 && starts[i-2] == starts[i-1] {
		i--
	}
	return i
}

// firstAt is the first place of a start at the byte or behind it.
func firstAt(starts []int, at int) int {
	i, _ := slices.BinarySearchFunc(starts, at, func(start, at int) int { return cmp.Compare(start, at) })
	return i
}

// around is the range of tokens between those that the text before a part begins with and those that the text behind it ends with.
func (t *Tokenizer) around(text string, ids []int32, part [2]int) (found [2]int, err error) {
	for part[0] > 0 && !utf8.RuneStart(text[part[0]]) { // whole characters
		part[0]--
	}
	for part[1] < len(text) && !utf8.RuneStart(text[part[1]]) {
		part[1]++
	}
	before, err := t.Encode(text[:part[0]], false)
	if err != nil {
		return found, err
	}
	behind, err := t.Encode(text[part[1]:], false)
	if err != nil {
		return found, err
	}
	for found[0] < min(len(before), len(ids)) && before[found[0]] == ids[found[0]] {
		found[0]++
	}
	n := 0
	for n < min(len(behind), len(ids)-found[0]) && behind[len(behind)-1-n] == ids[len(ids)-1-n] {
		n++
	}
	found[1] = len(ids) - n
	return found, nil
}
