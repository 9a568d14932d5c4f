package chat

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// expectation is what Python's Jinja made of a template and a case: a text, or
// the message of an exception.
type expectation struct {
	Out *string
	Err *string
}

// runCases renders every case with every template and compares.
func runCases(t *testing.T, folder string) {
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	parsed, err := ParseJSON(read("cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	cases := parsed.([]any)
	var expected map[string]map[string]expectation
	if err := json.Unmarshal(read("expected.json"), &expected); err != nil {
		t.Fatal(err)
	}
	if len(cases) == 0 || len(expected) == 0 {
		t.Fatalf("%d cases for %d templates", len(cases), len(expected))
	}
	for _, file := range slices.Sorted(maps.Keys(expected)) {
		template, err := Parse(string(read(file)))
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		for _, c := range cases {
			name, _ := c.(Object).Get("name")
			want, ok := expected[file][name.(string)]
			if !ok {
				t.Errorf("%s: nothing expected of case %s", file, name)
				continue
			}
			t.Run(file+"/"+name.(string), func(t *testing.T) {
				given, _ := c.(Object).Get("ctx")
				variables := map[string]any{}
				for _, m := range given.(Object) {
					variables[m.Key] = m.Value
				}
				got, err := template.render(context.Background(), variables, time.Time{})
				checkRendering(t, got, err, want)

				// The same by way of messages and options, as callers do it.
				var messages []Message
				list, _ := given.(Object).Get("messages")
				for _, m := range list.([]any) {
					var message Message
					if err := message.fromObject(m.(Object)); err != nil {
						t.Fatal(err)
					}
					messages = append(messages, message)
				}
				delete(variables, "messages")
				got, err = template.Render(context.Background(), messages, Options{Extra: variables})
				checkRendering(t, got, err, want)

				// And with arguments as JSON text, as OpenAI's API has them.
				got, err = template.Render(context.Background(), withTextArguments(t, messages), Options{Extra: variables})
				checkRendering(t, got, err, want)
			})
		}
	}
}

// withTextArguments are the messages with the arguments of calls as JSON text.
func withTextArguments(t *testing.T, messages []Message) []Message {
	t.Helper()
	var out []Message
	for _, m := range messages {
		if calls, _ := m.Extra.Get("tool_calls"); calls != nil {
			m.Extra = with(m.Extra, "tool_calls", callsAs(calls.([]any), form{text: true}))
			if raw, err := json.Marshal(m.Extra); err != nil || !strings.Contains(string(raw), `"arguments":"{`) {
				t.Fatalf("%s, %v: no arguments in text", raw, err)
			}
		}
		out = append(out, m)
	}
	return out
}

func checkRendering(t *testing.T, got string, err error, want expectation) {
	t.Helper()
	switch {
	case want.Out != nil:
		if err != nil || got != *want.Out {
			t.Errorf("got %q, %v\nwant %q", got, err, *want.Out)
		}
	case want.Err != nil:
		var raised *RaisedError
		if !errors.As(err, &raised) || raised.Message != *want.Err {
			t.Errorf("error %v, want the exception %q", err, *want.Err)
		}
	default:
		t.Error("nothing expected")
	}
}

// TestRealTemplates renders the templates of the data folder that GLIMPSE_DATA
// names; with the variable set a missing file is a failure.
func TestRealTemplates(t *testing.T) {
	root := os.Getenv("GLIMPSE_DATA")
	if root == "" {
		t.Skip("GLIMPSE_DATA does not name a data folder: the real templates are not tested")
	}
	runCases(t, filepath.Join(root, "chat_templates"))
}

// TestTemplates renders the templates of testdata (expectations made by
// lab/golden/chat_fixtures.py).
func TestTemplates(t *testing.T) { runCases(t, "testdata") }
