package tasks

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"glimpse/evaluation"
	"glimpse/evaluation/scoring"
	"glimpse/internal/listing"
	"glimpse/model"
)

// interview asks several questions about one context. Turn by turn, the context is evicted with the first question, and the model's
// own answers stand between the questions. Context first, the context is evicted alone, and each question is asked of a copy of it.
type interview struct {
	template string // of the first turn, with {context} and {input}
	follow   string // of the others
	// rate is the score of one answer against the references, metric what the mean over the turns is called.
	rate    func(answer string, want []string) (float64, error)
	metric  string
	setting *evaluation.Setting
	most    int // tokens of an answer
}

// contextQuestion is one of them, with the answers that are accepted.
type contextQuestion struct {
	input  string
	answer []string
}

// rateBy rates by a metric.
func rateBy(name string) func(string, []string) (float64, error) {
	return func(answer string, want []string) (float64, error) {
		m, err := scoring.Metrics.Lookup(name)
		if err != nil {
			return 0, err
		}
		return m.Score(answer, scoring.Reference{Answers: want})
	}
}

// sample is the sample of a context and its questions.
func (b *interview) sample(ctx context.Context, text string, questions []contextQuestion) (*evaluation.Sample, error) {
	talk := b.dialogue(text, questions)
	if b.setting.ContextFirst {
		return b.contextFirst(talk.users[0], questions)
	}
	turns, err := talk.turns(ctx)
	if err != nil {
		return nil, err
	}
	return b.asked(turns, questions), nil
}

// dialogue is what is said about a context.
func (b *interview) dialogue(context string, questions []contextQuestion) *conversation {
	d := &conversation{setting: b.setting, maxNew: b.most}
	for i, q := range questions {
		template := b.follow
		if i == 0 {
			template = b.template
		}
		d.users = append(d.users, strings.NewReplacer("{context}", context, "{input}", q.input).Replace(template))
	}
	return d
}

// asked is the sample of some turns. Beside the mean there is the score of each turn, which
// tells what eviction has cost the later ones.
func (b *interview) asked(turns []evaluation.Turn, questions []contextQuestion) *evaluation.Sample {
	references := listing.Map(questions, func(q contextQuestion) string { return strings.Join(q.answer, " | ") })
	return &evaluation.Sample{Turns: turns, References: references, Score: func(_ context.Context, answers []evaluation.Output) (evaluation.Scores, error) {
		scores := evaluation.Scores{}
		sum := 0.0
		for i, q := range questions {
			v, err := b.rate(answers[i].Text, q.answer)
			if err != nil {
				return nil, fmt.Errorf("turn %d: %w", i+1, err)
			}
			scores[fmt.Sprintf("%s_turn_%d", b.metric, i+1)] = v
			sum += v
		}
		scores[b.metric] = sum / float64(len(questions))
		return scores, nil
	}}
}

// contextFirst is the sample of a context that is evicted before anything is asked. user is what is said with the first
// question, which each of the others then stands in the place of.
func (b *interview) contextFirst(user string, questions []contextQuestion) (*evaluation.Sample, error) {
	m := b.setting.Model
	_, after, _ := strings.Cut(b.template, "{input}")
	encode := func(text string) ([]int32, error) { return m.Tokenizer.Encode(text, false) }
	said := strings.TrimSuffix(user, questions[0].input+after)
	frame := m.UserTurn()
	if b.setting.Raw || frame == nil {
		frame, encode = &model.UserTurn{}, m.Encode
	}
	ids, err := encode(said)
	if err != nil {
		return nil, fmt.Errorf("tokenize: %w", err)
	}
	context := slices.Concat(frame.Begins, ids)
	var turns []evaluation.Turn
	longest := 0
	for _, q := range questions {
		ids, err := m.Tokenizer.Encode(q.input+after, false)
		if err != nil {
			return nil, fmt.Errorf("tokenize: %w", err)
		}
		longest = max(longest, len(ids))
		turns = append(turns, evaluation.Turn{Prompt: evaluation.Fixed(slices.Concat(ids, frame.Ends)), MaxNew: b.most})
	}
	if most := b.setting.MaxTokens(b.most + longest + len(frame.Ends)); len(context) > most {
		return nil, fmt.Errorf("the context has %d tokens, want at most %d", len(context), most)
	}
	sample := b.asked(turns, questions)
	sample.Context = context
	return sample, nil
}
