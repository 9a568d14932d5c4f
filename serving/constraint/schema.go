package constraint

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Schema admits JSON texts that are valid against a JSON Schema; doc.go says which keywords
// are enforced, and how the texts are written. What a keyword says and is not enforced is an error that names
// it with its path; keywords that no draft has are annotations. strict closes objects that have properties and do not say
// additionalProperties, and makes an unknown format an error, which is an annotation otherwise.
func Schema(schema json.RawMessage, strict bool) (*Grammar, error) {
	root, err := parseValue(schema)
	if err != nil {
		return nil, fmt.Errorf("JSON schema: %w", err)
	}
	c := schemaCompiler{strict: strict, rules: make(map[string]*rule), patterns: make(map[string]*expr), others: make(map[string]*expr), splits: make(map[string][]nameSplit)}
	c.readResources(root)
	x, err := c.compile(c.root)
	if err != nil {
		return nil, fmt.Errorf("JSON schema: %w", err)
	}
	return parsed(x.rule, "JSON schema")
}

// schemaCompiler makes rules of schemas.
type schemaCompiler struct {
	root      located
	resources map[*value]*resource
	byURI     map[string]located // resources and anchors
	draft     int                // 4, 6, 7, 2019 or 2020
	strict    bool
	rules     map[string]*rule // by the paths of the schemas that hold together
	patterns  map[string]*expr // what is in their strings
	others    map[string]*expr // names that are not in a list
	splits    map[string][]nameSplit
	shapes    int // that were emitted
	read      int // schemas that were collected
	nodes     int // about as many as the expressions'
	work      int // of automata
}

// Bounds of the work on a schema, whose references and alternatives multiply.
const (
	maxShapes = 1 << 13
	maxRead   = 1 << 17
)

// compile returns a reference to the rule of values that all of the schemas admit, any without
// a schema. It is there before its body, so that schemas may be recursive.
func (c *schemaCompiler) compile(list ...located) (*expr, error) {
	if len(list) == 0 {
		return ref(jsonValue), nil
	}
	var paths []string
	for i := range list {
		for hops := 0; c.onlyRef(list[i]); hops++ {
			negated := list[i].negated
			var err error
			if list[i], err = c.resolve(list[i].memberAt("$ref")); err != nil {
				return nil, err
			}
			if list[i].negated = negated; hops > maxSchemaDepth {
				return nil, list[i].errorf("$ref refers to itself")
			}
		}
		if key := list[i].key(); !slices.Contains(paths, key) {
			paths = append(paths, key)
		}
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
	body, err := c.emit(s)
	r.body = orNever(body)
	return ref(r), err
}

// onlyRef tells whether a schema is a reference without anything that constrains more.
func (c *schemaCompiler) onlyRef(l located) bool {
	if l.kind != objectType || l.fields["$ref"] == nil || l.only != "" {
		return false
	}
	return c.refAlone() || !slices.ContainsFunc(l.keys, func(key string) bool { return key != "$ref" && constrains(key) })
}

// emit returns what a shape admits.
func (c *schemaCompiler) emit(s *shape) (*expr, error) {
	if c.shapes++; c.shapes > maxShapes {
		return nil, fmt.Errorf("%w: more than %d schemas and combinations of alternatives", errTooLarge, maxShapes)
	}
	if c.nodes > maxNodes {
		return nil, fmt.Errorf("%w: more than %d nodes", errTooLarge, maxNodes)
	}
	if c.impossible(s, 0) {
		return never, nil
	}
	if len(s.choices) > 0 {
		return c.emitChoice(s)
	}
	if s.enum != nil {
		return c.emitEnum(s)
	}
	types := s.shown()
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
		add(numberType, func() (*expr, error) { return c.emitNumber(s, types) }),
		add(booleanType, func() (*expr, error) {
			return words(slices.DeleteFunc([]string{"true", "false"}, func(text string) bool {
				return s.excludes(&value{kind: booleanType, text: text})
			})), nil
		}),
		add(nullType, func() (*expr, error) { return lit("null"), nil }),
	)
	return alt(list...), err
}

// shown is the types that are written: without type those that the other keywords are about.
func (s *shape) shown() typeSet {
	types := s.types
	if s.enum == nil && !s.typed && s.implied != 0 {
		types &= s.implied
	}
	if s.excludes(&value{kind: nullType, text: "null"}) {
		types &^= nullType
	}
	return types
}
