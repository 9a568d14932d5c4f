package jinja

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"unicode/utf8"
)

// getItem is v[index]. What is not there is undefined; v's attribute of that name
// comes second.
func (r *run) getItem(v, index value) (value, error) {
	switch v := v.(type) {
	case *undefined:
		return nil, v.fail()
	case *dict:
		item, found, err := v.get(r, index)
		var no unhashable
		if found || err != nil && !errors.As(err, &no) {
			return item, err
		}
	case *list, *rangeValue, string, markup:
		if i, ok := asInt(index); ok {
			if item, ok, err := r.element(v, i); ok || err != nil {
				return item, err
			}
		}
	}
	if name, ok := text(index); ok {
		if item, ok, err := r.ownAttr(v, name); ok || err != nil {
			return item, err
		}
		return &undefined{"'" + objectName(v) + "' has no attribute '" + name + "'"}, nil
	}
	shown, err := r.repr(index)
	if err != nil {
		return nil, err
	}
	return &undefined{objectName(v) + " has no element " + shown}, nil
}

// objectName describes a value as Jinja's messages do.
func objectName(v value) string {
	if v == nil {
		return "None"
	}
	return typeName(v) + " object"
}

// getAttr is v.name: an attribute or method, or else the element of a dict.
func (r *run) getAttr(v value, name string) (value, error) {
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	if item, ok, err := r.ownAttr(v, name); ok || err != nil {
		return item, err
	}
	if d, ok := v.(*dict); ok {
		if item, ok := d.named(name); ok {
			return item, nil
		}
	}
	return &undefined{"'" + objectName(v) + "' has no attribute '" + name + "'"}, nil
}

// element is the element i of a sequence, from the end if it is negative.
func (r *run) element(v value, i int) (item value, ok bool, err error) {
	if s, isText := text(v); isText {
		c, ok, err := r.character(s, i)
		return like(v, c), ok, err
	}
	n, _ := length(v)
	if i < 0 {
		i += n
	}
	if i < 0 || i >= n {
		return nil, false, nil
	}
	switch v := v.(type) {
	case *list:
		return v.items[i], true, nil
	case *rangeValue:
		return int64(v.start + i*v.step), true, nil
	}
	return nil, false, nil
}

// character is the character i of a string.
func (r *run) character(s string, i int) (c string, ok bool, err error) {
	if i < 0 {
		for rest := s; rest != ""; i++ {
			_, n := utf8.DecodeLastRuneInString(rest)
			if i == -1 {
				return rest[len(rest)-n:], true, r.scan(len(s) - len(rest))
			}
			rest = rest[:len(rest)-n]
		}
		return "", false, r.scan(len(s))
	}
	for at, c := range s {
		if i == 0 {
			return s[at : at+utf8.RuneLen(c)], true, r.scan(at)
		}
		i--
	}
	return "", false, r.scan(len(s))
}

// slice is v[start:stop:step].
func (r *run) slice(v value, bounds [3]value) (value, error) {
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	switch v.(type) {
	case *list, *rangeValue, string, markup:
	default:
		return nil, fmt.Errorf("found a slice of a value of type %s, want a string or a list", typeName(v))
	}
	s, isText := text(v)
	if isText {
		if err := r.scan(len(s)); err != nil {
			return nil, err
		}
	}
	n, _ := length(v)
	start, stop, step, count, err := sliceBounds(bounds, n)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case *list:
		if err := r.chargeItems(count); err != nil {
			return nil, err
		}
		items := make([]value, count)
		for i := range items {
			items[i] = v.items[start+i*step]
		}
		return &list{items: items, tuple: v.tuple}, nil
	case *rangeValue:
		first := v.start + start*v.step
		by := product64(v.step, step)
		return &rangeValue{first, v.start + stop*v.step, by, count}, nil
	}
	if step == 1 {
		return like(v, substring(s, start, count)), nil
	}
	if err := r.charge(4 * len(s)); err != nil {
		return nil, err
	}
	all := []rune(s)
	out := make([]rune, count)
	for i := range out {
		out[i] = all[start+i*step]
	}
	return like(v, string(out)), nil
}

// product64 is a product that stays within int; a range has at most maxRange
// elements, so that its steps then do not matter.
func product64(a, b int) int {
	p := new(big.Int).Mul(big.NewInt(int64(a)), big.NewInt(int64(b)))
	if !p.IsInt64() {
		return math.MaxInt32
	}
	return int(p.Int64())
}

// substring is count characters from start on.
func substring(s string, start, count int) string {
	if len(s) == utf8.RuneCountInString(s) {
		return s[start : start+count]
	}
	from, to := len(s), len(s)
	i := 0
	for at := range s {
		if i == start {
			from = at
		}
		if i == start+count {
			to = at
			break
		}
		i++
	}
	return s[from:max(from, to)]
}

// sliceBounds resolves a slice of n elements as Python does.
func sliceBounds(bounds [3]value, n int) (start, stop, step, count int, err error) {
	var given [3]int
	for i, b := range bounds {
		if b == nil {
			continue
		}
		v, ok := asInt(b)
		if !ok {
			return 0, 0, 0, 0, fmt.Errorf("found a slice with a bound of type %s, want integers", typeName(b))
		}
		given[i] = v
	}
	step = 1
	if bounds[2] != nil {
		step = given[2]
	}
	if step == 0 {
		return 0, 0, 0, 0, fmt.Errorf("found a slice with the step 0")
	}
	step = max(step, -math.MaxInt32)
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
	start, stop = least, most
	if step < 0 {
		start, stop = most, least
	}
	if bounds[0] != nil {
		start = clip(given[0])
	}
	if bounds[1] != nil {
		stop = clip(given[1])
	}
	if step > 0 && start < stop {
		count = (stop-start-1)/step + 1
	} else if step < 0 && start > stop {
		count = (start-stop-1)/-step + 1
	}
	return start, stop, step, count, nil
}
