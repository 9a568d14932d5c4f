package jinja

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"strings"
)

// compare is a op b.
func (r *run) compare(op string, a, b value) (bool, error) {
	switch op {
	case "==":
		return r.equal(a, b, 0)
	case "!=":
		yes, err := r.equal(a, b, 0)
		return !yes, err
	case "in":
		return r.in(a, b)
	case "notin":
		yes, err := r.in(a, b)
		return !yes, err
	}
	return r.order(op, a, b, 0)
}

func nested(depth int) error {
	if depth > maxNesting {
		return fmt.Errorf("found lists and dicts nested more than %d deep", maxNesting)
	}
	return nil
}

// equal is a == b.
func (r *run) equal(a, b value, depth int) (bool, error) {
	if err := nested(depth); err != nil {
		return false, err
	}
	if s, ok := text(a); ok {
		t, ok := text(b)
		if !ok || len(s) != len(t) {
			return false, nil
		}
		return s == t, r.scan(len(s))
	}
	if order, ok := numbers(a, b); ok {
		return order == 0, nil
	}
	switch x := a.(type) {
	case *undefined:
		_, ok := b.(*undefined)
		return ok, nil
	case *list:
		y, ok := b.(*list)
		if !ok || x.tuple != y.tuple || len(x.items) != len(y.items) {
			return false, nil
		}
		for i := range x.items {
			if yes, err := r.equalItems(x.items[i], y.items[i], depth); err != nil || !yes {
				return false, err
			}
		}
		return true, nil
	case *dict:
		y, ok := b.(*dict)
		if !ok || len(x.keys) != len(y.keys) {
			return false, nil
		}
		for i, key := range x.keys {
			v, found, err := y.get(r, key)
			if err != nil || !found {
				return false, err
			}
			if yes, err := r.equalItems(x.vals[i], v, depth); err != nil || !yes {
				return false, err
			}
		}
		return true, nil
	case *dictView:
		y, ok := b.(*dictView)
		if !ok || x.kind != y.kind || len(x.dict.keys) != len(y.dict.keys) || x.kind == "dict_values" {
			return false, nil
		}
		for i, key := range x.dict.keys {
			v, found, err := y.dict.get(r, key)
			if err != nil || !found {
				return false, err
			}
			if x.kind == "dict_keys" {
				continue
			}
			if yes, err := r.equalItems(x.dict.vals[i], v, depth); err != nil || !yes {
				return false, err
			}
		}
		return true, nil
	case *function:
		y, ok := b.(*function)
		return ok && (x == y || x.of != nil && x.of == y.of && x.name == y.name), nil
	case *rangeValue:
		y, ok := b.(*rangeValue)
		return ok && x.n == y.n && (x.n == 0 || x.start == y.start && (x.n == 1 || x.step == y.step)), nil
	case float64, int64, bool, *big.Int:
		return false, nil // not both are numbers, or one is NaN
	}
	return a == b, nil
}

// equalItems also takes one and the same value for equal, as containers do.
func (r *run) equalItems(a, b value, depth int) (bool, error) {
	if err := r.charge(nodeCost); err != nil {
		return false, err
	}
	return r.equal(a, b, depth+1)
}

// numbers compares two numbers: -1, 0 or 1; ok is false if they are none, or NaN.
func numbers(a, b value) (order int, ok bool) {
	x, okX := a.(int64)
	y, okY := b.(int64)
	if okX && okY {
		return cmp.Compare(x, y), true
	}
	p, intP := asBig(a)
	q, intQ := asBig(b)
	if intP && intQ {
		return p.Cmp(q), true
	}
	f, floatF := a.(float64)
	g, floatG := b.(float64)
	switch {
	case math.IsNaN(f) || math.IsNaN(g):
		return 0, false
	case floatF && floatG:
		return cmp.Compare(f, g), true
	case floatF && intQ:
		return compareBig(f, q), true
	case intP && floatG:
		return -compareBig(g, p), true
	}
	return 0, false
}

func compareBig(f float64, i *big.Int) int {
	if math.IsInf(f, 0) {
		return cmp.Compare(f, 0)
	}
	return big.NewFloat(f).Cmp(new(big.Float).SetInt(i))
}

// order is a op b for <, <=, > and >=.
func (r *run) order(op string, a, b value, depth int) (bool, error) {
	if err := nested(depth); err != nil {
		return false, err
	}
	holds := func(c int) bool {
		switch op {
		case "<":
			return c < 0
		case "<=":
			return c <= 0
		case ">":
			return c > 0
		}
		return c >= 0
	}
	if c, ok := numbers(a, b); ok {
		return holds(c), nil
	}
	_, numberA := asFloat(a)
	_, numberB := asFloat(b)
	if numberA && numberB {
		return false, nil // NaN
	}
	s, textA := text(a)
	t, textB := text(b)
	if textA && textB {
		return holds(strings.Compare(s, t)), r.scan(min(len(s), len(t)))
	}
	x, listA := a.(*list)
	y, listB := b.(*list)
	if !listA || !listB || x.tuple != y.tuple {
		return false, errOperands(op, a, b)
	}
	for i := range min(len(x.items), len(y.items)) {
		same, err := r.equalItems(x.items[i], y.items[i], depth)
		if err != nil {
			return false, err
		}
		if !same {
			return r.order(op, x.items[i], y.items[i], depth+1)
		}
	}
	return holds(cmp.Compare(len(x.items), len(y.items))), nil
}

// in is a in b.
func (r *run) in(a, b value) (bool, error) {
	switch b := b.(type) {
	case string, markup:
		s, _ := text(b)
		part, ok := text(a)
		if !ok {
			return false, fmt.Errorf("found a value of type %s before \"in\" and a string, want a string", typeName(a))
		}
		return strings.Contains(s, part), r.scan(len(s) + len(part))
	case *dict:
		_, found, err := b.get(r, a)
		return found, err
	case *dictView:
		if b.kind == "dict_keys" {
			_, found, err := b.dict.get(r, a)
			return found, err
		}
	case *rangeValue:
		if n, ok := a.(int64); ok {
			i := int(n) - b.start
			return i%b.step == 0 && i/b.step >= 0 && i/b.step < b.n, nil
		}
	}
	it, err := r.iterate(b)
	if err != nil {
		return false, err
	}
	for {
		item, ok, err := it.take(r)
		if err != nil || !ok {
			return false, err
		}
		if yes, err := r.equal(a, item, 0); err != nil || yes {
			return yes, err
		}
	}
}
