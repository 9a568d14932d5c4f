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

// TestPastLevel2: weights are fetched past the level-2 cache on AMD's processors since Zen 5 alone, and products have the
// same bits either way.
func TestPastLevel2(t *testing.T) {
	const genuineIntel = 0x756e6547
	for _, c := range []struct {
		maker, family uint32
		want          uint8
	}{
		{authenticAMD, 25, 0}, {authenticAMD, zen5, 1}, {authenticAMD, zen5 + 1, 1}, {genuineIntel, 6, 0}, {genuineIntel, zen5, 0},
	} {
		if got := pastLevel2Of(c.maker, c.family); got != c.want {
			t.Errorf("maker %#x, family %d: %d, want %d", c.maker, c.family, got, c.want)
		}
	}
	defer func(was uint8) { pastLevel2 = was }(pastLevel2)
	everyLevel(t, func(t *testing.T) {
		r := newRand(12)
		const m, n, k = 1, 24, 512
		x, half, blocks := randomFloats(r, m*k), randomHalves(r, n*k), make([]byte, 2*n*k)
		for i := range blocks {
			blocks[i] = byte(r.Uint32()) & 0x3f
		}
		multiply := func(past uint8) (y []float32) {
			pastLevel2 = past
			y = make([]float32, (1+len(blockSizes))*n)
			GemmNTBF16(Exact, m, n, k, 1, x, k, half, k, 0, y[:n], n)
			for i := range blockSizes {
				f := &blockSizes[i]
				if !f.MultipliesBlocks() {
					continue
				}
				GemmNTBlocks(m, n, k, 1, x, k, &f.Blocks, blocks[:n*k/f.Elems*f.Bytes], Exact, 0, y[(1+i)*n:][:n], n)
			}
			return y
		}
		if at := sameBits(multiply(0), multiply(1)); at >= 0 {
			t.Errorf("other bits at %d", at)
		}
	})
}
