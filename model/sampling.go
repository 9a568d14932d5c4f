package model

import (
	"fmt"
	"math"
	"strings"
)

// Sampling chooses the next token. The zero value is greedy.
type Sampling struct {
	Temperature float64 // 0: greedy
	TopP        float64 // smallest set of tokens with this probability; 0 or 1: all
	TopK        int     // most likely tokens considered; 0: all
	MinP        float64 // least probability, as a share of the largest; 0: any
	Seed        uint64
	// Processors change the logits first, in greedy decoding, too.
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
