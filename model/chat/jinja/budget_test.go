package jinja

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestBudget: no operation takes more memory, stack or time than a rendering has.
// The error is ErrBudget, or another where the text says so.
func TestBudget(t *testing.T) {
	if raceEnabled {
		t.Skip("one goroutine: nothing to race with")
	}
	const doubled = "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = OP %}{% endfor %}"
	double := func(op string) string { return strings.ReplaceAll(doubled, "OP", op) }
	for _, c := range []struct{ name, source, want string }{
		{"repeated string", "{{ 'x' * 100000000000 }}", ""},
		{"repeated string, turned", "{{ 100000000000 * 'x' }}", ""},
		{"repeated often", "{{ 'x' * 9223372036854775807 }}", ""},
		{"repeated list", "{{ [1] * 10000000000 }}", ""},
		{"squares", "{% set ns = namespace(x=3) %}{% for i in range(60) %}{% set ns.x = ns.x * ns.x %}{% endfor %}", "not supported"},
		{"indent", "{{ 'x' | indent(100000000000, true) }}", ""},
		{"indented lines", "{{ ('x\n' * 10000) | indent(100000) }}", ""},
		{"indented JSON", "{{ [[[1]]] | tojson(indent=1000000000) }}", ""},
		{"JSON indented by text", "{{ [1, 2, 3] | tojson(indent='x' * 50000000) }}", ""},
		{"JSON separators", "{{ range(1000) | list | tojson(separators=('x' * 1000000, '')) }}", ""},
		{"join", "{{ range(10000) | join('x' * 1000000) }}", ""},
		{"join method", "{{ ('x' * 1000000).join(['a'] * 10000) }}", ""},
		{"replace", "{{ ('a' * 100000) | replace('a', 'a' * 100000) }}", ""},
		{"replace method", "{{ ('a' * 100000).replace('a', 'a' * 100000) }}", ""},
		{"replace nothing", "{{ ('a' * 100000).replace('', 'a' * 100000) }}", ""},
		{"doubling by ~", double("ns.x ~ ns.x"), ""},
		{"doubling by +", double("ns.x + ns.x"), ""},
		{"doubling by *", double("ns.x * 2"), ""},
		{"doubling by join", double("[ns.x, ns.x] | join"), ""},
		{"doubling by format", double("'%s%s' % (ns.x, ns.x)"), ""},
		{"doubling by str.format", double("'{0}{0}'.format(ns.x)"), ""},
		{"doubling by replace", double("ns.x | replace('a', 'aa')"), ""},
		{"doubling by escape", double("(ns.x | replace('a', '<')) | escape | string"), "none"},
		{"doubling by JSON", double("[ns.x, ns.x] | tojson"), ""},
		{"doubling by printing", double("[ns.x, ns.x] | string"), ""},
		{"doubling by a macro", "{% macro f(a) %}{{ a }}{{ a }}{% endmacro %}" + double("f(ns.x)"), ""},
		{"doubling by arguments", "{% macro f(a, b=a ~ a) %}{{ b }}{% endmacro %}" + double("f(ns.x)"), ""},
		{"doubling by varargs", "{% macro f() %}{{ varargs | join }}{% endmacro %}" + double("f(ns.x, ns.x)"), ""},
		{"doubling by a block", double("ns.x") + "{% for i in range(60) %}{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}{% endfor %}", "none"},
		{"doubling lists", "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", ""},
		{"doubling dicts", "{% set ns = namespace(x={}) %}{% for i in range(100000) %}{% set ns.x = dict(ns.x, **{i | string: 1}) %}{% endfor %}", ""},
		{"doubling equality", "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}", ""},
		{"doubling order", "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x < ns.y }}", ""},
		{"doubling without a loop", strings.Repeat("{% set x = (x or 'aaaaaaaa') ~ x ~ x %}", 60), ""},
		{"printed doubled list", "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}", ""},
		{"doubled list as JSON", "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}", ""},
		{"cycle printed", "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", "not supported"},
		{"cycle in a list", "{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns.a }}", "not supported"},
		{"cycle compared", "{% set ns = namespace() %}{% set ms = namespace() %}{% set ns.a = [ns] %}{{ ns.a == ns.a }}", "none"},
		{"deep list", "{% set ns = namespace(x=[]) %}{% for i in range(5000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}", "nested"},
		{"deep lists compared", "{% set ns = namespace(x=[], y=[]) %}{% for i in range(10000) %}{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}{% endfor %}{{ ns.x == ns.y }}", "nested"},
		{"many names", manyNames(5000) + "{% for i in range(100000) %}{{ a0 }}{{ a4999 }}{% endfor %}", ""},
		{"deep chain of generators", "{% set ns = namespace(x=[1]) %}{% for i in range(5000) %}{% set ns.x = ns.x | select %}{% endfor %}{{ ns.x | list }}", "none"},
		{"generator in itself", "{% set ns = namespace() %}{% macro f() %}{{ ns.x | list }}{% endmacro %}{% set ns.x = [1] | map('string') %}{{ f() }}", "none"},
		{"endless macro", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested"},
		{"endless caller", "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{% call f() %}{% endcall %}", "nested"},
		{"endless macro in a loop", "{% macro f() %}{% for i in [1, 2] %}{{ f() }}{% endfor %}{% endmacro %}{{ f() }}", "nested"},
		{"branching macros", "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(90) }}", ""},
		{"loops in loops", "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", ""},
		{"range in loops", "{% for i in range(500) %}{% for j in range(500) %}{% set x = range(100000) | list %}{% endfor %}{% endfor %}", ""},
		{"in a range in loops", "{% for i in range(500) %}{% for j in range(500) %}{{ 0.5 in range(100000) }}{% endfor %}{% endfor %}", ""},
		{"long string in loops", "{% set x = 'a' * 1000000 %}{% for i in range(100000) %}{{ x[-1] }}{{ x | length }}{{ 'b' in x }}{{ x[500000] }}{% endfor %}", ""},
		{"strip in loops", "{% set x = 'a' * 1000000 %}{% for i in range(100000) %}{{ x.strip(x) | length }}{% endfor %}", ""},
		{"sort in loops", "{% set x = range(10000) | reverse | list %}{% for i in range(100000) %}{% set y = x | sort %}{% endfor %}", ""},
		{"unique in loops", "{% set x = range(10000) | list %}{% for i in range(100000) %}{% set y = x | unique | list %}{% endfor %}", ""},
		{"split in loops", "{% set x = 'a ' * 10000 %}{% for i in range(100000) %}{% set y = x.split() %}{% endfor %}", ""},
		{"case in loops", "{% set x = 'a ' * 10000 %}{% for i in range(100000) %}{% set y = x | upper | title | lower %}{% endfor %}", ""},
		{"large batches", "{{ [1] | batch(100000000000, 0) | list }}", ""},
		{"fresh names", "{% for i in range(100000) %}{% set d = dict(x, **{'a': 1}) %}{% for j in range(1000) %}{{ d.a }}{% endfor %}{% endfor %}", ""},
		{"long output", "{% set x = 'a' * 1000000 %}{% for i in range(1000) %}{{ x }}{% endfor %}", ""},
		{"long range", "{{ range(1000000000) }}", "more than 100000"},
		{"endless range", "{% for i in range(0, 10, 0) %}{% endfor %}", "step 0"},
		{"attributes", "{{ [1] | map(attribute='a.' * 10000000) | list }}", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			start := time.Now()
			got, err := renderSource(c.source, map[string]any{"x": Object{}})
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			switch {
			case c.want == "none": // it is enough that it ends
			case c.want == "" && !errors.Is(err, ErrBudget), err == nil || !strings.Contains(err.Error(), c.want):
				t.Errorf("got %d bytes and error %v, want %q", len(got), err, c.want)
			}
			if took > 10*time.Second { // the longest takes 0.4 s on two idle cores
				t.Errorf("took %v", took)
			}
			if most := uint64(1 << 30); after.TotalAlloc-before.TotalAlloc > most {
				t.Errorf("%d MB were allocated", (after.TotalAlloc-before.TotalAlloc)>>20)
			}
		})
	}
}

func manyNames(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{%% set a%d=1 %%}", i)
	}
	return b.String()
}

// TestSourceLimits: the text of a template is bounded before it is run.
func TestSourceLimits(t *testing.T) {
	nest := func(open, inside, end string, n int) string {
		return strings.Repeat(open, n) + inside + strings.Repeat(end, n)
	}
	for _, c := range []struct{ name, source, want string }{
		{"long source", strings.Repeat("a", maxSource+1), "source of 131073 bytes, want at most 131072"},
		{"not UTF-8", "a\xff", "UTF-8"},
		{"brackets", "{{ " + nest("(", "1", ")", 1000) + " }}", "nested more than"},
		{"lists", "{{ " + nest("[", "1", "]", 1000) + " }}", "nested more than"},
		{"dicts", "{{ " + nest("{1:", "1", "}", 1000) + " }}", "nested more than"},
		{"calls", "{{ " + nest("f(", "1", ")", 1000) + " }}", "nested more than"},
		{"signs", "{{ " + strings.Repeat("- ", 10000) + "1 }}", "nested more than"},
		{"nots", "{{ " + strings.Repeat("not ", 10000) + "1 }}", "nested more than"},
		{"conditionals", "{{ " + strings.Repeat("1 if 1 else ", 5000) + "1 }}", "nested more than"},
		{"blocks", strings.Repeat("{% if true %}", 1000) + strings.Repeat("{% endif %}", 1000), "nested more than"},
		{"targets", "{% set " + nest("(", "a", ")", 1000) + " = 1 %}", "nested more than"},
		{"attributes", "{{ " + strings.Repeat("a.", 10000) + "a }}", "more than 1000 operators"},
		{"sums", "{{ " + strings.Repeat("1+", 10000) + "1 }}", "more than 1000 operators"},
		{"filters", "{{ 1" + strings.Repeat("|e", 10000) + " }}", "more than 1000 operators"},
		{"tests", "{{ 1" + strings.Repeat(" is none", 10000) + " }}", ""},
		{"ors", "{{ 1" + strings.Repeat(" or 1", 10000) + " }}", "more than 1000 operators"},
		{"calls of calls", "{{ f" + strings.Repeat("()", 10000) + " }}", "more than 1000 operators"},
		{"long number", "{{ " + strings.Repeat("9", 10000) + " }}", "want a number of 64 bits"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse(c.source)
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1000 {
				t.Errorf("error %v, want one that says %s", err, c.want)
			}
		})
	}
}

// TestParseTime: parsing takes no more than the source's length allows.
func TestParseTime(t *testing.T) {
	for _, c := range []struct{ name, source string }{
		{"elifs after names", manyNames(3000) + "{% if a %}" + strings.Repeat("{% elif a %}", 5000) + "{% endif %}"},
		{"ifs after names", manyNames(3000) + strings.Repeat("{% if a %}{% endif %}", 3000)},
		{"names in nested ifs", strings.Repeat("{% if a %}", 60) + manyNames(5000) + strings.Repeat("{% endif %}", 60)},
		{"names in nested loops", strings.Repeat("{% for a in b %}", 60) + manyNames(5000) + strings.Repeat("{% endfor %}", 60)},
		{"names in nested macros", strings.Repeat("{% macro a(b) %}", 60) + manyNames(5000) + strings.Repeat("{% endmacro %}", 60)},
		{"open tags", strings.Repeat("{% raw ", 18000)},
		{"open comments", strings.Repeat("{#", 60000)},
		{"open strings", "{{ " + strings.Repeat("'a' ", 30000) + " }}"},
		{"trimmed lines", strings.Repeat(" \n", 60000) + "{%- if a -%}" + strings.Repeat(" \n", 4000) + "{% endif %}"},
		{"numbers", "{{ [" + strings.Repeat("1_0.5e1_0,", 12000) + "] }}"},
		{"conditional filters", "{{ " + strings.Repeat("(1|x if ", 60) + "1" + strings.Repeat(")", 60) + " }}"},
		{"long conditionals", "{{ " + strings.Repeat("1|x if 1 ", 900) + " }}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := time.Now()
			Parse(c.source) // which of them are right does not matter
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("took %v for %d bytes", took, len(c.source))
			}
		})
	}
}

// TestCancel: a rendering ends soon after its context does.
func TestCancel(t *testing.T) {
	for _, source := range []string{
		"{% for i in range(500) %}{% for j in range(500) %}{% set x = range(100000) | list %}{% endfor %}{% endfor %}",
		"{% for i in range(100000) %}{% set x = text | upper %}{% endfor %}",
	} {
		template, err := Parse(source)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		start := time.Now()
		// A large conversation has a large budget.
		_, err = template.Render(ctx, map[string]any{"text": strings.Repeat("a", 10_000_000)}, time.Time{})
		cancel()
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > 10*time.Second {
			t.Errorf("%s: error %v after %v", source, err, took)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	template, err := Parse("a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := template.Render(ctx, nil, time.Time{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}

// TestLongConversation: the budget grows with what is said, so that a long
// conversation is not refused, even by a template that copies it at every turn.
func TestLongConversation(t *testing.T) {
	var messages []any
	for i := range 1000 {
		messages = append(messages, Object{{"role", "user"}, {"content", fmt.Sprint(i) + strings.Repeat(" word", 800)}})
	}
	const source = "{% set ns = namespace(x='') %}{% for m in messages %}{% set ns.x = ns.x ~ m.role ~ m.content %}{% endfor %}{{ ns.x }}"
	got, err := renderSource(source, map[string]any{"messages": messages})
	if err != nil || len(got) < 4_000_000 {
		t.Errorf("%d bytes, error %v", len(got), err)
	}
}

func FuzzRender(f *testing.F) {
	for _, seed := range []string{
		"{% for m in messages %}{{ m.role }}{% endfor %}",
		"{%- set x = (messages[-1].content|trim).split('a')[-1] -%}{{ x | tojson(indent=2) }}{# c -#} {% raw %}{{ {% endraw %}",
		"{% macro f(a, b=1) %}{{ a ~ b }}{{ varargs }}{{ caller() }}{% endmacro %}{% call(x) f('x') %}{{ x }}{% endcall %}{% if a and not b or c in [1, -2] %}y{% elif x %}{% else %}{% endif %}",
		"{% set ns = namespace(x=1) %}{% for i in range(9) if i is odd %}{% set ns.x = ns.x * 2 // i %}{% break %}{% else %}{{ loop.cycle(1, 2) }}{% endfor %}{{ ns }}",
		"{{ '%5.2f|%-8s' % (1.5, 'a') ~ '{} {w}'.format(1, w=3) }}{{ {'a': [1, (2,)]} | dictsort | map('first') | list }}{{ 'x' * 1000000000 }}",
		"{% filter upper | replace('A', 'b') %}{% generation %}a{% endgeneration %}{% endfilter %}{% with a, b = 1, 2 %}{{ a if b else c }}{% endwith %}{{ strftime_now('%d %b') }}",
	} {
		f.Add(seed)
	}
	variables := map[string]any{"messages": []any{Object{{"role", "user"}, {"content", "a b"}}}, "x": Object{{"items", []any{1, 2.5, nil, true}}}}
	f.Fuzz(func(t *testing.T, source string) {
		template, err := Parse(source)
		if err == nil {
			// Hostile templates take what they are given, so give little.
			r := newRun(context.Background())
			r.left, r.check = 1<<20, 1<<20
			_, err = template.renderInto(r, variables, clock)
		}
		if err != nil && strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' }) {
			t.Errorf("error %q holds control characters", err)
		}
	})
}
