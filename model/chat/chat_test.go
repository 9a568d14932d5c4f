package chat

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

func render(t *testing.T, source string, o Options, messages ...Message) (string, error) {
	t.Helper()
	template, err := Parse(source)
	if err != nil {
		t.Fatal(err)
	}
	return template.Render(messages, o)
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ name, source, want string }{
		{"unclosed block", "a\n{% if x %}b", "endif"},
		{"unclosed expression", "a\n{{ x", "line 2: no }}"},
		{"unclosed comment", "a\nb\n{# x", "line 3: comment without an end"},
		{"unclosed raw", "{% raw %}x", "raw block without an end"},
		{"unknown block", "\n\n{% frobnicate %}", "'frobnicate' not found"},
		{"error in a later line", "{#- a\nb -#}\n\n{%- if true %}\n\n{{ x y }}{% endif %}", "Line: 6"},
		{"include", "{% include '/etc/passwd' %}", "'include' not found"},
		{"import", "{% import '/etc/passwd' as p %}", "'import' not found"},
		{"from", "{% from '/etc/passwd' import p %}", "'from' not found"},
		{"extends", "{% extends '/etc/passwd' %}", "'extends' not found"},
		{"block", "{% block b %}{{ self.b() }}{% endblock %}", "'block' not found"},
		{"recursive loop", "{% for x in messages recursive %}{{ loop(messages) }}{% endfor %}", "recursive loops are not supported"},
		{"long source", strings.Repeat("a", maxSource+1), "at most"},
		{"long expression", "{{ " + strings.Repeat("a.", maxTag) + "a }}", "expression of more than"},
		{"nested brackets", "{{ " + strings.Repeat("(", 1000) + "1" + strings.Repeat(")", 1000) + " }}", "brackets nested"},
		{"nested blocks", strings.Repeat("{% if true %}", 1000) + strings.Repeat("{% endif %}", 1000), "blocks nested"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse(c.source)
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1000 {
				t.Errorf("error %v, want one that says %s", err, c.want)
			}
		})
	}
}

func TestHostileTemplates(t *testing.T) {
	for _, c := range []struct{ name, source, want string }{
		{"endless macro", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "macros call each other"},
		{"loops in loops", "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "passes of loops"},
		{"loops over macros", "{% macro f() %}{% endmacro %}{% for i in range(99999) %}{% for j in range(9) %}{{ f() }}{{ f() }}{% endfor %}{% endfor %}", "passes of loops"},
		{"long range", "{{ range(1000000000) }}", "more than 100000 elements"},
		{"range without end", "{% for i in range(0, 10, 0) %}{% endfor %}", "step is 0"},
		{"doubling", "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}", "variable ns holds more"},
		{"doubling without a loop", strings.Repeat("{% set x = (x or 'aaaaaaaa') ~ x ~ x %}", 60), "variable x holds more"},
		{"doubling lists", "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", "variable ns holds more"},
		{"list in itself", "{% set x = [1] %}{% for i in range(100) %}{% set x = [x, x] %}{{ x | length }}{% endfor %}{{ x | tojson }}", ""},
		{"long output", "{% set x = 'a' * 1000000 %}{% for i in range(1000) %}{{ x }}{% endfor %}", "output is longer"},
		{"long replacement", "{% set x = 'a' * 100000 %}{{ x.replace('a', x) }}", "longer than"},
		{"division by zero", "{{ 1 % 0 }}", "divide by zero"},
		{"negative repetition", "{{ 'a' * -1 }}", "negative"},
		{"unknown filter", "{{ 1 | frobnicate }}", "frobnicate"},
		{"unknown method", "{{ 'a'.frobnicate() }}", "frobnicate"},
		{"attribute of nothing", "{{ nothing.a.b }}", "None"},
		{"state of the run", "{% set run = 1 %}{{ raise_exception('mine') }}", "mine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			template, err := Parse(c.source)
			var got string
			if err == nil {
				start := time.Now()
				got, err = template.Render([]Message{{Role: "user", Content: "a"}}, Options{})
				if d := time.Since(start); d > 20*time.Second {
					t.Errorf("took %v", d)
				}
			}
			if c.want == "" {
				return // it is enough that it ends
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1000 {
				t.Errorf("got %d bytes and error %v, want one that says %s", len(got), err, c.want)
			}
		})
	}
}

func TestRaisedError(t *testing.T) {
	_, err := render(t, "{% for m in messages %}{% if true %}{{ raise_exception('no ' + m.role) }}{% endif %}{% endfor %}", Options{}, Message{Role: "wizard"})
	var raised *RaisedError
	if !errors.As(err, &raised) || raised.Message != "no wizard" {
		t.Errorf("error %v, want the template's", err)
	}
}

func TestOptions(t *testing.T) {
	source := "{{ bos_token }}{{ eos_token }}{{ add_generation_prompt }}{{ tools is defined }}{{ strftime_now is defined }}{{ k }}"
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"nothing set", Options{}, "FalseFalseFalse"},
		{"all set", Options{AddGenerationPrompt: true, BOS: "<s>", EOS: "</s>", Tools: []any{"t"}, Now: time.Unix(0, 0), Extra: map[string]any{"k": "v"}}, "<s></s>TrueTrueTruev"},
		{"extra wins", Options{BOS: "<s>", Extra: map[string]any{"bos_token": "x"}}, "xFalseFalseFalse"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := render(t, source, c.o); err != nil || got != c.want {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
	now := time.Date(2024, 7, 6, 15, 4, 5, 0, time.UTC)
	got, err := render(t, `{{ strftime_now("%d %b %Y, %-d/%-m %H:%M:%S %% %j") }}`, Options{Now: now})
	if want := "06 Jul 2024, 6/7 15:04:05 % 188"; err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	for _, format := range []string{"%Q", "%", "%-"} {
		if got, err := render(t, `{{ strftime_now("`+format+`") }}`, Options{Now: now}); err == nil || !strings.Contains(err.Error(), "strftime_now") {
			t.Errorf("format %q: got %q, %v", format, got, err)
		}
	}
	if _, err := render(t, "a", Options{Extra: map[string]any{"c": make(chan int)}}); err == nil || !strings.Contains(err.Error(), "variable c") {
		t.Errorf("a channel as variable: error %v", err)
	}
}

func TestMessageJSON(t *testing.T) {
	for _, c := range []struct {
		name, json string
		want       Message
		tojson     string
	}{
		{"plain", `{"role":"user","content":"a"}`, Message{Role: "user", Content: "a"}, `{"role": "user", "content": "a"}`},
		{"more keys in order", `{"z":1,"content":"a","role":"user","b":[true,2.5]}`,
			Message{Role: "user", Content: "a", Extra: Object{{"z", int64(1)}, {"b", []any{true, 2.5}}}}, `{"role": "user", "content": "a", "z": 1, "b": [true, 2.5]}`},
		{"null", `{"role":"assistant","content":null}`, Message{Role: "assistant", Extra: Object{{"content", nil}}}, `{"role": "assistant", "content": null}`},
		{"parts", `{"role":"user","content":[{"type":"text","text":"x"}]}`,
			Message{Role: "user", Extra: Object{{"content", []any{Object{{"type", "text"}, {"text", "x"}}}}}}, `{"role": "user", "content": [{"type": "text", "text": "x"}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m Message
			if err := json.Unmarshal([]byte(c.json), &m); err != nil || !reflect.DeepEqual(m, c.want) {
				t.Fatalf("got %+v, %v; want %+v", m, err, c.want)
			}
			if got, err := render(t, "{{ messages[-1] | tojson }}", Options{}, m); err != nil || got != c.tojson {
				t.Errorf("got %s, %v; want %s", got, err, c.tojson)
			}
		})
	}
	for _, bad := range []string{`{"content":"a"}`, `{"role":1}`, `[]`, `"a"`, `{"role":"a","x":1e999}`, `{"role":"a","x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`} {
		var m Message
		if err := json.Unmarshal([]byte(bad), &m); err == nil {
			t.Errorf("%s: no error, got %+v", bad, m)
		}
	}
	for _, bad := range []string{``, `{`, `[1`, `{"a"}`, `1 2`} {
		if v, err := ParseJSON([]byte(bad)); err == nil {
			t.Errorf("ParseJSON(%q): no error, got %v", bad, v)
		}
	}
}

func TestIndices(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{"{{ messages[-1].content }}", "only"},
		{"{{ messages[messages|length - 2].content }}", "only"},
		{"{{ messages [ - 1 ]['content'] }}", "only"},
		{"{{ messages[-2] is defined }}", "False"},
		{"{{ messages[-1]['content'][-1] }}", "y"},
		{"{{ 'a[-1]' }}{# x[-1] #}{% raw %}x[-1]{% endraw %}", "a[-1]x[-1]"},
		{"{{ 1 in [-1] }}{{ [-1][0] }}", "False-1"},
		{"{{ messages[-1:] | length }}", "1"},
	} {
		if got, err := render(t, c.source, Options{}, Message{Role: "user", Content: "only"}); err != nil || got != c.want {
			t.Errorf("%s: got %q, %v; want %q", c.source, got, err, c.want)
		}
	}
}

func TestConcurrentRender(t *testing.T) {
	template, err := Parse("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ m.content }}{% endfor %}{{ ns.n }}")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			text := strings.Repeat("x", i)
			for range 50 {
				got, err := template.Render([]Message{{Role: "user", Content: text}, {Role: "user", Content: "y"}}, Options{})
				if want := text + "y2"; err != nil || got != want {
					t.Errorf("got %q, %v; want %q", got, err, want)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkRender(b *testing.B) {
	template, err := Parse("{% for m in messages %}<|{{ m['role'] }}|>\n{{ m.content | trim }}</s>\n{% endfor %}")
	if err != nil {
		b.Fatal(err)
	}
	messages := []Message{{Role: "user", Content: strings.Repeat("word ", 20000)}, {Role: "assistant", Content: "yes"}}
	b.SetBytes(100_000)
	for b.Loop() {
		if _, err := template.Render(messages, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzTemplate checks that no source makes Parse or Render fail other than by an
// error.
func FuzzTemplate(f *testing.F) {
	f.Add("{% for m in messages %}{{ m.role }}{% endfor %}")
	f.Add("{%- set x = (messages[-1].content|trim).split('a')[-1] -%}{{ x | tojson(indent=2) }}{# c -#} {% raw %}{{ {% endraw %}")
	f.Add("{% macro f(a, b=1) %}{{ a ~ b }}{% endmacro %}{{ f('x') }}{% if a and not b or c in [1, -2] %}y{% elif x %}{% else %}{% endif %}")
	f.Fuzz(func(t *testing.T, source string) {
		// One expression may use any amount of memory; see the package's doc.
		if strings.Contains(source, "*") {
			return
		}
		template, err := Parse(source)
		if err != nil {
			return
		}
		template.Render([]Message{{Role: "user", Content: "a"}}, Options{})
	})
}
