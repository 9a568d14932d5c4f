package tasks

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"glimpse/datasets"
	"glimpse/evaluation"
)

func init() {
	evaluation.Tasks.Add("mtbench", evaluation.Task{
		Name:      "mtbench",
		Doc:       "two questions of a conversation, whose answers a language model rates after the run (evict judge)",
		Source:    "MT-Bench, Zheng et al. 2023, arXiv:2306.05685; github.com/lm-sys/FastChat, fastchat/llm_judge",
		Data:      "MT-Bench's question.jsonl, or its folder, which may have reference_answer/gpt-4.jsonl",
		NeedsData: true,
		Options: []evaluation.Option{
			{Name: "reference", Doc: "file of reference answers in the place of reference_answer/gpt-4.jsonl beside the questions"},
			{Name: "system", Doc: "what the system says at the beginning of the conversation"},
		},
		Open:  openMTBench,
		Judge: &evaluation.Judged{Metric: "mt_bench", Scale: 10, Prompts: mtBenchPrompts},
	})
}

const mtMaxNew = 1024

// mtQuestion is a row of question.jsonl.
type mtQuestion struct {
	id, category string
	turns        []string
	reference    []string // of the turns; nil: none
}

func readMTQuestion(row datasets.Row) (q mtQuestion, _ error) {
	r := reading{Row: row}
	q = mtQuestion{id: r.readText("question_id"), category: r.readText("category"), turns: r.readTexts("turns")}
	if r.err == nil && (len(q.turns) < 1 || len(q.turns) > 2 || slices.Contains(q.turns, "")) {
		r.err = fmt.Errorf("field %q: got %d turns, want one or two, none of them empty", "turns", len(q.turns))
	}
	if row.Has("reference") {
		q.reference = r.readTexts("reference")
	}
	return q, r.err
}

func mtFile(ctx context.Context, s *evaluation.Setting) (string, error) {
	return findFile(ctx, s, "question", "questions", "mt_bench/question")
}

func openMTBench(ctx context.Context, s *evaluation.Setting, _ string) (*evaluation.Samples, error) {
	path, err := mtFile(ctx, s)
	if err != nil {
		return nil, err
	}
	if _, err := s.Model.NeedTokenizer(); err != nil {
		return nil, err
	}
	most := maxNew(s, mtMaxNew)
	t := &fileTask{Setting: s, path: path, metric: evaluation.Agreement, id: func(row datasets.Row) string {
		if q, err := readMTQuestion(row); err == nil {
			return q.id
		}
		return ""
	}}
	return t.samples(func(ctx context.Context, row datasets.Row) (*evaluation.Sample, error) {
		q, err := readMTQuestion(row)
		if err != nil {
			return nil, err
		}
		turns, err := (&conversation{setting: s, system: s.Options["system"], users: q.turns, maxNew: most}).turns(ctx)
		return &evaluation.Sample{Turns: turns, Groups: []evaluation.Group{{Key: "category", Value: q.category}}}, err
	})
}

// mtNeedReference are the categories that are judged against a reference answer
// (fastchat/llm_judge/common.py, NEED_REF_CATS).
var mtNeedReference = []string{"math", "reasoning", "coding", "arena-hard-200"}

// The prompts of the judge are MT-Bench's (data/judge_prompts.jsonl): single-v1,
// single-math-v1 and, for the second turn, the prompts for several turns.
const (
	mtSystem = "You are a helpful assistant."
	mtFormat = `strictly following this format: "[[rating]]", for example: "Rating: [[5]]".`

	mtFactors = "Your evaluation should consider factors such as the helpfulness, relevance, accuracy, depth, creativity, and level of detail of the response. "

	mtSingle = "[Instruction]\nPlease act as an impartial judge and evaluate the quality of the response provided by an AI assistant to the user question displayed below. " +
		mtFactors + "Begin your evaluation by providing a short explanation. Be as objective as possible. After providing your explanation, you must rate the response on a scale of 1 to 10 by " + mtFormat +
		"\n\n[Question]\n{question_1}\n\n[The Start of Assistant's Answer]\n{answer_1}\n[The End of Assistant's Answer]"

	mtSingleReference = "[Instruction]\nPlease act as an impartial judge and evaluate the quality of the response provided by an AI assistant to the user question displayed below. " +
		"Your evaluation should consider correctness and helpfulness. You will be given a reference answer and the assistant's answer. Begin your evaluation by comparing the assistant's answer with the reference answer. Identify and correct any mistakes. Be as objective as possible. " +
		"After providing your explanation, you must rate the response on a scale of 1 to 10 by " + mtFormat +
		"\n\n[Question]\n{question_1}\n\n[The Start of Reference Answer]\n{reference_1}\n[The End of Reference Answer]\n\n[The Start of Assistant's Answer]\n{answer_1}\n[The End of Assistant's Answer]"

	mtSecondSystem = "Please act as an impartial judge and evaluate the quality of the response provided by an AI assistant to the user question displayed below. " +
		mtFactors + "You evaluation should focus on the assistant's answer to the second user question. Begin your evaluation by providing a short explanation. Be as objective as possible. " +
		"After providing your explanation, you must rate the response on a scale of 1 to 10 by " + mtFormat + "\n\n"

	mtSecondReferenceSystem = "Please act as an impartial judge and evaluate the quality of the response provided by an AI assistant to the user question. " +
		"Your evaluation should consider correctness and helpfulness. You will be given a reference answer and the assistant's answer. You evaluation should focus on the assistant's answer to the second question. " +
		"Begin your evaluation by comparing the assistant's answer with the reference answer. Identify and correct any mistakes. Be as objective as possible. " +
		"After providing your explanation, you must rate the response on a scale of 1 to 10 by " + mtFormat + "\n\n"

	mtSecond = "<|The Start of Assistant A's Conversation with User|>\n\n### User:\n{question_1}\n\n### Assistant A:\n{answer_1}\n\n### User:\n{question_2}\n\n### Assistant A:\n{answer_2}\n\n<|The End of Assistant A's Conversation with User|>"

	mtSecondReference = "<|The Start of Reference Answer|>\n\n### User:\n{question_1}\n\n### Reference answer:\n{reference_1}\n\n### User:\n{question_2}\n\n### Reference answer:\n{reference_2}\n\n<|The End of Reference Answer|>\n\n\n" + mtSecond
)

// mtBenchPrompts reads the questions and the reference answers.
func mtBenchPrompts(ctx context.Context, s *evaluation.Setting, _ string) (func(sample string, answers []string) ([]evaluation.JudgePrompt, error), error) {
	path, err := mtFile(ctx, s)
	if err != nil {
		return nil, err
	}
	questions := make(map[string]mtQuestion)
	for row, err := range fileRows(path) {
		if err != nil {
			continue // its sample has failed
		}
		if q, err := readMTQuestion(row); err == nil {
			questions[q.id] = q
		}
	}
	references, err := mtReferences(path, s.Options["reference"])
	if err != nil {
		return nil, err
	}
	return func(sample string, answers []string) ([]evaluation.JudgePrompt, error) {
		q, ok := questions[sample]
		if !ok {
			return nil, fmt.Errorf("%s has no question %s", path, sample)
		}
		reference := references[sample]
		if reference == nil {
			reference = q.reference
		}
		return q.judge(answers, reference)
	}, nil
}

// mtReferences are the reference answers by question, from a file that is named, or from
// the one beside the questions, if there is one.
func mtReferences(questions, named string) (map[string][]string, error) {
	path := named
	if path == "" {
		path = filepath.Join(filepath.Dir(questions), "reference_answer", "gpt-4.jsonl")
		if _, err := os.Stat(path); err != nil {
			return nil, nil
		}
	}
	out := make(map[string][]string)
	for row, err := range fileRows(path) {
		if err != nil {
			return nil, err
		}
		r := reading{Row: row}
		if out[r.readText("question_id")] = r.readTexts("choices.0.turns"); r.err != nil {
			return nil, row.Fail(r.err)
		}
	}
	return out, nil
}

// judge makes a prompt for each turn.
func (q mtQuestion) judge(answers, reference []string) ([]evaluation.JudgePrompt, error) {
	if len(answers) != len(q.turns) {
		return nil, fmt.Errorf("question %s: %d answers to %d turns", q.id, len(answers), len(q.turns))
	}
	values := make(map[string]string)
	for i := range q.turns {
		n := strconv.Itoa(i + 1)
		values["question_"+n], values["answer_"+n] = q.turns[i], answers[i]
	}
	single, system, second := mtSingle, mtSecondSystem, mtSecond
	if slices.Contains(mtNeedReference, q.category) {
		if len(reference) < len(q.turns) {
			return nil, fmt.Errorf("question %s: %s is judged against a reference answer, of which there are %d for %d turns; --task-option mtbench.reference=FILE names their file", q.id, q.category, len(reference), len(q.turns))
		}
		for i := range q.turns {
			values["reference_"+strconv.Itoa(i+1)] = reference[i]
		}
		single, system, second = mtSingleReference, mtSecondReferenceSystem, mtSecondReference
	}
	out := []evaluation.JudgePrompt{{System: mtSystem, User: fillTemplate(single, values)}}
	if len(q.turns) > 1 {
		out = append(out, evaluation.JudgePrompt{System: system, User: fillTemplate(second, values)})
	}
	return out, nil
}
