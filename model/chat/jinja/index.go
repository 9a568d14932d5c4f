package jinja

import (
	"slices"
	"strings"
)

// getItem is v[index]. What is not there is undefined; v's attribute of that name
// comes second.
func (r *run) getItem(v, index value) value {
	i, isInt := asInt(index)
	switch v := v.(type) {
	case *undefined:
		return v.failUse(r)
	case markup:
		return r.failWith("an element of text marked as safe is not supported")
	case *dict:
		if _, ok := hash(index); ok {
			if item, found := v.getItem(r, index); found {
				return item
			}
		}
	case string, *list:
		l, isList := v.(*list)
		if !isInt || isList && !l.indexed() {
			break
		}
		if i < 0 {
			i += int64(r.length(v))
		}
		if s, ok := v.(string); ok && i >= 0 {
			if c := substring(s, int(i), 1); r.scan(min(len(s), 4*int(min(i, int64(len(s)))))) && c != "" {
				return c
			}
		} else if isList && i >= 0 && i < int64(len(l.items)) {
			return l.items[i]
		}
	}
	if name, ok := text(index); ok {
		return r.ownAttr(v, name)
	}
	return &undefined{objectName(v) + " has no element " + r.repr(index)}
}

// objectName describes a value as Jinja's messages do.
func objectName(v value) string {
	if v == nil {
		return "None"
	}
	return typeName(v) + " object"
}

// getAttr is v.name: an attribute or method, or else the element of a dict.
func (r *run) getAttr(v value, name string) value {
	if u, ok := v.(*undefined); ok {
		return u.failUse(r)
	}
	item := r.ownAttr(v, name)
	if d, ok := v.(*dict); ok && isType[*undefined](item) && !slices.Contains(changing["dict"], name) {
		if member, found := d.getItem(r, name); found {
			return member
		}
	}
	return item
}

// changing are the methods that the sandbox keeps from templates.
var changing = map[string][]string{
	kindList: {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"},
	"dict":   {"clear", "pop", "popitem", "setdefault", "update"},
}

// unsupported are the attributes that Python has and this package has not.
var unsupported = map[string]string{
	"str":         "casefold center encode expandtabs format_map isascii isdecimal isidentifier isnumeric isprintable istitle ljust maketrans rindex rjust swapcase translate zfill",
	kindList:      "copy count index",
	kindTuple:     "count index",
	kindRange:     "count index start stop step",
	kindKeys:      "isdisjoint mapping",
	kindVals:      "mapping",
	kindItems:     "isdisjoint mapping",
	"dict":        "copy fromkeys",
	"int":         "as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag is_integer numerator real to_bytes",
	"bool":        "as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag is_integer numerator real to_bytes",
	"float":       "as_integer_ratio conjugate fromhex hex imag is_integer real",
	"generator":   "close gi_code gi_frame gi_running gi_suspended gi_yieldfrom send throw",
	"LoopContext": "depth depth0",
	"function":    "arguments caller catch_kwargs catch_varargs explicit_caller fromkeys name",
}

// ownAttr is an attribute or a method that a value has by its type, or undefined.
func (r *run) ownAttr(v value, name string) value {
	kind := typeName(v)
	if slices.Contains(changing[kind], name) {
		return &undefined{"access to attribute '" + name + "' of '" + kind + "' object is unsafe."}
	}
	switch v := v.(type) {
	case markup:
		return r.failWith("%s: methods of text marked as safe are not supported", quoted(name))
	case string:
		if m, ok := stringMethods[name]; ok {
			return &function{name, func(r *run, a *arguments) value {
				if !r.scan(len(v)) {
					return nil
				}
				return m(r, v, a)
			}}
		}
	case *dict:
		if m, ok := dictMethods[name]; ok {
			return &function{name, func(r *run, a *arguments) value { return m(r, v, a) }}
		}
	case *namespace:
		if item, found := v.vars.getItem(r, name); found {
			return item
		}
	case *loopValue:
		if item, ok := v.attr(r, name); ok {
			return item
		}
	}
	if slices.Contains(strings.Fields(unsupported[kind]), name) {
		return r.failWith("the attribute %q of a value of type %s is not supported", name, kind)
	}
	return &undefined{"'" + objectName(v) + "' has no attribute '" + name + "'"}
}

// slice is v[start:stop:step]; bounds that are not there are None.
func (r *run) slice(v value, bounds []value) value {
	l, isList := v.(*list)
	s, isText := v.(string)
	if u, ok := v.(*undefined); ok {
		return u.failUse(r)
	}
	if isType[markup](v) || isType[*generator](v) {
		return r.failWith("a slice of a value of type %s is not supported", typeName(v))
	}
	if !isText && (!isList || !l.indexed()) {
		return r.failWith("found a slice of a value of type %s, want a string or a list", typeName(v))
	}
	start, step, count := r.sliceBounds(bounds, r.length(v))
	if isText && step == 1 {
		r.charge(len(s))
		return substring(s, start, count)
	}
	var items []value
	if isList {
		items = l.items
	} else {
		items = r.iterate(v)
	}
	if !r.chargeItems(count) {
		return nil
	}
	out := make([]value, count)
	for i := range out {
		out[i] = items[start+i*step]
	}
	if isText {
		return r.joined(out, "")
	}
	return &list{l.kind, out}
}

// substring is count characters from start on.
func substring(s string, start, count int) string {
	from, to, i := len(s), len(s), 0
	for at := range s {
		if i == start {
			from = at
		}
		if i-start == count {
			to = at
			break
		}
		i++
	}
	return s[from:max(from, to)]
}

// sliceBounds resolves a slice of n elements as Python does: count elements, the first at start.
func (r *run) sliceBounds(bounds []value, n int) (start, step, count int) {
	if r.err != nil {
		return 0, 1, 0
	}
	var given [3]int
	for i, b := range bounds {
		if b != nil {
			given[i] = r.intArg(b, 0)
		}
	}
	step = 1
	if bounds[2] != nil {
		step = min(max(given[2], -maxSource<<20), maxSource<<20)
	}
	if step == 0 {
		r.failWith("found a slice with the step 0")
	}
	if r.err != nil {
		return 0, 1, 0
	}
	least, most := 0, n
	if step < 0 {
		least, most = -1, n-1
	}
	clip := func(i int) int {
		if i < 0 {
			i += n
		}
		return min(max(i, least), most)
	}
	start, stop := least, most
	if step < 0 {
		start, stop = most, least
	}
	if bounds[0] != nil {
		start = clip(given[0])
	}
	if bounds[1] != nil {
		stop = clip(given[1])
	}
	return start, step, steps(start, stop, step)
}

var dictMethods = map[string]func(r *run, d *dict, a *arguments) value{
	"keys": func(r *run, d *dict, a *arguments) value {
		a.bindParameters(r)
		return &list{kindKeys, d.keys}
	},
	"values": func(r *run, d *dict, a *arguments) value {
		a.bindParameters(r)
		return &list{kindVals, d.vals}
	},
	"items": func(r *run, d *dict, a *arguments) value {
		a.bindParameters(r)
		return &list{kindItems, d.pairs(r)}
	},
	"get": func(r *run, d *dict, a *arguments) value {
		if len(a.names) > 0 {
			return r.failWith("found the argument %s, want none by name", quoted(a.names[0]))
		}
		args := a.bindParameters(r, "key", "default?")
		if v, found := d.getItem(r, args[0]); found {
			return v
		}
		if given(args[1]) {
			return args[1]
		}
		return nil
	},
}
