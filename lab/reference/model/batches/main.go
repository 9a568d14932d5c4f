// Batches gives the examples of package datasets to programs in other languages, as
// fast as training eats them and with one definition of the tasks. It reads requests
// from standard input, one JSON object a line, and answers each on standard output:
//
//	{"kind": "lessons", "tokens": 512, "turns": 12, "weights": {"key1": 1, "hops": 2}, "repeat": 0.1, "seed": 1, "first": 0, "rows": 16}
//	{"kind": "examples", "task": "key1", "split": "validation", "tokens": 512, "seed": 1, "first": 0, "rows": 16}
//	{"kind": "describe"}
//
// Lessons come from [LessonStream], from index first on. Examples come from [datasets.Stream].
// Each has its right answers as a model would have said them.
// What comes back depends on the request alone, so a program that was stopped goes on
// by asking for what comes next.
//
// An answer is, in little-endian numbers of 32 bits unless said otherwise: "GLB1",
// rows, columns, targets; the ids [rows, columns] in 16 bits, shorter rows filled up
// with <pad>; and for each target its row, its first column, the column after its last
// one, and its task as an index of the names that describe gives. The answer to
// describe, and what was wrong with a request, come as "GLJ1", a length, and that many
// bytes of JSON.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"glimpse/datasets"
	"glimpse/internal/parallel"
)

type request struct {
	Kind    string             `json:"kind"`
	Task    string             `json:"task"`
	Split   datasets.Split     `json:"split"`
	Tokens  int                `json:"tokens"`
	Turns   int                `json:"turns"`
	Weights map[string]float64 `json:"weights"`
	Repeat  float64            `json:"repeat"`
	Seed    uint64             `json:"seed"`
	First   int                `json:"first"`
	Rows    int                `json:"rows"`
}

type description struct {
	Words    []string `json:"words"`     // of the vocabulary, by id
	Names    []string `json:"names"`     // of targets: all tasks, and what lessons teach beside them
	TwoTurns []string `json:"two_turns"` // tasks of two turns, which lessons do not ask
}

type failure struct {
	Error string `json:"error"`
}

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "batches:", err)
		os.Exit(1)
	}
}

// serve answers requests until there are no more.
func serve(in io.Reader, to io.Writer) error {
	out := bufio.NewWriterSize(to, 1<<16)
	scan := bufio.NewScanner(in)
	for scan.Scan() {
		data, err := answer(scan.Bytes())
		if err != nil {
			data = document(failure{err.Error()})
		}
		if _, err := out.Write(data); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return scan.Err()
}

func answer(line []byte) ([]byte, error) {
	var q request
	if err := json.Unmarshal(line, &q); err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	if q.Kind == "describe" {
		return document(describe()), nil
	}
	if q.Rows < 1 || q.Rows > 1<<16 {
		return nil, fmt.Errorf("request: got %d rows, want 1 to %d", q.Rows, 1<<16)
	}
	draw, err := q.source()
	if err != nil {
		return nil, err
	}
	rows, errs := make([]Lesson, q.Rows), make([]error, q.Rows)
	parallel.For(q.Rows, func(i int) { rows[i], errs[i] = draw(q.First + i) })
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return encode(rows), nil
}

// source opens what the request asks for.
func (q *request) source() (func(i int) (Lesson, error), error) {
	switch q.Kind {
	case "lessons":
		plan := LessonPlan{Tokens: q.Tokens, Turns: q.Turns, Repeat: q.Repeat, Seed: q.Seed}
		for _, task := range slices.Sorted(maps.Keys(q.Weights)) {
			plan.Weights = append(plan.Weights, LessonWeight{Task: task, Weight: q.Weights[task]})
		}
		s, err := NewLessonStream(plan)
		if err != nil {
			return nil, err
		}
		return s.At, nil
	case "examples":
		s, err := datasets.NewStream([]string{q.Task}, q.Split, q.Tokens, q.Seed)
		if err != nil {
			return nil, err
		}
		return func(i int) (Lesson, error) {
			e, err := s.At(i)
			return conversation(e), err
		}, nil
	}
	return nil, fmt.Errorf("request: kind %q, want lessons, examples or describe", q.Kind)
}

// conversation is an example with all its answers, each ended.
func conversation(e datasets.Example) Lesson {
	var l Lesson
	turns := append([]datasets.Turn{{Prompt: e.Prompt, Answer: e.Answer}}, e.Turns...)
	for _, t := range turns {
		l.IDs = append(l.IDs, t.Prompt...)
		begin := len(l.IDs)
		l.IDs = append(l.IDs, t.Answer...)
		l.Targets = append(l.Targets, Target{Task: e.Task, Begin: begin, End: len(l.IDs) + 1})
	}
	return Lesson{IDs: append(l.IDs, endOfTurn), Targets: l.Targets}
}

func describe() description {
	d := description{Words: words, Names: names()}
	for _, name := range datasets.Tasks.Names() {
		plan := LessonPlan{Tokens: MinLesson, Turns: 1, Weights: []LessonWeight{{Task: name, Weight: 1}}}
		if _, err := NewLessonStream(plan); err != nil {
			d.TwoTurns = append(d.TwoTurns, name)
		}
	}
	return d
}

func names() []string {
	return append(datasets.Tasks.Names(), LessonMention, LessonRepeat)
}

func encode(rows []Lesson) []byte {
	columns, targets := 0, 0
	for _, l := range rows {
		columns = max(columns, len(l.IDs))
		targets += len(l.Targets)
	}
	out := []byte("GLB1")
	number := func(n int) { out = binary.LittleEndian.AppendUint32(out, uint32(n)) }
	number(len(rows))
	number(columns)
	number(targets)
	for _, l := range rows {
		for _, id := range l.IDs {
			out = binary.LittleEndian.AppendUint16(out, uint16(id))
		}
		out = append(out, make([]byte, 2*(columns-len(l.IDs)))...) // <pad> is 0
	}
	all := names()
	for i, l := range rows {
		for _, t := range l.Targets {
			number(i)
			number(t.Begin)
			number(t.End)
			number(slices.Index(all, t.Task))
		}
	}
	return out
}

func document(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings alone
	}
	return append(binary.LittleEndian.AppendUint32([]byte("GLJ1"), uint32(len(text))), text...)
}
