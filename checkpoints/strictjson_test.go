package checkpoints

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestDecodeExact(t *testing.T) {
	type inner struct {
		X int `json:"x"`
	}
	type outer struct {
		A     string         `json:"a"`
		Inner inner          `json:"inner"`
		List  *[]string      `json:"list"`
		Map   map[string]int `json:"map"`
		All   []inner        `json:"all"`
	}
	const good = `{"a":"1","inner":{"x":2},"list":null,"map":{"k":3},"all":[{"x":4},{"x":5}]}`
	var got outer
	if err := decodeExact([]byte(good), &got); err != nil || got.A != "1" || got.Inner.X != 2 || got.List != nil || got.Map["k"] != 3 || len(got.All) != 2 || got.All[1].X != 5 {
		t.Fatalf("got %+v, %v", got, err)
	}
	for name, c := range map[string]struct{ from, to, want string }{
		"not JSON":            {good, `{`, "not valid JSON"},
		"trailing text":       {good, good + "x", "not valid JSON"},
		"not UTF-8":           {"k", "\xff", "not valid UTF-8"},
		"not an object":       {good, `[]`, `got "[]", want an object`},
		"null":                {good, `null`, `got "null", want an object`},
		"missing and unknown": {`"a"`, `"b"`, `missing keys "a"; unknown keys "b"`},
		"other case":          {`"a"`, `"A"`, `missing keys "a"; unknown keys "A"`},
		"nested missing":      {`"x"`, `"y"`, `inner: missing keys "inner.x"; unknown keys "y"`},
		"nested not object":   {`{"x":2}`, `2`, `inner: got "2", want an object`},
		"in a list, unknown":  {`{"x":5}`, `{"x":5,"y":6}`, `all[1]: unknown keys "y"`},
		"in a list, null":     {`{"x":5}`, `null`, `all[1]: got "null", want an object`},
		"no list":             {`[{"x":4},{"x":5}]`, `{"x":4}`, `all: json: cannot unmarshal object`},
		"wrong type":          {`"1"`, `1`, `a: json: cannot unmarshal number`},
		"null field":          {`"1"`, `null`, `a: got null`},
		"duplicate":           {`"a":"1"`, `"a":"1","a":"1"`, `duplicate key "a"`},
		"duplicate, escaped":  {`"a":"1"`, `"a":"1","\u0061":"1"`, `duplicate key "a"`},
		"nested duplicate":    {`"k":3`, `"k":3,"j":[{}],"k":3`, `duplicate key "k" in "/map" at byte`},
		"too deep":            {`"1"`, strings.Repeat("[", 20000) + strings.Repeat("]", 20000), "exceeded max depth"},
	} {
		t.Run(name, func(t *testing.T) {
			var dst outer
			err := decodeExact([]byte(strings.Replace(good, c.from, c.to, 1)), &dst)
			wantErrorIs(t, err, ErrCorrupt, c.want)
		})
	}
}

func TestCheckUniqueKeysAcceptsSiblings(t *testing.T) {
	for _, doc := range []string{
		`1`, `"a"`, `[]`, `{}`, `["a","a"]`, `{"a":"a","b":"a"}`, `{"a":{"a":{"a":[{"a":1},{"a":1}]}},"b":[]}`,
		`{"a":[],"b":[[],{}],"c":"b"}`, `{"a":"A","A":"a"}`, `{"a":"\ud800"}`, `{"":1,"a/b":2,"a~b":3}`,
	} {
		if err := checkUniqueKeys([]byte(doc)); err != nil {
			t.Errorf("%s: %v", doc, err)
		}
	}
}

func TestCompactObject(t *testing.T) {
	for name, c := range map[string]struct{ in, out, want string }{
		"nothing":   {"", "{}", ""},
		"spaces":    {" { \"a\" : [ 1 ] } ", `{"a":[1]}`, ""},
		"array":     {"[]", "", "want a JSON object"},
		"broken":    {"{", "", "not valid JSON"},
		"duplicate": {`{"a":1,"a":1}`, "", `duplicate key "a"`},
		"not UTF-8": {"{\"\xff\":1}", "", "UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := compactObject(json.RawMessage(c.in))
			if c.want != "" {
				wantError(t, err, c.want)
			} else if err != nil || string(out) != c.out {
				t.Fatalf("got %s, %v; want %s", out, err, c.out)
			}
		})
	}
}
