package jinja

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// stringFunc is a method of strings.
type stringFunc func(r *run, s string, a *arguments) (value, error)

// noArgs is a method without arguments.
func noArgs(name string, f func(s string) value) stringFunc {
	return func(r *run, s string, a *arguments) (value, error) {
		if _, err := a.bind(name); err != nil {
			return nil, err
		}
		if err := r.chargeCase(s); err != nil {
			return nil, err
		}
		return f(s), nil
	}
}

var stringMethods map[string]stringFunc

func init() {
	stringMethods = map[string]stringFunc{
		"strip": strip("strip", true, true), "lstrip": strip("lstrip", true, false), "rstrip": strip("rstrip", false, true),
		"split": split("split", false), "rsplit": split("rsplit", true),
		"partition": partition("partition", false), "rpartition": partition("rpartition", true),
		"splitlines": func(r *run, s string, a *arguments) (value, error) {
			args, err := a.bind("splitlines", "keepends?")
			if err != nil {
				return nil, err
			}
			keep := false
			if given(args[0]) {
				if keep, err = r.truth(args[0]); err != nil {
					return nil, err
				}
			}
			return r.parts(splitLines(s, keep))
		},
		"replace": func(r *run, s string, a *arguments) (value, error) {
			args, err := a.bind("replace", "old", "new", "count?")
			if err != nil {
				return nil, err
			}
			old, err := stringArg("replace", args[0])
			if err != nil {
				return nil, err
			}
			new, err := stringArg("replace", args[1])
			if err != nil {
				return nil, err
			}
			most, err := intArg("replace", args[2], -1)
			if err != nil {
				return nil, err
			}
			return r.replace(s, old, new, most)
		},
		"join": func(r *run, s string, a *arguments) (value, error) {
			args, err := a.bind("join", "iterable")
			if err != nil {
				return nil, err
			}
			items, err := r.collect(args[0])
			if err != nil {
				return nil, err
			}
			if err := r.chargeItems(len(items)); err != nil {
				return nil, err
			}
			parts := make([]string, len(items))
			for i, item := range items {
				if parts[i], err = stringArg("join", item); err != nil {
					return nil, err
				}
			}
			return r.joined(parts, s)
		},
		"startswith": affix("startswith", strings.HasPrefix), "endswith": affix("endswith", strings.HasSuffix),
		"removeprefix": oneString("removeprefix", func(s, part string) value { return strings.TrimPrefix(s, part) }),
		"removesuffix": oneString("removesuffix", func(s, part string) value { return strings.TrimSuffix(s, part) }),
		"find":         found("find", strings.Index), "rfind": found("rfind", strings.LastIndex),
		"index": found("index", strings.Index), "rindex": found("rindex", strings.LastIndex),
		"count": func(r *run, s string, a *arguments) (value, error) {
			part, from, to, err := r.window("count", s, a)
			if err != nil || from > to {
				return int64(0), err
			}
			return int64(strings.Count(s[from:to], part)), nil
		},
		"upper": noArgs("upper", func(s string) value { return upper(s) }), "lower": noArgs("lower", func(s string) value { return lower(s) }),
		"title": noArgs("title", func(s string) value { return title(s) }), "capitalize": noArgs("capitalize", func(s string) value { return capitalize(s) }),
		"swapcase": noArgs("swapcase", func(s string) value { return swapCase(s) }), "casefold": noArgs("casefold", func(s string) value { return fold(s) }),
		"isalpha": every("isalpha", unicode.IsLetter), "isdecimal": every("isdecimal", isDecimal), "isdigit": every("isdigit", isDigit),
		"isnumeric": every("isnumeric", isNumeric), "isalnum": every("isalnum", func(c rune) bool { return unicode.IsLetter(c) || isNumeric(c) }),
		"isspace": every("isspace", isSpace),
		"isascii": noArgs("isascii", func(s string) value { return strings.IndexFunc(s, func(c rune) bool { return c >= utf8.RuneSelf }) < 0 }),
		"isprintable": noArgs("isprintable", func(s string) value {
			return strings.IndexFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) < 0
		}),
		"isupper": noArgs("isupper", func(s string) value { return isCased(s, upperCased) }),
		"islower": noArgs("islower", func(s string) value { return isCased(s, lowerCased) }),
		"istitle": noArgs("istitle", func(s string) value { return isTitle(s) }),
		"isidentifier": noArgs("isidentifier", func(s string) value {
			for i, c := range s {
				if c != '_' && !unicode.IsLetter(c) && (i == 0 || !unicode.In(c, unicode.Nd, unicode.Mn, unicode.Mc)) {
					return false
				}
			}
			return s != ""
		}),
		"center": padded("center", 2), "ljust": padded("ljust", 0), "rjust": padded("rjust", 1),
		"zfill": func(r *run, s string, a *arguments) (value, error) {
			args, err := a.bind("zfill", "width")
			if err != nil {
				return nil, err
			}
			width, err := intArg("zfill", args[0], 0)
			if err != nil {
				return nil, err
			}
			fill := max(0, width-utf8.RuneCountInString(s))
			if err := r.charge(fill); err != nil {
				return nil, err
			}
			sign := ""
			if s != "" && (s[0] == '+' || s[0] == '-') {
				sign, s = s[:1], s[1:]
			}
			return sign + strings.Repeat("0", fill) + s, r.charge(len(s))
		},
		"expandtabs": func(r *run, s string, a *arguments) (value, error) {
			args, err := a.bind("expandtabs", "tabsize?")
			if err != nil {
				return nil, err
			}
			size, err := intArg("expandtabs", args[0], 8)
			if err != nil {
				return nil, err
			}
			return r.expandTabs(s, size)
		},
		"format": func(r *run, s string, a *arguments) (value, error) { return r.format(s, a) },
		"format_map": func(r *run, s string, a *arguments) (value, error) {
			args, err := a.bind("format_map", "mapping")
			if err != nil {
				return nil, err
			}
			d, ok := args[0].(*dict)
			if !ok {
				return nil, fmt.Errorf("found an argument of type %s, want a dict", typeName(args[0]))
			}
			named := &arguments{}
			for i, key := range d.keys {
				if name, ok := key.(string); ok {
					named.names, named.named = append(named.names, name), append(named.named, d.vals[i])
				}
			}
			return r.format(s, named)
		},
	}
}

// affix takes a string or a tuple of strings, and bounds.
func affix(name string, has func(s, affix string) bool) stringFunc {
	return func(r *run, s string, a *arguments) (value, error) {
		args, err := a.bind(name, "affix", "start?", "end?")
		if err != nil {
			return nil, err
		}
		from, to, err := windowBounds(s, args[1], args[2])
		if err != nil {
			return nil, err
		}
		options := []value{args[0]}
		if l, ok := args[0].(*list); ok && l.tuple {
			options = l.items
		}
		for _, o := range options {
			part, err := stringArg(name, o)
			if err != nil {
				return nil, err
			}
			if err := r.scan(len(part)); err != nil {
				return nil, err
			}
			if from <= to && has(s[from:to], part) {
				return true, nil
			}
		}
		return false, nil
	}
}

func oneString(name string, f func(s, part string) value) stringFunc {
	return func(_ *run, s string, a *arguments) (value, error) {
		args, err := a.bind(name, "part")
		if err != nil {
			return nil, err
		}
		part, err := stringArg(name, args[0])
		if err != nil {
			return nil, err
		}
		return f(s, part), nil
	}
}

// found is find, or index, for which it is an error to find nothing.
func found(name string, index func(s, part string) int) stringFunc {
	return func(r *run, s string, a *arguments) (value, error) {
		i, err := r.search(name, s, a, index)
		if err == nil && i < 0 && strings.HasSuffix(name, "index") {
			err = errors.New("the part is not in the string")
		}
		return int64(i), err
	}
}

func every(name string, is func(c rune) bool) stringFunc {
	return noArgs(name, func(s string) value {
		return s != "" && strings.IndexFunc(s, func(c rune) bool { return !is(c) }) < 0
	})
}

// padded fills up to a width: on the right, on the left, or on both sides.
func padded(name string, side int) stringFunc {
	return func(r *run, s string, a *arguments) (value, error) {
		args, err := a.bind(name, "width", "fillchar?")
		if err != nil {
			return nil, err
		}
		width, err := intArg(name, args[0], 0)
		if err != nil {
			return nil, err
		}
		fill := " "
		if given(args[1]) {
			if fill, err = stringArg(name, args[1]); err != nil {
				return nil, err
			}
			if utf8.RuneCountInString(fill) != 1 {
				return nil, fmt.Errorf("found %s to fill with, want one character", quoted(fill))
			}
		}
		return r.pad(s, width, fill, side)
	}
}

func (r *run) pad(s string, width int, fill string, side int) (string, error) {
	n := max(0, width-utf8.RuneCountInString(s))
	if err := r.charge(product(n, len(fill))); err != nil {
		return "", err
	}
	left := 0
	switch side {
	case 1:
		left = n
	case 2:
		left = n/2 + n&width&1 // as CPython does
	}
	return strings.Repeat(fill, left) + s + strings.Repeat(fill, n-left), r.charge(len(s))
}

func (r *run) expandTabs(s string, size int) (string, error) {
	var b strings.Builder
	column := 0
	for _, c := range s {
		switch c {
		case '\t':
			if size > 0 {
				n := size - column%size
				if err := r.charge(n); err != nil {
					return "", err
				}
				b.WriteString(strings.Repeat(" ", n))
				column += n
			}
		case '\n', '\r':
			column = 0
			b.WriteRune(c)
		default:
			column++
			b.WriteRune(c)
		}
	}
	return b.String(), r.charge(len(s))
}
