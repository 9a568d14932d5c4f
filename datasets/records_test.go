package datasets_test

import (
	"bytes"
	"compress/gzip"

	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"glimpse/datasets"
)

// readRecords reads a source to its end: records, and errors by the index of their row.
func readRecords(t testing.TB, path, format string, fields datasets.Fields) (all []datasets.Record, bad map[int]string) {
	t.Helper()
	r, err := datasets.OpenRecords(path, format, fields)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	bad = map[int]string{}
	for range 1000 {
		record, err := r.Next()
		var row *datasets.RowError
		switch {
		case err == io.EOF:
			return all, bad
		case errors.As(err, &row):
			bad[record.Index] = err.Error()
		case err != nil:
			bad[-1-len(bad)] = err.Error()
		default:
			all = append(all, record)
		}
	}
	t.Fatal("no end after 1000 records")
	return nil, nil
}

// said is a prompt in one line: what each speaker says, or the text.
func said(p datasets.Prompt) string {
	if p.Form != datasets.FormMessages {
		return p.Text
	}
	var turns []string
	for _, m := range p.Messages {
		turns = append(turns, m.Role+": "+m.Content)
	}
	return strings.Join(turns, " | ")
}

// TestFields: rows as hubs have them, by preset, path and template.
func TestFields(t *testing.T) {
	for name, c := range map[string]struct {
		line, flags  string // flags are parted by semicolons
		form         datasets.PromptForm
		id, said     string
		refs         []string
		generateFrom string // the same row as a source of a mix, with its answer
	}{
		"own":             {line: `{"prompt": "p", "answers": ["a", "b"], "id": 7}`, form: "prompt", id: "7", said: "p", refs: []string{"a", "b"}, generateFrom: "p"},
		"own, one answer": {line: `{"text": "p", "answer": "a"}`, form: "text", id: "f.jsonl:1", said: "p", refs: []string{"a"}, generateFrom: "p"},
		"as SQuAD": {line: `{"id": "5", "context": "c", "question": "q", "answers": {"text": ["a", "b"], "answer_start": [1, 2]}}`, flags: "squad",
			form: "prompt", id: "5", said: "c\n\nq", refs: []string{"a", "b"}, generateFrom: "user: c\n\nq | assistant: a"},
		"no answer in SQuAD 2": {line: `{"id": "5", "context": "c", "question": "q", "answers": {"text": [], "answer_start": []}}`, flags: "squad",
			form: "prompt", id: "5", said: "c\n\nq", generateFrom: "c\n\nq"},
		"paths": {line: `{"q": "?", "doc": {"body": "c"}, "answers": [{"text": "a"}, {"text": "b"}]}`, flags: "prompt=q,context=doc.body,answer=answers.text",
			form: "prompt", id: "f.jsonl:1", said: "c\n\n?", refs: []string{"a", "b"}, generateFrom: "user: c\n\n? | assistant: a"},
		"template": {line: `{"context": "c", "question": "q", "choices": ["x", "y"], "n": 3, "answer": 1.50}`, flags: `prompt={context}\n\n{question} {{{n}}}, one of:\n{choices};answer=answer`,
			form: "prompt", id: "f.jsonl:1", said: "c\n\nq {3}, one of:\nx\ny", refs: []string{"1.50"}, generateFrom: "user: c\n\nq {3}, one of:\nx\ny | assistant: 1.50"},
		"element":        {line: `{"turns": [{"say": "x"}, {"say": "y"}], "a": true}`, flags: "text=turns.1.say, answer=a", form: "text", id: "f.jsonl:1", said: "y", refs: []string{"true"}, generateFrom: "y"},
		"name with dots": {line: `{"a.b": {"c": "x"}, "a": {"b": {"c": "y"}}}`, flags: "prompt=a.b.c", form: "prompt", id: "f.jsonl:1", said: "x", generateFrom: "x"},
		"document beside messages": {line: `{"document": "d", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}], "answers": ["a"], "sub-dataset": "x"}`, flags: "chatqa2",
			form: "messages", id: "f.jsonl:1", said: "system: s | user: d\n\nq", refs: []string{"a"}, generateFrom: "system: s | user: d\n\nq | assistant: a"},
		"question and answer": {line: `{"question": "q", "answer": "a"}`, flags: "qa", form: "prompt", id: "f.jsonl:1", said: "q", refs: []string{"a"}, generateFrom: "user: q | assistant: a"},
		"The Stack":           {line: `{"content": "package x", "lang": "Go"}`, flags: "the-stack", form: "text", id: "f.jsonl:1", said: "package x", generateFrom: "package x"},
		"preset and more":     {line: `{"problem": "p", "answer": 4, "unique_id": "u/1"}`, flags: "math;id=unique_id", form: "prompt", id: "u/1", said: "p", refs: []string{"4"}, generateFrom: "user: p | assistant: 4"},
		"another form":        {line: `{"problem": "p", "answer": 4}`, flags: "math;text=problem", form: "text", id: "f.jsonl:1", said: "p", refs: []string{"4"}, generateFrom: "p"},
		"ShareGPT elsewhere":  {line: `{"chat": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}`, flags: "messages=chat", form: "messages", id: "f.jsonl:1", said: "user: q", refs: []string{"a"}, generateFrom: "user: q | assistant: a"},
		"completion":          {line: `{"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "a"}]}`, form: "messages", id: "f.jsonl:1", said: "user: q", refs: []string{"a"}, generateFrom: "user: q | assistant: a"},
		"completion of text":  {line: `{"prompt": "q", "completion": "a"}`, form: "prompt", id: "f.jsonl:1", said: "q", refs: []string{"a"}, generateFrom: "q"},
		"context and parts":   {line: `{"d": "d", "messages": [{"role": "user", "content": [{"type": "text", "text": "q"}]}, {"role": "assistant", "content": [{"type": "text", "text": "a"}]}]}`, flags: "context=d", form: "messages", id: "f.jsonl:1", said: "user: d\n\nq", refs: []string{"a"}, generateFrom: "user: d\n\nq | assistant: a"},
		"last turn":           {line: `{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}`, form: "messages", id: "f.jsonl:1", said: "user: q", refs: []string{"a"}, generateFrom: "user: q | assistant: a"},
		"answer and turn":     {line: `{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "answer": "b"}`, form: "messages", id: "f.jsonl:1", said: "user: q", refs: []string{"b"}, generateFrom: "user: q | assistant: a"},
		"worked examples":     {line: `{"prompt": "p", "chosen": "c", "rejected": "r"}`, form: "few-shot", id: "f.jsonl:1", said: "p", refs: []string{"c"}, generateFrom: "p"},
		"null beside":         {line: `{"prompt": null, "text": "t", "answers": null, "id": null}`, form: "text", id: "f.jsonl:1", said: "t", generateFrom: "t"},
		"empty answers":       {line: `{"text": "t", "answers": ["", "a"]}`, form: "text", id: "f.jsonl:1", said: "t", refs: []string{"a"}, generateFrom: "t"},
	} {
		t.Run(name, func(t *testing.T) {
			var flags []string
			if c.flags != "" {
				flags = strings.Split(c.flags, ";")
			}
			fields, err := datasets.ParseFields(flags)
			if err != nil {
				t.Fatal(err)
			}
			path := write(t, filepath.Join(t.TempDir(), "f.jsonl"), c.line)
			all, bad := readRecords(t, path, "", fields)
			if len(all) != 1 || len(bad) != 0 {
				t.Fatalf("%d records, errors %v", len(all), bad)
			}
			got := all[0]
			if got.Form != c.form || got.ID != c.id || said(got.Prompt) != c.said || !reflect.DeepEqual(got.References, c.refs) || got.Index != 0 {
				t.Errorf("form %s, id %q, said %q, references %q", got.Form, got.ID, said(got.Prompt), got.References)
			}
			r, err := datasets.OpenSource(path, "", fields)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if p, err := r.Next(); err != nil || said(p) != c.generateFrom {
				t.Errorf("as a source: %q, %v, want %q", said(p), err, c.generateFrom)
			}
		})
	}
}

// TestFieldsErrors: a mapping that cannot be is refused before anything is read.
func TestFieldsErrors(t *testing.T) {
	for flags, want := range map[string]string{
		"promt=q":                "unknown name \"promt\", want one of: id, prompt",
		"nosuch":                 `unknown field preset "nosuch", want one of: boolq, chatqa2`,
		"prompt=":                "got nothing for prompt",
		"prompt=a,prompt=b":      "got prompt twice",
		"prompt=a,text=b":        "got 2 of prompt, text, messages and prompt_ids, want one",
		"messages={a}":           `field messages: got the template "{a}", want a path`,
		"prompt={a":              "got a brace alone",
		"prompt=a}":              "got a brace alone",
		"prompt={}":              "got a brace alone",
		"prompt={a{b}}":          "got a brace alone",
		"prompt_ids=a,context=b": "got context beside prompt_ids",
		"metric_options.x={a}":   `field metric_options.x: got the template`,
	} {
		if _, err := datasets.ParseFields([]string{flags}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want it to say %q", flags, err, want)
		}
	}
	for _, name := range datasets.FieldPresets.Names() {
		if err := (datasets.Fields{Preset: name}).Validate(); err != nil {
			t.Errorf("preset %s: %v", name, err)
		}
	}
}

// TestBadRows: each bad row is told with its place, its field, what was there and what was
// wanted, and the rows after it are read.
func TestBadRows(t *testing.T) {
	squad := datasets.Fields{Preset: "squad"}
	good := `{"id": "g", "context": "c", "question": "q", "answers": {"text": ["a"]}}`
	lines := []struct{ line, want string }{
		{good, ""},
		{`{"id": "x", "context": "c", "answers": {"text": ["a"]}}`, `:2: field "question": missing`},
		{`{"id": "x", "context": "c", "question": 5, "answers": {"text": ["a"]}}`, `:3: field "question": got 5, want a string`},
		{`{"id": "x", "context": "c", "question": "q", "answers": {"text": [{"a": 1}]}}`, `:4: field "answers.text": element 0: got {"a": 1}, want a string`},
		{`{"id": "x", "context": "c", "question": "q", "answers": "a"}`, `:5: field "answers.text": got "a" for "answers", want an object or a list`},
		{`{"id": "x", "context": "c", "question": "q"`, `:6: got the end of the line after byte`},
		{`["q"]`, `:7: got ["q"], want a JSON object`},
		{good, ""},
		{`{"id": "x", "context": "` + strings.Repeat("long ", datasets.MaxLine/5) + `"}`, `:9: got a line of more than 16777215 bytes`},
		{"{\"question\": \"\xff\"}", `:10: got bytes that are not UTF-8`},
		{`{"id": "", "context": "c", "question": "q", "answers": {"text": []}}`, `:11: field "id": got nothing`},
		{`{"id": "x", "context": {"a": 1}, "question": "q", "answers": {"text": []}}`, `:12: field "context": got {"a": 1}`},
		{`{"id": "x", "context": "c", "question": "q", "answers": {"text": [], "text": []}}`, `:13: field "answers.text": field "text": got it twice`},
		{good, ""},
	}
	var text strings.Builder
	for _, l := range lines {
		text.WriteString(l.line + "\n")
	}
	dir := t.TempDir()
	all, bad := readRecords(t, write(t, filepath.Join(dir, "rows.jsonl"), text.String()), "", squad)
	if len(all) != 3 || len(all)+len(bad) != len(lines) {
		t.Errorf("%d good rows and %d bad ones, want 3 and %d", len(all), len(bad), len(lines)-3)
	}
	for i, l := range lines {
		if !strings.Contains(bad[i], l.want) || (l.want == "") != (bad[i] == "") {
			t.Errorf("row %d: error %q, want it to say %q", i, bad[i], l.want)
		}
	}
	for _, r := range all {
		if lines[r.Index].want != "" || r.Row.Number != r.Index+1 {
			t.Errorf("record of row %d is called %d", r.Row.Number, r.Index)
		}
	}

	// In an array an element is left out, and what cannot be parsed ends the file.
	array := "[" + good + `, {"question": 1}, 5, ` + good + `, {"question"`
	all, bad = readRecords(t, write(t, filepath.Join(dir, "rows.json"), array), "", squad)
	if len(all) != 2 || len(bad) != 3 || !strings.Contains(bad[1], `element 1: field "question": got 1`) || !strings.Contains(bad[2], "element 2: got 5, want a JSON object") {
		t.Errorf("array: %d records, errors %v", len(all), bad)
	}
	// A broken file of a folder ends that file alone.
	folder := filepath.Join(dir, "folder")
	write(t, filepath.Join(folder, "a.json"), array)
	write(t, filepath.Join(folder, "b.parquet"), "PAR1 nonsense PAR1")
	write(t, filepath.Join(folder, "c.jsonl"), "\n")
	write(t, filepath.Join(folder, "d.jsonl"), good)
	all, bad = readRecords(t, folder, "", squad)
	if len(all) != 3 || len(bad) != 5 {
		t.Errorf("folder: %d records, errors %v", len(all), bad)
	}
	for want, fields := range map[string]datasets.Fields{
		"got no user's turn":    {Messages: "m", Context: "c"},
		"got no turn to answer": {Messages: "m"},
	} {
		_, bad := readRecords(t, write(t, filepath.Join(dir, "m.jsonl"), `{"m": [{"role": "system", "content": "s"}], "c": "d"}`), "", fields)
		if !strings.Contains(bad[0], want) {
			t.Errorf("error %q, want it to say %q", bad[0], want)
		}
	}
}

// TestHubParquet reads a file as pyarrow writes it for hubs (lab/golden/hub_parquet.py): lists
// of strings, structs, lists of structs and of lists, nulls, and what is no text.
func TestHubParquet(t *testing.T) {
	path := filepath.Join("testdata", "hub.parquet")
	fields := datasets.Fields{ID: "id", Prompt: "question", Answer: "answers.text", MetricOptions: map[string]string{"all_classes": "tags"}}
	all, bad := readRecords(t, path, "", fields)
	if len(all) != 3 || len(bad) != 0 {
		t.Fatalf("%d records, errors %v", len(all), bad)
	}
	for i, want := range []struct {
		refs []string
		tags []string
	}{{[]string{"x", "y"}, []string{"a", "b"}}, {nil, nil}, {[]string{"z"}, nil}} {
		got := all[i]
		if got.ID != string("abc"[i]) || got.Text != fmt.Sprint("q", i) || !reflect.DeepEqual(got.References, want.refs) || !reflect.DeepEqual(got.MetricOptions["all_classes"], want.tags) {
			t.Errorf("row %d: %+v", i, got)
		}
	}
	row := all[0].Row
	for path, want := range map[string]string{
		"turns": `[{"content":"hi","role":"user"},{"content":null,"role":"assistant"}]`, "turns.content": `["hi",null]`, "answers.answer_start": `[1,2]`,
		"sentences": `[["a","b"],["c"]]`, "sentences.0.1": `"b"`, "big": `"large"`, "f": `1`, "b": `true`, "cat": `"m"`, "blob": `{"bytes that are not UTF-8":2}`, "empty": `null`,
	} {
		if raw, err := row.Raw(path); err != nil || string(raw) != want {
			t.Errorf("%s: %s, %v, want %s", path, raw, err, want)
		}
	}
	if raw, err := all[1].Row.Raw("f"); err != nil || string(raw) != "null" {
		t.Errorf("a number that is none: %s, %v, want null", raw, err)
	}
	// What is bad in one row is bad in that row alone.
	all, bad = readRecords(t, path, "", datasets.Fields{Text: "blob"})
	if len(all) != 1 || all[0].Text != "ok" || !strings.Contains(bad[0], `hub.parquet: row 0: field "blob": got {"bytes that are not UTF-8":2}, want a string`) || !strings.Contains(bad[2], `row 2: field "blob": got null`) {
		t.Errorf("%d records, errors %v", len(all), bad)
	}
}

// TestCount: the number of rows where files tell it.
func TestCount(t *testing.T) {
	hub, err := os.ReadFile(filepath.Join("testdata", "hub.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "p", "1.parquet"), string(hub))
	write(t, filepath.Join(dir, "p", "2.parquet"), string(hub))
	write(t, filepath.Join(dir, "p", "3.txt"), "text")
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write([]byte(`{"text": "a"}` + "\n" + `{"text": "b"}`))
	z.Close()
	for _, in := range []string{"", "all"} {
		write(t, filepath.Join(dir, in, "l.jsonl"), `{"text": "a"}`+"\n\n"+`{"text": `+"\n"+`{"text": "c"}`)
		write(t, filepath.Join(dir, in, "c.csv"), "text\n\"a\nb\"\nc\n")
		write(t, filepath.Join(dir, in, "a.json"), `[{"text": "a"}, {"text": 5}]`)
		write(t, filepath.Join(dir, in, "z.jsonl.gz"), zipped.String())
	}
	for path, want := range map[string]int64{"p": 7, "p/2.parquet": 3, "l.jsonl": 3, "c.csv": 2, "a.json": 2, "z.jsonl.gz": 2, "all": 9} {
		r, err := datasets.OpenRecords(filepath.Join(dir, path), "", datasets.Fields{})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := r.Count(0); n != want || err != nil {
			t.Errorf("%s: %d rows, %v, want %d", path, n, err, want)
		}
		if n, err := r.Count(2); n != 2 || err != nil {
			t.Errorf("%s: %d of the first 2 rows, %v", path, n, err)
		}
		rows := int64(0) // the counting takes none of them away
		for {
			if _, err := r.Next(); err == io.EOF {
				break
			}
			rows++
		}
		if rows != want {
			t.Errorf("%s: %d rows are read, want %d", path, rows, want)
		}
		r.Close()
	}
}

// FuzzRecords: any lines under any fields are records or errors of rows, as many as there
// are lines, and references are texts of the row.
func FuzzRecords(f *testing.F) {
	for _, flag := range []string{"squad", "prompt={context} {a.0.b}", "messages=m,answer=a", "text=t.1,id=i", "prompt_ids=p", ""} {
		f.Add(flag, `{"context": "c", "question": "q", "answers": {"text": ["a"]}, "id": 1}`+"\n"+`{"m": [{"from": "human", "value": "x"}], "a": [[1], "2"]}`)
		f.Add(flag, `{"t": ["a", "b"], "i": null, "p": [1, 2]}`+"\n\n"+`{"a.b": {"c": [{"d": 1}]}, "a": [{"b": true}]}`)
	}
	f.Fuzz(func(t *testing.T, flag, text string) {
		var flags []string
		if flag != "" {
			flags = []string{flag}
		}
		fields, err := datasets.ParseFields(flags)
		if err != nil {
			return
		}
		text = `{"prompt": "x"}` + "\n" + text // one object a line
		if strings.Contains(text, "\x00") {
			return // no text
		}
		lines := 0
		for line := range strings.SplitSeq(text, "\n") {
			if strings.TrimSpace(line) != "" {
				lines++
			}
		}
		if lines > 500 {
			return
		}
		path := filepath.Join(t.TempDir(), "f.jsonl")
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		all, bad := readRecords(t, path, "jsonl", fields)
		if len(all)+len(bad) != lines {
			t.Fatalf("%d records and %d errors of %d lines", len(all), len(bad), lines)
		}
		for _, r := range all {
			if r.ID == "" || r.Text == "" && len(r.Messages) == 0 && len(r.IDs) == 0 && fields.Prompt == "" && fields.Text == "" {
				t.Fatalf("record without a prompt: %+v", r)
			}
			for _, text := range r.References {
				if text == "" {
					t.Fatalf("an empty reference in %+v", r)
				}
			}
		}
	})
}
