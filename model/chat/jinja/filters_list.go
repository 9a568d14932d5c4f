package jinja

import (
	"slices"
	"strconv"
	"strings"
)

// getter takes an attribute of a value.
type getter func(v value) value

// getter reads "a.b.0", or a number; None is the value itself. What is not there is
// otherwise, unless that is None.
func (r *run) getter(attribute, otherwise value) getter {
	parts := []value{attribute}
	if s, ok := text(attribute); ok && r.chargeItems(1+strings.Count(s, ".")) {
		parts = nil
		for part := range strings.SplitSeq(s, ".") {
			if n, err := strconv.ParseUint(part, 10, 62); err == nil {
				parts = append(parts, int64(n))
			} else {
				parts = append(parts, part)
			}
		}
	} else if !isSet(attribute) {
		parts = nil
	}
	return func(v value) value {
		for _, part := range parts {
			if !r.charge(nodeCost) {
				return nil
			}
			if v = r.getItem(v, part); isType[*undefined](v) && otherwise != nil {
				v = otherwise
			}
		}
		return v
	}
}

// keys are the values that elements are sorted by; strings in small letters unless they are
// case sensitive.
func (r *run) keys(items []value, sensitive value, get getter) []value {
	if !r.chargeItems(len(items)) {
		return nil
	}
	keys := make([]value, len(items))
	for i, item := range items {
		if keys[i] = get(item); !flag(sensitive) {
			keys[i] = r.ignoreCase(keys[i])
		}
	}
	return keys
}

func (r *run) ignoreCase(v value) value {
	if s, ok := text(v); ok && r.charge(product(charCost, len(s))) {
		return lower(s)
	}
	return v
}

// sorted is the items in the order of their keys.
func (r *run) sorted(items, keys []value, reverse value) value {
	order := r.sortOrder(keys, flag(reverse))
	out := make([]value, len(order))
	for i, from := range order {
		out[i] = items[from]
	}
	return newList(out)
}

func filterSort(r *run, v value, a *arguments) value {
	args := a.bindParameters(r, "reverse?", "case_sensitive?", "attribute?")
	var gets []getter
	if s, ok := text(args[2]); ok {
		for part := range strings.SplitSeq(s, ",") {
			gets = append(gets, r.getter(part, nil))
		}
	} else {
		gets = append(gets, r.getter(args[2], nil))
	}
	items := r.iterate(v)
	keys := r.keys(items, true, func(item value) value {
		parts := make([]value, len(gets))
		for i, get := range gets {
			if parts[i] = get(item); !flag(args[1]) {
				parts[i] = r.ignoreCase(parts[i])
			}
		}
		return newTuple(parts...)
	})
	return r.sorted(items, keys, args[0])
}

func filterDictSort(r *run, v value, a *arguments) value {
	args := a.bindParameters(r, "case_sensitive?", "by?", "reverse?")
	by := map[value]int{missing{}: 0, "key": 0, "value": 1}
	i, ok := by[args[1]]
	if !ok {
		return r.failWith(`found another order, want "key" or "value"`)
	}
	d, ok := v.(*dict)
	if !ok {
		return r.failWith("found a value of type %s, want a dict", typeName(v))
	}
	items := d.pairs(r)
	return r.sorted(items, r.keys(items, args[0], func(v value) value { return v.(*list).items[i] }), args[2])
}

func filterUnique(r *run, v value, a *arguments) value {
	args := a.bindParameters(r, "case_sensitive?", "attribute?")
	items := r.iterate(v)
	seen := newDict(0)
	var out []value
	for i, key := range r.keys(items, args[0], r.getter(args[1], nil)) {
		if _, known := seen.getItem(r, key); !known {
			seen.setItem(r, key, nil)
			out = append(out, items[i])
		}
	}
	return &generator{out}
}

// extreme is min (-1) or max (1).
func extreme(which int) filterFunc {
	return func(r *run, v value, a *arguments) value {
		args := a.bindParameters(r, "case_sensitive?", "attribute?")
		items := r.iterate(v)
		keys := r.keys(items, args[0], r.getter(args[1], nil))
		best := 0
		for i := range keys {
			if c, _ := r.order("<", keys[i], keys[best], 0); c == which {
				best = i
			}
		}
		if len(keys) == 0 {
			return &undefined{"No aggregated item, sequence was empty."}
		}
		return items[best]
	}
}

func filterLength(r *run, v value, a *arguments) value {
	a.bindParameters(r)
	return int64(r.length(v))
}

func filterFirst(r *run, v value, a *arguments) value {
	a.bindParameters(r)
	items := r.iterate(v)
	if g, ok := v.(*generator); ok && len(items) > 0 {
		g.rest = items[1:]
	}
	if len(items) == 0 {
		return &undefined{"No first item, sequence was empty."}
	}
	return items[0]
}

func filterLast(r *run, v value, a *arguments) value {
	a.bindParameters(r)
	if isType[*generator](v) {
		return r.failWith("found a generator, want a list of it")
	}
	items := r.iterate(v)
	if len(items) == 0 {
		return &undefined{"No last item, sequence was empty."}
	}
	return items[len(items)-1]
}

func filterReverse(r *run, v value, a *arguments) value {
	a.bindParameters(r)
	items := r.iterate(v)
	if !r.chargeItems(len(items)) {
		return nil
	}
	items = slices.Clone(items)
	slices.Reverse(items)
	switch v.(type) {
	case string:
		return r.joined(items, "")
	case *generator:
		return newList(items)
	}
	return &generator{items}
}

func filterList(r *run, v value, a *arguments) value {
	a.bindParameters(r)
	return newList(r.iterate(v))
}

func filterItems(r *run, v value, a *arguments) value {
	a.bindParameters(r)
	switch v := v.(type) {
	case *undefined:
		return &generator{}
	case *dict:
		return &generator{v.pairs(r)}
	}
	return r.failWith("found a value of type %s, want a dict", typeName(v))
}

func filterJoin(r *run, v value, a *arguments) value {
	args := a.bindParameters(r, "d?", "attribute?")
	separator := ""
	if given(args[0]) {
		separator = r.str(args[0])
	}
	items := r.iterate(v)
	if isSet(args[1]) {
		items = r.keys(items, true, r.getter(args[1], nil))
	}
	return r.joined(items, separator)
}

func filterSum(r *run, v value, a *arguments) value {
	get := r.getter(a.bindParameters(r, "attribute?")[0], nil)
	var sum value = int64(0)
	for _, item := range r.iterate(v) {
		sum = r.binary("+", sum, get(item))
	}
	return sum
}

func filterBatch(r *run, v value, a *arguments) value {
	args := a.bindParameters(r, "linecount", "fill_with?")
	size := r.intArg(args[0], 1)
	var batches []value
	for batch := range slices.Chunk(r.iterate(v), max(size, 1)) {
		if fill := size - len(batch); fill > 0 && isSet(args[1]) && r.chargeItems(fill) {
			batch = slices.Concat(batch, slices.Repeat(args[1:], fill))
		}
		if !r.chargeItems(2) {
			break
		}
		batches = append(batches, newList(batch))
	}
	return &generator{batches}
}

func filterMap(r *run, v value, a *arguments) value {
	rest := &arguments{a.args, a.names, a.named}
	var apply getter
	if attribute, ok := rest.takeNamed("attribute"); ok && len(a.args) == 0 {
		otherwise, _ := rest.takeNamed("default")
		if len(rest.names) > 0 {
			return r.failWith("found the argument %s, want attribute and default", quoted(rest.names[0]))
		}
		apply = r.getter(attribute, otherwise)
	} else {
		if len(a.args) == 0 {
			return r.failWith("found no argument, want the name of a filter or an attribute")
		}
		name := r.stringArg(a.args[0])
		rest := &arguments{a.args[1:], a.names, a.named}
		apply = func(v value) value { return r.filter(name, v, rest) }
	}
	return r.collect(v, func(item value) (value, bool) { return apply(item), true })
}

// collect makes a generator of f's results for the elements of v, as far as f keeps them.
func (r *run) collect(v value, f func(item value) (out value, keep bool)) value {
	g := &generator{}
	if !truth(v) {
		return g
	}
	for _, item := range r.iterate(v) {
		if !r.charge(itemCost) {
			break
		}
		if out, keep := f(item); keep {
			g.rest = append(g.rest, out)
		}
	}
	return g
}

// choose is select or reject, of the elements or of an attribute of theirs.
func choose(byAttribute, wanted bool) filterFunc {
	return func(r *run, v value, a *arguments) value {
		get := func(v value) value { return v }
		rest := a.args
		if byAttribute {
			if len(rest) == 0 {
				return r.failWith("found no argument, want the name of an attribute")
			}
			get, rest = r.getter(rest[0], nil), rest[1:]
		}
		holds := truth
		if len(rest) > 0 {
			name := r.stringArg(rest[0])
			args := &arguments{rest[1:], a.names, a.named}
			holds = func(v value) bool { return r.test(name, v, args) }
		}
		return r.collect(v, func(item value) (value, bool) { return item, holds(get(item)) == wanted })
	}
}
