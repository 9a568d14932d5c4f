package jinja

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

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
