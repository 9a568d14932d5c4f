package tasks

import (
	"cmp"
	"context"
	"fmt"
	"iter"

	"glimpse/datasets"
	"glimpse/evaluation"
)

// prompt is one that a task measures on, whatever it asks.
type prompt struct {
	id         string
	references []string
	answer     []int32 // of a synthetic task
	// encode makes its tokens, for an answer of at most so many.
	encode func(ctx context.Context, maxNew int) ([]int32, error)
	// text is running text as it stands; "" for prompts.
	text string
	err  error // of reading it
}

// promptsOf goes over the rows of --data, or over prompts of the synthetic task of that name
// where there is no --data.
func promptsOf(ctx context.Context, s *evaluation.Setting, synthetic string) (each iter.Seq[prompt], count int, err error) {
	if s.Data == "" {
		return syntheticPrompts(s, synthetic)
	}
	fields, err := datasets.ParseFields(s.Fields)
	if err != nil {
		return nil, 0, err
	}
	path, err := localData(ctx, s)
	if err != nil {
		return nil, 0, err
	}
	open := func() (*datasets.RecordReader, error) { return datasets.OpenRecords(path, datasets.FormatAuto, fields) }
	r, err := open() // what concerns all rows is told now
	if err != nil {
		return nil, 0, err
	}
	n, err := r.Count(int64(s.Samples))
	if err != nil {
		n = 0 // the rows will tell
	}
	if err = r.Close(); err != nil {
		return nil, 0, err
	}
	if s.Samples > 0 && (n < 0 || n > int64(s.Samples)) {
		n = int64(s.Samples)
	}
	return func(yield func(prompt) bool) {
		i := 0
		for e, err := range readEach(open) {
			i++
			if !yield(recordPrompt(s, e, err)) || i == s.Samples {
				return
			}
		}
	}, int(max(0, n)), nil
}

// recordPrompt is the prompt of a row, or what is wrong with it.
func recordPrompt(s *evaluation.Setting, e datasets.Record, err error) prompt {
	p := prompt{id: e.ID, references: e.References, err: err}
	p.id = cmp.Or(p.id, s.Data)
	if e.Form == datasets.FormText {
		p.text = e.Text
	}
	p.encode = func(ctx context.Context, maxNew int) ([]int32, error) {
		ids, err := encodePrompt(ctx, s, e.Prompt, maxNew)
		if err != nil {
			return nil, e.Row.Fail(err)
		}
		return ids, nil
	}
	return p
}

func syntheticPrompts(s *evaluation.Setting, synthetic string) (iter.Seq[prompt], int, error) {
	if !datasets.Knows(s.Model.Config.Vocab) {
		return nil, 0, fmt.Errorf("model %s does not know the words of the synthetic tasks; give it prompts with --data", s.Model.Name)
	}
	tokens := cmp.Or(s.Tokens, syntheticTokens)
	stream, err := datasets.NewStream([]string{synthetic}, s.Split, tokens, s.Seed)
	if err != nil {
		return nil, 0, err
	}
	return func(yield func(prompt) bool) {
		for i := range s.Limit() {
			e, err := stream.At(i)
			p := prompt{id: fmt.Sprintf("%s-%d", synthetic, i), answer: e.Answer, err: err}
			p.encode = func(ctx context.Context, maxNew int) ([]int32, error) {
				return s.EncodePrompt(ctx, evaluation.Prompt{IDs: e.Prompt}, maxNew)
			}
			if !yield(p) {
				return
			}
		}
	}, s.Limit(), nil
}
