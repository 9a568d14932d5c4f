package model

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"glimpse/internal/simd"
	"glimpse/kernels"
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
	id := s.draw1(logits)
	if s.past != nil {
		s.past.add(id)
	}
	return id, nil
}

func (s *sampler) draw1(logits []float32) int32 {
	if s.Temperature == 0 {
		return int32(slices.Index(logits, simd.Max(logits)))
	}
	ids, p, sum := s.candidates(logits)
	u := s.rng.Float64() * sum
	for i := range p {
		if u -= p[i]; u < 0 {
			return ids[i]
		}
	}
	return ids[len(p)-1]
}

// candidates are the tokens that may be drawn, the most likely first, with the
// numbers that their probabilities are proportional to.
func (s *sampler) candidates(logits []float32) (ids []int32, p []float64, sum float64) {
	k := s.TopK
	if k == 0 {
		k = len(logits)
	}
	ids = kernels.TopK(logits, k)
	slices.SortStableFunc(ids, func(a, b int32) int {
		switch {
		case logits[a] > logits[b]:
			return -1
		case logits[a] < logits[b]:
			return 1
		}
		return 0
	})
	for len(ids) > 1 && math.IsInf(float64(logits[ids[len(ids)-1]]), -1) { // banned
		ids = ids[:len(ids)-1]
	}
	p = make([]float64, len(ids))
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
	if s.MinP > 0 {
		kept := 0.0
		for i := range p {
			if p[i] < s.MinP*p[0] {
				p, sum = p[:i], kept
				break
			}
			kept += p[i]
		}
	}
	return ids[:len(p)], p, sum
}
