package jinja

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

func filterLength(r *run, v value, a *arguments) (value, error) {
	if _, err := a.bind("length"); err != nil {
		return nil, err
	}
	n, err := r.length(v)
	return int64(n), err
}

func filterDefault(r *run, v value, a *arguments) (value, error) {
	args, err := a.bind("default", "default_value?", "boolean?")
	if err != nil {
		return nil, err
	}
	otherwise := args[0]
	if !given(otherwise) {
		otherwise = ""
	}
	if _, ok := v.(*undefined); ok {
		return otherwise, nil
	}
	if given(args[1]) {
		asked, err := r.truth(args[1])
		if err != nil {
			return nil, err
		}
		if yes, err := r.truth(v); err != nil || asked && !yes {
			return otherwise, err
		}
	}
	return v, nil
}

func filterFirst(r *run, v value, a *arguments) (value, error) {
	if _, err := a.bind("first"); err != nil {
		return nil, err
	}
	it, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	item, ok, err := it.take(r)
	if err != nil || ok {
		return item, err
	}
	return &undefined{"No first item, sequence was empty."}, nil
}

func filterLast(r *run, v value, a *arguments) (value, error) {
	if _, err := a.bind("last"); err != nil {
		return nil, err
	}
	switch v.(type) {
	case *list, *dict, *dictView, *rangeValue, string, markup:
	case *undefined:
		return &undefined{"No last item, sequence was empty."}, nil
	default:
		return nil, fmt.Errorf("found a value of type %s, want one that can be reversed", typeName(v))
	}
	if s, ok := text(v); ok {
		if s == "" {
			return &undefined{"No last item, sequence was empty."}, nil
		}
		c, _, err := r.character(s, -1)
		return like(v, c), err
	}
	back, err := r.reversed(v)
	if err != nil {
		return nil, err
	}
	item, ok, err := back.(*iterator).take(r)
	if err != nil || ok {
		return item, err
	}
	return &undefined{"No last item, sequence was empty."}, nil
}

func filterReverse(r *run, v value, a *arguments) (value, error) {
	if _, err := a.bind("reverse"); err != nil {
		return nil, err
	}
	if s, ok := text(v); ok {
		if err := r.charge(5 * len(s)); err != nil {
			return nil, err
		}
		var b strings.Builder
		all := []rune(s)
		for i := range all {
			b.WriteRune(all[len(all)-1-i])
		}
		return like(v, b.String()), nil
	}
	return r.reversed(v)
}

func filterList(r *run, v value, a *arguments) (value, error) {
	if _, err := a.bind("list"); err != nil {
		return nil, err
	}
	items, err := r.collect(v)
	return newList(items), err
}

func filterItems(r *run, v value, a *arguments) (value, error) {
	if _, err := a.bind("items"); err != nil {
		return nil, err
	}
	d, isDict := v.(*dict)
	_, isUndefined := v.(*undefined)
	started := false
	var it *iterator
	// A generator in Jinja: what is wrong with v shows when it is used.
	return generator(func(r *run) (value, bool, error) {
		switch {
		case isUndefined:
			return nil, false, nil
		case !isDict:
			return nil, false, fmt.Errorf("filter items: found a value of type %s, want a dict", typeName(v))
		case !started:
			started = true
			view := &dictView{"dict_items", d}
			it = counted(len(d.keys), view.at)
		}
		return it.take(r)
	}), nil
}

func filterJoin(r *run, v value, a *arguments) (value, error) {
	args, err := a.bind("join", "d?", "attribute?")
	if err != nil {
		return nil, err
	}
	separator := ""
	if given(args[0]) {
		if separator, err = r.str(args[0]); err != nil {
			return nil, err
		}
	}
	items, err := r.collect(v)
	if err != nil {
		return nil, err
	}
	if err := r.chargeItems(len(items)); err != nil {
		return nil, err
	}
	var get getter
	if set(args[1]) {
		if get, err = r.getter(args[1], nil, false); err != nil {
			return nil, err
		}
	}
	parts := make([]string, len(items))
	for i, item := range items {
		if get != nil {
			if item, err = get(r, item); err != nil {
				return nil, err
			}
		}
		if parts[i], err = r.str(item); err != nil {
			return nil, err
		}
	}
	return r.joined(parts, separator)
}

func filterAttr(r *run, v value, a *arguments) (value, error) {
	args, err := a.bind("attr", "name")
	if err != nil {
		return nil, err
	}
	name, err := stringArg("attr", args[0])
	if err != nil {
		return nil, err
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	if item, ok, err := r.ownAttr(v, name); ok || err != nil {
		return item, err
	}
	return &undefined{"'" + objectName(v) + "' has no attribute '" + name + "'"}, nil
}

// getter takes an attribute of a value.
type getter func(r *run, v value) (value, error)

// getter reads "a.b.0", or a number; ignoreCase lowers strings. A value that is not
// there is otherwise, unless that is None.
func (r *run) getter(attribute, otherwise value, ignoreCase bool) (getter, error) {
	var parts []value
	if s, ok := text(attribute); ok {
		if err := r.chargeItems(1 + strings.Count(s, ".")); err != nil {
			return nil, err
		}
		for part := range strings.SplitSeq(s, ".") {
			if n, err := strconv.ParseUint(part, 10, 62); err == nil && part[0] != '+' {
				parts = append(parts, int64(n))
			} else {
				parts = append(parts, part)
			}
		}
	} else if attribute != nil {
		parts = []value{attribute}
	}
	return func(r *run, v value) (value, error) {
		for _, part := range parts {
			if err := r.charge(nodeCost); err != nil {
				return nil, err
			}
			var err error
			if v, err = r.getItem(v, part); err != nil {
				return nil, err
			}
			if _, ok := v.(*undefined); ok && otherwise != nil {
				v = otherwise
			}
		}
		if ignoreCase {
			return r.ignoreCase(v)
		}
		return v, nil
	}, nil
}

func (r *run) ignoreCase(v value) (value, error) {
	s, ok := text(v)
	if !ok {
		return v, nil
	}
	if err := r.chargeCase(s); err != nil {
		return nil, err
	}
	return like(v, lower(s)), nil
}

// keyed reads the arguments case_sensitive and attribute of a filter.
func (r *run) keyed(sensitive, attribute, otherwise value) (getter, error) {
	ignoreCase := true
	if given(sensitive) {
		yes, err := r.truth(sensitive)
		if err != nil {
			return nil, err
		}
		ignoreCase = !yes
	}
	if !given(attribute) {
		attribute = nil
	}
	return r.getter(attribute, otherwise, ignoreCase)
}

// keys are the values that the elements of v are sorted by.
func (r *run) keys(items []value, get getter) ([]value, error) {
	if err := r.chargeItems(len(items)); err != nil {
		return nil, err
	}
	keys := make([]value, len(items))
	for i, item := range items {
		var err error
		if keys[i], err = get(r, item); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// sorted is the items in the order of their keys.
func (r *run) sorted(items, keys []value, reverse value) ([]value, error) {
	back := false
	if given(reverse) {
		var err error
		if back, err = r.truth(reverse); err != nil {
			return nil, err
		}
	}
	order, err := r.sortOrder(keys, back)
	if err != nil {
		return nil, err
	}
	if err := r.chargeItems(len(items)); err != nil {
		return nil, err
	}
	out := make([]value, len(items))
	for i, from := range order {
		out[i] = items[from]
	}
	return out, nil
}

func filterSort(r *run, v value, a *arguments) (value, error) {
	args, err := a.bind("sort", "reverse?", "case_sensitive?", "attribute?")
	if err != nil {
		return nil, err
	}
	items, err := r.collect(v)
	if err != nil {
		return nil, err
	}
	var gets []getter
	attributes := []value{args[2]}
	if s, ok := text(args[2]); ok { // several
		if err := r.chargeItems(1 + strings.Count(s, ",")); err != nil {
			return nil, err
		}
		attributes = nil
		for part := range strings.SplitSeq(s, ",") {
			attributes = append(attributes, part)
		}
	}
	for _, attribute := range attributes {
		get, err := r.keyed(args[1], attribute, nil)
		if err != nil {
			return nil, err
		}
		gets = append(gets, get)
	}
	keys, err := r.keys(items, func(r *run, v value) (value, error) {
		parts := make([]value, len(gets))
		for i, get := range gets {
			var err error
			if parts[i], err = get(r, v); err != nil {
				return nil, err
			}
		}
		return newList(parts), nil
	})
	if err != nil {
		return nil, err
	}
	out, err := r.sorted(items, keys, args[0])
	return newList(out), err
}

func filterDictSort(r *run, v value, a *arguments) (value, error) {
	args, err := a.bind("dictsort", "case_sensitive?", "by?", "reverse?")
	if err != nil {
		return nil, err
	}
	by := 0
	if given(args[1]) {
		switch args[1] {
		case "key":
		case "value":
			by = 1
		default:
			return nil, errors.New(`found another order, want "key" or "value"`)
		}
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	d, ok := v.(*dict)
	if !ok {
		return nil, fmt.Errorf("found a value of type %s, want a dict", typeName(v))
	}
	get, err := r.keyed(args[0], missing{}, nil)
	if err != nil {
		return nil, err
	}
	if err := r.chargeItems(3 * len(d.keys)); err != nil {
		return nil, err
	}
	items := make([]value, len(d.keys))
	for i := range items {
		items[i] = newTuple(d.keys[i], d.vals[i])
	}
	keys, err := r.keys(items, func(r *run, v value) (value, error) { return get(r, v.(*list).items[by]) })
	if err != nil {
		return nil, err
	}
	out, err := r.sorted(items, keys, args[2])
	return newList(out), err
}

func filterGroupBy(r *run, v value, a *arguments) (value, error) {
	args, err := a.bind("groupby", "attribute", "default?", "case_sensitive?")
	if err != nil {
		return nil, err
	}
	otherwise := args[1]
	if !given(otherwise) {
		otherwise = nil
	}
	get, err := r.keyed(args[2], args[0], otherwise)
	if err != nil {
		return nil, err
	}
	exact, err := r.getter(args[0], otherwise, false)
	if err != nil {
		return nil, err
	}
	items, err := r.collect(v)
	if err != nil {
		return nil, err
	}
	keys, err := r.keys(items, get)
	if err != nil {
		return nil, err
	}
	order, err := r.sortOrder(keys, false)
	if err != nil {
		return nil, err
	}
	var groups []value
	var last *list
	for n, i := range order {
		same := false
		if n > 0 {
			if same, err = r.equal(keys[order[n-1]], keys[i], 0); err != nil {
				return nil, err
			}
		}
		if err := r.chargeItems(4); err != nil {
			return nil, err
		}
		if !same {
			shown, err := exact(r, items[i])
			if err != nil {
				return nil, err
			}
			last = newList(nil)
			groups = append(groups, &list{items: []value{shown, last}, tuple: true, fields: []string{"grouper", "list"}})
		}
		last.items = append(last.items, items[i])
	}
	return newList(groups), nil
}

func filterUnique(r *run, v value, a *arguments) (value, error) {
	args, err := a.bind("unique", "case_sensitive?", "attribute?")
	if err != nil {
		return nil, err
	}
	get, err := r.keyed(args[0], args[1], nil)
	if err != nil {
		return nil, err
	}
	var it *iterator
	seen := newDict(0)
	return generator(func(r *run) (value, bool, error) {
		if it == nil {
			var err error
			if it, err = r.iterate(v); err != nil {
				return nil, false, err
			}
		}
		for {
			item, ok, err := it.take(r)
			if err != nil || !ok {
				return nil, false, err
			}
			key, err := get(r, item)
			if err != nil {
				return nil, false, err
			}
			_, known, err := seen.get(r, key)
			if err != nil {
				return nil, false, err
			}
			if !known {
				return item, true, seen.set(r, key, nil)
			}
		}
	}), nil
}

// extreme is min or max.
func extreme(name, op string) filterFunc {
	return func(r *run, v value, a *arguments) (value, error) {
		args, err := a.bind(name, "case_sensitive?", "attribute?")
		if err != nil {
			return nil, err
		}
		get, err := r.keyed(args[0], args[1], nil)
		if err != nil {
			return nil, err
		}
		items, err := r.collect(v)
		if err != nil {
			return nil, err
		}
		if len(items) == 0 {
			return &undefined{"No aggregated item, sequence was empty."}, nil
		}
		keys, err := r.keys(items, get)
		if err != nil {
			return nil, err
		}
		best := 0
		for i := range items {
			if i == 0 {
				continue
			}
			better, err := r.order(op, keys[i], keys[best], 0)
			if err != nil {
				return nil, err
			}
			if better {
				best = i
			}
		}
		return items[best], nil
	}
}

func filterSum(r *run, v value, a *arguments) (value, error) {
	args, err := a.bind("sum", "attribute?", "start?")
	if err != nil {
		return nil, err
	}
	var get getter
	if set(args[0]) {
		if get, err = r.getter(args[0], nil, false); err != nil {
			return nil, err
		}
	}
	var sum value = int64(0)
	if given(args[1]) {
		sum = args[1]
	}
	if _, ok := text(sum); ok {
		return nil, errors.New("found a string to start from, want a number or a list")
	}
	it, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	for {
		item, ok, err := it.take(r)
		if err != nil || !ok {
			return sum, err
		}
		if get != nil {
			if item, err = get(r, item); err != nil {
				return nil, err
			}
		}
		if sum, err = r.binary("+", sum, item); err != nil {
			return nil, err
		}
	}
}

func filterBatch(r *run, v value, a *arguments) (value, error) {
	args, err := a.bind("batch", "linecount", "fill_with?")
	if err != nil {
		return nil, err
	}
	size, err := intArg("linecount", args[0], 0)
	if err != nil {
		return nil, err
	}
	var it *iterator
	return generator(func(r *run) (value, bool, error) {
		if it == nil {
			var err error
			if it, err = r.iterate(v); err != nil {
				return nil, false, err
			}
		}
		var batch []value
		for len(batch) < max(size, 1) {
			item, ok, err := it.take(r)
			if err != nil {
				return nil, false, err
			}
			if !ok {
				break
			}
			batch = append(batch, item)
		}
		if len(batch) == 0 {
			return nil, false, nil
		}
		if fill := size - len(batch); fill > 0 && set(args[1]) {
			if err := r.chargeItems(fill); err != nil {
				return nil, false, err
			}
			for range fill {
				batch = append(batch, args[1])
			}
		}
		return newList(batch), true, nil
	}), nil
}

func filterSlice(r *run, v value, a *arguments) (value, error) {
	args, err := a.bind("slice", "slices", "fill_with?")
	if err != nil {
		return nil, err
	}
	slices, err := intArg("slices", args[0], 0)
	if err != nil {
		return nil, err
	}
	if slices == 0 {
		return nil, errZero
	}
	items, err := r.collect(v)
	if err != nil {
		return nil, err
	}
	i, offset := 0, 0
	return generator(func(r *run) (value, bool, error) {
		if i >= slices {
			return nil, false, nil
		}
		each, extra := len(items)/slices, len(items)%slices
		start := offset + i*each
		if i < extra {
			offset++
		}
		end := offset + (i+1)*each
		i++
		if err := r.chargeItems(end - start + 1); err != nil {
			return nil, false, err
		}
		part := append([]value{}, items[start:end]...)
		if set(args[1]) && i > extra {
			part = append(part, args[1])
		}
		return newList(part), true, nil
	}), nil
}

func filterMap(r *run, v value, a *arguments) (value, error) {
	var apply getter
	if attribute, ok := a.take("attribute"); ok && len(a.args) == 0 {
		otherwise, _ := a.take("default")
		if len(a.names) > 0 {
			return nil, fmt.Errorf("found the argument %s, want attribute and default", quoted(a.names[0]))
		}
		var err error
		if apply, err = r.getter(attribute, otherwise, false); err != nil {
			return nil, err
		}
	} else {
		if len(a.args) == 0 {
			return nil, errors.New("found no argument, want the name of a filter or an attribute")
		}
		name, err := stringArg("map", a.args[0])
		if err != nil {
			return nil, err
		}
		rest := &arguments{a.args[1:], a.names, a.named}
		apply = func(r *run, v value) (value, error) { return r.filter(name, v, rest) }
	}
	return r.lazily(v, func(r *run, item value) (value, bool, error) {
		out, err := apply(r, item)
		return out, true, err
	})
}

// take removes an argument that was given by name.
func (a *arguments) take(name string) (value, bool) {
	for i, n := range a.names {
		if n == name {
			v := a.named[i]
			a.names = append(a.names[:i:i], a.names[i+1:]...)
			a.named = append(a.named[:i:i], a.named[i+1:]...)
			return v, true
		}
	}
	return nil, false
}

// lazily makes a generator of what f makes of the elements of v, and keeps.
func (r *run) lazily(v value, f func(r *run, item value) (out value, keep bool, err error)) (value, error) {
	var it *iterator
	return generator(func(r *run) (value, bool, error) {
		if it == nil {
			if yes, err := r.truth(v); err != nil || !yes {
				return nil, false, err
			}
			var err error
			if it, err = r.iterate(v); err != nil {
				return nil, false, err
			}
		}
		for {
			item, ok, err := it.take(r)
			if err != nil || !ok {
				return nil, false, err
			}
			out, keep, err := f(r, item)
			if err != nil || keep {
				return out, err == nil, err
			}
		}
	}), nil
}

// choose is select or reject, of the elements or of an attribute of theirs.
func choose(byAttribute, wanted bool) filterFunc {
	return func(r *run, v value, a *arguments) (value, error) {
		get := getter(func(_ *run, v value) (value, error) { return v, nil })
		rest := a.args
		if byAttribute {
			if len(rest) == 0 {
				return nil, errors.New("found no argument, want the name of an attribute")
			}
			var err error
			if get, err = r.getter(rest[0], nil, false); err != nil {
				return nil, err
			}
			rest = rest[1:]
		}
		holds := func(r *run, v value) (bool, error) { return r.truth(v) }
		if len(rest) > 0 {
			name, err := stringArg("test", rest[0])
			if err != nil {
				return nil, err
			}
			args := &arguments{rest[1:], a.names, a.named}
			holds = func(r *run, v value) (bool, error) { return r.test(name, v, args) }
		}
		return r.lazily(v, func(r *run, item value) (value, bool, error) {
			x, err := get(r, item)
			if err != nil {
				return nil, false, err
			}
			yes, err := holds(r, x)
			return item, yes == wanted, err
		})
	}
}
