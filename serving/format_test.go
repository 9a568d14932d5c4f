package serving_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestFormats: what answers are held to by a request's fields.
func TestFormats(t *testing.T) {
	s := serveTemplate(t, callsTemplate)
	const message = `"messages":[{"role":"user","content":"never"}],"max_tokens":60,"temperature":0`
	digits := func(keyword string) string {
		return `{"type":"object","properties":{"a":{"enum":[10,20,30]` + keyword + `}},"required":["a"],"additionalProperties":false}`
	}
	for _, c := range []struct{ name, fields, says string }{
		{"a keyword that no draft has", `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":` + digits(`,"x-order":1`) + `}}`, ""},
		{"schema of json_object", `"response_format":{"type":"json_object","schema":` + digits("") + `}`, ""},
		{"keyword that is not enforced, of json_object", `"response_format":{"type":"json_object","schema":{"unevaluatedProperties":false}}`, "#/unevaluatedProperties"},
		{"ambiguous grammar", `"structured_outputs":{"grammar":"root ::= \"{\\\"a\\\":10}\" | e\ne ::= \"{\" e | \"{\" e e | \"{\" e e e | \"{\\\"a\\\":10}\""}`, ""},
		{"grammar that begins with itself", `"structured_outputs":{"grammar":"root ::= s\ns ::= s s | \"a\""}`, "rule s is left-recursive"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, _, says, ignored := s.raw(t, "/v1/chat/completions", `{`+message+`,`+c.fields+`}`)
			switch {
			case c.says != "":
				if status != 400 || !strings.Contains(says, c.says) {
					t.Errorf("%d %q, want 400 that says %q", status, says, c.says)
				}
			case status != 200 || ignored != "":
				t.Errorf("%d %q, ignored %q, want 200", status, says, ignored)
			case strings.Contains(c.fields, "response_format"):
				_, answer := s.post(t, "/v1/chat/completions", `{`+message+`,`+c.fields+`}`)
				choice := answer["choices"].([]any)[0].(map[string]any)
				content, _ := choice["message"].(map[string]any)["content"].(string)
				var said struct{ A int }
				if err := json.Unmarshal([]byte(content), &said); choice["finish_reason"] == "stop" && (err != nil || said.A != 10 && said.A != 20 && said.A != 30) || !strings.HasPrefix(content, "{") {
					t.Errorf("the answer is %q, want an object with a of 10, 20 or 30", content)
				}
			}
		})
	}
}
