package model

import (
	"context"
	"slices"
)

// GenerateOptions are the settings of one response.
type GenerateOptions struct {
	MaxNew   int // most tokens to generate
	Sampling Sampling
	// Prompt are the tokens before the response, which Sampling.Processors look at.
	Prompt []int32
	// IgnoreEnd goes on past end tokens, for measurements of a fixed length.
	IgnoreEnd bool
	// OnToken receives every token as soon as it is known, the end token excluded;
	// an error stops the generation.
	OnToken func(id int32) error
	// Capture and Observe are those of every decoding step.
	Capture Capture
	Observe Observer
	// Sparse chooses what every decoding step attends to; nil: everything.
	Sparse SparseAttention
	// SparseOnDevice is as of PrefillOptions.
	SparseOnDevice bool
	// AfterStep runs after every decoding step, with the cache already extended.
	AfterStep func() error
}

// Generate decodes a response from the logits of the prompt's last token. It
// returns the tokens without the end token; ended tells whether there was one.
// The last token returned is not in the cache.
func (r *Runner) Generate(ctx context.Context, cache *Cache, logits []float32, opt GenerateOptions) (tokens []int32, ended bool, err error) {
	return r.Continue(ctx, cache, HostLogits(logits), opt)
}

// Continue is Generate with logits that may lie on a device.
func (r *Runner) Continue(ctx context.Context, cache *Cache, logits *Logits, opt GenerateOptions) (tokens []int32, ended bool, err error) {
	if err := opt.Sampling.Validate(); err != nil {
		return nil, false, err
	}
	s := newSampler(opt.Sampling, opt.Prompt)
	step := PrefillOptions{Capture: opt.Capture, Observe: opt.Observe, Sparse: opt.Sparse, SparseOnDevice: opt.SparseOnDevice}
	if r.Model.samplesOnDevice() && opt.MaxNew > 1 {
		if step.logits, err = r.Model.allocLogits(); err != nil {
			return nil, false, err
		}
	}
	for len(tokens) < opt.MaxNew {
		id, err := logits.next(s)
		if err != nil {
			return tokens, false, err
		}
		if !opt.IgnoreEnd && slices.Contains(r.Model.Config.EOS, id) {
			return tokens, true, nil
		}
		tokens = append(tokens, id)
		if opt.OnToken != nil {
			if err := opt.OnToken(id); err != nil {
				return tokens, false, err
			}
		}
		if len(tokens) == opt.MaxNew {
			break
		}
		if logits, err = r.Forward(ctx, cache, []int32{id}, step); err != nil {
			return tokens, false, err
		}
		if opt.AfterStep != nil {
			if err := opt.AfterStep(); err != nil {
				return tokens, false, err
			}
		}
	}
	return tokens, false, nil
}

// Respond decodes the model's response to the prompt in cache, whose last token
// gave logits, and takes it out of the cache again: the cache is as before. The
// end token is not part of the response. Processors of s see the response alone.
func (r *Runner) Respond(ctx context.Context, cache *Cache, logits *Logits, maxNew int, s Sampling) ([]int32, error) {
	end := cache.Next()
	room := r.Model.Config.MaxPositions - int(end) + 1 // the last token is not run
	out, _, err := r.Continue(ctx, cache, logits, GenerateOptions{MaxNew: min(maxNew, room), Sampling: s})
	if err != nil {
		return nil, err
	}
	return out, cache.Truncate(end)
}
