package jinja

import (
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"
)

var clock = time.Date(2025, 3, 9, 7, 5, 4, 0, time.UTC)

// TestExpressions compares with what Python's Jinja makes of templates (the fixture
// is made by lab/golden/jinja_fixtures.py).
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
		{"unknown filter", "{{ 1 }}\n{{ 1 | frobnicate }}", `line 2: the filter "frobnicate" is not supported`},
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

// TestUnsupported: what Python's Jinja has and this package has not is an error that names it,
// whatever it is part of, and never other text.
func TestUnsupported(t *testing.T) {
	for _, c := range []struct{ name, source, want string }{
		{"filter", "{{ 'a' | center(9) }}", `the filter "center" is not supported`},
		{"filter of the elements", "{{ ['a'] | map('truncate') | list }}", `the filter "truncate" is not supported`},
		{"filter block", "{% filter wordwrap %}a{% endfilter %}", `the filter "wordwrap" is not supported`},
		{"filter in a branch", "{% if true %}{{ l | groupby('a') }}{% endif %}", `the filter "groupby" is not supported`},
		{"test", "{{ 'a' is escaped }}", `the test "escaped" is not supported`},
		{"test of the elements", "{{ ['a'] | select('filter') | list }}", `the test "filter" is not supported`},
		{"string method", "{{ 'a'.zfill(3) }}", `the attribute "zfill" of a value of type str is not supported`},
		{"string method that is only asked for", "{{ 'a'.ljust is defined }}", `the attribute "ljust" of a value of type str is not supported`},
		{"cut from the right", "{{ 'a b'.rsplit(none, 1) }}", "cutting at white space from the right is not supported"},
		{"list method", "{{ [1].index(1) }}", `the attribute "index" of a value of type list is not supported`},
		{"tuple method by its name", "{{ (1, 2)['count'] }}", `the attribute "count" of a value of type tuple is not supported`},
		{"dict method", "{{ {}.copy() }}", `the attribute "copy" of a value of type dict is not supported`},
		{"dict.fromkeys", "{{ dict.fromkeys([1]) }}", `the attribute "fromkeys" of a value of type function is not supported`},
		{"attribute of a number", "{{ (1).real }}", `the attribute "real" of a value of type int is not supported`},
		{"attribute of a macro", "{% macro f() %}{% endmacro %}{{ f.name }}", `the attribute "name" of a value of type function is not supported`},
		{"attribute of a loop", "{% for i in [1] %}{{ loop.depth }}{% endfor %}", `the attribute "depth" of a value of type LoopContext is not supported`},
		{"attr", "{{ 'a' | attr('swapcase') }}", `the attribute "swapcase" of a value of type str is not supported`},
		{"recursive loop", "{% for i in [[1]] recursive %}{{ loop(i) }}{% endfor %}", "recursive loops are not supported"},
		{"print block", "{% print 1 %}", `found "print", want a block that is supported`},
		{"power", "{{ 2 ** 3 }}", `the operator "**" is not supported`},
		{"remainder of floats", "{{ 1.5 % 1 }}", "the operator % of floats is not supported"},
		{"sum beyond 64 bits", "{{ 9223372036854775807 + 1 }}", "integers that large are not supported"},
		{"product beyond 64 bits", "{{ 4611686018427387904 * -4 }}", "integers that large are not supported"},
		{"quotient that a float rounds", "{{ 9007199254740993 / 1 }}", "integers that large are not supported"},
		{"text as a larger integer", "{{ '99999999999999999999' | int }}", "integers that large are not supported"},
		{"sum with a larger integer", "{{ big + 1 }}", `"+" beside a value of type int of more than 64 bits is not supported`},
		{"order of a larger integer", "{{ big > 1 }}", `">" beside a value of type int of more than 64 bits is not supported`},
		{"integer with a base", "{{ '1f' | int(0, 16) }}", "filter int: found 2 arguments, want at most 1"},
		{"rounding before the point", "{{ 150 | round(-2) }}", "the precision -2 is not supported"},
		{"conversion", "{{ '%x' % 255 }}", `the conversion "%x" is not supported`},
		{"conversion by name", "{{ '%(a)s' % {'a': 1} }}", `the conversion "%(a)s" is not supported`},
		{"field with a specification", "{{ '{:>5}'.format(1) }}", "only fields as {}, {0} and {name} are supported"},
		{"field with an attribute", "{{ '{0.a}'.format(1) }}", "only fields as {}, {0} and {name} are supported"},
		{"directive", "{{ strftime_now('%U') }}", `the directive "%U" is not supported`},
		{"directive without padding", "{{ strftime_now('%-Y') }}", `the directive "%-Y" is not supported`},
		{"octal escape", `{{ '\101' }}`, `the escape "\\1" in a string is not supported`},
		{"named escape", `{{ '\N{DASH}' }}`, `the escape "\\N" in a string is not supported`},
		{"hexadecimal number", "{{ 0x1f }}", `found "x1f", want }}`},
		{"cycler", "{{ cycler(1, 2).next() }}", "cycler: the function is not supported"},
		{"key that is a tuple", "{{ {(1, 2): 3} }}", "a key of type tuple is not supported"},
		{"printed range", "{{ range(3) }}", "printing a value of type range is not supported"},
		{"printed generator", "{{ [1] | map('string') }}", "printing a value of type generator is not supported"},
		{"printed method", "{{ ''.upper }}", "printing a value of type function is not supported"},
		{"compared methods", "{{ ''.upper == ''.upper }}", "comparing functions is not supported"},
		{"compared views", "{{ {}.keys() == {}.keys() }}", "comparing two values of type dict_keys is not supported"},
		{"text marked as safe that is repeated", "{{ ('a' | safe) * 2 }}", `"*" beside a value of type Markup is not supported`},
		{"method of text marked as safe", "{{ ('a' | safe).upper() }}", "methods of text marked as safe are not supported"},
		{"filter of text marked as safe", "{{ 'a' | e | trim }}", "the filter trim of text marked as safe is not supported"},
		{"element of text marked as safe", "{{ ('a' | safe)[0] }}", "an element of text marked as safe is not supported"},
		{"digits of another kind", "{{ '²'.isdigit() }}", "is not supported"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := renderSource(c.source, map[string]any{"l": []any{}, "big": new(big.Int).Lsh(big.NewInt(1), 70)})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q, error %v, want one that says %s", got, err, c.want)
			}
		})
	}
}

// TestTerminalEscapes: nothing that a terminal acts on comes out of an error.
func TestTerminalEscapes(t *testing.T) {
	for _, source := range []string{
		"{{ raise_exception('\x1b[31m\x07' ~ '\\x9b') }}", "{{ '\x1b]0;x\x07' | int + missing['\x1b'] }}", "{{ \x1b }}", "{% \x1b %}", "{{ x['\x1b[2J'].y }}", "{{ {}['\x1b[2J'].y }}",
		"{{ {'\x1b': 1} | map(attribute='\x1b') | list + 1 }}", "{{ '%\x1b' % 1 }}", "{{ '{\x1b!r}'.format(1) }}", "{{ '{\x1b}'.format(1) }}", "{{ dict(**{'\x1b': 1, 'a': 2}).b.c }}", "{% macro f() %}{% endmacro %}{{ f(**{'\x1b': 1}) }}", "{{ [] | map('\x1b') | list }}{{ [1] | map('\x1b') | list }}", "{{ 'a' | attr('\x1b') + 1 }}",
	} {
		_, err := renderSource(source, nil)
		if err == nil || strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }) {
			t.Errorf("%q: error %q, want one without control characters", source, err)
		}
	}
}
