package toolcall

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
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
	Content   string
	Reasoning string
	Calls     []call
	order     string // of what came: c, r and the call's digit, each once in a row
}

func (a *answer) came(what string) {
	if !strings.HasSuffix(a.order, what) {
		a.order += what
	}
}

// add applies deltas; a first part has a name and the next index, others belong to the last call.
func (a *answer) add(t testing.TB, deltas []Delta) {
	t.Helper()
	for _, d := range deltas {
		switch c := d.Call; {
		case (c != nil) == (d.Content+d.Reasoning != "") || d.Content != "" && d.Reasoning != "":
			t.Errorf("a delta of none or two kinds: %+v", d)
		case d.Reasoning != "":
			a.Reasoning += d.Reasoning
			a.came("r")
		case c == nil:
			a.Content += d.Content
			a.came("c")
		case c.Name != "" && c.Index == len(a.Calls):
			a.Calls = append(a.Calls, call{c.Name, c.Arguments})
			a.came(fmt.Sprintf("<%d>", c.Index))
		case c.Name == "" && len(a.Calls) > 0 && c.Index == len(a.Calls)-1:
			a.Calls[c.Index].Arguments += c.Arguments
			a.came(fmt.Sprintf("<%d>", c.Index))
		default:
			t.Errorf("part %+v after %d calls", *c, len(a.Calls))
		}
	}
}

// parse reads an answer in a format, with thoughts between <think> and </think> where the format has none of its own.
func parse(t testing.TB, f Format, pieces ...string) (a answer) {
	t.Helper()
	return parseAs(t, dialect(t, f), Options{Tools: tools}, pieces...)
}

func dialect(t testing.TB, f Format) Dialect {
	t.Helper()
	think, err := Thinkings.Lookup("think")
	if err != nil {
		t.Fatal(err)
	}
	return Dialect{Calls: f, Thoughts: think}
}

func parseAs(t testing.TB, d Dialect, o Options, pieces ...string) (a answer) {
	t.Helper()
	p := d.NewParser(o)
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
	{"hermes", "thoughts before", "<think>\nI call.\n</think>\n\n<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>", "(I call.)|now{}"},
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
	{"hermes", "arguments in a string", `<tool_call>{"name": "now", "arguments": "{}"}</tool_call>`, `now{}`},
	{"hermes", "two names", `<tool_call>{"name": "now", "name": "run", "arguments": {}}`, `<tool_call>{"name": "now", "name": "run", "arguments": {}}`},
	{"hermes", "cut in the head", "Yes. <tool_call>\n{\"name\": \"get_wea", "Yes. <tool_call>\n{\"name\": \"get_wea"},
	{"hermes", "cut in the opener", "a\n<tool_", "a\n<tool_"},
	{"hermes", "cut in the closer", "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_", `now{}`},
	{"hermes", "no closer", "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</to be", "\n</to be|now{}"},
	{"hermes", "cut in the arguments", `<tool_call>{"name": "run", "arguments": {"code": "pri`, `run{"code": "pri`},
	{"hermes", "arguments break", `<tool_call>{"name": "run", "arguments": {"code": oh}}</tool_call>`, `run{"code": oh}}`},
	{"hermes", "a number breaks", `<tool_call>{"name": "run", "arguments": {"a": 1-2}}`, `run{"a": 1-2}}`},
	{"hermes", "another key behind", `<tool_call>{"name": "now", "arguments": {}, "more": 1}</tool_call>`, `now{}`},
	{"hermes", "white space alone", " \n ", " \n "},
	{"hermes", "text alone", "a < b <tool> {\"name\": 1}\n", "a < b <tool> {\"name\": 1}\n"},

	{"hermes", "arguments in a string, escaped", "<tool_call>\n{\"name\": \"run\", \"arguments\": \"{\\\"code\\\": \\\"a\\\\nb\\\"}\"}\n</tool_call>", `run{"code": "a\nb"}`},
	{"hermes", "arguments in a string before the name", `<tool_call>{"arguments": "{\"a\": 1}", "name": "now"}</tool_call>`, `now{"a": 1}`},
	{"hermes", "arguments in a string that are none", `<tool_call>{"name": "now", "arguments": "today"}</tool_call>`, `<tool_call>{"name": "now", "arguments": "today"}</tool_call>`},
	{"hermes", "no arguments in a string", `<tool_call>{"name": "now", "arguments": ""}</tool_call>`, `now{}`},
	{"hermes", "null arguments", "<tool_call>\n{\"name\": \"now\", \"arguments\": null}\n</tool_call>", `now{}`},
	{"hermes", "a number for arguments", `<tool_call>{"name": "now", "arguments": 5}</tool_call>`, `<tool_call>{"name": "now", "arguments": 5}</tool_call>`},
	{"hermes", "another key", "<tool_call>\n{\"name\": \"now\", \"description\": \"x\", \"arguments\": {\"a\": 1}}\n</tool_call>", `now{"a": 1}`},
	{"hermes", "a line break in a string", "<tool_call>\n{\"name\": \"run\", \"arguments\": {\"code\": \"a\nb\tc\"}}\n</tool_call>", `run{"code": "a\nb\u0009c"}`},
	{"hermes", "escapes that JSON has not", `<tool_call>{"name": "run", "arguments": {"code": "\d+ it\'s C:\users \u00e9 \\"}}</tool_call>`, `run{"code": "\\d+ it's C:\\users \u00e9 \\"}`},
	{"hermes", "Python's words", `<tool_call>{"name": "now", "arguments": {"a": True, "b": [None, False]}}</tool_call>`, `now{"a": true, "b": [null, false]}`},
	{"hermes", "two objects in one tag", "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n{\"name\": \"run\", \"arguments\": {\"code\": \"x\"}}\n</tool_call>\n", `now{}|run{"code": "x"}`},
	{"hermes", "an object and half of one in a tag", "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n{\"na", "\n{\"na|now{}"},
	{"hermes", "a list in a tag, then an object", `<tool_call>[{"name": "now", "arguments": {}}] {"name": "now", "arguments": {}}</tool_call>`, `now{}|now{}`},
	{"hermes", "in a thought", "<think>\nI could write <tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": 1}}\n</tool_call> but no.\n</think>\nHello.", "(I could write <tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": 1}}\n</tool_call> but no.)|Hello."},
	{"hermes", "a thought that does not end", "<think>\nI <tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>\n", `(I <tool_call>{"name": "now", "arguments": {}}</tool_call>)|`},
	{"hermes", "an empty thought", "<think>\n\n</think>\n\nHi", `Hi`},
	{"hermes", "a thought's mark in an answer", "Write <think> and </think>.", `Write <think> and </think>.`},
	{"hermes", "breaks, then another", `<tool_call>{"name": "run", "arguments": {"a": [}}` + "\n" + `</tool_call><tool_call>{"name": "now", "arguments": {}}</tool_call>`, `run{"a": [}}|now{}`},
	{"hermes", "bare", `{"name": "get_weather", "arguments": {"city": "Rome"}}`, `get_weather{"city": "Rome"}`},
	{"hermes", "bare, on lines", "Two calls:\n\n{\"name\": \"now\", \"arguments\": {}}\n{\"name\": \"now\", \"arguments\": {}}\n", `Two calls:|now{}|now{}`},
	{"hermes", "bare, a list", `[{"name": "now", "arguments": {}}, {"name": "now", "arguments": {}}]`, `now{}|now{}`},
	{"hermes", "bare, of no tool", `{"name": "say_hello", "arguments": {"message": "x"}}`, `{"name": "say_hello", "arguments": {"message": "x"}}`},
	{"hermes", "bare, without arguments", `{"name": "now"}`, `{"name": "now"}`},
	{"hermes", "within a line", `So {"name": "now", "arguments": {}}`, `So {"name": "now", "arguments": {}}`},
	{"hermes", "fenced", "```json\n{\n  \"name\": \"get_weather\",\n  \"arguments\": {\n    \"city\": \"Paris\"\n  }\n}\n```", "get_weather{\n    \"city\": \"Paris\"\n  }"},
	{"hermes", "fenced, after text, two", "I call:\n```\n{\"name\": \"now\", \"arguments\": {}}\n{\"name\": \"now\", \"arguments\": {}}\n```\nDone.", "I call:\nDone.|now{}|now{}"},
	{"hermes", "fenced, of no tool", "```json\n{\"name\": \"Alice\", \"arguments\": {\"city\": \"New York\"}}\n```", "```json\n{\"name\": \"Alice\", \"arguments\": {\"city\": \"New York\"}}\n```"},
	{"hermes", "fenced, and broken", "```json\n{\"name\": \"run\", \"arguments\": {\"code\": \"a\"\n + \"b\"}}\n```", "```json\n{\"name\": \"run\", \"arguments\": {\"code\": \"a\"\n + \"b\"}}\n```"},
	{"hermes", "fenced code", "```python\nprint(1)\n```\n", "```python\nprint(1)\n```\n"},
	{"hermes", "fenced, cut", "```json\n{\"name\": \"now\", \"arguments\": {\"a\": \"\\", `now{"a": "\`},
	{"hermes", "fenced, cut before the arguments", "```json\n{\"name\": \"now\", \"argum", "```json\n{\"name\": \"now\", \"argum"},
	{"hermes", "bare, the second is cut", "{\"name\": \"now\", \"arguments\": {}}\n{\"name\": \"now\", \"argum", "now{}|now"},
	{"hermes", "in the tags of the tools", "<tools>\n{\"name\": \"now\", \"arguments\": {}}\n</tools>", `now{}`},

	{"llama", "bare", `{"name": "get_weather", "parameters": {"city": "Rome"}}`, `get_weather{"city": "Rome"}`},
	{"llama", "after the tag, several", `<|python_tag|>{"name": "now", "parameters": {}}; {"name": "get_weather", "parameters": {"city": "a;b"}}`, `now{}|get_weather{"city": "a;b"}`},
	{"llama", "typed", "\n{\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}", `now{}`},
	{"llama", "arguments by the other key", `{"name": "now", "arguments": {}}`, `now{}`},
	{"llama", "a tool that there is not", `{"name": "fly", "parameters": {}}`, `{"name": "fly", "parameters": {}}`},
	{"llama", "an answer in JSON", `{"name": "now"}`, `{"name": "now"}`},
	{"llama", "JSON after text", `See {"name": "now", "parameters": {}}`, `See {"name": "now", "parameters": {}}`},
	{"llama", "code", `<|python_tag|>print(1)`, `<|python_tag|>print(1)`},
	{"llama", "no second call", `{"name": "now", "parameters": {}}; bye`, `; bye|now{}`},

	{"llama", "parameters in a string", `{"name": "get_weather", "parameters": "{\"city\": \"Rome\"}"}`, `get_weather{"city": "Rome"}`},
	{"llama", "breaks", `{"name": "now", "parameters": {"a": b}}`, `now{"a": b}}`},

	{"mistral", "arguments in a string", `[TOOL_CALLS] [{"name": "now", "arguments": "{\"a\": 1}"}, {"name": "now", "arguments": "{}"}]`, `now{"a": 1}|now{}`},
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
	{"seed-oss", "breaks between parameters", "<seed:tool_call><function=run>code</function>", `code</function>|run{}`},
	{"qwen3-coder", "lines", "<tool_call>\n<function=run>\n<parameter=code>\n\nprint('é')\n\n</parameter>\n<parameter=env>\n{\"A\": \"1\"}\n</parameter>\n</function>\n</tool_call>", `run{"code": "\nprint('é')\n", "env": {"A": "1"}}`},
	{"qwen3-coder", "no opener", "<function=get_weather>\n<parameter=days>\n1\n</parameter>\n</function>\n</tool_call>", `get_weather{"days": 1}`},
	{"qwen3-coder", "no opener, after text", "I call.\n<function=now>\n</function>\n</tool_call>\n<function=now>\n</function>", `I call.|now{}|now{}`},
	{"qwen3-coder", "no opener and no tool", "<function=fly>\n</function>", "<function=fly>\n</function>"},
	{"qwen3-coder", "no end tag", "<tool_call>\n<function=get_weather>\n<parameter=days>\n1\n<parameter=city>\nx\n</parameter>\n</function>\n</tool_call>", `get_weather{"days": 1, "city": "x"}`},
	{"qwen3-coder", "no end tag of a string, nor of the last", "<tool_call>\n<function=get_weather>\n<parameter=city>\nx y\n<parameter=days>\n2\n</function>\n</tool_call>", `get_weather{"city": "x y", "days": 2}`},
	{"qwen3-coder", "no end tag but the function's", "<tool_call>\n<function=run>\n<parameter=code>\nx\n</function>\n", `run{"code": "x"}`},
	{"qwen3-coder", "tags in a string", "<tool_call>\n<function=run>\n<parameter=code>\n<parameter=x> a<parameter=env>\n<parameter=other>\n</function> b\n</parameter>\n</function>\n</tool_call>", `run{"code": "<parameter=x> a<parameter=env>\n<parameter=other>\n</function> b"}`},
	{"qwen3-coder", "an empty integer", "<tool_call>\n<function=get_weather>\n<parameter=days></parameter>\n</function>\n</tool_call>", `get_weather{}`},
	{"qwen3-coder", "an empty integer between others", "<tool_call>\n<function=get_weather>\n<parameter=city>\na\n</parameter>\n<parameter=days>\n\n</parameter>\n<parameter=metric>\nTrue\n</parameter>\n</function>\n</tool_call>", `get_weather{"city": "a", "metric": true}`},
	{"qwen3-coder", "an empty string", "<tool_call>\n<function=get_weather>\n<parameter=city></parameter>\n<parameter=at></parameter>\n</function>\n</tool_call>", `get_weather{"city": "", "at": ""}`},
	{"qwen3-coder", "two functions in a tag", "<tool_call>\n<function=now>\n</function>\n<function=now>\n</function>\n</tool_call>", `now{}|now{}`},

	{"glm", "one", "<think>I look.</think>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>St. \"X\"\n<b></arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n<arg_key>area</arg_key>\n<arg_value>{\"names\": [1]}</arg_value>\n</tool_call>", `(I look.)|get_weather{"city": "St. \"X\"\n<b>", "days": 3, "area": {"names": [1]}}`},
	{"glm", "without line breaks, two", "Yes.<tool_call>now</tool_call><tool_call>run<arg_key>code</arg_key><arg_value>x</arg_value></tool_call>", `Yes.|now{}|run{"code": "x"}`},
	{"glm", "an empty integer", "<tool_call>get_weather\n<arg_key>days</arg_key>\n<arg_value></arg_value>\n</tool_call>", `get_weather{}`},
	{"glm", "no end tag", "<tool_call>get_weather\n<arg_key>days</arg_key>\n<arg_value>1\n<arg_key>city</arg_key>\n<arg_value>b</arg_value>\n</tool_call>", `get_weather{"days": 1, "city": "b"}`},
	{"glm", "a tool that there is not", "<tool_call>fly\n</tool_call>", `fly{}`},
	{"glm", "no name", "<tool_call>let me see</tool_call>", "<tool_call>let me see</tool_call>"},
	{"glm", "JSON", `<tool_call>{"name": "now"}</tool_call>`, `<tool_call>{"name": "now"}</tool_call>`},
	{"glm", "cut in a string", "<tool_call>run\n<arg_key>code</arg_key>\n<arg_value>a</arg_", `run{"code": "a</arg_`},

	{"gemma4", "types", `<|tool_call>call:get_weather{area:{names:[<|"|>a"b<|"|>,1.5,null]},city:<|"|>Paris {x}, y<|"|>,days:3,metric:true}<tool_call|>`, `get_weather{"area": {"names": ["a\"b", 1.5, null]}, "city": "Paris {x}, y", "days": 3, "metric": true}`},
	{"gemma4", "two, after text", `I look.<|tool_call>call:now{}<tool_call|><|tool_call>call:run{code:<|"|>` + "a\nb" + `<|"|>}<tool_call|>`, `I look.|now{}|run{"code": "a\nb"}`},
	{"gemma4", "strings without marks", `<|tool_call>call:get_weather{city:Rome at 5:30, at: "x\"y", days: 2}<tool_call|>`, `get_weather{"city": "Rome at 5:30", "at": "x\"y", "days": 2}`},
	{"gemma4", "quoted keys", `<|tool_call>call:run{code:<|"|>x<|"|>,env:{<|"|>A B<|"|>:<|"|>1<|"|>,"C":2}}<tool_call|>`, `run{"code": "x", "env": {"A B": "1", "C": 2}}`},
	{"gemma4", "a number for a string", `<|tool_call>call:get_weather{city:75001}<tool_call|>`, `get_weather{"city": "75001"}`},
	{"gemma4", "no call", `<|tool_call>now<tool_call|>`, `<|tool_call>now<tool_call|>`},
	{"gemma4", "breaks", `<|tool_call>call:run{code}<tool_call|>bye`, `bye|run{"code"}`},
	{"gemma4", "cut in a string", `<|tool_call>call:run{code:<|"|>a<|`, `run{"code": "a<|`},
	{"functiongemma", "one", `<start_function_call>call:get_weather{city:<escape>London<escape>,days:2}<end_function_call>`, `get_weather{"city": "London", "days": 2}`},
	{"functiongemma", "two", `<start_function_call>call:now{}<end_function_call><start_function_call>call:now{}<end_function_call>`, `now{}|now{}`},

	{"harmony", "an answer", `<|channel|>analysis<|message|>They greet.<|end|><|start|>assistant<|channel|>final<|message|>Hello.` + "\n", "(They greet.)|Hello.\n"},
	{"harmony", "a call", `<|channel|>analysis<|message|>I call.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Oslo"}`, `(I call.)|get_weather{"city": "Oslo"}`},
	{"harmony", "the recipient first", ` to=functions.now<|channel|>commentary json<|message|>{}<|call|>`, `now{}`},
	{"harmony", "the recipient in another role", `<|channel|>analysis<|message|>x<|end|><|start|>assistant to=functions.now<|channel|>analysis<|message|> {"a": 1}`, `(x)|now{"a": 1}`},
	{"harmony", "what is said before a call", `<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant<|channel|>commentary to=functions.now<|message|>{}`, `I will look.|now{}`},
	{"harmony", "a tool of its own", `<|channel|>analysis to=python code<|message|>print(1)<|call|>`, `(print(1))|`},
	{"harmony", "thoughts alone", `<|channel|>analysis<|message|>Let me`, `(Let me)|`},
	{"harmony", "no end mark", `<|channel|>analysis<|message|>Hm.<|channel|>final<|message|>Yes.<|return|>`, `(Hm.)|Yes.`},
	{"harmony", "no header", `Hello <b>there</b>`, `Hello <b>there</b>`},
	{"harmony", "a call that is no JSON", `<|channel|>commentary to=functions.run<|message|>print(1)<|call|>`, `runprint(1)`},
	{"harmony", "a call that breaks", `<|channel|>commentary to=functions.run<|message|>{"code": print}<|end|><|start|>assistant<|channel|>final<|message|>Oh.`, `Oh.|run{"code": print}`},
	{"harmony", "cut in a header", `<|channel|>comm`, ``},
	{"qwen3-coder", "an empty value", "<tool_call>\n<function=run>\n<parameter=code>\n</parameter>\n</function>\n</tool_call>", `run{"code": ""}`},
}

func (a answer) String() string {
	parts := []string{a.Content}
	if a.Content == "" && len(a.Calls) > 0 {
		parts = nil
	}
	if a.Reasoning != "" {
		parts = append([]string{"(" + a.Reasoning + ")"}, parts...)
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
	for i := 1; len(text) < 2000 && i < len(text); i++ {
		if got := parse(t, f, text[:i], text[i:]); !reflect.DeepEqual(got, want) {
			t.Fatalf("cut at %q|%q:\ngot  %+v\nwant %+v", text[:i], text[i:], got, want)
		}
	}
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

// checkSteps: byte by byte, what is held is an end of what came, what has come out stays, and the whole is said without calls
// and thoughts.
func checkSteps(t *testing.T, f Format, text string) {
	t.Helper()
	p := dialect(t, f).NewParser(Options{Tools: tools})
	var got answer
	for i := range len(text) {
		before := p.held + text[i:i+1]
		got.add(t, p.Push(text[i:i+1]))
		if !strings.HasSuffix(before, p.held) {
			t.Fatalf("after %q: %q is held, which is no end of %q", text[:i+1], p.held, before)
		}
		if n := len(got.Content); len(got.Calls) == 0 && !strings.Contains(text, "</think>") && f.channels == nil && !strings.HasPrefix(text, got.Content) {
			t.Fatalf("after %q: content %q of %d bytes, want what was said", text[:i+1], got.Content, n)
		}
	}
	got.add(t, p.Close())
	if len(got.Calls) == 0 && got.Reasoning == "" && f.channels == nil && got.Content != text && !strings.Contains(text, "</think>") {
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
		{"hermes", []string{"<th", "ink>", "\n", "a ", "b\n", "</thi", "nk>\n", "\n", "c"}, []string{"", "", "", "a", " b", "", "", "", "c"}},
		{"hermes", []string{"<think>a <", "b"}, []string{"a", " <b"}},
		{"hermes", []string{"```", "json\n{\"name\": ", "\"x", "\"", "}"}, []string{"", "", "", "```json\n{\"name\": \"x\"", "}"}},
		{"hermes", []string{"```", "py", "thon"}, []string{"", "```py", "thon"}},
		{"qwen3-coder", []string{"<tool_call><function=run><parameter=code>\n", "a\n", "b\n<para", "x\n</function>", "y\n</parameter>"}, []string{`run{"code": "`, "a", `\nb`, `\n<parax`, `\n</function>y"`}},
		{"harmony", []string{"<|channel|>analysis", "<|message|>", "a", " b<|e", "nd|><|start|>assist", "ant<|channel|>final<|mess", "age|>c", " d"}, []string{"", "", "a", " b", "", "", "c", " d"}},
		{"gemma4", []string{"<|tool_call>call:ru", "n{", "code", ":", `<|"|>a`, `<|`, `x`, `<|"|>`, "}"}, []string{"", "run{", "", `"code": `, `"a`, "", `<|x`, `"`, "}"}},
		{"mistral", []string{`[`, `TOOL_CALLS]`, `f`, `!`}, []string{"", "", "", "[TOOL_CALLS]f!"}},
	} {
		p := dialect(t, format(t, c.format)).NewParser(Options{Tools: tools})
		for i, text := range c.pieces {
			got := ""
			for _, d := range p.Push(text) {
				if got += d.Reasoning + d.Content; d.Call != nil {
					got += d.Call.Name + d.Call.Arguments
				}
			}
			if got != c.want[i] {
				t.Errorf("%s: %q of %q brings %q, want %q", c.format, text, c.pieces, got, c.want[i])
			}
		}
	}
}

// TestThoughts: thoughts by the marks of their families, where the prompt has begun one, and where they are to stay in the content.
func TestThoughts(t *testing.T) {
	call := "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>"
	for _, c := range []struct {
		name, thinking, format, text string
		o                            Options
		want                         string
	}{
		{name: "begun by the prompt", thinking: "think", format: "hermes", text: "\nHm " + call + "\n</think>\n\n" + call, o: Options{Opened: true}, want: "(Hm " + call + ")|now{}"},
		{name: "begun by both", thinking: "think", text: "<think>\nHm\n</think>\n\nYes", o: Options{Opened: true}, want: "(Hm)|Yes"},
		{name: "begun by the prompt, without an end", thinking: "think", text: "Hm\n", o: Options{Opened: true}, want: "(Hm)|"},
		{name: "begun by the prompt, and ended at once", thinking: "think", text: "</think>Yes", o: Options{Opened: true}, want: "Yes"},
		{name: "white space before", thinking: "think", text: " \n<think>a</think>b", want: "(a)|b"},
		{name: "not at the beginning", thinking: "think", text: "a<think>b</think>c", want: "a<think>b</think>c"},
		{name: "half a mark", thinking: "think", text: "<thin", want: "<thin"},
		{name: "in the content", thinking: "think", format: "hermes", text: "<think>\nHm " + call + "\n</think>\n\nYes\n" + call, o: Options{Inline: true}, want: "<think>\nHm " + call + "\n</think>\n\nYes|now{}"},
		{name: "in the content, begun by the prompt", thinking: "think", format: "hermes", text: "\nHm " + call + "</think>\n\nYes", o: Options{Inline: true, Opened: true}, want: "\nHm " + call + "</think>\n\nYes"},
		{name: "in the content, without an end", thinking: "think", format: "hermes", text: "<think>Hm \n", o: Options{Inline: true}, want: "<think>Hm \n"},
		{name: "Seed-OSS", thinking: "seed", format: "seed-oss", text: "<seed:think>a</seed:think>b", want: "(a)|b"},
		{name: "Magistral", thinking: "mistral", format: "mistral", text: "[THINK]a[/THINK][TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}]", want: "(a)|now{}"},
		{name: "Gemma 4", thinking: "gemma4", format: "gemma4", text: "<|channel>thought\na\n<channel|>b<|tool_call>call:now{}<tool_call|>", want: "(a)|b|now{}"},
		{name: "channels in the content", format: "harmony", text: "<|channel|>analysis<|message|>a <|end|><|start|>assistant<|channel|>final<|message|>b", o: Options{Inline: true}, want: "<|channel|>analysis<|message|>a <|end|>b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d Dialect
			if c.thinking != "" {
				var err error
				if d.Thoughts, err = Thinkings.Lookup(c.thinking); err != nil {
					t.Fatal(err)
				}
			}
			if c.format != "" {
				d.Calls, c.o.Tools = format(t, c.format), tools
			}
			whole := parseAs(t, d, c.o, c.text)
			if whole.String() != c.want {
				t.Errorf("got  %s\nwant %s", whole, c.want)
			}
			bytewise := strings.Split(c.text, "")
			if got := parseAs(t, d, c.o, bytewise...); !reflect.DeepEqual(got, whole) {
				t.Errorf("by characters:\ngot  %+v\nwant %+v", got, whole)
			}
			for i := range c.text {
				if got := parseAs(t, d, c.o, c.text[:i], c.text[i:]); !reflect.DeepEqual(got, whole) {
					t.Errorf("cut at %d:\ngot  %+v\nwant %+v", i, got, whole)
				}
			}
		})
	}
}

// TestOpens: a thought that the prompt has begun, or the beginning of an answer that a client gave.
func TestOpens(t *testing.T) {
	think, err := Thinkings.Lookup("think")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		prompt, begun string
		want          bool
	}{
		{"<user>x<assistant><think>\n", "", true},
		{"<user>x<assistant>", "", false},
		{"<user>x<assistant><think>\n\n</think>\n\n", "", false},
		{"<user>what is <think><end><assistant>", "", false},
		{"<user>x<assistant><think>\nI am", "I am", true},
		{"<user>x<assistant><think>\nI am</think>Yes", "I am</think>Yes", false},
		{"<user>x<assistant><think>I am", "<think>I am", true},
		{"<user>x<assistant><think>I am</think>A", "<think>I am</think>A", false},
	} {
		if got := (Dialect{Thoughts: think}).Opens(c.prompt, c.begun); got != c.want {
			t.Errorf("%q, begun %q: %v, want %v", c.prompt, c.begun, got, c.want)
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
		{"hermes", `<tool_call>{"name": "now", "arguments": {"a": ` + digits + `22}}`, `now{"a": ` + digits + `22}}`},
		{"seed-oss", `<seed:tool_call><function=` + long, `<seed:tool_call><function=` + long},
		{"hermes", "```json\n" + `{"name": "run", "arguments": {"code": "` + long + `"}}`, "```json\n" + `{"name": "run", "arguments": {"code": "` + long + `"}}`},
		{"hermes", "<think>" + blank + "a" + long, "(a" + long + ")|"},
		{"harmony", "<|channel|>" + long, "<|channel|>" + long},
		{"glm", "<tool_call>" + long, "<tool_call>" + long},
		{"gemma4", `<|tool_call>call:run{code:<|"|>` + long + `<|"|>}`, `run{"code": "` + long + `"}`},
		{"gemma4", `<|tool_call>call:run{code:` + long + `}`, `run{"code": ` + long + `}`},
		{"qwen3-coder", "<tool_call>\n<function=run>\n<parameter=code>\n" + strings.Repeat("</function>"+blank[:1000], 100), `run{"code": "` + strings.Repeat("</function>"+blank[:1000], 100)},
		{"llama", blank + `{"name": "now", "parameters": {}}`, blank + `{"name": "now", "parameters": {}}`},
	} {
		f := format(t, c.format)
		p := dialect(t, f).NewParser(Options{Tools: tools})
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

// TestScanner: what encoding/json takes as an object is taken as it is, and what else is taken becomes JSON; in random texts of
// JSON's characters.
func TestScanner(t *testing.T) {
	words := strings.Split(`{|}|[|]|,|:|"a"|"\u00e9\n"|"\u00e"|"\x"|"|\|1|-0.5e+3|01|true|nul|null|True|None| |`+"\n", "|")
	r := rand.New(rand.NewPCG(1, 2))
	valid, repaired := 0, 0
	for range 300000 {
		text := "{"
		for range r.IntN(9) {
			text += words[r.IntN(len(words))]
		}
		text += "}"
		got, ok := objectIn(text)
		is := json.Valid([]byte(text))
		switch {
		case is && (!ok || got != text):
			t.Fatalf("%q: got %q, %v, want it as it is", text, got, ok)
		case ok && !json.Valid([]byte(got)):
			t.Fatalf("%q: got %q, which is no JSON", text, got)
		case is:
			valid++
		case ok:
			repaired++
		}
	}
	if valid < 1000 || repaired < 100 {
		t.Errorf("only %d texts were JSON, and %d were repaired", valid, repaired)
	}
}
