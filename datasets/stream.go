package datasets

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Example is a prompt of the reference model with the right answer.
type Example struct {
	ID     string // task/split/lengths/seed/index: unique, and enough to draw it again
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
// tasks. At is safe for concurrent use; Next and Seek are not.
type Stream struct {
	tasks    []Task
	split    Split
	min, max int
	seed     uint64
	next     int
}

// NewStream returns a stream of prompts of exactly the given number of tokens.
// No task, an unknown task, an unknown split or a length outside MinTokens …
// MaxTokens is an error.
func NewStream(tasks []string, split Split, tokens int, seed uint64) (*Stream, error) {
	return NewStreamBetween(tasks, split, tokens, tokens, seed)
}

// StreamFor is NewStream with tasks and split as flags name them, for a model with a
// vocabulary of so many words. One that does not know those of the tasks is an error.
func StreamFor(model string, vocab int, tasks, split string, tokens int, seed uint64) (*Stream, error) {
	names, err := ParseTasks(tasks)
	if err != nil {
		return nil, err
	}
	if !Knows(vocab) {
		return nil, fmt.Errorf("model %s does not know the words of the synthetic tasks; give it prompts of its own", model)
	}
	s, err := ParseSplit(split)
	if err != nil {
		return nil, err
	}
	return NewStream(names, s, tokens, seed)
}

// NewStreamBetween returns a stream of prompts whose lengths are uniform between
// min and max, both included. With min equal to max it is NewStream.
func NewStreamBetween(tasks []string, split Split, min, max int, seed uint64) (*Stream, error) {
	s := &Stream{split: split, min: min, max: max, seed: seed}
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
	for _, tokens := range []int{min, max} {
		if err := checkTokens(tokens); err != nil {
			return nil, fmt.Errorf("example stream: %w", err)
		}
	}
	if min > max {
		return nil, fmt.Errorf("example stream: got lengths %d to %d, want the shorter first", min, max)
	}
	return s, nil
}

// String names what the examples depend on.
func (s *Stream) String() string {
	names := make([]string, len(s.tasks))
	for i, t := range s.tasks {
		names[i] = t.Name
	}
	tokens := fmt.Sprint(s.min)
	if s.max != s.min {
		tokens += fmt.Sprintf(" to %d", s.max)
	}
	return fmt.Sprintf("%s prompts of %s tokens, seed %d, of %s", s.split, tokens, s.seed, strings.Join(names, ","))
}

// Next returns the examples in order, from index 0 or where Seek went.
func (s *Stream) Next() (Example, error) {
	e, err := s.At(s.next)
	if err == nil {
		s.next++
	}
	return e, err
}

// Seek makes Next go on with example i, which may not be negative.
func (s *Stream) Seek(i int) { s.next = i }

// maxDraws bounds the redraws for one example. The rarest split takes ten draws
// on average, and misses this many in a row once in 10⁴⁵.
const maxDraws = 1000

// At returns example i, of task i modulo the number of tasks. It depends on
// nothing but the task, the split, the lengths, the seed and i; it draws until
// the prompt's hash falls into the stream's split.
func (s *Stream) At(i int) (Example, error) {
	if i < 0 {
		return Example{}, fmt.Errorf("example %d: want an index of at least 0", i)
	}
	t := s.tasks[i%len(s.tasks)]
	r := rand.New(s.source(t.Name, i))
	tokens := s.min + r.IntN(s.max-s.min+1)
	for range maxDraws {
		turns, err := t.generate(r, tokens)
		if err != nil {
			return Example{}, fmt.Errorf("example %d: %w", i, err)
		}
		if prompt := turns[0].Prompt; SplitOf(prompt) == s.split {
			id := fmt.Sprintf("%s/%s/%s/%d/%d", t.Name, s.split, s.lengths(), s.seed, i)
			return Example{ID: id, Task: t.Name, Prompt: prompt, Answer: turns[0].Answer, Turns: turns[1:]}, nil
		}
	}
	return Example{}, fmt.Errorf("example %d: task %s: none of %d prompts of %d tokens belongs to split %s", i, t.Name, maxDraws, tokens, s.split)
}

// lengths is "512" or "256-512".
func (s *Stream) lengths() string {
	if s.min == s.max {
		return strconv.Itoa(s.min)
	}
	return fmt.Sprintf("%d-%d", s.min, s.max)
}

// source seeds a PCG with the first two little-endian words of the SHA-256 of
// "glimpse example 1", the task and the split, each ended by a zero byte, and
// min, max, seed and i as little-endian 64-bit numbers. Hashing keeps streams
// with neighbouring seeds or indices independent, which a PCG seeded with the
// numbers themselves does not promise.
func (s *Stream) source(task string, i int) rand.Source {
	data := fmt.Appendf(nil, "glimpse example 1\x00%s\x00%s\x00", task, s.split)
	for _, n := range []uint64{uint64(s.min), uint64(s.max), s.seed, uint64(i)} {
		data = binary.LittleEndian.AppendUint64(data, n)
	}
	sum := sha256.Sum256(data)
	return rand.NewPCG(binary.LittleEndian.Uint64(sum[:8]), binary.LittleEndian.Uint64(sum[8:16]))
}
