package simd

import "golang.org/x/sys/cpu"

// The instruction sets that kernels exist for, besides portable, worst first.
const (
	avx2   = 1
	avx512 = 2
)

var levelNames = [...]string{"portable", "avx2", "avx512"}

func detect() int {
	x := &cpu.X86
	switch {
	// x/sys/cpu does not report F16C. Every processor with AVX2 has it.
	case !x.HasAVX2 || !x.HasFMA || !x.HasBMI2:
		return portable
	case !x.HasAVX512F || !x.HasAVX512BW || !x.HasAVX512DQ || !x.HasAVX512VL:
		return avx2
	}
	return avx512
}
