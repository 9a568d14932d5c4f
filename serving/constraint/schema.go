package constraint

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Schema admits JSON texts that are valid against a JSON Schema; doc.go says which keywords
// are enforced, and how the texts are written. A keyword that is not enforced is an error that names
// it with its path. strict closes objects that have properties and do not say
// additionalProperties, and makes an unknown format an error, which is an annotation otherwise.
func Schema(schema json.RawMessage, strict bool) (*Grammar, error) {
	root, err := parseValue(schema)
	if err != nil {
		return nil, fmt.Errorf("JSON schema: %w", err)
	}
	c := schemaCompiler{root: located{root, "#"}, strict: strict, rules: make(map[string]*rule)}
	x, err := c.compile(c.root)
	if err != nil {
		return nil, fmt.Errorf("JSON schema: %w", err)
	}
	return parsed(x.rule, "JSON schema")
}

// schemaCompiler makes rules of schemas.
type schemaCompiler struct {
	root   located
	strict bool
	rules  map[string]*rule // by the paths of the schemas that hold together
	shapes int              // that were emitted
	read   int              // schemas that were collected
}

// Bounds of the work on a schema, whose references and alternatives multiply.
const (
	maxShapes = 1 << 13
	maxRead   = 1 << 16
)

// compile returns a reference to the rule of values that all of the schemas admit, any without
// a schema. It is there before its body, so that schemas may be recursive.
func (c *schemaCompiler) compile(list ...located) (*expr, error) {
	if len(list) == 0 {
		return ref(jsonValue), nil
	}
	paths := make([]string, len(list))
	for i := range list {
		for hops := 0; list[i].onlyRef(); hops++ {
			var err error
			if list[i], err = c.resolve(list[i].at("$ref")); err != nil {
				return nil, err
			}
			if hops > maxSchemaDepth {
				return nil, list[i].errorf("$ref refers to itself")
			}
		}
		paths[i] = list[i].path
	}
	key := strings.Join(paths, " and ")
	if r := c.rules[key]; r != nil {
		return ref(r), nil
	}
	r := &rule{name: key}
	c.rules[key] = r
	s := newShape()
	for _, l := range list {
		if err := c.collect(s, l, 0); err != nil {
			return nil, err
		}
	}
	var err error
	r.body, err = c.emit(s)
	return ref(r), err
}

// onlyRef tells whether a schema is a reference without anything that constrains more.
func (l located) onlyRef() bool {
	if l.kind != objectType || l.fields["$ref"] == nil {
		return false
	}
	return !slices.ContainsFunc(l.keys, func(key string) bool { return key != "$ref" && !annotations[key] })
}

// resolve follows a reference within the schema.
func (c *schemaCompiler) resolve(at located) (located, error) {
	if at.kind != stringType {
		return located{}, at.errorf("want a string")
	}
	parts := strings.Split(at.text, "/")
	if parts[0] != "#" {
		return located{}, at.errorf("$ref %q is not enforced, only references into the same schema are (#/…)", at.text)
	}
	l := c.root
	for _, part := range parts[1:] {
		key := unescapePointer.Replace(part)
		var index int
		switch _, err := fmt.Sscan(key, &index); {
		case l.fields[key] != nil:
			l = l.at(key)
		case err == nil && index >= 0 && index < len(l.items):
			l = l.element(index)
		default:
			return located{}, at.errorf("$ref %q: there is no %s in %s", at.text, key, l.path)
		}
	}
	return l, nil
}

// emit returns what a shape admits.
func (c *schemaCompiler) emit(s *shape) (*expr, error) {
	if c.shapes++; c.shapes > maxShapes {
		return nil, fmt.Errorf("%w: more than %d schemas and combinations of alternatives", errTooLarge, maxShapes)
	}
	if len(s.choices) > 0 {
		return c.emitChoice(s)
	}
	types := s.types
	if s.enum == nil && !s.typed && s.implied != 0 {
		types &= s.implied
	}
	if s.enum != nil {
		return c.emitEnum(s)
	}
	var list []*expr
	add := func(of typeSet, make func() (*expr, error)) error {
		if types&of == 0 {
			return nil
		}
		x, err := make()
		list = append(list, orNever(x))
		return err
	}
	err := errors.Join(
		add(objectType, func() (*expr, error) { return c.emitObject(s) }),
		add(arrayType, func() (*expr, error) { return c.emitArray(s) }),
		add(stringType, func() (*expr, error) { return c.emitString(s) }),
		add(numberType, func() (*expr, error) { return s.emitNumber(types) }),
		add(booleanType, func() (*expr, error) { return words([]string{"true", "false"}), nil }),
		add(nullType, func() (*expr, error) { return lit("null"), nil }),
	)
	return alt(list...), err
}

// emitChoice is one alternative of the first anyOf or oneOf with the rest of the shape.
func (c *schemaCompiler) emitChoice(s *shape) (*expr, error) {
	rest := s.clone()
	group := rest.choices[0]
	rest.choices = rest.choices[1:]
	if group.exclusive {
		if err := c.checkDisjoint(group.list); err != nil {
			return nil, err
		}
	}
	var list []*expr
	for _, l := range group.list {
		var x *expr
		var err error
		if rest.bare() {
			x, err = c.compile(l)
		} else {
			one := rest.clone()
			if err = c.collect(one, l, 0); err == nil {
				x, err = c.emit(one)
			}
		}
		if err != nil {
			return nil, err
		}
		list = append(list, x)
	}
	return alt(list...), nil
}

// checkDisjoint is an error unless no value is valid against two of the schemas, as far as
// their types, constants and required constant members say.
func (c *schemaCompiler) checkDisjoint(list []located) error {
	shapes := make([]*shape, len(list))
	for i, l := range list {
		shapes[i] = newShape()
		if err := c.collect(shapes[i], l, 0); err != nil {
			return err
		}
		for j := range i {
			if !c.disjoint(shapes[i], shapes[j], 0) {
				return l.errorf("oneOf is enforced only where no value fits two of its schemas, told by type, const, enum or a required member that has one: this one and %s may both fit", list[j].path)
			}
		}
	}
	return nil
}

func (c *schemaCompiler) disjoint(a, b *shape, depth int) bool {
	types := a.types & b.types
	if types == 0 {
		return true
	}
	if a.enum != nil && b.enum != nil && len(common(a.enum, b.enum)) == 0 {
		return true
	}
	if types != objectType || depth > 0 {
		return false
	}
	for _, name := range slices.Concat(a.required, b.required) {
		x, y := newShape(), newShape()
		if c.collectMember(x, a, name) == nil && c.collectMember(y, b, name) == nil && c.disjoint(x, y, depth+1) {
			return true
		}
	}
	return false
}

// collectMember adds what the shape's own properties say of a member.
func (c *schemaCompiler) collectMember(to, s *shape, name string) error {
	for _, part := range s.objects {
		if l, ok := part.properties[name]; ok {
			if err := c.collect(to, l, 0); err != nil {
				return err
			}
		}
	}
	return nil
}
