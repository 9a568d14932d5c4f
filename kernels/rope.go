package kernels

import "math"

// RoPETable holds cosines and sines of the rotation angles of positions
// 0…positions−1: Cos and Sin are [positions, headDim/2] in a backend's compute
// type, or narrower, to rotate the first dimensions alone.
type RoPETable struct {
	Cos, Sin *Tensor
}

// NewRoPETable computes the table for frequencies freqs, headDim/2 at most (radians per
// position); scale multiplies cosines and sines (1 but for scaling schemes with
// an attention factor). Angles are rounded to float32 before the cosine, as
// transformers does, so that long contexts agree with it.
func NewRoPETable(b Backend, freqs []float32, positions int, scale float64) *RoPETable {
	half := len(freqs)
	if d, ok := b.(*Dry); ok { // which would read zeros after seconds of cosines
		return &RoPETable{Cos: d.Alloc(d.compute, positions, half), Sin: d.Alloc(d.compute, positions, half)}
	}
	cosines, sines := NewTensor(b.Compute(), positions, half), NewTensor(b.Compute(), positions, half)
	for p := range positions {
		for i, f := range freqs {
			sin, cos := math.Sincos(float64(float32(p) * f))
			cosines.set(p*half+i, cos*scale)
			sines.set(p*half+i, sin*scale)
		}
	}
	return &RoPETable{Cos: Place(b, cosines), Sin: Place(b, sines)}
}

// Positions is the number of positions that the table covers.
func (t *RoPETable) Positions() int { return t.Cos.Dim0() }
