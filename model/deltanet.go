package model

import (
	"errors"
	"fmt"
	"math"

	"glimpse/internal/parallel"
	"glimpse/kernels"
)

// DeltaShape are the extents of a model's gated delta nets.
type DeltaShape struct {
	KeyHeads, ValueHeads int // ValueHeads is a multiple of KeyHeads, whose heads serve as many value heads each
	KeyDim, ValueDim     int // of a head
	Kernel               int // rows that the convolution sees, the present one included
	// fused: in_proj_qkvz and in_proj_ba hold what belongs to a key head together, head by head.
	fused bool
}

// group is the number of value heads that a key head serves.
func (s *DeltaShape) group() int { return s.ValueHeads / s.KeyHeads }

// channels are the inputs of the convolution that belong to a key head: a query, a key, and the values that they serve.
func (s *DeltaShape) channels() int { return 2*s.KeyDim + s.group()*s.ValueDim }

// keys and values are the widths of all heads.
func (s *DeltaShape) keys() int   { return s.KeyHeads * s.KeyDim }
func (s *DeltaShape) values() int { return s.ValueHeads * s.ValueDim }

// inputs are the numbers of a row that go into a net: queries, keys, values, gates, and two of every value head.
func (s *DeltaShape) inputs() int { return 2 * (s.keys() + s.values() + s.ValueHeads) }

func (s *DeltaShape) Noun() string { return "gated delta nets" }

func (s *DeltaShape) RowWidth() int { return s.inputs() + s.values() }

// StateShapes are those of the inputs of the convolution of the last rows, the newest last, and of the matrices S.
func (s *DeltaShape) StateShapes() [][]int {
	return [][]int{{s.KeyHeads, s.Kernel - 1, s.channels()}, {s.ValueHeads, s.KeyDim, s.ValueDim}}
}

// Operations: every number of S decays, is multiplied by the key, corrected, and read.
func (s *DeltaShape) Operations() float64 {
	return 7 * float64(s.ValueHeads*s.KeyDim*s.ValueDim)
}

// checkExtents bounds the extents by a state of 300 MB a layer, which small weights may ask for, too.
func (s *DeltaShape) checkExtents() error {
	if errs := outside([]bounded{
		{"linear_num_key_heads", s.KeyHeads, 1, 1 << 8}, {"linear_num_value_heads", s.ValueHeads, 1, 1 << 8},
		{"linear_key_head_dim", s.KeyDim, 1, 1 << 9}, {"linear_value_head_dim", s.ValueDim, 1, 1 << 9},
		{"linear_conv_kernel_dim", s.Kernel, 2, 64},
	}); errs != nil {
		return errors.Join(errs...)
	}
	if s.ValueHeads%s.KeyHeads != 0 {
		return fmt.Errorf("linear_num_value_heads: got %d, want a multiple of linear_num_key_heads %d", s.ValueHeads, s.KeyHeads)
	}
	return nil
}

// DeltaNet is a gated delta net in the place of attention (Yang, Kautz and Hatamizadeh 2024, arXiv:2412.06464, eq. 10). What a
// layer knows of the rows before is a state S [keyDim, valueDim] of every value head, which does not grow with them: a row
// lets it decay, corrects what it holds under the row's key towards the row's value, and reads it with the row's query.
// Queries, keys and values go through a short convolution over rows and SiLU before, queries and keys are then normalised;
// what is read is normalised by head, gated and projected.
type DeltaNet struct {
	*DeltaShape
	In   []*kernels.Tensor // [·, hidden] as stored; the outputs are the parts below, by key head
	Conv *kernels.Tensor   // [2·keys + values, 1, kernel], in the order of all queries, keys and values
	// Decay and Bias [valueHeads]: the state decays by exp(−exp(Decay) · softplus(a + Bias)).
	Decay, Bias *kernels.Tensor
	Norm        Norm            // of the rows that a head reads [valueDim]
	Out         *kernels.Tensor // [hidden, values] as stored

	query, key, value, gate, beta, rate deltaPart
}

// deltaPart is where one of a DeltaNet's inputs stands for key head g: from column first + g·step of output in on.
type deltaPart struct{ in, first, step int }

func (d *DeltaNet) Matrices() []*kernels.Tensor { return append(d.In[:len(d.In):len(d.In)], d.Out) }

func (d *DeltaNet) WeightCount() (n int64) {
	for _, w := range append(d.Matrices(), d.Conv, d.Decay, d.Bias, d.Norm.Weight) {
		n += tensorBytes(w)
	}
	return n
}

// Forward writes to y [rows, hidden] scale times what the net gives of the rows, zeros of those after the runs, and moves the
// states of the runs on. deltaBlock rows of a run go through the recurrence at once; those that are left of it go one by one, and so
// do all of shorter runs, in which a row has the same bits however many come with it, but for the products before and after.
func (d *DeltaNet) Forward(y *kernels.Tensor, p MixerPass, scale float64) {
	projected, read := d.project(&p), p.Arena.Alloc(p.On.Compute(), p.H.Dim0(), d.values())
	switch {
	case p.Counts:
	case p.On.Compute() == kernels.F64:
		d.recur(projected, read, p.Runs, newDeltaHeads[float64](d, plainVectors))
	default:
		d.recur(projected, read, p.Runs, newDeltaHeads[float32](d, simdVectors))
	}
	p.On.Linear(y, read, d.Out, nil, scale, 0)
}

// project is the outputs of In.
func (d *DeltaNet) project(p *MixerPass) (out []*kernels.Tensor) {
	for _, w := range d.In {
		x := p.Arena.Alloc(p.On.Compute(), p.H.Dim0(), w.Dim0())
		p.On.Linear(x, p.H, w, nil, 1, 0)
		out = append(out, x)
	}
	return out
}

// recurrence is what DeltaNet.recur does in a type of numbers.
type recurrence interface {
	head(g int, projected []*kernels.Tensor, read *kernels.Tensor, runs []Run)
}

// recur runs the key heads, each with all that belongs to it, side by side.
func (d *DeltaNet) recur(projected []*kernels.Tensor, read *kernels.Tensor, runs []Run, h recurrence) {
	rows := 0
	for _, r := range runs {
		rows += r.Rows
	}
	parallel.Tasks(d.KeyHeads, 8*rows*d.group()*d.KeyDim*d.ValueDim, func(g int) { h.head(g, projected, read, runs) })
}

// deltaHeads are a net's vectors in a type of numbers.
type deltaHeads[T kernels.Float] struct {
	vectors[T]
	*DeltaNet
	conv, decay, bias, norm []T
	eps                     T
}

func newDeltaHeads[T kernels.Float](d *DeltaNet, v vectors[T]) *deltaHeads[T] {
	return &deltaHeads[T]{v, d, numbersOf[T](d.Conv), numbersOf[T](d.Decay), numbersOf[T](d.Bias), numbersOf[T](d.Norm.Weight), T(d.Norm.Eps)}
}

// numbersOf is the memory of a host tensor of the type.
func numbersOf[T kernels.Float](t *kernels.Tensor) []T {
	switch out := any(new([]T)).(type) {
	case *[]float32:
		*out = t.F32()
		return any(*out).([]T)
	case *[]float64:
		*out = t.F64()
		return any(*out).([]T)
	}
	panic("model: numbers of another type")
}

// headPart is n numbers of a row for key head g.
func headPart[T any](x []T, width, row, g, n int, p deltaPart) []T {
	return x[row*width+p.first+g*p.step:][:n]
}

// channel is where the convolution's channels of a key head's query, key and values begin.
func (d *DeltaNet) channel(g int) [3]int {
	return [3]int{g * d.KeyDim, d.keys() + g*d.KeyDim, 2*d.keys() + g*d.group()*d.ValueDim}
}

// head runs all rows through key head g and the value heads that it serves.
func (h *deltaHeads[T]) head(g int, projected []*kernels.Tensor, read *kernels.Tensor, runs []Run) {
	in := make([][]T, len(projected))
	for i, x := range projected {
		in[i] = numbersOf[T](x)
	}
	of := func(p deltaPart, row, n int) []T { return headPart(in[p.in], projected[p.in].Width(), row, g, n, p) }
	out, width := numbersOf[T](read), read.Width()
	dk, dv, group, channels := h.KeyDim, h.ValueDim, h.group(), h.channels()
	taps := make([]T, h.Kernel*channels) // of the convolution, [kernel, channels]
	at, from := h.channel(g), 0
	for i, n := range []int{dk, dk, group * dv} {
		for c := range n {
			for j := range h.Kernel {
				taps[j*channels+from+c] = h.conv[(at[i]+c)*h.Kernel+j]
			}
		}
		from += n
	}
	seen, x, wrong := make([]T, h.Kernel*channels), make([]T, channels), make([]T, dv) // inputs of the convolution, its outputs
	q, k, v := x[:dk], x[dk:2*dk], x[2*dk:]
	var many *deltaRows[T]
	row := 0
	for _, run := range runs {
		conv, states := numbersOf[T](run.State[0])[g*(h.Kernel-1)*channels:][:(h.Kernel-1)*channels], numbersOf[T](run.State[1])[g*group*dk*dv:][:group*dk*dv]
		if run.From != nil {
			copy(conv, numbersOf[T](run.From[0])[g*len(conv):])
			copy(states, numbersOf[T](run.From[1])[g*len(states):])
		}
		copy(seen[channels:], conv)
		end := row + run.Rows
		for ; row+deltaBlock <= end; row += deltaBlock {
			if many == nil {
				many = newDeltaRows(h, g, taps)
			}
			many.runRows(of, row, seen[channels:], states, out[row*width+g*group*dv:], width)
		}
		for row < end {
			copy(seen, seen[channels:])
			now := seen[len(seen)-channels:]
			copy(now, of(h.query, row, dk))
			copy(now[dk:], of(h.key, row, dk))
			copy(now[2*dk:], of(h.value, row, group*dv))
			for c := range x {
				sum := T(0)
				for j := c; j < len(seen); j += channels {
					sum += seen[j] * taps[j]
				}
				x[c] = silu(sum)
			}
			unit, length := 1/math.Sqrt(float64(h.dot(k, k))+deltaEps), 1/math.Sqrt((float64(h.dot(q, q))+deltaEps)*float64(dk))
			h.scale(T(unit), k)
			h.scale(T(length), q)
			betas, rates := of(h.beta, row, group), of(h.rate, row, group)
			gates, outputs := of(h.gate, row, group*dv), out[row*width+g*group*dv:][:group*dv]
			for i := range group {
				s, o, head := states[i*dk*dv:][:dk*dv], outputs[i*dv:][:dv], g*group+i
				h.scale(T(math.Exp(-math.Exp(float64(h.decay[head]))*softplus(float64(rates[i]+h.bias[head])))), s)
				copy(wrong, v[i*dv:])
				for j, kj := range k {
					h.axpy(-kj, s[j*dv:][:dv], wrong)
				}
				h.scale(T(kernels.Logistic(float64(betas[i]))), wrong)
				clear(o)
				for j, kj := range k {
					row := s[j*dv:][:dv]
					h.axpy(kj, wrong, row)
					h.axpy(q[j], row, o)
				}
				unit := T(1 / math.Sqrt(float64(h.dot(o, o))/float64(dv)+float64(h.eps)))
				for j, z := range gates[i*dv:][:dv] {
					o[j] *= unit * h.norm[j] * silu(z)
				}
			}
			row++
		}
		copy(conv, seen[channels:])
	}
	for ; row < read.Dim0(); row++ {
		clear(out[row*width+g*group*dv:][:group*dv])
	}
}

// deltaEps is added to the squared lengths of queries and keys.
const deltaEps = 1e-6

func silu[T kernels.Float](x T) T { return T(float64(x) * kernels.Logistic(float64(x))) }

// softplus is log(1 + exp(x)).
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// MulLogistic multiplies x by the logistic function of gate, element by element; both are host tensors of one type.
func MulLogistic(x, gate *kernels.Tensor) {
	if x.DType == kernels.F64 {
		mulLogistic(x.F64(), gate.F64())
	} else {
		mulLogistic(x.F32(), gate.F32())
	}
}

func mulLogistic[T kernels.Float](x, gate []T) {
	const block = 4096
	parallel.Tasks((len(x)+block-1)/block, 32*min(len(x), block), func(task int) {
		for i := task * block; i < min(len(x), (task+1)*block); i++ {
			x[i] *= T(kernels.Logistic(float64(gate[i])))
		}
	})
}
