package tasks

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"glimpse/datasets"
	"glimpse/evaluation"
	"glimpse/internal/commands"
	"glimpse/model"
)

func init() {
	synthetic := evaluation.Task{
		Name:     "synthetic",
		Doc:      "facts of a made-up language that the built-in model speaks; the answer must be right to the token, and end",
		Source:   "Glimpse, datasets/",
		Subtasks: datasets.Tasks.Names(),
		Bare:     true,
		Options: []evaluation.Option{
			{Name: "lengths", Doc: "prompt lengths in tokens, as many samples each; none is the one that --tokens gives"},
		},
		Open: openSynthetic,
	}
	evaluation.Tasks.Add(synthetic.Name, synthetic)
}

// syntheticTokens is the length of prompts where none is asked for.
const syntheticTokens = 512

// depths is how many parts a prompt's length is divided in to tell where its fact stands.
const depths = 5

func openSynthetic(_ context.Context, s *evaluation.Setting, subtask string) (*evaluation.Samples, error) {
	if !datasets.Knows(s.Model.Config.Vocab) {
		return nil, fmt.Errorf("model %s does not know the words of the synthetic tasks; for your own prompts give --data, and \"%s\" lists the tasks for any model", s.Model.Name, commands.Tasks.With())
	}
	lengths, err := lengthsOf(s, []int{syntheticTokens})
	if err != nil {
		return nil, err
	}
	streams := make(map[int]*datasets.Stream, len(lengths))
	for _, n := range lengths {
		if most := s.MaxTokens(1); n > most {
			return nil, fmt.Errorf("prompts of %d tokens, want at most %d", n, most)
		}
		if streams[n], err = datasets.NewStream([]string{subtask}, s.Split, n, s.Seed); err != nil {
			return nil, err
		}
	}
	return ofLengths(evaluation.MetricExactAnswer, subtask, s.Limit(), lengths, func(_ context.Context, length, i int) (*evaluation.Sample, error) {
		e, err := streams[length].At(i)
		if err != nil {
			return nil, err
		}
		sample := syntheticSample(s.Model, e)
		if subtask == "needle" {
			at := slices.Index(e.Prompt, e.Answer[0])
			depth := min(depths-1, depths*at/len(e.Prompt))
			sample.Groups = append(sample.Groups, evaluation.Group{Key: "depth", Value: fmt.Sprintf("%.1f", (float64(depth)+0.5)/depths)})
		}
		return sample, nil
	}), nil
}

// syntheticSample asks all turns of an example. One more token than the answer has shows
// whether it ends where it should.
func syntheticSample(m *model.Model, e datasets.Example) *evaluation.Sample {
	want := [][]int32{e.Answer}
	s := &evaluation.Sample{Turns: []evaluation.Turn{{Prompt: evaluation.Fixed(e.Prompt), MaxNew: len(e.Answer) + 1}}}
	for _, t := range e.Turns {
		s.Turns = append(s.Turns, evaluation.Turn{Prompt: evaluation.Fixed(t.Prompt), MaxNew: len(t.Answer) + 1})
		want = append(want, t.Answer)
	}
	s.Evidence = standing(e.Prompt, want...)
	for _, ids := range want {
		if text, err := m.Tokenizer.Decode(ids, false); err == nil {
			s.References = append(s.References, text)
		}
	}
	s.Score = func(_ context.Context, answers []evaluation.Output) (evaluation.Scores, error) {
		right := 1.0
		for i, a := range answers {
			if !a.Ended || !slices.Equal(a.IDs, want[i]) {
				right = 0
			}
		}
		return evaluation.Scores{evaluation.MetricExactAnswer: right}, nil
	}
	return s
}

// standing are the positions of the prompt at which tokens of the answers stand; no other
// fact has them.
func standing(prompt []int32, answers ...[]int32) (out []int32) {
	for i, id := range prompt {
		if slices.ContainsFunc(answers, func(a []int32) bool { return slices.Contains(a, id) }) {
			out = append(out, int32(i))
		}
	}
	return out
}

// standingText are the positions of the prompt's tokens that texts of the answers stand in, as they
// are written; nil where none does.
func standingText(m *model.Model, prompt []int32, answers ...string) (out []int32) {
	stream := m.Tokenizer.NewStream(false)
	var text strings.Builder
	ends := make([]int, len(prompt)) // of the tokens in the text
	for i, id := range prompt {
		text.WriteString(stream.Push(id))
		ends[i] = text.Len()
	}
	text.WriteString(stream.Flush())
	in := make([]bool, len(prompt))
	for _, answer := range answers {
		if answer = strings.TrimSpace(answer); answer == "" {
			continue
		}
		for from := 0; ; {
			at := strings.Index(text.String()[from:], answer)
			if at < 0 {
				break
			}
			from += at
			first, _ := slices.BinarySearch(ends, from+1)
			for i := first; i < len(ends) && (i == first || ends[i-1] < from+len(answer)); i++ {
				in[i] = true
			}
			from += len(answer)
		}
	}
	for i, is := range in {
		if is {
			out = append(out, int32(i))
		}
	}
	return out
}

// parseNumbers reads a comma-separated list, which may be empty.
func parseNumbers(list string) ([]int, error) {
	var out []int
	if strings.TrimSpace(list) == "" {
		return nil, nil
	}
	for field := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("got %q, want positive whole numbers with commas between", field)
		}
		out = append(out, n)
	}
	return out, nil
}
