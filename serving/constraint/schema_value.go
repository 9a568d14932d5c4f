package constraint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a schema's text.
const (
	maxSchema      = 1 << 20 // bytes
	maxSchemaDepth = 128
)

// A value is a JSON value with its members in the order of its text.
type value struct {
	kind   typeSet
	text   string // of a string its characters, of other scalars their JSON
	items  []*value
	keys   []string
	fields map[string]*value
}

// typeSet is a set of JSON's types. A number is an integer or has a fraction.
type typeSet uint8

const (
	nullType typeSet = 1 << iota
	booleanType
	stringType
	integerType
	fractionType
	arrayType
	objectType

	numberType = integerType | fractionType
	allTypes   = nullType | booleanType | stringType | numberType | arrayType | objectType
)

var typeNames = map[string]typeSet{"null": nullType, "boolean": booleanType, "string": stringType, "integer": integerType,
	"number": numberType, "array": arrayType, "object": objectType}

// located is a schema with the JSON pointer to it.
type located struct {
	*value
	path      string
	base      *resource // that references are relative to
	resources map[*value]*resource

	negated bool   // what the schema does not admit
	only    string // of the schema this keyword alone, with those that it depends on
}

// memberAt returns a member of a schema; JSON pointers escape two characters of its name.
func (l located) memberAt(key string) located {
	return l.child(l.fields[key], l.path+"/"+escapePointer.Replace(key))
}

var (
	escapePointer   = strings.NewReplacer("~", "~0", "/", "~1")
	unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")
)

func (l located) element(i int) located {
	return l.child(l.items[i], l.path+"/"+strconv.Itoa(i))
}

func (l located) child(v *value, path string) located {
	base := l.base
	if r := l.resources[v]; r != nil {
		base = r
	}
	return located{value: v, path: path, base: base, resources: l.resources}
}

// not is what a schema does not admit.
func (l located) not() located {
	l.negated = !l.negated
	return l
}

// part is one keyword of a schema.
func (l located) part(key string) located {
	l.only = key
	return l
}

// key is the same for the same schemas.
func (l located) key() string {
	key := l.path
	if l.only != "" {
		key += "?" + l.only
	}
	if l.negated {
		key = "not " + key
	}
	return key
}

// derived is a schema that is made of parts of l: pairs of a keyword and a value.
func (l located) derived(name string, pairs ...any) located {
	return l.child(schemaOf(pairs...), l.path+"?"+name)
}

// schemaOf makes an object of pairs of a key and a value.
func schemaOf(pairs ...any) *value {
	v := &value{kind: objectType, fields: make(map[string]*value)}
	for i := 0; i < len(pairs); i += 2 {
		key := pairs[i].(string)
		v.keys = append(v.keys, key)
		v.fields[key] = pairs[i+1].(*value)
	}
	return v
}

func listValue(items ...*value) *value { return &value{kind: arrayType, items: items} }
func textValue(s string) *value        { return &value{kind: stringType, text: s} }

var falseValue = &value{kind: booleanType, text: "false"}

func (l located) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: %s", l.path, fmt.Sprintf(format, args...))
}

func parseValue(data []byte) (*value, error) {
	if len(data) > maxSchema {
		return nil, fmt.Errorf("%d bytes, want up to %d", len(data), maxSchema)
	}
	if !json.Valid(data) { // whose error says where
		var v any
		return nil, json.Unmarshal(data, &v)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return readValue(d, 0)
}

func readValue(d *json.Decoder, depth int) (*value, error) {
	if depth > maxSchemaDepth {
		return nil, fmt.Errorf("nested more than %d deep", maxSchemaDepth)
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case nil:
		return &value{kind: nullType, text: "null"}, nil
	case bool:
		return &value{kind: booleanType, text: strconv.FormatBool(t)}, nil
	case string:
		return &value{kind: stringType, text: t}, nil
	case json.Number:
		v := &value{kind: fractionType, text: t.String()}
		if r, err := v.rational(); err == nil && r.IsInt() {
			v.kind = integerType
		}
		return v, nil
	case json.Delim:
		if t == '[' {
			v := &value{kind: arrayType}
			for d.More() {
				item, err := readValue(d, depth+1)
				if err != nil {
					return nil, err
				}
				v.items = append(v.items, item)
			}
			_, err = d.Token()
			return v, err
		}
	}
	v := &value{kind: objectType, fields: make(map[string]*value)}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		name := key.(string)
		if v.fields[name] != nil {
			return nil, fmt.Errorf("member %q is there twice", name)
		}
		if v.fields[name], err = readValue(d, depth+1); err != nil {
			return nil, err
		}
		v.keys = append(v.keys, name)
	}
	_, err = d.Token()
	return v, err
}

// rational returns the number that a value is.
func (v *value) rational() (*big.Rat, error) {
	_, exponent, _ := strings.Cut(strings.ToLower(v.text), "e")
	if v.kind != 0 && v.kind&numberType == 0 || len(v.text) > 100 || len(strings.TrimLeft(exponent, "+-0")) > 2 {
		return nil, fmt.Errorf("%.40s, want a number of up to 100 digits and an exponent of up to two", v.text)
	}
	r, ok := new(big.Rat).SetString(v.text)
	if !ok {
		return nil, fmt.Errorf("%q is no number", v.text)
	}
	return r, nil
}

// canonical is a text that is the same for equal values.
func (v *value) canonical() string {
	switch {
	case v.kind == stringType:
		return jsonText(v.text)
	case v.kind&numberType != 0:
		if r, err := v.rational(); err == nil {
			return r.RatString()
		}
	case v.kind == arrayType:
		parts := make([]string, len(v.items))
		for i, item := range v.items {
			parts[i] = item.canonical()
		}
		return "[" + strings.Join(parts, ",") + "]"
	case v.kind == objectType:
		var parts []string
		for _, key := range slices.Sorted(slices.Values(v.keys)) {
			parts = append(parts, jsonText(key)+":"+v.fields[key].canonical())
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	return v.text
}

// constant matches the value, its members in their order.
func (v *value) constant() *expr {
	switch v.kind {
	case stringType:
		return lit(jsonText(v.text))
	case arrayType, objectType:
		brackets, list := "[]", []*expr{}
		if v.kind == objectType {
			brackets = "{}"
		}
		for _, item := range v.items {
			list = append(list, item.constant())
		}
		for _, key := range v.keys {
			list = append(list, seq(lit(jsonText(key)), jsonColon, v.fields[key].constant()))
		}
		if len(list) == 0 {
			return lit(brackets)
		}
		x := seq(lit(brackets[:1]), ref(jsonSpace), list[0])
		for _, y := range list[1:] {
			x = seq(x, jsonComma, y)
		}
		return seq(x, ref(jsonSpace), lit(brackets[1:]))
	}
	return lit(v.text)
}

// constants matches any of the values.
func constants(list []*value) *expr {
	var texts []string
	var others []*expr
	for _, v := range list {
		switch {
		case v.kind == stringType:
			texts = append(texts, jsonText(v.text))
		case v.kind&(arrayType|objectType) != 0:
			others = append(others, v.constant())
		default:
			texts = append(texts, v.text)
		}
	}
	return alt(append(others, words(texts))...)
}
