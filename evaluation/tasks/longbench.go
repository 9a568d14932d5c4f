package tasks

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"glimpse/datasets"
	"glimpse/evaluation"
	"glimpse/evaluation/scoring"
)

// LongBench's own prompts and answer lengths, config/dataset2prompt.json and
// dataset2maxlen.json of github.com/THUDM/LongBench (MIT licence), and the prompts of Judge
// Q that ask before the text (Liu et al. 2025, "Judge Q", appendix A.3), with LongBench's
// empty lines.
//
//go:embed longbench/*.json
var longBenchFiles embed.FS

// longBenchSet is one data set of LongBench.
type longBenchSet struct {
	name, metric string
	// raw prompts are few-shot or code, and do not go into the chat template.
	raw bool
	// firstLine of the answer is scored.
	firstLine bool
	stop      []string
	chinese   bool
	e         bool // is part of LongBench-E
}

// longBenchSets are in the order of LongBench's pred.py.
var longBenchSets = []longBenchSet{
	{name: "narrativeqa", metric: "qa_f1"},
	{name: "qasper", metric: "qa_f1", e: true},
	{name: "multifieldqa_en", metric: "qa_f1", e: true},
	{name: "multifieldqa_zh", metric: "qa_f1_zh", chinese: true},
	{name: "hotpotqa", metric: "qa_f1", e: true},
	{name: "2wikimqa", metric: "qa_f1", e: true},
	{name: "musique", metric: "qa_f1"},
	{name: "dureader", metric: "rouge_zh", chinese: true},
	{name: "gov_report", metric: "rouge", e: true},
	{name: "qmsum", metric: "rouge"},
	{name: "multi_news", metric: "rouge", e: true},
	{name: "vcsum", metric: "rouge_zh", chinese: true},
	{name: "trec", metric: "classification", raw: true, firstLine: true, e: true},
	{name: "triviaqa", metric: "qa_f1", raw: true, firstLine: true, e: true},
	{name: "samsum", metric: "rouge", raw: true, firstLine: true, stop: []string{"\n"}, e: true},
	{name: "lsht", metric: "classification", raw: true, firstLine: true, chinese: true},
	{name: "passage_count", metric: "count", e: true},
	{name: "passage_retrieval_en", metric: "retrieval", e: true},
	{name: "passage_retrieval_zh", metric: "retrieval_zh", chinese: true},
	{name: "lcc", metric: "code_sim", raw: true, e: true},
	{name: "repobench-p", metric: "code_sim", raw: true, e: true},
}

// longBenchNames are the names of some of the data sets.
func longBenchNames(some func(longBenchSet) bool) []string {
	var names []string
	for _, set := range longBenchSets {
		if some(set) {
			names = append(names, set.name)
		}
	}
	return names
}

func init() {
	all := func(longBenchSet) bool { return true }
	english := func(s longBenchSet) bool { return !s.chinese }
	options := []evaluation.Option{
		{Name: "question", Default: "last", Doc: "first: the question stands before the text, as Judge Q has it (narrativeqa, qasper and multifieldqa_en)"},
		{Name: "code_sim", Default: "difflib", Doc: "levenshtein: what fuzzywuzzy computes where python-Levenshtein is installed"},
	}
	evaluation.Tasks.Add("longbench", evaluation.Task{
		Name:     "longbench",
		Doc:      "21 data sets of long texts: questions, summaries, few-shot, synthetic, code; alone it stands for the 16 English ones",
		Source:   "LongBench, Bai et al. 2023, arXiv:2308.14508",
		Data:     "a folder with LongBench's files, NAME.jsonl, of the data sets to run, or one of them",
		Subtasks: longBenchNames(all), Defaults: longBenchNames(english), NeedsData: true, Options: options,
		Open: func(ctx context.Context, s *evaluation.Setting, name string) (*evaluation.Samples, error) {
			return openLongBench(ctx, s, name, false)
		},
	})
	evaluation.Tasks.Add("longbench-e", evaluation.Task{
		Name:     "longbench-e",
		Doc:      "13 data sets of LongBench with about as many texts of 0 to 4, 4 to 8 and over 8 thousand words",
		Source:   "LongBench-E, Bai et al. 2023, arXiv:2308.14508, section 3.3",
		Data:     "a folder with LongBench's files, NAME_e.jsonl, of the data sets to run, or one of them",
		Subtasks: longBenchNames(func(s longBenchSet) bool { return s.e }), NeedsData: true, Options: options,
		Open: func(ctx context.Context, s *evaluation.Setting, name string) (*evaluation.Samples, error) {
			return openLongBench(ctx, s, name, true)
		},
	})
}

// longBenchTable reads one of the embedded files.
func longBenchTable(file string, into any) {
	data, err := longBenchFiles.ReadFile("longbench/" + file)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		panic(fmt.Sprintf("tasks: embedded %s: %v", file, err))
	}
}

func openLongBench(ctx context.Context, s *evaluation.Setting, name string, e bool) (*evaluation.Samples, error) {
	at := slices.IndexFunc(longBenchSets, func(set longBenchSet) bool { return set.name == name })
	set := longBenchSets[at]
	var prompts map[string]string
	var lengths map[string]int
	longBenchTable("dataset2prompt.json", &prompts)
	longBenchTable("dataset2maxlen.json", &lengths)
	switch s.Options["question"] {
	case "last":
	case "first":
		var first map[string]string
		longBenchTable("question_first.json", &first)
		if first[name] == "" {
			return nil, fmt.Errorf("question=first is there for %s", strings.Join(slices.Sorted(maps.Keys(first)), ", "))
		}
		prompts = first
	default:
		return nil, fmt.Errorf("option question: got %q, want first or last", s.Options["question"])
	}
	metric := set.metric
	switch {
	case s.Options["code_sim"] != "difflib" && s.Options["code_sim"] != "levenshtein":
		return nil, fmt.Errorf("option code_sim: got %q, want difflib or levenshtein", s.Options["code_sim"])
	case metric == "code_sim" && s.Options["code_sim"] == "levenshtein":
		metric = "code_sim_levenshtein"
	}
	file := name
	if e {
		file += "_e"
	}
	t, err := openFile(ctx, s, []string{metric}, lengths[name], file)
	if err != nil {
		return nil, err
	}
	if set.firstLine {
		t.edit = scoring.FirstLine
	}
	return t.samples(func(ctx context.Context, row datasets.Row) (*evaluation.Sample, error) {
		r := reading{Row: row}
		values, ref := r.texts("context", "input"), scoring.Reference{Answers: r.readTexts("answers")}
		if row.Has("all_classes") {
			ref.Classes = r.readTexts("all_classes")
		}
		if r.err != nil {
			return nil, r.err
		}
		ids, err := encodeLong(ctx, s, fillTemplate(prompts[name], values), set.raw, t.most, halves)
		if err != nil {
			return nil, err
		}
		sample := t.turn(ids, set.stop, ref)
		// LongBench wants one token before the line end that ends an answer to samsum
		// (pred.py, min_length), and scores the first line that is not empty.
		sample.Turns[0].SkipLeading = true
		if e {
			bucket, err := longBenchBucket(row)
			if err != nil {
				return nil, err
			}
			sample.Groups = append(sample.Groups, evaluation.Group{Key: "length", Value: bucket})
		}
		return sample, nil
	})
}

// longBenchBucket is the range of words that a row of LongBench-E is reported in (eval.py,
// scorer_e).
func longBenchBucket(row datasets.Row) (string, error) {
	var words int
	if err := row.Decode("length", "a number of words", &words); err != nil {
		return "", err
	}
	switch {
	case words < 4000:
		return "0-4k", nil
	case words < 8000:
		return "4-8k", nil
	}
	return "8k+", nil
}
