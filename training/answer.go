package training

import (
	"context"
	"hash/fnv"
	"math/rand/v2"

	"glimpse/autodiff"
	"glimpse/eviction"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// answer is what runs behind the rows of a sample, and what the full cache says of it.
type answer struct {
	tokens   []int32
	from, to int             // those whose next token is compared
	share    float64         // of the prompt that is kept
	teacher  *kernels.Tensor // [tokens, hidden] through the final norm
}

// keptShares are the budgets under which answers are learned, one for each sample.
var keptShares = []float64{0.05, 0.1, 0.15, 0.25}

// newAnswer is a sample's answer: its response, or, of a label that needs none, a part of the prompt that is asked for. nil where there is none.
func newAnswer(ctx context.Context, r *runner.Runner, cache *kvcache.Cache, s Sample, l label) (*answer, error) {
	h := fnv.New64a()
	h.Write([]byte(s.ID))
	rng := rand.New(rand.NewPCG(h.Sum64(), 0x616e73776572))
	a := &answer{tokens: make([]int32, answerTokens), share: keptShares[rng.IntN(len(keptShares))]}
	at := rng.Float64()
	if l.Response {
		a.to = copy(a.tokens, s.Response)
	} else {
		m := r.Model
		rows, said := eviction.Prompt{Tokens: s.Prompt, Entries: len(s.Prompt), Config: &m.Config, Tokenizer: m.Tokenizer, Turn: m.UserTurn}.Repetition(at, answerTokens)
		a.from, a.to = max(0, said-1), copy(a.tokens, rows)
	}
	if a.to == 0 || !roomForAnswer(r.Model, s.Prompt) {
		return nil, nil
	}
	var err error
	a.teacher, err = r.Hidden(ctx, cache, model.TokenRows(a.tokens))
	return a, err
}

// behind is the answer as a graph runs it behind the rows. targets are the label's, by layer.
func (a *answer) behind(m *model.Model, o *objective, prompt []int32, past [][]kernels.KV, targets []*kernels.Tensor) *autodiff.Answer {
	entries := len(prompt)
	p := eviction.Prompt{Tokens: prompt, Entries: entries, Budget: max(2*eviction.StayingRows, int(a.share*float64(entries))), Context: !o.label.Response, Config: &m.Config}
	return &autodiff.Answer{
		Tokens: a.tokens, From: a.from, To: a.to, Teacher: a.teacher, Staying: o.policy.Method.Plan(p).Staying,
		Past: func(b kernels.Backend, memory *kernels.Arena, layer int, scores *kernels.Tensor) []kernels.KV {
			if o.scored {
				scores = targets[layer]
			}
			keep := o.policy.SelectRows(p, layer, past[layer], b, scores)
			if keep == nil {
				return past[layer]
			}
			return kernels.GatherPairs(b, past[layer], keep, true, memory)
		},
	}
}
