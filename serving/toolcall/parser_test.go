package toolcall

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var tools = []Tool{
	{Name: "get_weather", Parameters: json.RawMessage(`{"type": "object", "properties": {
		"city": {"type": "string"}, "days": {"type": "integer"}, "metric": {"type": "boolean"},
		"at": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "area": {"$ref": "#/$defs/area"}, "unit": {"enum": ["c", "f"]}},
		"required": ["city"], "$defs": {"area": {"type": "object", "properties": {"names": {"type": "array"}}}}}`)},
	{Name: "now", Parameters: json.RawMessage(`{"type": "object", "properties": {}}`)},
	{Name: "run", Parameters: json.RawMessage(`{"type": "object", "properties": {"code": {"type": "string"}, "env": {"type": "object"}}, "required": ["code"]}`)},
}

type call struct{ Name, Arguments string }

type answer struct {
	Content string
	Calls   []call
}

// add applies deltas; a first part has a name and the next index, others belong to the last call.
func (a *answer) add(t testing.TB, deltas []Delta) {
	t.Helper()
	for _, d := range deltas {
		switch c := d.Call; {
		case c == nil && d.Content == "":
			t.Error("a delta without anything")
		case c == nil:
			a.Content += d.Content
		case d.Content != "":
			t.Errorf("a delta of both kinds: %+v", d)
		case c.Name != "" && c.Index == len(a.Calls):
			a.Calls = append(a.Calls, call{c.Name, c.Arguments})
		case c.Name == "" && len(a.Calls) > 0 && c.Index == len(a.Calls)-1:
			a.Calls[c.Index].Arguments += c.Arguments
		default:
			t.Errorf("part %+v after %d calls", *c, len(a.Calls))
		}
	}
}

func parse(t testing.TB, f Format, pieces ...string) (a answer) {
	t.Helper()
	p := f.NewParser(tools)
	for _, text := range pieces {
		a.add(t, p.Push(text))
	}
	a.add(t, p.Close())
	return a
}

func format(t testing.TB, name string) Format {
	t.Helper()
	f, err := Formats.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

var answers = []struct{ format, name, text, want string }{
	{"hermes", "one", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>", `get_weather{"city": "Paris"}`},
	{"hermes", "two after text", "Let me look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n", `Let me look.|get_weather{"city": "Oslo"}|now{}`},
	{"hermes", "thoughts before", "<think>\nI call.\n</think>\n\n<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>", `<think>` + "\nI call.\n" + `</think>|now{}`},
	{"hermes", "text after", "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>\n\nDone. ", "\n\nDone. |now{}"},
	{"hermes", "no end", `<tool_call>{"name": "now", "arguments": {}}`, `now{}`},
	{"hermes", "next without an end", "<tool_call>{\"name\": \"now\", \"arguments\": {}}\n<tool_call>{\"name\": \"now\", \"arguments\": {}}", `now{}|now{}`},
	{"hermes", "braces, escapes and tags in strings", `<tool_call>{"name": "run", "arguments": {"code": "if (a) { b[\"}\"] = '\\\\' } // </tool_call> \u00e9", "env": {"é": [1, {"x": {}}]}}}</tool_call>`, `run{"code": "if (a) { b[\"}\"] = '\\\\' } // </tool_call> \u00e9", "env": {"é": [1, {"x": {}}]}}`},
	{"hermes", "a tool that there is not", `<tool_call>{"name": "fly", "arguments": {"to": "ü"}}</tool_call>`, `fly{"to": "ü"}`},
	{"hermes", "arguments first, id and type", `<tool_call>{"id": 7, "arguments": {"city": "a"}, "type": "function", "name": "get_weather"}</tool_call>`, `get_weather{"city": "a"}`},
	{"hermes", "id last", `<tool_call>{"name": "now", "arguments": {}, "id": "x}"}</tool_call>`, `now{}`},
	{"hermes", "no arguments", `<tool_call>{"name": "now"}</tool_call>`, `now{}`},
	{"hermes", "the name has escapes", `<tool_call>{"name": "n\u006fw", "arguments": {}}</tool_call>`, `now{}`},
	{"hermes", "a list", `<tool_call>[{"name": "now", "arguments": {}}, {"name": "now", "arguments": {"a": 1e5}}]</tool_call>`, `now{}|now{"a": 1e5}`},
	{"hermes", "no JSON", "a <tool_call>now()</tool_call> b", "a <tool_call>now()</tool_call> b"},
	{"hermes", "JSON of another kind", `<tool_call>{"title": "x"}</tool_call>`, `<tool_call>{"title": "x"}</tool_call>`},
	{"hermes", "no call, then one", `<tool_call> <tool_call>{"name": "now", "arguments": {}}</tool_call>`, `<tool_call>|now{}`},
	{"hermes", "arguments in a string", `<tool_call>{"name": "now", "arguments": "{}"}</tool_call>`, `<tool_call>{"name": "now", "arguments": "{}"}</tool_call>`},
	{"hermes", "two names", `<tool_call>{"name": "now", "name": "run", "arguments": {}}`, `<tool_call>{"name": "now", "name": "run", "arguments": {}}`},
	{"hermes", "cut in the head", "Yes. <tool_call>\n{\"name\": \"get_wea", "Yes. <tool_call>\n{\"name\": \"get_wea"},
	{"hermes", "cut in the opener", "a\n<tool_", "a\n<tool_"},
	{"hermes", "cut in the arguments", `<tool_call>{"name": "run", "arguments": {"code": "pri`, `run{"code": "pri`},
	{"hermes", "arguments break", `<tool_call>{"name": "run", "arguments": {"code": oh}}</tool_call>`, `oh}}</tool_call>|run{"code": `},
	{"hermes", "a number breaks", `<tool_call>{"name": "run", "arguments": {"a": 1-2}}`, `}}|run{"a": 1-2`},
	{"hermes", "the rest breaks", `<tool_call>{"name": "now", "arguments": {}, "more": 1}</tool_call>`, `, "more": 1}</tool_call>|now{}`},
	{"hermes", "white space alone", " \n ", " \n "},
	{"hermes", "text alone", "a < b <tool> {\"name\": 1}\n", "a < b <tool> {\"name\": 1}\n"},

	{"llama", "bare", `{"name": "get_weather", "parameters": {"city": "Rome"}}`, `get_weather{"city": "Rome"}`},
	{"llama", "after the tag, several", `<|python_tag|>{"name": "now", "parameters": {}}; {"name": "get_weather", "parameters": {"city": "a;b"}}`, `now{}|get_weather{"city": "a;b"}`},
	{"llama", "typed", "\n{\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}", `now{}`},
	{"llama", "arguments by the other key", `{"name": "now", "arguments": {}}`, `now{}`},
	{"llama", "a tool that there is not", `{"name": "fly", "parameters": {}}`, `{"name": "fly", "parameters": {}}`},
	{"llama", "an answer in JSON", `{"name": "now"}`, `{"name": "now"}`},
	{"llama", "JSON after text", `See {"name": "now", "parameters": {}}`, `See {"name": "now", "parameters": {}}`},
	{"llama", "code", `<|python_tag|>print(1)`, `<|python_tag|>print(1)`},
	{"llama", "no second call", `{"name": "now", "parameters": {}}; bye`, `; bye|now{}`},

	{"mistral", "a list", `[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Nice"}, "id": "VvvODy9mT"}, {"name": "now", "arguments": {}}]`, `get_weather{"city": "Nice"}|now{}`},
	{"mistral", "no space, after text", `One moment.[TOOL_CALLS][{"arguments": {}, "name": "now"}]`, `One moment.|now{}`},
	{"mistral", "an empty list", `[TOOL_CALLS][]`, `[TOOL_CALLS][]`},
	{"mistral", "a list that breaks", `[TOOL_CALLS][{"name": "now", "arguments": {}}, now]`, `, now]|now{}`},
	{"mistral", "brackets in text", `a[1] [TOOL`, `a[1] [TOOL`},
	{"mistral-args", "named", `[TOOL_CALLS]get_weather[ARGS]{"city": "Lyon"}[TOOL_CALLS]now[ARGS]{}`, `get_weather{"city": "Lyon"}|now{}`},
	{"mistral-args", "with an id, and without a mark", `[TOOL_CALLS]now[CALL_ID]ab12cd34e[ARGS]{}[TOOL_CALLS]now{"a": 1}`, `now{}|now{"a": 1}`},
	{"mistral-args", "no arguments", `[TOOL_CALLS]now[ARGS]null`, `[TOOL_CALLS]now[ARGS]null`},
	{"mistral-args", "half of the mark", `[TOOL_CALLS]now[ARG`, `[TOOL_CALLS]now[ARG`},

	{"granite", "the token", `<|tool_call|>[{"name": "now", "arguments": {}}, {"name": "now", "arguments": {"a": "]"}}]`, `now{}|now{"a": "]"}`},
	{"granite", "the tag", "<tool_call>[\n {\"name\": \"now\", \"arguments\": {}}\n]", `now{}`},
	{"phi4", "a list", `<|tool_call|>[{"name": "now", "arguments": {}}]<|/tool_call|>`, `now{}`},
	{"phi4", "objects", `<|tool_call|>{"name": "now", "arguments": {}}<|/tool_call|><|tool_call|>{"name": "now", "arguments": {}}<|/tool_call|>`, `now{}|now{}`},

	{"seed-oss", "types", "Sure.\n<seed:tool_call>\n<function=get_weather>\n<parameter=city>St. \"X\"\n\\ <b></parameter>\n<parameter=days>3</parameter>\n<parameter=metric>True</parameter>\n<parameter=at>None</parameter>\n<parameter=area>{'names': ['a', \"it's\", None, 1.5]}</parameter>\n<parameter=other>7</parameter>\n</function>\n</seed:tool_call>",
		`Sure.|get_weather{"city": "St. \"X\"\n\\ <b>", "days": 3, "metric": true, "at": null, "area": {"names": ["a", "it's", null, 1.5]}, "other": "7"}`},
	{"seed-oss", "text where a number is wanted", "<seed:tool_call><function=get_weather><parameter=days>a few</parameter><parameter=at>5</parameter><parameter=unit>c</parameter></function></seed:tool_call>", `get_weather{"days": "a few", "at": "5", "unit": "c"}`},
	{"seed-oss", "two, the second without parameters", "<seed:tool_call><function=run><parameter=code>x</parameter></function></seed:tool_call>\n<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>", `run{"code": "x"}|now{}`},
	{"seed-oss", "control characters", "<seed:tool_call><function=run><parameter=code>\t\x01</parameter></function></seed:tool_call>", `run{"code": "\u0009\u0001"}`},
	{"seed-oss", "no function", "<seed:tool_call>now</seed:tool_call>", "<seed:tool_call>now</seed:tool_call>"},
	{"seed-oss", "cut in a string", "<seed:tool_call><function=run><parameter=code>a</para", `run{"code": "a</para`},
	{"seed-oss", "cut in a name", "<seed:tool_call><function=ru", "<seed:tool_call><function=ru"},
	{"seed-oss", "breaks between parameters", "<seed:tool_call><function=run>code</function>", `code</function>|run{`},
	{"qwen3-coder", "lines", "<tool_call>\n<function=run>\n<parameter=code>\n\nprint('é')\n\n</parameter>\n<parameter=env>\n{\"A\": \"1\"}\n</parameter>\n</function>\n</tool_call>", `run{"code": "\nprint('é')\n", "env": {"A": "1"}}`},
	{"qwen3-coder", "an empty value", "<tool_call>\n<function=run>\n<parameter=code>\n</parameter>\n</function>\n</tool_call>", `run{"code": ""}`},
}

func (a answer) String() string {
	parts := []string{a.Content}
	if a.Content == "" && len(a.Calls) > 0 {
		parts = nil
	}
	for _, c := range a.Calls {
		parts = append(parts, c.Name+c.Arguments)
	}
	return strings.Join(parts, "|")
}

// TestAnswers: answers as the families write them, whole, byte by byte and in random pieces.
func TestAnswers(t *testing.T) {
	covered := map[string]bool{}
	for _, c := range answers {
		covered[c.format] = true
		t.Run(c.format+"/"+c.name, func(t *testing.T) {
			f := format(t, c.format)
			whole := parse(t, f, c.text)
			if whole.String() != c.want {
				t.Errorf("got  %s\nwant %s", whole, c.want)
			}
			checkCuts(t, f, c.text, whole)
			checkSteps(t, f, c.text)
		})
	}
	for _, name := range Formats.Names() {
		if !covered[name] {
			t.Errorf("format %s has no answers", name)
		}
	}
}

// checkCuts: the pieces in which an answer comes change nothing.
func checkCuts(t *testing.T, f Format, text string, want answer) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, uint64(len(text))))
	for trial := range 30 {
		var pieces []string
		for rest := text; rest != ""; {
			n := 1
			if trial > 0 {
				n = 1 + r.IntN(min(len(rest), 1+trial))
			}
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		if got := parse(t, f, pieces...); !reflect.DeepEqual(got, want) {
			t.Fatalf("pieces %q:\ngot  %+v\nwant %+v", pieces, got, want)
		}
	}
}

// syntax is what a call may have around its name and arguments.
var syntax = regexp.MustCompile(`^(?s:[\s,;\[\]]|<\|?/?(seed:)?(tool_call|python_tag)\|?>|\[TOOL_CALLS\]|\{.*|[,}].*)*$`)

// checkSteps: byte by byte, what is no longer held has come out, or is syntax of a call.
func checkSteps(t *testing.T, f Format, text string) {
	t.Helper()
	p := f.NewParser(tools)
	var had, got answer
	began := false
	for i := range len(text) {
		before := p.held + text[i:i+1]
		deltas := p.Push(text[i : i+1])
		if !strings.HasSuffix(before, p.held) {
			t.Fatalf("after %q: %q is held, which is no end of %q", text[:i+1], p.held, before)
		}
		gone := strings.TrimSuffix(before, p.held)
		had = got
		got.Calls = slices.Clone(got.Calls)
		got.add(t, deltas)
		content := strings.TrimPrefix(got.Content, had.Content)
		if content != "" && !strings.Contains(gone, content) {
			t.Fatalf("after %q: content %q of %q", text[:i+1], content, gone)
		}
		rest := strings.Replace(gone, content, "", 1)
		switch {
		case len(got.Calls) > len(had.Calls):
			began = true
		case len(deltas) > 0 && deltas[len(deltas)-1].Call != nil && !f.xml:
			if arguments := deltas[len(deltas)-1].Call.Arguments; arguments != rest {
				t.Fatalf("after %q: arguments %q of %q", text[:i+1], arguments, rest)
			}
		case !f.xml && !syntax.MatchString(rest), rest != "" && !began:
			t.Fatalf("after %q: %q is lost", text[:i+1], rest)
		}
	}
	held := p.held
	had = got
	got.Calls = slices.Clone(got.Calls)
	got.add(t, p.Close())
	if content := strings.TrimPrefix(got.Content, had.Content); content != held && strings.Trim(held, space) != "" && p.phase != inVerbatim && p.phase != inTyped {
		t.Errorf("%q was held, and is %q at the end", held, content)
	}
	if len(got.Calls) == 0 && got.Content != text {
		t.Errorf("without calls, content %q of %q", got.Content, text)
	}
}

// TestHeldBack: text goes out as soon as it can be no marker, arguments as they come.
func TestHeldBack(t *testing.T) {
	for _, c := range []struct {
		format string
		pieces []string
		want   []string // what each brings
	}{
		{"hermes", []string{"a ", "b<", "<b", "<tool_", "x"}, []string{"a", " b", "<<b", "", "<tool_x"}},
		{"hermes", []string{`<tool_call>{"name": "run", "argum`, `ents": {"co`, `de": "`, `x`, `"}`, `}`}, []string{"", `run{"co`, `de": "`, "x", `"}`, ""}},
		{"seed-oss", []string{"<seed:tool_call><function=run", "><parameter=code>", "a<", "b", "</parameter>"}, []string{"", `run{"code": "`, "a", "<b", `"`}},
		{"llama", []string{`{`, `"na`, `me`, `s": 1`}, []string{"", "", "", `{"names": 1`}},
		{"llama", []string{`{"name": "fly"`}, []string{`{"name": "fly"`}},
		{"mistral", []string{`[`, `TOOL_CALLS]`, `f`, `!`}, []string{"", "", "", "[TOOL_CALLS]f!"}},
	} {
		p := format(t, c.format).NewParser(tools)
		for i, text := range c.pieces {
			got := ""
			for _, d := range p.Push(text) {
				if got += d.Content; d.Call != nil {
					got += d.Call.Name + d.Call.Arguments
				}
			}
			if got != c.want[i] {
				t.Errorf("%s: %q of %q brings %q, want %q", c.format, text, c.pieces, got, c.want[i])
			}
		}
	}
}

// TestBounded: what is held stays small, whatever comes, and what is too long is no call.
func TestBounded(t *testing.T) {
	long := strings.Repeat("x", 3*maxHeld)
	blank := strings.Repeat(" ", 3*maxHeld)
	list, digits := "["+blank[:maxHeld]+"]", strings.Repeat("1", maxScalar)
	for _, c := range []struct{ format, text, want string }{
		{"hermes", blank + "<tool_call>" + blank + "a", blank + "<tool_call>" + blank + "a"},
		{"hermes", `<tool_call>{"arguments": {"a": "` + long + `"}, "name": "now"}`, `<tool_call>{"arguments": {"a": "` + long + `"}, "name": "now"}`},
		{"hermes", `<tool_call>{"name": "now", "arguments": {"a": "` + long + `"}}`, `now{"a": "` + long + `"}`},
		{"hermes", `<tool_call>{"name": "now", "arguments": {}, "id": "` + long + `"}`, `, "id": "` + long + `"}|now{}`},
		{"hermes", `<tool_call>{"name": "now", "arguments": {}}` + blank + `a`, blank + "a|now{}"},
		{"mistral", `[TOOL_CALLS]` + long + `[ARGS]{}`, `[TOOL_CALLS]` + long + `[ARGS]{}`},
		{"seed-oss", `<seed:tool_call><function=get_weather><parameter=area>` + long + `</parameter></function>`, `get_weather{"area": "` + long + `"}`},
		{"seed-oss", `<seed:tool_call><function=get_weather><parameter=area>` + list + `</parameter></function>`, `get_weather{"area": "` + list + `"}`},
		{"hermes", `<tool_call>{"name": "now", "arguments": {"a": ` + digits + `22}}`, `22}}|now{"a": ` + digits},
		{"seed-oss", `<seed:tool_call><function=` + long, `<seed:tool_call><function=` + long},
		{"llama", blank + `{"name": "now", "parameters": {}}`, blank + `{"name": "now", "parameters": {}}`},
	} {
		f := format(t, c.format)
		p := f.NewParser(tools)
		var got answer
		for rest := c.text; rest != ""; {
			n := min(len(rest), 1000)
			got.add(t, p.Push(rest[:n]))
			rest = rest[n:]
			if len(p.held) > 2*maxHeld+2000 {
				t.Fatalf("%s: %d bytes are held of %.60q", c.format, len(p.held), c.text)
			}
		}
		got.add(t, p.Close())
		if got.String() != c.want || parse(t, f, c.text).String() != c.want {
			t.Errorf("%s: %.60q gives %.200q, want %.60q", c.format, c.text, got, c.want)
		}
	}
}

// FuzzParser: any text in any pieces gives one answer, and nothing of it is lost.
func FuzzParser(f *testing.F) {
	names := Formats.Names()
	for _, c := range answers {
		f.Add(byte(slices.Index(names, c.format)), c.text, uint64(len(c.text)))
	}
	f.Fuzz(func(t *testing.T, which byte, text string, seed uint64) {
		if len(text) > 2000 {
			return
		}
		f := format(t, names[int(which)%len(names)])
		want := parse(t, f, text)
		r := rand.New(rand.NewPCG(seed, 1))
		var pieces []string
		for rest := text; rest != ""; {
			n := 1 + r.IntN(min(len(rest), 8))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		if got := parse(t, f, pieces...); !reflect.DeepEqual(got, want) {
			t.Fatalf("pieces %q:\ngot  %+v\nwant %+v", pieces, got, want)
		}
		checkSteps(t, f, text)
	})
}

// TestTyped: a value between tags is JSON whatever it is, and any of its types.
func TestTyped(t *testing.T) {
	words := append(strings.Split(`'|"|\|[|]|{|}|, |: |1|-0.5|True|None|null|é|\x41|\u00e9|\U0001f600|a|'a'|"b"`, "|"), "\n", " ")
	r := rand.New(rand.NewPCG(7, 8))
	s := parseSchema(json.RawMessage(`{"type": ["object", "array", "integer"]}`))
	lists := 0
	for range 100000 {
		text := "["
		for range r.IntN(7) {
			text += words[r.IntN(len(words))]
		}
		got := s.json(text + "]")
		if !json.Valid([]byte(got)) {
			t.Fatalf("%q gives %s", text, got)
		}
		if got[0] == '[' {
			lists++
		}
	}
	if lists < 1000 {
		t.Errorf("only %d lists", lists)
	}
	for _, c := range []struct{ schema, text, want string }{
		{`{"type": "integer"}`, " 5\n", `5`},
		{`{"type": "integer"}`, "five", `"five"`},
		{`{"type": "boolean"}`, "False", `false`},
		{`{"type": ["string", "null"]}`, "5", `"5"`},
		{`{"type": ["string", "integer"]}`, "5", `5`},
		{`{"type": "array"}`, `['it\'s', "a \"b\"", 'c "d"', "\x41", True]`, `["it's", "a \"b\"", "c \"d\"", "\u0041", true]`},
		{`{"$ref": "#/$defs/a"}`, `{"a": 1}`, `{"a": 1}`},
		{`{"enum": [1, 2]}`, `2`, `2`},
		{`{"type": "object"}`, `{'a'`, `"{'a'"`},
	} {
		if got := parseSchema(json.RawMessage(c.schema)).json(c.text); got != c.want {
			t.Errorf("%s of %s: got %s, want %s", c.text, c.schema, got, c.want)
		}
	}
}

// TestScanner: what encoding/json takes as an object, and nothing else, in random texts of JSON's characters.
func TestScanner(t *testing.T) {
	words := strings.Split(`{|}|[|]|,|:|"a"|"\u00e9\n"|"\u00e"|"\x"|"|\|1|-0.5e+3|01|true|nul|null| |`+"\n", "|")
	r := rand.New(rand.NewPCG(1, 2))
	valid := 0
	for range 300000 {
		text := "{"
		for range r.IntN(9) {
			text += words[r.IntN(len(words))]
		}
		text += "}"
		var s scanner
		got, n := true, 0
		for got && n < len(text) && (n == 0 || len(s.open) > 0) {
			got = s.step(text[n])
			n++
		}
		got = got && len(s.open) == 0 && n == len(text)
		if got {
			valid++
		}
		if got != json.Valid([]byte(text)) {
			t.Fatalf("%q: complete JSON %v, encoding/json says %v", text, got, !got)
		}
	}
	if valid < 1000 {
		t.Errorf("only %d texts were JSON", valid)
	}
}
