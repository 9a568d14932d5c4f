package jinja

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strings"
)

var (
	errZero    = errors.New("division by zero")
	errTooMany = errors.New("found more than 64 bits of repetitions")
)

// errOperands says that an operator does not take the types.
func errOperands(op string, a, b value) error {
	for _, v := range []value{a, b} {
		if u, ok := v.(*undefined); ok {
			return u.fail()
		}
	}
	return fmt.Errorf("found %s and %s around %q, want types that go together", typeName(a), typeName(b), op)
}

// sign is -v or +v.
func sign(op string, v value) (value, error) {
	switch v := v.(type) {
	case *undefined:
		return nil, v.fail()
	case float64:
		if op == "-" {
			return -v, nil
		}
		return v, nil
	}
	i, ok := asBig(v)
	if !ok {
		return nil, fmt.Errorf("found %q before a value of type %s, want a number", op, typeName(v))
	}
	if op == "-" {
		i = new(big.Int).Neg(i)
	}
	return integer(i), nil
}

// binary is a op b.
func (r *run) binary(op string, a, b value) (value, error) {
	x, intA := asBigOrSmall(a)
	y, intB := asBigOrSmall(b)
	switch {
	case intA && intB:
		return r.integers(op, x, y)
	case op == "+":
		if v, ok, err := r.add(a, b); ok {
			return v, err
		}
	case op == "*" && intB:
		if v, ok, err := r.repeat(a, b); ok {
			return v, err
		}
	case op == "*" && intA:
		if v, ok, err := r.repeat(b, a); ok {
			return v, err
		}
	case op == "%":
		if format, ok := text(a); ok {
			if _, html := a.(markup); html {
				return nil, errors.New("found % on text marked as safe, which is not supported")
			}
			return r.printf(format, b)
		}
	}
	f, okA := asFloat(a)
	g, okB := asFloat(b)
	if !okA || !okB {
		return nil, errOperands(op, a, b)
	}
	return floats(op, f, g)
}

// asBigOrSmall is an integer as int64 or *big.Int.
func asBigOrSmall(v value) (value, bool) {
	switch v := v.(type) {
	case int64, *big.Int:
		return v, true
	case bool:
		i, _ := asInt(v)
		return int64(i), true
	}
	return nil, false
}

// add joins strings or lists.
func (r *run) add(a, b value) (v value, ok bool, err error) {
	s, textA := text(a)
	t, textB := text(b)
	if textA && textB {
		_, safeA := a.(markup)
		_, safeB := b.(markup)
		if safeA != safeB { // what is not safe is escaped
			if !safeA {
				s, err = r.escape(s)
			} else {
				t, err = r.escape(t)
			}
			if err != nil {
				return nil, true, err
			}
		}
		sum, err := r.joined([]string{s, t}, "")
		if safeA || safeB {
			return markup(sum), true, err
		}
		return sum, true, err
	}
	x, listA := a.(*list)
	y, listB := b.(*list)
	if !listA || !listB || x.tuple != y.tuple {
		return nil, false, nil
	}
	if err := r.chargeItems(len(x.items) + len(y.items)); err != nil {
		return nil, true, err
	}
	items := append(append(make([]value, 0, len(x.items)+len(y.items)), x.items...), y.items...)
	return &list{items: items, tuple: x.tuple}, true, nil
}

// repeat is a string or list so many times.
func (r *run) repeat(v, times value) (out value, ok bool, err error) {
	n, _ := asInt(times)
	n = max(n, 0)
	_, large := times.(*big.Int)
	if s, ok := text(v); ok {
		if large {
			return nil, true, errTooMany
		}
		if err := r.charge(product(len(s), n)); err != nil {
			return nil, true, err
		}
		if s == "" {
			n = 0
		}
		return like(v, strings.Repeat(s, n)), true, nil
	}
	l, ok := v.(*list)
	if !ok {
		return nil, false, nil
	}
	if large {
		return nil, true, errTooMany
	}
	if err := r.chargeItems(product(len(l.items), n)); err != nil {
		return nil, true, err
	}
	var items []value
	if len(l.items) > 0 {
		items = make([]value, 0, len(l.items)*n)
		for range n {
			items = append(items, l.items...)
		}
	}
	return &list{items: items, tuple: l.tuple}, true, nil
}

// integers computes with whole numbers of any size.
func (r *run) integers(op string, a, b value) (value, error) {
	x, smallX := a.(int64)
	y, smallY := b.(int64)
	if smallX && smallY {
		if v, ok := small(op, x, y); ok {
			return v, nil
		}
	}
	p, _ := asBig(a)
	q, _ := asBig(b)
	if err := r.scan(p.BitLen() + q.BitLen()); err != nil {
		return nil, err
	}
	switch op {
	case "+":
		return integer(new(big.Int).Add(p, q)), nil
	case "-":
		return integer(new(big.Int).Sub(p, q)), nil
	case "*":
		if err := r.scan(product(p.BitLen()/8, q.BitLen()/8)); err != nil {
			return nil, err
		}
		return integer(new(big.Int).Mul(p, q)), nil
	case "**":
		return r.power(p, q)
	}
	if q.Sign() == 0 {
		return nil, errZero
	}
	if err := r.scan(product(p.BitLen()/8, q.BitLen()/8)); err != nil {
		return nil, err
	}
	if op == "/" {
		f, _ := new(big.Rat).SetFrac(p, q).Float64()
		if math.IsInf(f, 0) {
			return nil, errors.New("the quotient is too large for a float")
		}
		return f, nil
	}
	// Go's division is towards zero or Euclidean, Python's towards minus infinity.
	quotient, rest := new(big.Int).QuoRem(p, q, new(big.Int))
	if rest.Sign() != 0 && rest.Sign() != q.Sign() {
		quotient.Sub(quotient, big.NewInt(1))
		rest.Add(rest, q)
	}
	if op == "//" {
		return integer(quotient), nil
	}
	return integer(rest), nil
}

// small computes with numbers whose result is an int64; ok is false for others.
func small(op string, x, y int64) (v value, ok bool) {
	switch op {
	case "+":
		s := x + y
		return s, (s > x) == (y > 0)
	case "-":
		s := x - y
		return s, (s < x) == (y > 0)
	case "*":
		hi, lo := bits.Mul64(uint64(max(x, -x)), uint64(max(y, -y)))
		return x * y, hi == 0 && lo <= math.MaxInt64 && x != math.MinInt64 && y != math.MinInt64
	case "/":
		const exact = 1 << 53
		if y == 0 || x > exact || x < -exact || y > exact || y < -exact {
			return nil, false
		}
		return float64(x) / float64(y), true
	}
	return nil, false
}

func (r *run) power(p, q *big.Int) (value, error) {
	if q.Sign() < 0 {
		if p.Sign() == 0 {
			return nil, errZero
		}
		f, _ := asFloat(p)
		g, _ := asFloat(q)
		return floats("**", f, g)
	}
	if p.IsInt64() && p.Int64() >= -1 && p.Int64() <= 1 {
		odd := q.Bit(0) == 1
		switch {
		case p.Sign() == 0 && q.Sign() > 0:
			return int64(0), nil
		case p.Sign() < 0 && odd:
			return int64(-1), nil
		}
		return int64(1), nil
	}
	if !q.IsInt64() {
		return nil, ErrBudget
	}
	size := product(p.BitLen(), int(q.Int64())) / 8
	if size > 1<<20 { // multiplying takes longer than the size says
		return nil, ErrBudget
	}
	if err := r.scan(product(size, size)); err != nil {
		return nil, err
	}
	return integer(new(big.Int).Exp(p, q, nil)), nil
}

// powFloat is a ** b, rounded once where b is whole: math.Pow may miss the last digit,
// which C's pow does not.
func powFloat(a, b float64) float64 {
	if b != math.Trunc(b) || math.Abs(b) > 1024 || a == 0 || math.IsInf(a, 0) || math.IsNaN(a) {
		return math.Pow(a, b)
	}
	const precision = 256 // bits
	result := big.NewFloat(1).SetPrec(precision)
	square := big.NewFloat(a).SetPrec(precision)
	for n := int(math.Abs(b)); n > 0; n >>= 1 {
		if n&1 == 1 {
			result.Mul(result, square)
		}
		square.Mul(square, square)
	}
	if b < 0 {
		result.Quo(big.NewFloat(1).SetPrec(precision), result)
	}
	v, _ := result.Float64()
	return v
}

func floats(op string, a, b float64) (value, error) {
	switch op {
	case "+":
		return a + b, nil
	case "-":
		return a - b, nil
	case "*":
		return a * b, nil
	case "**":
		if a == 0 && b < 0 {
			return nil, errZero
		}
		if a < 0 && b != math.Trunc(b) && !math.IsInf(a, 0) {
			return nil, errors.New("found a root of a negative number: complex numbers are not supported")
		}
		v := powFloat(a, b)
		if math.IsInf(v, 0) && !math.IsInf(a, 0) && !math.IsInf(b, 0) {
			return nil, errors.New("the power is too large for a float")
		}
		return v, nil
	}
	if b == 0 {
		return nil, errZero
	}
	if op == "/" {
		return a / b, nil
	}
	mod := math.Mod(a, b)
	div := (a - mod) / b
	if mod != 0 {
		if (b < 0) != (mod < 0) {
			mod += b
			div--
		}
	} else {
		mod = math.Copysign(0, b)
	}
	if op == "%" {
		return mod, nil
	}
	if div == 0 {
		return math.Copysign(0, a/b), nil
	}
	floor := math.Floor(div)
	if div-floor > 0.5 {
		floor++
	}
	return floor, nil
}
