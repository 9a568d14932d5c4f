package constraint

import (
	"fmt"
	"math/big"
	"slices"
)

// A shape is what schemas say that hold together: one with its allOf and $ref.
type shape struct {
	at       located // the first schema
	types    typeSet
	typed    bool    // a schema says type
	implied  typeSet // the types that other keywords are about
	enum     []*value
	enumAt   located
	excluded []*value // that not says of enum and const

	lo, hi   bound
	multiple *big.Rat // multipleOf
	length   counts
	texts    []textPart
	objects  []objectPart
	required []string
	names    []located // propertyNames
	members  counts
	another  []another
	last     *another // the last member that is written is it
	arrays   []arrayPart
	contains []located
	unique   *located // uniqueItems
	items    counts
	choices  []choice
	taken    int // choices on the way
}

// counts bound a number of things.
type counts struct{ least, most int } // most may be unbounded

func (c *counts) raise(n int) { c.least = max(c.least, n) }

func (c *counts) lower(n int) { c.most = fewest(c.most, n) }

// fewest is the smaller of two bounds.
func fewest(a, b int) int {
	if a == unbounded || b != unbounded && b < a {
		return b
	}
	return a
}

func (c counts) empty() bool { return c.most != unbounded && c.least > c.most }

// within tells whether all of the numbers are among others.
func (c counts) within(o counts) bool { return c.least >= o.least && fewest(c.most, o.most) == c.most }

// times is for each of least to most things.
func (c counts) times(least, most int) counts {
	c.least *= least
	switch {
	case c.most == 0 || most == 0:
		c.most = 0
	case c.most == unbounded || most == unbounded:
		c.most = unbounded
	default:
		c.most *= most
	}
	return c
}

func (c counts) has(n int) bool { return n >= c.least && (c.most == unbounded || n <= c.most) }

// textPart is a pattern or a format.
type textPart struct {
	at      located
	format  bool
	negated bool
}

// objectPart is what one schema says of members.
type objectPart struct {
	names      []string
	properties map[string]located
	patterns   []located // patternProperties, by their last key
	texts      []located // the patterns
	additional *located  // of names that are not in properties and patterns
}

// another is a member that has to be there with a name that a schema has a pattern for, or where pattern is −1
// neither a property nor a pattern, and with a value that fits the schema.
type another struct {
	part    objectPart
	pattern int
	schema  located
}

// arrayPart is what one schema says of items.
type arrayPart struct {
	prefix []located
	items  *located // after the prefix
}

// choice is schemas; one of them holds.
type choice struct {
	list      []located
	exclusive bool // and no other
}

func newShape() *shape {
	any := counts{0, unbounded}
	return &shape{types: allTypes, length: any, items: any, members: any}
}

func (s *shape) clone() *shape {
	t := *s
	t.texts, t.excluded = slices.Clip(s.texts), slices.Clip(s.excluded)
	t.objects, t.arrays, t.required = slices.Clip(s.objects), slices.Clip(s.arrays), slices.Clip(s.required)
	t.choices, t.names, t.contains = slices.Clip(s.choices), slices.Clip(s.names), slices.Clip(s.contains)
	t.another = slices.Clip(s.another)
	return &t
}

// bare tells whether the shape says nothing.
func (s *shape) bare() bool {
	return s.types == allTypes && !s.typed && s.implied == 0 && s.enum == nil && len(s.excluded)+len(s.choices) == 0
}

// restrict admits only values of the list.
func (s *shape) restrict(at located, list []*value) {
	if s.enum != nil {
		list = common(list, s.enum)
	}
	s.enum, s.enumAt = list, at
	if list == nil {
		s.enum = []*value{}
	}
}

// excludes tells whether not rules out a value.
func (s *shape) excludes(v *value) bool {
	return slices.ContainsFunc(s.excluded, func(x *value) bool { return x.kind == v.kind && x.canonical() == v.canonical() })
}

// limit makes the types fewer.
func (s *shape) limit(types typeSet) {
	s.types &= types
	s.typed = true
}

// tighten makes an end of the interval of numbers nearer.
func (s *shape) tighten(above bool, b bound) {
	known, nearer := &s.lo, 1
	if above {
		known, nearer = &s.hi, -1
	}
	if known.value == nil || b.value.Cmp(known.value) == nearer || b.value.Cmp(known.value) == 0 && b.open {
		*known = b
	}
}

// common returns the values of a that b has.
func common(a, b []*value) []*value {
	known := make(map[string]bool)
	for _, v := range b {
		known[v.canonical()] = true
	}
	return slices.DeleteFunc(slices.Clone(a), func(v *value) bool { return !known[v.canonical()] })
}

// collect adds what a schema says to the shape. hops counts references on the way.
func (c *schemaCompiler) collect(s *shape, l located, hops int) error {
	switch {
	case l.kind == booleanType:
		if (l.text == "false") != l.negated {
			s.limit(0)
		}
		return nil
	case l.kind != objectType:
		return l.errorf("want a schema, which is an object or a boolean")
	case hops > maxSchemaDepth:
		return l.errorf("the schema refers to itself without anything between")
	}
	if s.at.value == nil {
		s.at = l
	}
	if c.read++; c.read > maxRead {
		return fmt.Errorf("%w: more than %d schemas after references and combinations", errTooLarge, maxRead)
	}
	keys := l.keys
	if l.fields["$ref"] != nil && c.refAlone() {
		keys = []string{"$ref"}
	}
	if l.only != "" {
		keys = []string{l.only}
	}
	if l.negated {
		return c.collectNot(s, l, keys, hops)
	}
	for _, key := range keys {
		if k, known := keywords[key]; known && k.collect != nil {
			if err := k.collect(c, s, l, l.memberAt(key), hops); err != nil {
				return err
			}
		} else if refusedKeywords[key] {
			return l.memberAt(key).errorf("keyword %s is not enforced", key)
		}
	}
	return nil
}
