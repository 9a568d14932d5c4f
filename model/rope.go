package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"

	"glimpse/internal/registry"
)

// ropeScaling is config.json's rope_scaling (older files say "type").
type ropeScaling struct {
	Type            string   `json:"type"`
	RoPEType        string   `json:"rope_type"`
	Factor          float64  `json:"factor"`
	LowFreqFactor   float64  `json:"low_freq_factor"`
	HighFreqFactor  float64  `json:"high_freq_factor"`
	OriginalContext float64  `json:"original_max_position_embeddings"`
	AttentionFactor *float64 `json:"attention_factor"`
	MScale          float64  `json:"mscale"`
	MScaleAllDim    float64  `json:"mscale_all_dim"`
	BetaFast        *float64 `json:"beta_fast"`
	BetaSlow        *float64 `json:"beta_slow"`
	Truncate        *bool    `json:"truncate"`
	QueryBeta       *float64 `json:"llama_4_scaling_beta"`

	ShortFactor []float64 `json:"short_factor"`
	LongFactor  []float64 `json:"long_factor"`

	outer *float64 // original_max_position_embeddings of config.json itself
}

// ropeKeys are what config.json says of RoPE.
type ropeKeys struct {
	RoPETheta       *float64        `json:"rope_theta"`
	RoPEScaling     json.RawMessage `json:"rope_scaling"`
	RoPEParameters  json.RawMessage `json:"rope_parameters"` // both of the above, as transformers 5 writes them
	PartialRotary   *float64        `json:"partial_rotary_factor"`
	OriginalContext *float64        `json:"original_max_position_embeddings"`
}

// forLayers are the keys for layers of a type, as full_attention: rope_parameters may have an object for each type.
func (k ropeKeys) forLayers(layers string) (ropeKeys, error) {
	if !given(k.RoPEParameters) {
		return k, nil
	}
	var types map[string]json.RawMessage
	if err := json.Unmarshal(k.RoPEParameters, &types); err != nil {
		return k, fmt.Errorf("rope_parameters: %w", err)
	}
	if own := types[layers]; given(own) {
		k.RoPEParameters = own
	}
	return k, nil
}

// ropeTypes maps rope_scaling's types to what they do to a model's RoPEFreqs, unscaled at
// first, RoPEScale, LongRoPE and MaxPositions.
var ropeTypes = registry.Registry[func(c *Config, s *ropeScaling, theta float64) error]{Noun: "type"}

func init() {
	ropeTypes.Add("default", nil)
	ropeTypes.Add("linear", linearRoPE)
	ropeTypes.Add("llama3", llama3RoPE)
	ropeTypes.Add("longrope", longRoPE)
	ropeTypes.Add("yarn", yarnRoPE)
	ropeTypes.Add("proportional", proportionalRoPE)
}

// RoPETypes are the names of the known scaling types.
func RoPETypes() []string { return ropeTypes.Names() }

// setRoPE sets the angles per position and the factor on cosines and sines from
// rope_theta and rope_scaling, or from rope_parameters, which holds both. An
// unknown scaling type is refused by name.
func (c *Config) setRoPE(keys ropeKeys) error {
	base, scaling, err := c.setPlainRoPE(keys)
	if err != nil || !given(scaling) {
		return err
	}
	s := ropeScaling{outer: keys.OriginalContext}
	if err := json.Unmarshal(scaling, &s); err != nil {
		return fmt.Errorf("rope_scaling: %w", err)
	}
	kind := cmp.Or(s.RoPEType, s.Type)
	switch {
	case kind == "" && s.Factor == 0:
		kind = "default"
	case kind == "su": // the name in the first Phi-3
		kind = "longrope"
	}
	// The type goes first: those that are not known have other keys.
	apply, err := ropeTypes.Lookup(kind)
	if err != nil {
		return fmt.Errorf("rope_scaling: %w", err)
	}
	if apply == nil {
		return nil
	}
	if kind == "proportional" && s.Factor == 0 {
		s.Factor = 1
	}
	if kind != "longrope" && !(s.Factor >= 1) || math.IsInf(s.Factor, 0) {
		return fmt.Errorf("rope_scaling.factor: got %v, want at least 1", s.Factor)
	}
	return apply(c, &s, base)
}

// setPlainRoPE is setRoPE without scaling, and returns theta and what is said of scaling.
func (c *Config) setPlainRoPE(keys ropeKeys) (theta float64, scaling json.RawMessage, err error) {
	own, scaling, parameters, partial := keys.RoPETheta, keys.RoPEScaling, keys.RoPEParameters, keys.PartialRotary
	if given(parameters) {
		if given(scaling) {
			return 0, nil, fmt.Errorf("rope_parameters and rope_scaling: got both, want one of them")
		}
		var p struct {
			RoPETheta *float64 `json:"rope_theta"`
			Partial   *float64 `json:"partial_rotary_factor"`
		}
		if err := json.Unmarshal(parameters, &p); err != nil {
			return 0, nil, fmt.Errorf("rope_parameters: %w", err)
		}
		scaling, own, partial = parameters, cmp.Or(p.RoPETheta, own), cmp.Or(p.Partial, partial)
	}
	theta = first(10000.0, own)
	if !(theta > 0) || math.IsInf(theta, 0) {
		return 0, nil, fmt.Errorf("rope_theta: got %v, want a positive number", theta)
	}
	rotated := c.HeadDim
	if partial != nil {
		if rotated = int(float64(c.HeadDim) * *partial); !(*partial > 0 && *partial <= 1) || rotated < 2 || rotated%2 != 0 {
			return 0, nil, fmt.Errorf("partial_rotary_factor: got %v of head_dim %d, want an even number of dimensions", *partial, c.HeadDim)
		}
	}
	c.RoPEFreqs, c.RoPEScale = PlainRoPE(theta, rotated), 1
	return theta, scaling, nil
}

// linearRoPE divides positions by the factor (Chen et al. 2023, arXiv:2306.15595, position
// interpolation).
func linearRoPE(c *Config, s *ropeScaling, _ float64) error {
	for i := range c.RoPEFreqs {
		c.RoPEFreqs[i] /= float32(s.Factor)
	}
	return nil
}

// proportionalRoPE rotates the pairs of the first dimensions of each half of a head as if all were rotated, and leaves the
// others, as Gemma 4 does. The factor is linear.
func proportionalRoPE(c *Config, s *ropeScaling, theta float64) error {
	rotated := len(c.RoPEFreqs)
	c.RoPEFreqs = PlainRoPE(theta, c.HeadDim)
	clear(c.RoPEFreqs[rotated:])
	return linearRoPE(c, s, theta)
}

// llama3RoPE divides low frequencies, keeps high ones and has a ramp between, as
// Llama 3.1 does.
func llama3RoPE(c *Config, s *ropeScaling, _ float64) error {
	if !(s.LowFreqFactor > 0 && s.HighFreqFactor > s.LowFreqFactor && s.OriginalContext > 0) {
		return fmt.Errorf("rope_scaling: got low_freq_factor %v, high_freq_factor %v, original_max_position_embeddings %v, want 0 < low < high and a positive context", s.LowFreqFactor, s.HighFreqFactor, s.OriginalContext)
	}
	for i, f := range c.RoPEFreqs {
		wavelength := 2 * math.Pi / float64(f)
		ramp := (s.OriginalContext/wavelength - s.LowFreqFactor) / (s.HighFreqFactor - s.LowFreqFactor)
		ramp = math.Max(0, math.Min(1, ramp))
		c.RoPEFreqs[i] = float32((1-ramp)*float64(f)/s.Factor + ramp*float64(f))
	}
	return nil
}

// yarnRoPE is YaRN (Peng et al. 2023, arXiv:2309.00071, §3.2–3.4) as transformers computes it:
// dimensions that turn more than beta_fast times over the original context keep
// their frequency, those that turn less than beta_slow times have it divided by
// the factor, with a ramp over the dimensions between; attention is sharpened
// through the factor on cosines and sines.
func yarnRoPE(c *Config, s *ropeScaling, theta float64) error {
	original := cmp.Or(s.OriginalContext, float64(c.MaxPositions))
	fast, slow := cmp.Or(first(0, s.BetaFast), 32), cmp.Or(first(0, s.BetaSlow), 1)
	if !(original*s.Factor <= maxContext) {
		return fmt.Errorf("rope_scaling: got original_max_position_embeddings %v times factor %v, want at most %d", original, s.Factor, maxContext)
	}
	if !(original > 0 && slow > 0 && fast >= slow && theta != 1) {
		return fmt.Errorf("rope_scaling: got original_max_position_embeddings %v, beta_fast %v, beta_slow %v at rope_theta %v, want a positive context, 0 < slow <= fast and a theta other than 1", original, fast, slow, theta)
	}
	factorOf := func(mscale float64) float64 {
		if s.Factor <= 1 {
			return 1
		}
		return 0.1*mscale*math.Log(s.Factor) + 1
	}
	switch {
	case s.AttentionFactor != nil:
		c.RoPEScale = *s.AttentionFactor
	case s.MScale != 0 && s.MScaleAllDim != 0:
		c.RoPEScale = factorOf(s.MScale) / factorOf(s.MScaleAllDim)
	default:
		c.RoPEScale = factorOf(1)
	}
	if !(c.RoPEScale > 0) || math.IsInf(c.RoPEScale, 0) {
		return fmt.Errorf("rope_scaling.attention_factor: got %v, want a positive number", c.RoPEScale)
	}
	rotated := 2 * len(c.RoPEFreqs)
	// dimension is that which turns the given number of times.
	dimension := func(turns float64) float64 {
		return float64(rotated) * math.Log(original/(turns*2*math.Pi)) / (2 * math.Log(theta))
	}
	low, high := dimension(fast), dimension(slow)
	if s.Truncate == nil || *s.Truncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = math.Max(low, 0), math.Min(high, float64(rotated-1))
	if low == high {
		high += 0.001
	}
	for i, f := range c.RoPEFreqs {
		ramp := math.Max(0, math.Min(1, (float64(i)-low)/(high-low)))
		c.RoPEFreqs[i] = float32(float64(f)/s.Factor*ramp + float64(f)*(1-ramp))
	}
	// Models that ship without scaling are given it by this key alone: the context
	// that max_position_embeddings states is then the original one.
	c.MaxPositions = max(c.MaxPositions, int(original*s.Factor))
	return nil
}

// longRoPE is LongRoPE (Ding et al. 2024, arXiv:2402.13753, §3) as transformers computes it: every frequency
// has a factor of its own, one list of them for prompts of up to the original context and
// one for longer ones; attention is sharpened through the factor on cosines and sines, for
// both.
func longRoPE(c *Config, s *ropeScaling, theta float64) error {
	original, factor := first(s.OriginalContext, s.outer), s.Factor
	if original == 0 {
		original = float64(c.MaxPositions)
	} else {
		factor = float64(c.MaxPositions) / original
	}
	if !(original >= 1 && original <= maxContext) || original != math.Trunc(original) {
		return fmt.Errorf("original_max_position_embeddings: got %v, want 1 to %d", original, maxContext)
	}
	switch {
	case s.AttentionFactor != nil:
		c.RoPEScale = *s.AttentionFactor
	case factor > 1:
		c.RoPEScale = math.Sqrt(1 + math.Log(factor)/math.Log(original))
	}
	if !(c.RoPEScale > 0) || math.IsInf(c.RoPEScale, 0) {
		return fmt.Errorf("rope_scaling.attention_factor: got %v, want a positive number", c.RoPEScale)
	}
	powers := ropePowers(theta, 2*len(c.RoPEFreqs))
	divided := func(key string, factors []float64) ([]float32, error) {
		if len(factors) != len(powers) {
			return nil, fmt.Errorf("rope_scaling.%s: got %d factors, want one for each of %d pairs of dimensions", key, len(factors), len(powers))
		}
		out := make([]float32, len(powers))
		for i, f := range factors {
			if !(f > 0) || math.IsInf(f, 0) {
				return nil, fmt.Errorf("rope_scaling.%s: got %v, want positive numbers", key, f)
			}
			out[i] = 1 / (float32(f) * powers[i])
		}
		return out, nil
	}
	var err error
	if c.RoPEFreqs, err = divided("short_factor", s.ShortFactor); err != nil {
		return err
	}
	c.LongRoPE = &LongRoPE{After: int(original)}
	c.LongRoPE.Freqs, err = divided("long_factor", s.LongFactor)
	return err
}

// positionScale reads the growth of queries with their positions, which counts from the context of the scaling on.
func (c *Config) positionScale(keys ropeKeys) error {
	raw := keys.RoPEParameters
	if !given(raw) {
		raw = keys.RoPEScaling
	}
	var s ropeScaling
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("rope_parameters: %w", err)
	}
	if s.QueryBeta == nil || !(*s.QueryBeta >= 0 && *s.QueryBeta <= 1e3) || !(s.OriginalContext >= 1 && s.OriginalContext <= maxContext) {
		return fmt.Errorf("rope_parameters: got llama_4_scaling_beta %s, original_max_position_embeddings %v, want 0 to 1000 and a positive context", orMissing(s.QueryBeta), s.OriginalContext)
	}
	c.PositionScale = &PositionScale{*s.QueryBeta, s.OriginalContext}
	return nil
}

func orMissing(x *float64) string {
	if x == nil {
		return "none"
	}
	return fmt.Sprint(*x)
}

// given tells whether a key of config.json has a value.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }
