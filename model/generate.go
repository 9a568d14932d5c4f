package model

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"glimpse/internal/simd"
	"glimpse/kernels"
)

// Sampling chooses the next token. The zero value is greedy.
type Sampling struct {
	Temperature float64 // 0: greedy
	TopP        float64 // smallest set of tokens with this probability; 0 or 1: all
	TopK        int     // most likely tokens considered; 0: all
	Seed        uint64
}

// Validate checks the ranges.
func (s Sampling) Validate() error {
	switch {
	case !(s.Temperature >= 0) || math.IsInf(s.Temperature, 0):
		return fmt.Errorf("temperature: got %v, want at least 0", s.Temperature)
	case !(s.TopP >= 0 && s.TopP <= 1):
		return fmt.Errorf("top-p: got %v, want 0 to 1", s.TopP)
	case s.TopK < 0:
		return fmt.Errorf("top-k: got %d, want at least 0", s.TopK)
	}
	return nil
}

// sampler draws tokens with its own seeded generator.
type sampler struct {
	Sampling
	rng *rand.Rand
}

func newSampler(s Sampling) *sampler {
	return &sampler{s, rand.New(rand.NewPCG(s.Seed, 0x5a4d504c45))}
}

// next draws a token. Equal logits: the lower id comes first.
func (s *sampler) next(logits []float32) int32 {
	if s.Temperature == 0 {
		return int32(slices.Index(logits, simd.Max(logits)))
	}
	k := s.TopK
	if k == 0 {
		k = len(logits)
	}
	ids := kernels.TopK(logits, k)
	slices.SortStableFunc(ids, func(a, b int32) int {
		switch {
		case logits[a] > logits[b]:
			return -1
		case logits[a] < logits[b]:
			return 1
		}
		return 0
	})
	p, sum := make([]float64, len(ids)), 0.0
	for i, id := range ids {
		p[i] = math.Exp(float64(logits[id]-logits[ids[0]]) / s.Temperature)
		sum += p[i]
	}
	if s.TopP > 0 && s.TopP < 1 {
		kept := 0.0
		for i := range p {
			kept += p[i]
			if kept >= s.TopP*sum {
				p, sum = p[:i+1], kept
				break
			}
		}
	}
	u := s.rng.Float64() * sum
	for i := range p {
		if u -= p[i]; u < 0 {
			return ids[i]
		}
	}
	return ids[len(p)-1]
}

// GenerateOptions are the settings of one response.
type GenerateOptions struct {
	MaxNew   int // most tokens to generate
	Sampling Sampling
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
	s := newSampler(opt.Sampling)
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
// end token is not part of the response.
func (r *Runner) Respond(ctx context.Context, cache *Cache, logits *Logits, maxNew int, s Sampling) ([]int32, error) {
	end := cache.Next()
	room := r.Model.Config.MaxPositions - int(end) + 1 // the last token is not run
	out, _, err := r.Continue(ctx, cache, logits, GenerateOptions{MaxNew: min(maxNew, room), Sampling: s})
	if err != nil {
		return nil, err
	}
	return out, cache.Truncate(end)
}
