package constraint

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
)

// A shape is what schemas say that hold together: one with its allOf and $ref.
type shape struct {
	at      located // the first schema
	types   typeSet
	typed   bool    // a schema says type
	implied typeSet // the types that other keywords are about
	enum    []*value
	enumAt  located

	lo, hi               bound
	multiple             *big.Rat // multipleOf
	minLength, maxLength int
	patterns, formats    []located
	objects              []objectPart
	required             []string
	names                []located // propertyNames
	minMembers           int
	maxMembers           int
	arrays               []arrayPart
	minItems, maxItems   int
	choices              []choice // anyOf and oneOf
}

// objectPart is what one schema says of members.
type objectPart struct {
	names      []string
	properties map[string]located
	additional *located // of names that are not in properties and patterns
	patterns   *located // patternProperties
}

// arrayPart is what one schema says of items.
type arrayPart struct {
	prefix []located
	items  *located // after the prefix
}

type choice struct {
	list      []located
	exclusive bool
}

func newShape() *shape {
	return &shape{types: allTypes, maxLength: unbounded, maxItems: unbounded, maxMembers: unbounded}
}

func (s *shape) clone() *shape {
	t := *s
	t.patterns, t.formats = slices.Clip(s.patterns), slices.Clip(s.formats)
	t.objects, t.arrays, t.required = slices.Clip(s.objects), slices.Clip(s.arrays), slices.Clip(s.required)
	t.choices, t.names = slices.Clip(s.choices), slices.Clip(s.names)
	return &t
}

// bare tells whether the shape says nothing.
func (s *shape) bare() bool {
	return s.types == allTypes && !s.typed && s.implied == 0 && s.enum == nil && len(s.choices) == 0
}

// annotations are keywords that admit every value.
var annotations = map[string]bool{"title": true, "description": true, "default": true, "examples": true, "$schema": true,
	"$comment": true, "deprecated": true, "readOnly": true, "writeOnly": true, "$defs": true, "definitions": true, "discriminator": true}

// collect adds what a schema says to the shape. hops counts references on the way.
func (c *schemaCompiler) collect(s *shape, l located, hops int) error {
	switch {
	case l.kind == booleanType:
		if l.text == "false" {
			s.types, s.typed = 0, true
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
	for _, key := range l.keys {
		if annotations[key] || key == "$id" && l.path == "#" {
			continue
		}
		collect := keywords[key]
		if collect == nil {
			return l.at(key).errorf("keyword %s is not enforced", key)
		}
		if err := collect(c, s, l.at(key), hops); err != nil {
			return err
		}
	}
	return c.collectParts(s, l)
}

// keywords add to a shape what one of them says. Those that only make sense together are
// collected by collectParts.
var keywords map[string]func(c *schemaCompiler, s *shape, at located, hops int) error

func init() { // collect refers to the table
	type collector = func(c *schemaCompiler, s *shape, at located, hops int) error
	count := func(of typeSet, set func(s *shape, n int)) collector {
		return func(_ *schemaCompiler, s *shape, at located, _ int) error {
			r, err := at.rational()
			if err != nil || !r.IsInt() || r.Sign() < 0 {
				return at.errorf("want a number that is an integer and not negative")
			}
			n := maxRepeat
			if r.Cmp(big.NewRat(maxRepeat, 1)) < 0 {
				n = int(r.Num().Int64())
			}
			s.implied |= of
			set(s, n)
			return nil
		}
	}
	// A limit is the larger one of several below (1), or the smaller one of those above (-1).
	limit := func(end func(s *shape) *bound, larger int, open bool) collector {
		return func(_ *schemaCompiler, s *shape, at located, _ int) error {
			r, err := at.rational()
			if err != nil {
				return at.errorf("%v", err)
			}
			s.implied |= numberType
			if known := end(s); known.value == nil || r.Cmp(known.value) == larger || r.Cmp(known.value) == 0 && open {
				*known = bound{r, open}
			}
			return nil
		}
	}
	lower := func(s *shape) *bound { return &s.lo }
	upper := func(s *shape) *bound { return &s.hi }
	least := func(a, b int) int {
		if a == unbounded {
			return b
		}
		return min(a, b)
	}
	alternatives := func(exclusive bool) collector {
		return func(_ *schemaCompiler, s *shape, at located, _ int) error {
			list, err := at.schemas()
			s.choices = append(s.choices, choice{list, exclusive})
			return err
		}
	}
	text := func(set func(s *shape, at located)) collector {
		return func(_ *schemaCompiler, s *shape, at located, _ int) error {
			if at.kind != stringType {
				return at.errorf("want a string")
			}
			set(s, at)
			return nil
		}
	}
	about := func(of typeSet) collector { // collectParts reads it
		return func(_ *schemaCompiler, s *shape, _ located, _ int) error {
			s.implied |= of
			return nil
		}
	}
	keywords = map[string]collector{
		"enum": func(_ *schemaCompiler, s *shape, at located, _ int) error {
			if at.kind != arrayType || len(at.items) == 0 {
				return at.errorf("want a list that is not empty")
			}
			s.restrict(at, at.items)
			return nil
		},
		"const": func(_ *schemaCompiler, s *shape, at located, _ int) error {
			s.restrict(at, []*value{at.value})
			return nil
		},
		"$ref": func(c *schemaCompiler, s *shape, at located, hops int) error {
			l, err := c.resolve(at)
			if err != nil {
				return err
			}
			return c.collect(s, l, hops+1)
		},
		"allOf": func(c *schemaCompiler, s *shape, at located, hops int) error {
			list, err := at.schemas()
			for _, l := range list {
				if err := c.collect(s, l, hops+1); err != nil {
					return err
				}
			}
			return err
		},
		"anyOf":            alternatives(false),
		"oneOf":            alternatives(true),
		"minimum":          limit(lower, 1, false),
		"exclusiveMinimum": limit(lower, 1, true),
		"maximum":          limit(upper, -1, false),
		"exclusiveMaximum": limit(upper, -1, true),
		"multipleOf": func(_ *schemaCompiler, s *shape, at located, _ int) error {
			q, err := at.rational()
			if err != nil || q.Sign() <= 0 || s.multiple != nil && s.multiple.Cmp(q) != 0 {
				return at.errorf("want one positive number")
			}
			s.multiple = q
			s.implied |= numberType
			return nil
		},
		"minLength": count(stringType, func(s *shape, n int) { s.minLength = max(s.minLength, n) }),
		"maxLength": count(stringType, func(s *shape, n int) { s.maxLength = least(s.maxLength, n) }),
		"minItems":  count(arrayType, func(s *shape, n int) { s.minItems = max(s.minItems, n) }),
		"maxItems":  count(arrayType, func(s *shape, n int) { s.maxItems = least(s.maxItems, n) }),
		"pattern": text(func(s *shape, at located) {
			s.implied |= stringType
			s.patterns = append(s.patterns, at)
		}),
		"format": text(func(s *shape, at located) {
			if formats[at.text] != "" {
				s.implied |= stringType
			}
			s.formats = append(s.formats, at)
		}),
		"required": func(_ *schemaCompiler, s *shape, at located, _ int) error {
			if at.kind != arrayType || slices.ContainsFunc(at.items, func(v *value) bool { return v.kind != stringType }) {
				return at.errorf("want a list of names")
			}
			for _, v := range at.items {
				if !slices.Contains(s.required, v.text) {
					s.required = append(s.required, v.text)
				}
			}
			s.implied |= objectType
			return nil
		},
		"propertyNames": func(_ *schemaCompiler, s *shape, at located, _ int) error {
			s.implied |= objectType
			s.names = append(s.names, at)
			return nil
		},
		"minProperties":     count(objectType, func(s *shape, n int) { s.minMembers = max(s.minMembers, n) }),
		"maxProperties":     count(objectType, func(s *shape, n int) { s.maxMembers = least(s.maxMembers, n) }),
		"patternProperties": about(objectType),
		"uniqueItems": func(_ *schemaCompiler, _ *shape, at located, _ int) error {
			if at.text != "false" {
				return at.errorf("keyword uniqueItems is not enforced")
			}
			return nil
		},
		"type":                 about(0),
		"nullable":             about(0), // of OpenAPI 3.0
		"properties":           about(objectType),
		"additionalProperties": about(objectType),
		"items":                about(arrayType),
		"prefixItems":          about(arrayType),
	}
}

// schemas returns the elements of a list that is not empty.
func (l located) schemas() ([]located, error) {
	if l.kind != arrayType || len(l.items) == 0 {
		return nil, l.errorf("want a list of schemas")
	}
	list := make([]located, len(l.items))
	for i := range list {
		list[i] = l.element(i)
	}
	return list, nil
}

// collectType reads type, and nullable beside it.
func collectType(s *shape, l located) error {
	at := l.at("type")
	names := at.items
	if at.kind == stringType {
		names = []*value{at.value}
	}
	var types typeSet
	for _, v := range names {
		t := typeNames[v.text]
		if v.kind != stringType || t == 0 {
			return at.errorf("unknown type %s", strconv.Quote(v.text))
		}
		types |= t
	}
	if types == 0 {
		return at.errorf("want a type or a list of them")
	}
	if v := l.fields["nullable"]; v != nil && v.kind == booleanType && v.text == "true" {
		types |= nullType
	}
	s.types &= types
	s.typed = true
	return nil
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

// common returns the values of a that b has.
func common(a, b []*value) []*value {
	known := make(map[string]bool)
	for _, v := range b {
		known[v.canonical()] = true
	}
	return slices.DeleteFunc(slices.Clone(a), func(v *value) bool { return !known[v.canonical()] })
}

// collectParts adds the keywords that depend on others beside them.
func (c *schemaCompiler) collectParts(s *shape, l located) error {
	of := func(key string, kinds typeSet, want string) (*located, error) {
		if l.fields[key] == nil {
			return nil, nil
		}
		at := l.at(key)
		if at.kind&kinds == 0 {
			return nil, at.errorf("want %s", want)
		}
		return &at, nil
	}
	const schema, schemas = "a schema, which is an object or a boolean", "an object of schemas"
	if l.fields["type"] != nil {
		if err := collectType(s, l); err != nil {
			return err
		}
	}
	if l.fields["properties"] != nil || l.fields["additionalProperties"] != nil || l.fields["patternProperties"] != nil {
		part := objectPart{properties: make(map[string]located)}
		at, err := of("properties", objectType, schemas)
		if err != nil {
			return err
		}
		if at != nil {
			part.names = at.keys
			for _, name := range at.keys {
				part.properties[name] = at.at(name)
			}
		}
		if part.additional, err = of("additionalProperties", objectType|booleanType, schema); err != nil {
			return err
		}
		if part.patterns, err = of("patternProperties", objectType, schemas); err != nil {
			return err
		}
		s.objects = append(s.objects, part)
	}
	if l.fields["items"] != nil || l.fields["prefixItems"] != nil {
		var part arrayPart
		var err error
		if l.fields["prefixItems"] != nil {
			if part.prefix, err = l.at("prefixItems").schemas(); err != nil {
				return err
			}
		}
		if part.items, err = of("items", objectType|booleanType, schema); err != nil {
			return err
		}
		s.arrays = append(s.arrays, part)
	}
	return nil
}
