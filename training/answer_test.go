package training

import (
	"testing"

	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestAnswers: an answer has the same number of tokens whatever the prompt's length, and what is compared of it is what was asked for: of a
// short prompt all of it, of a response as many tokens as it has.
func TestAnswers(t *testing.T) {
	m := modeltest.Llama{Vocab: 30}.Open(t, "reference64")
	for _, c := range []struct {
		label            string
		prompt, response int
		to               int
	}{{"context-mean", 20, 0, 20}, {"context-mean", 300, 0, answerTokens}, {"", 20, 7, 7}, {"", 20, 200, answerTokens}} {
		r, cache, l := runner.New(m), kvcache.New(m), mustLabel(t, c.label)
		s := Sample{ID: "a", Prompt: modeltest.Tokens(m, 1, c.prompt), Response: modeltest.Tokens(m, 2, max(1, c.response))}
		if _, err := r.Prefill(t.Context(), cache, s.Prompt, runner.PrefillOptions{CacheOnly: true}); err != nil {
			t.Fatal(err)
		}
		a, err := newAnswer(t.Context(), r, cache, s, l)
		if err != nil || a == nil {
			t.Fatalf("%+v: %v, %v", c, a, err)
		}
		if len(a.tokens) != answerTokens || a.teacher.Dim0() != answerTokens || a.from < 0 || a.from >= a.to || a.to < c.to-8 || a.to > c.to {
			t.Errorf("%+v: %d tokens, compared from %d to %d", c, len(a.tokens), a.from, a.to)
		}
	}
}
