package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// stringFunc is a method of a string.
type stringFunc func(r *run, s string, a *arguments) value

var stringMethods map[string]stringFunc

func init() {
	stringMethods = map[string]stringFunc{
		"upper": cased(upper), "lower": cased(lower), "title": cased(title), "capitalize": cased(capitalize),
		"strip": strip(true, true), "lstrip": strip(true, false), "rstrip": strip(false, true),
		"split": split(strings.SplitN, splitSpace), "rsplit": split(splitRight, nil), "splitlines": splitlines,
		"partition": partition(strings.Index, false), "rpartition": partition(strings.LastIndex, true),
		"startswith": affix(strings.HasPrefix), "endswith": affix(strings.HasSuffix),
		"removeprefix": trim(strings.TrimPrefix), "removesuffix": trim(strings.TrimSuffix),
		"find": search(strings.Index, false), "rfind": search(strings.LastIndex, false), "index": search(strings.Index, true),
		"count": func(r *run, s string, a *arguments) value {
			return int64(strings.Count(s, r.stringArg(a.bindParameters(r, "sub")[0])))
		},
		"replace": func(r *run, s string, a *arguments) value {
			args := a.bindParameters(r, "old", "new", "count?")
			return r.replace(s, r.stringArg(args[0]), r.stringArg(args[1]), r.intArg(args[2], -1))
		},
		"join": func(r *run, s string, a *arguments) value {
			items := r.iterate(a.bindParameters(r, "iterable")[0])
			for i, item := range items {
				if !isType[string](item) {
					return r.failWith("found an element %d of type %s, want strings", i, typeName(item))
				}
			}
			return r.joined(items, s)
		},
		"format":  func(r *run, s string, a *arguments) value { return r.format(s, a) },
		"isdigit": every(unicode.IsDigit), "isspace": every(isSpace), "isalpha": every(unicode.IsLetter),
		"isalnum": every(func(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) }),
		"isupper": oneCase(unicode.IsUpper), "islower": oneCase(unicode.IsLower),
	}
}

// isSpace is str.isspace: white space, and the four separators of ASCII.
func isSpace(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }

// isCased tells whether a character is a capital, a small or a title letter.
func isCased(c rune) bool { return unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c) }

// cased changes the letters of a string.
func cased(change func(s string) string) stringFunc {
	return func(r *run, s string, a *arguments) value {
		a.bindParameters(r)
		if !r.charge(product(charCost, len(s))) {
			return nil
		}
		return change(s)
	}
}

func upper(s string) string { return cases.Upper(language.Und).String(s) }

func lower(s string) string { return cases.Lower(language.Und).String(s) }

// capitalize is str.capitalize. All is lowered at once, as what a sigma becomes depends on what is before it.
func capitalize(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return cases.Title(language.Und, cases.NoLower).String(s[:n]) + strings.TrimPrefix(lower(s), lower(s[:n]))
}

// title is str.title, where a word is any run of letters that have cases.
func title(s string) string {
	var b strings.Builder
	for s != "" {
		n := strings.IndexFunc(s, isCased)
		if n < 0 {
			n = len(s)
		}
		b.WriteString(s[:n])
		s = s[n:]
		if n = strings.IndexFunc(s, func(c rune) bool { return !isCased(c) }); n < 0 {
			n = len(s)
		}
		b.WriteString(capitalize(s[:n]))
		s = s[n:]
	}
	return b.String()
}

// every tells whether there are characters, and all are of a kind. Digits such as ² are not told
// from other numbers.
func every(is func(c rune) bool) stringFunc {
	return func(r *run, s string, a *arguments) value {
		a.bindParameters(r)
		if strings.ContainsFunc(s, func(c rune) bool { return unicode.Is(unicode.No, c) }) {
			return r.failWith("asking for the kind of the characters of %s is not supported", quoted(s))
		}
		return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return !is(c) })
	}
}

// oneCase tells whether there are letters that have cases, and all are of one.
func oneCase(is func(c rune) bool) stringFunc {
	return func(r *run, s string, a *arguments) value {
		a.bindParameters(r)
		return strings.ContainsFunc(s, is) && !strings.ContainsFunc(s, func(c rune) bool { return isCased(c) && !is(c) })
	}
}

// strip removes white space, or the characters given, from the ends.
func strip(left, right bool) stringFunc {
	return func(r *run, s string, a *arguments) value {
		return r.strip(s, a.bindParameters(r, "chars?")[0], left, right)
	}
}

func (r *run) strip(s string, chars value, left, right bool) string {
	cut := isSpace
	if isSet(chars) {
		set := r.stringArg(chars)
		if !r.charge(product(len(s), len(set)) / scanRate) {
			return ""
		}
		cut = func(c rune) bool { return strings.ContainsRune(set, c) }
	}
	if left {
		s = strings.TrimLeftFunc(s, cut)
	}
	if right {
		s = strings.TrimRightFunc(s, cut)
	}
	return s
}

// texts makes a list of the parts that a string was cut into.
func (r *run) texts(parts []string) value {
	if !r.chargeItems(len(parts)) {
		return nil
	}
	items := make([]value, len(parts))
	for i, p := range parts {
		items[i] = p
	}
	return newList(items)
}

// split cuts at a separator, or at runs of white space, at most so many times.
func split(at func(s, sep string, parts int) []string, atSpace func(s string, most int) []string) stringFunc {
	return func(r *run, s string, a *arguments) value {
		args := a.bindParameters(r, "sep?", "maxsplit?")
		most := r.intArg(args[1], -1)
		if most < 0 || most > len(s) {
			most = len(s) + 1
		}
		if !r.chargeItems(len(s) / 8) {
			return nil
		}
		if !isSet(args[0]) && atSpace == nil {
			return r.failWith("cutting at white space from the right is not supported")
		}
		if !isSet(args[0]) {
			return r.texts(atSpace(s, most))
		}
		sep := r.stringArg(args[0])
		if sep == "" {
			return r.failWith("found an empty separator")
		}
		return r.texts(at(s, sep, most+1))
	}
}

// splitRight is strings.SplitN from the right.
func splitRight(s, sep string, n int) []string {
	var parts []string
	for ; n > 1; n-- {
		i := strings.LastIndex(s, sep)
		if i < 0 {
			break
		}
		parts = append(parts, s[i+len(sep):])
		s = s[:i]
	}
	parts = append(parts, s)
	slices.Reverse(parts)
	return parts
}

// splitSpace cuts at runs of white space. What is left over keeps its own inside.
func splitSpace(s string, most int) []string {
	var parts []string
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

func splitlines(r *run, s string, a *arguments) value {
	return r.texts(splitLines(s, flag(a.bindParameters(r, "keepends?")[0])))
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

// partition cuts in three at a separator; the whole is on the far side of one that is not there.
func partition(index func(s, sep string) int, right bool) stringFunc {
	return func(r *run, s string, a *arguments) value {
		sep := r.stringArg(a.bindParameters(r, "sep")[0])
		i := index(s, sep)
		switch {
		case sep == "":
			return r.failWith("found an empty separator")
		case i >= 0:
			return newTuple(s[:i], sep, s[i+len(sep):])
		case right:
			return newTuple("", "", s)
		}
		return newTuple(s, "", "")
	}
}

// affix tells whether a string starts or ends with another, or one of a tuple.
func affix(has func(s, part string) bool) stringFunc {
	return func(r *run, s string, a *arguments) value {
		parts := a.bindParameters(r, "affix")
		if t, ok := parts[0].(*list); ok && t.kind == kindTuple {
			parts = t.items
		}
		return slices.ContainsFunc(parts, func(part value) bool { return has(s, r.stringArg(part)) })
	}
}

func trim(f func(s, part string) string) stringFunc {
	return func(r *run, s string, a *arguments) value {
		return f(s, r.stringArg(a.bindParameters(r, "affix")[0]))
	}
}

// search finds a part, by characters; -1 or an error if it is not there.
func search(index func(s, part string) int, must bool) stringFunc {
	return func(r *run, s string, a *arguments) value {
		i := index(s, r.stringArg(a.bindParameters(r, "sub")[0]))
		if i >= 0 {
			return int64(utf8.RuneCountInString(s[:i]))
		}
		if must {
			return r.failWith("the substring is not there")
		}
		return int64(-1)
	}
}

// replace puts new for old, at most so many times if most is not negative.
func (r *run) replace(s, old, new string, most int) string {
	n := strings.Count(s, old)
	if most >= 0 {
		n = min(n, most)
	}
	if !r.scan(len(s)) || n > 0 && !r.charge(len(s)) || !r.charge(product(n, len(new))) {
		return ""
	}
	return strings.Replace(s, old, new, n)
}
