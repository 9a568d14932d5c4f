package yamlconfig

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

type words []string

func (w *words) SetScalar(text string) error {
	if text == "bad" {
		return fmt.Errorf("no such word")
	}
	*w = strings.Split(text, ",")
	return nil
}

type base struct {
	Rows int     `json:"rows"`
	Rate float64 `json:"rate"`
}

type item struct {
	base
	Kind string `json:"kind"`
}

func (i *item) Defaults(value func(string) string) {
	if value("kind") == "wide" {
		i.Rows = 64
	}
}

type config struct {
	Steps  int     `json:"steps"`
	Seed   uint64  `json:"seed"`
	On     bool    `json:"on"`
	Name   string  `json:"name"`
	Ratio  float64 `json:"ratio"`
	Words  words   `json:"words,omitempty"`
	Items  []item  `json:"items,omitempty"`
	Nested *base   `json:"nested,omitempty"`
	Hidden int     `json:"-"`
}

const sample = `# a comment
steps: 7
seed: 18446744073709551615
on: true
name: yes
ratio: 1e-3
words: a,b
items:
  - {kind: wide, rate: 2}
  - kind: other
    rows: 3
nested:
  rows: 5
`

func TestDecode(t *testing.T) {
	c := config{Name: "default", Hidden: 4}
	if err := Decode("c.yaml", []byte(sample), []string{"items.1.rows=9", "nested.rate=0.5", "words=[x, y]"}, &c); err != nil {
		t.Fatal(err)
	}
	want := config{Steps: 7, Seed: 1<<64 - 1, On: true, Name: "yes", Ratio: 1e-3, Words: words{"x", "y"}, Hidden: 4,
		Items: []item{{base{64, 2}, "wide"}, {base{9, 0}, "other"}}, Nested: &base{5, 0.5}}
	if !reflect.DeepEqual(c, want) {
		t.Fatalf("got %+v, want %+v", c, want)
	}
	// What Encode writes, Decode reads; and JSON is YAML.
	text, err := Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	again := config{Hidden: 4}
	if err := Decode("again", text, nil, &again); err != nil || !reflect.DeepEqual(again, want) {
		t.Fatalf("%v: %+v from\n%s", err, again, text)
	}
	again = config{Name: "kept"}
	if err := Decode("c.json", []byte(`{"steps": 3, "items": [{"kind": "x"}], "ratio": 2}`), nil, &again); err != nil || again.Steps != 3 || again.Name != "kept" || again.Ratio != 2 {
		t.Fatalf("%v: %+v", err, again)
	}
	if err := Decode("empty", nil, []string{"steps=2"}, &again); err != nil || again.Steps != 2 {
		t.Fatalf("%v: %+v", err, again)
	}
}

func TestDecodeErrors(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		sets []string
		want string
	}{
		"unknown":        {"steps: 1\nstesp: 2\n", nil, `f.yaml:2: unknown key "stesp", did you mean "steps"? Known keys: items, name,`},
		"unknown nested": {"items:\n  - row: 2\n", nil, `f.yaml:2: items.0: unknown key "row", did you mean "rows"?`},
		"hidden":         {"Hidden: 2", nil, `unknown key "Hidden"`},
		"twice":          {"steps: 1\nsteps: 2\n", nil, `"steps"`},
		"type":           {"\nsteps: many\n", nil, `f.yaml:2: steps: got "many", want a whole number`},
		"fraction":       {"steps: 1.5", nil, `steps: got "1.5", want a whole number`},
		"negative seed":  {"seed: -1", nil, `seed: got "-1", want a whole number of at least 0`},
		"NaN":            {"ratio: .nan", nil, `ratio: got ".nan", want a number`},
		"infinite":       {"ratio: Inf", nil, `ratio: got "Inf", want a number`},
		"quoted number":  {`ratio: "3"`, nil, `want a number`},
		"null":           {"steps:", nil, "steps: got nothing, want a whole number"},
		"list":           {"items: 3", nil, `items: got "3", want a list`},
		"mapping":        {"nested: [1]", nil, "nested: got a list, want a mapping"},
		"top":            {"[1, 2]", nil, "got a list, want a mapping"},
		"scalar":         {"words: bad", nil, "f.yaml:1: words: no such word"},
		"syntax":         {"steps: [1", nil, "f.yaml: line 1"},
		"alias":          {"items: &a [{rows: 1}]\nwords: *a\n", nil, "words: got an alias"},
		"two documents":  {"steps: 1\n---\nsteps: 2\n", nil, "f.yaml:2: a second document, want one"},
		"set unknown":    {"", []string{"stesp=1"}, `--set stesp=1: unknown key "stesp", did you mean "steps"?`},
		"set no value":   {"", []string{"steps"}, "want KEY=VALUE"},
		"set element":    {"items: [{rows: 1}]", []string{"items.1.rows=2"}, `got element "1", want 0 to 0`},
		"set below leaf": {"steps: 1", []string{"steps.x=2"}, "steps is a single value"},
		"set type":       {"", []string{"steps=x"}, `--set steps=x: steps: got "x", want a whole number`},
	} {
		t.Run(name, func(t *testing.T) {
			var got config
			err := Decode("f.yaml", []byte(c.text), c.sets, &got)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want it to say %q", err, c.want)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(sample)
	f.Add(`{"steps": 3}`)
	f.Add("items: [{rows: 1")
	f.Fuzz(func(t *testing.T, text string) {
		var c config
		_ = Decode("f", []byte(text), nil, &c)
	})
}
