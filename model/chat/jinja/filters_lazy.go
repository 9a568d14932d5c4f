package jinja

import (
	"errors"
	"fmt"
)

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
