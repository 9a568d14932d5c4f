package main

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"glimpse/datasets"
	"glimpse/datasets/datasetstest"
)

// lessonWeights weighs all tasks of one turn alike.
func lessonWeights() []LessonWeight {
	var out []LessonWeight
	for _, name := range datasets.Tasks.Names() {
		if !strings.HasPrefix(name, "turns_") {
			out = append(out, LessonWeight{Task: name, Weight: 1})
		}
	}
	return out
}

func newLessons(t testing.TB, p LessonPlan) *LessonStream {
	t.Helper()
	s, err := NewLessonStream(p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Every lesson has its exact length, its first question belongs to split Train, and
// its targets are the answers to its questions, worked out from the words alone.
func TestLessons(t *testing.T) {
	kinds := datasetstest.WordKinds(t)
	seen := map[string]int{}
	for _, tokens := range []int{MinLesson, 64, 100, 512, 2048} {
		s := newLessons(t, LessonPlan{Tokens: tokens, Turns: 12, Weights: lessonWeights(), Repeat: 0.1, Seed: 4})
		for i := range 200 {
			l, err := s.At(i)
			if err != nil {
				t.Fatal(err)
			}
			if len(l.IDs) != tokens {
				t.Fatalf("lesson %d of %d tokens, want %d", i, len(l.IDs), tokens)
			}
			checkLesson(t, kinds, l)
			for _, target := range l.Targets {
				seen[target.Task]++
			}
		}
	}
	for _, w := range append(lessonWeights(), LessonWeight{Task: LessonRepeat}, LessonWeight{Task: LessonMention}) {
		if seen[w.Task] < 10 {
			t.Errorf("%s: %d targets, want some", w.Task, seen[w.Task])
		}
	}
}

func checkLesson(t *testing.T, kinds map[string]string, l Lesson) {
	t.Helper()
	words := datasetstest.WordsOf(t, l.IDs)
	if l.Targets[0].Task == LessonRepeat {
		n := len(words) - l.Targets[0].Begin + 1
		if len(l.Targets) != 1 || l.Targets[0].End != len(words) || !slices.Equal(words[len(words)-n:], words[len(words)-2*n:len(words)-n]) || n < len(words)/6 {
			t.Fatalf("%v is not the second half of a repetition: %s", l.Targets, words)
		}
		return
	}
	text := strings.Join(words, " ")
	const ask, answer = " <eot> <user> ", " <eot> <header> <assistant> <newline> "
	head, rest, _ := strings.Cut(text, answer)
	if prompt := l.IDs[:len(strings.Fields(head+answer))]; datasets.SplitOf(prompt) != datasets.Train {
		t.Fatalf("the first question is of split %s", datasets.SplitOf(prompt))
	}
	r, err := datasetstest.Read(strings.Fields(head + answer))
	if err != nil {
		t.Fatal(err)
	}
	question, targets := r.Question, l.Targets
	for len(targets) > 0 && targets[0].Task == LessonMention {
		first, second := words[targets[0].Begin-1], words[targets[0].Begin]
		if !slices.ContainsFunc(datasetstest.Ordinals, func(o string) bool { return strings.Contains(text, o+" "+first+" "+second+" ") }) ||
			slices.Index(words, first) == targets[0].Begin-1 || targets[0].End != targets[0].Begin+1 {
			t.Fatalf("%s %s at %v is no later mention of a topic", first, second, targets[0])
		}
		targets = targets[1:]
	}
	asked := map[string]bool{}
	for i, target := range targets {
		name := strings.Join(question, " ")
		if asked[name] || strings.HasPrefix(target.Task, "q_") != (i == 0 && r.QuestionFirst) {
			t.Fatalf("question %q of %s at turn %d: asked again or in a wrong place", name, target.Task, i+1)
		}
		asked[name] = true
		want, err := datasetstest.RightAnswer(kinds, question, r.Context)
		if err != nil {
			t.Fatal(err)
		}
		got := words[target.Begin:target.End]
		if !slices.Equal(got, append(want, "<eot>")) {
			t.Fatalf("%s: answer %q to %q, want %q", target.Task, got, name, want)
		}
		said, next, more := strings.Cut(rest+" ", ask)
		if more != (i < len(targets)-1) || strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(said), "<eot>")) != strings.Join(want, " ") {
			t.Fatalf("turn %d: %q follows the question, want %q", i+1, said, want)
		}
		if more {
			var q string
			q, rest, _ = strings.Cut(next, answer)
			question = strings.Fields(q)
		}
	}
}

// A lesson depends on the plan and its index alone.
func TestLessonsAreRandomAccess(t *testing.T) {
	p := LessonPlan{Tokens: 128, Turns: 6, Weights: lessonWeights(), Repeat: 0.2, Seed: 9}
	a, b := newLessons(t, p), newLessons(t, p)
	var forward []Lesson
	for i := range 20 {
		l, err := a.At(i)
		if err != nil {
			t.Fatal(err)
		}
		forward = append(forward, l)
	}
	for i := 19; i >= 0; i-- {
		if l, err := b.At(i); err != nil || !reflect.DeepEqual(l, forward[i]) {
			t.Fatalf("lesson %d differs when it is the first one drawn (error %v)", i, err)
		}
	}
	p.Seed++
	if l, err := newLessons(t, p).At(0); err != nil || reflect.DeepEqual(l, forward[0]) {
		t.Errorf("another seed gives the same lesson (error %v)", err)
	}
}

// Weights are shares of the first questions.
func TestLessonWeights(t *testing.T) {
	s := newLessons(t, LessonPlan{Tokens: 64, Turns: 1, Weights: []LessonWeight{{Task: "key1", Weight: 3}, {Task: "most", Weight: 0}, {Task: "hops", Weight: 1}}})
	n := map[string]int{}
	for i := range 2000 {
		l, err := s.At(i)
		if err != nil {
			t.Fatal(err)
		}
		n[l.Targets[0].Task]++
	}
	// 1500 ± 19 is one standard deviation.
	if n["key1"] < 1400 || n["key1"] > 1600 || n["key1"]+n["hops"] != 2000 {
		t.Errorf("first questions %v, want 1500 of key1 and 500 of hops", n)
	}
}

func TestLessonErrors(t *testing.T) {
	good := LessonPlan{Tokens: 64, Turns: 1, Weights: lessonWeights()}
	for _, c := range []struct {
		name string
		edit func(p *LessonPlan)
		want string
	}{
		{"short", func(p *LessonPlan) { p.Tokens = 50 }, "got 50 tokens, want 59 to"},
		{"no turn", func(p *LessonPlan) { p.Turns = 0 }, "got 0 turns"},
		{"share", func(p *LessonPlan) { p.Repeat = 2 }, "got 2, want 0 to 1"},
		{"unknown", func(p *LessonPlan) { p.Weights[0].Task = "copy" }, `unknown task "copy"`},
		{"two turns", func(p *LessonPlan) { p.Weights[0].Task = "turns_key" }, "has 2 turns"},
		{"twice", func(p *LessonPlan) { p.Weights[0].Task = p.Weights[1].Task }, "twice"},
		{"negative", func(p *LessonPlan) { p.Weights[0].Weight = -1 }, "got -1, want at least 0"},
		{"none", func(p *LessonPlan) { p.Weights = nil }, "no task with a weight above 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := good
			p.Weights = slices.Clone(good.Weights)
			c.edit(&p)
			if _, err := NewLessonStream(p); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want %q in it", err, c.want)
			}
		})
	}
	if _, err := newLessons(t, good).At(-1); err == nil {
		t.Error("lesson -1: no error")
	}
}

func BenchmarkLessons(b *testing.B) {
	for _, tokens := range []int{64, 512, 2048} {
		b.Run("tokens="+strconv.Itoa(tokens), func(b *testing.B) {
			s := newLessons(b, LessonPlan{Tokens: tokens, Turns: 12, Weights: lessonWeights(), Repeat: 0.1})
			i := 0
			for b.Loop() {
				if _, err := s.At(i); err != nil {
					b.Fatal(err)
				}
				i++
			}
			b.ReportMetric(float64(tokens*b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
