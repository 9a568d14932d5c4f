package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
)

// addNorm is a call of AddRMSNorm, or with bias of AddLayerNorm, on drawn rows, and the
// same as two operations.
type addNorm struct {
	d              device
	x, delta, w, b *kernels.Tensor
}

func newAddNorm(d device, rows, width int, bias bool) *addNorm {
	rng := rand.New(rand.NewPCG(uint64(rows), uint64(width)))
	draw := func(shape ...int) *kernels.Tensor {
		n := 1
		for _, s := range shape {
			n *= s
		}
		return d.tensor(random(rng, n, 1), shape...)
	}
	c := &addNorm{d: d, x: draw(rows, width), delta: draw(rows, width), w: draw(width)}
	if bias {
		c.b = draw(width)
	}
	return c
}

const addNormEps = 1e-3

// together returns y and the sum, computed by one call.
func (c *addNorm) together() (y, x *kernels.Tensor) {
	y = c.d.garbage(c.x.Shape...)
	if c.b != nil {
		c.d.b.AddLayerNorm(y, c.x, c.delta, c.w, c.b, addNormEps)
	} else {
		c.d.b.AddRMSNorm(y, c.x, c.delta, c.w, addNormEps)
	}
	return y, c.x
}

// apart returns y and the sum, computed one after the other, and leaves x as it is.
func (c *addNorm) apart() (y, x *kernels.Tensor) {
	y, x = c.d.garbage(c.x.Shape...), c.d.garbage(c.x.Shape...)
	c.d.b.Add(x, c.x, c.delta)
	if c.b != nil {
		c.d.b.LayerNorm(y, x, c.w, c.b, addNormEps)
	} else {
		c.d.b.RMSNorm(y, x, c.w, addNormEps)
	}
	return y, x
}

// checkAddNorm is TestAddNorm of some backends.
func checkAddNorm(t *testing.T, backends ...string) {
	exact := open(t, "reference64")
	for _, name := range backends {
		d := open(t, name)
		for _, shape := range [][2]int{{1, 1}, {1, 4096}, {3, 31}, {2, 33}, {5, 255}, {1, 256}, {7, 257}, {70, 96}, {2, 1000}, {4, 511}} {
			for _, bias := range []bool{false, true} {
				rows, width := shape[0], shape[1]
				what := fmt.Sprintf("%s %dx%d bias=%v", name, rows, width, bias)
				c := newAddNorm(d, rows, width, bias)
				wantY, wantX := c.apart()
				y, x := c.together()
				compare.Close(t, what+": sum", x.Float64s(), wantX.Float64s(), 0)
				compare.Close(t, what+": norm", y.Float64s(), wantY.Float64s(), 0)
				if width == 1 && bias {
					continue // the row less its mean is the rounding of the sum
				}
				y64, x64 := newAddNorm(exact, rows, width, bias).apart()
				compare.Close(t, what+": sum in float64", x.Float64s(), x64.Float64s(), 1e-5, compare.Floor(1))
				compare.Close(t, what+": norm in float64", y.Float64s(), y64.Float64s(), 1e-5, compare.Floor(magnitude(y64.Float64s())))
			}
		}
		for op, f := range map[string]func(y, x, delta, w *kernels.Tensor){
			"AddRMSNorm":   func(y, x, delta, w *kernels.Tensor) { d.b.AddRMSNorm(y, x, delta, w, 1e-3) },
			"AddLayerNorm": func(y, x, delta, w *kernels.Tensor) { d.b.AddLayerNorm(y, x, delta, w, w, 1e-3) },
		} {
			for wrong := range 4 {
				args := []*kernels.Tensor{d.garbage(2, 6), d.garbage(2, 6), d.garbage(2, 6), d.garbage(6)}
				args[wrong] = d.garbage(2, 5)
				func() {
					defer func() {
						if got, want := fmt.Sprint(recover()), "kernels: "+op+" of "; len(got) < len(want) || got[:len(want)] != want {
							t.Errorf("%s: argument %d of another shape: %q, want %q…", name, wrong, got, want)
						}
					}()
					f(args[0], args[1], args[2], args[3])
				}()
			}
		}
	}
}
