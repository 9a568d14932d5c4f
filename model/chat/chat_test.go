package chat

import (
	"context"
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
	return template.Render(context.Background(), messages, o)
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
		{"nothing set", Options{}, "FalseTrueFalse"}, // tools are none, as transformers has them
		{"all set", Options{AddGenerationPrompt: true, BOS: "<s>", EOS: "</s>", Tools: []any{"t"}, Now: time.Unix(0, 0), Extra: map[string]any{"k": "v"}}, "<s></s>TrueTrueTruev"},
		{"extra wins", Options{BOS: "<s>", Extra: map[string]any{"bos_token": "x"}}, "xFalseTrueFalse"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := render(t, source, c.o); err != nil || got != c.want {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
	now := time.Date(2024, 7, 6, 15, 4, 5, 0, time.UTC)
	if got, err := render(t, "{{ bos_token is defined }}{{ tools is none }}{{ documents is none }}", Options{}); err != nil || got != "FalseTrueTrue" {
		t.Errorf("got %q, %v", got, err)
	}
	got, err := render(t, `{{ strftime_now("%d %b %Y, %-d/%-m %H:%M:%S %% %j") }}`, Options{Now: now})
	if want := "06 Jul 2024, 6/7 15:04:05 % 188"; err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if _, err := render(t, "a", Options{Extra: map[string]any{"c": make(chan int)}}); err == nil || !strings.Contains(err.Error(), `variable "c"`) {
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
			Message{Role: "user", Content: "a", Extra: Object{{Key: "z", Value: int64(1)}, {Key: "b", Value: []any{true, 2.5}}}}, `{"role": "user", "content": "a", "z": 1, "b": [true, 2.5]}`},
		{"null", `{"role":"assistant","content":null}`, Message{Role: "assistant", Extra: Object{{Key: "content", Value: nil}}}, `{"role": "assistant", "content": ""}`},
		{"parts", `{"role":"user","content":[{"type":"text","text":"x"}]}`,
			Message{Role: "user", Extra: Object{{Key: "content", Value: []any{Object{{Key: "type", Value: "text"}, {Key: "text", Value: "x"}}}}}}, `{"role": "user", "content": [{"type": "text", "text": "x"}]}`},
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

// TestUnread: keys that a template names nowhere, each once; prose is no name, and thoughts are read by another one.
func TestUnread(t *testing.T) {
	template, err := Parse("reasoning name{% for m in messages %}{{ m.content }}{{ m['tool_call_id'] }}{% if 'thinking' in m %}x{% endif %}{{ m.tool_calls }}{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	var extra Object
	for _, key := range []string{"name", "tool_calls", "tool_call_id", "thinking", "reasoning", "content"} {
		extra = append(extra, Member{Key: key, Value: []any{}})
	}
	if got := template.Unread([]Message{{Extra: extra}, {Extra: extra}}, []any{"t"}); !reflect.DeepEqual(got, []string{"tools", "name"}) {
		t.Errorf("got %q", got)
	}
	if got := template.Unread([]Message{{Role: "user"}}, nil); got != nil {
		t.Errorf("got %q of a message without further keys", got)
	}
}

// TestWithText: other text in the place of what was said, in the form that it had.
func TestWithText(t *testing.T) {
	for given, want := range map[string]string{
		`{"role": "user", "content": "a", "n": 1}`:                                                    `{"role": "user", "content": "x", "n": 1}`,
		`{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}`: `{"role": "user", "content": [{"type": "text", "text": "x"}]}`,
		`{"role": "user", "n": 1}`:                                                                    `{"role": "user", "content": "x", "n": 1}`,
	} {
		var m Message
		if err := json.Unmarshal([]byte(given), &m); err != nil {
			t.Fatal(err)
		}
		if got, err := render(t, "{{ messages[0] | tojson }}", Options{}, m.WithText("x")); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", given, got, err, want)
		}
		if got, err := render(t, "{{ messages[0] | tojson }}", Options{}, m); err != nil || got != given {
			t.Errorf("%s has become %s, %v", given, got, err)
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
				got, err := template.Render(context.Background(), []Message{{Role: "user", Content: text}, {Role: "user", Content: "y"}}, Options{})
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
		if _, err := template.Render(context.Background(), messages, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzTemplate checks that no source makes Parse or Render fail other than by an
// error.
