package jinja

import (
	"errors"
	"fmt"
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
