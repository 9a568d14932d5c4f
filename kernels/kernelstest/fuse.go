package kernelstest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
)

// addNorm is a call of Norm of a sum on drawn rows, and the same as two operations.
type addNorm struct {
	d        Device
	X, Delta *kernels.Tensor
	N        kernels.Norm
}

// NewAddNorm draws the operands.
func NewAddNorm(d Device, rows, width int, bias bool) *addNorm {
	rng := rand.New(rand.NewPCG(uint64(rows), uint64(width)))
	c := &addNorm{d: d, X: d.Drawn(rng, rows, width), Delta: d.Drawn(rng, rows, width), N: kernels.Norm{Weight: d.Drawn(rng, width), Eps: 1e-3}}
	if bias {
		c.N.Bias = d.Drawn(rng, width)
	}
	return c
}

// Together returns y and the sum, computed by one call.
func (c *addNorm) Together() (y, x *kernels.Tensor) {
	y = c.d.Garbage(c.X.Shape...)
	c.d.B.Norm(y, c.X, c.Delta, c.N)
	return y, c.X
}

// Apart returns y and the sum, computed one after the other, and leaves x as it is.
func (c *addNorm) Apart() (y, x *kernels.Tensor) {
	y, x = c.d.Garbage(c.X.Shape...), c.d.Garbage(c.X.Shape...)
	c.d.B.Add(x, c.X, c.Delta)
	c.d.B.Norm(y, x, nil, c.N)
	return y, x
}

// CheckAddNorm is TestAddNorm of some backends.
func CheckAddNorm(t *testing.T, backends ...string) {
	exact := Open(t, "reference64")
	for _, name := range backends {
		d := Open(t, name)
		for _, shape := range [][2]int{{1, 1}, {1, 4096}, {3, 31}, {2, 33}, {5, 255}, {1, 256}, {7, 257}, {70, 96}, {2, 1000}, {4, 511}} {
			for _, bias := range []bool{false, true} {
				rows, width := shape[0], shape[1]
				what := fmt.Sprintf("%s %dx%d bias=%v", name, rows, width, bias)
				c := NewAddNorm(d, rows, width, bias)
				wantY, wantX := c.Apart()
				y, x := c.Together()
				compare.Close(t, what+": sum", x.Float64s(), wantX.Float64s(), 0)
				compare.Close(t, what+": norm", y.Float64s(), wantY.Float64s(), 0)
				if width == 1 && bias {
					continue // the row less its mean is the rounding of the sum
				}
				y64, x64 := NewAddNorm(exact, rows, width, bias).Apart()
				compare.Close(t, what+": sum in float64", x.Float64s(), x64.Float64s(), 1e-5, compare.Floor(1))
				compare.Close(t, what+": norm in float64", y.Float64s(), y64.Float64s(), 1e-5, compare.Floor(Magnitude(y64.Float64s())))
			}
		}
		for wrong := range 5 {
			args := []*kernels.Tensor{d.Garbage(2, 6), d.Garbage(2, 6), d.Garbage(2, 6), d.Garbage(6), d.Garbage(6)}
			args[wrong] = d.Garbage(2, 5)
			func() {
				defer func() {
					if got, want := fmt.Sprint(recover()), "kernels: Norm of "; !strings.HasPrefix(got, want) {
						t.Errorf("%s: argument %d of another shape: %q, want %q…", name, wrong, got, want)
					}
				}()
				d.B.Norm(args[0], args[1], args[2], kernels.Norm{Weight: args[3], Bias: args[4], Eps: 1e-3})
			}()
		}
	}
}
