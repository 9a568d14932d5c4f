package simd

import "golang.org/x/sys/cpu"

// The instruction sets that kernels exist for, besides portable, worst first. The last
// two differ from the one before in products of many rows that may be rounded only.
const (
	avx2       = 1
	avx512     = 2
	avx512bf16 = 3
	amx        = 4
)

var levelNames = [...]string{"portable", "avx2", "avx512", "avx512bf16", "amx"}

// kernelLevel is the level whose kernels a level uses where it has no own ones.
func kernelLevel(l int) int { return min(l, avx512) }

func hasPairs(l int) bool { return l >= avx512bf16 }

func hasTiles(l int) bool { return l >= amx }

func detect() int {
	x := &cpu.X86
	switch {
	// x/sys/cpu does not report F16C. Every processor with AVX2 has it.
	case !x.HasAVX2 || !x.HasFMA || !x.HasBMI2:
		return portable
	case !x.HasAVX512F || !x.HasAVX512BW || !x.HasAVX512DQ || !x.HasAVX512VL:
		return avx2
	case !x.HasAVX512BF16:
		return avx512
	case !x.HasAMXTile || !x.HasAMXBF16 || !tilesPermitted():
		return avx512bf16
	}
	return amx
}

// cpuid returns the first two words that the processor says of itself.
func cpuid(leaf uint32) (a, b uint32)

// vendor is the first word of the processor's name of its maker.
func vendor() uint32 {
	_, maker := cpuid(0)
	return maker
}

// family is the number that its maker gives a generation of processors.
func family() uint32 {
	signature, _ := cpuid(1)
	return signature>>8&15 + signature>>20&255
}

// zen5 is the family of AMD's processors with a level-1 cache of 48 KiB.
const zen5 = 26

// pastLevel2 is 1 where weights of products of few rows, which are read once, are fetched past the level-2 cache. On Zen 5
// that reads them 6 to 10% faster, since rows of a stay in the level-1 cache, which has room for both; on Zen 4 its
// products by bfloat16 take 15% longer. Elsewhere it was not measured.
var pastLevel2 = pastLevel2Of(vendor(), family())

func pastLevel2Of(maker, family uint32) uint8 {
	if maker == authenticAMD && family >= zen5 {
		return 1
	}
	return 0
}

const authenticAMD = 0x68747541 // "Auth"

// preferred is the level that programs begin with, where best is the best one.
func preferred(best int) int { return preferredOf(vendor(), best) }

// preferredOf is preferred on a maker's processors. VDPBF16PS multiplies twice as many numbers as float32
// products do in the same time on AMD's, which have it since Zen 4, and half as many on Intel's.
func preferredOf(maker uint32, best int) int {
	if best == avx512bf16 && maker != authenticAMD {
		return avx512
	}
	return best
}
