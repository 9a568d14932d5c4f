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
// prompts of at most 512 tokens.
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
	// Default makes the task one of DefaultTasks: the reference model answers it
	// when nothing is evicted, so a wrong answer tells about eviction.
	Default bool

	// difficulty of a prompt of the given length; nil means fullDifficulty.
	difficulty func(tokens int) difficulty
	// ask picks facts to ask for and returns the question, at most maxQuestion
	// tokens, and its answer without the end token.
	ask func(r *rand.Rand, f *facts) (question, answer []int32)
	// askAgain, of tasks of two turns, picks other facts after the first answer.
	askAgain func(r *rand.Rand, f *facts) (question, answer []int32)

	// turns are the questions of a long task, which has none of the functions above.
	turns []query
}

// Tasks holds every task by name.
var Tasks = registry.Registry[Task]{Noun: "task"}

func register(t Task) { Tasks.Add(t.Name, t) }

// registerQuestionFirst registers the twin of t that asks before the context, as
// q_NAME.
func registerQuestionFirst(t Task, isDefault bool) {
	t.Name = "q_" + t.Name
	t.Doc += "; asked before the context"
	t.QuestionFirst = true
	t.Default = isDefault
	register(t)
}

// DefaultTasks returns the names of the default evaluation set, sorted.
func DefaultTasks() []string {
	return slices.DeleteFunc(Tasks.Names(), func(name string) bool {
		t, err := Tasks.Lookup(name)
		return err != nil || !t.Default
	})
}

// ParseTasks reads a flag: comma-separated task names, "default" for
// DefaultTasks, or "all". The names come back in the order given. An unknown,
// repeated or missing name is an error. "long" stands for LongTasks, whose names a
// list may have, too.
func ParseTasks(list string) ([]string, error) {
	switch list {
	case "default":
		return DefaultTasks(), nil
	case "all":
		return Tasks.Names(), nil
	case "long":
		return LongTasks.Names(), nil
	}
	names := strings.Split(list, ",")
	for i, name := range names {
		if _, err := lookupTask(name); err != nil {
			return nil, fmt.Errorf("task list %q: %w; default, all and long name sets of tasks", list, err)
		}
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("task list %q: got %s twice, want every task once", list, name)
		}
	}
	return names, nil
}

// Generate draws one example: a prompt of exactly the given number of tokens, and
// its answer without the end token. tokens outside MinTokens … MaxTokens is an
// error. Streams add splits and reproducible randomness to it.
func (t Task) Generate(r *rand.Rand, tokens int) (prompt, answer []int32, err error) {
	turns, err := t.generate(r, tokens)
	if err != nil {
		return nil, nil, err
	}
	return turns[0].Prompt, turns[0].Answer, nil
}

// generate draws all turns of one example.
func (t Task) generate(r *rand.Rand, tokens int) ([]Turn, error) {
	if len(t.turns) > 0 {
		return t.generateLong(r, tokens)
	}
	if err := checkTokens(tokens); err != nil {
		return nil, fmt.Errorf("task %s: %w", t.Name, err)
	}
	plan := t.difficulty
	if plan == nil {
		plan = fullDifficulty
	}
	f := drawFacts(r, plan(tokens))
	question, answer := t.ask(r, f)
	context, err := f.layOut(r, tokens-frame-len(question))
	if err != nil {
		return nil, fmt.Errorf("task %s: prompt of %d tokens: %w", t.Name, tokens, err)
	}
	turns := []Turn{{firstPrompt(question, context, t.QuestionFirst), answer}}
	if t.askAgain != nil {
		question, answer := t.askAgain(r, f)
		turns = append(turns, Turn{laterPrompt(question), answer})
	}
	return turns, nil
}

// firstPrompt puts the chat template around a context and the question about it.
func firstPrompt(question, context []int32, questionFirst bool) []int32 {
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

// laterPrompt ends an answer and asks one more question.
func laterPrompt(question []int32) []int32 {
	prompt := append([]int32{tokEOT, tokUser}, question...)
	return append(prompt, tokEOT, tokHeader, tokAssistant, tokNewline)
}

func checkTokens(tokens int) error {
	if tokens < MinTokens || tokens > MaxTokens {
		return fmt.Errorf("prompt length: got %d tokens, want %d to %d", tokens, MinTokens, MaxTokens)
	}
	return nil
}
