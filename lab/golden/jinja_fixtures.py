#!/usr/bin/env python3
"""Makes the expectations of model/chat/jinja: what Python's Jinja, set up as
transformers does, makes of random expressions and of small templates.

    pip install transformers jinja2
    python3 lab/golden/jinja_fixtures.py model/chat/jinja/testdata/expressions.json
    python3 lab/golden/jinja_fixtures.py --compare 20000 [--seed 7]

The first form writes the fixture; the second makes other expressions, renders them
by both and prints how many agree.
"""

import argparse
import json
import math
import random
import re
import sys
import warnings
from pathlib import Path

import jinja2
from chat_differential import Peer, agree, reference
from transformers.utils import chat_template_utils

warnings.simplefilter("ignore")

VARIABLES = {
    "s": "Hello, Wörld 🙂", "t": "  a,b,,c \n", "e": "", "n": 7, "m": -3, "z": 0, "f": 2.5, "g": -0.125, "big": 2**70, "yes": True, "no": False, "none_": None,
    "l": [3, 1, 2], "ls": ["b", "A", "a", "c"], "mixed": [1, "x", None, True, 2.5, [1], {"k": "v"}], "d": {"b": 1, "a": 2, "C": 3}, "nested": {"items": [1, 2], "x": {"y": [10, 20, {"z": "deep"}]}},
    "users": [{"name": "bob", "age": 30, "tags": ["x"]}, {"name": "Al", "age": 25}, {"name": "al", "age": 30, "tags": []}], "empty": [], "ed": {}, "quotes": "it's \"q\"", "lines": "a\n\n  b\r\nc",
}
STRINGS = ["s", "t", "e", "quotes", "lines", "'abc'", "'äöü'", "'a-b c'", "\"x\\ty\\n\"", "'ß'", "'3'", "' 42 '", "'1.5'", "'%s|%5d'", "'{}-{}'"]
NUMBERS = ["n", "m", "z", "f", "g", "0", "1", "2", "-5", "10", "3.0", "0.1", "1e3", "yes", "no", "1_000"]
LISTS = ["l", "ls", "mixed", "users", "empty", "[1, 2, 3]", "(1, 'a')", "range(4)", "range(5, 0, -2)", "d.items()", "nested.x.y", "[[1, 2], [3]]", "()", "(1,)"]
DICTS = ["d", "nested", "ed", "{'x': 1, 2: 'y'}", "users[0]", "dict(a=1, b='z')", "{1: 2, 1.0: 3, true: 4}"]
SMALL = ["-2", "-1", "0", "1", "2", "3", "none", "100"]


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self, *a):
        return self.r.choice(a)

    def any(self, depth):
        return self.pick(self.string, self.number, self.list, self.dict, self.logic, self.anything)(depth)

    def anything(self, depth):
        if depth <= 0:
            return self.pick("missing", "none", "true", "none_", *STRINGS, *NUMBERS, *LISTS, *DICTS)
        a, b = self.any(depth - 1), self.any(depth - 1)
        return self.pick(
            f"({a} if {self.logic(depth - 1)} else {b})", f"({a} if {self.logic(depth - 1)})", f"[{a}, {b}]", f"({a}, {b})", f"{{'k': {a}, {self.string(0)}: {b}}}",
            f"({a} or {b})", f"({a} and {b})", f"({a}) | default({b})", f"({a}) | default({b}, true)", f"missing | default({a})", f"({a})[{b}]", f"({a}) | first", f"({a}) | last",
            f"({a}) | list | first", f"({a}).{self.pick('items', 'x', 'name', 'upper', 'real', 'missing')}", f"({a}) | attr('{self.pick('x', 'upper')}')", f"({a}) ~ {b}", f"({a}) + {b}", f"({a}) * {self.number(0)}",
            f"({a} if {self.logic(0)} else {b} if {self.logic(0)} else {self.string(0)})", f"[{a} if {self.logic(0)} else {b}, 1]", f"({a}) | tojson", f"({a}) | string", f"-({a})", f"({a}) | reverse | list", f"({a}) | length",
            f"({a}) * {self.number(0)} | string", f"{a} ~ {b} | upper" if not a.startswith("{") else a, f"({a}) | safe + {b}", f"({a}) | e", f"({a}) | min", f"({a}) | max", f"({a}) | sum",
        )

    def string(self, depth):
        if depth <= 0:
            return self.pick(*STRINGS)
        s, u, n = self.string(depth - 1), self.string(0), self.pick(*SMALL)
        return self.pick(
            f"({s} ~ {self.any(depth - 1)})", f"({s} + {u})", f"({s}).{self.pick('upper', 'lower', 'title', 'capitalize', 'strip', 'lstrip', 'rstrip')}()", f"({s}) | {self.pick('upper', 'lower', 'title', 'capitalize', 'trim', 'string', 'escape', 'safe')}",
            f"({s}).strip({u})", f"({s}).replace({u}, {self.string(0)})", f"({s}).replace('a', 'bb', {self.number(0)})", f"({s}) | replace({u}, {self.string(0)})", f"({s})[{n}:{self.pick(*SMALL)}]", f"({s})[{n}]", f"({s})[::{n}]", f"({s})[{n}:]",
            f"({s}) * {self.pick(*SMALL)}", f"({s}) | indent({self.pick('2', '4', 'first=true', 'width=3, blank=true')})",
            f"({s}) | reverse", f"({self.list(0)}) | join({u})", f"""{u}.join({self.pick('ls', s, '["x", "y"]')})""", f"""{s}.split({self.pick('', u, ' ",", 1')})[{n}]""", f"({s}).{self.pick('removeprefix', 'removesuffix')}({u})", f"'%{self.printf()}' % ({self.any(0)})", f"'%s %s' | format({self.any(0)}, {self.any(0)})",
            f"'{{}} {{}}'.format({self.any(0)}, {u})", f"({s}).partition({u})[{n}]", f"'{{0}} {{a}}'.format({u}, a={self.any(0)})",
        )

    def printf(self):
        return self.pick("", "-") + self.pick("", "6", "10") + self.pick("", ".2", ".0") + self.pick("s", "d", "f", "i") if self.r.random() < 0.9 else self.pick("%", "05d", "08.2f")

    def number(self, depth):
        if depth <= 0:
            return self.pick(*NUMBERS)
        a, b, s = self.number(depth - 1), self.number(depth - 1), self.string(0)
        return self.pick(
            f"({a} {self.pick('+', '-', '*', '/', '//', '%')} {b})", f"{a} {self.pick('+', '-', '*', '//', '%')} {b}", f"-{self.pick(*NUMBERS)} * 2", f"-({a})", f"({a}) | abs", f"({a}) | round", f"({a}) | round({self.pick('1', '2', '4')})", f"({a}) | round({self.pick('1', '0')}, '{self.pick('ceil', 'floor')}')",
            f"({a}) | int", f"({s}) | int", f"({s}) | float", f"({s}) | int(5)", f"({a}) | float", f"({self.list(depth - 1)}) | length", f"""({s}).count({self.pick('"a"', '""', 'e', '"l"')})""", f"""({s}).{self.pick('find', 'rfind', 'index')}({self.pick('"b"', 'e', '"l"')})""", f"({self.list(depth - 1)}) | sum",
            f"l | {self.pick('min', 'max', 'sum')}", f"users | sum(attribute='age')", f"10 * {a} | abs", f"{a} * {b} | string | length", f"({s}) | int",
        )

    def list(self, depth):
        if depth <= 0:
            return self.pick(*LISTS)
        l = self.list(depth - 1)
        return self.pick(
            f"({l} + {self.list(0)})", f"({l}) * {self.pick(*SMALL)}", f"({l})[{self.pick(*SMALL)}:{self.pick(*SMALL)}]", f"({l})[::{self.pick(*SMALL)}]", f"({l}) | {self.pick('reverse', 'sort', 'unique', 'list')} | list", f"({l}) | sort(reverse=true)", f"({l}) | sort(case_sensitive=true)", f"users | sort(attribute='{self.pick('age', 'name')}'{self.pick('', ', reverse=true')})",
            f"users | map(attribute='{self.pick('name', 'age', 'tags', 'tags.0', 'zz')}'{self.pick('', ', default=0')}) | list", f"({l}) | map('{self.pick('string', 'upper', 'abs', 'length', 'default')}') | list", f"""({l}) | {self.pick('select', 'reject')}({self.pick('', repr(self.pick('string', 'number', 'odd', 'none', 'defined', 'mapping')), '"eq", 1', '"in", [1, "a"]')}) | list""",
            f"""users | {self.pick('selectattr', 'rejectattr')}('{self.pick('age', 'tags', 'name')}'{self.pick('', ', "defined"', ', "equalto", 30', ', "eq", "bob"')}) | list""", f"""({self.dict(depth - 1)}) | dictsort({self.pick('', 'true', 'by="value"', 'reverse=true')})""", f"({self.dict(0)}) | items | list", f"({self.dict(0)}).{self.pick('items', 'keys', 'values')}() | list", f"({self.dict(0)}).{self.pick('items', 'keys', 'values')}()",
            f"({self.string(depth - 1)}) | list", f"""({self.string(0)}).{self.pick('split', 'rsplit')}({self.pick('', '","', 'none, 1', '"a", 1')})""", f"({self.string(0)}).{self.pick('partition', 'rpartition')}('{self.pick(',', 'l', 'zz')}')", f"({self.string(0)}).splitlines({self.pick('', 'true')})", f"({l}) | batch({self.pick('2', '3, 0')}) | list",
            f"[{self.any(depth - 1)}] * {self.pick('2', '0')}", f"[{self.any(depth - 1)} if {self.logic(0)} else {self.any(0)}]", f"({self.any(depth - 1)},)", f"range({self.pick('3', '1, 7, 2', 'n', 'm', '5, 1, -1', '0')}){self.pick('[1:] | list', ' | list', '[::-1] | list')}",
        )

    def dict(self, depth):
        if depth <= 0:
            return self.pick(*DICTS)
        return self.pick(f"{{{self.string(0)}: {self.any(depth - 1)}, 'b': {self.any(0)}}}", f"{{{self.number(0)}: {self.any(depth - 1)}}}", f"dict({self.dict(depth - 1)}, q={self.any(0)})", f"dict({self.dict(0)}.items())", "nested.x", "nested['x']", "nested.items", f"d.get('{self.pick('a', 'zz')}', {self.any(0)})", f"namespace(a={self.any(0)}).a")

    def logic(self, depth):
        a, b = self.any(depth - 1) if depth > 0 else self.anything(0), self.anything(0)
        return self.pick(
            f"({a} {self.pick('==', '!=', '<', '<=', '>', '>=')} {b})", f"({self.number(0)} {self.pick('<', '<=', '==', '>')} {self.number(0)} {self.pick('<', '!=')} {self.number(0)})", f"({a} {self.pick('in', 'not in')} {self.pick(*LISTS, *DICTS, *STRINGS)})", f"(not {a})",
            f"({a}) is {self.pick('', 'not ')}{self.pick('defined', 'undefined', 'none', 'string', 'number', 'integer', 'float', 'boolean', 'true', 'false', 'mapping', 'sequence', 'iterable', 'callable', 'lower', 'upper')}", f"({self.number(0)}) is {self.pick('odd', 'even', 'divisibleby 2', 'divisibleby(3)')}", f"({a}) is {self.pick('eq', 'ne', 'equalto', 'lt', 'ge', 'in')}({b})",
            f"""({self.string(0)}).{self.pick('startswith', 'endswith')}({self.pick(self.string(0), '("H", " ")')})""", f"({self.string(0)}).{self.pick('isdigit', 'isalpha', 'isalnum', 'isspace', 'isupper', 'islower')}()", f"({a} {self.pick('and', 'or')} {b}) == {a}",
        )


STATEMENTS = [
    "{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
    "{% for k, v in d.items() %}{{ loop.index }}{{ k }}={{ v }}{{ ',' if not loop.last }}{% endfor %}",
    "{% for i in range(10) %}{% if i == 3 %}{% continue %}{% endif %}{% if i > 5 %}{% break %}{% endif %}{{ i }}{% else %}none{% endfor %}",
    "{% for i in l %}{% continue %}{% else %}else{% endfor %}|{% for i in empty %}{% else %}else{% endfor %}",
    "{% for i in l %}{% for j in empty %}{% else %}{% break %}{% endfor %}{{ i }}{% endfor %}.",
    "{% for u in users if u.age == 30 %}{{ loop.length }}{{ loop.revindex0 }}{{ u.name }}{{ loop.previtem.name }}{{ loop.nextitem.name }};{% endfor %}",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{{ loop.first }}{{ loop.previtem }}{{ loop.revindex }}{% endfor %}",
    "{% macro f(a, b=2, c=a) %}[{{ a }}{{ b }}{{ c }}{{ varargs }}{{ kwargs }}]{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(b=5, a=0) }}{{ f(1, 2, 3, 4, z=5) }}{{ f() }}",
    "{% macro f(a) %}{{ caller(a) }}!{{ caller is defined }}{% endmacro %}{% call(x) f(3) %}<{{ x }}{{ n }}>{% endcall %}",
    "{% macro f() %}{{ caller() if caller else 'no' }}{% endmacro %}{{ f() }}{% call f() %}body{% endcall %}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}", "{% macro f(x) %}{{ x }}{{ y }}{% endmacro %}{% set y = 5 %}{{ f(1) }}",
    "{% macro f(i) %}{{ i }}{% if i %}{{ f(i - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", 
    "{% set x %}a {{ n }}\n{% endset %}[{{ x }}]{% set y | upper | trim %} b{% endset %}{{ y }}", "{% filter upper | replace('A', 'x') %}abc {{ s }}{% endfilter %}", "{% with a = 1, b = n %}{{ a }}{{ b }}{% set n = 3 %}{{ n }}{% endwith %}{{ n }}{{ a }}",
    "{% set a, b = 1, 'x' %}{{ a }}{{ b }}{% set (a, b) = [b, a] %}{{ a }}{{ b }}", "{% set a, b = [1] %}", "{% set ns.x = 1 %}", "{% for i in l %}{% set n = i %}{{ n }}{% endfor %}{{ n }}", "{% if yes %}{% set n = 1 %}{% endif %}{{ n }}{% if no %}{% set q = 1 %}{% endif %}{{ q }}",
    "{% for n in [1] %}{{ n }}{% endfor %}{{ n }}", "{% for a, b in [(1, 2), (3, 4)] %}{{ a + b }}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for i in n %}{% endfor %}",
    "a\n  {% if yes %}\n  b\n  {% endif %}\nc\n", "a\n  {%- if yes -%}\n  b\n  {%- endif -%}\nc\n", "a\n  {%+ if yes +%}\n  b\n  {%+ endif +%}\nc\n", "  {{ n }}\n  {{- n -}}\n x", "{# c #}\n a {#- c -#} \n b", "  {# c #}  \nx", "{% raw %}\n {{ x }} {% endraw %}\n y", "a {%- raw -%} \n {{ x }} \n {%- endraw -%} \n y", "{% if yes %} {% endif %} {% if yes %}x{% endif %}",
    "{{-1}}{{+1}}{{ -1 }}", "{{ '}}' }}{{ \"%}\" }}{{ {'a': {'b': 1}} }}", "{{ 'a' 'b' \"c\" }}", "{{ '\\x41\\u00e9\\n\\t\\\\\\'\\q' }}", "{{ n, s }}", "{{ n if no }}", "{{ (n if no) is defined }}", "{{ missing }}{{ missing is defined }}{{ missing.x }}", "{{ none }}{{ none_ is none }}{{ none_.x }}{{ none_.x.y }}",
    "{{ d.a }}{{ d['a'] }}{{ d.zz }}{{ d['zz'] is defined }}{{ nested.items }}{{ nested['items'] }}{{ d.items is defined }}"[0:60] + "{{ nested.x.y[2].z }}", "{% for k, v in nested.items() %}{{ k }}{% endfor %}", "{{ l.append(4) }}", "{{ l.append is defined }}{{ d.pop }}{{ d.__class__ }}", "{{ d.update({'a': 1}) }}", "{{ s.__class__.__mro__ }}", "{{ raise_exception('no ' ~ n) }}", "{{ n / z }}", "{{ 1 < 'a' }}", "{{ 'a' + 1 }}", "{{ [1] + (2,) }}", "{{ undefined_name + 1 }}",
    "{% if yes %}{{ n | nofilter }}{% endif %}", "{% if no %}{{ n | nofilter }}{% endif %}ok", "{{ n | nofilter if no else 1 }}", "{{ n | nofilter }}", "{{ n is notest }}", "{% if no and n is notest %}{% endif %}x",
    "{% set it = l | map('string') %}{{ it | list }}{{ it | list }}{{ 'y' if it }}", "{{ l | map('upper') | first }}{{ (users | selectattr('age', 'eq', 99)) is iterable }}", "{% set j = joiner('|') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}",
    "{% generation %}{{ n }}{% set n = 1 %}{% endgeneration %}{{ n }}", "{{ strftime_now('%Y-%m-%d %H:%M:%S %a %A %b %B %j %y %-d/%-m %e %I %p %% %D|%F|%T|%R|%h') }}", "{{ strftime_now('%-H:%-M:%-S %-I %-j') }}",
    "{{ dict(a=1)['a'] }}{{ dict([('x', 1)]) }}{{ namespace({'a': 1}, b=2).b }}", "{{ f(*l) }}", "{% macro f(a, b, c) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(*l) }}{{ f(1, *[2], **{'c': 3}) }}", "{{ range(100001) }}", "{{ range(100000) | length }}", "{{ range(3) | list }}{{ range(1, 5, 2) | list }}{{ 2 in range(3) }}", "{{ 'x' * 3 | length }}{{ 2 * [1] }}{{ ('ab' | list) * 2 }}",
    "{% if n %}a{% elif z %}b{% else %}c{% endif %}{% if z %}a{% elif n %}b{% endif %}", "{% if %}{% endif %}", "{% for %}", "{% endif %}", "{{ }}", "{{ (1, ) }}{{ () }}", "{% do l %}", "{% include 'x' %}", "{{ 1 if }}", "{{ [1, }}", "{{ {1: } }}", "{% if yes %}", "{{ 'abc }}", "{{ n | }}", "{% break %}", "{% macro f() %}{% break %}{% endmacro %}", "{% set = 1 %}", "{% set true = 1 %}", "{% block x %}{% endblock %}"[0:0],
    "{{ users | map(attribute='name') | join(', ') }}{{ users | tojson }}{{ d | tojson(indent=2) }}{{ nested | tojson(separators=(',', ':'), sort_keys=true) }}{{ s | tojson(ensure_ascii=true) }}", "{{ mixed | tojson(indent=4) }}{{ [] | tojson(indent=1) }}{{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }}{{ missing | tojson }}", "{{ ('<a>' | safe) ~ '<b>' }}{{ '<a>' | safe + '<b>' }}{{ '<a>' + ('<b>' | safe) }}{{ d | tojson | safe }}{{ '<a>' | e }}{{ '<a>' | safe | e }}{{ ['<a>' | safe] }}{{ 'a<'.join(['<', '>']) }}{{ '<' | safe | string | length }}",
    "{{ -7 // 2 }}{{ -7 % 3 }}{{ 7 // -2 }}{{ 7 % -3 }}{{ big }}{{ big == big }}{{ big | tojson }}{{ big is integer }}{{ big | int }}{{ -0.0 }}{{ 1e300 * 1e10 }}{{ 7 / 2 }}{{ 4 / 2 }}", "{{ s[7] }}{{ s[-1] }}{{ s[7:9] }}{{ s[::-1] }}{{ s | length }}{{ s.count('l') }}{{ s.find('W') }}{{ s.index('🙂') }}", "{{ lines.splitlines() }}{{ t.split() }}{{ t.split(',') }}{{ 'a,b,c'.rsplit(',', 1) }}{{ t | trim }}|{{ lines | indent(2, true) }}",
]


def program(r, depth=4):
    """A template of nested blocks that set and read the same few names."""
    out = []
    for _ in range(r.randrange(1, 4)):
        n, k = r.choice("nmfz"), r.random()
        if k < 0.3 or depth == 0:
            out.append("{{ %s }};" % n)
        elif k < 0.5:
            out.append("{%% set %s = %s %%}" % (n, r.choice(["10", "n", "m ~ 'x'", "u", "v ~ 1", n])))
        elif k < 0.62:
            out.append("{%% if %s %%}%s{%% else %%}%s{%% endif %%}" % (r.choice(["yes", "no", "u", "loop.first"]) if depth < 3 else "no", program(r, depth - 1), program(r, depth - 1)))
        elif k < 0.76:
            out.append("{%% for %s in %s %%}%s%s{%% endfor %%}" % (r.choice("nmuv"), r.choice(["l[:2]", "[%s]" % n, "l[:2] if n"]), program(r, depth - 1), r.choice(["", "{% else %}" + program(r, depth - 1)])))
        elif k < 0.83:
            out.append("{%% with %s = %s %%}%s{%% endwith %%}" % (n, r.choice("nmuv"), program(r, depth - 1)))
        elif k < 0.9:
            f = r.choice(["q", "w"])
            out.append("{%% macro %s(%s) %%}%s{%% endmacro %%}%s" % (f, r.choice(["", "n", "u=m", "v=1"]), program(r, depth - 1), r.choice(["", "{{ %s() }}" % f, "{{ %s(5) }}" % f])))
        elif k < 0.94:
            out.append("{{ %s() }}" % r.choice(["q", "w"]))
        elif k < 0.97:
            out.append("{%% set %s %%}%s{%% endset %%}" % (n, program(r, depth - 1)))
        else:
            out.append("{%% call %s() %%}%s{%% endcall %%}" % (r.choice("qw"), program(r, depth - 1)))
    return "".join(out)


def programs(seed, n):
    r = random.Random(seed)
    while n > 0:
        s = program(r)
        if len(s) < 1200:
            n -= 1
            yield s


def constant_address(want):
    """Texts that hold an address differ in every run of Python."""
    return not re.search(r" at 0x[0-9a-f]+", want.get("text", ""), re.I)


def unsupported(answer):
    """What model/chat/jinja leaves out is an error that says so; its own tests have those."""
    return "not supported" in answer.get("error", "")


def expressions(seed, n):
    m = Maker(seed)
    while n > 0:
        x = m.any(m.r.choice([1, 1, 2, 2, 3]))
        if len(x) < 400:
            n -= 1
            yield "{{ " + x + " }}"


def render(source):
    try:
        template = chat_template_utils._compile_jinja_template(source)
    except Exception as e:
        return {"error": str(e)}
    want = reference(template, VARIABLES)
    if want.get("raised") is False:
        del want["raised"]
    return want


def main():
    p = argparse.ArgumentParser()
    p.add_argument("fixture", nargs="?", type=Path)
    p.add_argument("--compare", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--show", type=int, default=30)
    o = p.parse_args()
    sys.set_int_max_str_digits(4300)
    sources = [s for s in STATEMENTS if s]
    peer = Peer()
    if o.fixture:
        cases = [(s, render(s)) for s in (*sources, *(p for p in programs(o.seed, 400) if 60 < len(p) < 500))]
        for s in expressions(o.seed, 4000):
            want = render(s)
            # Most random expressions are errors; a few of those are enough.
            if unsupported(peer.ask(s, VARIABLES)):
                continue
            if constant_address(want) and len(want.get("text", "")) < 300 and ("text" in want or len(cases) % 10 == 0):
                cases.append((s, {"text": want["text"]} if "text" in want else {"error": True}))
            if len(cases) >= 1200:
                break
        lines = [json.dumps([s, want.get("text"), want["error"] if want.get("raised") else None], ensure_ascii=False) for s, want in cases]
        o.fixture.write_text('{"variables": ' + json.dumps(VARIABLES, ensure_ascii=False) + ',\n"cases": [\n' + ",\n".join(lines) + "\n]}\n")
        peer.close()
        print(f"{len(cases)} cases")
        return
    total = same = texts = left_out = 0
    for s in (*sources, *expressions(o.seed, o.compare), *programs(o.seed, o.compare // 4)):
        want = render(s)
        if not constant_address(want):
            continue
        got = peer.ask(s, VARIABLES)
        if "error" in got:
            got.pop("text", None)
        if unsupported(got):
            left_out += 1
            continue
        total += 1
        texts += "text" in want
        if agree(want, got):
            same += 1
        elif total - same <= o.show:
            print(f"{s}\n want {json.dumps(want, ensure_ascii=False)[:300]}\n got  {json.dumps(got, ensure_ascii=False)[:300]}")
    peer.close()
    print(f"{same} of {total} agree ({texts} are texts), and {left_out} use what is not supported")
    sys.exit(0 if same == total else 1)


if __name__ == "__main__":
    main()
