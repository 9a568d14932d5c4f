package datasets_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"glimpse/datasets"
)

func newStream(t testing.TB, tasks []string, split datasets.Split, tokens int, seed uint64) *datasets.Stream {
	t.Helper()
	s, err := datasets.NewStream(tasks, split, tokens, seed)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func at(t testing.TB, s *datasets.Stream, i int) datasets.Example {
	t.Helper()
	e, err := s.At(i)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// The reference model answers these nine with the full cache.
func TestDefaultTasks(t *testing.T) {
	want := []string{"ask1", "ask4", "chain", "copy", "marks", "q_copy", "q_marks", "q_single", "single"}
	if got := datasets.DefaultTasks(); !slices.Equal(got, want) {
		t.Errorf("default tasks %q, want %q", got, want)
	}
	all := slices.Sorted(slices.Values(append(want, "q_chain", "turns")))
	if got := datasets.Tasks.Names(); !slices.Equal(got, all) {
		t.Errorf("all tasks %q, want %q", got, all)
	}
}

func TestParseTasks(t *testing.T) {
	for _, c := range []struct {
		name, list string
		want       []string
		wantErr    string
	}{
		{"default", "default", datasets.DefaultTasks(), ""},
		{"all", "all", datasets.Tasks.Names(), ""},
		{"order is kept", "copy,ask1", []string{"copy", "ask1"}, ""},
		{"unknown", "copy,aks1", nil, `task list "copy,aks1": unknown task "aks1", want one of: ask1, ask4`},
		{"twice", "copy,copy", nil, "got copy twice"},
		{"empty", "", nil, `unknown task ""`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := datasets.ParseTasks(c.list)
			if c.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantErr) {
					t.Fatalf("error %v, want %q in it", err, c.wantErr)
				}
				return
			}
			if err != nil || !slices.Equal(got, c.want) {
				t.Fatalf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

// Every registered task, at every length where something changes: exact length,
// and an answer that follows from the prompt alone.
func TestAnswersFollowFromPrompts(t *testing.T) {
	kinds := wordKinds(t)
	for _, name := range datasets.Tasks.Names() {
		for _, tokens := range []int{datasets.MinTokens, 41, 42, 43, 44, 64, 95, 96, 130, 159, 160, 256, 512, 1500} {
			s := newStream(t, []string{name}, datasets.Train, tokens, 3)
			for i := range 10 {
				e := at(t, s, i)
				if len(e.Prompt) != tokens {
					t.Fatalf("%s: prompt of %d tokens, want %d", e.ID, len(e.Prompt), tokens)
				}
				checkExample(t, kinds, e)
			}
		}
	}
}

// The second turn stands after the answer, asks for the passage of the first
// turn's context and shares no word with the first answer. Only "turns" has one.
func TestSecondTurn(t *testing.T) {
	kinds := wordKinds(t)
	for _, name := range datasets.Tasks.Names() {
		for _, tokens := range []int{datasets.MinTokens, 100, 512} {
			s := newStream(t, []string{name}, datasets.Test, tokens, 3)
			for i := range 10 {
				e := at(t, s, i)
				if name != "turns" {
					if len(e.Turns) != 0 {
						t.Fatalf("%s: %d further turns", e.ID, len(e.Turns))
					}
					continue
				}
				if len(e.Turns) != 1 {
					t.Fatalf("%s: %d further turns, want 1", e.ID, len(e.Turns))
				}
				turn := e.Turns[0]
				if got := strings.Join(wordsOf(t, turn.Prompt), " "); got != "<eot> <user> <copy> <eot> <header> <assistant> <newline>" {
					t.Fatalf("%s: second prompt %q", e.ID, got)
				}
				r := checkExample(t, kinds, e)
				r.question = []string{"<copy>"}
				want, err := r.answer(kinds)
				if err != nil {
					t.Fatal(err)
				}
				if got := wordsOf(t, turn.Answer); !slices.Equal(got, want) || len(got) == 0 {
					t.Fatalf("%s: second answer %v, want %v", e.ID, got, want)
				}
				for _, id := range turn.Answer {
					if slices.Contains(e.Answer, id) {
						t.Errorf("%s: both answers have %d", e.ID, id)
					}
				}
			}
		}
	}
}

// What a context at 512 tokens holds: 32 pairs, two chains of four links, a
// passage of twelve, four marks (three if they are asked for), and no key or
// value in two facts.
func TestFactsAt512Tokens(t *testing.T) {
	kinds := wordKinds(t)
	answerLength := map[string]int{"single": 2, "ask1": 2, "ask4": 8, "chain": 4, "copy": 12, "marks": 6, "turns": 2}
	for _, name := range datasets.Tasks.Names() {
		s := newStream(t, []string{name}, datasets.Validation, 512, 5)
		for i := range 20 {
			e := at(t, s, i)
			r := checkExample(t, kinds, e)
			if got, want := len(e.Answer), answerLength[strings.TrimPrefix(name, "q_")]; got != want {
				t.Fatalf("%s: answer of %d tokens, want %d", e.ID, got, want)
			}
			count := map[string]int{}
			for _, w := range r.context {
				count[w]++
				count[kinds[w]]++
				if kinds[w] == "value" && count[w] > 1 {
					t.Fatalf("%s: value %s occurs twice", e.ID, w)
				}
			}
			want := map[string]int{"value": 2*32 + 12 + 4, "key": 32 + 2*2*4, "calls": 8, "<passage>": 1, "first": 1, "second": 1, "third": 1, "fourth": 1}
			if strings.HasSuffix(name, "marks") {
				want["fourth"] = 0
				want["value"]--
			}
			if strings.HasSuffix(name, "single") {
				want = map[string]int{"value": 2, "key": 1, "template": 0}
			}
			for what, n := range want {
				if count[what] != n {
					t.Fatalf("%s: %d × %s in the context, want %d", e.ID, count[what], what, n)
				}
			}
		}
	}
}

// Uniform draws, judged by chi-square at six standard deviations of its normal
// approximation: a seed that fails by chance is one in 10⁸.
func TestDrawsAreUniform(t *testing.T) {
	const examples = 4000
	kinds := wordKinds(t)
	s := newStream(t, []string{"ask1"}, datasets.Train, 512, 11)
	fillers, keys, values := map[string]int{}, map[string]int{}, map[string]int{}
	places := map[int]int{}   // of the asked key, in sixteenths of the context
	ranks := map[int]int{}    // of the asked pair among the pairs
	inOrder := map[bool]int{} // whether the first link of a chain stands before its second
	for i := range examples {
		e := at(t, s, i)
		r := checkExample(t, kinds, e)
		rank := 0
		for j, w := range r.context {
			if kinds[w] == "filler" {
				fillers[w]++
			}
			if w == r.question[1] {
				places[j*16/len(r.context)]++
				ranks[rank]++
			}
			if kinds[w] == "value" && kinds[r.context[j-1]] == "key" {
				rank++
			}
		}
		keys[r.question[1]]++
		values[wordsOf(t, e.Answer)[0]]++
		link := map[string]int{} // where the link from a key stands
		for j, w := range r.context {
			if w == "calls" {
				link[r.context[j-1]] = j
			}
		}
		for _, j := range link {
			if k, ok := link[r.context[j+1]]; ok {
				inOrder[k > j]++
			}
		}
	}
	uniform(t, "fillers", fillers, 64)
	uniform(t, "asked keys", keys, 64)
	uniform(t, "answered values", values, 224)
	uniform(t, "places of the asked key", places, 16)
	uniform(t, "ranks of the asked pair", ranks, 32)
	uniform(t, "link order", inOrder, 2)
}

func uniform[K comparable](t *testing.T, what string, counts map[K]int, classes int) {
	t.Helper()
	if len(counts) != classes {
		t.Errorf("%s: %d classes seen, want %d", what, len(counts), classes)
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	expected, chi := float64(total)/float64(classes), 0.0
	for _, n := range counts {
		d := float64(n) - expected
		chi += d * d / expected
	}
	freedom := float64(classes - 1)
	if limit := freedom + 6*math.Sqrt(2*freedom) + 6; !(chi < limit) {
		t.Errorf("%s: chi-square %.1f of %d draws, want below %.1f", what, chi, total, limit)
	}
}

func TestGenerateRefusesLengths(t *testing.T) {
	task, err := datasets.Tasks.Lookup("copy")
	if err != nil {
		t.Fatal(err)
	}
	for _, tokens := range []int{-1, 0, 39, datasets.MaxTokens + 1} {
		_, _, err := task.Generate(rand.New(rand.NewPCG(1, 2)), tokens)
		if err == nil || !strings.Contains(err.Error(), "want 40 to 1048576") {
			t.Errorf("%d tokens: error %v, want one with the limits", tokens, err)
		}
	}
}

func TestDocs(t *testing.T) {
	for _, name := range datasets.Tasks.Names() {
		task, err := datasets.Tasks.Lookup(name)
		if err != nil || task.Name != name || task.Doc == "" || strings.Contains(task.Doc, "\n") {
			t.Errorf("task %s: registered as %q with doc %q, want its own name and one line", name, task.Name, task.Doc)
		}
	}
}
