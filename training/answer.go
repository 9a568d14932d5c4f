package training

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"slices"

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

// ownShare is how many of the prompts without a response the model answers by itself; of the others a part is asked for.
const ownShare = 0.5

// newAnswer is a sample's answer: its response, or, of a label that needs none, what the model says to the prompt or a part of the prompt that is
// asked for. nil where there is none.
func newAnswer(ctx context.Context, r *runner.Runner, cache *kvcache.Cache, s Sample, l label) (*answer, error) {
	h := fnv.New64a()
	h.Write([]byte(s.ID))
	rng := rand.New(rand.NewPCG(h.Sum64(), 0x616e73776572))
	a := &answer{tokens: make([]int32, answerTokens), share: keptShares[rng.IntN(len(keptShares))]}
	at, own := rng.Float64(), rng.Float64() < ownShare
	if l.Response {
		a.to = copy(a.tokens, s.Response)
	} else if own && roomForAnswer(r.Model, s.Prompt) {
		if err := a.say(ctx, r, cache); err != nil {
			return nil, err
		}
	}
	if !l.Response && a.to == 0 {
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

// say makes the answer what the model says, greedily, to the prompt in cache as a user's message. The cache is as before. It stays empty
// without a chat template, and where the model says nothing.
func (a *answer) say(ctx context.Context, r *runner.Runner, cache *kvcache.Cache) error {
	m, end := r.Model, cache.Next()
	turn := m.UserTurn()
	if turn == nil || len(turn.Ends) == 0 || len(turn.Ends) >= len(a.tokens) || slices.Max(turn.Ends) >= int32(m.Config.Vocab) {
		return nil
	}
	cache.Undoable()
	logits, err := r.Forward(ctx, cache, turn.Ends, runner.PrefillOptions{})
	if err != nil {
		return err
	}
	said, err := r.Respond(ctx, cache, logits, runner.GenerateOptions{MaxNew: len(a.tokens) - len(turn.Ends)})
	if err != nil {
		return err
	}
	if len(said) > 0 {
		a.from, a.to = len(turn.Ends)-1, copy(a.tokens, slices.Concat(turn.Ends, said))
	}
	return cache.Truncate(end)
}

// behind is the answer as a graph runs it behind the rows. targets are the label's, by layer.
func (a *answer) behind(m *model.Model, o *objective, prompt []int32, past [][]kernels.KV, targets []*kernels.Tensor) *autodiff.Behind {
	entries := len(prompt)
	p := eviction.Prompt{Tokens: prompt, Entries: entries, Budget: max(2*eviction.StayingRows, int(a.share*float64(entries))), Context: !o.label.Response, Config: &m.Config}
	return &autodiff.Behind{
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
