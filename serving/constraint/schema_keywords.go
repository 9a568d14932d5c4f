package constraint

import (
	"math/big"
	"strings"
)

// A keyword is what a shape takes of it. Several that depend on each other have one that collects them all, which is
// the first of them in a schema.
type keyword struct {
	collect func(c *schemaCompiler, s *shape, l, at located, hops int) error
	not     func(c *schemaCompiler, s *shape, l, at located, hops int) error // what makes it fail; nil: refused
}

var keywords map[string]keyword

// refusedKeywords of some draft constrain values, and are not enforced.
var refusedKeywords = func() map[string]bool {
	out := make(map[string]bool)
	for key := range strings.FieldsSeq("maxContains unevaluatedProperties unevaluatedItems $dynamicRef $recursiveRef extends disallow divisibleBy") {
		out[key] = true
	}
	return out
}()

// constrains tells whether a keyword says anything about values.
func constrains(key string) bool {
	_, known := keywords[key]
	return known || refusedKeywords[key]
}

func init() { // collect refers to the table
	type collector = func(c *schemaCompiler, s *shape, l, at located, hops int) error
	// count is a keyword that bounds a number of things from below or above.
	count := func(of typeSet, set func(s *shape, n int), negated func(s *shape, n int)) keyword {
		read := func(at located) (int, error) {
			r, err := at.rational()
			if err != nil || !r.IsInt() || r.Sign() < 0 {
				return 0, at.errorf("want a number that is an integer and not negative")
			}
			n := maxRepeat
			if r.Cmp(big.NewRat(maxRepeat, 1)) < 0 {
				n = int(r.Num().Int64())
			}
			return n, nil
		}
		return keyword{func(_ *schemaCompiler, s *shape, _, at located, _ int) error {
			n, err := read(at)
			s.implied |= of
			set(s, n)
			return err
		}, func(_ *schemaCompiler, s *shape, _, at located, _ int) error {
			n, err := read(at)
			s.limit(of)
			negated(s, n)
			return err
		}}
	}
	lower := func(s *shape) *bound { return &s.lo }
	upper := func(s *shape) *bound { return &s.hi }
	// tighten makes an end of the interval nearer: the larger one of several below (1), or the smaller one of those above (-1).
	tighten := func(known *bound, larger int, b bound) {
		if known.value == nil || b.value.Cmp(known.value) == larger || b.value.Cmp(known.value) == 0 && b.open {
			*known = b
		}
	}
	// limit is a bound of numbers. beside is the boolean of draft 4 that opens it.
	limit := func(end, opposite func(s *shape) *bound, larger int, open bool, beside string) keyword {
		read := func(l, at located) (bound, error) {
			r, err := at.rational()
			if err != nil {
				return bound{}, at.errorf("%v", err)
			}
			flag := l.fields[beside]
			return bound{r, open || flag != nil && flag.kind == booleanType && flag.text == "true"}, nil
		}
		return keyword{func(_ *schemaCompiler, s *shape, l, at located, _ int) error {
			if open && at.kind == booleanType {
				return nil
			}
			b, err := read(l, at)
			if err == nil {
				s.implied |= numberType
				tighten(end(s), larger, b)
			}
			return err
		}, func(_ *schemaCompiler, s *shape, l, at located, _ int) error {
			if open && at.kind == booleanType {
				s.limit(0)
				return nil
			}
			b, err := read(l, at)
			if err == nil {
				s.limit(numberType)
				tighten(opposite(s), -larger, bound{b.value, !b.open})
			}
			return err
		}}
	}
	alternatives := func(exclusive bool) collector {
		return func(_ *schemaCompiler, s *shape, _, at located, _ int) error {
			list, err := at.schemas()
			s.choices = append(s.choices, choice{list, exclusive})
			return err
		}
	}
	text := func(format bool) keyword {
		read := func(c *schemaCompiler, s *shape, at located, negated bool) error {
			if at.kind != stringType {
				return at.errorf("want a string")
			}
			part := textPart{at, format, negated}
			switch known := formats[at.text] != ""; {
			case !format || known:
			case c.strict:
				return at.errorf("format %q is not enforced", at.text)
			case negated:
				return at.errorf("format %q is not enforced, which not needs", at.text)
			default:
				return nil // an annotation
			}
			if s.texts = append(s.texts, part); negated {
				s.limit(stringType)
			} else {
				s.implied |= stringType
			}
			return nil
		}
		return keyword{func(c *schemaCompiler, s *shape, _, at located, _ int) error { return read(c, s, at, false) },
			func(c *schemaCompiler, s *shape, _, at located, _ int) error { return read(c, s, at, true) }}
	}
	least := func(a, b int) int {
		if a == unbounded {
			return b
		}
		return min(a, b)
	}
	// most bounds a number by less than n.
	most := func(field func(s *shape) *int) func(s *shape, n int) {
		return func(s *shape, n int) {
			if n == 0 {
				s.limit(0)
				return
			}
			*field(s) = least(*field(s), n-1)
		}
	}
	set := func(field func(s *shape) *int) func(s *shape, n int) {
		return func(s *shape, n int) { *field(s) = least(*field(s), n) }
	}
	from := func(field func(s *shape) *int, more int) func(s *shape, n int) {
		return func(s *shape, n int) { *field(s) = max(*field(s), n+more) }
	}
	minLength, maxLength := func(s *shape) *int { return &s.minLength }, func(s *shape) *int { return &s.maxLength }
	minItems, maxItems := func(s *shape) *int { return &s.minItems }, func(s *shape) *int { return &s.maxItems }
	minMembers, maxMembers := func(s *shape) *int { return &s.minMembers }, func(s *shape) *int { return &s.maxMembers }
	object, array := keyword{collectObject, notObject}, keyword{collectArray, notArray}
	keywords = map[string]keyword{
		"enum": {func(_ *schemaCompiler, s *shape, _, at located, _ int) error {
			if at.kind != arrayType || len(at.items) == 0 {
				return at.errorf("want a list that is not empty")
			}
			s.restrict(at, at.items)
			return nil
		}, func(_ *schemaCompiler, s *shape, _, at located, _ int) error {
			if at.kind != arrayType {
				return at.errorf("want a list")
			}
			return s.exclude(at, at.items)
		}},
		"const": {func(_ *schemaCompiler, s *shape, _, at located, _ int) error {
			s.restrict(at, []*value{at.value})
			return nil
		}, func(_ *schemaCompiler, s *shape, _, at located, _ int) error {
			return s.exclude(at, []*value{at.value})
		}},
		"$ref": {func(c *schemaCompiler, s *shape, _, at located, hops int) error {
			l, err := c.resolve(at)
			if err != nil {
				return err
			}
			return c.collect(s, l, hops+1)
		}, func(c *schemaCompiler, s *shape, _, at located, hops int) error {
			l, err := c.resolve(at)
			if err != nil {
				return err
			}
			return c.collect(s, l.not(), hops+1)
		}},
		"allOf": {func(c *schemaCompiler, s *shape, _, at located, hops int) error {
			list, err := at.schemas()
			for _, l := range list {
				if err := c.collect(s, l, hops+1); err != nil {
					return err
				}
			}
			return err
		}, notAllOf},
		"anyOf":             {alternatives(false), notAnyOf},
		"oneOf":             {alternatives(true), notOneOf},
		"not":               {collectNegated, collectDoublyNegated},
		"if":                {collectIf, notIf},
		"dependentRequired": {collectDependencies, notDependencies},
		"dependentSchemas":  {collectDependencies, notDependencies},
		"dependencies":      {collectDependencies, notDependencies},
		"minimum":           limit(lower, upper, 1, false, "exclusiveMinimum"),
		"exclusiveMinimum":  limit(lower, upper, 1, true, ""),
		"maximum":           limit(upper, lower, -1, false, "exclusiveMaximum"),
		"exclusiveMaximum":  limit(upper, lower, -1, true, ""),
		"multipleOf": {func(_ *schemaCompiler, s *shape, _, at located, _ int) error {
			q, err := at.rational()
			if err != nil || q.Sign() <= 0 || s.multiple != nil && s.multiple.Cmp(q) != 0 {
				return at.errorf("want one positive number")
			}
			s.multiple = q
			s.implied |= numberType
			return nil
		}, nil},
		"minLength":            count(stringType, from(minLength, 0), most(maxLength)),
		"maxLength":            count(stringType, set(maxLength), from(minLength, 1)),
		"minItems":             count(arrayType, from(minItems, 0), most(maxItems)),
		"maxItems":             count(arrayType, set(maxItems), from(minItems, 1)),
		"minProperties":        count(objectType, from(minMembers, 0), most(maxMembers)),
		"maxProperties":        count(objectType, set(maxMembers), from(minMembers, 1)),
		"pattern":              text(false),
		"format":               text(true),
		"required":             {collectRequired, notRequired},
		"propertyNames":        {collectNames, nil},
		"uniqueItems":          {collectUnique, nil},
		"contains":             {collectContains, notContains},
		"type":                 {collectType, notType},
		"properties":           object,
		"additionalProperties": object,
		"patternProperties":    object,
		"items":                array,
		"prefixItems":          array,
		"additionalItems":      array,
		"then":                 {}, // of if
		"else":                 {},
		"minContains":          {}, // of contains
		"nullable":             {}, // of type, in OpenAPI 3.0
	}
}
