package tasks

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"glimpse/checkpoints/objectstore"
	"glimpse/datasets"
	"glimpse/evaluation"
)

// rulerFiles are the files of --data and of the options that a task is made of.
type rulerFiles struct {
	prompts   string // ready ones; "" where they are made
	haystack  string
	documents string // SQuAD or HotpotQA
}

// findRULER looks for what a task needs. Ready prompts are a file with RULER's rows, or in a
// folder TASK/*.jsonl, where RULER puts them, and TASK.jsonl.
func findRULER(ctx context.Context, s *evaluation.Setting, task string) (f rulerFiles, err error) {
	option := map[string]string{"qa_1": "squad", "qa_2": "hotpotqa"}[task]
	for _, o := range []struct {
		name string
		path *string
	}{{"haystack", &f.haystack}, {option, &f.documents}} {
		if given := s.Options[o.name]; given != "" {
			if *o.path, err = objectstore.LocalData(ctx, given, s.S3, io.Discard); err != nil {
				return f, fmt.Errorf("option %s: %w", o.name, err)
			}
		}
	}
	if s.Data == "" {
		return f, nil
	}
	data, err := localData(ctx, s)
	if err != nil {
		return f, err
	}
	info, err := os.Stat(data)
	if err != nil {
		return f, err
	}
	if !info.IsDir() {
		switch ext := strings.ToLower(filepath.Ext(data)); {
		case slices.Contains([]string{".jsonl", ".ndjson", ".parquet"}, ext):
			f.prompts = data
		case option != "" && ext == ".json" && f.documents == "":
			f.documents = data
		case ext == ".txt" && f.haystack == "":
			f.haystack = data
		default:
			return f, fmt.Errorf("%s: want RULER's rows as .jsonl or .parquet, or text for the haystack as .txt", data)
		}
		return f, nil
	}
	first := func(patterns ...string) string {
		for _, p := range patterns {
			// The pattern is ours, and so right; Glob's order is that of the names.
			if found, _ := fs.Glob(os.DirFS(data), p); len(found) > 0 {
				return filepath.Join(data, found[0])
			}
		}
		return ""
	}
	f.prompts = first(task+"/*.jsonl", task+".jsonl", task+"/*.parquet", task+".parquet")
	if f.documents == "" && option != "" {
		f.documents = first(option + ".json")
	}
	if f.haystack == "" {
		f.haystack = first("PaulGrahamEssays.json", "haystack.txt")
	}
	return f, nil
}

// openPrompts reads ready prompts: RULER's rows ("input", "outputs" and in newer ones
// "answer_prefix", which the answer begins with), or the same in parts ("context",
// "question", "answer_prefix", "answer", "task"). Rows of other tasks are passed
// over. An input with nothing beside it has the chat template in it already.
func (r *ruler) openPrompts(path string) (*evaluation.Samples, error) {
	if _, err := countRows(path, 1); err != nil { // it can be opened
		return nil, err
	}
	each := rowItems(path, func(row datasets.Row) bool {
		task, err := row.Text("task")
		return err != nil || task == r.name
	}, nil, r.promptOf)
	return &evaluation.Samples{Metric: r.metric, Each: r.setting.Take(each)}, nil
}

func (r *ruler) promptOf(ctx context.Context, row datasets.Row) (*evaluation.Sample, error) {
	answer, read := "outputs", reading{Row: row}
	prompt := evaluation.Prompt{Raw: true}
	if row.Has("context") && row.Has("question") {
		prompt.Text, answer = read.readText("context")+read.readText("question"), "answer"
	} else {
		prompt.Text = read.readText("input")
	}
	if row.Has("answer_prefix") {
		prompt.Raw, prompt.Begin = false, read.readText("answer_prefix")
	}
	want := read.readTexts(answer)
	if read.err == nil && len(want) == 0 {
		read.err = fmt.Errorf("field %q: got nothing, want a list of strings", answer)
	}
	if read.err != nil {
		return nil, read.err
	}
	ids, err := r.setting.EncodePrompt(ctx, prompt, r.maxNew)
	if err != nil {
		return nil, err
	}
	return r.asked(ids, want), nil
}
