package toolcall

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// sample is a text that the pieces admit, and the arguments that are in it as JSON or in tags.
func sample(t *testing.T, r *rand.Rand, pieces []Piece) (text string) {
	t.Helper()
	for _, p := range pieces {
		switch {
		case p.Literal != "":
			text += p.Literal
		case p.Schema != nil:
			text += string(encode(t, instance(t, r, p.Schema)))
		case p.Regex != "":
			text += verbatimText(r, regexp.MustCompile(`^(?s:`+p.Regex+`)$`))
		case p.Alternatives != nil:
			text += sample(t, r, p.Alternatives[r.IntN(len(p.Alternatives))])
		case p.Repeat != nil:
			for range r.IntN(3) {
				text += sample(t, r, p.Repeat)
			}
		default:
			t.Error("an empty piece")
		}
	}
	return text
}

var parts = []string{"a", "é", " ", "\n", "\"", "\\", "<", "</", "</param", "</parameterx", "{", "}", "]", ";", "</parameter>", "<tool_call>", "</function>"}

func words(r *rand.Rand) (text string) {
	for range r.IntN(6) {
		text += parts[r.IntN(len(parts))]
	}
	return text
}

func verbatimText(r *rand.Rand, matches *regexp.Regexp) string {
	for {
		if text := words(r); matches.MatchString(text) {
			return text
		}
	}
}

// instance is a value of a schema as the tools of these tests have them.
func instance(t *testing.T, r *rand.Rand, raw json.RawMessage) any {
	t.Helper()
	var s struct {
		Type       string
		AnyOf      []json.RawMessage
		Enum       []any
		Properties map[string]json.RawMessage
		Required   []string
		Ref        string                     `json:"$ref"`
		Defs       map[string]json.RawMessage `json:"$defs"`
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	switch {
	case s.Ref != "":
		definition, ok := s.Defs[strings.TrimPrefix(s.Ref, "#/$defs/")]
		if !ok {
			t.Fatalf("schema %s refers to what it does not have", raw)
		}
		return instance(t, r, definition)
	case s.AnyOf != nil:
		return instance(t, r, s.AnyOf[r.IntN(len(s.AnyOf))])
	case s.Enum != nil:
		return s.Enum[r.IntN(len(s.Enum))]
	}
	switch s.Type {
	case "string":
		return words(r)
	case "integer":
		return r.IntN(1000) - 500
	case "boolean":
		return r.IntN(2) == 0
	case "null":
		return nil
	case "array":
		return []any{words(r), 1.5}
	}
	o := map[string]any{}
	for name, p := range s.Properties {
		var own struct {
			Defs json.RawMessage `json:"$defs"`
		}
		_ = json.Unmarshal(raw, &own)
		if r.IntN(2) == 0 || strings.Contains(strings.Join(s.Required, " "), name) {
			if own.Defs != nil {
				p = (&schema{Defs: own.Defs, Properties: s.Properties}).definition(name)
			}
			o[name] = instance(t, r, p)
		}
	}
	return o
}

// TestForced: what is forced is read as calls of the tools, without content and with arguments of the
// tools' types, one or more.
func TestForced(t *testing.T) {
	for _, name := range Formats.Names() {
		for _, parallel := range []bool{false, true} {
			t.Run(fmt.Sprint(name, "/parallel=", parallel), func(t *testing.T) {
				f := format(t, name)
				r := rand.New(rand.NewPCG(3, 4))
				called, most := map[string]bool{}, 0
				without := false // a parameter that need not be there
				for range 300 {
					text := sample(t, r, f.Forced(tools, parallel))
					got := parse(t, f, text)
					if got.Content != "" || len(got.Calls) == 0 {
						t.Fatalf("%q: %+v", text, got)
					}
					most = max(most, len(got.Calls))
					for _, c := range got.Calls {
						called[c.Name] = true
						without = checkArguments(t, c, text) || without
					}
				}
				if !without || len(called) != len(tools) || (most > 1) != (parallel && !f.forced.single) {
					t.Errorf("%d tools were called, up to %d at once", len(called), most)
				}
				one := f.Forced(tools[2:], false)
				if text := sample(t, r, one); parse(t, f, text).Calls[0].Name != "run" {
					t.Errorf("%q", text)
				}
			})
		}
	}
	if got := format(t, "hermes").Forced(nil, true); got != nil {
		t.Errorf("without tools: %v", got)
	}
}

// checkArguments tells whether parameters are left out that may be.
func checkArguments(t *testing.T, c call, text string) bool {
	t.Helper()
	arguments, ok := decode(t, c.Arguments).(map[string]any)
	if !ok {
		t.Fatalf("%+v of %q", c, text)
	}
	for key, v := range arguments {
		types := map[string]string{"city": "string", "days": "number", "metric": "boolean", "at": "string null", "area": "object", "unit": "string", "code": "string", "env": "object"}
		if !strings.Contains(types[key], kind(v)) {
			t.Fatalf("%s is %v in %q", key, v, text)
		}
	}
	for _, tool := range tools {
		s := parseSchema(tool.Parameters)
		for _, key := range s.Required {
			if _, ok := arguments[key]; !ok && tool.Name == c.Name {
				t.Fatalf("%s is missing in %q", key, text)
			}
		}
	}
	return c.Name == "get_weather" && len(arguments) < 6
}

// TestForcedText: the same text, written out.
func TestForcedText(t *testing.T) {
	tool := []Tool{{Name: "go"}}
	object := json.RawMessage(`{"type": "object"}`)
	for name, want := range map[string][]Piece{
		"hermes":  {{Literal: "<tool_call>\n{\"name\": \"go\", \"arguments\": "}, {Schema: object}, {Literal: "}\n</tool_call>"}},
		"llama":   {{Literal: `{"name": "go", "parameters": `}, {Schema: object}, {Literal: "}"}},
		"granite": {{Literal: `{"name": "go", "arguments": `}, {Schema: object}, {Literal: "}"}},
	} {
		got := format(t, name).Forced(tool, false)
		i := 0
		for got[i].Alternatives == nil {
			i++
		}
		if !reflect.DeepEqual(got[i].Alternatives, [][]Piece{want}) {
			t.Errorf("%s: got %+v, want %+v", name, got[i].Alternatives, want)
		}
	}
}

// TestVerbatim: text without the end tag is matched where it has no "<" within what could be one, and no
// text with the tag.
func TestVerbatim(t *testing.T) {
	matches := regexp.MustCompile(`^(?s:` + verbatim + `)$`)
	r := rand.New(rand.NewPCG(5, 6))
	matched := 0
	for range 20000 {
		text := words(r)
		got := matches.MatchString(text)
		if got {
			matched++
		}
		if plain := !strings.Contains(text, "</"); got && strings.Contains(text, parameterEnd) || !got && plain && !strings.HasSuffix(text, "<") {
			t.Fatalf("%q: matched %v", text, got)
		}
	}
	if matched < 5000 || !matches.MatchString("<b>a</b> </parametera> </paramete>") {
		t.Errorf("%d of 20000 texts match", matched)
	}
}
