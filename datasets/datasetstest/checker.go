// Package datasetstest checks the examples of synthetic tasks by the words alone.
package datasetstest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"glimpse/datasets"
)

// Reading is a prompt as a person reads it: words, cut at the template's words.
// It shares no code with the generator, only the vocabulary.
type Reading struct {
	Question, Context []string
	QuestionFirst     bool
}

// Read cuts a prompt.
func Read(prompt []string) (Reading, error) {
	body, ok := cutEnds(prompt, "<bos> <user>", "<eot> <header> <assistant> <newline>")
	if !ok {
		return Reading{}, fmt.Errorf("prompt does not stand between <bos> <user> and the assistant header: %s", prompt)
	}
	begin, end := slices.Index(body, "<context>"), slices.Index(body, "</context>")
	if begin < 0 || end < begin || slices.Contains(body[end+1:], "</context>") || slices.Contains(body[begin+1:], "<context>") {
		return Reading{}, fmt.Errorf("prompt does not have one context: %s", prompt)
	}
	r := Reading{Context: body[begin+1 : end], QuestionFirst: begin > 0}
	before, after := body[:begin], body[end+1:]
	if len(before) > 0 && len(after) > 0 {
		return Reading{}, fmt.Errorf("question before and after the context: %s", prompt)
	}
	r.Question = slices.Concat(before, after)
	return r, nil
}

func cutEnds(words []string, head, tail string) ([]string, bool) {
	h, t := strings.Fields(head), strings.Fields(tail)
	if len(words) < len(h)+len(t) || !slices.Equal(words[:len(h)], h) || !slices.Equal(words[len(words)-len(t):], t) {
		return nil, false
	}
	return words[len(h) : len(words)-len(t)], true
}

// Ordinals are the words for places.
var Ordinals = strings.Fields("first second third fourth fifth sixth seventh eighth")

// RightAnswer works out what a question about a context asks for, by its rule
// alone.
func RightAnswer(kinds map[string]string, question, context []string) ([]string, error) {
	kind := func(i int) string {
		if i < 0 || i >= len(context) {
			return ""
		}
		return kinds[context[i]]
	}
	switch question[0] {
	case "<ask>":
		var values []string
		for _, key := range question[1:] {
			found := 0
			for i, w := range context[:len(context)-2] {
				if w == key && kinds[context[i+1]] == "value" && kinds[context[i+2]] == "value" {
					values = append(values, context[i+1], context[i+2])
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
		for i, w := range context {
			if w == "calls" {
				from, to := context[i-1], context[i+1]
				if next[from] != "" || kinds[from] != "key" || kinds[to] != "key" {
					return nil, fmt.Errorf("link %s calls %s: not between keys, or a second one", from, to)
				}
				next[from] = to
			}
		}
		var reached []string
		for at := next[question[1]]; at != ""; at = next[at] {
			reached = append(reached, at)
		}
		return reached, nil
	case "<copy>":
		text := strings.Join(context, " ")
		_, rest, ok1 := strings.Cut(text, "<passage> ")
		passage, rest, ok2 := strings.Cut(rest, " </passage>")
		if !ok1 || !ok2 || strings.Contains(rest, "passage>") {
			return nil, fmt.Errorf("context does not have one passage")
		}
		return strings.Fields(passage), nil
	case "<all>":
		var values []string
		for i, w := range context {
			if w == question[1] {
				if kind(i+1) != "value" || kind(i+2) == "value" {
					return nil, fmt.Errorf("key %s is not followed by one value", w)
				}
				values = append(values, context[i+1])
			}
		}
		return values, says(question[2:], len(values))
	case "<marks>", "<summary>":
		length := map[string]int{"<marks>": 1, "<summary>": 2}[question[0]]
		var out []string
		last := -1
		for _, o := range Ordinals {
			i := slices.Index(context, o)
			if i < 0 {
				break
			}
			if slices.Contains(context[i+1:], o) || length == 2 && i < last {
				return nil, fmt.Errorf("%s is there twice, or before its turn", o)
			}
			last = i
			out = append(out, context[i:i+1+length]...)
		}
		return out, says(question[1:], len(out)/(1+length))
	case "<most>":
		times, best := map[string]int{}, ""
		for i, w := range context {
			if kind(i) == "colour" {
				times[w]++
			}
		}
		for w, n := range times {
			if best == "" || n > times[best] {
				best = w
			}
		}
		for w, n := range times {
			if w != best && 2*n > times[best] {
				return nil, fmt.Errorf("%s comes %d times, %s %d times: no clear lead", best, times[best], w, n)
			}
		}
		return []string{best}, nil
	}
	return nil, fmt.Errorf("unknown question %s", question)
}

// says is an error unless the rest of a question is the ordinal of n.
func says(question []string, n int) error {
	if len(question) != 1 || question[0] != Ordinals[n-1] {
		return fmt.Errorf("the question ends with %s, and there are %d", question, n)
	}
	return nil
}

// WordKinds says what each word is, from the order of the vocabulary.
func WordKinds(t testing.TB) map[string]string {
	t.Helper()
	words := datasets.Vocabulary()
	kinds := map[string]string{}
	for id, w := range words {
		switch {
		case id >= 464:
			kinds[w] = "colour"
		case id >= 400:
			kinds[w] = "key"
		case id >= 384:
			kinds[w] = "template"
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
	if len(words) != 480 || len(kinds) != 480 {
		t.Fatalf("%d words, %d different, want 480", len(words), len(kinds))
	}
	return kinds
}

// WordsOf are the words of ids.
func WordsOf(t testing.TB, ids []int32) []string {
	t.Helper()
	text, err := datasets.WordsText(ids)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(text)
}

// CheckExample fails the test unless every turn of an example answers its
// question.
func CheckExample(t testing.TB, kinds map[string]string, e datasets.Example) Reading {
	t.Helper()
	r, err := Read(WordsOf(t, e.Prompt))
	if err != nil {
		t.Fatalf("%s: %v", e.ID, err)
	}
	if r.QuestionFirst != strings.HasPrefix(e.Task, "q_") {
		t.Fatalf("%s: question first is %t", e.ID, r.QuestionFirst)
	}
	questions, answers := [][]string{r.Question}, [][]int32{e.Answer}
	for _, turn := range e.Turns {
		q, ok := cutEnds(WordsOf(t, turn.Prompt), "<eot> <user>", "<eot> <header> <assistant> <newline>")
		if !ok {
			t.Fatalf("%s: a later prompt is not between the template's words", e.ID)
		}
		questions, answers = append(questions, q), append(answers, turn.Answer)
	}
	for i, q := range questions {
		want, err := RightAnswer(kinds, q, r.Context)
		if err != nil {
			t.Fatalf("%s: turn %d: %v", e.ID, i+1, err)
		}
		if got := WordsOf(t, answers[i]); !slices.Equal(got, want) || len(got) == 0 {
			t.Fatalf("%s: turn %d: answer %s, want %s", e.ID, i+1, got, want)
		}
		if i > 0 && slices.Equal(q, questions[i-1]) {
			t.Fatalf("%s: turn %d asks the same again", e.ID, i+1)
		}
	}
	return r
}
