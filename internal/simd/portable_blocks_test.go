package simd

import "math"

// quantisedGroup is what 32 elements of a become: those bytes times scale.
type quantisedGroup struct {
	bytes [32]int8
	scale float32
}

// leastQuantised is the magnitude below which numbers of a group count as 0: 127 divided by
// less may be infinite.
const leastQuantised = 0x1p-120

// quantisePortable is what the assembly does with 32 elements. A group that is not finite
// has a scale that is not.
func quantisePortable(src []float32) (g quantisedGroup) {
	var bits uint32 // of the largest magnitude: NaN is above infinity
	for _, x := range src {
		bits = max(bits, math.Float32bits(x)&0x7fffffff)
	}
	most := math.Float32frombits(bits)
	g.scale = most / 127
	if !(most >= leastQuantised) || most > math.MaxFloat32 {
		return g
	}
	inverse := 127 / most
	for i, x := range src {
		g.bytes[i] = int8(math.RoundToEven(float64(x * inverse)))
	}
	return g
}

// sum is that of bytes from … to.
func (g *quantisedGroup) sum(from, to int) (sum int) {
	for _, q := range g.bytes[from:to] {
		sum += int(q)
	}
	return sum
}
