package jinja

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"unicode/utf8"
)

// value is what expressions have for a value, as Python has it: nil (None),
// *undefined, bool, int64, *big.Int outside of int64's range, float64, string,
// markup, *list, *dict, *dictView, *rangeValue, *iterator, *namespace, *loopValue,
// *function, *cycler or *joiner. Strings, lists and dicts are never changed.
type value = any

// undefined is what a name or attribute that is not there has for a value. It
// prints to nothing; most else that is done to it is an error, which says what was
// missing.
type undefined struct{ message string }

func (u *undefined) fail() error { return errors.New(shortened(u.message)) }

// markup is text that the safe filter took for HTML: what is added to it is
// escaped.
type markup string

type list struct {
	items  []value
	tuple  bool
	fields []string // names of a tuple's elements, of groupby
}

func newList(items []value) *list { return &list{items: items} }

func newTuple(items ...value) *list { return &list{items: items, tuple: true} }

// rangeValue is Python's range: start, start+step, …, n elements.
type rangeValue struct{ start, stop, step, n int }

type namespace struct{ vars *dict }

// function is what can be called: a macro, a method or a global.
type function struct {
	name  string
	call  func(r *run, a *arguments) (value, error)
	macro *macroNode // or nil
	of    value      // whose method it is, or nil
}

// cycler and joiner are Jinja's helpers for loops.
type cycler struct {
	items []value
	pos   int
}

type joiner struct {
	separator value
	used      bool
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
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case markup:
		return "Markup"
	case *list:
		if v.tuple {
			return "tuple"
		}
		return "list"
	case *dict:
		return "dict"
	case *dictView:
		return v.kind
	case *rangeValue:
		return "range"
	case *iterator:
		return v.kind
	case *namespace:
		return "Namespace"
	case *loopValue:
		return "LoopContext"
	case *cycler:
		return "Cycler"
	case *joiner:
		return "Joiner"
	case *function:
		if v.macro != nil {
			return "Macro"
		}
	}
	return "function"
}

// truth is bool(v).
func (r *run) truth(v value) (bool, error) {
	switch v := v.(type) {
	case nil, *undefined:
		return false, nil
	case bool:
		return v, nil
	case int64:
		return v != 0, nil
	case *big.Int:
		return v.Sign() != 0, nil
	case float64:
		return v != 0, nil
	case *loopValue:
		n, err := v.length(r)
		return n != 0, err
	}
	if n, ok := length(v); ok {
		return n != 0, nil
	}
	return true, nil
}

// length is the number of elements of what has one; strings have characters.
func length(v value) (int, bool) {
	switch v := v.(type) {
	case *undefined:
		return 0, true
	case string:
		return utf8.RuneCountInString(v), true
	case markup:
		return utf8.RuneCountInString(string(v)), true
	case *list:
		return len(v.items), true
	case *dict:
		return len(v.keys), true
	case *dictView:
		return len(v.dict.keys), true
	case *rangeValue:
		return v.n, true
	}
	return 0, false
}

// length is len(v).
func (r *run) length(v value) (int, error) {
	if l, ok := v.(*loopValue); ok {
		return l.length(r)
	}
	if s, ok := text(v); ok {
		if err := r.scan(len(s)); err != nil {
			return 0, err
		}
	}
	if n, ok := length(v); ok {
		return n, nil
	}
	return 0, fmt.Errorf("found a value of type %s, want one with a length", typeName(v))
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

// like gives text the type of v.
func like(v value, s string) value {
	if _, ok := v.(markup); ok {
		return markup(s)
	}
	return s
}

// integer is an int as a value.
func integer(i *big.Int) value {
	if i.IsInt64() {
		return i.Int64()
	}
	return i
}

// asInt is an integer that fits, as an index or a count; bool counts, as in
// Python. Larger ones are the largest.
func asInt(v value) (int, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case int64:
		return int(v), true
	case *big.Int:
		if v.Sign() < 0 {
			return math.MinInt, true
		}
		return math.MaxInt, true
	}
	return 0, false
}

// asBig is an integer, or a bool.
func asBig(v value) (*big.Int, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return big.NewInt(1), true
		}
		return new(big.Int), true
	case int64:
		return big.NewInt(v), true
	case *big.Int:
		return v, true
	}
	return nil, false
}

// asFloat is a number as a float.
func asFloat(v value) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		return f, true
	}
	return 0, false
}
