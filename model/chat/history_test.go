package chat

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
)

// Outlines of how templates tell of calls.
const (
	printsObjects = `{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name + (c.function.arguments | tojson) }}{% endfor %}{% endfor %}`
	goesOverItems = `{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}{% for k, v in c.function.arguments | items %}[{{ k }}={{ v }}]{% endfor %}{% endfor %}{% endfor %}`
	addsText      = `{% for m in messages %}{{ '<' + m.role + '>' }}{% if m.content is none %}{% for c in m.tool_calls %}{{ c.function.name + c.function.arguments }}{% endfor %}{% else %}{{ m.content }}{% endif %}{% endfor %}`
	oneCall       = `{% for m in messages %}<{{ m.role }}>{% if 'tool_calls' in m %}{% if m.tool_calls | length != 1 %}{{ raise_exception('one call') }}{% endif %}{{ m.tool_calls[0].function.name ~ (m.tool_calls[0].function.arguments | tojson) }}{% else %}{{ m.content }}{% endif %}{% endfor %}`
	thinks        = `{% for m in messages %}<{{ m.role }}>{% if m.thinking and m.content and m.tool_calls %}{{ raise_exception('both') }}{% endif %}{{ m.thinking }}|{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}`
	reasons       = `{% for m in messages %}<{{ m.role }}>{{ m.reasoning_content }}|{{ m.content }}{% endfor %}`
)

// TestHistory: calls, contents and thoughts of earlier messages as APIs have them, in what templates make of them.
func TestHistory(t *testing.T) {
	call := func(arguments string) string {
		return `"tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": ` + arguments + `}}]`
	}
	for _, c := range []struct{ name, template, messages, want string }{
		{"text for an object", printsObjects, `[{"role": "assistant", "content": "", ` + call(`"{\"b\": 1, \"a\": \"é\"}"`) + `}]`, `<assistant>f{"b": 1, "a": "é"}`},
		{"an object", printsObjects, `[{"role": "assistant", "content": "", ` + call(`{"b": 1, "a": "é"}`) + `}]`, `<assistant>f{"b": 1, "a": "é"}`},
		{"text for items", goesOverItems, `[{"role": "assistant", "content": "", ` + call(`"{\"b\": [1], \"a\": \"x\"}"`) + `}]`, `<assistant>f[b=[1]][a=x]`},
		{"no arguments", goesOverItems, `[{"role": "assistant", "content": "", ` + call(`""`) + `}]`, `<assistant>f`},
		{"null arguments", goesOverItems, `[{"role": "assistant", "content": "", ` + call(`null`) + `}]`, `<assistant>f`},
		{"arguments that are no JSON", printsObjects, `[{"role": "assistant", "content": "", ` + call(`"{b"`) + `}]`, `<assistant>f"{b"`},
		{"arguments that are a number", printsObjects, `[{"role": "assistant", "content": "", ` + call(`"5"`) + `}]`, `<assistant>f"5"`},
		{"a call without function", `{% for m in messages %}{% for c in m.tool_calls %}{{ c.name }}{{ c.arguments.a }}{% endfor %}{% endfor %}`,
			`[{"role": "assistant", "content": "", "tool_calls": [{"name": "g", "arguments": "{\"a\": 7}"}]}]`, `g7`},
		{"null content beside calls", printsObjects, `[{"role": "assistant", "content": null, ` + call(`"{}"`) + `}]`, `<assistant>f{}`},
		{"no content beside calls", printsObjects, `[{"role": "assistant", ` + call(`"{}"`) + `}]`, `<assistant>f{}`},
		{"text, where calls are told of beside null", addsText, `[{"role": "assistant", ` + call(`"{\"a\": 1}"`) + `}]`, `<assistant>f{"a": 1}`},
		{"an object, where text is added", addsText, `[{"role": "assistant", "content": null, ` + call(`{"b": 2, "a": {"z": 1}}`) + `}]`, `<assistant>f{"b": 2, "a": {"z": 1}}`},
		{"null content", printsObjects, `[{"role": "user", "content": "A"}, {"role": "assistant", "content": null}]`, `<user>A<assistant>`},
		{"no calls", oneCall, `[{"role": "assistant", "content": "x", "tool_calls": []}, {"role": "assistant", "content": "y", "tool_calls": null}]`, `<assistant>x<assistant>y`},
		{"thoughts by another name", thinks, `[{"role": "assistant", "content": "a", "reasoning_content": "r"}]`, `<assistant>r|a`},
		{"thoughts by the template's name", reasons, `[{"role": "assistant", "content": "a", "reasoning_content": "r"}]`, `<assistant>r|a`},
		{"thoughts by a newer name", reasons, `[{"role": "assistant", "content": "a", "reasoning": "r", "reasoning_content": null}]`, `<assistant>r|a`},
		{"thoughts before a call", thinks, `[{"role": "assistant", "content": null, "reasoning_content": "r", ` + call(`"{}"`) + `}]`, `<assistant>r|f{}`},
		{"thoughts and text before a call", thinks, `[{"role": "assistant", "content": "a", "reasoning_content": "r", ` + call(`"{}"`) + `}]`, `<assistant>|af{}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var messages []Message
			if err := json.Unmarshal([]byte(c.messages), &messages); err != nil {
				t.Fatal(err)
			}
			before, err := json.Marshal(messages)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := render(t, c.template, Options{}, messages...); err != nil || got != c.want {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
			if after, _ := json.Marshal(messages); string(after) != string(before) {
				t.Errorf("the messages were changed: %s, were %s", after, before)
			}
		})
	}
}

// TestDropped: a role is dropped where nothing that it says is in the text, whatever else templates do with texts.
func TestDropped(t *testing.T) {
	const (
		chatML  = `{% for m in messages %}<|im_start|>{{ m.role }}|{{ m.content | trim }}<|im_end|>{% endfor %}`
		known   = `{% for m in messages %}{% if m.role in ['user', 'assistant', 'system'] %}{{ m.role }}: {{ m.content | trim }}{% elif m.role == 'tool' %}{{ m.content | tojson }}{% endif %}{% endfor %}`
		raising = `{% for m in messages %}{% if m.role not in ['user', 'assistant'] %}{{ raise_exception('role') }}{% endif %}{{ m.content }}{% endfor %}`
		atLast  = `{% for m in messages %}{% if m.role == 'user' %}{% if loop.last %}{{ messages[0].content if messages[0].role == 'system' }}{% endif %}{{ m.content }}{% elif m.role != 'system' %}{{ m.content }}{% endif %}{% endfor %}`
		merges  = `{% set s = messages | selectattr('role', 'equalto', 'system') | map(attribute='content') | join(' ') %}{% for m in messages %}{% if m.role == 'user' %}{{ s ~ m.content }}{% elif m.role == 'assistant' %}{{ m.content.split('</think>')[-1] }}{% endif %}{% endfor %}`
		paired  = `{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}{{ m.content }}{% endfor %}`
		noTools = `{% for m in messages %}{% if m.role == 'user' or m.role == 'assistant' and not m.tool_calls %}{{ m.content }}{% endif %}{% endfor %}`
	)
	for _, c := range []struct{ name, template, messages, want string }{
		{"a misspelt role", known, `[{"role": "User", "content": "a"}, {"role": "user", "content": "b"}]`, "User"},
		{"in parts", known, `[{"role": "User", "content": [{"type": "text", "text": "a"}]}, {"role": "user", "content": "b"}]`, "User"},
		{"at the end", known, `[{"role": "user", "content": "b"}, {"role": "critic", "content": "b"}]`, "critic"},
		{"whose text another says", known, `[{"role": "user", "content": "b"}, {"role": "critic", "content": "b"}]`, "critic"},
		{"any role is told", chatML, `[{"role": "User", "content": " a "}, {"role": "user", "content": "b"}]`, ""},
		{"trimmed and as JSON", known, `[{"role": "user", "content": " b "}, {"role": "tool", "content": "\"x\"\n"}]`, ""},
		{"refused", raising, `[{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]`, ""},
		{"left out of this conversation alone", atLast, `[{"role": "system", "content": "s"}, {"role": "user", "content": "b"}, {"role": "tool", "content": "c"}]`, ""},
		{"merged, and without thoughts", merges, `[{"role": "system", "content": "s"}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "t</think>"}, {"role": "user", "content": "c"}]`, ""},
		{"in turns", paired, `[{"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}]`, ""},
		{"says nothing", known, `[{"role": "User", "content": ""}, {"role": "user", "content": "b"}]`, ""},
		{"content beside calls", noTools, `[{"role": "user", "content": "b"}, {"role": "assistant", "content": "c", "tool_calls": [{}]}]`, ""},
		{"results of tools", noTools, `[{"role": "user", "content": "b"}, {"role": "tool", "content": "c"}]`, "tool"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var messages []Message
			if err := json.Unmarshal([]byte(c.messages), &messages); err != nil {
				t.Fatal(err)
			}
			template, err := Parse(c.template)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time from memory
				if got, ok := template.Dropped(context.Background(), messages, Options{AddGenerationPrompt: true}); got != c.want || ok != (c.want != "") {
					t.Errorf("got %q, %v; want %q", got, ok, c.want)
				}
			}
		})
	}
	template, err := Parse(known)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		template.Dropped(context.Background(), []Message{{Role: strings.Repeat("r", i), Content: "x"}}, Options{})
	}
	if n := len(template.roles.known); n > maxRoles {
		t.Errorf("%d roles are remembered, want at most %d", n, maxRoles)
	}
}
