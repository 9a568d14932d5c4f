package kernels

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
	return b.RoPETable(freqs, positions, scale)
}

// Positions is the number of positions that the table covers.
func (t *RoPETable) Positions() int { return t.Cos.Dim0() }
