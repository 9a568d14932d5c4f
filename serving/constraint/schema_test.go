package constraint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSchema(t *testing.T) {
	for _, c := range slices.Concat(schemaCases, logicCases) {
		t.Run(c.name, func(t *testing.T) {
			g, judge := mustSchema(t, c.schema, false), validator(t, cmp.Or(c.standard, c.schema))
			for _, text := range c.yes {
				if err := valid(judge, []byte(text)); err != nil {
					t.Errorf("%s is no instance: %v", text, err)
				}
				if n, ends := read(g, text); n < len(text) || !ends {
					t.Errorf("%s: read up to %q, ends %v", text, text[:n], ends)
				}
			}
			for _, text := range c.no {
				if admits(g, text) {
					t.Errorf("%s is admitted", text)
				}
			}
			r := rand.New(rand.NewPCG(5, 6))
			v := pieces(r, append(c.yes, c.no...)...)
			if c.instance != nil {
				for range 30 {
					accepted(t, r, g, v, marshal(t, c.instance(r)))
				}
			}
			checkMask(t, r, g, v, 15)
			for range 40 {
				text := sample(t, r, g, v, r.IntN(40))
				if !json.Valid(text) {
					t.Fatalf("%q is no JSON", text)
				}
				var decoded any
				if err := json.Unmarshal(text, &decoded); err != nil {
					t.Fatalf("%q: %v", text, err)
				}
				if err := valid(judge, text); err != nil {
					t.Fatalf("%s is no instance: %v", text, err)
				}
			}
		})
	}
}

// marshal writes a value as a program does, or as it indents.
func marshal(t *testing.T, v any) []byte {
	t.Helper()
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// accepted reads an instance byte by byte, indented, and in random tokens.
func accepted(t *testing.T, r *rand.Rand, g *Grammar, v *Vocabulary, text []byte) {
	t.Helper()
	var indented bytes.Buffer
	if err := json.Indent(&indented, text, "", "  "); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{string(text), indented.String()} {
		if n, ends := read(g, s); n < len(s) || !ends {
			t.Fatalf("%s: read up to %q, ends %v", s, s[:n], ends)
		}
		m := NewMatcher(g, v)
		for rest := s; rest != ""; {
			var fits []int32
			for _, id := range allowedIDs(m, len(v.tokens)) {
				if id != v.end[0] && strings.HasPrefix(rest, string(v.tokens[id])) {
					fits = append(fits, id)
				}
			}
			if len(fits) == 0 {
				t.Fatalf("%s: no token goes on at %q", s, rest)
			}
			id := fits[r.IntN(len(fits))]
			if err := m.Accept(id); err != nil {
				t.Fatal(err)
			}
			rest = rest[len(v.tokens[id]):]
		}
		if err := m.Accept(v.end[0]); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRealTokenizers: answers under the masks of real vocabularies are instances, and instances as
// tokenizers split them are accepted.
func TestRealTokenizers(t *testing.T) {
	for _, name := range []string{"llama3", "qwen", "mistral_v3"} {
		t.Run(name, func(t *testing.T) {
			v, tok := realVocabulary(t, name)
			g, judge := mustSchema(t, benchSchema, true), validator(t, benchSchema)
			r := rand.New(rand.NewPCG(20, 21))
			for range 10 {
				text := sample(t, r, g, v, r.IntN(40))
				if err := valid(judge, text); err != nil {
					t.Fatalf("%s is no instance: %v", text, err)
				}
			}
			for range 20 {
				instance := marshal(t, struct {
					Name string   `json:"name"`
					Age  int      `json:"age"`
					Tags []string `json:"tags"`
				}{randomString(r, 10), r.IntN(151), []string{"red", "green"}})
				ids, err := tok.Encode(string(instance), false)
				if err != nil {
					t.Fatal(err)
				}
				m := NewMatcher(g, v)
				for i, id := range ids {
					if rest, blank := bytes.CutPrefix(v.tokens[id], []byte(" ")); i == 0 && blank { // which a decoder drops
						for _, b := range rest {
							if err := m.feed(b); err != nil {
								t.Fatal(err)
							}
						}
						continue
					}
					if allowed := allowedIDs(m, len(v.tokens)); !slices.Contains(allowed, id) {
						t.Fatalf("%s: token %d, %q, is not allowed", instance, i, v.tokens[id])
					}
					if err := m.Accept(id); err != nil {
						t.Fatal(err)
					}
				}
				if !m.Ended() {
					t.Fatalf("%s has not ended", instance)
				}
			}
		})
	}
}

func TestStrictSchema(t *testing.T) {
	const schema = `{"type": "object", "properties": {"a": {"type": "object"}}}`
	for text, want := range map[string][2]bool{ // not strict, strict
		`{"b":1}`: {true, false}, `{"a":{"b":1}}`: {true, true}, `{"a":{}}`: {true, true},
	} {
		for i, strict := range []bool{false, true} {
			if got := admits(mustSchema(t, schema, strict), text); got != want[i] {
				t.Errorf("%s, strict %v: admitted %v", text, strict, got)
			}
		}
	}
}

// TestRefusedSchemas: what is not enforced is an error that names the keyword and its path.
func TestRefusedSchemas(t *testing.T) {
	deep := strings.Repeat(`{"items":`, 200) + `{}` + strings.Repeat(`}`, 200)
	var doubling strings.Builder
	for i := range 40 {
		fmt.Fprintf(&doubling, `"d%d": {"allOf": [{"$ref": "#/$defs/d%d"}, {"$ref": "#/$defs/d%d"}]}, `, i, i+1, i+1)
	}
	for _, c := range []struct{ name, schema, want string }{
		{"multipleOf", `{"items": {"type": "integer", "multipleOf": 1000}}`, "#/items: multiples of 1000"},
		{"multipleOf of no decimal", `{"type": "number", "multipleOf": 0.25}`, "#: multiples of 1/4"},
		{"multipleOf 0", `{"items": {"multipleOf": 0}}`, "#/items/multipleOf"},
		{"many multiples", `{"type": "integer", "minimum": 0, "maximum": 100000, "multipleOf": 2}`, "more than 4096 multiples"},
		{"uniqueItems", `{"uniqueItems": true}`, "#/uniqueItems"},
		{"minProperties", `{"minProperties": 2}`, "#/minProperties"},
		{"remote reference", `{"$ref": "https://example.org/x"}`, "#/$ref"},
		{"missing reference", `{"$ref": "#/$defs/x"}`, "there is no $defs"},
		{"reference to itself", `{"$ref": "#"}`, "refers to itself"},
		{"references in a circle", `{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}`, "refers to itself"},
		{"alternative of itself", `{"anyOf": [{"$ref": "#"}, {"type": "null"}]}`, "left-recursive"},
		{"allOf of itself", `{"allOf": [{"$ref": "#"}]}`, "refers to itself"},
		{"never ends", `{"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}`, "admits no text"},
		{"no value", `false`, "admits no text"},
		{"contradiction", `{"allOf": [{"type": "string"}, {"type": "null"}]}`, "admits no text"},
		{"word boundary", `{"pattern": "a\\bc"}`, `#/pattern`},
		{"type", `{"type": "int"}`, "#/type"},
		{"no type", `{"type": []}`, "#/type"},
		{"negative length", `{"minLength": -1}`, "#/minLength"},
		{"many digits", `{"maximum": 123456789012345678901234}`, "digits"},
		{"exponent", `{"maximum": 1e1000000000}`, "#/maximum"},
		{"no schema", `{"properties": {"a": 1}}`, "#/properties/a"},
		{"no JSON", `{"a": }`, "invalid character"},
		{"not of multipleOf", `{"properties": {"a": {"not": {"multipleOf": 2}}}}`, "#/properties/a/not/multipleOf: keyword multipleOf is not enforced where"},
		{"not of names", `{"not": {"propertyNames": {"maxLength": 3}}}`, "#/not/propertyNames"},
		{"not of a format that is not exact", `{"not": {"format": "email"}}`, "format \"email\" is not enforced where"},
		{"not of a format that is an annotation", `{"not": {"format": "x"}}`, "#/not/format"},
		{"not of an object", `{"not": {"const": {"a": 1}}}`, "constants that are objects"},
		{"not of itself", `{"not": {"$ref": "#"}}`, "refers to itself"},
		{"oneOf of itself", `{"oneOf": [{"$ref": "#/$defs/c"}, {"$ref": "#"}], "$defs": {"c": {"properties": {"kind": {}, "r": {}}}}}`, "refer to the schema itself"},
		{"not oneOf of itself", `{"not": {"oneOf": [{"type": "object"}, {"$ref": "#"}]}}`, "refer"},
		{"unevaluatedProperties", `{"items": {"unevaluatedProperties": false}}`, "#/items/unevaluatedProperties"},
		{"maxContains", `{"contains": {}, "maxContains": 2}`, "#/maxContains"},
		{"unique strings", `{"items": {"type": "string"}, "uniqueItems": true}`, "#/uniqueItems"},
		{"two other members", `{"not": {"anyOf": [{"additionalProperties": false, "type": "object", "properties": {"a": {}}}, {"type": "object", "additionalProperties": {"type": "null"}}]}, "type": "object"}`, "two other members"},
		{"long strings by a pattern", `{"type": "string", "pattern": "ab.*c", "maxLength": 100000}`, "too large"},
		{"oneOf that multiplies", `{"oneOf": [` + strings.Repeat(`{"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "c": {"type": "integer"}}, "type": "object"},`, 12) + `{"type": "object"}]}`, ""},
		{"two members", `{"type": "null", "type": "null"}`, "twice"},
		{"depth", deep, "deep"},
		{"doubling", `{"$ref": "#/$defs/d0", "$defs": {` + doubling.String() + `"d40": {}}}`, "too large"},
		{"alternatives multiply", `{"allOf": [` + strings.Repeat(`{"anyOf": [{"minLength": 1}, {"minLength": 2}]},`, 30) + `{}]}`, "too large"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Schema(json.RawMessage(c.schema), false)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	if _, err := Schema(json.RawMessage(`{"type": "string", "format": "color"}`), true); err == nil || !strings.Contains(err.Error(), "#/format") {
		t.Errorf("unknown format, strict: %v", err)
	}
}

// TestEveryInterval holds the digits of bounds against comparison, number by number.
func TestEveryInterval(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	number := func() string {
		s := fmt.Sprintf("%.*f", r.IntN(3), (r.Float64()-0.5)*[]float64{4, 30, 300}[r.IntN(3)])
		return strings.Replace(s, "-0.00", "-0.01", 1)
	}
	inside := 0
	for range 60 {
		kind := []string{"integer", "number"}[r.IntN(2)]
		schema := fmt.Sprintf(`{"type": %q`, kind)
		if r.IntN(4) > 0 {
			schema += fmt.Sprintf(`, %q: %s`, []string{"minimum", "exclusiveMinimum"}[r.IntN(2)], number())
		}
		if r.IntN(4) > 0 {
			schema += fmt.Sprintf(`, %q: %s`, []string{"maximum", "exclusiveMaximum"}[r.IntN(2)], number())
		}
		schema += "}"
		judge := validator(t, schema)
		g, err := Schema(json.RawMessage(schema), false)
		for i := -400; i <= 400; i++ {
			for _, text := range []string{fmt.Sprint(i), fmt.Sprintf("%.1f", float64(i)/10), fmt.Sprintf("%.2f", float64(i)/100), fmt.Sprintf("%.3f", float64(i)/100)} {
				if strings.HasPrefix(text, "-0") && strings.Trim(text, "-0.") == "" || kind == "integer" && strings.Contains(text, ".") {
					continue // are not written
				}
				want := valid(judge, []byte(text)) == nil
				if want {
					inside++
				}
				if err != nil && want || err == nil && admits(g, text) != want {
					t.Fatalf("%s in %s: admitted %v, want %v (%v)", text, schema, !want, want, err)
				}
			}
		}
	}
	if inside < 10000 {
		t.Errorf("%d numbers were inside", inside)
	}
}

func FuzzSchema(f *testing.F) {
	for _, c := range slices.Concat(schemaCases, logicCases) {
		f.Add(c.schema)
	}
	f.Fuzz(func(t *testing.T, schema string) {
		begin := time.Now()
		g, err := Schema(json.RawMessage(schema), len(schema)%2 == 0)
		if err != nil {
			return
		}
		r := rand.New(rand.NewPCG(uint64(len(schema)), 9))
		m := NewMatcher(g, byteVocabulary)
		var text []byte
		for range 200 {
			ids := allowedIDs(m, 257)
			if len(ids) == 0 {
				t.Fatalf("nothing may follow %q", text)
			}
			if d := time.Since(begin); d > 5*time.Second {
				t.Fatalf("%d bytes took %v", len(text), d)
			}
			id := ids[r.IntN(len(ids))]
			if err := m.Accept(id); err != nil {
				t.Fatal(err)
			}
			if id == 256 {
				if !json.Valid(text) {
					t.Fatalf("%q is no JSON", text)
				}
				return
			}
			text = append(text, byte(id))
		}
	})
}
