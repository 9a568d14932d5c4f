package simd

import (
	"math"
	"testing"
)

// Every 16-bit pattern is widened, at a length with a tail.
func TestWidenEveryNumber(t *testing.T) {
	const n = 1<<16 + 5
	src, dst := make([]uint16, n), make([]float32, n)
	for i := range src {
		src[i] = uint16(i)
	}
	// The value by definition: sign, exponent, fraction.
	value := func(h uint16, exponentBits, fractionBits int) float64 {
		fraction := float64(h & (1<<fractionBits - 1))
		exponent, top := int(h>>fractionBits)&(1<<exponentBits-1), 1<<exponentBits-1
		bias, one := 1<<(exponentBits-1)-1, float64(int(1)<<fractionBits)
		var v float64
		switch {
		case exponent == top && fraction != 0:
			return math.NaN()
		case exponent == top:
			v = math.Inf(1)
		case exponent == 0:
			v = math.Ldexp(fraction/one, 1-bias)
		default:
			v = math.Ldexp(1+fraction/one, exponent-bias)
		}
		if h>>15 == 1 {
			v = -v
		}
		return v
	}
	everyLevel(t, func(t *testing.T) {
		WidenBF16(dst, src)
		for i, h := range src {
			if want := value(h, 8, 7); math.Float32bits(dst[i]) != uint32(h)<<16 || dst[i] != float32(want) && want == want {
				t.Fatalf("bf16 %#04x: %v, want %v", h, dst[i], want)
			}
		}
		WidenF16(dst, src)
		for i, h := range src {
			want := value(h, 5, 10)
			if (dst[i] != float32(want) || math.Signbit(float64(dst[i])) != math.Signbit(want)) && (want == want || dst[i] == dst[i]) {
				t.Fatalf("f16 %#04x: %v, want %v", h, dst[i], want)
			}
		}
	})
}

// Rounding is checked at every 16-bit number and between each two neighbours: the
// middle goes to the even one, everything else to the nearer one.
func TestNarrow(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		for _, c := range []struct {
			name     string
			infinity uint16
			widen    func(dst []float32, src []uint16)
			narrow   func(dst []uint16, src []float32)
		}{{"BF16", 0x7f80, WidenBF16, NarrowBF16}, {"F16", 0x7c00, WidenF16, NarrowF16}} {
			t.Run(c.name, func(t *testing.T) {
				n := int(c.infinity)
				numbers, values := make([]uint16, n+1), make([]float32, n+1)
				for i := range numbers {
					numbers[i] = uint16(i)
				}
				c.widen(values, numbers)
				var src []float32
				var want []uint16
				add := func(f float32, h uint16) {
					src = append(src, f, -f)
					want = append(want, h, h|0x8000)
				}
				for i := range n {
					low, high := float64(values[i]), float64(values[i+1])
					if i+1 == n { // infinity rounds as the number that would follow
						high = low + (low - float64(values[i-1]))
					}
					middle := float32((low + high) / 2) // exact, except below the smallest bf16
					even := numbers[i] + numbers[i]&1
					add(values[i], numbers[i])
					if float64(middle)*2 == low+high {
						add(middle, even)
						add(math.Nextafter32(middle, 0), numbers[i])
						add(math.Nextafter32(middle, float32(math.Inf(1))), numbers[i]+1)
					}
				}
				add(float32(math.Inf(1)), c.infinity)
				add(math.MaxFloat32, c.infinity)
				add(math.SmallestNonzeroFloat32, 0)
				got := make([]uint16, len(src))
				c.narrow(got, src)
				for i := range got {
					if got[i] != want[i] {
						t.Fatalf("%v (%#08x): %#04x, want %#04x", src[i], math.Float32bits(src[i]), got[i], want[i])
					}
				}
				nans := make([]float32, 37)
				for i := range nans { // quiet and signalling, any payload, both signs
					nans[i] = math.Float32frombits(0x7f800001 + uint32(i)*0x0012345 | uint32(i&1)<<31)
				}
				got = got[:len(nans)]
				c.narrow(got, nans)
				for i, h := range got {
					quiet := (c.infinity >> 1 &^ c.infinity) & 0x7fff // upper bit of the fraction
					if h&c.infinity != c.infinity || h&quiet == 0 || h>>15 != uint16(math.Float32bits(nans[i])>>31) {
						t.Errorf("NaN %#08x: %#04x, want a quiet NaN of its sign", math.Float32bits(nans[i]), h)
					}
				}
			})
		}
	})
}
