package datasets

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"glimpse/internal/registry"
)

// MinTokens and MaxTokens bound the length of a synthetic prompt. Below
// MinTokens the facts leave no room for fillers. MaxTokens only keeps a mistyped
// length from taking all memory; the built-in reference model was trained on
// prompts of at most 2,048 tokens.
const (
	MinTokens = 40
	MaxTokens = 1 << 20
)

// Task is one kind of question about a context. A new task is one new file that
// registers itself in Tasks.
type Task struct {
	Name string
	Doc  string // one line: what is asked and what answers it
	// QuestionFirst puts the question before the context.
	QuestionFirst bool

	turns []query
}

// query is one kind of question. One that asks for a list says in its last word how long it
// is: that nothing more stands in a context is what small models do not learn to see (they
// listed all and went on, or stopped, as if they drew lots), and no claim about eviction
// rests on it.
type query struct {
	fact factKind
	// ask picks facts that nobody asked for yet and returns the question, at most
	// maxQuestion tokens, and its answer without the end token; no question where
	// none are left.
	ask func(r *rand.Rand, f *Facts) (question, answer []int32)
}

// Tasks holds every task by name. They were chosen for what the reference model answers with
// its full cache, before any policy was run on them. Two that it did not learn were dropped: all
// values of a key that comes back (contexts still hold such keys), and four keys asked before the
// context.
var Tasks = registry.Registry[Task]{Noun: "task"}

// register registers a task of one turn for each query.
func register(name, doc string, turns ...query) {
	Tasks.Add(name, Task{Name: name, Doc: doc, turns: turns})
}

// registerQuestionFirst registers the twin of a task of one turn that asks before the
// context, as q_NAME.
func registerQuestionFirst(name, doc string, turn query) {
	name, doc = "q_"+name, doc+"; asked before the context"
	Tasks.Add(name, Task{Name: name, Doc: doc, QuestionFirst: true, turns: []query{turn}})
}

// ParseTasks reads a flag: comma-separated task names, or "all". The names come back in the
// order given. An unknown, repeated or missing name is an error.
func ParseTasks(list string) ([]string, error) {
	if list == "all" {
		return Tasks.Names(), nil
	}
	names := strings.Split(list, ",")
	for i, name := range names {
		if _, err := Tasks.Lookup(name); err != nil {
			return nil, fmt.Errorf("task list %q: %w, or all", list, err)
		}
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("task list %q: got %s twice, want every task once", list, name)
		}
	}
	return names, nil
}

// Turns is how many questions one example asks.
func (t Task) Turns() int { return len(t.turns) }

// Mixed tells that the first question is about a context that holds facts of all kinds.
func (t Task) Mixed() bool { return slices.Contains(mixedFacts, t.turns[0].fact) }

// Ask draws the first question about facts and its answer; no question where none is left.
func (t Task) Ask(r *rand.Rand, f *Facts) (question, answer []int32) { return t.turns[0].ask(r, f) }

// DrawFacts draws facts that the task can ask about, for a prompt of the given number of tokens.
func (t Task) DrawFacts(r *rand.Rand, tokens int) *Facts {
	needs := make([]factKind, len(t.turns))
	for i, q := range t.turns {
		needs[i] = q.fact
	}
	return drawFacts(r, tokens-frame-maxQuestion, needs...)
}

// generate draws all turns of one example. The first prompt has exactly the given number of tokens.
func (t Task) generate(r *rand.Rand, tokens int) ([]Turn, error) {
	f := t.DrawFacts(r, tokens)
	var turns []Turn
	for _, q := range t.turns {
		question, answer := q.ask(r, f)
		if len(question) == 0 {
			return nil, fmt.Errorf("task %s: prompt of %d tokens: no facts are left for turn %d", t.Name, tokens, len(turns)+1)
		}
		if len(turns) > 0 {
			turns = append(turns, Turn{LaterPrompt(question), answer})
			continue
		}
		context, err := f.LayOut(r, tokens-frame-len(question))
		if err != nil {
			return nil, fmt.Errorf("task %s: prompt of %d tokens: %w", t.Name, tokens, err)
		}
		turns = append(turns, Turn{FirstPrompt(question, context, t.QuestionFirst), answer})
	}
	return turns, nil
}

// FirstPrompt puts the chat template around a context and the question about it.
func FirstPrompt(question, context []int32, questionFirst bool) []int32 {
	prompt := make([]int32, 0, frame+len(question)+len(context))
	prompt = append(prompt, tokBOS, tokUser)
	if questionFirst {
		prompt = append(prompt, question...)
	}
	prompt = append(prompt, tokContext)
	prompt = append(prompt, context...)
	prompt = append(prompt, tokContextEnd)
	if !questionFirst {
		prompt = append(prompt, question...)
	}
	return append(prompt, tokEOT, tokHeader, tokAssistant, tokNewline)
}

// LaterPrompt ends an answer and asks one more question.
func LaterPrompt(question []int32) []int32 {
	prompt := append([]int32{tokEOT, tokUser}, question...)
	return append(prompt, tokEOT, tokHeader, tokAssistant, tokNewline)
}
