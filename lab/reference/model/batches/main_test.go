package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"glimpse/datasets"
)

// batch is an answer as another program reads it.
type batch struct {
	columns int
	ids     []uint16
	targets [][4]uint32
}

func readBatch(t *testing.T, data []byte) batch {
	t.Helper()
	if !bytes.HasPrefix(data, []byte("GLB1")) {
		t.Fatalf("answer %.80q, want a batch", data)
	}
	r := bytes.NewReader(data[4:])
	var head [3]uint32
	read := func(into any) {
		if err := binary.Read(r, binary.LittleEndian, into); err != nil {
			t.Fatal(err)
		}
	}
	read(&head)
	b := batch{int(head[1]), make([]uint16, head[0]*head[1]), make([][4]uint32, head[2])}
	read(b.ids)
	read(b.targets)
	if r.Len() != 0 {
		t.Fatalf("%d bytes after the batch", r.Len())
	}
	return b
}

// TestBatches: what comes over the pipe is what the streams give.
func TestBatches(t *testing.T) {
	var out bytes.Buffer
	if err := serve(strings.NewReader(`{"kind": "lessons", "tokens": 96, "turns": 4, "weights": {"key1": 1, "hops": 2, "summary": 1}, "repeat": 0.2, "seed": 7, "first": 5, "rows": 30}`), &out); err != nil {
		t.Fatal(err)
	}
	b := readBatch(t, out.Bytes())
	lessons, err := NewLessonStream(LessonPlan{Tokens: 96, Turns: 4, Repeat: 0.2, Seed: 7,
		Weights: []LessonWeight{{Task: "hops", Weight: 2}, {Task: "key1", Weight: 1}, {Task: "summary", Weight: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	var want []Lesson
	for i := range 30 {
		l, err := lessons.At(5 + i)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, l)
	}
	compare(t, b, want)
}

// TestExamples: rows of conversations hold every answer, and <pad> after their end.
func TestExamples(t *testing.T) {
	for _, task := range []string{"items", "turns_section", "q_hops"} {
		var out bytes.Buffer
		line, err := json.Marshal(request{Kind: "examples", Task: task, Split: datasets.Validation, Tokens: 64, Seed: 3, First: 2, Rows: 8})
		if err != nil {
			t.Fatal(err)
		}
		if err := serve(bytes.NewReader(line), &out); err != nil {
			t.Fatal(err)
		}
		s, err := datasets.NewStream([]string{task}, datasets.Validation, 64, 3)
		if err != nil {
			t.Fatal(err)
		}
		var want []Lesson
		for i := range 8 {
			e, err := s.At(2 + i)
			if err != nil {
				t.Fatal(err)
			}
			l := Lesson{IDs: slices.Concat(e.Prompt, e.Answer)}
			l.Targets = append(l.Targets, Target{Task: task, Begin: len(e.Prompt), End: len(l.IDs) + 1})
			for _, turn := range e.Turns {
				l.IDs = append(l.IDs, turn.Prompt...)
				begin := len(l.IDs)
				l.IDs = append(l.IDs, turn.Answer...)
				l.Targets = append(l.Targets, Target{Task: task, Begin: begin, End: len(l.IDs) + 1})
			}
			l.IDs = append(l.IDs, 2)
			want = append(want, l)
		}
		compare(t, readBatch(t, out.Bytes()), want)
	}
}

func compare(t *testing.T, b batch, want []Lesson) {
	t.Helper()
	if len(b.ids) != b.columns*len(want) {
		t.Fatalf("%d ids in rows of %d, want %d rows", len(b.ids), b.columns, len(want))
	}
	for i, l := range want {
		row := b.ids[i*b.columns:][:b.columns]
		for j, id := range row {
			if j < len(l.IDs) && int32(id) != l.IDs[j] || j >= len(l.IDs) && id != 0 {
				t.Fatalf("row %d, column %d: id %d", i, j, id)
			}
		}
		for _, target := range l.Targets {
			if len(b.targets) == 0 {
				t.Fatalf("row %d: no target, want %v", i, target)
			}
			got := b.targets[0]
			b.targets = b.targets[1:]
			if int(got[0]) != i || int(got[1]) != target.Begin || int(got[2]) != target.End || names()[got[3]] != target.Task {
				t.Fatalf("row %d: target %v, want %v", i, got, target)
			}
			if row[target.End-1] != 2 && target.Task != LessonMention && target.Task != LessonRepeat {
				t.Fatalf("row %d: target %v ends with %d, want <eot>", i, target, row[target.End-1])
			}
		}
	}
	if len(b.targets) > 0 {
		t.Fatalf("%d targets too many", len(b.targets))
	}
}

func TestDescribeAndErrors(t *testing.T) {
	for _, c := range []struct{ name, line, want string }{
		{"describe", `{"kind": "describe"}`, `"two_turns":["turns_key","turns_section"]`},
		{"no JSON", `lessons`, `"error":"request: invalid character`},
		{"kind", `{"kind": "lesson", "rows": 1}`, `kind \"lesson\", want lessons`},
		{"rows", `{"kind": "lessons"}`, `got 0 rows`},
		{"task", `{"kind": "examples", "task": "keys", "split": "test", "tokens": 64, "rows": 1}`, `unknown task \"keys\"`},
		{"weight", `{"kind": "lessons", "tokens": 64, "turns": 1, "rows": 1}`, `no task with a weight above 0`},
		{"index", `{"kind": "lessons", "tokens": 64, "turns": 1, "weights": {"key1": 1}, "rows": 1, "first": -1}`, `lesson -1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := serve(strings.NewReader(c.line), &out); err != nil {
				t.Fatal(err)
			}
			data := out.Bytes()
			if !bytes.HasPrefix(data, []byte("GLJ1")) || int(binary.LittleEndian.Uint32(data[4:])) != len(data)-8 {
				t.Fatalf("answer %.80q, want JSON with its length", data)
			}
			if !json.Valid(data[8:]) || !strings.Contains(string(data), c.want) {
				t.Fatalf("answer %.300s, want %s in it", data, c.want)
			}
		})
	}
}
