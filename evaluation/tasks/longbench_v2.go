package tasks

import (
	"context"
	"strings"

	"glimpse/datasets"
	"glimpse/evaluation"
	"glimpse/evaluation/scoring"
)

func init() {
	evaluation.Tasks.Add("longbench-v2", evaluation.Task{
		Name:   "longbench-v2",
		Doc:    "questions with four choices about texts of 8 thousand to 2 million words, by difficulty and length",
		Source: "LongBench v2, Bai et al. 2024, arXiv:2412.15204",
		Data:   "LongBench v2's data.json, or a folder with it", NeedsData: true,
		Open: openLongBenchV2,
	})
}

// longBenchV2Prompt is prompts/0shot.txt of LongBench v2.
const longBenchV2Prompt = `Please read the following text and answer the question below.

<text>
{context}
</text>

What is the correct answer to this question: {question}
Choices:
(A) {choice_A}
(B) {choice_B}
(C) {choice_C}
(D) {choice_D}

Format your response as follows: "The correct answer is (insert answer here)".`

// longBenchV2Answer is how long answers are (pred.py, without chain of thought).
const longBenchV2Answer = 128

func openLongBenchV2(ctx context.Context, s *evaluation.Setting, _ string) (*evaluation.Samples, error) {
	t, err := openFile(ctx, s, []string{"choice"}, longBenchV2Answer, "data", "longbench-v2", "longbench_v2")
	if err != nil {
		return nil, err
	}
	return t.samples(func(ctx context.Context, row datasets.Row) (*evaluation.Sample, error) {
		r := reading{Row: row}
		values, labels := r.texts("context", "question", "choice_A", "choice_B", "choice_C", "choice_D"), r.texts("answer", "difficulty", "length")
		if r.err != nil {
			return nil, r.err
		}
		for name, text := range values {
			values[name] = strings.TrimSpace(text)
		}
		ids, err := encodeLong(ctx, s, fillTemplate(longBenchV2Prompt, values), false, t.most, joined)
		if err != nil {
			return nil, err
		}
		sample := t.turn(ids, nil, scoring.Reference{Answers: []string{labels["answer"]}})
		for _, key := range []string{"difficulty", "length"} {
			sample.Groups = append(sample.Groups, evaluation.Group{Key: key, Value: labels[key]})
		}
		return sample, nil
	})
}
