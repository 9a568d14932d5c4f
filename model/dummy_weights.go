package model

import (
	"math"

	"glimpse/kernels"
	"glimpse/kernels/formats"
)

// WithDummyWeights is a model of m's shapes with random weights, of at most so many
// layers and tokens: it costs the time and memory of the real one's layers and says
// nothing sensible.
func (m *Model) WithDummyWeights(layers, vocab int) *Model {
	if m.shapes == nil {
		panic("model: WithDummyWeights of a loaded model")
	}
	s := &Model{Name: m.Name, Config: m.Config, Backend: m.Backend, folder: m.folder, family: m.family, shapes: &shapes{stored: m.shapes.stored}}
	c := &s.Config
	c.cutLayers(min(layers, c.Layers))
	c.Vocab = min(vocab, c.Vocab)
	c.BOS, c.EOS = -1, nil
	tiles := make(map[float32]*kernels.Tensor)
	random := random{1}
	s.bindNetwork(func(slot slot) *kernels.Tensor {
		s.shapes.bytes += int64(kernels.ShapeLen(slot.shape)) * int64(s.shapes.stored.Size())
		if slot.compute { // norms and biases
			t := s.Backend.Alloc(s.Backend.Compute(), slot.shape...)
			s.Backend.Fill(t, 1)
			return t
		}
		scale := float32(math.Sqrt(3 / float64(slot.shape[len(slot.shape)-1])))
		if kernels.ShapeLen(slot.shape) > tileElements && s.Backend.OwnMemory() {
			if tiles[scale] == nil {
				tiles[scale] = s.Backend.Place(random.randomTensor(s.shapes.stored, scale, tileElements))
			}
			return tiled(s.Backend, tiles[scale], slot.shape)
		}
		return s.Backend.Place(random.randomTensor(s.shapes.stored, scale, slot.shape...))
	})
	return s
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
