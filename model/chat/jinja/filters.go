package jinja

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type filterFunc func(r *run, v value, a *arguments) (value, error)

// filters are those of Jinja, but for those that make HTML or need chance: pprint,
// random, striptags, urlize, wordwrap, xmlattr.
var filters map[string]filterFunc

func init() {
	filters = map[string]filterFunc{
		"abs": filterAbs, "attr": filterAttr, "batch": filterBatch, "capitalize": ofText("capitalize", capitalize), "center": filterCenter,
		"count": filterLength, "d": filterDefault, "default": filterDefault, "dictsort": filterDictSort, "e": filterEscape,
		"escape": filterEscape, "filesizeformat": filterFileSize, "first": filterFirst, "float": filterFloat, "forceescape": filterForceEscape,
		"format": filterFormat, "groupby": filterGroupBy, "indent": filterIndent, "int": filterInt, "items": filterItems, "join": filterJoin,
		"last": filterLast, "length": filterLength, "list": filterList, "lower": ofText("lower", lower), "map": filterMap,
		"max": extreme("max", ">"), "min": extreme("min", "<"), "reject": choose(false, false), "rejectattr": choose(true, false),
		"replace": filterReplace, "reverse": filterReverse, "round": filterRound, "safe": filterSafe, "select": choose(false, true),
		"selectattr": choose(true, true), "slice": filterSlice, "sort": filterSort, "string": ofText("string", func(s string) string { return s }),
		"sum": filterSum, "title": filterTitle, "tojson": toJSON, "trim": filterTrim, "truncate": filterTruncate, "unique": filterUnique,
		"upper": ofText("upper", upper), "urlencode": filterURLEncode, "wordcount": filterWordCount,
	}
}

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

func filterAbs(_ *run, v value, a *arguments) (value, error) {
	if _, err := a.bind("abs"); err != nil {
		return nil, err
	}
	if f, ok := v.(float64); ok {
		return math.Abs(f), nil
	}
	i, ok := asBig(v)
	if !ok {
		return nil, fmt.Errorf("found a value of type %s, want a number", typeName(v))
	}
	return integer(new(big.Int).Abs(i)), nil
}

func filterInt(r *run, v value, a *arguments) (value, error) {
	args, err := a.bind("int", "default?", "base?")
	if err != nil {
		return nil, err
	}
	base, err := intArg("base", args[1], 10)
	if err != nil {
		return nil, err
	}
	var otherwise value = int64(0)
	if given(args[0]) {
		otherwise = args[0]
	}
	switch v := v.(type) {
	case *undefined:
		return nil, v.fail()
	case float64:
		return truncated(v, otherwise), nil
	case string, markup:
		s, _ := text(v)
		if err := r.scan(len(s)); err != nil {
			return nil, err
		}
		if i, ok := parseInt(s, base); ok {
			return integer(i), nil
		}
		if f, ok := parseFloat(s); ok {
			return truncated(f, otherwise), nil
		}
		return otherwise, nil
	}
	if i, ok := asBig(v); ok {
		return integer(i), nil
	}
	return otherwise, nil
}

// truncated is a float as an integer, if it is one.
func truncated(f float64, otherwise value) value {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return otherwise
	}
	i, _ := big.NewFloat(f).Int(nil)
	return integer(i)
}

// parseInt is int(s, base).
func parseInt(s string, base int) (*big.Int, bool) {
	s = strings.TrimFunc(s, isSpace)
	if len(s) > maxDigits || strings.HasSuffix(s, "_") || strings.Contains(s, "__") || strings.HasPrefix(s, "_") {
		return nil, false
	}
	sign := ""
	if s != "" && (s[0] == '-' || s[0] == '+') {
		sign, s = s[:1], s[1:]
	}
	if len(s) > 1 && s[0] == '0' {
		if b, ok := map[byte]int{'x': 16, 'o': 8, 'b': 2}[s[1]|0x20]; ok && (b == base || base == 0) {
			s, base = strings.TrimPrefix(s[2:], "_"), b
		}
	}
	if s == "" || s[0] == '-' || s[0] == '+' || s[0] == '_' || base < 2 || base > 36 {
		return nil, false
	}
	return new(big.Int).SetString(sign+strings.ReplaceAll(s, "_", ""), base)
}

var floatText = regexp.MustCompile(`^(?i)[+-]?(?:(?:\d+(?:_\d+)*)?\.?(?:\d+(?:_\d+)*)?(?:e[+-]?\d+(?:_\d+)*)?|inf|infinity|nan)$`)

// parseFloat is float(s).
func parseFloat(s string) (float64, bool) {
	s = strings.TrimFunc(s, isSpace)
	if !floatText.MatchString(s) {
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	return f, err == nil || errors.Is(err, strconv.ErrRange)
}

func filterFloat(_ *run, v value, a *arguments) (value, error) {
	args, err := a.bind("float", "default?")
	if err != nil {
		return nil, err
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	if f, ok := asFloat(v); ok {
		return f, nil
	}
	if s, ok := text(v); ok {
		if f, ok := parseFloat(s); ok {
			return f, nil
		}
	}
	if given(args[0]) {
		return args[0], nil
	}
	return 0.0, nil
}

func filterRound(_ *run, v value, a *arguments) (value, error) {
	args, err := a.bind("round", "precision?", "method?")
	if err != nil {
		return nil, err
	}
	precision, err := intArg("precision", args[0], 0)
	if err != nil {
		return nil, err
	}
	method := "common"
	if given(args[1]) {
		method, _ = args[1].(string)
	}
	f, ok := asFloat(v)
	if !ok {
		return nil, fmt.Errorf("found a value of type %s, want a number", typeName(v))
	}
	if precision < -400 || precision > 400 {
		return nil, fmt.Errorf("found the precision %d, want less", precision)
	}
	switch method {
	case "common":
		if i, ok := asBig(v); ok {
			return integer(roundInt(i, precision)), nil
		}
		return roundFloat(f, precision), nil
	case "ceil", "floor":
		scale := math.Pow(10, math.Abs(float64(precision)))
		whole := math.Floor
		if method == "ceil" {
			whole = math.Ceil
		}
		if precision < 0 {
			scale = 1 / scale
		}
		n := whole(f * scale)
		if n == 0 {
			n = 0 // Python's are integers, which have no -0
		}
		return n / scale, nil
	}
	return nil, fmt.Errorf("found the method %s, want common, ceil or floor", quoted(method))
}

// roundFloat rounds the exact value of f to digits after the point, halves to even.
func roundFloat(f float64, digits int) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return f
	}
	if digits >= 0 {
		out, err := strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
		if err != nil {
			return f
		}
		return out
	}
	exact, _ := new(big.Rat).SetString(strconv.FormatFloat(f, 'f', -1, 64))
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-digits)), nil)
	exact.Quo(exact, new(big.Rat).SetInt(scale))
	whole, _ := new(big.Int).SetString(exact.FloatString(0), 10)
	if exact.Sub(exact, new(big.Rat).SetInt(whole)).Abs(exact).Cmp(big.NewRat(1, 2)) == 0 && whole.Bit(0) == 1 {
		whole.Sub(whole, big.NewInt(int64(whole.Sign()))) // FloatString rounds halves away from zero
	}
	out, _ := new(big.Float).SetInt(whole.Mul(whole, scale)).Float64()
	return math.Copysign(out, f)
}

// roundInt rounds to a power of ten, halves to even.
func roundInt(i *big.Int, digits int) *big.Int {
	if digits >= 0 {
		return i
	}
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-digits)), nil)
	q, rest := new(big.Int).DivMod(i, scale, new(big.Int))
	switch c := rest.Lsh(rest, 1).Cmp(scale); {
	case c > 0, c == 0 && q.Bit(0) == 1:
		q.Add(q, big.NewInt(1))
	}
	return q.Mul(q, scale)
}

func filterFileSize(_ *run, v value, a *arguments) (value, error) {
	args, err := a.bind("filesizeformat", "binary?")
	if err != nil {
		return nil, err
	}
	n, ok := asFloat(v)
	if s, isText := text(v); isText {
		n, ok = parseFloat(s)
	}
	if !ok {
		return nil, fmt.Errorf("found a value of type %s, want a number", typeName(v))
	}
	base, units := 1000.0, []string{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"}
	if given(args[0]) && args[0] == true {
		base, units = 1024, []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}
	}
	switch {
	case n == 1:
		return "1 Byte", nil
	case n < base:
		return fmt.Sprintf("%d Bytes", int64(n)), nil
	}
	unit := base
	for i, name := range units {
		unit *= base
		if n < unit || i == len(units)-1 {
			return strconv.FormatFloat(base*n/unit, 'f', 1, 64) + " " + name, nil
		}
	}
	return nil, nil
}
