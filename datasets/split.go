package datasets

import (
	"crypto/sha256"
	"encoding/binary"

	"glimpse/internal/suggest"
)

// Split is one of three sets of examples that cannot overlap.
type Split string

// The hash of a prompt puts 80% of all prompts in Train and 10% in each of the
// others.
const (
	Train      Split = "train"
	Validation Split = "validation"
	Test       Split = "test"
)

// ParseSplit reads a split's name.
func ParseSplit(name string) (Split, error) {
	switch s := Split(name); s {
	case Train, Validation, Test:
		return s, nil
	}
	return "", suggest.Unknown("split", name, []string{string(Train), string(Validation), string(Test)})
}

// SplitOf returns the split that a prompt belongs to. It depends on the ids only,
// so the same prompt is never in two splits, whichever task, seed or file it
// comes from. The rule: SHA-256 of the ids as little-endian 32-bit numbers, its
// first eight bytes as a little-endian number, modulo 10; 8 is Validation, 9 is
// Test.
func SplitOf(prompt []int32) Split {
	data := make([]byte, 0, 4*len(prompt))
	for _, id := range prompt {
		data = binary.LittleEndian.AppendUint32(data, uint32(id))
	}
	sum := sha256.Sum256(data)
	switch binary.LittleEndian.Uint64(sum[:8]) % 10 {
	case 8:
		return Validation
	case 9:
		return Test
	}
	return Train
}
