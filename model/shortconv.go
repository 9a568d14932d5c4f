package model

import (
	"errors"

	"glimpse/internal/parallel"
	"glimpse/kernels"
)

// ConvShape are the extents of short convolutions in the place of attention (LFM2).
type ConvShape struct {
	Width  int // channels, as wide as the residual stream
	Kernel int // rows that a row sees, itself included
}

func (s *ConvShape) Noun() string { return "short convolutions" }

// StateShapes is that of the inputs of the convolution of the last rows, the newest last.
func (s *ConvShape) StateShapes() [][]int { return [][]int{{s.Kernel - 1, s.Width}} }

func (s *ConvShape) RowWidth() int { return 4 * s.Width }

// Operations: every channel is gated before and after, and sums the rows that it sees.
func (s *ConvShape) Operations() float64 {
	return float64(s.Width * (2*s.Kernel + 1))
}

func (s *ConvShape) checkExtents() error {
	return errors.Join(outside([]bounded{{"conv_L_cache", s.Kernel, 2, 64}})...)
}

func (s *ConvShape) bind(c *Config, b *Binder, at string) Recurrent {
	x := &ShortConv{ConvShape: s}
	b.Matrix(at+"conv.in_proj.weight", &x.In, 3*s.Width, c.Hidden)
	b.addSlot(slot{name: at + "conv.conv.weight", shape: []int{s.Width, 1, s.Kernel}, compute: true, set: func(t *kernels.Tensor) { x.Taps = t }})
	b.Matrix(at+"conv.out_proj.weight", &x.Out, c.Hidden, s.Width)
	return x
}

// ShortConv is a gated short convolution: In gives a row B, C and x, every channel sums B·x over the last Kernel rows by its taps,
// C multiplies the sum, and Out reads that.
type ShortConv struct {
	*ConvShape
	In, Out *kernels.Tensor // [3·width, hidden] of B, C and x, [hidden, width], as stored
	Taps    *kernels.Tensor // [width, 1, kernel], the present row's last
}

func (c *ShortConv) Matrices() []*kernels.Tensor { return []*kernels.Tensor{c.In, c.Out} }

func (c *ShortConv) WeightCount() int64 {
	return tensorBytes(c.In) + tensorBytes(c.Out) + tensorBytes(c.Taps)
}

func (c *ShortConv) Forward(y *kernels.Tensor, p MixerPass, scale float64) {
	in, sums := p.Arena.Alloc(p.On.Compute(), p.H.Dim0(), 3*c.Width), p.Arena.Alloc(p.On.Compute(), p.H.Dim0(), c.Width)
	p.On.Linear(in, p.H, c.In, nil, 1, 0)
	switch {
	case p.Counts:
	case in.DType == kernels.F64:
		convolve(c, in.F64(), sums.F64(), p.Runs)
	default:
		convolve(c, in.F32(), sums.F32(), p.Runs)
	}
	p.On.Linear(y, sums, c.Out, nil, scale, 0)
}

// convChannels is how many channels are summed together.
const convChannels = 64

// convolve writes C times the sums of B·x to out [rows, width]. It leaves B·x in the place of B.
func convolve[T kernels.Float](c *ShortConv, in, out []T, runs []Run) {
	w, k, taps := c.Width, c.Kernel, numbersOf[T](c.Taps)
	parallel.Tasks((w+convChannels-1)/convChannels, convChannels*(2*k+2)*len(out)/w, func(task int) {
		from, to, row := task*convChannels, min((task+1)*convChannels, w), 0
		for _, run := range runs {
			state, first := numbersOf[T](run.State[0]), row
			if run.From != nil {
				before := numbersOf[T](run.From[0])
				for j := range k - 1 {
					copy(state[j*w+from:j*w+to], before[j*w+from:])
				}
			}
			// seen are the inputs of row i of the pass, of the rows before the run where it is less than the first one's.
			seen := func(i int) []T {
				if i < first {
					return state[(k-1+i-first)*w:][:w]
				}
				return in[i*3*w:][:w]
			}
			for ; row < first+run.Rows; row++ {
				x, y := in[row*3*w:][:3*w], out[row*w:][:w]
				for i := from; i < to; i++ {
					x[i] *= x[2*w+i]
					y[i] = 0
				}
				for j := range k {
					past := seen(row - k + 1 + j)
					for i := from; i < to; i++ {
						y[i] += taps[i*k+j] * past[i]
					}
				}
				for i := from; i < to; i++ {
					y[i] *= x[w+i]
				}
			}
			for j := range k - 1 {
				copy(state[j*w+from:j*w+to], seen(row - k + 1 + j)[from:])
			}
		}
		for ; row < len(out)/w; row++ {
			clear(out[row*w+from : row*w+to])
		}
	})
}

// Backward computes in float64.
func (c *ShortConv) Backward(dh *kernels.Tensor, p MixerPass, dy *kernels.Tensor, scale float64) {
	w, k, rows := c.Width, c.Kernel, p.H.Dim0()
	in, dSums := p.Arena.Alloc(p.On.Compute(), rows, 3*w), p.Arena.Alloc(p.On.Compute(), rows, w)
	p.On.Linear(in, p.H, c.In, nil, 1, 0)
	p.On.MatMul(dSums, dy, c.Out, scale, 0)
	dIn := p.Arena.Alloc(p.On.Compute(), rows, 3*w)
	if !p.Counts {
		x, d, g := in.Float64s(), dSums.Float64s(), make([]float64, rows*3*w)
		taps, state := c.Taps.Float64s(), p.Runs[0].State[0].Float64s()
		for t := range rows {
			for i := range w {
				sum, at := 0.0, t*3*w+i
				grad := d[t*w+i] * x[at+w]
				for j := range k {
					switch from := t - k + 1 + j; {
					case from < 0:
						sum += taps[i*k+j] * state[(k-1+from)*w+i]
					default:
						b := from*3*w + i
						sum += taps[i*k+j] * x[b] * x[b+2*w]
						g[b] += grad * taps[i*k+j] * x[b+2*w]
						g[b+2*w] += grad * taps[i*k+j] * x[b]
					}
				}
				g[at+w] = d[t*w+i] * sum
			}
		}
		kernels.Convert(dIn, kernels.FromF64(g, rows, 3*w))
	}
	p.On.MatMul(dh, dIn, c.In, 1, 0)
}
