package jinja

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ofText is a filter of text: markup stays markup, other values become text.
func ofText(name string, f func(s string) string) filterFunc {
	return func(r *run, v value, a *arguments) (value, error) {
		if _, err := a.bind(name); err != nil {
			return nil, err
		}
		s, err := r.str(v)
		if err != nil {
			return nil, err
		}
		if err := r.chargeCase(s); err != nil {
			return nil, err
		}
		return like(v, f(s)), nil
	}
}

func filterTitle(r *run, v value, a *arguments) (value, error) {
	out, err := ofText("title", titleWords)(r, v, a)
	if s, ok := text(out); ok {
		return s, err
	}
	return out, err
}

func filterTrim(r *run, v value, a *arguments) (value, error) {
	args, err := a.bind("trim", "chars?")
	if err != nil {
		return nil, err
	}
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	if err := r.scan(len(s)); err != nil {
		return nil, err
	}
	s, err = r.strip("trim", s, args[0], true, true)
	return like(v, s), err
}

func filterEscape(r *run, v value, a *arguments) (value, error) {
	if _, err := a.bind("escape"); err != nil {
		return nil, err
	}
	if _, ok := v.(markup); ok {
		return v, nil
	}
	return filterForceEscape(r, v, a)
}

func filterForceEscape(r *run, v value, a *arguments) (value, error) {
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	s, err = r.escape(s)
	return markup(s), err
}

func filterSafe(r *run, v value, a *arguments) (value, error) {
	if _, err := a.bind("safe"); err != nil {
		return nil, err
	}
	s, err := r.str(v)
	return markup(s), err
}

func filterReplace(r *run, v value, a *arguments) (value, error) {
	args, err := a.bind("replace", "old", "new", "count?")
	if err != nil {
		return nil, err
	}
	var texts [3]string
	for i, x := range []value{v, args[0], args[1]} {
		if texts[i], err = r.str(x); err != nil {
			return nil, err
		}
	}
	most := -1
	if set(args[2]) {
		if most, err = intArg("replace", args[2], -1); err != nil {
			return nil, err
		}
	}
	return r.replace(texts[0], texts[1], texts[2], most)
}

func filterCenter(r *run, v value, a *arguments) (value, error) {
	args, err := a.bind("center", "width?")
	if err != nil {
		return nil, err
	}
	width, err := intArg("center", args[0], 80)
	if err != nil {
		return nil, err
	}
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	s, err = r.pad(s, width, " ", 2)
	return like(v, s), err
}

func filterIndent(r *run, v value, a *arguments) (value, error) {
	args, err := a.bind("indent", "width?", "first?", "blank?")
	if err != nil {
		return nil, err
	}
	s, err := stringArg("indent", v)
	if err != nil {
		return nil, err
	}
	by, ok := text(args[0])
	if !ok {
		width, err := intArg("indent", args[0], 4)
		if err != nil {
			return nil, err
		}
		if err := r.charge(max(width, 0)); err != nil {
			return nil, err
		}
		by = strings.Repeat(" ", max(width, 0))
	}
	var flags [2]bool
	for i, x := range args[1:] {
		if given(x) {
			if flags[i], err = r.truth(x); err != nil {
				return nil, err
			}
		}
	}
	lines := splitLines(s+"\n", false)
	if err := r.charge(len(s) + product(len(lines), len(by)+itemCost)); err != nil {
		return nil, err
	}
	for i, l := range lines {
		if i == 0 && flags[0] || i > 0 && (l != "" || flags[1]) {
			lines[i] = by + l
		}
	}
	return like(v, strings.Join(lines, "\n")), nil
}

func filterTruncate(r *run, v value, a *arguments) (value, error) {
	args, err := a.bind("truncate", "length?", "killwords?", "end?", "leeway?")
	if err != nil {
		return nil, err
	}
	length, err := intArg("length", args[0], 255)
	if err != nil {
		return nil, err
	}
	end := "..."
	if given(args[2]) {
		if end, err = stringArg("end", args[2]); err != nil {
			return nil, err
		}
	}
	leeway := 5
	if set(args[3]) {
		if leeway, err = intArg("leeway", args[3], 5); err != nil {
			return nil, err
		}
	}
	tail := utf8.RuneCountInString(end)
	if length < tail || leeway < 0 {
		return nil, fmt.Errorf("found the length %d and the leeway %d, want at least %d and 0", length, leeway, tail)
	}
	if n, err := r.length(v); err != nil || n <= length || n-length <= leeway {
		return v, err
	}
	s, err := stringArg("truncate", v)
	if err != nil {
		return nil, err
	}
	s = substring(s, 0, length-tail)
	kill := false
	if given(args[1]) {
		if kill, err = r.truth(args[1]); err != nil {
			return nil, err
		}
	}
	if i := strings.LastIndexByte(s, ' '); i >= 0 && !kill {
		s = s[:i]
	}
	return r.joined([]string{s, end}, "")
}

func filterWordCount(r *run, v value, a *arguments) (value, error) {
	if _, err := a.bind("wordcount"); err != nil {
		return nil, err
	}
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	n, inWord := 0, false
	for _, c := range s {
		isWord := c == '_' || unicode.IsLetter(c) || unicode.Is(unicode.N, c)
		if isWord && !inWord {
			n++
		}
		inWord = isWord
	}
	return int64(n), r.charge(len(s))
}

func filterFormat(r *run, v value, a *arguments) (value, error) {
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	switch {
	case len(a.names) > 0 && len(a.args) > 0:
		return nil, errors.New("found arguments with and without a name, want one kind")
	case len(a.names) > 0:
		d := newDict(len(a.names))
		for i, name := range a.names {
			if err := d.set(r, name, a.named[i]); err != nil {
				return nil, err
			}
		}
		return r.printf(s, d)
	}
	return r.printf(s, newTuple(a.args...))
}

func filterURLEncode(r *run, v value, a *arguments) (value, error) {
	if _, err := a.bind("urlencode"); err != nil {
		return nil, err
	}
	quote := func(v value, query bool) (string, error) {
		s, err := r.str(v)
		if err != nil {
			return "", err
		}
		if err := r.charge(3 * len(s)); err != nil {
			return "", err
		}
		s = url.QueryEscape(s)
		if !query {
			s = strings.ReplaceAll(strings.ReplaceAll(s, "+", "%20"), "%2F", "/")
		}
		return s, nil
	}
	var pairs value
	switch v := v.(type) {
	case *dict:
		pairs = &dictView{"dict_items", v}
	case *list, *iterator, *dictView:
		pairs = v
	default:
		return quote(v, false)
	}
	items, err := r.collect(pairs)
	if err != nil {
		return nil, err
	}
	var parts []string
	for _, item := range items {
		pair, err := r.unpack(item, 2)
		if err != nil {
			return nil, err
		}
		key, err := quote(pair[0], true)
		if err != nil {
			return nil, err
		}
		val, err := quote(pair[1], true)
		if err != nil {
			return nil, err
		}
		parts = append(parts, key+"="+val)
	}
	return r.joined(parts, "&")
}
