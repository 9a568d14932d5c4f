package model

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"glimpse/internal/simd"
)

// Sampling chooses the next token. The zero value is greedy.
type Sampling struct {
	Temperature float64 // 0: greedy
	TopP        float64 // smallest set of tokens with this probability; 0 or 1: all
	TopK        int     // most likely tokens considered; 0: all
	MinP        float64 // least probability, as a share of the largest; 0: any
	Seed        uint64
	// Processors change the logits first, also those of greedy decoding.
	Processors Processors
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
	case !(s.MinP >= 0 && s.MinP <= 1):
		return fmt.Errorf("min-p: got %v, want 0 to 1", s.MinP)
	}
	return s.Processors.Validate()
}

// String describes the settings by the keys of generation_config.json.
func (s Sampling) String() string {
	parts := []string{"greedy"}
	if s.Temperature > 0 {
		parts[0] = fmt.Sprint("temperature ", s.Temperature)
		if s.TopK > 0 {
			parts = append(parts, fmt.Sprint("top_k ", s.TopK))
		}
		if s.TopP > 0 && s.TopP < 1 {
			parts = append(parts, fmt.Sprint("top_p ", s.TopP))
		}
		if s.MinP > 0 {
			parts = append(parts, fmt.Sprint("min_p ", s.MinP))
		}
	}
	if p := s.Processors.String(); p != "" {
		parts = append(parts, p)
	}
	return strings.Join(parts, ", ")
}

// onHost tells that tokens can only be drawn from logits on the host.
func (s *Sampling) onHost() bool { return s.Processors.active() || s.Temperature > 0 && s.MinP > 0 }

// sampler draws tokens with its own seeded generator.
type sampler struct {
	Sampling
	rng  *rand.Rand
	past *past // what processors look at; nil without any
}

// newSampler draws what follows the prompt, which only processors look at.
func newSampler(s Sampling, prompt []int32) *sampler {
	out := &sampler{Sampling: s, rng: rand.New(rand.NewPCG(s.Seed, 0x5a4d504c45))}
	if s.Processors.active() {
		out.past = newPast(prompt)
	}
	return out
}

// errAllBanned: the processors leave no token.
var errAllBanned = errors.New("sampling: the suppressed tokens, bad words and repeated n-grams are all tokens that there are")

// next draws a token. Equal logits: the lower id comes first.
func (s *sampler) next(logits []float32) (int32, error) {
	if s.past != nil {
		logits = s.Processors.apply(logits, s.past)
		if math.IsInf(float64(simd.Max(logits)), -1) {
			return 0, errAllBanned
		}
	}
	id := s.draw().Token(logits)
	if s.past != nil {
		s.past.add(id)
	}
	return id, nil
}
