package jinja

import "math/big"

type testFunc func(r *run, v value, a *arguments) bool

// tests are what follows "is".
var tests map[string]testFunc

func init() {
	tests = map[string]testFunc{
		"odd": divisible(2, 1), "even": divisible(2, 0), "divisibleby": divisible(0, 0),
		"defined":   is(func(v value) bool { return !isType[*undefined](v) }),
		"undefined": is(isType[*undefined]),
		"none":      is(func(v value) bool { return v == nil }),
		"boolean":   is(isType[bool]),
		"true":      is(func(v value) bool { return v == true }),
		"false":     is(func(v value) bool { return v == false }),
		"integer":   is(func(v value) bool { return isType[int64](v) || isType[*big.Int](v) }),
		"float":     is(isType[float64]),
		"number":    is(func(v value) bool { _, ok := asFloat(v); return ok || isType[*big.Int](v) }),
		"string":    is(isText),
		"mapping":   is(isType[*dict]),
		"callable":  is(func(v value) bool { return isType[*function](v) || isType[*loopValue](v) || isType[*undefined](v) }),
		"sequence": is(func(v value) bool {
			l, isList := v.(*list)
			return isText(v) || isType[*dict](v) || isType[*undefined](v) || isList && l.indexed()
		}),
		"iterable": is(func(v value) bool {
			return isText(v) || isType[*dict](v) || isType[*undefined](v) || isType[*list](v) || isType[*generator](v) || isType[*loopValue](v)
		}),
		"lower": func(r *run, v value, a *arguments) bool { return truth(ofText(stringMethods["islower"])(r, v, a)) },
		"upper": func(r *run, v value, a *arguments) bool { return truth(ofText(stringMethods["isupper"])(r, v, a)) },
		"in":    func(r *run, v value, a *arguments) bool { return r.in(v, a.bindParameters(r, "seq")[0]) },
	}
	for op, names := range map[string][]string{
		"==": {"==", "eq", "equalto", "sameas"}, "!=": {"!=", "ne"}, ">": {">", "gt", "greaterthan"}, ">=": {">=", "ge"},
		"<": {"<", "lt", "lessthan"}, "<=": {"<=", "le"},
	} {
		for _, name := range names {
			tests[name] = func(r *run, v value, a *arguments) bool {
				other := a.bindParameters(r, "other")[0]
				// Python's "is", as far as templates can rely on it.
				return (name != "sameas" || typeName(v) == typeName(other)) && r.compare(op, v, other)
			}
		}
	}
}

func (r *run) test(name string, v value, a *arguments) bool {
	f := tests[name]
	if f == nil {
		r.failWith("the test %s is not supported", quoted(name))
		return false
	}
	yes := f(r, v, a)
	r.err = namedError("test "+name, r.err)
	return yes
}

func is(holds func(v value) bool) testFunc {
	return func(r *run, v value, a *arguments) bool {
		a.bindParameters(r)
		return holds(v)
	}
}

// divisible tells whether v % by is rest; where by is 0 it is an argument.
func divisible(by, rest int64) testFunc {
	return func(r *run, v value, a *arguments) bool {
		var num value = by
		if by > 0 {
			a.bindParameters(r)
		} else {
			num = a.bindParameters(r, "num")[0]
		}
		return r.equal(r.binary("%", v, num), rest, 0)
	}
}
