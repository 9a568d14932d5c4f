package model

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Where settings come from that are not said.
const (
	SamplingOfModel = "model"
	SamplingGreedy  = "greedy"
)

// SamplingChoice is what a user says about sampling. What is nil is not said, and comes
// from the model's generation_config.json where From is SamplingOfModel.
type SamplingChoice struct {
	From              string   `json:"sampling,omitempty"`
	Temperature       *float64 `json:"temperature"`
	TopP              *float64 `json:"top_p"`
	TopK              *int     `json:"top_k"`
	MinP              *float64 `json:"min_p,omitempty"`
	RepetitionPenalty *float64 `json:"repetition_penalty,omitempty"`
}

// Bind makes the flags. From must have its default.
func (c *SamplingChoice) Bind(f *pflag.FlagSet) {
	f.StringVar(&c.From, "sampling", c.From, "where settings that no flag gives come from: model (its generation_config.json) or greedy")
	float := func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }
	f.Var(optional[float64]{&c.Temperature, float, "float"}, "temperature", "sampling temperature; 0 is greedy; 1 where only --top-k, --top-p or --min-p is given")
	f.Var(optional[float64]{&c.TopP, float, "float"}, "top-p", "sample from the likeliest tokens whose probabilities add up to this (nucleus); 1 is all, 0 the best")
	f.Var(optional[int]{&c.TopK, strconv.Atoi, "int"}, "top-k", "sample from this many of the likeliest tokens; 0 is all")
	f.Var(optional[float64]{&c.MinP, float, "float"}, "min-p", "sample from tokens with at least this share of the likeliest one's probability; 0 is any")
	f.Var(optional[float64]{&c.RepetitionPenalty, float, "float"}, "repetition-penalty", "factor by which tokens that the text already has get less likely; 1 is none")
}

// optional is a flag that knows whether it was given.
type optional[T any] struct {
	value **T
	parse func(string) (T, error)
	kind  string
}

func (o optional[T]) String() string {
	if o.value == nil || *o.value == nil {
		return ""
	}
	return fmt.Sprint(**o.value)
}

func (o optional[T]) Set(s string) error {
	v, err := o.parse(strings.TrimSpace(s))
	if err != nil {
		return fmt.Errorf("got %q, want a number", s)
	}
	*o.value = &v
	return nil
}

func (o optional[T]) Type() string { return o.kind }

// Check is an error for what no model can make right.
func (c *SamplingChoice) Check() error {
	if c.From != SamplingOfModel && c.From != SamplingGreedy {
		return fmt.Errorf("sampling: got %q, want %s or %s", c.From, SamplingOfModel, SamplingGreedy)
	}
	if c.RepetitionPenalty != nil && !(*c.RepetitionPenalty > 0) {
		return fmt.Errorf("repetition-penalty: got %v, want a positive number", *c.RepetitionPenalty)
	}
	_, err := c.resolveSampling(&Generation{})
	return err
}

// Resolve settles the sampling of responses of the model.
func (c *SamplingChoice) Resolve(m *Model) (Sampling, error) {
	if err := c.Check(); err != nil {
		return Sampling{}, err
	}
	g := &Generation{}
	if c.From == SamplingOfModel && m.generation != nil {
		if g = m.generation; g.err != nil {
			return Sampling{}, fmt.Errorf("model %s: %w; --sampling greedy does without", m.Name, g.err)
		}
	}
	return c.resolveSampling(g)
}

func (c *SamplingChoice) resolveSampling(g *Generation) (Sampling, error) {
	s := Sampling{Processors: g.Processors}
	cuts := c.TopK != nil && *c.TopK != 0 || c.TopP != nil && *c.TopP != 0 && *c.TopP != 1 || c.MinP != nil && *c.MinP != 0
	switch {
	case c.Temperature != nil && *c.Temperature == 0 && cuts:
		return s, fmt.Errorf("temperature: got 0, which is greedy, and with it top-k, top-p or min-p, which choose what is sampled: want one of them")
	case c.Temperature != nil:
		s.Temperature = *c.Temperature
	case g.Sample || cuts:
		s.Temperature = first(1, g.Temperature)
	}
	// Kept while greedy too, so that Validate sees them.
	s.TopP, s.MinP = first(0, c.TopP), first(0, c.MinP)
	s.TopK = first(0, c.TopK)
	if s.Temperature > 0 {
		all := 0
		if g.Sample {
			all = defaultTopK
		}
		s.TopK, s.TopP, s.MinP = first(all, c.TopK, g.TopK), first(1, c.TopP, g.TopP), first(0, c.MinP, g.MinP)
		if s.TopP == 0 { // a nucleus of the best token, as in transformers
			s.TopK, s.TopP = 1, 1
		}
	}
	s.Processors.RepetitionPenalty = first(s.Processors.RepetitionPenalty, c.RepetitionPenalty)
	return s, s.Validate()
}

// first is the first value that is given, or else the default.
func first[T any](otherwise T, values ...*T) T {
	for _, v := range values {
		if v != nil {
			return *v
		}
	}
	return otherwise
}

// Report tells once, where it is not plain greedy decoding, what the model's file has
// made of the sampling, and what of it is not followed.
func (c *SamplingChoice) Report(w io.Writer, m *Model, s Sampling) {
	g := m.generation
	if c.From != SamplingOfModel || g == nil || !g.Sample && !g.Processors.Active() && len(g.Ignored) == 0 {
		return
	}
	fmt.Fprintf(w, "sampling with the model's %s: %s", g.file, s)
	if len(g.Ignored) > 0 {
		fmt.Fprintf(w, "; not followed: %s", strings.Join(g.Ignored, ", "))
	}
	fmt.Fprintln(w)
}
