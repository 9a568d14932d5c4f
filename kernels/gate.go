package kernels

import (
	"math"

	"glimpse/internal/parallel"
)

// Gate is how an MLP's gate acts on what it lets through.
type Gate uint8

// The gates.
const (
	SiLU          Gate = iota // silu(gate) · up: SiLUMul
	GELUTanh                  // gelu(gate) · up, GELU by its approximation with tanh (Hendrycks and Gimpel 2016, arXiv:1606.08415, §2)
	ClampedSwiGLU             // (up + 1) · gate · sigmoid(1.702 · gate), gate to 7 at most and up to ±7 (gpt-oss, arXiv:2508.10925, §2.1.2)
)

// evaluate returns what a gate gives, and its derivatives.
func (a Gate) evaluate(gate, up float64) (y, dgate, dup float64) {
	switch a {
	case SiLU:
		s := 1 / (1 + math.Exp(-gate))
		return gate * s * up, s * (1 + gate*(1-s)) * up, gate * s
	case GELUTanh:
		root := math.Sqrt(2 / math.Pi)
		t := math.Tanh(root * (gate + 0.044715*gate*gate*gate))
		act := gate * (1 + t) / 2
		return act * up, ((1+t)/2 + gate*(1-t*t)*root*(1+3*0.044715*gate*gate)/2) * up, act
	}
	const limit, sharp = 7, 1.702
	g, u := min(gate, limit), max(-limit, min(limit, up))
	s := 1 / (1 + math.Exp(-sharp*g))
	if gate <= limit {
		dgate = s * (1 + sharp*g*(1-s)) * (u + 1)
	}
	if u == up {
		dup = g * s
	}
	return g * s * (u + 1), dgate, dup
}

// gateWork is the time of one element, in that of a multiplication.
const gateWork = 32

// GateMul computes element by element in float64.
func (d Decomposed) GateMul(act Gate, y, gate, up *Tensor) {
	CheckLengths("GateMul", y, gate, up)
	elements([]*Tensor{y}, []*Tensor{gate, up}, func(out, in []float64) { out[0], _, _ = act.evaluate(in[0], in[1]) })
}

// GateMulGrad computes element by element in float64.
func (d Decomposed) GateMulGrad(act Gate, dgate, dup, gate, up, dy *Tensor) {
	CheckLengths("GateMulGrad", dy, dgate, dup, gate, up)
	elements([]*Tensor{dgate, dup}, []*Tensor{gate, up, dy}, func(out, in []float64) {
		_, out[0], out[1] = act.evaluate(in[0], in[1])
		out[0] *= in[2]
		out[1] *= in[2]
	})
}

// SoftCap computes element by element in float64.
func (d Decomposed) SoftCap(y, x *Tensor, limit float64) {
	CheckLengths("SoftCap", y, x)
	elements([]*Tensor{y}, []*Tensor{x}, func(out, in []float64) { out[0] = limit * math.Tanh(in[0]/limit) })
}

// elements writes to ys what f makes of each element of xs. Other memory than the host's goes through that.
func elements(ys, xs []*Tensor, f func(out, in []float64)) {
	wide := make([]*Tensor, 0, 4)
	read := make([]func(i int) float64, len(xs))
	for i, x := range xs {
		if x = x.OnHost(); x.DType == F32 {
			values := x.F32()
			read[i] = func(j int) float64 { return float64(values[j]) }
		} else {
			values := x.Float64s()
			read[i] = func(j int) float64 { return values[j] }
		}
	}
	write := make([]func(i int, v float64), len(ys))
	for i, y := range ys {
		to := y
		if host := y.OnHost(); host != y || y.DType != F32 && y.DType != F64 {
			to = NewTensor(F64, y.Shape...)
		}
		wide = append(wide, to)
		if to.DType == F32 {
			values := to.F32()
			write[i] = func(j int, v float64) { values[j] = float32(v) }
		} else {
			values := to.F64()
			write[i] = func(j int, v float64) { values[j] = v }
		}
	}
	n := ys[0].Len()
	const block = 4096
	parallel.Tasks((n+block-1)/block, gateWork*min(n, block), func(task int) {
		var in, out [4]float64
		for j := task * block; j < min(n, (task+1)*block); j++ {
			for i := range read {
				in[i] = read[i](j)
			}
			f(out[:], in[:])
			for i := range write {
				write[i](j, out[i])
			}
		}
	})
	for i, y := range ys {
		if wide[i] != y {
			Convert(y, wide[i])
		}
	}
}
