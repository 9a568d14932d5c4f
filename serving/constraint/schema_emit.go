package constraint

import (
	"slices"
	"strings"
)

// emitEnum admits the constants that the rest of the shape admits. Objects and lists would
// have to be evaluated, since their texts may be in another order.
func (c *schemaCompiler) emitEnum(s *shape) (*expr, error) {
	var list []*value
	for _, v := range s.enum {
		switch {
		case v.kind&s.types == 0:
			continue
		case s.implied&v.kind != 0 && v.kind&(arrayType|objectType) != 0:
			return nil, s.enumAt.errorf("constants are not enforced beside other keywords that are about %s", typeOf(v.kind))
		case s.implied&v.kind != 0:
			rest := s.clone()
			rest.enum, rest.types, rest.typed = nil, s.types&v.kind, true
			x, err := c.emit(rest)
			if err != nil {
				return nil, err
			}
			r := &rule{name: "constants", body: alt(x, lit(" "))} // there may be no other text
			if err := finish(r, true); err != nil {
				return nil, err
			}
			if !r.has(constants([]*value{v}).text) {
				continue
			}
		}
		list = append(list, v)
	}
	return constants(list), nil
}

// has tells whether the rule admits a text.
func (r *rule) has(text string) bool {
	m := newMachine()
	at := m.begin(r)
	for i := range len(text) {
		at = m.step(at, text[i])
	}
	return at.ends && !m.spent()
}

func typeOf(t typeSet) string {
	for _, name := range []string{"null", "boolean", "string", "number", "array", "object"} {
		if typeNames[name]&t != 0 {
			return name + "s"
		}
	}
	return "nothing"
}

func (s *shape) emitNumber(types typeSet) (x *expr, err error) {
	whole, places := types&fractionType == 0, fractionDigits
	if whole {
		places = 0
	}
	switch {
	case s.multiple != nil:
		x, err = multiples(s.lo, s.hi, s.multiple, whole)
	case s.lo.value != nil || s.hi.value != nil:
		x, err = interval(s.lo, s.hi, places)
	case whole:
		return ref(jsonInteger), nil
	default:
		return ref(jsonNumber), nil
	}
	if err != nil {
		return nil, s.at.errorf("%v", err)
	}
	return x, nil
}

// emitArray writes the items, each of which all schemas with array keywords are about.
func (c *schemaCompiler) emitArray(s *shape) (*expr, error) {
	prefix := 0
	for _, part := range s.arrays {
		prefix = max(prefix, len(part.prefix))
	}
	item := func(i int) (*expr, error) {
		var list []located
		for _, part := range s.arrays {
			switch {
			case i < len(part.prefix):
				list = append(list, part.prefix[i])
			case part.items != nil:
				list = append(list, *part.items)
			}
		}
		return c.compile(list...)
	}
	rest, err := item(prefix)
	if err != nil {
		return nil, err
	}
	if s.maxItems != unbounded && s.minItems > s.maxItems {
		return never, nil
	}
	if prefix == 0 {
		return arrayOf(rest, s.minItems, s.maxItems), nil
	}
	left := func(n int) int { // of maxItems after n
		if s.maxItems == unbounded {
			return unbounded
		}
		return max(s.maxItems-n, 0)
	}
	tail := rep(seq(jsonComma, rest), max(s.minItems-prefix, 0), left(prefix))
	for i := prefix - 1; i >= 0; i-- {
		x, err := item(i)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			x = seq(jsonComma, x)
		}
		if tail = seq(x, tail); left(i) == 0 {
			tail = empty
		} else if i > 0 && i >= s.minItems {
			tail = opt(tail)
		}
	}
	if left(0) == 0 {
		tail = never
	}
	return bracketed("[", "]", tail, s.minItems == 0), nil
}

// emitObject writes the members in the order in which the schemas name them, then others.
func (c *schemaCompiler) emitObject(s *shape) (*expr, error) {
	var names []string
	known := make(map[string]bool)
	declare := func(list []string) {
		for _, name := range list {
			if !known[name] {
				known[name] = true
				names = append(names, name)
			}
		}
	}
	for _, part := range s.objects {
		declare(part.names)
	}
	closed := c.strict && len(names) > 0
	declare(s.required)
	if len(names) == 0 {
		return c.emitMap(s)
	}
	if err := s.checkMembers(len(names), closed); err != nil {
		return nil, err
	}

	// values is the schemas that a name's value has to be valid against.
	values := func(name string) []located {
		var list []located
		for _, part := range s.objects {
			if l, ok := part.properties[name]; ok {
				list = append(list, l)
			} else if part.additional != nil {
				list = append(list, *part.additional)
			}
		}
		return list
	}

	// After the last name, members with other names. more is what may follow a member,
	// next what may follow a comma or the opening bracket.
	var others []located
	for _, part := range s.objects {
		if part.additional != nil {
			others = append(others, *part.additional)
			closed = false
		}
	}
	more, next := empty, never
	if !closed {
		x, err := c.compile(others...)
		if err != nil {
			return nil, err
		}
		name := c.rule("another name", quoted(otherThan(names)))
		member := c.rule("another member", seq(name, jsonColon, x))
		more = rep(seq(jsonComma, member), 0, unbounded)
		next = c.rule("other members", seq(member, more))
		more = c.rule("more members", more)
	}
	optional := true // all of the rest
	for _, name := range slices.Backward(names) {
		x, err := c.compile(values(name)...)
		if err != nil {
			return nil, err
		}
		member := seq(lit(jsonText(name)), jsonColon, x, more)
		if slices.Contains(s.required, name) {
			optional = false
			next = member
			more = seq(jsonComma, next)
			continue
		}
		next = c.rule("members from "+name, alt(c.rule("member "+name, member), next))
		if more = seq(jsonComma, next); optional {
			more = opt(more)
		}
		more = c.rule("more members from "+name, more)
	}
	return bracketed("{", "}", next, optional && s.minMembers == 0), nil
}

// checkMembers refuses what ordered members do not enforce: numbers of them that do not
// follow from the names, and other keywords about names.
func (s *shape) checkMembers(names int, closed bool) error {
	for _, part := range s.objects {
		if part.patterns != nil {
			return part.patterns.errorf("keyword patternProperties is not enforced beside other names")
		}
		closed = closed || part.additional != nil && part.additional.text == "false"
	}
	switch {
	case len(s.names) > 0:
		return s.names[0].errorf("keyword propertyNames is not enforced beside other names")
	case s.minMembers > max(len(s.required), 1):
		return s.at.at("minProperties").errorf("keyword minProperties is not enforced where it does not follow from required")
	case s.maxMembers != unbounded && (!closed || s.maxMembers < names):
		return s.at.at("maxProperties").errorf("keyword maxProperties is not enforced where it does not follow from properties")
	}
	return nil
}

// emitMap admits members of any names, or of those that propertyNames or one pattern admit. Names may be
// written twice, which counts once, so that a number of members is not enforced from below.
func (c *schemaCompiler) emitMap(s *shape) (*expr, error) {
	if s.minMembers > 1 {
		return nil, s.at.at("minProperties").errorf("keyword minProperties is not enforced above 1, since names may repeat")
	}
	name := ref(jsonString)
	var err error
	if len(s.names) > 0 {
		text := &value{kind: objectType, keys: []string{"type"}, fields: map[string]*value{"type": {kind: stringType, text: "string"}}}
		if name, err = c.compile(append(slices.Clip(s.names), located{text, "string"})...); err != nil {
			return nil, err
		}
	}
	var others []located
	for _, part := range s.objects {
		if part.additional != nil {
			others = append(others, *part.additional)
		}
		if at := part.patterns; at != nil {
			if len(at.keys) != 1 || len(s.objects) > 1 || len(s.names) > 0 || part.additional == nil || part.additional.text != "false" {
				return nil, at.errorf("keyword patternProperties is enforced for one pattern, with additionalProperties: false and no other names alone")
			}
			pattern := newShape()
			pattern.patterns = []located{{&value{kind: stringType, text: at.keys[0]}, at.path}}
			if name, err = c.emitString(pattern); err != nil {
				return nil, err
			}
			others = []located{at.at(at.keys[0])}
		}
	}
	x, err := c.compile(others...)
	if err != nil {
		return nil, err
	}
	return objectOf(seq(name, jsonColon, x), s.minMembers, s.maxMembers), nil
}

// rule names an expression that is used more than once.
func (c *schemaCompiler) rule(name string, x *expr) *expr {
	return ref(&rule{name: name, body: x, keep: true})
}

// otherThan matches the characters of strings, as asWritten has them, that are not in the list.
func otherThan(list []string) *expr {
	list = slices.Clone(list)
	slices.Sort(list)
	return otherRunes(slices.Compact(list))
}

func otherRunes(sorted []string) *expr {
	if len(sorted) == 0 {
		return ref(jsonPlain)
	}
	mayEnd := true
	after := make(map[rune][]string)
	var heads []rune
	for _, s := range sorted {
		if s == "" {
			mayEnd = false
			continue
		}
		head := []rune(s)[0]
		if after[head] == nil {
			heads = append(heads, head)
		}
		after[head] = append(after[head], strings.TrimPrefix(s, string(head)))
	}
	list := []*expr{seq(asWritten(anyBut(heads...)...), ref(jsonPlain))}
	for _, head := range heads {
		list = append(list, seq(asWritten(runeRange{head, head}), otherRunes(after[head])))
	}
	if mayEnd {
		list = append(list, empty)
	}
	return alt(list...)
}
