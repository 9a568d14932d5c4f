package runner

import (
	"errors"
	"glimpse/internal/simd"
	"glimpse/kernels"
	"glimpse/model"
	"math"
	"math/rand/v2"
	"slices"
)

// onHost tells that tokens can only be drawn from logits on the host.
func (s *sampler) onHost() bool { return s.Processors.Active() || s.Temperature > 0 && s.MinP > 0 }

// sampler draws tokens with its own seeded generator.
type sampler struct {
	model.Sampling
	rng  *rand.Rand
	past *past // what processors look at; nil without any
}

// newSampler draws what follows the prompt, which only processors look at.
func newSampler(s model.Sampling, prompt []int32) *sampler {
	out := &sampler{Sampling: s, rng: rand.New(rand.NewPCG(s.Seed, 0x5a4d504c45))}
	if s.Processors.Active() {
		out.past = newPast(prompt)
	}
	return out
}

// ErrNoToken: the processors leave no token that could follow.
var ErrNoToken = errors.New("sampling: the suppressed tokens, bad words, repeated n-grams and what a constraint does not allow are all tokens that there are")

// drawToken draws a token. Equal logits: the lower id comes first.
func (s *sampler) drawToken(logits []float32) (int32, error) {
	if s.past != nil {
		var err error
		if logits, err = s.past.applyPenalties(&s.Processors, logits); err != nil {
			return 0, err
		}
		if math.IsInf(float64(simd.Max(logits)), -1) {
			return 0, ErrNoToken
		}
	}
	id := s.drawSettings().Token(logits)
	if s.past != nil {
		s.past.addToken(id)
	}
	if c := s.Processors.Constraint; c != nil {
		if err := c.Accept(id); err != nil {
			return 0, err
		}
	}
	return id, nil
}

// drawSettings is the settings of a token, with the next random number where one is needed.
func (s *sampler) drawSettings() kernels.Draw {
	d := kernels.Draw{Temperature: s.Temperature}
	if s.Temperature > 0 {
		d.TopP, d.TopK, d.MinP, d.U = s.TopP, s.TopK, s.MinP, s.rng.Float64()
	}
	return d
}

// past is the text that a token follows.
type past struct {
	text   []int32
	prompt int            // so many of them are the prompt's
	seen   map[int32]bool // the tokens of the text
	said   map[int32]int  // how often the response has a token
}

func newPast(prompt []int32) *past {
	p := &past{text: slices.Clone(prompt), prompt: len(prompt), seen: make(map[int32]bool), said: make(map[int32]int)}
	for _, id := range prompt {
		p.seen[id] = true
	}
	return p
}

func (p *past) addToken(id int32) {
	p.text = append(p.text, id)
	p.seen[id] = true
	p.said[id]++
}

// applyPenalties returns changed logits, −Inf for what is banned.
func (past *past) applyPenalties(p *model.Processors, logits []float32) ([]float32, error) {
	x := slices.Clone(logits)
	if p.Penalises() {
		penalty := float32(p.RepetitionPenalty)
		for id := range past.seen {
			if id < 0 || int(id) >= len(x) {
				continue
			}
			if x[id] < 0 {
				x[id] *= penalty
			} else {
				x[id] /= penalty
			}
		}
	}
	if p.PresencePenalty != 0 || p.FrequencyPenalty != 0 {
		for id, times := range past.said {
			x[id] -= float32(p.PresencePenalty + p.FrequencyPenalty*float64(times))
		}
	}
	for id, bias := range p.Bias {
		if int(id) < len(x) {
			x[id] += float32(bias)
		}
	}
	for _, id := range past.banned(p) {
		if id >= 0 && int(id) < len(x) {
			x[id] = float32(math.Inf(-1))
		}
	}
	if p.Constraint != nil {
		return x, p.Constraint.Mask(x)
	}
	return x, nil
}

// banned are tokens that may not follow.
func (past *past) banned(p *model.Processors) (ids []int32) {
	text, n := past.text, p.NoRepeatNGram
	for i := 0; n > 0 && i < len(text)-n+1; i++ {
		if slices.Equal(text[i:i+n-1], text[len(text)-n+1:]) {
			ids = append(ids, text[i+n-1])
		}
	}
	for _, word := range p.BadWords {
		before, last := word[:len(word)-1], word[len(word)-1]
		switch {
		case len(before) == 0 && slices.Contains(p.End, last): // transformers lets these be
		// A word longer than the text stays allowed, even where all but its last token is
		// there, as in transformers.
		case len(before) == 0, len(word) <= len(text) && slices.Equal(before, text[len(text)-len(before):]):
			ids = append(ids, last)
		}
	}
	if len(text) < p.MinLength || len(text)-past.prompt < p.MinNew {
		ids = append(ids, p.End...)
	}
	if ids = append(ids, p.Suppress...); len(text) == past.prompt {
		ids = append(ids, p.BeginSuppress...)
	}
	return ids
}
