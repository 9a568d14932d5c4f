package jinja

import (
	"fmt"
	"math/big"
)

type testFunc func(r *run, v value, a *arguments) (bool, error)

// tests are what follows "is".
var tests map[string]testFunc

func init() {
	tests = map[string]testFunc{
		"odd": parity(1), "even": parity(0),
		"divisibleby": func(r *run, v value, a *arguments) (bool, error) {
			args, err := a.bind("divisibleby", "num")
			if err != nil {
				return false, err
			}
			return r.remainder(v, args[0], 0)
		},
		"defined":   isNot(isType[*undefined]),
		"undefined": is(isType[*undefined]),
		"none":      is(func(v value) bool { return v == nil }),
		"boolean":   is(isType[bool]),
		"true":      is(func(v value) bool { return v == true }),
		"false":     is(func(v value) bool { return v == false }),
		"integer":   is(func(v value) bool { return isType[int64](v) || isType[*big.Int](v) }),
		"float":     is(isType[float64]),
		"number":    is(func(v value) bool { _, ok := asFloat(v); return ok }),
		"string":    is(func(v value) bool { _, ok := text(v); return ok }),
		"escaped":   is(isType[markup]),
		"mapping":   is(isType[*dict]),
		"callable": is(func(v value) bool {
			return isType[*function](v) || isType[*loopValue](v) || isType[*joiner](v) || isType[*undefined](v)
		}),
		"sequence": is(func(v value) bool {
			switch v.(type) {
			case string, markup, *list, *dict, *rangeValue, *undefined:
				return true
			}
			return false
		}),
		"iterable": is(func(v value) bool {
			switch v.(type) {
			case string, markup, *list, *dict, *dictView, *rangeValue, *iterator, *undefined, *loopValue:
				return true
			}
			return false
		}),
		"lower": cased(lowerCased), "upper": cased(upperCased),
		"filter": named(func(s string) bool { return filters[s] != nil }), "test": named(func(s string) bool { return tests[s] != nil }),
		"sameas": func(_ *run, v value, a *arguments) (bool, error) {
			args, err := a.bind("sameas", "other")
			if err != nil {
				return false, err
			}
			return same(v, args[0]), nil
		},
		"in": func(r *run, v value, a *arguments) (bool, error) {
			args, err := a.bind("in", "seq")
			if err != nil {
				return false, err
			}
			return r.in(v, args[0])
		},
	}
	for op, names := range map[string][]string{
		"==": {"==", "eq", "equalto"}, "!=": {"!=", "ne"}, ">": {">", "gt", "greaterthan"}, ">=": {">=", "ge"},
		"<": {"<", "lt", "lessthan"}, "<=": {"<=", "le"},
	} {
		for _, name := range names {
			tests[name] = func(r *run, v value, a *arguments) (bool, error) {
				args, err := a.bind(name, "other")
				if err != nil {
					return false, err
				}
				return r.compare(op, v, args[0])
			}
		}
	}
}

func isType[T any](v value) bool {
	_, ok := v.(T)
	return ok
}

func is(holds func(v value) bool) testFunc {
	return func(_ *run, v value, a *arguments) (bool, error) {
		_, err := a.bind("the test")
		return holds(v), err
	}
}

func isNot(holds func(v value) bool) testFunc {
	return is(func(v value) bool { return !holds(v) })
}

// same is Python's "is" as far as templates can rely on it: None, true, false, and
// small numbers and strings that are equal.
func same(a, b value) bool {
	if typeName(a) != typeName(b) {
		return false
	}
	if x, ok := a.(*big.Int); ok {
		return x == b.(*big.Int)
	}
	return a == b
}

func parity(rest int64) testFunc {
	return func(r *run, v value, a *arguments) (bool, error) {
		if _, err := a.bind("parity"); err != nil {
			return false, err
		}
		return r.remainder(v, int64(2), rest)
	}
}

// remainder tells whether v % by == rest.
func (r *run) remainder(v, by value, rest int64) (bool, error) {
	m, err := r.binary("%", v, by)
	if err != nil {
		return false, err
	}
	return r.equal(m, rest, 0)
}

func cased(has func(c rune) bool) testFunc {
	return func(r *run, v value, a *arguments) (bool, error) {
		if _, err := a.bind("the test"); err != nil {
			return false, err
		}
		s, err := r.str(v)
		if err != nil {
			return false, err
		}
		return isCased(s, has), r.scan(len(s))
	}
}

func named(known func(s string) bool) testFunc {
	return func(r *run, v value, a *arguments) (bool, error) {
		if _, err := a.bind("the test"); err != nil {
			return false, err
		}
		s, ok := text(v)
		if !ok {
			if _, err := r.hash(v); err != nil {
				return false, fmt.Errorf("found a value of type %s, want a name", typeName(v))
			}
		}
		return known(s), nil
	}
}
