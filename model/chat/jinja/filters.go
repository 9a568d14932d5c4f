package jinja

import (
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

type filterFunc func(r *run, v value, a *arguments) value

// filters are Jinja's filters that chat templates have a use for.
var filters map[string]filterFunc

func init() {
	filters = map[string]filterFunc{
		"abs": filterAbs, "attr": filterAttr, "batch": filterBatch, "capitalize": ofText(cased(capitalize)), "count": filterLength,
		"d": filterDefault, "default": filterDefault, "dictsort": filterDictSort, "e": filterEscape, "escape": filterEscape,
		"first": filterFirst, "float": filterFloat, "format": filterFormat, "indent": filterIndent, "int": filterInt, "items": filterItems,
		"join": filterJoin, "last": filterLast, "length": filterLength, "list": filterList, "lower": ofText(cased(lower)),
		"map": filterMap, "max": extreme(1), "min": extreme(-1), "reject": choose(false, false), "rejectattr": choose(true, false),
		"replace": filterReplace, "reverse": filterReverse, "round": filterRound, "safe": filterSafe, "select": choose(false, true),
		"selectattr": choose(true, true), "sort": filterSort, "string": filterString, "sum": filterSum, "title": ofText(cased(titleWords)),
		"tojson": toJSON, "trim": ofText(strip(true, true)), "unique": filterUnique, "upper": ofText(cased(upper)),
	}
}

// ofMarkup are the filters that take text marked as safe; what others make of it is not supported.
var ofMarkup = map[string]bool{"count": true, "d": true, "default": true, "e": true, "escape": true, "length": true, "safe": true, "string": true, "tojson": true}

func (r *run) filter(name string, v value, a *arguments) value {
	f := filters[name]
	if f == nil {
		return r.failWith("the filter %s is not supported", quoted(name))
	}
	if isType[markup](v) && !ofMarkup[name] {
		return r.failWith("the filter %s of text marked as safe is not supported", name)
	}
	out := f(r, v, a)
	r.err = namedError("filter "+name, r.err)
	return out
}

// ofText is the filter that calls a method of the text of a value.
func ofText(m stringFunc) filterFunc {
	return func(r *run, v value, a *arguments) value {
		s := r.str(v)
		if !r.scan(len(s)) {
			return nil
		}
		return m(r, s, a)
	}
}

var wordStart = regexp.MustCompile(`[-` + spaces + `({\[<]*[^-` + spaces + `({\[<]*`)

// titleWords is the filter title, where only some characters start words.
func titleWords(s string) string {
	return wordStart.ReplaceAllStringFunc(s, func(word string) string {
		first := strings.TrimLeftFunc(word, func(c rune) bool { return isSpace(c) || strings.ContainsRune("-({[<", c) })
		n := len(word) - len(first)
		for i := range first {
			if i > 0 {
				return word[:n] + upper(first[:i]) + lower(first[i:])
			}
		}
		return word[:n] + upper(first)
	})
}

func filterString(r *run, v value, a *arguments) value {
	a.bindParameters(r)
	if isType[markup](v) {
		return v
	}
	return r.str(v)
}

func filterSafe(r *run, v value, a *arguments) value {
	a.bindParameters(r)
	return markup(r.str(v))
}

var escaper = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")

// escaped is text as HTML, unless it is.
func escaped(v value) markup {
	if s, ok := v.(string); ok {
		return markup(escaper.Replace(s))
	}
	return v.(markup)
}

func filterEscape(r *run, v value, a *arguments) value {
	a.bindParameters(r)
	if !isType[markup](v) {
		v = r.str(v)
	}
	s := escaped(v)
	r.charge(len(s))
	return s
}

func filterReplace(r *run, v value, a *arguments) value {
	args := a.bindParameters(r, "old", "new", "count?")
	most := -1
	if isSet(args[2]) {
		most = r.intArg(args[2], -1)
	}
	return r.replace(r.str(v), r.str(args[0]), r.str(args[1]), most)
}

func filterFormat(r *run, v value, a *arguments) value {
	if len(a.names) > 0 {
		return r.failWith("arguments by name are not supported")
	}
	return r.printf(r.str(v), a.args)
}

func filterIndent(r *run, v value, a *arguments) value {
	args := a.bindParameters(r, "width?", "first?", "blank?")
	by, s := r.indentation(args[0], 4), r.stringArg(v)
	lines := splitLines(s+"\n", false)
	if !r.charge(len(s) + product(len(lines), len(by)+itemCost)) {
		return nil
	}
	for i, l := range lines {
		if i == 0 && flag(args[1]) || i > 0 && (l != "" || flag(args[2])) {
			lines[i] = by + l
		}
	}
	return strings.Join(lines, "\n")
}

func filterDefault(r *run, v value, a *arguments) value {
	args := a.bindParameters(r, "default_value?", "boolean?")
	if !isType[*undefined](v) && (!flag(args[1]) || truth(v)) {
		return v
	}
	if !given(args[0]) {
		return ""
	}
	return args[0]
}

func filterAttr(r *run, v value, a *arguments) value {
	name := r.stringArg(a.bindParameters(r, "name")[0])
	if u, ok := v.(*undefined); ok {
		return u.failUse(r)
	}
	return r.ownAttr(v, name)
}

func filterAbs(r *run, v value, a *arguments) value {
	a.bindParameters(r)
	f, ok := asFloat(v)
	switch i, isInt := asInt(v); {
	case !ok:
		return r.failWith("found a value of type %s, want a number", typeName(v))
	case isInt && i < 0:
		return r.integers("-", 0, i)
	case isInt:
		return i
	}
	return math.Abs(f)
}

var (
	integerText = regexp.MustCompile(`^[+-]?\d+(?:_\d+)*$`)
	floatText   = regexp.MustCompile(`^(?i)[+-]?(?:(?:\d+(?:_\d+)*)?\.?(?:\d+(?:_\d+)*)?(?:e[+-]?\d+(?:_\d+)*)?|inf|infinity|nan)$`)
)

// parseFloat is float(s).
func parseFloat(s string) (float64, bool) {
	s = strings.TrimFunc(s, isSpace)
	if !floatText.MatchString(s) {
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	return f, err == nil || math.IsInf(f, 0)
}

func filterInt(r *run, v value, a *arguments) value {
	otherwise := a.bindParameters(r, "default?")[0]
	if !given(otherwise) {
		otherwise = int64(0)
	}
	f, isNumber := asFloat(v)
	switch v := v.(type) {
	case *undefined:
		return v.failUse(r)
	case int64, bool:
		i, _ := asInt(v)
		return i
	case *big.Int:
		return v
	case string:
		if !r.scan(len(v)) {
			return nil
		}
		if s := strings.TrimFunc(v, isSpace); integerText.MatchString(s) {
			i, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
			if err != nil {
				return r.failWith("found %s: integers that large are not supported", quoted(s))
			}
			return i
		}
		f, isNumber = parseFloat(v)
	}
	switch {
	case !isNumber || math.IsNaN(f) || math.IsInf(f, 0):
		return otherwise
	case math.Abs(f) >= 1<<62:
		return r.failWith("found %g: integers that large are not supported", f)
	}
	return int64(f)
}

func filterFloat(r *run, v value, a *arguments) value {
	otherwise := a.bindParameters(r, "default?")[0]
	f, ok := asFloat(v)
	switch v := v.(type) {
	case *undefined:
		return v.failUse(r)
	case string:
		f, ok = parseFloat(v)
	}
	if !ok && given(otherwise) {
		return otherwise
	}
	return f
}

func filterRound(r *run, v value, a *arguments) value {
	args := a.bindParameters(r, "precision?", "method?")
	precision := r.intArg(args[0], 0)
	method := "common"
	if given(args[1]) {
		method = r.stringArg(args[1])
	}
	f, ok := asFloat(v)
	scale := math.Pow10(precision)
	switch i, isInt := asInt(v); {
	case !ok:
		return r.failWith("found a value of type %s, want a number", typeName(v))
	case precision < 0 || precision > 15:
		return r.failWith("the precision %d is not supported", precision)
	case method == "ceil":
		return math.Ceil(f*scale)/scale + 0 // Python's have no -0
	case method == "floor":
		return math.Floor(f*scale)/scale + 0
	case method != "common":
		return r.failWith("found the method %s, want common, ceil or floor", quoted(method))
	case isInt:
		return i
	}
	out, err := strconv.ParseFloat(strconv.FormatFloat(f, 'f', precision, 64), 64)
	if err != nil {
		return f
	}
	return out
}
