package serving_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/serving"
)

// keptText is what of a prompt every head has kept, by the usage of an answer with it, "·" between what is apart; and the usage.
func (s *served) keptText(t *testing.T, path, body string) (kept string, usage map[string]any) {
	t.Helper()
	status, answer := s.post(t, path, body)
	if status != 200 {
		t.Fatalf("status %d: %v", status, answer)
	}
	usage = answer["usage"].(map[string]any)["eviction"].(map[string]any)
	apart := false
	for _, x := range usage["tokens"].([]any) {
		token := x.([]any)
		if token[1].(float64) < 1 {
			apart = true
			continue
		}
		if apart && kept != "" {
			kept += "·"
		}
		apart = false
		kept += strings.ReplaceAll(token[0].(string), "↵", "")
	}
	return kept, usage
}

// TestKeep: what has to stay of conversations does, in all heads, and the budget counts it.
func TestKeep(t *testing.T) {
	s := serveTemplate(t, callsTemplate)
	text := strings.Repeat("filling words here. ", 20)
	tools := `"tools":[{"type":"function","function":{"name":"weatherman","parameters":{}}}]`
	messages := func(parts string) string {
		return `"max_tokens":2,"temperature":0,"messages":[{"role":"system","content":"Say ONE."},{"role":"user","content":"` + text + `"},{"role":"assistant","content":"Yes."},{"role":"user","content":` + parts + `}]`
	}
	last := `[{"type":"text","text":"Code 73519 and ` + text + `"},{"type":"text","text":"Stay here.","keep":true},{"type":"text","text":" And there.","cache_control":{"type":"ephemeral"}}]`
	for _, c := range []struct {
		name, eviction string
		want           []string
		not            []string
	}{
		{"nothing but marked parts", `{"kept":true,"budget":"100"}`, []string{"Stay here."}, []string{"Say ONE.", "weatherman"}},
		{"system", `{"kept":true,"budget":"140","keep":["system"]}`, []string{"<|system|>Say ONE.<|user|>", "Stay here."}, nil},
		{"tools", `{"kept":true,"budget":"100","keep":["tools"]}`, []string{"<tools>weatherman</tools>"}, []string{"Say ONE."}},
		{"a pattern", `{"kept":true,"budget":"100","keep_pattern":"[0-9]{4,}"}`, []string{"73519"}, []string{"Say ONE."}},
		{"all of it", `{"kept":true,"budget":"160","keep":["system","tools"],"keep_pattern":"[0-9]{4,}"}`, []string{"weatherman", "Say ONE.", "73519", "Stay here."}, nil},
		{"more than the budget", `{"kept":true,"budget":"40","keep":["last"]}`, []string{"<|user|>Code 73519 and " + text + "Stay here. And there.<|assistant|>"}, []string{"Say ONE."}},
		{"fair", `{"kept":true,"budget":"120","keep":["fair"]}`, []string{"Stay here."}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			kept, usage := s.keptText(t, "/v1/chat/completions", fmt.Sprintf(`{%s,%s,"eviction":%s}`, messages(last), tools, c.eviction))
			for _, want := range c.want {
				if !strings.Contains(kept, want) {
					t.Errorf("every head keeps %q, want %q among it", kept, want)
				}
			}
			for _, not := range c.not {
				if strings.Contains(kept, not) {
					t.Errorf("every head keeps %q", not)
				}
			}
			var asked struct{ Budget string }
			if err := json.Unmarshal([]byte(c.eviction), &asked); err != nil {
				t.Fatal(err)
			}
			entries, budget := usage["kept_entries"].(float64), usage["budget"].(float64)
			if fmt.Sprint(budget) != asked.Budget && c.name != "more than the budget" || entries > budget {
				t.Errorf("a budget of %v and %v entries, want at most %s", budget, entries, asked.Budget)
			}
			if stay := usage["stay_tokens"].(float64); stay < 10 || stay > budget {
				t.Errorf("%v tokens stay under a budget of %v", stay, budget)
			}
		})
	}
	for name, c := range map[string]struct{ eviction, param, says string }{
		"a wrong word":      {`{"keep":["sistem"]}`, "eviction.keep", `did you mean "system"`},
		"a wrong pattern":   {`{"keep_pattern":"("}`, "eviction.keep_pattern", "missing closing"},
		"no room":           {`{"budget":"40","keep":["last","strict"]}`, "eviction.keep", "half is for the rest"},
		"nothing is ranked": {`{"policy":"streamingllm","keep":["fair"]}`, "eviction.keep", "cannot be shared out"},
	} {
		status, param, says, _ := s.raw(t, "/v1/chat/completions", fmt.Sprintf(`{%s,"eviction":%s}`, messages(last), c.eviction))
		if status != 400 || param != c.param || !strings.Contains(says, c.says) {
			t.Errorf("%s: status %d, %q, %q", name, status, param, says)
		}
	}
	// The same through the API of Anthropic, and of a completion by its pattern.
	kept, _ := s.keptText(t, "/v1/completions", `{"prompt":"Code 73519 and `+text+`","max_tokens":2,"eviction":{"kept":true,"budget":"40","keep_pattern":"[0-9]+"}}`)
	if !strings.Contains(kept, "73519") {
		t.Errorf("of a completion every head keeps %q", kept)
	}
	status, answer := s.post(t, "/v1/messages", `{"model":"tiny","max_tokens":2,"system":[{"type":"text","text":"Say ONE.","keep":true}],"messages":[{"role":"user","content":"`+text+text+`"}]}`)
	if status != 200 {
		t.Fatalf("status %d: %v", status, answer)
	}
}

// TestKeepOfContexts: what stays of a context does, however many questions follow, and another context is made for other rules.
func TestKeepOfContexts(t *testing.T) {
	s := serveTemplate(t, callsTemplate)
	text := strings.Repeat("filling words here. ", 20)
	status, made := s.post(t, "/v1/contexts", bodyOf(map[string]any{"name": "doc", "text": text + " 73519 " + text, "eviction": map[string]any{"kept": true, "budget": "100", "keep_pattern": "[0-9]{4,}"}}))
	if status != 200 {
		t.Fatalf("status %d: %v", status, made)
	}
	at := 0
	for _, x := range made["kept"].([]any) {
		token := x.([]any)
		if token[1].(float64) == 1 && at < 5 && token[0].(string) == "73519"[at:at+1] {
			at++
		}
	}
	if at < 5 || made["stays"] == nil {
		t.Errorf("the context keeps %d figures of 5, and says %v", at, made["stays"])
	}
	for i := range 2 {
		status, answer := s.post(t, "/v1/chat/completions", `{"max_tokens":2,"messages":[{"role":"user","content":"What? `+fmt.Sprint(i)+`"}],"eviction":{"context":"doc"}}`)
		if status != 200 {
			t.Fatalf("status %d: %v", status, answer)
		}
		usage := answer["usage"].(map[string]any)
		if cached := usage["prompt_tokens_details"].(map[string]any)["cached_tokens"].(float64); cached < 800 {
			t.Errorf("question %d: %v tokens were there, want the context's", i, cached)
		}
	}
}

// TestFairNeedsScores: a server whose policy ranks nothing says so when it starts, and not with every request.
func TestFairNeedsScores(t *testing.T) {
	m, err := engine.Open(t.Context(), &engine.Options{Device: "cpu", CacheDType: "auto", Policies: "streamingllm"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c := serving.Config{Name: "tiny", Policy: "streamingllm", Budget: eviction.Pairs(64), MaxNew: 8, Rows: 1, Queue: 1, MaxBody: 1 << 20, Keep: engine.KeepRules{Fair: true}, Log: slog.New(slog.DiscardHandler)}
	if _, err := serving.New(m, c); err == nil || !strings.Contains(err.Error(), "cannot be shared out") {
		t.Errorf("error %v", err)
	}
}
