package eviction

import "math"

// rotation is what RoPE multiplies a pair of dimensions by at a position, as a complex number: by the angle that
// kernels.NewRoPETable has.
func rotation(pos int, freq float32) complex128 {
	sin, cos := math.Sincos(float64(float32(pos) * freq))
	return complex(cos, sin)
}
