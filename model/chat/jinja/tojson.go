package jinja

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// jsonWriter is Python's json.dumps.
type jsonWriter struct {
	run        *run
	b          strings.Builder
	indent     string
	multiline  bool
	item, key  string // separators
	ascii      bool
	sortedKeys bool
}

// toJSON is transformers' tojson, which leaves what is not ASCII as it is.
func toJSON(r *run, v value, a *arguments) (value, error) {
	args, err := a.bind("tojson", "ensure_ascii?", "indent?", "separators?", "sort_keys?")
	if err != nil {
		return nil, err
	}
	w := &jsonWriter{run: r, item: ", ", key: ": "}
	for i, into := range map[int]*bool{0: &w.ascii, 3: &w.sortedKeys} {
		if given(args[i]) {
			if *into, err = r.truth(args[i]); err != nil {
				return nil, err
			}
		}
	}
	if set(args[1]) {
		w.multiline, w.item = true, ","
		if s, ok := text(args[1]); ok {
			w.indent = s
		} else {
			n, err := intArg("indent", args[1], 0)
			if err != nil {
				return nil, err
			}
			if err := r.charge(max(n, 0)); err != nil {
				return nil, err
			}
			w.indent = strings.Repeat(" ", max(n, 0))
		}
	}
	if set(args[2]) {
		pair, err := r.unpack(args[2], 2)
		if err != nil {
			return nil, err
		}
		if w.item, err = stringArg("separators", pair[0]); err != nil {
			return nil, err
		}
		if w.key, err = stringArg("separators", pair[1]); err != nil {
			return nil, err
		}
	}
	if err := w.write(v, 0); err != nil {
		return nil, err
	}
	return w.b.String(), nil
}

func (w *jsonWriter) add(s string) error {
	if err := w.run.charge(len(s)); err != nil {
		return err
	}
	w.b.WriteString(s)
	return nil
}

func (w *jsonWriter) write(v value, depth int) error {
	if err := nested(depth); err != nil {
		return err
	}
	if err := w.run.charge(nodeCost); err != nil {
		return err
	}
	switch v := v.(type) {
	case nil:
		return w.add("null")
	case bool:
		return w.add(strconv.FormatBool(v))
	case string, markup:
		s, _ := text(v)
		return w.str(s)
	case int64, *big.Int:
		s, err := w.run.plain(v)
		if err != nil {
			return err
		}
		return w.add(s)
	case float64:
		return w.add(jsonFloat(v))
	case *list:
		return w.list(v, depth)
	case *dict:
		return w.dict(v, depth)
	}
	return fmt.Errorf("found a value of type %s, want one that JSON has", typeName(v))
}

func jsonFloat(f float64) string {
	switch s := reprFloat(f); s {
	case "nan":
		return "NaN"
	case "inf":
		return "Infinity"
	case "-inf":
		return "-Infinity"
	default:
		return s
	}
}

func (w *jsonWriter) list(l *list, depth int) error {
	if len(l.items) == 0 {
		return w.add("[]")
	}
	if err := w.add("["); err != nil {
		return err
	}
	for i, item := range l.items {
		if err := w.separate(i, depth+1); err != nil {
			return err
		}
		if err := w.write(item, depth+1); err != nil {
			return err
		}
	}
	return w.end("]", depth)
}

func (w *jsonWriter) dict(d *dict, depth int) error {
	if len(d.keys) == 0 {
		return w.add("{}")
	}
	order := make([]int, len(d.keys))
	for i := range order {
		order[i] = i
	}
	if w.sortedKeys {
		keys := make([]value, len(d.keys))
		copy(keys, d.keys)
		var err error
		if order, err = w.run.sortOrder(keys, false); err != nil {
			return err
		}
	}
	if err := w.add("{"); err != nil {
		return err
	}
	for n, i := range order {
		if err := w.separate(n, depth+1); err != nil {
			return err
		}
		key, err := w.keyText(d.keys[i])
		if err != nil {
			return err
		}
		if err := w.str(key); err != nil {
			return err
		}
		if err := w.add(w.key); err != nil {
			return err
		}
		if err := w.write(d.vals[i], depth+1); err != nil {
			return err
		}
	}
	return w.end("}", depth)
}

// keyText is a key as a string; JSON has no others.
func (w *jsonWriter) keyText(key value) (string, error) {
	switch key := key.(type) {
	case string:
		return key, nil
	case markup:
		return string(key), nil
	case nil:
		return "null", nil
	case bool:
		return strconv.FormatBool(key), nil
	case float64:
		return jsonFloat(key), nil
	case int64, *big.Int:
		return w.run.plain(key)
	}
	return "", fmt.Errorf("found a key of type %s, want one that JSON has", typeName(key))
}

func (w *jsonWriter) separate(i, depth int) error {
	if i > 0 {
		if err := w.add(w.item); err != nil {
			return err
		}
	}
	return w.breakLine(depth)
}

func (w *jsonWriter) end(bracket string, depth int) error {
	if err := w.breakLine(depth); err != nil {
		return err
	}
	return w.add(bracket)
}

func (w *jsonWriter) breakLine(depth int) error {
	if !w.multiline {
		return nil
	}
	if err := w.run.charge(product(depth, len(w.indent))); err != nil {
		return err
	}
	return w.add("\n" + strings.Repeat(w.indent, depth))
}

var jsonEscapes = map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}

func (w *jsonWriter) str(s string) error {
	if err := w.run.charge(4 * len(s)); err != nil {
		return err
	}
	w.b.WriteByte('"')
	for _, c := range s {
		escape, ok := jsonEscapes[c]
		switch {
		case ok:
			w.b.WriteString(escape)
		case c < 0x20 || w.ascii && c >= utf8.RuneSelf && c < 0x10000:
			fmt.Fprintf(&w.b, `\u%04x`, c)
		case w.ascii && c >= 0x10000:
			c -= 0x10000
			fmt.Fprintf(&w.b, `\u%04x\u%04x`, 0xd800+(c>>10), 0xdc00+(c&0x3ff))
		default:
			w.b.WriteRune(c)
		}
	}
	w.b.WriteByte('"')
	return nil
}
