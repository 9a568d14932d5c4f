package chat

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/exec"
)

// The methods of Python's str, list and dict. Those of gonja that templates use
// differ in what arguments they need (replace without a count), in defaults
// (strip removes only spaces), and in the order of a dict's keys.

var stringMethods = func() map[string]exec.Method[string] {
	set := map[string]exec.Method[string]{
		"startswith": func(s string, _ *exec.Value, p *exec.VarArgs) (any, error) { return affix(s, p, strings.HasPrefix) },
		"endswith":   func(s string, _ *exec.Value, p *exec.VarArgs) (any, error) { return affix(s, p, strings.HasSuffix) },
		"strip":      func(s string, _ *exec.Value, p *exec.VarArgs) (any, error) { return strip(s, p, true, true) },
		"lstrip":     func(s string, _ *exec.Value, p *exec.VarArgs) (any, error) { return strip(s, p, true, false) },
		"rstrip":     func(s string, _ *exec.Value, p *exec.VarArgs) (any, error) { return strip(s, p, false, true) },
		"split":      func(s string, _ *exec.Value, p *exec.VarArgs) (any, error) { return split(s, p, false) },
		"rsplit":     func(s string, _ *exec.Value, p *exec.VarArgs) (any, error) { return split(s, p, true) },
		"partition":  func(s string, _ *exec.Value, p *exec.VarArgs) (any, error) { return partition(s, p, false) },
		"rpartition": func(s string, _ *exec.Value, p *exec.VarArgs) (any, error) { return partition(s, p, true) },
		"replace":    replace,
		"join":       join,
		"find":       func(s string, _ *exec.Value, p *exec.VarArgs) (any, error) { return find(s, p, strings.Index) },
		"rfind":      func(s string, _ *exec.Value, p *exec.VarArgs) (any, error) { return find(s, p, strings.LastIndex) },
		"item_at": func(s string, _ *exec.Value, p *exec.VarArgs) (any, error) {
			runes := []rune(s)
			i, err := index(p, len(runes))
			if err != nil || i < 0 {
				return nil, err
			}
			return string(runes[i]), nil
		},
	}
	for _, name := range []string{
		"capitalize", "casefold", "count", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "islower", "isnumeric",
		"isspace", "istitle", "isupper", "lower", "removeprefix", "removesuffix", "splitlines", "swapcase", "title", "upper",
	} {
		set[name] = builtin(builtins.Methods.Str.Get(name))
	}
	return set
}()

var listMethods = map[string]exec.Method[[]any]{
	"append":  builtin(builtins.Methods.List.Get("append")),
	"reverse": builtin(builtins.Methods.List.Get("reverse")),
	"copy":    builtin(builtins.Methods.List.Get("copy")),
	"item_at": func(_ []any, self *exec.Value, p *exec.VarArgs) (any, error) {
		i, err := index(p, self.Len())
		if err != nil || i < 0 {
			return nil, err
		}
		return self.Index(i).Interface(), nil
	},
}

var dictMethods = map[string]exec.Method[map[string]any]{
	"items": func(_ map[string]any, self *exec.Value, _ *exec.VarArgs) (any, error) {
		pairs, _ := members(self)
		return items(pairs), nil
	},
	"keys": func(_ map[string]any, self *exec.Value, _ *exec.VarArgs) (any, error) {
		pairs, _ := members(self)
		l := make(list, len(pairs))
		for i, p := range pairs {
			l[i] = p.Key.Interface()
		}
		return l, nil
	},
	"values": func(_ map[string]any, self *exec.Value, _ *exec.VarArgs) (any, error) {
		pairs, _ := members(self)
		l := make(list, len(pairs))
		for i, p := range pairs {
			l[i] = p.Value.Interface()
		}
		return l, nil
	},
	"get": func(_ map[string]any, self *exec.Value, p *exec.VarArgs) (any, error) {
		if len(p.Args) < 1 || len(p.Args) > 2 || len(p.KwArgs) > 0 {
			return nil, fmt.Errorf("get: %d arguments, want 1 or 2", len(p.Args)+len(p.KwArgs))
		}
		if v, found := self.GetItem(p.Args[0].Interface()); found {
			return v.Interface(), nil
		}
		if len(p.Args) == 2 {
			return p.Args[1].Interface(), nil
		}
		return nil, nil
	},
}

// index reads the argument of item_at: the place of an element, or -1.
func index(p *exec.VarArgs, n int) (int, error) {
	if len(p.Args) != 1 || !p.Args[0].IsInteger() {
		return 0, fmt.Errorf("item_at: want one integer")
	}
	i := p.Args[0].Integer()
	if i < 0 {
		i += n
	}
	if i < 0 || i >= n {
		return -1, nil
	}
	return i, nil
}

// stringArgs returns up to n arguments, which must be strings.
func stringArgs(p *exec.VarArgs, least, most int) ([]string, error) {
	if len(p.KwArgs) > 0 || len(p.Args) < least || len(p.Args) > most {
		return nil, fmt.Errorf("%d arguments, want %d to %d without names", len(p.Args)+len(p.KwArgs), least, most)
	}
	args := make([]string, len(p.Args))
	for i, a := range p.Args {
		if !a.IsString() {
			return nil, fmt.Errorf("argument %d is not a string", i+1)
		}
		args[i] = a.String()
	}
	return args, nil
}

// affix takes a string or a tuple of strings, as startswith and endswith do.
func affix(s string, p *exec.VarArgs, has func(s, affix string) bool) (bool, error) {
	if len(p.Args) != 1 {
		return false, fmt.Errorf("%d arguments, want 1", len(p.Args))
	}
	a := p.Args[0]
	if a.IsString() {
		return has(s, a.String()), nil
	}
	if !a.IsList() {
		return false, fmt.Errorf("want a string or a tuple of strings")
	}
	for i := range a.Len() {
		item := a.Index(i)
		if !item.IsString() {
			return false, fmt.Errorf("want a string or a tuple of strings")
		}
		if has(s, item.String()) {
			return true, nil
		}
	}
	return false, nil
}

// strip removes white space, or the characters given, from the ends.
func strip(s string, p *exec.VarArgs, left, right bool) (string, error) {
	cut := isPythonSpace
	given := p.Args
	if chars, ok := p.KwArgs["chars"]; ok {
		given = append(given[:len(given):len(given)], chars)
	}
	if len(given) > 1 {
		return "", fmt.Errorf("%d arguments, want at most 1", len(given))
	}
	if len(given) == 1 && !given[0].IsNil() {
		if !given[0].IsString() {
			return "", fmt.Errorf("the characters to strip are not a string")
		}
		chars := given[0].String()
		cut = func(r rune) bool { return strings.ContainsRune(chars, r) }
	}
	if left {
		s = strings.TrimLeftFunc(s, cut)
	}
	if right {
		s = strings.TrimRightFunc(s, cut)
	}
	return s, nil
}

// isPythonSpace is str.isspace: white space, and the four separators of ASCII.
func isPythonSpace(r rune) bool {
	return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f
}

// split cuts at a separator, or at runs of white space, at most so many times.
func split(s string, p *exec.VarArgs, fromRight bool) (list, error) {
	var separator *exec.Value
	most := -1
	args := map[string]*exec.Value{}
	for i, a := range p.Args {
		if i > 1 {
			return nil, fmt.Errorf("split: %d arguments, want at most 2", len(p.Args))
		}
		args[[]string{"sep", "maxsplit"}[i]] = a
	}
	for name, a := range p.KwArgs {
		args[name] = a
	}
	for name, a := range args {
		switch {
		case name == "sep":
			separator = a
		case name == "maxsplit" && a.IsInteger():
			most = a.Integer()
		default:
			return nil, fmt.Errorf("split: argument %s", name)
		}
	}
	if separator == nil || separator.IsNil() {
		return toList(splitSpace(s, most, fromRight)), nil
	}
	sep := separator.String()
	if !separator.IsString() || sep == "" {
		return nil, fmt.Errorf("split: want a separator that is a string and not empty")
	}
	if most < 0 {
		return toList(strings.Split(s, sep)), nil
	}
	if !fromRight {
		return toList(strings.SplitN(s, sep, most+1)), nil
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
	parts = append(parts, s)
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return toList(parts), nil
}

// splitSpace cuts at runs of white space.
func splitSpace(s string, most int, fromRight bool) []string {
	all := strings.FieldsFunc(s, isPythonSpace)
	if most < 0 || len(all) <= most {
		return all
	}
	// The rest keeps its inner white space.
	var parts []string
	if fromRight {
		for range most {
			s = strings.TrimRightFunc(s, isPythonSpace)
			i := strings.LastIndexFunc(s, isPythonSpace)
			_, n := utf8.DecodeRuneInString(s[i:])
			parts = append([]string{s[i+n:]}, parts...)
			s = s[:i]
		}
		return append([]string{strings.TrimRightFunc(s, isPythonSpace)}, parts...)
	}
	for range most {
		s = strings.TrimLeftFunc(s, isPythonSpace)
		i := strings.IndexFunc(s, isPythonSpace)
		parts = append(parts, s[:i])
		s = s[i:]
	}
	return append(parts, strings.TrimLeftFunc(s, isPythonSpace))
}

// partition cuts in three at the first or the last separator.
func partition(s string, p *exec.VarArgs, last bool) (list, error) {
	args, err := stringArgs(p, 1, 1)
	if err != nil {
		return nil, fmt.Errorf("partition: %w", err)
	}
	i := strings.Index(s, args[0])
	if last {
		i = strings.LastIndex(s, args[0])
	}
	switch {
	case args[0] == "":
		return nil, fmt.Errorf("partition: the separator is empty")
	case i >= 0:
		return list{s[:i], args[0], s[i+len(args[0]):]}, nil
	case last:
		return list{"", "", s}, nil
	}
	return list{s, "", ""}, nil
}

func replace(s string, _ *exec.Value, p *exec.VarArgs) (any, error) {
	most := -1
	strs := *p
	if len(p.Args) == 3 {
		if !p.Args[2].IsInteger() {
			return nil, fmt.Errorf("replace: count is not an integer")
		}
		most = p.Args[2].Integer()
		strs.Args = p.Args[:2]
	}
	args, err := stringArgs(&strs, 2, 2)
	if err != nil {
		return nil, fmt.Errorf("replace: %w", err)
	}
	if n := strings.Count(s, args[0]); len(s)+n*(len(args[1])-len(args[0])) > maxVariable {
		return nil, fmt.Errorf("replace: the result is longer than %d MB", maxVariable>>20)
	}
	return strings.Replace(s, args[0], args[1], most), nil
}

func join(s string, _ *exec.Value, p *exec.VarArgs) (any, error) {
	if len(p.Args) != 1 || !p.Args[0].IsIterable() {
		return nil, fmt.Errorf("join: want one list of strings")
	}
	var parts []string
	var err error
	p.Args[0].Iterate(func(_, _ int, item, _ *exec.Value) bool {
		if !item.IsString() {
			err = fmt.Errorf("join: %s is not a string", shorten(item.String()))
			return false
		}
		parts = append(parts, item.String())
		return true
	}, func() {})
	return strings.Join(parts, s), err
}

// find returns the place of a substring in characters, or -1.
func find(s string, p *exec.VarArgs, search func(s, part string) int) (int, error) {
	args, err := stringArgs(p, 1, 1)
	if err != nil {
		return 0, fmt.Errorf("find: %w", err)
	}
	i := search(s, args[0])
	if i < 0 {
		return -1, nil
	}
	return utf8.RuneCountInString(s[:i]), nil
}
