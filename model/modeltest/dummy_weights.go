package modeltest

import (
	"math"

	"glimpse/kernels"
	"glimpse/kernels/formats"
	"glimpse/model"
)

// WithDummyWeights is a model of m's shapes with random weights, of at most so many
// layers and tokens: it costs the time and memory of the real one's layers and says
// nothing sensible.
func WithDummyWeights(m *model.Model, layers, vocab int) *model.Model {
	b := m.Backend
	tiles := make(map[float32]*kernels.Tensor)
	random := random{1}
	return m.WithWeights(layers, vocab, func(stored kernels.DType, compute bool, shape []int) *kernels.Tensor {
		if compute { // norms and biases
			t := b.Alloc(b.Compute(), shape...)
			b.Fill(t, 1)
			return t
		}
		scale := float32(math.Sqrt(3 / float64(shape[len(shape)-1])))
		if kernels.ShapeLen(shape) > tileElements && b.OwnMemory() {
			if tiles[scale] == nil {
				tiles[scale] = b.Place(random.randomTensor(stored, scale, tileElements))
			}
			return tiled(b, tiles[scale], shape)
		}
		return b.Place(random.randomTensor(stored, scale, shape...))
	})
}

// tileElements are the random numbers of one scale that the large weights of a device
// are filled from, there: billions of them take long on the host.
const tileElements = 1 << 22

// tiled is a tensor filled from pieces of a tile, of odd length and shifted, so that no
// two rows of a matrix are the same.
func tiled(b kernels.Backend, tile *kernels.Tensor, shape []int) *kernels.Tensor {
	t := b.Alloc(tile.DType, shape...)
	flat, n := t.Reshape(t.Len()), t.Len()
	const piece = tileElements - 4099
	for at, shift := 0, 0; at < n; at, shift = at+piece, (shift+1031)%4096 {
		length := min(piece, n-at)
		b.Copy(flat.Rows(at, at+length), tile.Rows(shift, shift+length))
	}
	return t
}

// random draws dummy weights: speed is all that matters.
type random struct{ state uint32 }

// nextFloat is uniform in [-1, 1).
func (r *random) nextFloat() float32 {
	r.state = r.state*1664525 + 1013904223
	return float32(int32(r.state)) / (1 << 31)
}

// randomTensor is a host tensor of numbers up to scale.
func (r *random) randomTensor(d kernels.DType, scale float32, shape ...int) *kernels.Tensor {
	t := kernels.NewTensor(d, shape...)
	switch d {
	case kernels.F32:
		for i := range t.F32() {
			t.F32()[i] = scale * r.nextFloat()
		}
	case kernels.BF16:
		for i := range t.U16() {
			t.U16()[i] = formats.F32ToBF16(scale * r.nextFloat())
		}
	default:
		for i := range t.U16() { // exponents of 2⁻⁸ to 2⁻¹, random signs
			t.U16()[i] = uint16(r.state>>16)&0x9fff | 0x1c00
			r.nextFloat()
		}
	}
	return t
}

// RandomTensor is a host tensor of numbers up to scale, always the same ones.
func RandomTensor(d kernels.DType, scale float32, shape ...int) *kernels.Tensor {
	r := random{1}
	return r.randomTensor(d, scale, shape...)
}
