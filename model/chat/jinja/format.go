package jinja

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// conversion is one of a format of the operator "%".
var conversion = regexp.MustCompile(`^%(-?\d{0,3})(\.\d{1,2})?([sdif])`)

// printf is s % args, of the conversions s, d, i and f.
func (r *run) printf(s string, args []value) value {
	var b strings.Builder
	used := 0
	for s != "" && r.charge(nodeCost) {
		i := strings.IndexByte(s, '%')
		if i < 0 {
			break
		}
		b.WriteString(s[:i])
		s = s[i:]
		if strings.HasPrefix(s, "%%") {
			b.WriteByte('%')
			s = s[2:]
			continue
		}
		m := conversion.FindStringSubmatch(s)
		if m == nil || m[2] != "" && (m[3] == "d" || m[3] == "i") || m[3] == "s" && strings.HasPrefix(strings.TrimPrefix(m[1], "-"), "0") {
			return r.failWith("the conversion %s is not supported", quoted(s[:min(len(s), 8)]))
		}
		if used == len(args) {
			return r.failWith("found %d arguments, want one for each conversion of the format", len(args))
		}
		v := args[used]
		used++
		f, isNumber := asFloat(v)
		n, isInt := asInt(v)
		var shown string
		switch {
		case m[3] == "s":
			shown = fmt.Sprintf("%"+m[1]+m[2]+"s", r.str(v))
		case !isNumber || math.IsNaN(f) || math.IsInf(f, 0) || m[3] != "f" && !isInt && math.Abs(f) >= 1<<62:
			return r.failWith("found a value of type %s for %%%s, want a number", typeName(v), m[3])
		case m[3] == "f":
			shown = fmt.Sprintf("%"+m[1]+m[2]+"f", f)
		default:
			if !isInt {
				n = int64(f)
			}
			shown = fmt.Sprintf("%"+m[1]+m[2]+"d", n)
		}
		if !r.charge(len(shown)) {
			break
		}
		b.WriteString(shown)
		s = s[len(m[0]):]
	}
	if used < len(args) {
		return r.failWith("a format of %d conversions and %d arguments is not supported", used, len(args))
	}
	if !r.charge(len(s)) {
		return nil
	}
	return b.String() + s
}

var formatField = regexp.MustCompile(`\{\{|\}\}|\{(\w*)\}|[{}]`)

// format is str.format, of fields without a conversion or a specification: {}, {0} and {name}.
func (r *run) format(s string, a *arguments) value {
	if !r.scan(len(s)) {
		return nil
	}
	next := 0
	return formatField.ReplaceAllStringFunc(s, func(field string) string {
		if field == "{{" || field == "}}" {
			return field[:1]
		}
		if len(field) < 2 {
			r.failWith("found %s in the format %s: only fields as {}, {0} and {name} are supported", quoted(field), quoted(s))
			return ""
		}
		name := field[1 : len(field)-1]
		i, err := strconv.Atoi(name)
		if name == "" {
			i, err = next, nil
			next++
		}
		var v value
		if j := slices.Index(a.names, name); err != nil && j >= 0 {
			v = a.named[j]
		} else if err == nil && i < len(a.args) {
			v = a.args[i]
		} else {
			r.failWith("found no argument for the field %s of the format", quoted(field))
			return ""
		}
		shown := r.str(v)
		if !r.charge(len(shown)) {
			return ""
		}
		return shown
	})
}
