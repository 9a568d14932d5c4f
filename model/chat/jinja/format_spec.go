package jinja

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// formatSpec is how a value is written: [[fill]align][sign][#][0][width][,][.precision][type].
type formatSpec struct {
	fill      string
	align     byte // < > = ^ or 0
	sign      byte // + - space or 0
	zero      bool // numbers are filled between sign and digits
	alternate bool
	width     int
	grouping  byte // , _ or 0
	precision int  // -1: none
	kind      byte // or 0
}

// parseSpec reads a format specification of str.format.
func parseSpec(s string) (f formatSpec, err error) {
	whole := s
	f = formatSpec{precision: -1}
	if _, n := utf8.DecodeRuneInString(s); n > 0 && n < len(s) && strings.IndexByte("<>=^", s[n]) >= 0 {
		f.fill, f.align, s = s[:n], s[n], s[n+1:]
	} else if s != "" && strings.IndexByte("<>=^", s[0]) >= 0 {
		f.align, s = s[0], s[1:]
	}
	next := func(set string) byte {
		if s == "" || strings.IndexByte(set, s[0]) < 0 {
			return 0
		}
		c := s[0]
		s = s[1:]
		return c
	}
	if c := next("+- "); c != 0 {
		f.sign = c
	}
	f.alternate = next("#") != 0
	if f.fill == "" {
		f.fill = " "
		if next("0") != 0 {
			f.fill, f.zero = "0", f.align == 0
		}
	}
	if f.width, s, err = leadingNumber(s); err != nil {
		return f, err
	}
	f.grouping = next(",_")
	if next(".") != 0 {
		if f.precision, s, err = leadingNumber(s); err != nil {
			return f, err
		}
	}
	f.kind = next("bcdeEfFgGnosxX%")
	if s != "" {
		return f, fmt.Errorf("found the format specification %s, want one of Python's", quoted(whole))
	}
	return f, f.check()
}

// check refuses what does not go together.
func (f formatSpec) check() error {
	switch {
	case f.grouping == ',' && strings.IndexByte("bcnosxX", f.kind) >= 0 && f.kind != 0, f.grouping == '_' && strings.IndexByte("cns", f.kind) >= 0 && f.kind != 0:
		return fmt.Errorf("found a format with %q and %q, which do not go together", f.grouping, f.kind)
	case f.kind == 'c' && (f.sign != 0 || f.alternate || f.precision >= 0):
		return errors.New("found a format of a character with a sign, a precision or #")
	}
	return nil
}

// leadingNumber reads the digits that s starts with; 0 if there are none.
func leadingNumber(s string) (n int, rest string, err error) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	if i == 0 {
		return 0, s, nil
	}
	if n, err = strconv.Atoi(s[:i]); err != nil || n > math.MaxInt32 {
		return 0, "", fmt.Errorf("found the width %s, want less", quoted(s[:i]))
	}
	return n, s[i:], nil
}

// formatted is format(v, spec).
func (r *run) formatted(v value, f formatSpec) (string, error) {
	if err := r.charge(max(f.width, 0) + max(f.precision, 0)); err != nil {
		return "", err
	}
	switch v := v.(type) {
	case string, markup:
		s, _ := text(v)
		if f.kind != 0 && f.kind != 's' || f.align == '=' || f.sign != 0 || f.alternate || f.grouping != 0 {
			return "", errors.New("found the format of a number for a string")
		}
		if f.precision >= 0 {
			s = substring(s, 0, min(f.precision, utf8.RuneCountInString(s)))
		}
		return r.aligned("", s, f, '<')
	case bool, int64, *big.Int:
		return r.formatInt(v, f)
	case float64:
		return r.formatFloat(v, f)
	}
	if f.kind != 0 || f.width > 0 || f.precision >= 0 || f.align != 0 {
		return "", fmt.Errorf("found a format specification for a value of type %s, want none", typeName(v))
	}
	return r.str(v)
}

// signed is the sign of a number, as the specification wants it.
func (f formatSpec) signed(negative bool) string {
	switch {
	case negative:
		return "-"
	case f.sign == '-' || f.sign == 0:
		return ""
	}
	return string(f.sign)
}

func (r *run) formatInt(v value, f formatSpec) (string, error) {
	i, _ := asBig(v)
	base, prefix := 10, ""
	switch f.kind {
	case 'b':
		base, prefix = 2, "0b"
	case 'o':
		base, prefix = 8, "0o"
	case 'x', 'X':
		base, prefix = 16, "0"+string(f.kind)
	case 'c':
		if !i.IsInt64() || i.Int64() < 0 || i.Int64() > utf8.MaxRune {
			return "", fmt.Errorf("found the number %s for a character", quoted(i.String()))
		}
		return r.aligned("", string(rune(i.Int64())), f, '>')
	case 'e', 'E', 'f', 'F', 'g', 'G', '%':
		x, _ := asFloat(v)
		return r.formatFloat(x, f)
	case 's':
		return "", errors.New("found the format of a string for an integer")
	}
	if f.precision >= 0 {
		return "", fmt.Errorf("found a precision for an integer")
	}
	if i.BitLen() > maxDigits*10/3 {
		return "", fmt.Errorf("found an integer of more than %d digits to print", maxDigits)
	}
	digits := new(big.Int).Abs(i).Text(base)
	if f.kind == 'X' {
		digits = strings.ToUpper(digits)
	}
	if !f.alternate {
		prefix = ""
	}
	size := 3
	if base != 10 {
		size = 4
	}
	return r.aligned(f.signed(i.Sign() < 0)+prefix, grouped(digits, f.grouping, size), f, '>')
}

func grouped(digits string, by byte, size int) string {
	if by == 0 {
		return digits
	}
	var b strings.Builder
	for i := range digits {
		if i > 0 && (len(digits)-i)%size == 0 {
			b.WriteByte(by)
		}
		b.WriteByte(digits[i])
	}
	return b.String()
}

func (r *run) formatFloat(x float64, f formatSpec) (string, error) {
	if strings.IndexByte("bcdosxX", f.kind) >= 0 && f.kind != 0 {
		return "", fmt.Errorf("found the format %q for a float", f.kind)
	}
	s := f.floatDigits(math.Abs(x))
	head := f.signed(math.Signbit(x) && !math.IsNaN(x))
	if f.grouping != 0 && s[0] >= '0' && s[0] <= '9' {
		end := strings.IndexAny(s, ".eE%")
		if end < 0 {
			end = len(s)
		}
		s = grouped(s[:end], f.grouping, 3) + s[end:]
	}
	return r.aligned(head, s, f, '>')
}

// floatDigits writes a float that is not negative.
func (f formatSpec) floatDigits(x float64) string {
	kind, precision, percent := f.kind, f.precision, ""
	if kind == '%' {
		kind, percent, x = 'f', "%", x*100
	}
	switch {
	case math.IsNaN(x):
		return caseOf(kind, "nan") + percent
	case math.IsInf(x, 0):
		return caseOf(kind, "inf") + percent
	case kind == 0 && precision < 0:
		return reprFloat(x)
	}
	if precision < 0 {
		precision = 6
	}
	switch kind {
	case 'f', 'F':
		s := strconv.FormatFloat(x, 'f', precision, 64)
		if precision == 0 && f.alternate {
			s += "."
		}
		return s + percent
	case 'e', 'E':
		s := strconv.FormatFloat(x, kind, precision, 64)
		if precision == 0 && f.alternate {
			s = s[:1] + "." + s[1:]
		}
		return s
	}
	return general(x, max(precision, 1), kind, f.alternate)
}

func caseOf(kind byte, s string) string {
	if kind >= 'A' && kind <= 'Z' {
		return strings.ToUpper(s)
	}
	return s
}

// general is the formats g, G, n and none: few digits, with an exponent where there
// would be more.
func general(x float64, precision int, kind byte, alternate bool) string {
	s := strconv.FormatFloat(x, 'e', precision-1, 64)
	at := strings.IndexByte(s, 'e')
	exponent, _ := strconv.Atoi(s[at+1:])
	limit := precision
	if kind == 0 {
		limit = precision - 1 // as repr, there is a digit after the point
	}
	mantissa, tail := s[:at], s[at:]
	if exponent >= -4 && exponent < limit {
		mantissa, tail = strconv.FormatFloat(x, 'f', max(precision-1-exponent, 0), 64), ""
	}
	if alternate && !strings.Contains(mantissa, ".") {
		mantissa += "."
	} else if !alternate && strings.Contains(mantissa, ".") {
		mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
	}
	if kind == 0 && tail == "" && !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	return mantissa + caseOf(kind, tail)
}

// aligned fills a number or string up to its width; head is its sign and prefix.
func (r *run) aligned(head, s string, f formatSpec, usual byte) (string, error) {
	align := f.align
	if align == 0 {
		align = usual
		if f.zero && usual == '>' {
			align = '='
		}
	}
	n := max(0, f.width-utf8.RuneCountInString(head)-utf8.RuneCountInString(s))
	if err := r.charge(product(n, len(f.fill)) + len(s)); err != nil {
		return "", err
	}
	fill := func(n int) string { return strings.Repeat(f.fill, n) }
	switch align {
	case '<':
		return head + s + fill(n), nil
	case '^':
		return fill(n/2) + head + s + fill(n-n/2), nil
	case '=':
		if f.grouping != 0 && f.fill == "0" {
			f.width -= len(head)
			return head + groupedZeros(s, f), nil
		}
		return head + fill(n) + s, nil
	}
	return fill(n) + head + s, nil
}

// groupedZeros fills with zeros that are grouped like digits.
func groupedZeros(s string, f formatSpec) string {
	end := strings.IndexAny(s, ".eE%")
	if end < 0 {
		end = len(s)
	}
	digits := strings.ReplaceAll(s[:end], string(f.grouping), "")
	out := grouped(digits, f.grouping, 3)
	for len(out)+len(s[end:]) < f.width {
		digits = "0" + digits
		out = grouped(digits, f.grouping, 3)
	}
	return out + s[end:]
}
