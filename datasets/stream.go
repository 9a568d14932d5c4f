package datasets

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"

	"glimpse/internal/listing"
)

// Example is a prompt of the reference model with the right answer.
type Example struct {
	ID     string // task/split/length/seed/index: unique, and enough to draw it again
	Task   string
	Prompt []int32 // from <bos> to the end of the assistant header
	Answer []int32 // without the end token
	Turns  []Turn  `json:",omitempty"` // what is asked after the answer, in tasks of more than one turn
}

// Turn is one more prompt of a conversation with its right answer.
type Turn struct {
	Prompt []int32 // from the end token of the answer before to the end of the assistant header
	Answer []int32 // without the end token
}

// Stream is an endless, reproducible sequence of examples that go round its
// tasks. It is safe for concurrent use.
type Stream struct {
	tasks  []Task
	split  Split
	tokens int
	seed   uint64
}

// NewStream returns a stream of prompts of exactly the given number of tokens.
// No task, an unknown task, an unknown split or a length outside MinTokens …
// MaxTokens is an error.
func NewStream(tasks []string, split Split, tokens int, seed uint64) (*Stream, error) {
	s := &Stream{split: split, tokens: tokens, seed: seed}
	if len(tasks) == 0 {
		return nil, fmt.Errorf("example stream: got no tasks, want at least one")
	}
	for _, name := range tasks {
		t, err := Tasks.Lookup(name)
		if err != nil {
			return nil, fmt.Errorf("example stream: %w", err)
		}
		s.tasks = append(s.tasks, t)
	}
	if _, err := ParseSplit(string(split)); err != nil {
		return nil, fmt.Errorf("example stream: %w", err)
	}
	if tokens < MinTokens || tokens > MaxTokens {
		return nil, fmt.Errorf("example stream: prompt length: got %d tokens, want %d to %d", tokens, MinTokens, MaxTokens)
	}
	return s, nil
}

// StreamFor is NewStream with tasks and split as flags name them, for a model with a
// vocabulary of so many words. One that does not know the words of the tasks is an error.
func StreamFor(model string, vocab int, tasks, split string, tokens int, seed uint64) (*Stream, error) {
	names, err := ParseTasks(tasks)
	if err != nil {
		return nil, err
	}
	if !Knows(vocab) {
		return nil, fmt.Errorf("model %s does not know the words of the synthetic tasks", model)
	}
	s, err := ParseSplit(split)
	if err != nil {
		return nil, err
	}
	return NewStream(names, s, tokens, seed)
}

// String names what the examples depend on.
func (s *Stream) String() string {
	names := listing.Map(s.tasks, func(t Task) string { return t.Name })
	return fmt.Sprintf("%s prompts of %d tokens, seed %d, of %s", s.split, s.tokens, s.seed, strings.Join(names, ","))
}

// MaxDraws bounds the redraws for one example. The rarest split takes ten draws
// on average, and misses this many in a row once in 10⁴⁵.
const MaxDraws = 1000

// At returns example i, of task i modulo the number of tasks. It depends on
// nothing but the task, the split, the length, the seed and i; it draws until
// the prompt's hash falls into the stream's split.
func (s *Stream) At(i int) (Example, error) {
	if i < 0 {
		return Example{}, fmt.Errorf("example %d: want an index of at least 0", i)
	}
	t := s.tasks[i%len(s.tasks)]
	data := fmt.Appendf(nil, "glimpse example 1\x00%s\x00%s\x00", t.Name, s.split)
	r := rand.New(SourceOf(data, uint64(s.tokens), uint64(s.tokens), s.seed, uint64(i)))
	r.Uint64() // drew a length, when there were several
	for range MaxDraws {
		turns, err := t.generate(r, s.tokens)
		if err != nil {
			return Example{}, fmt.Errorf("example %d: %w", i, err)
		}
		if prompt := turns[0].Prompt; SplitOf(prompt) == s.split {
			id := fmt.Sprintf("%s/%s/%d/%d/%d", t.Name, s.split, s.tokens, s.seed, i)
			return Example{ID: id, Task: t.Name, Prompt: prompt, Answer: turns[0].Answer, Turns: turns[1:]}, nil
		}
	}
	return Example{}, fmt.Errorf("example %d: task %s: none of %d prompts of %d tokens belongs to split %s", i, t.Name, MaxDraws, s.tokens, s.split)
}

// SourceOf seeds a PCG with the first two little-endian words of the SHA-256 of data and
// numbers, these as little-endian 64-bit ones. Hashing keeps streams with neighbouring seeds or
// indices independent, which a PCG seeded with the numbers themselves does not promise.
func SourceOf(data []byte, numbers ...uint64) rand.Source {
	for _, n := range numbers {
		data = binary.LittleEndian.AppendUint64(data, n)
	}
	sum := sha256.Sum256(data)
	return rand.NewPCG(binary.LittleEndian.Uint64(sum[:8]), binary.LittleEndian.Uint64(sum[8:16]))
}
