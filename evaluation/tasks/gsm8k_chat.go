package tasks

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"glimpse/datasets"
	"glimpse/evaluation"
	"glimpse/model/chat"
)

func init() {
	evaluation.Tasks.Add("gsm8k-chat", evaluation.Task{
		Name:      "gsm8k-chat",
		Doc:       "GSM8K's problems in the model's chat template, after worked examples: long answers whose number is right or wrong",
		Source:    "GSM8K, Cobbe et al. 2021, arXiv:2110.14168; github.com/openai/grade-school-math. The prompts are our own",
		Data:      "GSM8K's test.jsonl, or a folder with it and, for the examples, train.jsonl",
		NeedsData: true,
		Options: []evaluation.Option{
			{Name: "shots", Default: "4", Doc: "worked examples before the problem, as turns of the chat: the first of the train file, or else the first of the test file, which are then not asked"},
		},
		Open: openGSM8KChat,
	})
}

const (
	gsm8kMaxNew = 512
	// gsm8kRequest stands behind a problem that no example comes before, as Qwen's model cards have it.
	gsm8kRequest = "\nPlease reason step by step, and put your final answer within \\boxed{}."
)

// problem is a row of GSM8K: the answer is a solution, "#### " and the number.
type problem struct{ question, answer string }

func readProblem(row datasets.Row) (problem, error) {
	r := reading{Row: row}
	return problem{r.readText("question"), r.readText("answer")}, r.err
}

// firstProblems are the first so many of a file, or all where most is 0.
func firstProblems(path string, most int) (out []problem, err error) {
	for row, err := range fileRows(path) {
		if err != nil {
			return nil, err
		}
		p, err := readProblem(row)
		if err != nil {
			return nil, row.Fail(err)
		}
		if out = append(out, p); len(out) == most {
			break
		}
	}
	return out, nil
}

// shotsOption is how many worked examples are wanted.
func shotsOption(s *evaluation.Setting) (int, error) {
	shots, err := strconv.Atoi(s.Options["shots"])
	if err != nil || shots < 0 {
		return 0, fmt.Errorf("option shots: got %q, want a number from 0", s.Options["shots"])
	}
	return shots, nil
}

func openGSM8KChat(ctx context.Context, s *evaluation.Setting, _ string) (*evaluation.Samples, error) {
	shots, err := shotsOption(s)
	if err != nil {
		return nil, err
	}
	if err := s.Model.NeedChatTemplate(); err != nil {
		return nil, err
	}
	names := []string{"gsm8k", "gsm8k_test", "test"}
	path, err := findFile(ctx, s, names...)
	if err != nil {
		return nil, err
	}
	examples, skipped, err := gsm8kExamples(ctx, s, path, shots)
	if err != nil {
		return nil, err
	}
	var before []chat.Message
	request := ""
	if shots == 0 {
		request = gsm8kRequest
	}
	for _, e := range examples {
		before = append(before, chat.Message{Role: "user", Content: e.question}, chat.Message{Role: "assistant", Content: e.answer})
	}
	t := &fileTask{Setting: s, path: path, metric: "accuracy", most: maxNew(s, gsm8kMaxNew)}
	return t.samplesAfter(skipped, func(ctx context.Context, row datasets.Row) (*evaluation.Sample, error) {
		p, err := readProblem(row)
		if err != nil {
			return nil, err
		}
		want, ok := finalNumber(p.answer)
		if !ok {
			return nil, fmt.Errorf("field %q: got %q, want a number", "answer", p.answer)
		}
		ids, err := s.EncodePrompt(ctx, evaluation.Prompt{Messages: append(slices.Clip(before), chat.Message{Role: "user", Content: p.question + request})}, t.most)
		if err != nil {
			return nil, err
		}
		return oneTurn(ids, t.most, nil, []string{p.answer}, func(_ context.Context, answers []evaluation.Output) (evaluation.Scores, error) {
			score := 0.0
			if got, ok := finalNumber(answers[0].Text); ok && got == want {
				score = 1
			}
			return evaluation.Scores{"accuracy": score}, nil
		}), nil
	})
}

// gsm8kExamples are the worked examples, and how many of the first rows of the test file they are.
func gsm8kExamples(ctx context.Context, s *evaluation.Setting, test string, shots int) (examples []problem, skipped int, err error) {
	if shots == 0 {
		return nil, 0, nil
	}
	file, err := findFile(ctx, s, "gsm8k_train", "train")
	if errors.Is(err, evaluation.ErrNoData) {
		file, skipped, err = test, shots, nil
	}
	if err != nil {
		return nil, 0, err
	}
	if examples, err = firstProblems(file, shots); err == nil && len(examples) < shots {
		err = fmt.Errorf("%s: %d problems, want at least %d", file, len(examples), shots)
	}
	return examples, skipped, err
}

var number = regexp.MustCompile(`-?\$?[0-9][0-9,]*(\.[0-9]+)?`)

// finalNumber is the number after the last ####, or the last of a text that has none there. Commas and dollar signs do not count.
func finalNumber(text string) (float64, bool) {
	found := ""
	if i := strings.LastIndex(text, "####"); i >= 0 {
		found = number.FindString(text[i:])
	}
	if all := number.FindAllString(text, -1); found == "" && len(all) > 0 {
		found = all[len(all)-1]
	}
	x, err := strconv.ParseFloat(strings.NewReplacer(",", "", "$", "").Replace(found), 64)
	return x, err == nil
}
