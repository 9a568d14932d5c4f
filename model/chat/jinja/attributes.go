package jinja

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// changing are the methods that the sandbox keeps from templates.
var changing = map[string][]string{
	"list": {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"},
	"dict": {"clear", "pop", "popitem", "setdefault", "update"},
}

// ownAttr is an attribute or a method that a value has by its type.
func (r *run) ownAttr(v value, name string) (item value, ok bool, err error) {
	item, ok, err = r.attrOf(v, name)
	if m, isMethod := item.(*function); isMethod && m.macro == nil && typeName(v) != "Namespace" {
		m.of = v
	}
	return item, ok, err
}

func (r *run) attrOf(v value, name string) (item value, ok bool, err error) {
	if strings.HasPrefix(name, "__") {
		return nil, false, nil
	}
	kind := typeName(v)
	if slices.Contains(changing[kind], name) {
		return &undefined{fmt.Sprintf("access to attribute '%s' of '%s' object is unsafe.", name, kind)}, true, nil
	}
	switch v := v.(type) {
	case string, markup:
		if m, ok := stringMethods[name]; ok {
			return method(name, func(r *run, a *arguments) (value, error) { return r.stringMethod(v, name, m, a) }), true, nil
		}
	case *list:
		if i := slices.Index(v.fields, name); i >= 0 {
			return v.items[i], true, nil
		}
		if m, ok := listMethods[name]; ok && (name != "copy" || !v.tuple) {
			return method(name, func(r *run, a *arguments) (value, error) { return m(r, v, a) }), true, nil
		}
	case *rangeValue:
		if m, ok := listMethods[name]; ok && name != "copy" {
			return method(name, func(r *run, a *arguments) (value, error) { return m(r, v, a) }), true, nil
		}
		if i := slices.Index([]string{"start", "stop", "step"}, name); i >= 0 {
			return int64([]int{v.start, v.stop, v.step}[i]), true, nil
		}
	case *dict:
		if m, ok := dictMethods[name]; ok {
			return method(name, func(r *run, a *arguments) (value, error) { return m(r, v, a) }), true, nil
		}
	case *namespace:
		item, ok := v.vars.named(name)
		return item, ok, nil
	case *loopValue:
		return v.attr(r, name)
	case *function:
		if v.macro != nil {
			item, ok := v.macro.attr(name)
			return item, ok, nil
		}
		if m := dictMethods[name]; v.name == "dict" && name == "fromkeys" {
			return method(name, func(r *run, a *arguments) (value, error) { return m(r, nil, a) }), true, nil
		}
	case *cycler:
		item, ok := v.attr(name)
		return item, ok, nil
	case int64, float64, bool:
		item, ok := numberAttr(v, name)
		return item, ok, nil
	}
	return nil, false, nil
}

func method(name string, call func(r *run, a *arguments) (value, error)) *function {
	return &function{name: name, call: call}
}

func numberAttr(v value, name string) (value, bool) {
	f, float := v.(float64)
	i, _ := asInt(v)
	switch name {
	case "real":
		if !float {
			return int64(i), true
		}
		return f, true
	case "imag":
		if !float {
			return int64(0), true
		}
		return 0.0, true
	case "is_integer":
		if float {
			return method(name, func(_ *run, a *arguments) (value, error) {
				_, err := a.bind(name)
				return f == math.Trunc(f) && !math.IsInf(f, 0), err
			}), true
		}
	case "bit_length":
		if !float {
			return method(name, func(_ *run, a *arguments) (value, error) {
				_, err := a.bind(name)
				n, _ := asBig(v)
				return int64(n.BitLen()), err
			}), true
		}
	}
	return nil, false
}

func (m *macroNode) attr(name string) (value, bool) {
	switch name {
	case "name":
		return m.name, true
	case "arguments":
		items := make([]value, len(m.parameters))
		for i, p := range m.parameters {
			items[i] = p
		}
		return newTuple(items...), true
	case "catch_kwargs":
		return m.kwargs, true
	case "catch_varargs":
		return m.varargs, true
	case "caller":
		return m.caller, true
	}
	return nil, false
}

func (c *cycler) attr(name string) (value, bool) {
	switch name {
	case "current":
		return c.items[c.pos], true
	case "items":
		return newTuple(c.items...), true
	case "pos":
		return int64(c.pos), true
	case "next":
		return method(name, func(_ *run, a *arguments) (value, error) {
			_, err := a.bind(name)
			v := c.items[c.pos]
			c.pos = (c.pos + 1) % len(c.items)
			return v, err
		}), true
	case "reset":
		return method(name, func(_ *run, a *arguments) (value, error) {
			_, err := a.bind(name)
			c.pos = 0
			return nil, err
		}), true
	}
	return nil, false
}

// attr is an attribute of the variable "loop".
func (l *loopValue) attr(r *run, name string) (item value, ok bool, err error) {
	switch name {
	case "index":
		return int64(l.index0 + 1), true, nil
	case "index0":
		return int64(l.index0), true, nil
	case "first":
		return l.index0 == 0, true, nil
	case "depth":
		return int64(l.depth0 + 1), true, nil
	case "depth0":
		return int64(l.depth0), true, nil
	case "length", "revindex", "revindex0":
		n, err := l.length(r)
		switch name {
		case "revindex":
			n -= l.index0
		case "revindex0":
			n -= l.index0 + 1
		}
		return int64(n), true, err
	case "last", "nextitem":
		next, more, err := l.peek(r)
		switch {
		case name == "last":
			return !more, true, err
		case !more:
			return &undefined{"there is no next item"}, true, err
		}
		return next, true, err
	case "previtem":
		if l.index0 == 0 {
			return &undefined{"there is no previous item"}, true, nil
		}
		return l.before, true, nil
	case "cycle":
		return method(name, func(_ *run, a *arguments) (value, error) {
			if len(a.args) == 0 || len(a.names) > 0 {
				return nil, fmt.Errorf("loop.cycle: found %d arguments, want at least one without a name", len(a.args))
			}
			return a.args[l.index0%len(a.args)], nil
		}), true, nil
	case "changed":
		return method(name, func(r *run, a *arguments) (value, error) {
			same, err := r.equal(newTuple(l.changed...), newTuple(a.args...), 0)
			if err != nil || same && l.hasChanged {
				return false, err
			}
			l.changed, l.hasChanged = a.args, true
			return true, nil
		}), true, nil
	}
	return nil, false, nil
}

var listMethods = map[string]func(r *run, v value, a *arguments) (value, error){
	"count": func(r *run, v value, a *arguments) (value, error) {
		args, err := a.bind("count", "value")
		if err != nil {
			return nil, err
		}
		_, n, err := r.find(v, args[0])
		return int64(n), err
	},
	"index": func(r *run, v value, a *arguments) (value, error) {
		args, err := a.bind("index", "value")
		if err != nil {
			return nil, err
		}
		first, n, err := r.find(v, args[0])
		if err == nil && n == 0 {
			err = fmt.Errorf("index: the value is not in the list")
		}
		return int64(first), err
	},
	"copy": func(r *run, v value, a *arguments) (value, error) {
		_, err := a.bind("copy")
		return newList(v.(*list).items), err
	},
}

// find returns the place of the first element equal to x, and how many there are.
func (r *run) find(v, x value) (first, n int, err error) {
	items, err := r.collect(v)
	if err != nil {
		return 0, 0, err
	}
	for i, item := range items {
		same, err := r.equalItems(item, x, 0)
		if err != nil {
			return 0, 0, err
		}
		if same {
			if n == 0 {
				first = i
			}
			n++
		}
	}
	return first, n, nil
}

func dictViewOf(kind string) func(*run, *dict, *arguments) (value, error) {
	return func(_ *run, d *dict, a *arguments) (value, error) {
		_, err := a.bind(kind)
		return &dictView{"dict_" + kind, d}, err
	}
}

var dictMethods = map[string]func(r *run, d *dict, a *arguments) (value, error){
	"keys":   dictViewOf("keys"),
	"values": dictViewOf("values"),
	"items":  dictViewOf("items"),
	"get": func(r *run, d *dict, a *arguments) (value, error) {
		if len(a.names) > 0 {
			return nil, fmt.Errorf("get: found the argument %s, want none by name", quoted(a.names[0]))
		}
		args, err := a.bind("get", "key", "default?")
		if err != nil {
			return nil, err
		}
		v, found, err := d.get(r, args[0])
		if err != nil || found {
			return v, err
		}
		if given(args[1]) {
			return args[1], nil
		}
		return nil, nil
	},
	"copy": func(r *run, d *dict, a *arguments) (value, error) {
		if _, err := a.bind("copy"); err != nil {
			return nil, err
		}
		return r.dictOf(d)
	},
	"fromkeys": func(r *run, _ *dict, a *arguments) (value, error) {
		args, err := a.bind("fromkeys", "keys", "value?")
		if err != nil {
			return nil, err
		}
		if !given(args[1]) {
			args[1] = nil
		}
		keys, err := r.collect(args[0])
		if err != nil {
			return nil, err
		}
		out := newDict(0)
		for _, key := range keys {
			if err := out.set(r, key, args[1]); err != nil {
				return nil, err
			}
		}
		return out, nil
	},
}
