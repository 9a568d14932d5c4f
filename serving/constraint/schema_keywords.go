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

// counted is a keyword that bounds a number of things from above or below.
func counted(of typeSet, field func(s *shape) *counts, above bool) keyword {
	return keyword{func(_ *schemaCompiler, s *shape, _, at located, _ int) error {
		n, err := at.natural()
		if s.implied |= of; above {
			field(s).lower(n)
		} else {
			field(s).raise(n)
		}
		return err
	}, func(_ *schemaCompiler, s *shape, _, at located, _ int) error {
		n, err := at.natural()
		s.limit(of)
		switch {
		case above:
			field(s).raise(n + 1)
		case n == 0:
			s.limit(0)
		default:
			field(s).lower(n - 1)
		}
		return err
	}}
}

// natural is a number of things, at most maxRepeat.
func (l located) natural() (int, error) {
	r, err := l.rational()
	if err != nil || !r.IsInt() || r.Sign() < 0 {
		return 0, l.errorf("want a number that is an integer and not negative")
	}
	if r.Cmp(big.NewRat(maxRepeat, 1)) >= 0 {
		return maxRepeat, nil
	}
	return int(r.Num().Int64()), nil
}

// limited is a keyword that bounds numbers from above or below. beside is the boolean of draft 4 that opens it.
func limited(above, open bool, beside string) keyword {
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
			s.tighten(above, b)
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
			s.tighten(!above, bound{b.value, !b.open})
		}
		return err
	}}
}

// texts is pattern or format.
func texts(format bool) keyword {
	read := func(c *schemaCompiler, s *shape, at located, negated bool) error {
		if at.kind != stringType {
			return at.errorf("want a string")
		}
		switch known := formats[at.text] != ""; {
		case !format || known:
		case c.strict:
			return at.errorf("format %q is not enforced", at.text)
		case negated:
			return at.errorf("format %q is not enforced, which not needs", at.text)
		default:
			return nil // an annotation
		}
		if s.texts = append(s.texts, textPart{at, format, negated}); negated {
			s.limit(stringType)
		} else {
			s.implied |= stringType
		}
		return nil
	}
	return keyword{func(c *schemaCompiler, s *shape, _, at located, _ int) error { return read(c, s, at, false) },
		func(c *schemaCompiler, s *shape, _, at located, _ int) error { return read(c, s, at, true) }}
}

// alternatives is anyOf, or oneOf, which is exclusive.
func alternatives(exclusive bool) func(_ *schemaCompiler, s *shape, _, at located, _ int) error {
	return func(_ *schemaCompiler, s *shape, _, at located, _ int) error {
		list, err := at.schemas()
		s.choices = append(s.choices, choice{list, exclusive})
		return err
	}
}

// referred collects the schema that $ref names, or what it does not admit.
func referred(negated bool) func(c *schemaCompiler, s *shape, _, at located, hops int) error {
	return func(c *schemaCompiler, s *shape, _, at located, hops int) error {
		l, err := c.resolve(at)
		if err != nil {
			return err
		}
		l.negated = l.negated != negated
		return c.collect(s, l, hops+1)
	}
}

func collectEnum(_ *schemaCompiler, s *shape, _, at located, _ int) error {
	if at.kind != arrayType || len(at.items) == 0 {
		return at.errorf("want a list that is not empty")
	}
	s.restrict(at, at.items)
	return nil
}

func notEnum(_ *schemaCompiler, s *shape, _, at located, _ int) error {
	if at.kind != arrayType {
		return at.errorf("want a list")
	}
	return s.exclude(at, at.items)
}

func collectConst(_ *schemaCompiler, s *shape, _, at located, _ int) error {
	s.restrict(at, []*value{at.value})
	return nil
}

func notConst(_ *schemaCompiler, s *shape, _, at located, _ int) error {
	return s.exclude(at, []*value{at.value})
}

func collectAllOf(c *schemaCompiler, s *shape, _, at located, hops int) error {
	list, err := at.schemas()
	for _, l := range list {
		if err := c.collect(s, l, hops+1); err != nil {
			return err
		}
	}
	return err
}

func collectMultiple(_ *schemaCompiler, s *shape, _, at located, _ int) error {
	q, err := at.rational()
	if err != nil || q.Sign() <= 0 || s.multiple != nil && s.multiple.Cmp(q) != 0 {
		return at.errorf("want one positive number")
	}
	s.multiple = q
	s.implied |= numberType
	return nil
}

func init() { // collect refers to the table
	object, array := keyword{collectObject, notObject}, keyword{collectArray, notArray}
	length, items, members := func(s *shape) *counts { return &s.length }, func(s *shape) *counts { return &s.items }, func(s *shape) *counts { return &s.members }
	keywords = map[string]keyword{
		"enum":                 {collectEnum, notEnum},
		"const":                {collectConst, notConst},
		"$ref":                 {referred(false), referred(true)},
		"allOf":                {collectAllOf, notAllOf},
		"anyOf":                {alternatives(false), notAnyOf},
		"oneOf":                {alternatives(true), notOneOf},
		"not":                  {collectNegated, collectDoublyNegated},
		"if":                   {collectIf, notIf},
		"dependentRequired":    {collectDependencies, notDependencies},
		"dependentSchemas":     {collectDependencies, notDependencies},
		"dependencies":         {collectDependencies, notDependencies},
		"minimum":              limited(false, false, "exclusiveMinimum"),
		"exclusiveMinimum":     limited(false, true, ""),
		"maximum":              limited(true, false, "exclusiveMaximum"),
		"exclusiveMaximum":     limited(true, true, ""),
		"multipleOf":           {collectMultiple, nil},
		"minLength":            counted(stringType, length, false),
		"maxLength":            counted(stringType, length, true),
		"minItems":             counted(arrayType, items, false),
		"maxItems":             counted(arrayType, items, true),
		"minProperties":        counted(objectType, members, false),
		"maxProperties":        counted(objectType, members, true),
		"pattern":              texts(false),
		"format":               texts(true),
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
