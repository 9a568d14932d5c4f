package runner

import (
	"cmp"
	"context"
	"errors"

	"glimpse/model"
	"glimpse/model/kvcache"
)

// GenerateOptions are the settings of one response.
type GenerateOptions struct {
	MaxNew   int // most tokens to generate
	Sampling model.Sampling
	// Prompt are the tokens before the response, which Sampling.Processors look at.
	Prompt []int32
	// Stop are tokens that end the response beside the model's end tokens.
	Stop []int32
	// IgnoreEnd goes on past the model's end tokens, for measurements of a fixed length.
	IgnoreEnd bool
	// Forced, unless it is nil, is the response, whatever the model would say (teacher
	// forcing): MaxNew, Sampling, Stop and IgnoreEnd are not looked at.
	Forced []int32
	// OnToken receives every token as soon as it is known, the end token excluded;
	// an error stops the generation, which is none where it is ErrStop.
	OnToken func(id int32) error
	// OnLogProb receives, before OnToken, the logarithm of the probability that the model
	// gives to every token, before Sampling changes anything: finite, computed in float64.
	// The logits of every step are then read from a device. top are the TopLogProbs likeliest
	// tokens, of equal ones the lower ids first.
	OnLogProb   func(id int32, logProb float64, top []LogProb)
	TopLogProbs int
	// OnEnd is OnLogProb for the end token, which is none of the response's.
	OnEnd func(id int32, logProb float64, top []LogProb)
	// Capture and Observe hold for every decoding step.
	Capture Capture
	Observe Observer
	// Sparse chooses what every decoding step attends to; nil: everything.
	Sparse SparseAttention
	// SparseOnDevice tells that Sparse chooses by operations of SparseStep.Backend alone
	// and reads nothing of it, so that the step can be recorded.
	SparseOnDevice bool
	// AfterStep runs after every decoding step, with the cache already extended.
	AfterStep func() error
	// OnLeave is told that the response has ended, well or not, and has left its batch.
	OnLeave func(s *Sequence)
}

// ErrStop is what OnToken returns to end a response after its token, without an error.
var ErrStop = errors.New("the response is to stop")

// Continue decodes a response from the logits of the prompt's last token. It
// returns the tokens without the end token; ended tells whether there was one.
// The last token returned is not in the cache.
//
// On a model that only counts memory (see [model.Model.Counted]) the response is as long as it may get.
// Its first two steps run. The others only take memory, as far as heads have grown in these.
func (r *Runner) Continue(ctx context.Context, cache *kvcache.Cache, logits *Logits, opt GenerateOptions) (tokens []int32, ended bool, err error) {
	b, err := r.NewBatch(1)
	if err != nil {
		return nil, false, err
	}
	s, err := b.Add(cache, logits, opt)
	if err != nil {
		return nil, false, err
	}
	err = b.Run(ctx)
	return s.tokens, s.ended, cmp.Or(s.err, err)
}

// Respond decodes the model's response to the prompt in cache, whose last token
// gave logits, and takes it out of the cache again: the cache is as before. The
// end token is not part of the response, which is no longer than leaves room in the context.
func (r *Runner) Respond(ctx context.Context, cache *kvcache.Cache, logits *Logits, opt GenerateOptions) ([]int32, error) {
	end := cache.Next()
	opt.MaxNew = min(opt.MaxNew, r.Model.Config.MaxPositions-int(end)+1) // the last token is not run
	cache.Undoable()
	out, _, err := r.Continue(ctx, cache, logits, opt)
	if err != nil {
		return nil, err
	}
	return out, cache.Truncate(end)
}
