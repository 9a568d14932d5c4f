package jinja

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"strings"
)

// operands says that an operator does not take the types.
func (r *run) operands(op string, a, b value) value {
	for _, v := range []value{a, b} {
		switch v := v.(type) {
		case *undefined:
			v.failUse(r)
		case markup, *big.Int:
			r.failWith("%q beside a value of type %s is not supported", op, typeName(v))
		}
	}
	return r.failWith("found %s and %s around %q, want types that go together", typeName(a), typeName(b), op)
}

// sign is -v or +v.
func (r *run) sign(op string, v value) value {
	if u, ok := v.(*undefined); ok {
		return u.failUse(r)
	}
	if f, ok := v.(float64); ok && op == "-" {
		return -f
	} else if ok {
		return f
	}
	i, ok := asInt(v)
	switch {
	case !ok:
		return r.failWith("found %q before a value of type %s, want a number", op, typeName(v))
	case op == "-":
		return r.integers("-", 0, i)
	}
	return i
}

// binary is a op b.
func (r *run) binary(op string, a, b value) value {
	x, intA := asInt(a)
	y, intB := asInt(b)
	if intA && intB {
		return r.integers(op, x, y)
	}
	f, floatA := asFloat(a)
	g, floatB := asFloat(b)
	if floatA && floatB {
		return r.floats(op, f, g)
	}
	switch op {
	case "+":
		return r.add(a, b)
	case "*":
		if intB && repeats(a) {
			return r.repeat(a, y)
		}
		if intA && repeats(b) {
			return r.repeat(b, x)
		}
	case "%":
		if s, ok := a.(string); ok {
			args := []value{b}
			if q, ok := b.(*list); ok && q.kind == kindTuple {
				args = q.items
			}
			return r.printf(s, args)
		}
	}
	return r.operands(op, a, b)
}

// add joins texts or lists.
func (r *run) add(a, b value) value {
	switch x := a.(type) {
	case string, markup:
		switch {
		case isType[string](a) && isType[string](b):
			return r.joined([]value{a, b}, "")
		case isText(b): // what is not marked as safe is escaped
			return markup(r.joined([]value{escaped(a), escaped(b)}, ""))
		}
	case *list:
		y, ok := b.(*list)
		if !ok || x.kind != y.kind || x.kind != kindList && x.kind != kindTuple {
			break
		}
		if !r.chargeItems(len(x.items) + len(y.items)) {
			return nil
		}
		return &list{x.kind, slices.Concat(x.items, y.items)}
	}
	return r.operands("+", a, b)
}

func repeats(v value) bool { return isType[string](v) || isType[*list](v) }

// repeat is a string or list so many times.
func (r *run) repeat(v value, times int64) value {
	n := int(max(times, 0))
	if s, ok := v.(string); ok {
		if s == "" || !r.charge(product(len(s), n)) {
			return ""
		}
		return strings.Repeat(s, n)
	}
	l := v.(*list)
	if !l.indexed() || l.kind == kindRange {
		return r.operands("*", v, times)
	}
	if len(l.items) == 0 || !r.chargeItems(product(len(l.items), n)) {
		return &list{kind: l.kind}
	}
	return &list{l.kind, slices.Repeat(l.items, n)}
}

// integers computes with whole numbers of 64 bits.
func (r *run) integers(op string, x, y int64) value {
	z, fits := int64(0), true
	switch op {
	case "+":
		z = x + y
		fits = (z > x) == (y > 0)
	case "-":
		z = x - y
		fits = (z < x) == (y > 0)
	case "*":
		z = x * y
		fits = x == 0 || z/x == y && (x != -1 || y != math.MinInt64)
	default:
		const exact = 1 << 53 // of a float
		switch {
		case y == 0:
			return r.failWith("division by zero")
		case op == "/":
			if max(x, -x, y, -y) <= exact && min(x, y) >= -exact {
				return float64(x) / float64(y)
			}
			fits = false
		case x == math.MinInt64 && y == -1:
			fits = false
		default: // Go's division is towards zero, Python's towards minus infinity.
			quotient, rest := x/y, x%y
			if rest != 0 && (rest < 0) != (y < 0) {
				quotient, rest = quotient-1, rest+y
			}
			if z = rest; op == "//" {
				z = quotient
			}
		}
	}
	if !fits {
		return r.failWith("%d %s %d: integers that large are not supported", x, op, y)
	}
	return z
}

func (r *run) floats(op string, a, b float64) value {
	switch op {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	case "/":
		if b == 0 {
			return r.failWith("division by zero")
		}
		return a / b
	}
	return r.failWith("the operator %s of floats is not supported", op)
}

// compare is a op b.
func (r *run) compare(op string, a, b value) bool {
	switch op {
	case "==":
		return r.equal(a, b, 0)
	case "!=":
		return !r.equal(a, b, 0)
	case "in":
		return r.in(a, b)
	case "notin":
		return !r.in(a, b)
	}
	c, ordered := r.order(op, a, b, 0)
	if !ordered {
		return false
	}
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

// equal is a == b.
func (r *run) equal(a, b value, depth int) bool {
	if !r.nested(depth) || !r.charge(nodeCost) {
		return false
	}
	if s, ok := text(a); ok {
		t, ok := text(b)
		return ok && len(s) == len(t) && r.scan(len(s)) && s == t
	}
	if c, ordered, ok := numbers(a, b); ok {
		return ordered && c == 0
	}
	switch x := a.(type) {
	case *undefined:
		return isType[*undefined](b)
	case *function:
		if isType[*function](b) {
			r.failWith("comparing functions is not supported")
		}
	case *big.Int:
		y, ok := b.(*big.Int)
		return ok && x.Cmp(y) == 0
	case *list:
		y, ok := b.(*list)
		return ok && x.equal(r, y, depth)
	case *dict:
		y, ok := b.(*dict)
		return ok && x.equal(r, y, depth)
	}
	return a == b
}

func (l *list) equal(r *run, o *list, depth int) bool {
	if l.kind == o.kind && !l.indexed() {
		r.failWith("comparing two values of type %s is not supported", l.kind)
	}
	return l.kind == o.kind && slices.EqualFunc(l.items, o.items, func(a, b value) bool { return r.equal(a, b, depth+1) })
}

func (d *dict) equal(r *run, o *dict, depth int) bool {
	if len(d.keys) != len(o.keys) {
		return false
	}
	for i, key := range d.keys {
		if v, found := o.getItem(r, key); !found || !r.equal(d.vals[i], v, depth+1) {
			return false
		}
	}
	return true
}

// numbers compares two numbers; ok tells whether both are, ordered whether none is NaN.
func numbers(a, b value) (c int, ordered, ok bool) {
	x, intA := asInt(a)
	y, intB := asInt(b)
	f, okA := asFloat(a)
	g, okB := asFloat(b)
	switch {
	case !okA || !okB:
		return 0, false, false
	case math.IsNaN(f) || math.IsNaN(g):
		return 0, false, true
	case intA && intB:
		return cmp.Compare(x, y), true, true
	case intA && !math.IsInf(g, 0):
		return new(big.Float).SetInt64(x).Cmp(big.NewFloat(g)), true, true
	case intB && !math.IsInf(f, 0):
		return big.NewFloat(f).Cmp(new(big.Float).SetInt64(y)), true, true
	}
	return cmp.Compare(f, g), true, true
}

// order is the order of two values around the operator op; ordered is false beside NaN.
func (r *run) order(op string, a, b value, depth int) (c int, ordered bool) {
	if !r.nested(depth) || !r.charge(nodeCost) {
		return 0, false
	}
	if c, ordered, ok := numbers(a, b); ok {
		return c, ordered
	}
	s, textA := text(a)
	t, textB := text(b)
	if textA && textB {
		return strings.Compare(s, t), r.scan(min(len(s), len(t)))
	}
	x, listA := a.(*list)
	y, listB := b.(*list)
	if !listA || !listB || x.kind != y.kind || x.kind != kindList && x.kind != kindTuple {
		r.operands(op, a, b)
		return 0, false
	}
	for i := range min(len(x.items), len(y.items)) {
		if !r.equal(x.items[i], y.items[i], depth+1) {
			return r.order(op, x.items[i], y.items[i], depth+1)
		}
	}
	return cmp.Compare(len(x.items), len(y.items)), true
}

// in is a in b.
func (r *run) in(a, b value) bool {
	if s, ok := text(b); ok {
		part, ok := text(a)
		if !ok {
			r.failWith("found a value of type %s before \"in\" and a string, want a string", typeName(a))
		}
		return r.scan(len(s)+len(part)) && strings.Contains(s, part)
	}
	if d, ok := b.(*dict); ok {
		_, found := d.getItem(r, a)
		return found
	}
	return slices.ContainsFunc(r.iterate(b), func(item value) bool { return r.equal(a, item, 0) })
}

// sortOrder is the places of keys in their order; equal ones stay as they are.
func (r *run) sortOrder(keys []value, reverse bool) []int {
	if !r.chargeItems(len(keys)) {
		return nil
	}
	order := make([]int, len(keys))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		if reverse {
			i, j = j, i
		}
		c, _ := r.order("<", keys[i], keys[j], 0)
		return c
	})
	return order
}
