package jinja

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// stringMethod calls a method of a string. What it makes of markup is markup.
func (r *run) stringMethod(v value, name string, m stringFunc, a *arguments) (value, error) {
	s, _ := text(v)
	if err := r.charge(callCost); err != nil {
		return nil, err
	}
	if err := r.scan(len(s)); err != nil {
		return nil, err
	}
	if _, html := v.(markup); html {
		return r.markupMethod(s, name, m, a)
	}
	out, err := m(r, s, a)
	if err != nil {
		return nil, within(name, err)
	}
	return out, nil
}

func (r *run) markupMethod(s, name string, m stringFunc, a *arguments) (value, error) {
	if name == "replace" || name == "join" || name == "format" {
		escaped := &arguments{names: a.names}
		for i, v := range a.args {
			if t, ok := v.(string); ok && !(name == "replace" && i == 0) {
				t, err := r.escape(t)
				if err != nil {
					return nil, err
				}
				v = t
			}
			escaped.args = append(escaped.args, v)
		}
		for _, v := range a.named {
			if t, ok := v.(string); ok {
				t, err := r.escape(t)
				if err != nil {
					return nil, err
				}
				v = t
			}
			escaped.named = append(escaped.named, v)
		}
		if name == "join" && len(a.args) == 1 {
			items, err := r.collect(a.args[0])
			if err != nil {
				return nil, err
			}
			parts := make([]value, len(items))
			for i, item := range items {
				if parts[i] = item; typeName(item) == "str" {
					if parts[i], err = r.escape(item.(string)); err != nil {
						return nil, err
					}
				}
			}
			escaped.args[0] = newList(parts)
		}
		a = escaped
	}
	out, err := m(r, s, a)
	if err != nil {
		return nil, within(name, err)
	}
	switch out := out.(type) {
	case string:
		return markup(out), nil
	case *list:
		for i, item := range out.items {
			out.items[i] = markup(item.(string)) // the parts of s
		}
	}
	return out, nil
}

var escaper = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")

// escape makes HTML of text.
func (r *run) escape(s string) (string, error) {
	out := escaper.Replace(s)
	return out, r.charge(len(out))
}

// isSpace is str.isspace: white space, and the four separators of ASCII.
func isSpace(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }

// strip removes white space, or the characters given, from the ends.
func strip(name string, left, right bool) stringFunc {
	return func(r *run, s string, a *arguments) (value, error) {
		args, err := a.bind(name, "chars?")
		if err != nil {
			return nil, err
		}
		return r.strip(name, s, args[0], left, right)
	}
}

func (r *run) strip(name, s string, chars value, left, right bool) (string, error) {
	cut := isSpace
	if set(chars) {
		set, err := stringArg(name, chars)
		if err != nil {
			return "", err
		}
		if err := r.charge(product(len(s), len(set)) / scanRate); err != nil {
			return "", err
		}
		cut = func(c rune) bool { return strings.ContainsRune(set, c) }
	}
	if left {
		s = strings.TrimLeftFunc(s, cut)
	}
	if right {
		s = strings.TrimRightFunc(s, cut)
	}
	return s, nil
}

// parts makes a list of what a string was cut into.
func (r *run) parts(parts []string) (*list, error) {
	if err := r.chargeItems(len(parts)); err != nil {
		return nil, err
	}
	items := make([]value, len(parts))
	for i, p := range parts {
		items[i] = p
	}
	return newList(items), nil
}

// split cuts at a separator, or at runs of white space, at most so many times.
func split(name string, fromRight bool) stringFunc {
	return func(r *run, s string, a *arguments) (value, error) {
		args, err := a.bind(name, "sep?", "maxsplit?")
		if err != nil {
			return nil, err
		}
		most, err := intArg(name, args[1], -1)
		if err != nil {
			return nil, err
		}
		if most < 0 || most > len(s) {
			most = len(s) + 1
		}
		if err := r.chargeItems(len(s) / 8); err != nil {
			return nil, err
		}
		if !set(args[0]) {
			return r.parts(splitSpace(s, most, fromRight))
		}
		sep, err := stringArg(name, args[0])
		switch {
		case err != nil:
			return nil, err
		case sep == "":
			return nil, errors.New("found an empty separator")
		case !fromRight:
			return r.parts(strings.SplitN(s, sep, most+1))
		}
		var parts []string
		for ; most > 0; most-- {
			i := strings.LastIndex(s, sep)
			if i < 0 {
				break
			}
			parts = append(parts, s[i+len(sep):])
			s = s[:i]
		}
		return r.parts(turned(append(parts, s)))
	}
}

func turned(parts []string) []string {
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return parts
}

// splitSpace cuts at runs of white space. What is left over keeps its own inside.
func splitSpace(s string, most int, fromRight bool) []string {
	var parts []string
	if fromRight {
		for {
			s = strings.TrimRightFunc(s, isSpace)
			i := strings.LastIndexFunc(s, isSpace)
			if i < 0 || len(parts) == most {
				if s != "" {
					parts = append(parts, s)
				}
				return turned(parts)
			}
			_, n := utf8.DecodeRuneInString(s[i:])
			parts = append(parts, s[i+n:])
			s = s[:i]
		}
	}
	for {
		s = strings.TrimLeftFunc(s, isSpace)
		i := strings.IndexFunc(s, isSpace)
		if i < 0 || len(parts) == most {
			if s != "" {
				parts = append(parts, s)
			}
			return parts
		}
		parts = append(parts, s[:i])
		s = s[i:]
	}
}

// splitLines cuts at all that Python takes for the end of a line.
func splitLines(s string, keep bool) []string {
	var parts []string
	for s != "" {
		i := strings.IndexFunc(s, func(c rune) bool {
			return c >= '\n' && c <= '\r' || c >= 0x1c && c <= 0x1e || c == 0x85 || c == 0x2028 || c == 0x2029
		})
		if i < 0 {
			return append(parts, s)
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			n = 2
		}
		if keep {
			parts = append(parts, s[:i+n])
		} else {
			parts = append(parts, s[:i])
		}
		s = s[i+n:]
	}
	return parts
}

// partition cuts in three at the first or the last separator.
func partition(name string, last bool) stringFunc {
	return func(_ *run, s string, a *arguments) (value, error) {
		args, err := a.bind(name, "sep")
		if err != nil {
			return nil, err
		}
		sep, err := stringArg(name, args[0])
		if err != nil {
			return nil, err
		}
		i := strings.Index(s, sep)
		if last {
			i = strings.LastIndex(s, sep)
		}
		switch {
		case sep == "":
			return nil, errors.New("found an empty separator")
		case i >= 0:
			return newTuple(s[:i], sep, s[i+len(sep):]), nil
		case last:
			return newTuple("", "", s), nil
		}
		return newTuple(s, "", ""), nil
	}
}

// replace puts new for old, at most so many times if most is not negative.
func (r *run) replace(s, old, new string, most int) (string, error) {
	n := strings.Count(s, old)
	if most >= 0 {
		n = min(n, most)
	}
	if err := r.scan(len(s)); err != nil {
		return "", err
	}
	if err := r.charge(product(n, len(new))); err != nil {
		return "", err
	}
	if n == 0 {
		return s, nil
	}
	return strings.Replace(s, old, new, n), r.charge(len(s))
}

// search finds a part in s[start:end], by characters; -1 if it is not there.
func (r *run) search(name, s string, a *arguments, index func(s, part string) int) (int, error) {
	part, from, to, err := r.window(name, s, a)
	if err != nil {
		return 0, err
	}
	if from > to {
		return -1, nil
	}
	i := index(s[from:to], part)
	if i < 0 {
		return -1, nil
	}
	return utf8.RuneCountInString(s[:from+i]), nil
}

// window reads the arguments (part, start, end) of a search; from and to are bytes.
func (r *run) window(name, s string, a *arguments) (part string, from, to int, err error) {
	args, err := a.bind(name, "sub", "start?", "end?")
	if err != nil {
		return "", 0, 0, err
	}
	if part, err = stringArg(name, args[0]); err != nil {
		return "", 0, 0, err
	}
	from, to, err = windowBounds(s, args[1], args[2])
	return part, from, to, err
}

func windowBounds(s string, start, end value) (from, to int, err error) {
	bounds := [3]value{}
	if set(start) {
		bounds[0] = start
	}
	if set(end) {
		bounds[1] = end
	}
	if bounds[0] == nil && bounds[1] == nil {
		return 0, len(s), nil
	}
	n := utf8.RuneCountInString(s)
	if i, ok := asInt(bounds[0]); ok && i > n { // finds nothing, not even ""
		return len(s) + 1, len(s), nil
	}
	first, _, _, count, err := sliceBounds(bounds, n)
	if err != nil {
		return 0, 0, fmt.Errorf("found bounds that are no integers")
	}
	from = len(substring(s, 0, first))
	if stop, ok := asInt(bounds[1]); ok && count == 0 {
		if stop < 0 {
			stop += n
		}
		if max(stop, 0) < first {
			return len(s) + 1, len(s), nil
		}
	}
	return from, from + len(substring(s, first, count)), nil
}
