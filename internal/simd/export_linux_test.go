package simd

import "testing"

// Guarded returns memory for float32 and for bytes that ends or starts at a page which may
// not be touched.
type Guarded struct{ g *guarded }

func NewGuarded(t *testing.T, pages int, ends bool) Guarded {
	g := newGuarded(t, pages)
	g.ends = ends
	return Guarded{g}
}

func (g Guarded) Floats(n int) []float32 { return guardedSlice[float32](g.g, n) }
func (g Guarded) Bytes(n int) []byte     { return guardedSlice[byte](g.g, n) }
