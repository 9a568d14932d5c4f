package datasets_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"glimpse/datasets"
)

// reading is a prompt as a person reads it: words, cut at the template's words.
// It shares no code with the generator, only the vocabulary.
type reading struct {
	question, context []string
	questionFirst     bool
}

func read(prompt []string) (reading, error) {
	body, ok := cutEnds(prompt, "<bos> <user>", "<eot> <header> <assistant> <newline>")
	if !ok {
		return reading{}, fmt.Errorf("prompt does not stand between <bos> <user> and the assistant header: %s", prompt)
	}
	begin, end := slices.Index(body, "<context>"), slices.Index(body, "</context>")
	if begin < 0 || end < begin || slices.Contains(body[end+1:], "</context>") || slices.Contains(body[begin+1:], "<context>") {
		return reading{}, fmt.Errorf("prompt does not have one context: %s", prompt)
	}
	r := reading{context: body[begin+1 : end], questionFirst: begin > 0}
	before, after := body[:begin], body[end+1:]
	if len(before) > 0 && len(after) > 0 {
		return reading{}, fmt.Errorf("question before and after the context: %s", prompt)
	}
	r.question = slices.Concat(before, after)
	return r, nil
}

func cutEnds(words []string, head, tail string) ([]string, bool) {
	h, t := strings.Fields(head), strings.Fields(tail)
	if len(words) < len(h)+len(t) || !slices.Equal(words[:len(h)], h) || !slices.Equal(words[len(words)-len(t):], t) {
		return nil, false
	}
	return words[len(h) : len(words)-len(t)], true
}

// answer works out what the question asks for by its rule alone.
func (r reading) answer(kinds map[string]string) ([]string, error) {
	if len(r.question) == 0 {
		return nil, fmt.Errorf("no question")
	}
	subjects := r.question[1:]
	switch r.question[0] {
	case "<ask>":
		var values []string
		for _, key := range subjects {
			found := 0
			for i, w := range r.context[:len(r.context)-2] {
				if w == key && kinds[r.context[i+1]] == "value" && kinds[r.context[i+2]] == "value" {
					values = append(values, r.context[i+1], r.context[i+2])
					found++
				}
			}
			if found != 1 {
				return nil, fmt.Errorf("key %s has %d pairs, want 1", key, found)
			}
		}
		return values, nil
	case "<chain>":
		next := map[string]string{}
		for i, w := range r.context {
			if w == "calls" {
				from, to := r.context[i-1], r.context[i+1]
				if next[from] != "" || kinds[from] != "key" || kinds[to] != "key" {
					return nil, fmt.Errorf("link %s calls %s: not between keys, or a second one", from, to)
				}
				next[from] = to
			}
		}
		var reached []string
		for at := next[subjects[0]]; at != ""; at = next[at] {
			reached = append(reached, at)
		}
		return reached, nil
	case "<copy>":
		text := strings.Join(r.context, " ")
		_, rest, ok1 := strings.Cut(text, "<passage> ")
		passage, rest, ok2 := strings.Cut(rest, " </passage>")
		if !ok1 || !ok2 || strings.Contains(rest, "passage>") {
			return nil, fmt.Errorf("context does not have one passage")
		}
		return strings.Fields(passage), nil
	case "<marks>":
		var out []string
		for _, mark := range []string{"first", "second", "third", "fourth"} {
			if i := slices.Index(r.context, mark); i >= 0 {
				out = append(out, mark, r.context[i+1])
			}
		}
		return out, nil
	}
	return nil, fmt.Errorf("unknown question %s", r.question)
}

// wordKinds says what each word is, from the order of the vocabulary.
func wordKinds(t testing.TB) map[string]string {
	t.Helper()
	words := datasets.Vocabulary()
	if len(words) != 384 {
		t.Fatalf("vocabulary holds %d words, want 384", len(words))
	}
	kinds := map[string]string{}
	for id, w := range words {
		switch {
		case id >= 320:
			kinds[w] = "filler"
		case id >= 96:
			kinds[w] = "value"
		case id >= 32:
			kinds[w] = "key"
		default:
			kinds[w] = "template"
		}
	}
	if len(kinds) != 384 {
		t.Fatalf("vocabulary holds %d different words, want 384", len(kinds))
	}
	return kinds
}

func wordsOf(t testing.TB, ids []int32) []string {
	t.Helper()
	text, err := datasets.Text(ids)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(text)
}

// checkExample fails the test unless the example answers its question.
func checkExample(t testing.TB, kinds map[string]string, e datasets.Example) reading {
	t.Helper()
	r, err := read(wordsOf(t, e.Prompt))
	if err != nil {
		t.Fatalf("%s: %v", e.ID, err)
	}
	want, err := r.answer(kinds)
	if err != nil {
		t.Fatalf("%s: %v", e.ID, err)
	}
	if got := wordsOf(t, e.Answer); !slices.Equal(got, want) || len(got) == 0 {
		t.Fatalf("%s: answer %s, want %s", e.ID, got, want)
	}
	if r.questionFirst != strings.HasPrefix(e.Task, "q_") {
		t.Fatalf("%s: question first is %t", e.ID, r.questionFirst)
	}
	return r
}
