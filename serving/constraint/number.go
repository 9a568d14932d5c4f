package constraint

import (
	"fmt"
	"math/big"
	"strings"
)

// Digits of numbers that have no bounds. What can be written stays below what a float64
// holds, which encoding/json would refuse otherwise.
const (
	integerDigits  = 21 // as encoding/json writes numbers without an exponent
	fractionDigits = 25
)

var (
	digit   = byteIn("09")
	nonzero = byteIn("19")
	natural = alt(lit("0"), seq(nonzero, rep(digit, 0, integerDigits-1)))
)

// fraction matches a point and up to so many digits, or nothing.
func fraction(places int) *expr { return opt(seq(lit("."), rep(digit, 1, places))) }

func signed(x *expr) *expr { return seq(opt(lit("-")), x) }

// numberText is any number: with up to 21 digits before the point, or up to 9 and an exponent
// up to 299.
func numberText() *expr {
	exponent := seq(byteIn("eeEE"), opt(byteIn("++--")), alt(rep(digit, 1, 2), seq(byteIn("12"), digit, digit)))
	mantissa := seq(alt(lit("0"), seq(nonzero, rep(digit, 0, 8))), fraction(fractionDigits))
	return signed(alt(seq(natural, fraction(fractionDigits)), seq(mantissa, exponent)))
}

// bound is the end of an interval of numbers.
type bound struct {
	value *big.Rat // nil: no bound
	open  bool     // the value itself is not part of it
}

// decimal is the digits of a number that is not negative, without needless zeros.
type decimal struct{ whole, part string }

// maxDigits bounds the digits of a bound.
const maxDigits = 20

func decimalOf(r *big.Rat) (decimal, error) {
	prec, exact := r.FloatPrec()
	if !exact || prec > maxDigits {
		return decimal{}, fmt.Errorf("more than %d digits after the point", maxDigits)
	}
	whole, part, _ := strings.Cut(new(big.Rat).Abs(r).FloatString(prec), ".")
	if len(whole) > maxDigits {
		return decimal{}, fmt.Errorf("more than %d digits", maxDigits)
	}
	return decimal{whole, part}, nil
}

// interval matches the numbers from lo to hi that have up to so many places after the point,
// without an exponent.
func interval(lo, hi bound, places int) (*expr, error) {
	zero := bound{value: new(big.Rat)}
	negative := never
	if lo.value == nil || lo.value.Sign() < 0 {
		// −x for x from max(0, −hi) up to −lo; 0 itself has no sign.
		from, to := bound{value: new(big.Rat), open: true}, bound{}
		if lo.value != nil {
			to = bound{new(big.Rat).Neg(lo.value), lo.open}
		}
		if hi.value != nil && hi.value.Sign() < 0 {
			from = bound{new(big.Rat).Neg(hi.value), hi.open}
		}
		x, err := magnitude(from, to, places)
		if err != nil {
			return nil, err
		}
		negative = seq(lit("-"), x)
	}
	positive := never
	if hi.value == nil || hi.value.Sign() >= 0 {
		if lo.value == nil || lo.value.Sign() < 0 {
			lo = zero
		}
		var err error
		if positive, err = magnitude(lo, hi, places); err != nil {
			return nil, err
		}
	}
	return alt(negative, positive), nil
}

// magnitude matches numbers of an interval that begins at 0 or above.
func magnitude(lo, hi bound, places int) (*expr, error) {
	from, err := decimalOf(lo.value)
	if err != nil {
		return nil, err
	}
	to := decimal{whole: strings.Repeat("9", integerDigits), part: strings.Repeat("9", fractionDigits)}
	if hi.value != nil {
		if to, err = decimalOf(hi.value); err != nil {
			return nil, err
		}
	} else {
		hi.open = false
	}
	if places == 0 {
		// The integers within: bounds are rounded inwards.
		a, b := integerOf(from.whole), integerOf(to.whole)
		if from.part != "" || lo.open {
			a.Add(a, big.NewInt(1))
		}
		if hi.open && to.part == "" {
			b.Sub(b, big.NewInt(1))
		}
		return naturals(a, b), nil
	}
	a, b := integerOf(from.whole), integerOf(to.whole)
	switch a.Cmp(b) {
	case 1:
		return never, nil
	case 0:
		return seq(lit(from.whole), fractions(from.part, to.part, cut{lo.open, hi.open, places}, true, true)), nil
	}
	between := naturals(new(big.Int).Add(a, big.NewInt(1)), new(big.Int).Sub(b, big.NewInt(1)))
	return alt(
		seq(lit(from.whole), fractions(from.part, "", cut{lo.open, false, places}, true, false)),
		seq(between, fraction(places)),
		seq(lit(to.whole), fractions("", to.part, cut{false, hi.open, places}, false, true)),
	), nil
}

func integerOf(digits string) *big.Int {
	n, _ := new(big.Int).SetString(digits, 10)
	return n
}

// naturals matches the integers from a to b; neither is negative.
func naturals(a, b *big.Int) *expr {
	if a.Sign() < 0 {
		a = new(big.Int)
	}
	if a.Cmp(b) > 0 {
		return never
	}
	lo, hi := a.String(), b.String()
	var list []*expr
	for n := len(lo); n <= len(hi); n++ { // digits
		from, to := lo, hi
		if n > len(lo) {
			from = "1" + strings.Repeat("0", n-1)
		}
		if n < len(hi) {
			to = strings.Repeat("9", n)
		}
		list = append(list, digits(from, to))
	}
	return alt(list...)
}

// digits matches texts of as many digits as lo and hi have, from lo to hi.
func digits(lo, hi string) *expr {
	n := len(lo)
	switch {
	case n == 0:
		return empty
	case lo[0] == hi[0]:
		return seq(lit(lo[:1]), digits(lo[1:], hi[1:]))
	case strings.Trim(lo[1:], "0") == "" && strings.Trim(hi[1:], "9") == "":
		return seq(byteIn(lo[:1]+hi[:1]), rep(digit, n-1, n-1))
	}
	list := []*expr{seq(lit(lo[:1]), digits(lo[1:], strings.Repeat("9", n-1)))}
	if lo[0]+1 < hi[0] {
		list = append(list, seq(byteIn(string([]byte{lo[0] + 1, hi[0] - 1})), rep(digit, n-1, n-1)))
	}
	return alt(append(list, seq(lit(hi[:1]), digits(strings.Repeat("0", n-1), hi[1:])))...)
}

// fractions matches what may follow a whole number that is on the bounds named by above and
// below: nothing, or a point and digits, so that the fraction is from lo to hi. Open bounds leave their
// value out.
func fractions(lo, hi string, c cut, above, below bool) *expr {
	some := seq(lit("."), c.digits(lo, hi, above, below, c.places, true))
	if !c.mayEnd(lo, hi, above, below) {
		return some
	}
	return opt(some)
}

// cut is whether the ends of an interval are open, and how many digits a fraction may have.
type cut struct {
	lo, hi bool
	places int
}

// mayEnd tells whether the digits so far are a number within, lo and hi being what is left of the bounds
// that they are equal to so far.
func (c cut) mayEnd(lo, hi string, above, below bool) bool {
	return !(above && (lo != "" || c.lo)) && !(below && hi == "" && c.hi)
}

// digits matches up to n more digits, at least one if some.
func (c cut) digits(lo, hi string, above, below bool, n int, some bool) *expr {
	if !above && !below {
		if some {
			return rep(digit, 1, n)
		}
		return rep(digit, 0, n)
	}
	ending := never
	if !some && c.mayEnd(lo, hi, above, below) {
		ending = empty
	}
	if n == 0 {
		return ending
	}
	first := func(s string) byte { return (s + "0")[0] }
	rest := func(s string) string { return s[min(1, len(s)):] }
	list := []*expr{ending}
	free := [2]byte{'0', '9'} // digits after which neither bound matters
	if above {
		free[0] = first(lo) + 1
	}
	if below {
		free[1] = first(hi) - 1
	}
	if above && below && first(lo) == first(hi) {
		return alt(ending, seq(lit(string(first(lo))), c.digits(rest(lo), rest(hi), true, true, n-1, false)))
	}
	if above && below && first(lo) > first(hi) {
		return ending
	}
	if above {
		list = append(list, seq(lit(string(first(lo))), c.digits(rest(lo), "", true, false, n-1, false)))
	}
	if below {
		list = append(list, seq(lit(string(first(hi))), c.digits("", rest(hi), false, true, n-1, false)))
	}
	if free[0] <= free[1] {
		list = append(list, seq(byteIn(string(free[:])), rep(digit, 0, n-1)))
	}
	return alt(list...)
}
