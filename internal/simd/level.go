package simd

import (
	"fmt"
	"os"
)

// portable is the level that every processor has; the other ones are numbered per
// architecture, better ones higher.
const portable = 0

var (
	best   = detect()            // the best level that this processor has
	chosen = preferred(best)     // the level in use
	level  = kernelLevel(chosen) // of its kernels
	pairs  = hasPairs(chosen)    // whether it multiplies pairs of bfloat16
	tiles  = hasTiles(chosen)    // and on tiles
	envErr error
)

func init() {
	if name := os.Getenv("GLIMPSE_SIMD"); name != "" {
		if _, err := Use(name); err != nil {
			envErr = fmt.Errorf("environment variable GLIMPSE_SIMD: %w", err)
		}
	}
}

// Level returns the name of the instruction set in use: amx, avx512bf16, avx512, avx2,
// neon or portable.
func Level() string { return levelNames[chosen] }

// Arithmetic names what the results of products by a [Rounding] depend on, besides shapes and data: the level, with the extensions that
// multiply bytes where the processor has those that its kernels use, as avx2+vnni; of [Float32], exact and the level of its
// kernels.
func Arithmetic(how Rounding) string {
	if how == Float32 {
		return "exact " + levelNames[level]
	}
	return levelNames[chosen] + bytesExtension()
}

// Levels returns the names of the levels that this processor has, worst first.
func Levels() []string { return levelNames[:best+1] }

// Use selects a level by name and returns a function that selects the previous one
// again. It is meant for tests and for the start of a program: it must not be called
// while kernels run. Results differ between levels in the last bits.
//
// The error says that the name is unknown, or that this processor lacks the level.
func Use(name string) (restore func(), err error) {
	for l, n := range Levels() {
		if n == name {
			previous := chosen
			setLevel(l)
			return func() { setLevel(previous) }, nil
		}
	}
	return func() {}, fmt.Errorf("simd: level %q, want one of %q on this processor", name, Levels())
}

func setLevel(l int) { chosen, level, pairs, tiles = l, kernelLevel(l), hasPairs(l), hasTiles(l) }

// EnvError returns what was wrong with the environment variable GLIMPSE_SIMD, which then had no
// effect, or nil.
func EnvError() error { return envErr }
