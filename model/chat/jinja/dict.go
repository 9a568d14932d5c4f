package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strings"
)

// dict keeps its keys in the order they came in.
type dict struct {
	keys, vals []value
	index      map[any]int // of hashed keys
}

func newDict(n int) *dict { return &dict{index: make(map[any]int, n)} }

// dictView is what keys(), values() and items() give.
type dictView struct {
	kind string // dict_keys, dict_values, dict_items
	dict *dict
}

func (v *dictView) at(i int) value {
	switch v.kind {
	case "dict_keys":
		return v.dict.keys[i]
	case "dict_values":
		return v.dict.vals[i]
	}
	return newTuple(v.dict.keys[i], v.dict.vals[i])
}

func (d *dict) get(r *run, key value) (value, bool, error) {
	h, err := r.hash(key)
	if err != nil {
		return nil, false, err
	}
	i, ok := d.index[h]
	if !ok {
		return nil, false, nil
	}
	return d.vals[i], true, nil
}

func (d *dict) named(name string) (value, bool) {
	i, ok := d.index[name]
	if !ok {
		return nil, false
	}
	return d.vals[i], true
}

func (d *dict) set(r *run, key, v value) error {
	h, err := r.hash(key)
	if err != nil {
		return err
	}
	if err := r.chargeItems(3); err != nil {
		return err
	}
	if i, ok := d.index[h]; ok {
		d.vals[i] = v
		return nil
	}
	d.index[h] = len(d.keys)
	d.keys, d.vals = append(d.keys, key), append(d.vals, v)
	return nil
}

// unhashable is the error for a key of a type that can change.
type unhashable string

func (u unhashable) Error() string {
	return "found a key of type " + string(u) + ", want one that cannot change"
}

type (
	noneKey  struct{}
	bigKey   string
	tupleKey string
)

// hash is a Go value that is equal for equal keys: 1, 1.0 and true are.
func (r *run) hash(v value) (any, error) { return r.hashAt(v, 0) }

func (r *run) hashAt(v value, depth int) (any, error) {
	if err := nested(depth); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil:
		return noneKey{}, nil
	case bool:
		i, _ := asInt(v)
		return int64(i), nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<62 {
			return int64(v), nil
		}
		return v, nil
	case *big.Int:
		return bigKey(v.Text(62)), r.scan(v.BitLen())
	case string:
		return v, r.scan(len(v))
	case markup:
		return string(v), r.scan(len(v))
	case *undefined:
		return (*undefined)(nil), nil
	case *dictView:
		if v.kind != "dict_values" {
			return nil, unhashable(v.kind)
		}
	case *dict:
		return nil, unhashable("dict")
	case *list:
		if !v.tuple {
			return nil, unhashable("list")
		}
		var b strings.Builder
		for _, item := range v.items {
			h, err := r.hashAt(item, depth+1)
			if err != nil {
				return nil, err
			}
			part := fmt.Sprintf("%T:%v", h, h)
			if err := r.charge(len(part) + itemCost); err != nil {
				return nil, err
			}
			fmt.Fprintf(&b, "%d,%s", len(part), part)
		}
		return tupleKey(b.String()), nil
	}
	return v, nil
}

// dictOf is dict(v): a copy of a dict, or one of pairs.
func (r *run) dictOf(v value) (*dict, error) {
	out := newDict(0)
	if d, ok := v.(*dict); ok {
		for i, key := range d.keys {
			if err := out.set(r, key, d.vals[i]); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	it, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	for {
		item, ok, err := it.take(r)
		if err != nil || !ok {
			return out, err
		}
		pair, err := r.unpack(item, 2)
		if err != nil {
			return nil, err
		}
		if err := out.set(r, pair[0], pair[1]); err != nil {
			return nil, err
		}
	}
}
