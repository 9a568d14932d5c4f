package constraint

import (
	"fmt"
	"math/big"
	"strings"
)

// Bounds of multipleOf.
const (
	maxListed  = 1 << 12 // multiples between bounds, which are listed
	maxDivisor = 100     // without bounds, where remainders are followed digit by digit
)

// multiples matches the numbers from lo to hi that q divides, which is positive.
func multiples(lo, hi bound, q *big.Rat, whole bool) (*expr, error) {
	if places, decimal := powerOfTenth(q); decimal && !whole {
		return interval(lo, hi, places)
	}
	if !whole && !q.IsInt() {
		return nil, fmt.Errorf("multiples of %s are not enforced, only those of integers and of 0.1, 0.01, …", q.RatString())
	}
	m := q.Num() // an integer is a multiple of a/b in lowest terms where a divides it
	switch {
	case m.IsInt64() && m.Int64() == 1:
		return interval(lo, hi, 0)
	case lo.value == nil && hi.value == nil && m.IsInt64() && m.Int64() <= maxDivisor:
		return divisible(int(m.Int64())), nil
	case lo.value == nil || hi.value == nil:
		return nil, fmt.Errorf("multiples of %s are not enforced without two bounds", m)
	}
	n := new(big.Int).Quo(new(big.Int).Quo(lo.value.Num(), lo.value.Denom()), m) // near the first multiple
	n.Sub(n, big.NewInt(1))
	var texts []string
	for ; len(texts) <= maxListed; n.Add(n, big.NewInt(1)) {
		x := new(big.Int).Mul(n, m)
		value := new(big.Rat).SetInt(x)
		above, below := value.Cmp(lo.value), value.Cmp(hi.value)
		if below > 0 || below == 0 && hi.open {
			return words(texts), nil
		}
		if above > 0 || above == 0 && !lo.open {
			texts = append(texts, x.String())
		}
	}
	return nil, fmt.Errorf("more than %d multiples of %s between the bounds", maxListed, m)
}

// powerOfTenth tells whether q is 0.1, 0.01, and so on, and of how many places.
func powerOfTenth(q *big.Rat) (places int, ok bool) {
	digits := q.Denom().String()
	places = len(digits) - 1
	return places, places > 0 && places <= fractionDigits && q.Num().IsInt64() && q.Num().Int64() == 1 && strings.Trim(digits[1:], "0") == "" && digits[0] == '1'
}

// divisible matches the integers that m divides: a rule for each remainder of the digits so
// far and number of digits left.
func divisible(m int) *expr {
	type key struct{ remainder, left int }
	rules := make(map[key]*expr)
	var after func(k key) *expr
	after = func(k key) *expr {
		if x := rules[k]; x != nil {
			return x
		}
		list := []*expr{}
		if k.remainder == 0 {
			list = append(list, empty)
		}
		if k.left > 0 {
			for d := range 10 {
				list = append(list, seq(lit(string(rune('0'+d))), after(key{(10*k.remainder + d) % m, k.left - 1})))
			}
		}
		x := ref(&rule{name: "multiples", body: alt(list...), keep: true})
		rules[k] = x
		return x
	}
	list := []*expr{}
	for d := 1; d < 10; d++ {
		list = append(list, seq(lit(string(rune('0'+d))), after(key{d % m, integerDigits - 1})))
	}
	return alt(lit("0"), signed(alt(list...)))
}
