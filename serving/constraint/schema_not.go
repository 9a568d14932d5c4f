package constraint

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// collectNot adds what a schema does not admit: one of its keywords fails. The result is exact, so that schemas
// under not and oneOf admit nothing that they should not.
func (c *schemaCompiler) collectNot(s *shape, l located, keys []string, hops int) error {
	if i, another := strings.CutPrefix(l.only, anotherMember); another {
		return s.needAnother(l, i)
	}
	groups := [][]string{{"properties", "patternProperties", "additionalProperties"}, {"items", "prefixItems", "additionalItems"}}
	var heads []string
	for _, key := range keys {
		k, known := keywords[key]
		switch {
		case refusedKeywords[key] || known && k.collect != nil && k.not == nil:
			return l.memberAt(key).errorf("keyword %s is not enforced where it must not hold", key)
		case !known || k.collect == nil || key == "additionalItems" && len(heads) == 0 && l.fields["items"] == nil:
			continue
		}
		grouped := slices.ContainsFunc(groups, func(g []string) bool {
			return slices.Contains(g, key) && slices.ContainsFunc(heads, func(head string) bool { return slices.Contains(g, head) })
		})
		if !grouped {
			heads = append(heads, key)
		}
	}
	switch len(heads) {
	case 0:
		s.limit(0)
		return nil
	case 1:
		return keywords[heads[0]].not(c, s, l, l.memberAt(heads[0]), hops)
	}
	var list []located
	for _, head := range heads {
		list = append(list, l.part(head))
	}
	s.choices = append(s.choices, choice{list: list})
	return nil
}

// either adds a choice of schemas, of one the schema itself and of none what no value fits.
func (c *schemaCompiler) either(s *shape, hops int, list ...located) error {
	switch len(list) {
	case 0:
		s.limit(0)
		return nil
	case 1:
		return c.collect(s, list[0], hops+1)
	}
	s.choices = append(s.choices, choice{list: list})
	return nil
}

func collectNegated(c *schemaCompiler, s *shape, _, at located, hops int) error {
	return c.collect(s, at.not(), hops+1)
}

func collectDoublyNegated(c *schemaCompiler, s *shape, _, at located, hops int) error {
	return c.collect(s, at, hops+1)
}

func notAllOf(c *schemaCompiler, s *shape, _, at located, hops int) error {
	list, err := at.schemas()
	if err != nil {
		return err
	}
	for i := range list {
		list[i] = list[i].not()
	}
	return c.either(s, hops, list...)
}

func notAnyOf(c *schemaCompiler, s *shape, _, at located, hops int) error {
	list, err := at.schemas()
	for _, l := range list {
		if err := c.collect(s, l.not(), hops+1); err != nil {
			return err
		}
	}
	return err
}

// notOneOf is none of the schemas or two of them.
func notOneOf(c *schemaCompiler, s *shape, l, at located, hops int) error {
	list, err := at.schemas()
	if err != nil {
		return err
	}
	out := []located{l.derived("none", "not", schemaOf("anyOf", at.value))}
	for i := range list {
		for j := range i {
			both := newShape()
			if err := errorOf(c.collect(both, list[i], 0), c.collect(both, list[j], 0)); err != nil {
				return err
			}
			if !c.impossible(both, 0) {
				out = append(out, l.derived(fmt.Sprintf("%d and %d", i, j), "allOf", listValue(list[i].value, list[j].value)))
			}
		}
	}
	return c.either(s, hops, out...)
}

func errorOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// collectIf is if and then, or not if and else.
func collectIf(c *schemaCompiler, s *shape, l, at located, hops int) error {
	then, otherwise := l.fields["then"], l.fields["else"]
	if then == nil && otherwise == nil {
		return nil
	}
	yes, no := []any{"allOf", listValue(at.value)}, []any{"not", at.value}
	if then != nil {
		yes = []any{"allOf", listValue(at.value, then)}
	}
	if otherwise != nil {
		no = append(no, "allOf", listValue(otherwise))
	}
	return c.either(s, hops, l.derived("then", yes...), l.derived("else", no...))
}

func notIf(c *schemaCompiler, s *shape, l, at located, hops int) error {
	var list []located
	if then := l.fields["then"]; then != nil {
		list = append(list, l.derived("not then", "allOf", listValue(at.value), "not", then))
	}
	if otherwise := l.fields["else"]; otherwise != nil {
		list = append(list, l.derived("not else", "not", schemaOf("anyOf", listValue(at.value, otherwise))))
	}
	return c.either(s, hops, list...)
}

func notType(_ *schemaCompiler, s *shape, l, at located, _ int) error {
	types, err := readTypes(l, at)
	s.limit(allTypes &^ types)
	return err
}

// exclude rules out constants.
func (s *shape) exclude(at located, list []*value) error {
	var numbers []*value
	for _, v := range list {
		switch {
		case v.kind&numberType != 0:
			if _, err := v.rational(); err != nil {
				return at.errorf("%v", err)
			}
			numbers = append(numbers, v)
		case v.kind == objectType && len(v.keys) == 0:
			s.choices = append(s.choices, choice{list: []located{
				at.derived("no object", "not", schemaOf("type", textValue("object"))), at.derived("members", "minProperties", one),
			}})
		case v.kind == arrayType && len(v.items) == 0:
			s.choices = append(s.choices, choice{list: []located{
				at.derived("no array", "not", schemaOf("type", textValue("array"))), at.derived("items", "minItems", one),
			}})
		case v.kind&(objectType|arrayType) != 0:
			return at.errorf("constants that are %s are not enforced where they must not be", typeOf(v.kind))
		default:
			s.excluded = append(s.excluded, v)
		}
	}
	if len(numbers) == 0 {
		return nil
	}
	// What is between the numbers.
	rational := func(v *value) *big.Rat { r, _ := v.rational(); return r }
	slices.SortFunc(numbers, func(a, b *value) int { return rational(a).Cmp(rational(b)) })
	out := []located{at.derived("no number", "not", schemaOf("type", textValue("number")))}
	for i := range len(numbers) + 1 {
		pairs := []any{"type", textValue("number")}
		if i > 0 {
			pairs = append(pairs, "exclusiveMinimum", numbers[i-1])
		}
		if i < len(numbers) {
			pairs = append(pairs, "exclusiveMaximum", numbers[i])
		}
		out = append(out, at.derived(fmt.Sprint("numbers ", i), pairs...))
	}
	s.choices = append(s.choices, choice{list: out})
	return nil
}

var one = &value{kind: integerType, text: "1"}

// without is a schema of objects that have no such member.
func (l located) without(name string) located {
	return l.derived("without "+name, "type", textValue("object"), "properties", schemaOf(name, falseValue))
}

func notRequired(c *schemaCompiler, s *shape, l, at located, hops int) error {
	names, err := readNames(at)
	if err != nil {
		return err
	}
	var list []located
	for _, name := range names {
		list = append(list, l.without(name))
	}
	return c.either(s, hops, list...)
}

func notObject(c *schemaCompiler, s *shape, l, _ located, hops int) error {
	part, err := readObject(l)
	if err != nil {
		return err
	}
	s.limit(objectType)
	var list []located
	for _, name := range part.names {
		if !part.properties[name].trivial() {
			list = append(list, l.derived("not "+name, "required", listValue(textValue(name)), "properties", schemaOf(name, schemaOf("not", part.properties[name].value))))
		}
	}
	for i, at := range part.patterns {
		if !at.trivial() {
			list = append(list, l.part(anotherMember+strconv.Itoa(i)))
		}
	}
	if at := part.additional; at != nil && !at.trivial() {
		list = append(list, l.part(anotherMember))
	}
	return c.either(s, hops, list...)
}

// anotherMember is the part of a schema that fails since a member fails that is not in properties, with the number of its
// pattern or without one.
const anotherMember = "another member "

func (s *shape) needAnother(l located, pattern string) error {
	part, err := readObject(l)
	if err != nil {
		return err
	}
	a := another{part: part, pattern: -1}
	if pattern == "" {
		a.schema = part.additional.not()
	} else if a.pattern, err = strconv.Atoi(pattern); err == nil {
		a.schema = part.patterns[a.pattern].not()
	}
	s.limit(objectType)
	s.another = append(s.another, a)
	return err
}

// trivial tells whether a schema admits everything.
func (l located) trivial() bool {
	return l.kind == booleanType && l.text == "true" || l.kind == objectType && !slices.ContainsFunc(l.keys, constrains)
}

func notArray(c *schemaCompiler, s *shape, l, _ located, hops int) error {
	part, err := readArray(l)
	if err != nil {
		return err
	}
	s.limit(arrayType)
	var list []located
	for i, at := range part.prefix {
		items := slices.Repeat([]*value{schemaOf()}, i)
		if !at.trivial() {
			list = append(list, l.derived(fmt.Sprint("not item ", i), "minItems", integer(i+1), "prefixItems", listValue(append(items, schemaOf("not", at.value))...)))
		}
	}
	switch at := part.items; {
	case at == nil || at.trivial():
	case len(part.prefix) == 0:
		list = append(list, l.derived("not items", "contains", schemaOf("not", at.value)))
	case at.kind == booleanType:
		list = append(list, l.derived("more items", "minItems", integer(len(part.prefix)+1)))
	default:
		return at.errorf("items after others are not enforced where they must not be so")
	}
	return c.either(s, hops, list...)
}

func integer(n int) *value { return &value{kind: integerType, text: fmt.Sprint(n)} }

func notContains(c *schemaCompiler, s *shape, l, at located, hops int) error {
	if l.fields["minContains"] != nil {
		return at.errorf("keyword minContains is not enforced where it must not hold")
	}
	s.limit(arrayType)
	return c.either(s, hops, l.derived("no item", "items", schemaOf("not", at.value)))
}

// collectDependencies reads dependentRequired, dependentSchemas, and dependencies, which are both: a member is
// not there, or the others are.
func collectDependencies(c *schemaCompiler, s *shape, l, at located, hops int) error {
	return c.dependencies(at, func(name string, then *value) error {
		s.implied |= objectType
		there := at.derived("with "+name, "required", listValue(textValue(name)), "allOf", listValue(then))
		return c.either(s, hops, at.without(name), there)
	})
}

func notDependencies(c *schemaCompiler, s *shape, _, at located, hops int) error {
	var list []located
	err := c.dependencies(at, func(name string, then *value) error {
		list = append(list, at.derived("not with "+name, "required", listValue(textValue(name)), "not", then))
		return nil
	})
	return errorOf(err, c.either(s, hops, list...))
}

// dependencies calls f with a member's name and what has to be valid where it is there.
func (c *schemaCompiler) dependencies(at located, f func(name string, then *value) error) error {
	if at.kind != objectType {
		return at.errorf("want an object")
	}
	for _, name := range at.keys {
		v := at.memberAt(name)
		if v.kind == arrayType {
			if len(v.items) == 0 {
				continue
			}
			if _, err := readNames(v); err != nil {
				return err
			}
			v.value = schemaOf("required", v.value)
		}
		if v.kind == stringType { // draft 3
			v.value = schemaOf("required", listValue(v.value))
		}
		if err := f(name, v.value); err != nil {
			return err
		}
	}
	return nil
}
