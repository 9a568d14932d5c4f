package jinja

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

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
