package tasks

import (
	"context"
	"errors"
	"slices"
	"strings"

	"glimpse/datasets"
	"glimpse/evaluation"
	"glimpse/internal/listing"
)

// levalSet is one data set of L-Eval.
type levalSet struct {
	name, metric string
	maxNew       int
	interview
}

const levalTemplate = "Please read the following text and answer questions about it.\n\n{context}\n\n"

// levalSets are those with several questions about each document, and answers that a rule can hold against the reference.
var levalSets = []levalSet{
	{"tpo", "accuracy", 8, interview{template: levalTemplate + "{input}\nAnswer with the letter of the right choice.", follow: "{input}\nAnswer with the letter of the right choice.", rate: rateLetter}},
	{"financial_qa", "qa_f1", 128, interview{template: levalTemplate + "{input}", follow: "{input}", rate: rateBy("qa_f1")}},
	{"multidoc_qa", "qa_f1", 64, interview{template: levalTemplate + "{input}", follow: "{input}", rate: rateBy("qa_f1")}},
	{"scientific_qa", "qa_f1", 64, interview{template: levalTemplate + "{input}", follow: "{input}", rate: rateBy("qa_f1")}},
}

func init() {
	evaluation.Tasks.Add("leval", evaluation.Task{
		Name:     "leval",
		Doc:      "several questions about each of 69 documents: a lecture's test, a conference call, web pages, papers",
		Source:   "L-Eval, An et al. 2023, arXiv:2307.11088; github.com/OpenLMLab/LEval. The prompts are our own",
		Data:     "a folder with L-Eval's files, NAME.jsonl, of the data sets to run, or one of them",
		Subtasks: listing.Map(levalSets, func(s levalSet) string { return s.name }), NeedsData: true, Contexts: true,
		Open: openLEval,
	})
}

// rateLetter is 1 for an answer whose first letter of a choice, standing alone, is the one that is wanted.
func rateLetter(answer string, want []string) (float64, error) {
	letters := strings.FieldsFunc(answer, func(c rune) bool { return strings.ContainsRune(" \t\n.,:;()[]*\"'", c) })
	i := slices.IndexFunc(letters, func(word string) bool { return len(word) == 1 && word >= "A" && word <= "Z" })
	if i >= 0 && slices.Contains(want, letters[i]) {
		return 1, nil
	}
	return 0, nil
}

func openLEval(ctx context.Context, s *evaluation.Setting, subtask string) (*evaluation.Samples, error) {
	set := levalSets[slices.IndexFunc(levalSets, func(set levalSet) bool { return set.name == subtask })]
	if _, err := s.Model.NeedTokenizer(); err != nil {
		return nil, err
	}
	path, err := findFile(ctx, s, subtask)
	if err != nil {
		return nil, err
	}
	b := set.interview
	b.setting, b.metric, b.most = s, set.metric, maxNew(s, set.maxNew)
	return (&fileTask{Setting: s, path: path, metric: set.metric}).samples(b.readLEval)
}

// readLEval makes a sample of a row of L-Eval: "input", and lists of "instructions" and "outputs". Of a document that is asked the same
// twice, the first counts.
func (b *interview) readLEval(ctx context.Context, row datasets.Row) (*evaluation.Sample, error) {
	r := reading{Row: row}
	text, inputs, answers := r.readText("input"), r.readTexts("instructions"), r.readTexts("outputs")
	if r.err == nil && (len(inputs) == 0 || len(inputs) != len(answers)) {
		r.err = errors.New("fields \"instructions\" and \"outputs\": want as many answers as questions, at least one")
	}
	if r.err != nil {
		return nil, r.err
	}
	var questions []contextQuestion
	for i, input := range inputs {
		if !slices.ContainsFunc(questions, func(q contextQuestion) bool { return q.input == input }) {
			questions = append(questions, contextQuestion{input, []string{answers[i]}})
		}
	}
	return b.sample(ctx, text, questions)
}
