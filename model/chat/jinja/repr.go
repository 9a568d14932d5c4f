package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

// str is str(v), what printing writes.
func (r *run) str(v value) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case markup:
		return string(v), nil
	case *undefined:
		return "", nil
	}
	return r.repr(v)
}

// joined is the parts with a separator between.
func (r *run) joined(parts []string, separator string) (string, error) {
	size := product(len(separator), len(parts)-1)
	for _, p := range parts {
		if err := r.charge(len(p)); err != nil {
			return "", err
		}
	}
	if err := r.charge(size); err != nil {
		return "", err
	}
	return strings.Join(parts, separator), nil
}

// repr is repr(v).
func (r *run) repr(v value) (string, error) {
	switch v := v.(type) {
	case nil, bool, int64, float64, *undefined:
		return r.plain(v)
	}
	w := &reprWriter{run: r}
	err := w.write(v, 0)
	return w.b.String(), err
}

// plain is the text of a value without elements.
func (r *run) plain(v value) (string, error) {
	switch v := v.(type) {
	case nil:
		return "None", nil
	case bool:
		if v {
			return "True", nil
		}
		return "False", nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case *big.Int:
		// Ten bits are three digits.
		if v.BitLen() > maxDigits*10/3 {
			return "", fmt.Errorf("found an integer of more than %d digits to print", maxDigits)
		}
		return v.String(), r.charge(v.BitLen())
	case float64:
		return reprFloat(v), nil
	case *undefined:
		return "Undefined", nil
	case *function:
		if v.macro != nil {
			return "<Macro " + reprString(v.name) + ">", nil
		}
		return "<function " + v.name + ">", nil
	case *loopValue:
		n, err := v.length(r)
		return fmt.Sprintf("<LoopContext %d/%d>", v.index0+1, n), err
	case *rangeValue:
		if v.step != 1 {
			return fmt.Sprintf("range(%d, %d, %d)", v.start, v.stop, v.step), nil
		}
		return fmt.Sprintf("range(%d, %d)", v.start, v.stop), nil
	}
	return "<" + typeName(v) + " object>", nil
}

// reprWriter writes the text of a value with its elements.
type reprWriter struct {
	run *run
	b   strings.Builder
}

func (w *reprWriter) add(s string) error {
	if err := w.run.charge(len(s)); err != nil {
		return err
	}
	w.b.WriteString(s)
	return nil
}

func (w *reprWriter) write(v value, depth int) error {
	if err := nested(depth); err != nil {
		return err
	}
	if err := w.run.charge(nodeCost); err != nil {
		return err
	}
	switch v := v.(type) {
	case string:
		if err := w.run.charge(2 * len(v)); err != nil {
			return err
		}
		return w.add(reprString(v))
	case markup:
		if err := w.run.charge(2 * len(v)); err != nil {
			return err
		}
		return w.add("Markup(" + reprString(string(v)) + ")")
	case *list:
		return w.list(v, depth)
	case *dict:
		return w.dict(v, depth)
	case *dictView:
		items := make([]value, len(v.dict.keys))
		if err := w.run.chargeItems(2 * len(items)); err != nil {
			return err
		}
		for i := range items {
			items[i] = v.at(i)
		}
		return w.wrapped(v.kind+"(", newList(items), ")", depth)
	case *namespace:
		return w.wrapped("<Namespace ", v.vars, ">", depth)
	}
	s, err := w.run.plain(v)
	if err != nil {
		return err
	}
	return w.add(s)
}

func (w *reprWriter) wrapped(open string, v value, end string, depth int) error {
	if err := w.add(open); err != nil {
		return err
	}
	if err := w.write(v, depth+1); err != nil {
		return err
	}
	return w.add(end)
}

func (w *reprWriter) list(l *list, depth int) error {
	open, end := "[", "]"
	if l.tuple {
		open, end = "(", ")"
		if len(l.items) == 1 {
			end = ",)"
		}
	}
	for _, item := range l.items {
		if err := w.add(open); err != nil {
			return err
		}
		if err := w.write(item, depth+1); err != nil {
			return err
		}
		open = ", "
	}
	if len(l.items) == 0 {
		end = open + end
	}
	return w.add(end)
}

func (w *reprWriter) dict(d *dict, depth int) error {
	open := "{"
	for i, key := range d.keys {
		if err := w.wrapped(open, key, ": ", depth); err != nil {
			return err
		}
		if err := w.write(d.vals[i], depth+1); err != nil {
			return err
		}
		open = ", "
	}
	if len(d.keys) == 0 {
		return w.add("{}")
	}
	return w.add("}")
}

// reprString is repr of a string.
func reprString(s string) string {
	quote := '\''
	if strings.ContainsRune(s, '\'') && !strings.ContainsRune(s, '"') {
		quote = '"'
	}
	var b strings.Builder
	b.WriteRune(quote)
	for _, r := range s {
		switch {
		case r == quote || r == '\\':
			b.WriteRune('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(spelledOut(r))
		}
	}
	b.WriteRune(quote)
	return b.String()
}

// reprFloat is repr of a float.
func reprFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
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
