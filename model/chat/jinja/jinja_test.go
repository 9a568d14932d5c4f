package jinja

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

var clock = time.Date(2025, 3, 9, 7, 5, 4, 0, time.UTC)

// TestExpressions compares with what Python's Jinja makes of templates (the fixture
// is made by scripts/jinja_fixtures.py).
func TestExpressions(t *testing.T) {
	raw, err := os.ReadFile("testdata/expressions.json")
	if err != nil {
		t.Fatal(err)
	}
	var fixture struct {
		Variables Object
		Cases     []expectation
	}
	if err := json.Unmarshal(raw, &fixture); err != nil {
		t.Fatal(err)
	}
	if len(fixture.Cases) < 1200 {
		t.Fatalf("%d cases, want at least 1200", len(fixture.Cases))
	}
	variables := map[string]any{}
	for _, m := range fixture.Variables {
		variables[m.Key] = m.Value
	}
	for _, c := range fixture.Cases {
		got, err := renderSource(c.source, variables)
		var raised *RaisedError
		switch {
		case c.text != nil:
			if err != nil || got != *c.text {
				t.Errorf("%s\n got %q, %v\nwant %q", c.source, got, err, *c.text)
			}
		case c.raised != nil:
			if !errors.As(err, &raised) || raised.Message != *c.raised {
				t.Errorf("%s\n got %q, %v\nwant the exception %q", c.source, got, err, *c.raised)
			}
		case err == nil || errors.As(err, &raised):
			t.Errorf("%s\n got %q, %v\nwant an error", c.source, got, err)
		}
	}
}

// expectation is [template, text or null, message of raise_exception or null].
type expectation struct {
	source       string
	text, raised *string
}

func (e *expectation) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&e.source, &e.text, &e.raised})
}

func renderSource(source string, variables map[string]any) (string, error) {
	t, err := Parse(source)
	if err != nil {
		return "", err
	}
	return t.Render(context.Background(), variables, clock)
}

// TestErrors: an error names the line, what was found and what is expected.
func TestErrors(t *testing.T) {
	for _, c := range []struct{ name, source, want string }{
		{"unclosed block", "a\n{% if x %}b", "line 2: found the end of the template, want {% elif %} or {% else %} or {% endif %}"},
		{"wrong end", "{% for x in y %}\n\n{% endif %}", `line 3: found "endif", want a block or {% endfor %} or {% else %}`},
		{"unclosed expression", "a\n{{ x", "line 2: found a tag without an end, want }}"},
		{"unclosed comment", "a\nb\n{# x", "line 3: found a comment without an end"},
		{"unclosed raw", "{% raw %}x", "line 1: found a raw block without an end"},
		{"unknown block", "\n\n{% frobnicate %}", `line 3: found "frobnicate", want a block`},
		{"unknown filter", "{{ 1 }}\n{{ 1 | frobnicate }}", `line 2: found the filter "frobnicate"`},
		{"unknown test", "{{ 1 is frobnicate }}", `the test "frobnicate"`},
		{"later line", "{#- a\nb -#}\n\n{%- if true %}\n\n{{ x y }}{% endif %}", `line 6: found "y", want }}`},
		{"include", "{% include '/etc/passwd' %}", `found "include"`},
		{"import", "{% import '/etc/passwd' as p %}", `found "import"`},
		{"extends", "{% extends '/etc/passwd' %}", `found "extends"`},
		{"do", "{% do x %}", `found "do"`},
		{"brackets", "{{ (1] }}", `found "]", want ")"`},
		{"no value", "{{ 1 + }}", "line 1: found }}, want an expression"},
		{"escape codes", "{{ '\x1b[2J' \x1b }}", `found the character "\x1b"`},
		{"undefined", "\n\n{{ nothing.a }}", "line 3: 'nothing' is undefined"},
		{"attribute of none", "{{ x.y.z }}", "line 1: 'None' has no attribute 'y'"},
		{"in a loop", "{% for i in [1] %}\n{{ i + 'a' }}{% endfor %}", `line 2: found int and str around "+"`},
		{"in a macro", "{% macro f() %}\n{{ 1 // 0 }}\n{% endmacro %}\n\n{{ f() }}", "line 2: division by zero"},
		{"in a filter", "{{ ['a'] |\n map('abs') | list }}", "filter abs: found a value of type str, want a number"},
		{"unknown method", "{{ 'a'.frobnicate() }}", "'str object' has no attribute 'frobnicate'"},
		{"changing method", "{{ [].append(1) }}", "access to attribute 'append' of 'list' object is unsafe."},
		{"macro argument", "{% macro f(a) %}{% endmacro %}{{ f(b=1) }}", `macro "f": found the argument "b", want a`},
		{"method argument", "{{ 'a'.split(1) }}", "split: found an argument of type int, want a string"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := renderSource(c.source, map[string]any{"x": nil})
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1000 {
				t.Errorf("error %v, want one that says %s", err, c.want)
			}
		})
	}
}

// TestTerminalEscapes: nothing that a terminal acts on comes out of an error.
func TestTerminalEscapes(t *testing.T) {
	for _, source := range []string{
		"{{ raise_exception('\x1b[31m\x07' ~ '\\x9b') }}", "{{ '\x1b]0;x\x07' | int + missing['\x1b'] }}", "{{ \x1b }}", "{% \x1b %}", "{{ x['\x1b[2J'].y }}", "{{ {}['\x1b[2J'].y }}",
		"{{ {'\x1b': 1} | map(attribute='\x1b') | list + 1 }}", "{{ '%\x1b' % 1 }}", "{{ '{:\x1b}'.format(1) }}", "{{ '{\x1b}'.format(1) }}", "{{ dict(**{'\x1b': 1, 'a': 2}).b.c }}", "{% macro f() %}{% endmacro %}{{ f(**{'\x1b': 1}) }}", "{{ [] | map('\x1b') | list }}{{ [1] | map('\x1b') | list }}", "{{ 'a' | attr('\x1b') + 1 }}",
	} {
		_, err := renderSource(source, nil)
		if err == nil || strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }) {
			t.Errorf("%q: error %q, want one without control characters", source, err)
		}
	}
}
