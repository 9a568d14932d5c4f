package serving

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"glimpse/model"
)

// settings are the fields of a request that say how it is answered, which all endpoints share.
type settings struct {
	Model string `json:"model"`

	Temperature       *float64           `json:"temperature"`
	TopP              *float64           `json:"top_p"`
	TopK              *int               `json:"top_k"`
	MinP              *float64           `json:"min_p"`
	Seed              *int64             `json:"seed"`
	N                 *int               `json:"n"`
	PresencePenalty   *float64           `json:"presence_penalty"`
	FrequencyPenalty  *float64           `json:"frequency_penalty"`
	RepetitionPenalty *float64           `json:"repetition_penalty"`
	LogitBias         map[string]float64 `json:"logit_bias"`
	MaxTokens         *int               `json:"max_tokens"`
	MinTokens         *int               `json:"min_tokens"`
	IgnoreEOS         bool               `json:"ignore_eos"`
	Stop              stopTexts          `json:"stop"`
	StopTokenIDs      []int32            `json:"stop_token_ids"`

	Stream        bool `json:"stream"`
	StreamOptions *struct {
		IncludeUsage       bool   `json:"include_usage"`
		IncludeObfuscation *bool  `json:"include_obfuscation"`
		Unread             unread `json:",embed"`
	} `json:"stream_options"`

	Eviction *evictionRequest `json:"eviction"`

	// StructuredOutputs is what vLLM calls so.
	StructuredOutputs *structured `json:"structured_outputs"`

	ignored
	renamed
	unsupported

	boundBy string // the field that MaxTokens comes from; "": max_tokens
}

// evictionChoice is a policy and a budget.
type evictionChoice struct {
	Policy  string `json:"policy,omitempty"`
	Budget  string `json:"budget,omitempty"`
	Adapter string `json:"adapter,omitempty"`
}

// evictionRequest is a request's own choice, in the place of the server's. A misspelt field would silently be the server's.
type evictionRequest struct {
	evictionChoice
	Kept bool `json:"kept"` // the usage is to have evictionUsage.Tokens, in streams, too
	// Keep is what of the conversation stays, in the place of the server's Config.Keep, as engine.KeepRules has it, and KeepPattern a
	// regular expression of texts that do.
	Keep        *[]string `json:"keep"`
	KeepPattern *string   `json:"keep_pattern"`
	Context     string    `json:"context"` // the name of one that comes before the messages; "": none
	Unknown     unknown   `json:",embed"`
}

// ignored are fields that change no answer.
type ignored struct {
	User                 json.RawMessage `json:"user"`
	Metadata             json.RawMessage `json:"metadata"`
	Store                json.RawMessage `json:"store"`
	ServiceTier          json.RawMessage `json:"service_tier"`
	SafetyIdentifier     json.RawMessage `json:"safety_identifier"`
	PromptCacheKey       json.RawMessage `json:"prompt_cache_key"`
	PromptCacheRetention json.RawMessage `json:"prompt_cache_retention"`
}

// unsupported are fields of OpenAI's API that ask for another kind of answer, and are refused.
type unsupported struct {
	Audio        json.RawMessage `json:"audio"`
	Modalities   json.RawMessage `json:"modalities"`
	Functions    json.RawMessage `json:"functions"`
	FunctionCall json.RawMessage `json:"function_call"`
	BestOf       *int            `json:"best_of"`
	Suffix       string          `json:"suffix"`
}

func (u *unsupported) check() error {
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"audio", given(u.Audio)}, {"functions", given(u.Functions)}, {"function_call", given(u.FunctionCall)}, {"suffix", u.Suffix != ""},
	} {
		if f.given {
			return refuse(f.name, "is not supported")
		}
	}
	if m := string(u.Modalities); given(u.Modalities) && strings.Join(strings.Fields(m), "") != `["text"]` {
		return refuse("modalities", "got %s, want [\"text\"]", m)
	}
	if b := or(u.BestOf, 1); b != 1 {
		return refuse("best_of", "got %d, want 1", b)
	}
	return nil
}

// The most that a request may ask for.
const (
	maxStops       = 16
	maxChoices     = 128
	maxTopLogProbs = 20
)

// sampling is how tokens are chosen: what the request says over what the model's generation_config.json does.
func (s *settings) sampling(m *model.Model, defaults model.SamplingChoice) (model.Sampling, error) {
	c := defaults
	for _, f := range []struct {
		name     string
		value    *float64
		from, to float64
		set      **float64
	}{
		{"temperature", s.Temperature, 0, 2, &c.Temperature}, {"top_p", s.TopP, 0, 1, &c.TopP}, {"min_p", s.MinP, 0, 1, &c.MinP},
		{"repetition_penalty", s.RepetitionPenalty, math.SmallestNonzeroFloat64, math.Inf(1), &c.RepetitionPenalty},
		{"presence_penalty", s.PresencePenalty, -2, 2, nil}, {"frequency_penalty", s.FrequencyPenalty, -2, 2, nil},
	} {
		if f.value == nil {
			continue
		}
		if v := *f.value; !(v >= f.from && v <= f.to) {
			return model.Sampling{}, refuse(f.name, "got %v, want %v to %v", v, f.from, f.to)
		}
		if f.set != nil {
			*f.set = f.value
		}
	}
	if s.TopK != nil {
		if *s.TopK < -1 {
			return model.Sampling{}, refuse("top_k", "got %d, want at least -1", *s.TopK)
		}
		k := max(0, *s.TopK) // -1 is all
		c.TopK = &k
	}
	if c.Temperature != nil && *c.Temperature == 0 { // greedy, with whatever stands beside it
		c.TopP, c.TopK, c.MinP = nil, nil, nil
	}
	out, err := c.Resolve(m)
	if err != nil {
		return out, refuse("", "%v", err)
	}
	if s.Seed != nil {
		out.Seed = uint64(*s.Seed)
	}
	p := &out.Processors
	p.PresencePenalty, p.FrequencyPenalty = or(s.PresencePenalty, 0), or(s.FrequencyPenalty, 0)
	if s.MinTokens != nil {
		p.MinNew, p.End = *s.MinTokens, m.Config.EOS
	}
	for id, bias := range s.LogitBias {
		n, err := strconv.Atoi(id)
		if err != nil || n < 0 || n >= m.Config.Vocab {
			return out, refuse("logit_bias", "got token %q, want an id of 0 to %d", id, m.Config.Vocab-1)
		}
		if !(bias >= -100 && bias <= 100) {
			return out, refuse("logit_bias", "token %d: got %v, want -100 to 100", n, bias)
		}
		if p.Bias == nil {
			p.Bias = make(map[int32]float64)
		}
		p.Bias[int32(n)] = bias
	}
	return out, nil
}

// bound makes a field of another name, where it is given, what max_tokens is.
func (s *settings) bound(field string, n *int) {
	if n != nil {
		s.MaxTokens, s.boundBy = n, field
	}
}

// noBound is max_tokens of an answer that the server alone bounds.
const noBound = -1

// checkRanges refuses what no model can make right.
func (s *settings) checkRanges() error {
	s.rename()
	switch {
	case s.N != nil && (*s.N < 1 || *s.N > maxChoices):
		return refuse("n", "got %d, want 1 to %d", *s.N, maxChoices)
	case s.MaxTokens != nil && *s.MaxTokens < 1 && *s.MaxTokens != noBound:
		return refuse(cmp.Or(s.boundBy, "max_tokens"), "got %d, want at least 1, or -1 for the server's own bound", *s.MaxTokens)
	case s.MinTokens != nil && *s.MinTokens < 0:
		return refuse("min_tokens", "got %d, want at least 0", *s.MinTokens)
	case len(s.Stop) > maxStops:
		return refuse("stop", "got %d texts, want at most %d", len(s.Stop), maxStops)
	case s.StreamOptions != nil && !s.Stream:
		return refuse("stream_options", "it is for streams: want stream to be true")
	}
	for i, text := range s.Stop {
		if text == "" {
			return refuse("stop", "text %d is empty", i)
		}
	}
	return s.unsupported.check()
}

func (s *settings) wantsKept() bool { return s.Eviction != nil && s.Eviction.Kept }

func (s *settings) wantsUsage() bool {
	return s.wantsKept() || s.StreamOptions != nil && s.StreamOptions.IncludeUsage
}

// wanted is the usage of a stream; nil where it is not asked for.
func (s *settings) wanted(u *usage) *usage {
	if s.wantsUsage() {
		return u
	}
	return nil
}

// pending is completion.Usage of the parts of a stream before the last.
func (s *settings) pending() any {
	if s.wantsUsage() {
		return (*usage)(nil)
	}
	return nil
}

// or is a field of a request, or what it is where the request does not say.
func or[T any](field *T, otherwise T) T {
	if field == nil {
		return otherwise
	}
	return *field
}

// given tells whether a field has a value.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// topLogProbs checks how many of the likeliest tokens are asked for.
func topLogProbs(param string, n int) (int, error) {
	if n < 0 || n > maxTopLogProbs {
		return 0, refuse(param, "got %d, want 0 to %d", n, maxTopLogProbs)
	}
	return n, nil
}

// modelName takes a model's name apart: NAME, or NAME@POLICY, NAME@POLICY:BUDGET for clients that can name nothing else.
func modelName(name string) (base string, e evictionChoice, err error) {
	base, rest, ok := strings.Cut(name, "@")
	if !ok {
		return base, e, nil
	}
	e.Policy = rest
	if i := strings.LastIndex(rest, ":"); i >= 0 && strings.ContainsAny(rest[i+1:], "0123456789") {
		e.Policy, e.Budget = rest[:i], rest[i+1:]
	}
	e.Policy, e.Adapter, _ = strings.Cut(e.Policy, "/")
	if e.Policy == "" {
		return base, e, fmt.Errorf("model %q: want a policy behind the @", name)
	}
	return base, e, nil
}
