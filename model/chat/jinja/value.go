package jinja

import (
	"math"
	"math/big"
	"unicode/utf8"
)

// value is what expressions have for a value, as Python has it: nil (None),
// *undefined, bool, int64, float64, string, markup, *list, *dict, *generator,
// *namespace, *loopValue or *function. Whole numbers of the conversation beyond 64 bits
// are *big.Int, which is printed and compared for equality. Strings, lists and dicts are
// never changed.
type value = any

// undefined is what a name or attribute that is not there has for a value. It
// prints to nothing; most else that is done to it is an error, which says what was
// missing.
type undefined struct{ message string }

func (u *undefined) failUse(r *run) value { return r.failWith("%s", shortened(u.message)) }

// markup is text that the filters safe and escape took for HTML. What is added to it is
// escaped; most other operations on it are not supported.
type markup string

// list is a sequence of one of the kinds below. Only those that Python can index have
// elements by number.
type list struct {
	kind  string
	items []value
}

const (
	kindList  = "list"
	kindTuple = "tuple"
	kindRange = "range"
	kindKeys  = "dict_keys"
	kindVals  = "dict_values"
	kindItems = "dict_items"
)

func newList(items []value) *list { return &list{kindList, items} }

func newTuple(items ...value) *list { return &list{kindTuple, items} }

// indexed tells whether the elements have numbers; in a dict's view they have none.
func (l *list) indexed() bool {
	return l.kind == kindList || l.kind == kindTuple || l.kind == kindRange
}

// generator gives its elements once.
type generator struct{ rest []value }

type namespace struct{ vars *dict }

// function is what can be called: a macro, a method or a global.
type function struct {
	name string // in errors
	call func(r *run, a *arguments) value
}

// dict keeps its keys in the order they came in.
type dict struct {
	keys, vals []value
	index      map[any]int // of hashed keys
}

func newDict(n int) *dict { return &dict{index: make(map[any]int, n)} }

// hash is a Go value that is equal for equal keys, as 1, 1.0 and true are; ok is false for
// values that cannot be keys.
func hash(v value) (h any, ok bool) {
	switch v := v.(type) {
	case nil, int64, string:
		return v, true
	case *undefined:
		return (*undefined)(nil), true
	case markup:
		return string(v), true
	case bool:
		i, _ := asInt(v)
		return i, true
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<62 {
			return int64(v), true
		}
		return v, true
	}
	return nil, false
}

// key is the hash of a key, which the rendering pays for.
func (r *run) key(v value) (h any, ok bool) {
	h, ok = hash(v)
	if !ok {
		r.failWith("a key of type %s is not supported, want a string or a number", typeName(v))
	}
	if s, isText := h.(string); isText {
		r.scan(len(s))
	}
	return h, r.err == nil
}

func (d *dict) getItem(r *run, key value) (v value, found bool) {
	h, ok := r.key(key)
	if i, found := d.index[h]; ok && found {
		return d.vals[i], true
	}
	return nil, false
}

func (d *dict) setItem(r *run, key, v value) {
	h, ok := r.key(key)
	i, found := d.index[h]
	switch {
	case !ok:
	case found:
		d.vals[i] = v
	case r.chargeItems(3):
		d.index[h] = len(d.keys)
		d.keys, d.vals = append(d.keys, key), append(d.vals, v)
	}
}

// pairs are the keys with their values.
func (d *dict) pairs(r *run) []value {
	if !r.chargeItems(3 * len(d.keys)) {
		return nil
	}
	items := make([]value, len(d.keys))
	for i, key := range d.keys {
		items[i] = newTuple(key, d.vals[i])
	}
	return items
}

// typeName is the name of a value's type in Python.
func typeName(v value) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case *undefined:
		return "Undefined"
	case bool:
		return "bool"
	case int64:
		return "int"
	case *big.Int:
		return "int of more than 64 bits"
	case float64:
		return "float"
	case string:
		return "str"
	case markup:
		return "Markup"
	case *list:
		return v.kind
	case *dict:
		return "dict"
	case *generator:
		return "generator"
	case *namespace:
		return "Namespace"
	case *loopValue:
		return "LoopContext"
	}
	return "function"
}

func isType[T any](v value) bool {
	_, ok := v.(T)
	return ok
}

// truth is bool(v).
func truth(v value) bool {
	switch v := v.(type) {
	case nil, *undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case markup:
		return v != ""
	case *list:
		return len(v.items) > 0
	case *dict:
		return len(v.keys) > 0
	}
	return true
}

// length is len(v); strings have characters.
func (r *run) length(v value) int {
	switch v := v.(type) {
	case *undefined:
		return 0
	case string, markup:
		s, _ := text(v)
		r.scan(len(s))
		return utf8.RuneCountInString(s)
	case *list:
		return len(v.items)
	case *dict:
		return len(v.keys)
	case *loopValue:
		return v.length()
	}
	r.failWith("found a value of type %s, want one with a length", typeName(v))
	return 0
}

// iterate is list(v). The result may be the value's own and is not changed.
func (r *run) iterate(v value) []value {
	switch v := v.(type) {
	case *undefined:
		return nil
	case *list:
		return v.items
	case *dict:
		return v.keys
	case *generator:
		rest := v.rest
		v.rest = nil
		return rest
	case string, markup:
		s, _ := text(v)
		if !r.chargeItems(len(s)) {
			return nil
		}
		var items []value
		for _, c := range s {
			items = append(items, string(c))
		}
		return items
	}
	r.failWith("found a value of type %s, want one that can be iterated over", typeName(v))
	return nil
}

// text is the text of a string or of markup.
func text(v value) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case markup:
		return string(v), true
	}
	return "", false
}

func isText(v value) bool {
	_, ok := text(v)
	return ok
}

// asInt is an integer of 64 bits; bool counts, as in Python.
func asInt(v value) (int64, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case int64:
		return v, true
	}
	return 0, false
}

// asFloat is a number as a float.
func asFloat(v value) (float64, bool) {
	if f, ok := v.(float64); ok {
		return f, true
	}
	i, ok := asInt(v)
	return float64(i), ok
}
