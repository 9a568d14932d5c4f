package runner

import (
	"errors"
	"fmt"
	"slices"

	"glimpse/model"
	"glimpse/model/kvcache"
)

// response is a response as it grows: what its next token is, and when it is over, is said
// here for one sequence and for batches.
type response struct {
	GenerateOptions
	eos     []int32 // that end it
	sampler *sampler

	tokens []int32 // without the end token
	ended  bool    // by an end token
	done   bool    // no step is to run

	counted [][]int // on a model that only counts memory: the entries of the cache's heads at first
}

// newResponse begins a response after what the cache holds.
func newResponse(m *model.Model, cache *kvcache.Cache, opt GenerateOptions) (*response, error) {
	if err := opt.Sampling.Validate(); err != nil {
		return nil, err
	}
	r := &response{GenerateOptions: opt, sampler: newSampler(opt.Sampling, opt.Prompt), eos: opt.Stop}
	if m.Counts() {
		r.counted = cache.Lengths()
	}
	if opt.Forced != nil {
		r.MaxNew, r.eos = len(opt.Forced), nil
		return r, checkForced(m, cache, opt.Forced)
	}
	if !opt.IgnoreEnd {
		r.eos = slices.Concat(m.Config.EOS, opt.Stop)
	}
	return r, nil
}

// checkForced refuses a response before any of it has run.
func checkForced(m *model.Model, cache *kvcache.Cache, tokens []int32) error {
	for i, id := range tokens {
		if id < 0 || int(id) >= m.Config.Vocab {
			return fmt.Errorf("forced response: token %d: id %d, want 0 to %d", i, id, m.Config.Vocab-1)
		}
	}
	if n, room := len(tokens), m.Config.MaxPositions-int(cache.Next())+1; n > room { // the last token is not run
		return fmt.Errorf("forced response: %d tokens after %d, want at most %d: %w", n, cache.Next(), room, model.ErrContext)
	}
	return nil
}

// take takes the next token, which follows from logits.
func (r *response) take(logits *Logits) error {
	r.done = len(r.tokens) >= r.MaxNew
	if r.done {
		return nil
	}
	if r.counted != nil {
		return r.accept(0, nil)
	}
	id, err := r.next(logits)
	if err != nil {
		r.done = true
		return err
	}
	return r.accept(id, logits)
}

// next is the token that follows logits, which must be finite.
func (r *response) next(logits *Logits) (int32, error) {
	if r.Forced != nil {
		return r.Forced[len(r.tokens)], logits.Check()
	}
	return logits.next(r.sampler)
}

// accept takes a token that was drawn from logits; nil where nothing is computed.
func (r *response) accept(id int32, logits *Logits) error {
	r.done = true
	if logits != nil && slices.Contains(r.eos, id) {
		r.ended = true
		return r.tellLogProb(r.OnEnd, id, logits)
	}
	r.tokens = append(r.tokens, id)
	if err := r.tellLogProb(r.OnLogProb, id, logits); err != nil {
		return err
	}
	if r.OnToken != nil {
		if err := r.OnToken(id); errors.Is(err, ErrStop) {
			return nil
		} else if err != nil {
			return err
		}
	}
	r.done = len(r.tokens) >= r.MaxNew
	return nil
}

func (r *response) tellLogProb(tell func(id int32, logProb float64, top []LogProb), id int32, logits *Logits) error {
	if tell == nil || logits == nil {
		return nil
	}
	p, top, err := logits.LogProbs(id, r.TopLogProbs)
	if err == nil {
		tell(id, p, top)
	}
	return err
}

// skips tells that the next step need not run: on a model that only counts memory all but the
// first two, of which the second is recorded where a device records. Of the others the memory is
// taken by which heads have grown in these.
func (r *response) skips(cache *kvcache.Cache) bool {
	n := len(r.tokens)
	if r.counted == nil || n <= 2 {
		return false
	}
	if n == 3 {
		cache.ReserveGrown(r.counted, r.MaxNew-n)
	}
	return true
}

// last is the token that the next step runs.
func (r *response) last() []int32 { return r.tokens[len(r.tokens)-1:] }

// stepped is told that the last token has run.
func (r *response) stepped() error {
	if r.AfterStep == nil {
		return nil
	}
	return r.AfterStep()
}
