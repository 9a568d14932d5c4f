package chat

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// jsonStyle is how Python's json.dumps is told to write.
type jsonStyle struct {
	indent     string // "" with no line breaks
	multiline  bool
	item, key  string // separators
	ascii      bool
	sortedKeys bool
}

// filterToJSON is transformers' tojson: json.dumps without escaping what is not
// ASCII.
func filterToJSON(_ *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	style := jsonStyle{item: ", ", key: ": "}
	names := []string{"ensure_ascii", "indent", "separators", "sort_keys"}
	arguments := make(map[string]*exec.Value, len(names))
	if len(params.Args) > len(names) {
		return exec.AsValue(fmt.Errorf("tojson: %d arguments, want at most %d", len(params.Args), len(names)))
	}
	for i, a := range params.Args {
		arguments[names[i]] = a
	}
	for name, a := range params.KwArgs {
		arguments[name] = a
	}
	var custom *exec.Value
	for name, a := range arguments {
		switch name {
		case "ensure_ascii":
			style.ascii = a.IsTrue()
		case "sort_keys":
			style.sortedKeys = a.IsTrue()
		case "indent":
			switch {
			case a.IsNil():
			case a.IsInteger() && a.Integer() <= 16:
				style.multiline, style.indent = true, strings.Repeat(" ", max(0, a.Integer()))
			case a.IsString() && len(a.String()) <= 16:
				style.multiline, style.indent = true, a.String()
			default:
				return exec.AsValue(fmt.Errorf("tojson: indent %s, want a number or a string of at most 16", shorten(a.String())))
			}
		case "separators":
			custom = a
		default:
			return exec.AsValue(fmt.Errorf("tojson: unknown argument %s", name))
		}
	}
	if style.multiline {
		style.item = ","
	}
	if custom != nil && !custom.IsNil() {
		if !custom.IsList() || custom.Len() != 2 {
			return exec.AsValue(fmt.Errorf("tojson: separators %s, want two strings", shorten(custom.String())))
		}
		style.item, style.key = custom.Index(0).String(), custom.Index(1).String()
	}
	var b strings.Builder
	if err := style.write(&b, in, 0); err != nil {
		return exec.AsValue(fmt.Errorf("tojson: %w", err))
	}
	return exec.AsSafeValue(b.String())
}

func (s *jsonStyle) write(b *strings.Builder, v *exec.Value, depth int) error {
	if depth > maxDepth {
		return errDepth
	}
	if b.Len() > maxOutput {
		return errOutput
	}
	// Lists that templates build hold values of gonja's.
	if inner, ok := v.Interface().(*exec.Value); ok {
		v = inner
	}
	if pairs, ok := members(v); ok {
		return s.writeDict(b, pairs, depth)
	}
	switch {
	case v.IsError():
		return fmt.Errorf("%s", v.Error())
	case v.IsNil():
		b.WriteString("null")
	case v.IsBool():
		b.WriteString(strconv.FormatBool(v.Bool()))
	case v.IsString():
		s.writeString(b, v.String())
	case v.IsInteger():
		b.WriteString(strconv.Itoa(v.Integer()))
	case v.IsFloat():
		b.WriteString(pythonFloat(v.Float()))
	case v.IsList():
		n := v.Len()
		if n == 0 {
			b.WriteString("[]")
			return nil
		}
		b.WriteByte('[')
		for i := range n {
			s.separate(b, i, depth+1)
			if err := s.write(b, v.Index(i), depth+1); err != nil {
				return err
			}
		}
		s.breakLine(b, depth)
		b.WriteByte(']')
	default:
		return fmt.Errorf("a value of type %T is not JSON", v.Interface())
	}
	return nil
}

func (s *jsonStyle) writeDict(b *strings.Builder, pairs []*exec.Pair, depth int) error {
	if len(pairs) == 0 {
		b.WriteString("{}")
		return nil
	}
	if s.sortedKeys {
		pairs = sortedByKey(pairs)
	}
	b.WriteByte('{')
	for i, p := range pairs {
		s.separate(b, i, depth+1)
		if !p.Key.IsString() {
			return fmt.Errorf("key %s is not a string", shorten(p.Key.String()))
		}
		s.writeString(b, p.Key.String())
		b.WriteString(s.key)
		if err := s.write(b, p.Value, depth+1); err != nil {
			return err
		}
	}
	s.breakLine(b, depth)
	b.WriteByte('}')
	return nil
}

func (s *jsonStyle) separate(b *strings.Builder, i, depth int) {
	if i > 0 {
		b.WriteString(s.item)
	}
	s.breakLine(b, depth)
}

func (s *jsonStyle) breakLine(b *strings.Builder, depth int) {
	if s.multiline {
		b.WriteByte('\n')
		for range depth {
			b.WriteString(s.indent)
		}
	}
}

func (s *jsonStyle) writeString(b *strings.Builder, text string) {
	short := map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}
	b.WriteByte('"')
	for _, r := range text {
		escape, ok := short[r]
		switch {
		case ok:
			b.WriteString(escape)
		case r < 0x20 || s.ascii && r >= 0x80 && r < 0x10000:
			fmt.Fprintf(b, `\u%04x`, r)
		case s.ascii && r >= 0x10000:
			r -= 0x10000
			fmt.Fprintf(b, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}

// pythonFloat is repr of a float.
func pythonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}
