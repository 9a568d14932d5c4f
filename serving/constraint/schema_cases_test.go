package constraint

import (
	"math/rand/v2"
	"strings"
)

// schemaCase is a schema with texts that it admits, texts that it does not, and, where instances is set,
// what makes random instances of it.
type schemaCase struct {
	name, schema string
	yes, no      []string
	standard     string // the same without keywords that are not JSON Schema's
	instance     func(r *rand.Rand) any
}

func randomString(r *rand.Rand, n int) string {
	var s strings.Builder
	for range n {
		s.WriteRune([]rune("ab \"\\\n\t/\x01é世🙂<&\u2028")[r.IntN(15)])
	}
	return s.String()
}

func randomValue(r *rand.Rand, depth int) any {
	switch kind := r.IntN(7); {
	case kind == 0 && depth > 0:
		list := make([]any, r.IntN(4))
		for i := range list {
			list[i] = randomValue(r, depth-1)
		}
		return list
	case kind <= 2 && depth > 0:
		return randomMembers(r, func() any { return randomValue(r, depth-1) })
	case kind == 3:
		return randomString(r, r.IntN(6))
	case kind == 4:
		return (r.Float64() - 0.5) * []float64{1, 1e-9, 1e9, 1e30, 1e-200}[r.IntN(5)]
	case kind == 5:
		return r.Int64() - r.Int64()
	}
	return []any{nil, true, false}[r.IntN(3)]
}

func randomMembers(r *rand.Rand, value func() any) map[string]any {
	members := make(map[string]any)
	for range r.IntN(4) {
		members[randomString(r, r.IntN(3))] = value()
	}
	return members
}

var schemaCases = []schemaCase{
	{name: "anything", schema: `{}`,
		yes:      []string{`1`, `"x"`, `[]`, `{"a":{"b":[null,true]}}`, `-0.5e-10`, "{\n    \"a\": 1,\n    \"b\": 2\n}"},
		no:       []string{``, `01`, `[1,]`, `{"a"}`, `"\x"`, "\"\n\"", `"\ud800"`, `+1`, `1.`, `.5`, `nul`, "[\t1]", "[\n                     1]"},
		instance: func(r *rand.Rand) any { return randomValue(r, 3) }},
	{name: "types", schema: `{"type": ["integer", "null", "boolean"]}`,
		yes: []string{`0`, `-7`, `null`, `true`}, no: []string{`1.5`, `"1"`, `-0`, `1e3`, `[]`},
		instance: func(r *rand.Rand) any { return []any{r.Int64(), -r.Int64(), nil, true}[r.IntN(4)] }},
	{name: "members in order", schema: `{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "null"}, "d": {"type": "boolean"}},
			"required": ["b"], "additionalProperties": false}`,
		yes: []string{`{"a":1,"b":"","c":null,"d":true}`, `{"b":""}`, `{"b": "", "d": true}`, "{\n  \"a\": 1,\n  \"b\": \"x\"\n}"},
		no:  []string{`{}`, `{"a":1}`, `{"b":"","a":1}`, `{"b":"","e":1}`, `{"b":"",}`, `{,"b":""}`, `{"b":""`, `{"b":"","b":""}`},
		instance: func(r *rand.Rand) any {
			v := struct {
				A *int   `json:"a,omitempty"`
				B string `json:"b"`
				D bool   `json:"d,omitempty"`
			}{B: randomString(r, 4), D: r.IntN(2) == 0}
			if r.IntN(2) == 0 {
				v.A = new(int)
			}
			return v
		}},
	{name: "all optional", schema: `{"properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}}, "additionalProperties": false}`,
		yes: []string{`{}`, `{"a":1}`, `{"c":3}`, `{"a":1,"c":3}`, `{"b":2,"c":3}`, `{"a":1,"b":2,"c":3}`}, no: []string{`{"c":3,"a":1}`, `{"a":2}`, `[]`, `{"a":1,}`}},
	{name: "other members", schema: `{"type": "object", "properties": {"ab": {"type": "integer"}, "a": {"type": "integer"}}, "required": ["ab"], "additionalProperties": {"type": "string"}}`,
		yes: []string{`{"ab":1}`, `{"ab":1,"a":2,"abc":"x"}`, `{"ab":1,"b":"x","":"y"}`, `{"ab":1,"aa":"é"}`},
		no:  []string{`{"ab":1,"c":2}`, `{"c":"x","ab":1}`, `{"ab":1,"ab":"x"}`, `{"ab":1,"a":"x"}`, `{"ab":1,"\u0061":"x"}`}},
	{name: "no members", schema: `{"type": "object", "additionalProperties": false}`, yes: []string{`{}`}, no: []string{`{"a":1}`, `{"":{}}`}},
	{name: "map", schema: `{"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}}`,
		yes: []string{`{}`, `{"x":1,"y\"":2}`}, no: []string{`{"x":0}`, `{"x":"1"}`},
		instance: func(r *rand.Rand) any { return randomMembers(r, func() any { return 1 + r.IntN(1000) }) }},
	{name: "required and not declared", schema: `{"type": "object", "required": ["x"], "properties": {"y": {"type": "null"}}}`,
		yes: []string{`{"x":[]}`, `{"y":null,"x":1}`, `{"x":1,"z":2}`}, no: []string{`{}`, `{"y":null}`}},
	{name: "constants", schema: `{"enum": ["a", "ab", "é\n", 1, 1.5, null, {"k": [1, {}]}, []]}`,
		yes: []string{`"a"`, `"ab"`, `"é\n"`, `1`, `1.5`, `null`, `{"k":[1,{}]}`, `{"k": [1, {}]}`, `[]`}, no: []string{`"abc"`, `"b"`, `2`, `{"k":[]}`, `{}`},
		instance: func(r *rand.Rand) any {
			return []any{"a", "ab", "é\n", 1, 1.5, nil, map[string]any{"k": []any{1, struct{}{}}}}[r.IntN(7)]
		}},
	{name: "names by a pattern", schema: `{"type": "object", "propertyNames": {"pattern": "^[a-z]+$", "maxLength": 3}, "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 2}`,
		yes: []string{`{"a":1}`, `{"abc":1,"b":2}`}, no: []string{`{}`, `{"A":1}`, `{"abcd":1}`, `{"a":1,"b":2,"c":3}`, `{"a":"x"}`}},
	{name: "names of a list", schema: `{"type": "object", "propertyNames": {"$ref": "#/$defs/color"}, "additionalProperties": {"type": "integer"}, "$defs": {"color": {"enum": ["red", "blue"]}}}`,
		yes: []string{`{}`, `{"blue":1,"red":2}`}, no: []string{`{"green":1}`}},
	{name: "members by a pattern", schema: `{"type": "object", "patternProperties": {"^x-": {"type": "integer"}}, "additionalProperties": false}`,
		yes: []string{`{}`, `{"x-a":1}`}, no: []string{`{"y":1}`, `{"x-a":"b"}`}},
	{name: "numbers of members that follow", schema: `{"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"], "additionalProperties": false, "minProperties": 1, "maxProperties": 2}`,
		yes: []string{`{"a":1}`, `{"a":1,"b":2}`}, no: []string{`{}`}},
	{name: "at least one member", schema: `{"properties": {"a": {"const": 1}, "b": {"const": 2}}, "additionalProperties": false, "minProperties": 1}`,
		yes: []string{`{"a":1}`, `{"b":2}`, `{"a":1,"b":2}`}, no: []string{`{}`}},
	{name: "constants of a type", schema: `{"type": "string", "enum": ["a", 1, null]}`, yes: []string{`"a"`}, no: []string{`1`, `null`}},
	{name: "constants beside others", schema: `{"enum": ["a", "abc", 1, 5, null, "x"], "minLength": 2, "maximum": 3}`, yes: []string{`"abc"`, `1`, `null`}, no: []string{`"a"`, `5`}},
	{name: "nullable", standard: `{"type": ["string", "null"], "maxLength": 2}`, schema: `{"type": "string", "nullable": true, "maxLength": 2}`, yes: []string{`null`, `"ab"`}, no: []string{`"abc"`, `1`}},
	{name: "items", schema: `{"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 4}`,
		yes: []string{`[1,2]`, `[1, 2, 3, 4]`, "[\n  1,\n  2\n]"}, no: []string{`[]`, `[1]`, `[1,2,3,4,5]`, `[1,"2"]`},
		instance: func(r *rand.Rand) any { return []int{-1, 2, 3, 4}[:2+r.IntN(3)] }},
	{name: "many items", schema: `{"type": "array", "items": {"type": "object", "properties": {"s": {"type": "string", "maxLength": 300}}}, "minItems": 20, "maxItems": 30}`,
		no: []string{`[]`, `[{}]`}, instance: func(r *rand.Rand) any {
			list := make([]map[string]string, 20+r.IntN(11))
			for i := range list {
				list[i] = map[string]string{"s": randomString(r, r.IntN(20))}
			}
			return list
		}},
	{name: "no items", schema: `{"type": "array", "maxItems": 0}`, yes: []string{`[]`}, no: []string{`[1]`}},
	{name: "prefix", schema: `{"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {"type": "null"}, "minItems": 1, "maxItems": 4}`,
		yes: []string{`[1]`, `[1,"a"]`, `[1,"a",null]`, `[1, "a", null, null]`}, no: []string{`[]`, `["a"]`, `[1,2]`, `[1,"a",1]`, `[1,"a",null,null,null]`}},
	{name: "full prefix", schema: `{"type": "array", "prefixItems": [{"const": 1}, {"const": 2}, {"const": 3}], "minItems": 2}`,
		yes: []string{`[1,2]`, `[1,2,3]`, `[1,2,3,"x"]`}, no: []string{`[]`, `[1]`, `[1,3]`}},
	{name: "tuple", schema: `{"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": false}`,
		yes: []string{`[]`, `[1]`, `[1,"a"]`}, no: []string{`[1,"a",null]`}},
	{name: "cut prefix", schema: `{"type": "array", "prefixItems": [{"const": 1}, {"const": 2}, {"const": 3}], "maxItems": 2}`,
		yes: []string{`[]`, `[1]`, `[1,2]`}, no: []string{`[1,2,3]`, `[2]`}},
	{name: "anyOf", schema: `{"type": "object", "properties": {"k": {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^x"}]}}, "required": ["k"], "additionalProperties": false}`,
		yes: []string{`{"k":1}`, `{"k":"xy"}`}, no: []string{`{"k":"y"}`, `{}`}},
	{name: "anyOf beside others", schema: `{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "additionalProperties": false, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}`,
		yes: []string{`{"a":1}`, `{"b":1}`, `{"a":1,"b":2}`}, no: []string{`{}`}},
	{name: "oneOf by type", schema: `{"oneOf": [{"type": "integer"}, {"type": "string"}, {"type": "array"}]}`, yes: []string{`1`, `"a"`, `[]`}, no: []string{`1.5`, `{}`}},
	{name: "oneOf by a constant", schema: `{"oneOf": [{"$ref": "#/$defs/c"}, {"$ref": "#/$defs/s"}], "discriminator": {"propertyName": "kind"}, "$defs": {
			"c": {"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}}, "required": ["kind", "r"], "additionalProperties": false},
			"s": {"type": "object", "properties": {"kind": {"enum": ["square", "box"]}, "a": {"type": "number"}}, "required": ["kind", "a"], "additionalProperties": false}}}`,
		yes: []string{`{"kind":"circle","r":1.5}`, `{"kind":"box","a":2}`}, no: []string{`{"kind":"circle","a":2}`, `{"kind":"x","r":1}`}},
	{name: "allOf", schema: `{"allOf": [{"$ref": "#/definitions/base"}, {"properties": {"b": {"type": "string"}}, "required": ["b"]}], "properties": {"a": {"minimum": 3}}, "definitions": {
			"base": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}`,
		yes: []string{`{"a":3,"b":"x"}`, `{"a":3,"b":"x","c":1}`}, no: []string{`{"a":2,"b":"x"}`, `{"a":3}`, `{"b":"x"}`}},
	{name: "allOf closed by one", schema: `{"allOf": [{"properties": {"a": {"type": "integer"}}, "additionalProperties": false}, {"properties": {"b": {"type": "string"}, "a": {}}}], "type": "object"}`,
		yes: []string{`{}`, `{"a":1}`}, no: []string{`{"b":"x"}`, `{"a":1,"b":"x"}`}},
	{name: "allOf of one", schema: `{"properties": {"x": {"allOf": [{"$ref": "#/$defs/n"}], "description": "d", "default": 1}}, "required": ["x"], "$defs": {"n": {"type": "integer", "maximum": 5}}}`,
		yes: []string{`{"x":5}`}, no: []string{`{"x":6}`}},
	{name: "recursive", schema: `{"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}, "required": ["value", "children"], "additionalProperties": false}}}`,
		yes: []string{`{"value":1,"children":[{"value":2,"children":[]},{"value":3,"children":[{"value":4,"children":[]}]}]}`}, no: []string{`{"value":1}`, `{"value":1,"children":[1]}`}},
	{name: "recursive list", schema: `{"type": ["object", "null"], "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["next"]}`,
		yes: []string{`null`, `{"next":null}`, `{"next":{"next":{"next":null}}}`}, no: []string{`{}`, `{"next":1}`}},
	{name: "length", schema: `{"type": "string", "minLength": 2, "maxLength": 3}`,
		yes: []string{`"ab"`, `"é世🙂"`, `"\u00e9\ud83d\ude00"`, `"\"\\\n"`}, no: []string{`"a"`, `""`, `"abcd"`, `"\ud83d\ude00"`},
		instance: func(r *rand.Rand) any { return randomString(r, 2+r.IntN(2)) }},
	{name: "long", schema: `{"type": "string", "minLength": 40, "maxLength": 300}`, no: []string{`"a"`},
		instance: func(r *rand.Rand) any { return randomString(r, 40+r.IntN(261)) }},
	{name: "pattern", schema: `{"type": "string", "pattern": "^[A-Z]{2}-\\d+(\\.x)?$"}`, yes: []string{`"AB-1"`, `"AB-123.x"`}, no: []string{`"AB-"`, `"xAB-1"`, `"AB-1.xx"`}},
	{name: "pattern anywhere", schema: `{"type": "string", "pattern": "b+\"|^é|z$"}`, yes: []string{`"ab\"c"`, `"éa"`, `"az"`}, no: []string{`"ab"`, `"aé"`, `"za"`}},
	{name: "pattern with lengths", schema: `{"type": "string", "pattern": "^[a-z\\n]+$", "minLength": 2, "maxLength": 70}`, yes: []string{`"ab"`, `"a\nb"`}, no: []string{`"a"`, `"AB"`}},
	{name: "pattern within lengths", schema: `{"type": "string", "pattern": "^(a|bc)$", "maxLength": 2}`, yes: []string{`"a"`, `"bc"`}, no: []string{`"b"`}},
	{name: "integers", schema: `{"type": "integer", "minimum": -12, "exclusiveMaximum": 305}`, instance: func(r *rand.Rand) any { return -12 + r.IntN(317) },
		no: []string{`-13`, `305`, `1000`, `-0`, `00`, `007`, `1.0`}},
	{name: "open and closed bounds", schema: `{"type": "integer", "minimum": 3, "exclusiveMinimum": 3, "exclusiveMaximum": 5, "maximum": 5}`, yes: []string{`4`}, no: []string{`3`, `5`}},
	{name: "numbers", schema: `{"type": "number", "exclusiveMinimum": -0.25, "maximum": 10.75}`, instance: func(r *rand.Rand) any { return float64(r.IntN(1099))/100 - 0.24 },
		yes: []string{`0`, `0.0`, `10.75`, `10.750`, `-0.249`, `1.50`, `9`}, no: []string{`-0.25`, `-0.250`, `-0`, `10.751`, `11`, `1e1`, `-1`}},
	{name: "multiples between bounds", schema: `{"type": "integer", "minimum": -10, "maximum": 100, "multipleOf": 5}`, yes: []string{`-10`, `-5`, `0`, `5`, `100`}, no: []string{`1`, `-15`, `105`, `-0`}},
	{name: "multiples", schema: `{"type": "number", "multipleOf": 7}`, yes: []string{`0`, `7`, `-14`, `700`, `7000000007`}, no: []string{`1`, `7.0`, `-0`, `07`, `71`},
		instance: func(r *rand.Rand) any { return 7 * (r.Int64N(1<<40) - 1<<39) }},
	{name: "cents", schema: `{"type": "number", "minimum": 0.005, "maximum": 20, "multipleOf": 0.01}`, yes: []string{`0.01`, `1`, `19.99`, `2.5`, `20.00`}, no: []string{`0`, `0.00`, `0.001`, `1.001`, `20.01`}},
	{name: "integers of halves", schema: `{"type": "integer", "minimum": 0, "maximum": 9, "multipleOf": 1.5}`, yes: []string{`0`, `3`, `9`}, no: []string{`1`, `4`}},
	{name: "positive", schema: `{"type": "number", "exclusiveMinimum": 0}`, yes: []string{`0.001`, `5`, `100000.5`}, no: []string{`0`, `0.0`, `-1`}},
	{name: "negative", schema: `{"type": "number", "maximum": -1.5}`, yes: []string{`-1.5`, `-1.51`, `-20`}, no: []string{`-1.49`, `1`, `-1`}},
	{name: "date", schema: `{"type": "string", "format": "date"}`, yes: []string{`"2024-02-29"`, `"2023-12-31"`}, no: []string{`"2023-02-29"`, `"1900-02-29"`, `"2024-13-01"`, `"24-01-01"`, `"2024-04-31"`}},
	{name: "date-time", schema: `{"type": "string", "format": "date-time"}`, yes: []string{`"2024-02-29T23:59:59Z"`, `"2024-01-01T00:00:00.123+05:30"`}, no: []string{`"2024-01-01"`, `"2024-01-01T24:00:00Z"`}},
	{name: "time", schema: `{"type": "string", "format": "time"}`, yes: []string{`"23:59:59Z"`}, no: []string{`"23:59"`}},
	{name: "uuid", schema: `{"type": "string", "format": "uuid"}`, yes: []string{`"123e4567-e89b-12d3-a456-426614174000"`}, no: []string{`"123e4567"`}},
	{name: "ipv4", schema: `{"type": "string", "format": "ipv4"}`, yes: []string{`"192.168.0.255"`}, no: []string{`"256.1.1.1"`, `"01.1.1.1"`}},
	{name: "ipv6", schema: `{"type": "string", "format": "ipv6"}`, yes: []string{`"::"`, `"::1"`, `"fe80::1:2"`, `"1:2:3:4:5:6:7:8"`, `"1:2:3:4:5:6:7::"`, `"1::8"`, `"1:2:3:4:5:6::8"`},
		no: []string{`"1:2:3:4:5:6:7"`, `"1::2::3"`, `"1:2:3:4:5:6:7:8:9"`, `"12345::"`, `":1"`, `""`}},
	{name: "duration", schema: `{"type": "string", "format": "duration"}`, yes: []string{`"P3D"`, `"P1Y2M3DT4H5M6S"`, `"PT5M"`, `"P2W"`, `"P1MT1S"`}, no: []string{`"P"`, `"PT"`, `"P1Y2D"`, `"P1W2D"`, `"1D"`}},
	{name: "pydantic's HttpUrl", schema: `{"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083}`, yes: []string{`"https://example.org/"`}, no: []string{`""`}},
	{name: "uri", schema: `{"type": "string", "format": "uri"}`, yes: []string{`"https://example.org:8080/a/b%20c?x=1&y#z"`, `"ftp://x"`}, no: []string{`"example"`, `"http://"`, `"http://a b"`, `"/a"`}},
	{name: "hostname", schema: `{"type": "string", "format": "hostname"}`, yes: []string{`"a-b.example.org"`}, no: []string{`"-a"`, `"a..b"`, `""`}},
	{name: "email", schema: `{"type": "string", "format": "email"}`, yes: []string{`"a.b+c@example.org"`}, no: []string{`"a@"`, `"@b"`, `"a b@c.d"`}},
	{name: "a format that is an annotation", schema: `{"type": "string", "format": "x-color"}`, yes: []string{`"red"`}, no: []string{`1`}},
	{name: "keywords of other types", schema: `{"type": "integer", "minLength": 3, "format": "date"}`, yes: []string{`1`}, no: []string{`"abc"`}},
	{name: "names with escapes", schema: `{"type": "object", "properties": {"a\"b\n/é~": {"const": "\u0001"}}, "required": ["a\"b\n/é~"], "additionalProperties": false}`,
		yes: []string{`{"a\"b\n/é~":"\u0001"}`}, no: []string{`{}`}},
	{name: "a member that cannot be", schema: `{"type": "object", "properties": {"a": false, "b": {"type": "integer"}}, "additionalProperties": false}`,
		yes: []string{`{}`, `{"b":1}`}, no: []string{`{"a":1}`}},
}
