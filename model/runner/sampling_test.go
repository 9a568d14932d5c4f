package runner

import (
	"math"
	"slices"
	"testing"

	"glimpse/model"
)

// nextOf is a draw from logits of which not all are banned.
func nextOf(s *sampler, logits []float32) int32 {
	id, err := s.drawToken(logits)
	if err != nil {
		panic(err)
	}
	return id
}

// draws counts what a sampler draws from logits.
func draws(s model.Sampling, logits []float32, n int) []int {
	counts := make([]int, len(logits))
	sampler := newSampler(s, nil)
	for range n {
		counts[nextOf(sampler, logits)]++
	}
	return counts
}

func TestSampling(t *testing.T) {
	logits := make([]float32, 5) // probabilities 0.1, 0.4, 0.2, 0.05, 0.25
	for i, p := range []float64{0.1, 0.4, 0.2, 0.05, 0.25} {
		logits[i] = float32(math.Log(p)) + 3 // a constant changes nothing
	}
	const n = 20_000
	for _, c := range []struct {
		name     string
		sampling model.Sampling
		want     []float64
	}{
		{"greedy", model.Sampling{}, []float64{0, 1, 0, 0, 0}},
		{"greedy ignores the rest", model.Sampling{TopP: 0.5, TopK: 3, Seed: 4}, []float64{0, 1, 0, 0, 0}},
		{"temperature 1", model.Sampling{Temperature: 1}, []float64{0.1, 0.4, 0.2, 0.05, 0.25}},
		{"temperature ½ squares", model.Sampling{Temperature: 0.5}, []float64{0.01 / 0.275, 0.16 / 0.275, 0.04 / 0.275, 0.0025 / 0.275, 0.0625 / 0.275}},
		{"tiny temperature", model.Sampling{Temperature: 1e-300}, []float64{0, 1, 0, 0, 0}},
		{"huge temperature", model.Sampling{Temperature: 1e300}, []float64{0.2, 0.2, 0.2, 0.2, 0.2}},
		{"top-k 1", model.Sampling{Temperature: 1, TopK: 1}, []float64{0, 1, 0, 0, 0}},
		{"top-k 3", model.Sampling{Temperature: 1, TopK: 3}, []float64{0, 0.4 / 0.85, 0.2 / 0.85, 0, 0.25 / 0.85}},
		{"top-k beyond the vocabulary", model.Sampling{Temperature: 1, TopK: 50}, []float64{0.1, 0.4, 0.2, 0.05, 0.25}},
		{"top-p below the largest", model.Sampling{Temperature: 1, TopP: 0.01}, []float64{0, 1, 0, 0, 0}},
		{"top-p 0.6", model.Sampling{Temperature: 1, TopP: 0.6}, []float64{0, 0.4 / 0.65, 0, 0, 0.25 / 0.65}},
		{"top-p 0.8", model.Sampling{Temperature: 1, TopP: 0.8}, []float64{0, 0.4 / 0.85, 0.2 / 0.85, 0, 0.25 / 0.85}},
		{"top-p 1", model.Sampling{Temperature: 1, TopP: 1}, []float64{0.1, 0.4, 0.2, 0.05, 0.25}},
		{"min-p 0.45", model.Sampling{Temperature: 1, MinP: 0.45}, []float64{0, 0.4 / 0.85, 0.2 / 0.85, 0, 0.25 / 0.85}},
		{"min-p 1", model.Sampling{Temperature: 1, MinP: 1}, []float64{0, 1, 0, 0, 0}},
		{"min-p of what top-p leaves", model.Sampling{Temperature: 1, TopP: 0.6, MinP: 0.1}, []float64{0, 0.4 / 0.65, 0, 0, 0.25 / 0.65}},
		{"a banned token", model.Sampling{Temperature: 1, Processors: model.Processors{Suppress: []int32{1}}}, []float64{0.1 / 0.6, 0, 0.2 / 0.6, 0.05 / 0.6, 0.25 / 0.6}},
		{"top-p of what top-k leaves", model.Sampling{Temperature: 1, TopP: 0.5, TopK: 2}, []float64{0, 1, 0, 0, 0}},
	} {
		if err := c.sampling.Validate(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		c.sampling.Seed = 11
		for i, got := range draws(c.sampling, logits, n) {
			p := c.want[i]
			if d := math.Abs(float64(got) - n*p); p*(1-p) == 0 && d > 0 || d > 5*math.Sqrt(n*p*(1-p)) {
				t.Errorf("%s: token %d drawn %d times of %d, want a share of %.3f", c.name, i, got, n, p)
			}
		}
	}
}

// TestSamplingTies: of equal logits the lower id goes first.
func TestSamplingTies(t *testing.T) {
	logits := []float32{-1, 2, 0, 2, 2}
	if got := nextOf(newSampler(model.Sampling{}, nil), logits); got != 1 {
		t.Errorf("greedy chose %d, want 1", got)
	}
	if got := draws(model.Sampling{Temperature: 1, TopK: 2}, logits, 100); got[1]+got[3] != 100 {
		t.Errorf("top-k 2 drew %v, want ids 1 and 3", got)
	}
	if got := draws(model.Sampling{Temperature: 1, TopP: 0.5}, logits, 100); got[1]+got[3] != 100 {
		t.Errorf("top-p 0.5 drew %v, want ids 1 and 3", got)
	}
}

func TestSamplingSeeds(t *testing.T) {
	logits := make([]float32, 100)
	sequence := func(seed uint64) []int32 {
		s, out := newSampler(model.Sampling{Temperature: 1, Seed: seed}, nil), []int32{}
		for range 20 {
			out = append(out, nextOf(s, logits))
		}
		return out
	}
	if !slices.Equal(sequence(1), sequence(1)) {
		t.Error("one seed gives two sequences")
	}
	if slices.Equal(sequence(1), sequence(2)) {
		t.Error("two seeds give one sequence")
	}
}

func TestSamplingValidate(t *testing.T) {
	for _, s := range []model.Sampling{
		{Temperature: -1}, {Temperature: math.NaN()}, {Temperature: math.Inf(1)},
		{TopP: -0.1}, {TopP: 1.1}, {TopP: math.NaN()}, {TopK: -1},
		{MinP: -0.1}, {MinP: 1.1}, {MinP: math.NaN()}, {Processors: model.Processors{RepetitionPenalty: -1}}, {Processors: model.Processors{RepetitionPenalty: math.NaN()}},
		{Processors: model.Processors{NoRepeatNGram: -1}}, {Processors: model.Processors{MinLength: -1}}, {Processors: model.Processors{MinNew: -1}}, {Processors: model.Processors{BadWords: [][]int32{{}}}},
	} {
		if s.Validate() == nil {
			t.Errorf("%+v is accepted", s)
		}
	}
}

// alternating lets token 1 follow token 0, and token 0 token 1.
type alternating struct{ next int32 }

func (a *alternating) Mask(logits []float32) error {
	for id := range logits {
		if int32(id) != a.next {
			logits[id] = float32(math.Inf(-1))
		}
	}
	return nil
}

func (a *alternating) Accept(id int32) error {
	a.next = 1 - id
	return nil
}

// TestProcessorsOfRequests: penalties count what the response has said and not the prompt, a bias is added once, and
// a constraint has the last word.
func TestProcessorsOfRequests(t *testing.T) {
	logits := []float32{1, 0.8, 0.5, 0}
	for _, c := range []struct {
		name       string
		processors model.Processors
		want       []int32
	}{
		{"none", model.Processors{}, []int32{0, 0, 0, 0}},
		{"presence", model.Processors{PresencePenalty: 0.3}, []int32{0, 1, 0, 0}},
		{"frequency", model.Processors{FrequencyPenalty: 0.3}, []int32{0, 1, 0, 1}},
		{"both are subtracted", model.Processors{PresencePenalty: 0.3, FrequencyPenalty: 0.3}, []int32{0, 1, 2, 0}},
		{"below 0 they invite", model.Processors{PresencePenalty: -2}, []int32{0, 0, 0, 0}},
		{"bias", model.Processors{Bias: map[int32]float64{3: 100, 0: -100, 7: 1}}, []int32{3, 3, 3, 3}},
		{"constraint", model.Processors{Bias: map[int32]float64{3: 100}, Constraint: &alternating{next: 1}}, []int32{1, 0, 1, 0}},
	} {
		s := newSampler(model.Sampling{Processors: c.processors}, []int32{1, 0})
		var got []int32
		for range c.want {
			got = append(got, nextOf(s, logits))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestTopLogProbs(t *testing.T) {
	l := HostLogits([]float32{1, 3, 2, 3, 0})
	for n, want := range [][]int32{{}, {1}, {1, 3}, {1, 3, 2}, {1, 3, 2, 0}, {1, 3, 2, 0, 4}, {1, 3, 2, 0, 4}} {
		of, top, err := l.LogProbs(2, n)
		if err != nil {
			t.Fatal(err)
		}
		var ids []int32
		for _, p := range top {
			if ids = append(ids, p.ID); p.ID == 2 && p.LogProb != of {
				t.Errorf("token 2 has %v among the likeliest, %v by itself", p.LogProb, of)
			}
		}
		if !slices.Equal(ids, want) {
			t.Errorf("%d likeliest: %v, want %v", n, ids, want)
		}
	}
}
