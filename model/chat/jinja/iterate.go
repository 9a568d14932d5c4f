package jinja

import (
	"fmt"
	"unicode/utf8"
)

// iterator gives values once, as Python's iterators and generators do.
type iterator struct {
	kind string
	next func(r *run) (value, bool, error)
	size func() int // of what is iterated over, or nil
}

func generator(next func(r *run) (value, bool, error)) *iterator {
	return &iterator{kind: "generator", next: next}
}

// take pays for the next value and returns it.
func (it *iterator) take(r *run) (value, bool, error) {
	if err := r.charge(itemCost); err != nil {
		return nil, false, err
	}
	if r.takes >= maxNesting {
		return nil, false, fmt.Errorf("found iterators nested more than %d deep", maxNesting)
	}
	r.takes++
	v, ok, err := it.next(r)
	r.takes--
	return v, ok, err
}

// counted iterates over n elements.
func counted(n int, at func(i int) value) *iterator {
	i := 0
	return &iterator{
		kind: "iterator", size: func() int { return n },
		next: func(*run) (value, bool, error) {
			if i >= n {
				return nil, false, nil
			}
			i++
			return at(i - 1), true, nil
		},
	}
}

// iterate is iter(v).
func (r *run) iterate(v value) (*iterator, error) {
	switch v := v.(type) {
	case *iterator:
		return &iterator{kind: v.kind, next: v.next}, nil // has no length
	case *undefined:
		return counted(0, nil), nil
	case *list:
		return counted(len(v.items), func(i int) value { return v.items[i] }), nil
	case *dict:
		return counted(len(v.keys), func(i int) value { return v.keys[i] }), nil
	case *dictView:
		return counted(len(v.dict.keys), v.at), nil
	case *rangeValue:
		return counted(v.n, func(i int) value { return int64(v.start + i*v.step) }), nil
	case *loopValue:
		return generator(func(r *run) (value, bool, error) {
			item, ok, err := v.next(r)
			return newTuple(item, v), ok, err
		}), nil
	case string:
		return characters(v), nil
	case markup:
		return characters(string(v)), nil
	}
	return nil, fmt.Errorf("found a value of type %s, want one that can be iterated over", typeName(v))
}

func characters(s string) *iterator {
	rest := s
	return &iterator{
		kind: "str_iterator", size: func() int { return utf8.RuneCountInString(s) },
		next: func(*run) (value, bool, error) {
			if rest == "" {
				return nil, false, nil
			}
			_, n := utf8.DecodeRuneInString(rest)
			c := rest[:n]
			rest = rest[n:]
			return c, true, nil
		},
	}
}

// collect is list(v). The result may be the value's own and is not changed.
func (r *run) collect(v value) ([]value, error) {
	if l, ok := v.(*list); ok {
		return l.items, nil
	}
	it, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	return it.rest(r)
}

func (it *iterator) rest(r *run) ([]value, error) {
	var items []value
	for {
		v, ok, err := it.take(r)
		if err != nil || !ok {
			return items, err
		}
		items = append(items, v)
	}
}

// reversed is reversed(v), or a reversed list of what has no order from behind.
func (r *run) reversed(v value) (value, error) {
	switch v := v.(type) {
	case *undefined:
		return backward(0, nil), nil
	case *list:
		n := len(v.items)
		return backward(n, func(i int) value { return v.items[i] }), nil
	case *dict:
		return backward(len(v.keys), func(i int) value { return v.keys[i] }), nil
	case *dictView:
		return backward(len(v.dict.keys), v.at), nil
	case *rangeValue:
		return backward(v.n, func(i int) value { return int64(v.start + i*v.step) }), nil
	}
	items, err := r.collect(v)
	if err != nil {
		return nil, err
	}
	if err := r.chargeItems(len(items)); err != nil {
		return nil, err
	}
	out := make([]value, len(items))
	for i, item := range items {
		out[len(items)-1-i] = item
	}
	return newList(out), nil
}

func backward(n int, at func(i int) value) *iterator {
	it := counted(n, func(i int) value { return at(n - 1 - i) })
	it.kind, it.size = "reversed", nil
	return it
}

// loopValue is the variable "loop".
type loopValue struct {
	items   *iterator
	index0  int
	depth0  int
	recurse func(v value) (string, error)

	ahead           *value // was looked at before its time
	current, before value
	known           int // length + 1, once asked for
	changed         []value
	hasChanged      bool
}

func (l *loopValue) next(r *run) (value, bool, error) {
	var v value
	if l.ahead != nil {
		v, l.ahead = *l.ahead, nil
	} else {
		var ok bool
		var err error
		if v, ok, err = l.items.take(r); err != nil || !ok {
			return nil, false, err
		}
	}
	l.index0++
	l.before, l.current = l.current, v
	return v, true, nil
}

func (l *loopValue) peek(r *run) (value, bool, error) {
	if l.ahead == nil {
		v, ok, err := l.items.take(r)
		if err != nil || !ok {
			return nil, false, err
		}
		l.ahead = &v
	}
	return *l.ahead, true, nil
}

// length reads on to the end where it must.
func (l *loopValue) length(r *run) (int, error) {
	if l.known > 0 {
		return l.known - 1, nil
	}
	n := 0
	if l.items.size != nil {
		n = l.items.size()
	} else {
		rest, err := l.items.rest(r)
		if err != nil {
			return 0, err
		}
		l.items = counted(len(rest), func(i int) value { return rest[i] })
		n = len(rest) + l.index0 + 1
		if l.ahead != nil {
			n++
		}
	}
	l.known = n + 1
	return n, nil
}
