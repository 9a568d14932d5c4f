package datasets_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"glimpse/datasets"
)

var ordinals = strings.Fields("first second third fourth fifth sixth seventh eighth")

// longWordKinds says what each word of the long tasks is, from the order of the
// vocabulary.
func longWordKinds(t testing.TB) map[string]string {
	t.Helper()
	kinds := wordKinds(t)
	words := datasets.LongVocabulary()
	if len(words) != 480 || !slices.Equal(words[:384], datasets.Vocabulary()) {
		t.Fatalf("%d words, want those of Vocabulary and 96 more", len(words))
	}
	for id := 384; id < len(words); id++ {
		switch {
		case id >= 464:
			kinds[words[id]] = "colour"
		case id >= 400:
			kinds[words[id]] = "key"
		default:
			kinds[words[id]] = "template"
		}
	}
	if len(kinds) != 480 {
		t.Fatalf("%d different words, want 480", len(kinds))
	}
	return kinds
}

// longAnswer works out what a question about a long context asks for, by its rule
// alone.
func longAnswer(kinds map[string]string, question, context []string) ([]string, error) {
	kind := func(i int) string {
		if i < 0 || i >= len(context) {
			return ""
		}
		return kinds[context[i]]
	}
	switch question[0] {
	case "<ask>", "<chain>", "<copy>":
		return reading{question: question, context: context}.answer(kinds)
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
		for _, o := range ordinals {
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
			if w != best && n > max(1, times[best]*7/10) {
				return nil, fmt.Errorf("%s comes %d times, %s %d times: no clear lead", best, times[best], w, n)
			}
		}
		return []string{best}, nil
	}
	return nil, fmt.Errorf("unknown question %s", question)
}

// says is an error unless the rest of a question is the ordinal of n.
func says(question []string, n int) error {
	if len(question) != 1 || question[0] != ordinals[n-1] {
		return fmt.Errorf("the question ends with %s, and there are %d", question, n)
	}
	return nil
}

// checkTurns fails the test unless every turn of a long example answers its
// question.
func checkTurns(t testing.TB, kinds map[string]string, e datasets.Example) reading {
	t.Helper()
	r, err := read(wordsOf(t, e.Prompt))
	if err != nil {
		t.Fatalf("%s: %v", e.ID, err)
	}
	if r.questionFirst != strings.HasPrefix(e.Task, "q_") {
		t.Fatalf("%s: question first is %t", e.ID, r.questionFirst)
	}
	questions, answers := [][]string{r.question}, [][]int32{e.Answer}
	for _, turn := range e.Turns {
		q, ok := cutEnds(wordsOf(t, turn.Prompt), "<eot> <user>", "<eot> <header> <assistant> <newline>")
		if !ok {
			t.Fatalf("%s: a later prompt is not between the template's words", e.ID)
		}
		questions, answers = append(questions, q), append(answers, turn.Answer)
	}
	for i, q := range questions {
		want, err := longAnswer(kinds, q, r.context)
		if err != nil {
			t.Fatalf("%s: turn %d: %v", e.ID, i+1, err)
		}
		if got := wordsOf(t, answers[i]); !slices.Equal(got, want) || len(got) == 0 {
			t.Fatalf("%s: turn %d: answer %s, want %s", e.ID, i+1, got, want)
		}
		if i > 0 && slices.Equal(q, questions[i-1]) {
			t.Fatalf("%s: turn %d asks the same again", e.ID, i+1)
		}
	}
	return r
}

func TestLongTasks(t *testing.T) {
	want := strings.Fields("hops items key1 key4 most needle q_hops q_key1 q_key4 q_section section summary turns_key turns_section values")
	if got := datasets.LongTasks.Names(); !slices.Equal(got, want) {
		t.Errorf("long tasks %q, want %q", got, want)
	}
	for _, name := range want {
		if _, err := datasets.Tasks.Lookup(name); err == nil {
			t.Errorf("%s is also a task of the other registry", name)
		}
		if task, _ := datasets.LongTasks.Lookup(name); task.Name != name || task.Doc == "" || task.Default {
			t.Errorf("%s: registered as %q with doc %q, default %t", name, task.Name, task.Doc, task.Default)
		}
	}
}

// Every long task, at lengths at which something changes: exact length, and answers
// that follow from the prompt alone.
func TestLongAnswersFollowFromPrompts(t *testing.T) {
	kinds := longWordKinds(t)
	for _, name := range datasets.LongTasks.Names() {
		for _, tokens := range []int{datasets.MinTokens, 41, 43, 64, 72, 113, 133, 163, 256, 512, 1024, 2048, 5000} {
			s := newStream(t, []string{name}, datasets.Validation, tokens, 3)
			for i := range 5 {
				e := at(t, s, i)
				if len(e.Prompt) != tokens {
					t.Fatalf("%s: prompt of %d tokens, want %d", e.ID, len(e.Prompt), tokens)
				}
				if turns := 1 + len(e.Turns); (turns == 2) != strings.HasPrefix(name, "turns_") || turns > 2 {
					t.Fatalf("%s: %d turns", e.ID, turns)
				}
				checkTurns(t, kinds, e)
			}
		}
	}
}

// What contexts of 512 and of 2,048 tokens hold, whatever is asked.
func TestLongFacts(t *testing.T) {
	kinds := longWordKinds(t)
	mixed := map[int]map[string][2]int{
		512:  {"calls": {4, 8}, "<passage>": {1, 1}, "first": {1, 1}, "pairs": {18, 35}, "lists": {4, 8}, "section": {3, 16}, "items": {2, 6}, "colours": {2, 6}, "lead": {3, 12}},
		2048: {"calls": {6, 12}, "<passage>": {1, 1}, "first": {1, 1}, "pairs": {36, 72}, "lists": {6, 12}, "section": {3, 16}, "items": {2, 6}, "colours": {2, 6}, "lead": {3, 12}},
	}
	for _, name := range datasets.LongTasks.Names() {
		for tokens, ranges := range mixed {
			s := newStream(t, []string{name}, datasets.Test, tokens, 5)
			for i := range 12 {
				e := at(t, s, i)
				r := checkTurns(t, kinds, e)
				n := map[string]int{}
				times := map[string]int{}
				for i, w := range r.context {
					n[w]++
					n[kinds[w]]++
					if kinds[w] == "value" {
						times[w]++
						if times[w] > 1 && name != "summary" {
							t.Fatalf("%s: value %s is in two facts", e.ID, w)
						}
					}
					if kinds[w] == "key" && i+2 < len(r.context) && kinds[r.context[i+1]] == "value" {
						if kinds[r.context[i+2]] == "value" {
							n["pairs"]++
						} else {
							n["lists"]++
						}
					}
					if kinds[w] == "colour" && n[w] == 1 {
						n["colours"]++
					}
					if kinds[w] == "colour" {
						n["lead"] = max(n["lead"], n[w])
					}
					if slices.Contains(ordinals, w) {
						n["items"]++
					}
				}
				from, to := slices.Index(r.context, "<passage>"), slices.Index(r.context, "</passage>")
				n["section"] = to - from - 1
				want := ranges
				switch name {
				case "needle":
					want = map[string][2]int{"key": {1, 1}, "value": {2, 2}, "template": {0, 0}, "colour": {0, 0}}
				case "summary":
					want = map[string][2]int{"key": {0, 0}, "items": {2, 6}, "colour": {0, 0}, "calls": {0, 0}}
				}
				for what, limits := range want {
					if got := n[what]; got < limits[0] || got > limits[1] {
						t.Fatalf("%s: %d × %s in the context, want %d to %d", e.ID, got, what, limits[0], limits[1])
					}
				}
			}
		}
	}
}

// All lengths of answers occur, and what is asked for stands anywhere; judged as in
// TestDrawsAreUniform.
func TestLongDraws(t *testing.T) {
	kinds := longWordKinds(t)
	lengths := map[string][]int{"hops": {2, 3, 4}, "values": {2, 3, 4}, "items": {4, 6, 8, 10, 12}, "summary": {6, 9, 12, 15, 18}}
	for name, want := range lengths {
		s := newStream(t, []string{name}, datasets.Train, 512, 2)
		counts := map[int]int{}
		for i := range 500 {
			counts[len(at(t, s, i).Answer)]++
		}
		uniform(t, "answer lengths of "+name, counts, len(want))
		for _, n := range want {
			if counts[n] == 0 {
				t.Errorf("%s: no answer of %d tokens in 500", name, n)
			}
		}
	}
	s := newStream(t, []string{"key1", "most"}, datasets.Train, 512, 11)
	keys, colours, places := map[string]int{}, map[string]int{}, map[int]int{}
	for i := range 4000 {
		e := at(t, s, i)
		r := checkTurns(t, kinds, e)
		if e.Task == "most" {
			colours[wordsOf(t, e.Answer)[0]]++
			continue
		}
		keys[r.question[1]]++
		places[slices.Index(r.context, r.question[1])*16/len(r.context)]++
	}
	uniform(t, "asked keys", keys, 128)
	uniform(t, "places of the asked key", places, 16)
	uniform(t, "most frequent colours", colours, 16)
}

// goldenLong is what TestLongGolden saw when the long tasks were fixed. It changes
// only if a reference model is to be trained anew.
const goldenLong = "a47833337b0ec0b7f00fd101868ead44e1b62c8209033a2a9cb3de7858626e29"

func TestLongGolden(t *testing.T) {
	h := sha256.New()
	e := json.NewEncoder(h)
	for _, tokens := range []int{datasets.MinTokens, 512, 2048} {
		s := newStream(t, datasets.LongTasks.Names(), datasets.Test, tokens, 77)
		for i := range 30 {
			if err := e.Encode(at(t, s, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != goldenLong {
		t.Errorf("hash of the examples %s, want %s", got, goldenLong)
	}
}

func TestKnows(t *testing.T) {
	for _, c := range []struct {
		vocab int
		tasks []string
		want  bool
	}{
		{384, nil, true}, {384, []string{"copy"}, true}, {384, []string{"copy", "key1"}, false},
		{480, nil, true}, {480, []string{"copy", "key1"}, true},
		{32000, nil, false}, {32000, []string{"key1"}, false},
	} {
		if got := datasets.Knows(c.vocab, c.tasks...); got != c.want {
			t.Errorf("Knows(%d, %q) is %t, want %t", c.vocab, c.tasks, got, c.want)
		}
	}
	if _, err := datasets.StreamFor("tiny", 384, "key1", "test", 64, 0); err == nil || !strings.Contains(err.Error(), "does not know the words") {
		t.Errorf("a long task for the words of the others: error %v", err)
	}
	if _, err := datasets.StreamFor("tiny", 480, "long", "test", 64, 0); err != nil {
		t.Error(err)
	}
}

// TestNeedle: one name stands for the one fact of a prompt, whatever words a model knows.
func TestNeedle(t *testing.T) {
	needle, err := datasets.StreamFor("m", len(datasets.Vocabulary()), "needle", "test", 96, 1)
	if err != nil {
		t.Fatal(err)
	}
	single, err := datasets.StreamFor("m", len(datasets.Vocabulary()), "single", "test", 96, 1)
	if err != nil {
		t.Fatal(err)
	}
	a, errA := needle.Next()
	b, errB := single.Next()
	if errA != nil || errB != nil || !slices.Equal(a.Prompt, b.Prompt) {
		t.Errorf("%v, %v; prompts %v and %v", errA, errB, a.Prompt, b.Prompt)
	}
	if got := datasets.TaskFor(len(datasets.LongVocabulary()), "needle"); got != "needle" {
		t.Errorf("of the longer vocabulary: %s", got)
	}
}
