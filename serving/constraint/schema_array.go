package constraint

import (
	"math/bits"
	"slices"
)

// itemAt is the schemas that an item has to be valid against.
func (s *shape) itemAt(i int) []located {
	var list []located
	for _, part := range s.arrays {
		switch {
		case i < len(part.prefix):
			list = append(list, part.prefix[i])
		case part.items != nil:
			list = append(list, *part.items)
		}
	}
	return list
}

// emitArray writes the items; all schemas with array keywords are about each of them.
func (c *schemaCompiler) emitArray(s *shape) (*expr, error) {
	prefix := 0
	for _, part := range s.arrays {
		prefix = max(prefix, len(part.prefix))
	}
	if s.items.empty() {
		return never, nil
	}
	if s.unique != nil && s.items.most != 0 && s.items.most != 1 {
		return c.emitUnique(s, prefix)
	}
	if len(s.contains) > 0 {
		return c.emitContains(s, prefix)
	}
	rest, err := c.compile(s.itemAt(prefix)...)
	if err != nil {
		return nil, err
	}
	if prefix == 0 {
		return arrayOf(rest, s.items.least, s.items.most), nil
	}
	left := func(n int) int { // of maxItems after n
		if s.items.most == unbounded {
			return unbounded
		}
		return max(s.items.most-n, 0)
	}
	tail := rep(seq(jsonComma, rest), max(s.items.least-prefix, 0), left(prefix))
	for i := prefix - 1; i >= 0; i-- {
		x, err := c.compile(s.itemAt(i)...)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			x = seq(jsonComma, x)
		}
		if tail = seq(x, tail); left(i) == 0 {
			tail = empty
		} else if i > 0 && i >= s.items.least {
			tail = opt(tail)
		}
	}
	if left(0) == 0 {
		tail = never
	}
	return bracketed("[", "]", tail, s.items.least == 0), nil
}

// maxPlaced bounds the places of an item that has to be there.
const maxPlaced = 64

// emitContains writes arrays with an item that fits, or as many as minContains says.
func (c *schemaCompiler) emitContains(s *shape, prefix int) (*expr, error) {
	at, n := s.contains[0], len(s.contains)
	same := !slices.ContainsFunc(s.contains, func(l located) bool { return l.key() != at.key() })
	switch {
	case prefix > 0 || !same:
		return nil, at.errorf("keyword contains is not enforced beside prefixItems or another one")
	case n > 1 && (s.items.least > n || s.items.most != unbounded) || s.items.least > maxPlaced || s.items.most > maxPlaced:
		return nil, at.errorf("keyword contains is not enforced beside such numbers of items")
	}
	item, err := c.compile(s.itemAt(0)...)
	if err != nil {
		return nil, err
	}
	hit, err := c.compile(append(s.itemAt(0), at)...)
	if err != nil {
		return nil, err
	}
	before, after := seq(item, jsonComma), seq(jsonComma, item)
	if n > 1 {
		x := seq(rep(before, 0, unbounded), hit)
		for range n - 1 {
			x = seq(x, jsonComma, rep(before, 0, unbounded), hit)
		}
		return bracketed("[", "]", seq(x, rep(after, 0, unbounded)), false), nil
	}
	var list []*expr
	last := max(s.items.least-1, 0) // from which on places make no difference
	if s.items.most != unbounded {
		last = s.items.most - 1
	}
	for i := range last + 1 {
		most, loop := unbounded, i
		if s.items.most != unbounded {
			most = s.items.most - 1 - i
		} else if i == last {
			loop = unbounded
		}
		list = append(list, seq(rep(before, i, loop), hit, rep(after, max(s.items.least-1-i, 0), most)))
	}
	return bracketed("[", "]", alt(list...), false), nil
}

// maxUnique bounds the different items of arrays whose items are unique: each set of them is a rule.
const maxUnique = 8

// emitUnique writes arrays of different constants.
func (c *schemaCompiler) emitUnique(s *shape, prefix int) (*expr, error) {
	refuse := func() (*expr, error) {
		return nil, s.unique.errorf("keyword uniqueItems is enforced for items of up to %d constants", maxUnique)
	}
	item := newShape()
	for _, l := range s.itemAt(0) {
		if err := c.collect(item, l, 0); err != nil {
			return nil, err
		}
	}
	if item.typed && item.types&^(booleanType|nullType) == 0 && item.enum == nil {
		item.restrict(s.at, []*value{{kind: booleanType, text: "true"}, {kind: booleanType, text: "false"}, {kind: nullType, text: "null"}})
	}
	if prefix > 0 || len(s.contains) > 0 || item.enum == nil || len(item.choices) > 0 {
		return refuse()
	}
	all, err := c.constantsOf(item)
	if err != nil {
		return nil, err
	}
	all = slices.CompactFunc(slices.SortedFunc(slices.Values(all), func(a, b *value) int {
		return slices.Compare([]byte(a.canonical()), []byte(b.canonical()))
	}), func(a, b *value) bool { return a.canonical() == b.canonical() })
	if len(all) > maxUnique {
		return refuse()
	}
	rules := make(map[uint]*expr)
	var from func(used uint) *expr // what follows the items
	from = func(used uint) *expr {
		if x := rules[used]; x != nil {
			return x
		}
		n := bits.OnesCount(used)
		var list []*expr
		if n >= s.items.least {
			list = append(list, empty)
		}
		for i, v := range all {
			if used>>i&1 != 0 || n == s.items.most {
				continue
			}
			x := v.constant()
			if n > 0 {
				x = seq(jsonComma, x)
			}
			list = append(list, seq(x, from(used|1<<i)))
		}
		x := never
		if list = slices.DeleteFunc(list, (*expr).isNever); len(list) > 0 {
			x = ref(&rule{name: "different items", body: alt(list...), keep: true})
		}
		rules[used] = x
		return x
	}
	var some []*expr
	for i, v := range all {
		if s.items.most != 0 {
			some = append(some, seq(v.constant(), from(1<<i)))
		}
	}
	return bracketed("[", "]", alt(some...), s.items.least == 0), nil
}
