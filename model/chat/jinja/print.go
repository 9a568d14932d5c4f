package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// str is str(v), what printing writes.
func (r *run) str(v value) string {
	if s, ok := text(v); ok || isType[*undefined](v) {
		return s
	}
	return r.repr(v)
}

// joined is the text of the parts with a separator between.
func (r *run) joined(parts []value, separator string) string {
	if !r.charge(product(len(separator), len(parts)-1)) {
		return ""
	}
	texts := make([]string, len(parts))
	for i, p := range parts {
		if texts[i] = r.str(p); !r.charge(len(texts[i])) {
			return ""
		}
	}
	return strings.Join(texts, separator)
}

// repr is repr(v).
func (r *run) repr(v value) string {
	d := &dumper{run: r, item: ", ", key: ": "}
	d.writeValue(v, 0)
	return d.b.String()
}

// dumper writes a value as Python's repr does, or as its json.dumps.
type dumper struct {
	run       *run
	b         strings.Builder
	json      bool
	item, key string // separators
	multiline bool
	indent    string
	ascii     bool
	sorted    bool // by key
}

// toJSON is transformers' tojson, which leaves what is not ASCII as it is.
func toJSON(r *run, v value, a *arguments) value {
	args := a.bindParameters(r, "ensure_ascii?", "indent?", "separators?", "sort_keys?")
	d := &dumper{run: r, json: true, item: ", ", key: ": ", ascii: flag(args[0]), sorted: flag(args[3])}
	if isSet(args[1]) {
		d.multiline, d.item = true, ","
		d.indent = r.indentation(args[1], 0)
	}
	if isSet(args[2]) {
		pair := r.unpack(args[2], 2)
		if pair == nil {
			return nil
		}
		d.item, d.key = r.stringArg(pair[0]), r.stringArg(pair[1])
	}
	d.writeValue(v, 0)
	return d.b.String()
}

// indentation is text, or so many spaces.
func (r *run) indentation(v value, otherwise int) string {
	if s, ok := text(v); ok {
		return s
	}
	n := max(r.intArg(v, otherwise), 0)
	if !r.charge(n) {
		return ""
	}
	return strings.Repeat(" ", n)
}

func (d *dumper) addText(s string) {
	if d.run.charge(len(s)) {
		d.b.WriteString(s)
	}
}

func (d *dumper) writeValue(v value, depth int) {
	if !d.run.nested(depth) || !d.run.charge(nodeCost) {
		return
	}
	switch v := v.(type) {
	case *list:
		d.writeList(v, depth)
	case *dict:
		var order []int
		if d.sorted {
			order = d.run.sortOrder(v.keys, false)
		}
		d.elements("{", "}", len(v.keys), depth, func(i int) {
			if order != nil {
				i = order[i]
			}
			key := v.keys[i]
			if s, isText := text(key); d.json && !isText {
				d.addText(`"` + d.leaf(key) + `"`)
			} else if d.json {
				d.addText(d.jsonString(s))
			} else {
				d.writeValue(key, depth+1)
			}
			d.addText(d.key)
			d.writeValue(v.vals[i], depth+1)
		})
	default:
		d.addText(d.leaf(v))
	}
}

func (d *dumper) writeList(l *list, depth int) {
	open, end := "[", "]"
	switch {
	case l.kind == kindRange || d.json && !l.indexed():
		d.run.failWith("printing a value of type %s is not supported", l.kind)
	case l.kind == kindTuple && !d.json:
		open, end = "(", ")"
		if len(l.items) == 1 {
			end = ",)"
		}
	case !l.indexed():
		open, end = l.kind+"([", "])"
	}
	d.elements(open, end, len(l.items), depth, func(i int) { d.writeValue(l.items[i], depth+1) })
}

// elements writes n elements between brackets.
func (d *dumper) elements(open, end string, n, depth int, write func(i int)) {
	d.addText(open)
	for i := 0; i < n && d.run.err == nil; i++ {
		if i > 0 {
			d.addText(d.item)
		}
		d.breakLine(depth + 1)
		write(i)
	}
	if n > 0 {
		d.breakLine(depth)
	}
	d.addText(end)
}

func (d *dumper) breakLine(depth int) {
	if d.multiline && d.run.charge(product(depth, len(d.indent))) {
		d.addText("\n" + strings.Repeat(d.indent, depth))
	}
}

// leaf is the text of a value without elements.
func (d *dumper) leaf(v value) string {
	switch v := v.(type) {
	case nil:
		return d.either("None", "null")
	case bool:
		if v {
			return d.either("True", "true")
		}
		return d.either("False", "false")
	case int64:
		return strconv.FormatInt(v, 10)
	case *big.Int:
		d.run.charge(v.BitLen())
		return v.String()
	case float64:
		return d.float(v)
	case string, markup:
		s, _ := text(v)
		d.run.charge(len(s))
		switch {
		case d.json:
			return d.jsonString(s)
		case isType[markup](v):
			return "Markup(" + reprString(s) + ")"
		}
		return reprString(s)
	case *undefined:
		if !d.json {
			return "Undefined"
		}
	}
	d.run.failWith("printing a value of type %s is not supported", typeName(v))
	return ""
}

func (d *dumper) either(python, json string) string {
	if d.json {
		return json
	}
	return python
}

func (d *dumper) float(f float64) string {
	switch {
	case math.IsNaN(f):
		return d.either("nan", "NaN")
	case math.IsInf(f, 1):
		return d.either("inf", "Infinity")
	case math.IsInf(f, -1):
		return d.either("-inf", "-Infinity")
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

var jsonEscapes = map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}

func (d *dumper) jsonString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range s {
		escape, ok := jsonEscapes[c]
		switch {
		case ok:
			b.WriteString(escape)
		case c < 0x20 || d.ascii && c >= utf8.RuneSelf && c < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, c)
		case d.ascii && c >= 0x10000:
			c -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+(c>>10), 0xdc00+(c&0x3ff))
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

var reprEscapes = map[rune]string{'\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`}

func reprString(s string) string {
	quote := '\''
	if strings.ContainsRune(s, '\'') && !strings.ContainsRune(s, '"') {
		quote = '"'
	}
	var b strings.Builder
	b.WriteRune(quote)
	for _, c := range s {
		escape, ok := reprEscapes[c]
		switch {
		case ok:
			b.WriteString(escape)
		case c == quote:
			b.WriteString(`\` + string(c))
		case unicode.IsPrint(c):
			b.WriteRune(c)
		case c < 0x100:
			fmt.Fprintf(&b, `\x%02x`, c)
		case c < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			fmt.Fprintf(&b, `\U%08x`, c)
		}
	}
	b.WriteRune(quote)
	return b.String()
}
