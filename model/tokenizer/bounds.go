package tokenizer

import (
	"errors"
	"fmt"
)

// Bounds on what the components of a file may make of a text or of the vocabulary: a
// few lines of a file can ask for 2⁶⁰ bytes.
const (
	maxNesting = 4    // Sequence components in each other
	maxSteps   = 64   // of a normalizer, pre-tokenizer, post-processor or decoder
	maxAffix   = 4096 // ids around a text

	// A text may grow to so many times its size, and so many bytes more. NFC makes
	// at most 3 of one, the models in use at most 4.
	maxGrowth = 64
	freeBytes = 1 << 20
)

var (
	errNesting = fmt.Errorf("a Sequence is nested more than %d deep", maxNesting)
	errSteps   = fmt.Errorf("more than %d steps", maxSteps)
	errExpands = errors.New("the text grows too large")
)

// growth is the bytes that something of n bytes may grow to.
func growth(n int) int { return maxGrowth*n + freeBytes }

// checkLimit returns s, or an error if it has more than limit bytes.
func checkLimit(s string, limit int) (string, error) {
	if len(s) > limit {
		return "", expands(len(s), limit)
	}
	return s, nil
}

func expands(size, limit int) error {
	return fmt.Errorf("%w: %d bytes or more, want at most %d", errExpands, size, max(limit, 0))
}
