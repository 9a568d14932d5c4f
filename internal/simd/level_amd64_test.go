package simd

import "testing"

// TestPreferred: pairs of bfloat16 are slower than float32 on Intel's processors, and on no other's known ones; tiles
// are never.
func TestPreferred(t *testing.T) {
	const genuineIntel = 0x756e6547 // "Genu"
	for _, c := range []struct {
		maker      uint32
		best, want int
	}{
		{genuineIntel, portable, portable}, {genuineIntel, avx2, avx2}, {genuineIntel, avx512, avx512},
		{genuineIntel, avx512bf16, avx512}, {genuineIntel, amx, amx},
		{authenticAMD, avx2, avx2}, {authenticAMD, avx512, avx512}, {authenticAMD, avx512bf16, avx512bf16},
	} {
		if got := preferredOf(c.maker, c.best); got != c.want {
			t.Errorf("maker %#x, best level %s: %s, want %s", c.maker, levelNames[c.best], levelNames[got], levelNames[c.want])
		}
	}
	if maker := vendor(); maker != genuineIntel && maker != authenticAMD {
		t.Logf("a third maker: %#x", maker)
	}
}
