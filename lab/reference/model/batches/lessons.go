package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"

	"glimpse/datasets"
)

// LessonRepeat and LessonMention are the targets of lessons that no task has: the
// second half of a repeated sequence of random words, and a topic's second word
// where the text comes back to it.
const (
	LessonRepeat  = "repeat"
	LessonMention = "mention"
)

// Lesson is a sequence that a reference model is pre-trained on: one context of the
// tasks, with as many questions and answers as there is room for.
type Lesson struct {
	IDs     []int32
	Targets []Target // in the order of the sequence
}

// Target is a part of a lesson that the model has to say: an answer with its end
// token.
type Target struct {
	Task       string // of Tasks, LessonRepeat or LessonMention
	Begin, End int    // of the ids
}

// LessonPlan says what lessons are like.
type LessonPlan struct {
	Tokens  int            // of a lesson: at least MinLesson
	Turns   int            // most questions about one context, at least 1
	Weights []LessonWeight // of the first question
	Repeat  float64        // share of repeated sequences
	Seed    uint64
}

// LessonWeight is how often a task is asked, in proportion to the others. Tasks of
// two turns have none: lessons of several turns teach them.
type LessonWeight struct {
	Task   string
	Weight float64
}

// MinLesson is the fewest tokens of a lesson: the shortest prompt and an answer.
const MinLesson = datasets.MinTokens + maxAnswer

// maxAnswer is the longest answer to a question about the longest context, with
// its end token: six topics.
const maxAnswer = 19

// LessonStream is an endless, reproducible sequence of lessons. All of it is safe for
// concurrent use.
type LessonStream struct {
	plan  LessonPlan
	first lessonTasks // that may be asked first
	later lessonTasks // that may be asked about mixed facts after another question
}

// lessonTasks are tasks with the sums of their weights.
type lessonTasks struct {
	tasks []datasets.Task
	sums  []float64
}

func (t *lessonTasks) addTask(task datasets.Task, weight float64) {
	if n := len(t.sums); n > 0 {
		weight += t.sums[n-1]
	}
	t.tasks, t.sums = append(t.tasks, task), append(t.sums, weight)
}

func (t *lessonTasks) drawTask(r *rand.Rand) datasets.Task {
	u := r.Float64() * t.sums[len(t.sums)-1]
	i := sort.Search(len(t.sums), func(i int) bool { return t.sums[i] > u })
	return t.tasks[min(i, len(t.tasks)-1)]
}

// NewLessonStream returns the lessons of a plan. A task that is unknown, is there
// twice or has two turns, a weight that is negative and no positive weight are errors.
func NewLessonStream(p LessonPlan) (*LessonStream, error) {
	switch {
	case p.Tokens < MinLesson || p.Tokens > datasets.MaxTokens:
		return nil, fmt.Errorf("lessons: got %d tokens, want %d to %d", p.Tokens, MinLesson, datasets.MaxTokens)
	case p.Turns < 1:
		return nil, fmt.Errorf("lessons: got %d turns, want at least 1", p.Turns)
	case !(p.Repeat >= 0 && p.Repeat <= 1):
		return nil, fmt.Errorf("lessons: share of repeated sequences: got %v, want 0 to 1", p.Repeat)
	}
	s := &LessonStream{plan: p}
	s.plan.Weights = slices.Clone(p.Weights)
	for i, w := range p.Weights {
		t, err := datasets.Tasks.Lookup(w.Task)
		switch {
		case err != nil:
			return nil, fmt.Errorf("lessons: %w", err)
		case t.Turns() != 1:
			return nil, fmt.Errorf("lessons: task %s has %d turns, want 1", w.Task, t.Turns())
		case slices.ContainsFunc(p.Weights[:i], func(o LessonWeight) bool { return o.Task == w.Task }):
			return nil, fmt.Errorf("lessons: got task %s twice, want every task once", w.Task)
		case !(w.Weight >= 0 && w.Weight <= 1e9):
			return nil, fmt.Errorf("lessons: weight of %s: got %v, want at least 0", w.Task, w.Weight)
		case w.Weight == 0:
			continue
		}
		s.first.addTask(t, w.Weight)
		if !t.QuestionFirst && t.Mixed() {
			s.later.addTask(t, w.Weight)
		}
	}
	if len(s.first.tasks) == 0 && p.Repeat < 1 {
		return nil, fmt.Errorf("lessons: got no task with a weight above 0, want at least one")
	}
	return s, nil
}

// At returns lesson i, of exactly the plan's number of tokens. It depends on nothing
// but the plan and i; what its first question asks belongs to split Train.
func (s *LessonStream) At(i int) (Lesson, error) {
	if i < 0 {
		return Lesson{}, fmt.Errorf("lesson %d: want an index of at least 0", i)
	}
	r := rand.New(datasets.SourceOf([]byte("glimpse lesson 1\x00"), uint64(s.plan.Tokens), uint64(s.plan.Turns), s.plan.Seed, uint64(i)))
	if r.Float64() < s.plan.Repeat {
		return s.repeat(r), nil
	}
	for range datasets.MaxDraws {
		l, prompt, err := s.drawLesson(r)
		if err != nil {
			return Lesson{}, fmt.Errorf("lesson %d: %w", i, err)
		}
		if datasets.SplitOf(l.IDs[:prompt]) == datasets.Train {
			return l, nil
		}
	}
	return Lesson{}, fmt.Errorf("lesson %d: none of %d prompts belongs to split %s", i, datasets.MaxDraws, datasets.Train)
}

// lessonTurn is one question and what answers it.
type lessonTurn struct {
	task             string
	question, answer []int32
}

// drawLesson draws one lesson and the length of its first prompt.
func (s *LessonStream) drawLesson(r *rand.Rand) (Lesson, int, error) {
	task := s.first.drawTask(r)
	f := task.DrawFacts(r, s.plan.Tokens-maxAnswer)
	free := s.plan.Tokens - len(datasets.FirstPrompt(nil, nil, false)) - f.Tokens()
	var turns []lessonTurn
	ask := func(t datasets.Task) bool {
		question, answer := t.Ask(r, f)
		n := len(question) + len(answer) + 1
		if len(turns) > 0 {
			n += len(datasets.LaterPrompt(nil)) - 1 // the end token of the answer before is that answer's
		}
		if len(question) == 0 || n > free {
			return false
		}
		free -= n
		turns = append(turns, lessonTurn{t.Name, question, answer})
		return true
	}
	if !ask(task) {
		return Lesson{}, 0, fmt.Errorf("task %s: %d tokens have no room for a question", task.Name, s.plan.Tokens)
	}
	// Questions that find nothing left to ask for count, or a context of few facts
	// would ask for ever.
	for range s.plan.Turns - 1 {
		if task.Mixed() && len(s.later.tasks) > 0 {
			ask(s.later.drawTask(r))
		}
	}
	context, err := f.LayOut(r, free+f.Tokens())
	if err != nil {
		return Lesson{}, 0, err
	}
	l := Lesson{IDs: make([]int32, 0, s.plan.Tokens)}
	prompt := 0
	for i, t := range turns {
		if i == 0 {
			l.IDs = append(l.IDs, datasets.FirstPrompt(t.question, context, task.QuestionFirst)...)
			prompt = len(l.IDs)
			begin := slices.Index(l.IDs, wordID("<context>")) + 1
			for _, place := range mentions(context) {
				l.Targets = append(l.Targets, Target{LessonMention, begin + place, begin + place + 1})
			}
		} else {
			l.IDs = append(l.IDs, datasets.LaterPrompt(t.question)[1:]...)
		}
		begin := len(l.IDs)
		l.IDs = append(append(l.IDs, t.answer...), endOfTurn)
		l.Targets = append(l.Targets, Target{t.task, begin, len(l.IDs)})
	}
	return l, prompt, nil
}

// repeat is random words that end with a sequence twice; of the repetition all but
// the first word follow from the text.
func (s *LessonStream) repeat(r *rand.Rand) Lesson {
	n := s.plan.Tokens/6 + r.IntN((s.plan.Tokens-1)/2-s.plan.Tokens/6+1)
	ids := make([]int32, s.plan.Tokens)
	ids[0] = wordID("<bos>")
	for i := 1; i < len(ids)-n; i++ {
		id := contentBegin + r.Int32N(int32(len(words))-moreBegin+fillersEnd-contentBegin)
		if id >= fillersEnd {
			id += moreBegin - fillersEnd // over the words of questions
		}
		ids[i] = id
	}
	copy(ids[len(ids)-n:], ids[len(ids)-2*n:])
	return Lesson{IDs: ids, Targets: []Target{{LessonRepeat, len(ids) - n + 1, len(ids)}}}
}

// The words of contexts are those from contentBegin to fillersEnd and from moreBegin to the end of the vocabulary.
const (
	contentBegin int32 = 32
	fillersEnd   int32 = 384
	moreBegin    int32 = 400
)

var words = datasets.Vocabulary()

func wordID(word string) int32 { return int32(slices.Index(words, word)) }

// endOfTurn ends answers. The prompts of later turns begin with it.
var endOfTurn = wordID("<eot>")

// mentions returns the places in a context at which the second word of a topic
// follows from an earlier mention. Topics are the words behind ordinals; items have these, too, and are there once.
func mentions(context []int32) []int {
	second := map[int32]bool{} // whether the topic of a first word was mentioned
	for i := range len(context) - 1 {
		if slices.Contains(ordinals, context[i]) {
			second[context[i+1]] = false
		}
	}
	var places []int
	for i, id := range context {
		before, ok := second[id]
		if ok && before {
			places = append(places, i+1)
		}
		if ok {
			second[id] = true
		}
	}
	return places
}

var ordinals = func() (ids []int32) {
	for _, word := range []string{"first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"} {
		ids = append(ids, wordID(word))
	}
	return ids
}()
