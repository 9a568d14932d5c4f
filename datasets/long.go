package datasets

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"glimpse/internal/registry"
)

// LongTasks holds the tasks of a reference model of up to 2,048 tokens, by name.
// Their prompts have the form of those in Tasks; the words are those of
// LongVocabulary, and how many facts a context holds is drawn anew for each. They
// were chosen for what a model can learn to answer with its full cache, before any
// policy was run on them.
var LongTasks = registry.Registry[Task]{Noun: "long task"}

// query is one kind of question about long facts. One that asks for a list says in its last
// word how long it is: that nothing more stands in a context is what small models do not learn
// to see (they listed all and went on, or stopped, as if they drew lots), and no claim about
// eviction rests on it.
type query struct {
	fact factKind
	// ask picks facts that nobody asked for yet and returns the question, at most
	// maxQuestion tokens, and its answer without the end token; no question where
	// none are left.
	ask func(r *rand.Rand, f *longFacts) (question, answer []int32)
}

// registerLong registers a long task of one turn for each query.
func registerLong(name, doc string, turns ...query) {
	LongTasks.Add(name, Task{Name: name, Doc: doc, turns: turns})
}

// registerLongQuestionFirst registers the twin of a task of one turn that asks
// before the context, as q_NAME.
func registerLongQuestionFirst(name, doc string, turn query) {
	name, doc = "q_"+name, doc+"; asked before the context"
	LongTasks.Add(name, Task{Name: name, Doc: doc, QuestionFirst: true, turns: []query{turn}})
}

// lookupTask finds a task by name, long or not.
func lookupTask(name string) (Task, error) {
	if t, err := LongTasks.Lookup(name); err == nil {
		return t, nil
	}
	t, err := Tasks.Lookup(name)
	if err != nil {
		return Task{}, fmt.Errorf("%w, or one of the long tasks", err)
	}
	return t, nil
}

// Knows says whether a model with a vocabulary of so many words knows those of the
// tasks: Vocabulary, or LongVocabulary for all.
func Knows(vocab int, tasks ...string) bool {
	switch vocab {
	case longVocabularySize:
		return true
	case vocabularySize:
		return !slices.ContainsFunc(tasks, func(name string) bool {
			_, err := LongTasks.Lookup(name)
			return err == nil
		})
	}
	return false
}

// TaskFor is the task of a name for a model with a vocabulary of so many words. "needle", the
// one fact of a prompt, is also what the built-in model's task "single" asks for.
func TaskFor(vocab int, name string) string {
	if name == "needle" && vocab == vocabularySize {
		return "single"
	}
	return name
}

// generateLong draws all turns of one example of a long task.
func (t Task) generateLong(r *rand.Rand, tokens int) ([]Turn, error) {
	if err := checkTokens(tokens); err != nil {
		return nil, fmt.Errorf("task %s: %w", t.Name, err)
	}
	needs := make([]factKind, len(t.turns))
	for i, q := range t.turns {
		needs[i] = q.fact
	}
	f := drawLongFacts(r, tokens-frame-maxQuestion, needs...)
	var turns []Turn
	for _, q := range t.turns {
		question, answer := q.ask(r, f)
		if len(question) == 0 {
			return nil, fmt.Errorf("task %s: prompt of %d tokens: no facts are left for turn %d", t.Name, tokens, len(turns)+1)
		}
		if len(turns) > 0 {
			turns = append(turns, Turn{laterPrompt(question), answer})
			continue
		}
		context, err := f.layOut(r, tokens-frame-len(question))
		if err != nil {
			return nil, fmt.Errorf("task %s: prompt of %d tokens: %w", t.Name, tokens, err)
		}
		turns = append(turns, Turn{firstPrompt(question, context, t.QuestionFirst), answer})
	}
	return turns, nil
}
