package constraint

import (
	"math/big"
	"slices"
	"strconv"
)

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

// readTypes reads type, and nullable beside it.
func readTypes(l, at located) (types typeSet, err error) {
	names := at.items
	if at.kind == stringType {
		names = []*value{at.value}
	}
	for _, v := range names {
		t := typeNames[v.text]
		if v.kind != stringType || t == 0 {
			return 0, at.errorf("unknown type %s", strconv.Quote(v.text))
		}
		types |= t
	}
	if types == 0 {
		return 0, at.errorf("want a type or a list of them")
	}
	if v := l.fields["nullable"]; v != nil && v.kind == booleanType && v.text == "true" {
		types |= nullType
	}
	return types, nil
}

func collectType(_ *schemaCompiler, s *shape, l, at located, _ int) error {
	types, err := readTypes(l, at)
	s.limit(types)
	return err
}

func readNames(at located) ([]string, error) {
	if at.kind != arrayType || slices.ContainsFunc(at.items, func(v *value) bool { return v.kind != stringType }) {
		return nil, at.errorf("want a list of names")
	}
	var names []string
	for _, v := range at.items {
		names = append(names, v.text)
	}
	return names, nil
}

func collectRequired(_ *schemaCompiler, s *shape, _, at located, _ int) error {
	names, err := readNames(at)
	for _, name := range names {
		if !slices.Contains(s.required, name) {
			s.required = append(s.required, name)
		}
	}
	s.implied |= objectType
	return err
}

func collectNames(_ *schemaCompiler, s *shape, _, at located, _ int) error {
	s.implied |= objectType
	s.names = append(s.names, at)
	return nil
}

func collectUnique(_ *schemaCompiler, s *shape, _, at located, _ int) error {
	if at.text == "true" {
		s.implied |= arrayType
		s.unique = &at
	}
	return nil
}

// sub returns a member that is a schema, nil where there is none.
func (l located) sub(key string, kinds typeSet, want string) (*located, error) {
	if l.fields[key] == nil {
		return nil, nil
	}
	at := l.memberAt(key)
	if at.kind&kinds == 0 {
		return nil, at.errorf("want %s", want)
	}
	return &at, nil
}

const wantSchema, wantSchemas = "a schema, which is an object or a boolean", "an object of schemas"

// firstOf tells whether a keyword is the first of those that are collected together.
func (l located) firstOf(at located, keys ...string) bool {
	i := slices.IndexFunc(l.keys, func(key string) bool { return slices.Contains(keys, key) })
	return l.only != "" || at.path == l.memberAt(l.keys[i]).path
}

func readObject(l located) (part objectPart, err error) {
	part.properties = make(map[string]located)
	at, err := l.sub("properties", objectType, wantSchemas)
	if err != nil {
		return part, err
	}
	if at != nil {
		part.names = at.keys
		for _, name := range at.keys {
			part.properties[name] = at.memberAt(name)
		}
	}
	if at, err = l.sub("patternProperties", objectType, wantSchemas); err != nil {
		return part, err
	}
	if at != nil {
		for _, text := range at.keys {
			part.patterns = append(part.patterns, at.memberAt(text))
			part.texts = append(part.texts, at.child(textValue(text), at.path))
		}
	}
	part.additional, err = l.sub("additionalProperties", objectType|booleanType, wantSchema)
	return part, err
}

func collectObject(_ *schemaCompiler, s *shape, l, at located, _ int) error {
	s.implied |= objectType
	if !l.firstOf(at, "properties", "patternProperties", "additionalProperties") {
		return nil
	}
	part, err := readObject(l)
	s.objects = append(s.objects, part)
	return err
}

// readArray reads items and prefixItems, and the list of items and additionalItems of older drafts.
func readArray(l located) (part arrayPart, err error) {
	prefix, rest := "prefixItems", "items"
	if v := l.fields["items"]; v != nil && v.kind == arrayType {
		prefix, rest = "items", "additionalItems"
	}
	if l.fields[prefix] != nil && len(l.fields[prefix].items) > 0 {
		if part.prefix, err = l.memberAt(prefix).schemas(); err != nil {
			return part, err
		}
	}
	part.items, err = l.sub(rest, objectType|booleanType, wantSchema)
	return part, err
}

func collectArray(_ *schemaCompiler, s *shape, l, at located, _ int) error {
	if at.path == l.path+"/additionalItems" && (l.fields["items"] == nil || l.fields["items"].kind != arrayType) {
		return nil // has no effect
	}
	s.implied |= arrayType
	if !l.firstOf(at, "items", "prefixItems") {
		return nil
	}
	part, err := readArray(l)
	s.arrays = append(s.arrays, part)
	return err
}

func collectContains(_ *schemaCompiler, s *shape, l, at located, _ int) error {
	s.implied |= arrayType
	if v := l.fields["minContains"]; v != nil {
		n, err := v.rational()
		if err != nil || !n.IsInt() || n.Sign() < 0 || n.Cmp(big.NewRat(maxContained, 1)) > 0 {
			return l.memberAt("minContains").errorf("want a number from 0 to %d", maxContained)
		}
		for range n.Num().Int64() {
			s.contains = append(s.contains, at)
		}
		return nil
	}
	s.contains = append(s.contains, at)
	return nil
}

// maxContained bounds minContains.
const maxContained = 16
