package model

import (
	"math"

	"glimpse/internal/parallel"
	"glimpse/kernels"
)

// Backward writes to dh [rows, hidden] the gradient of the rows from that of Forward's output, dy [rows, hidden], in a pass of one
// run, whose state is that before the run and stays as it is. The weights and the state are constants. The rows run once more, in
// float64.
func (d *DeltaNet) Backward(dh *kernels.Tensor, p MixerPass, dy *kernels.Tensor, scale float64) {
	projected, dRead := d.project(&p), p.Arena.Alloc(p.On.Compute(), dy.Dim0(), d.values())
	p.On.MatMul(dRead, dy, d.Out, scale, 0)
	gradients := make([]*kernels.Tensor, len(projected))
	for i, x := range projected {
		gradients[i] = p.Arena.Alloc(x.DType, x.Shape...)
	}
	if !p.Counts {
		in, to := make([][]float64, len(projected)), make([][]float64, len(projected))
		for i, x := range projected {
			in[i], to[i] = x.Float64s(), make([]float64, x.Len())
		}
		b := &deltaGradient{
			DeltaNet: d, in: in, to: to, dRead: dRead.Float64s(), rows: p.H.Dim0(),
			conv: d.Conv.Float64s(), decay: d.Decay.Float64s(), bias: d.Bias.Float64s(), norm: d.Norm.Weight.Float64s(),
			before: p.Runs[0].State[0].Float64s(), state: p.Runs[0].State[1].Float64s(),
		}
		parallel.Tasks(d.KeyHeads, 24*b.rows*d.group()*d.KeyDim*d.ValueDim, b.headGradient)
		for i, g := range gradients {
			kernels.Convert(g, kernels.FromF64(to[i], g.Shape...))
		}
	}
	for i, g := range gradients {
		p.On.MatMul(dh, g, d.In[i], 1, float64(min(i, 1)))
	}
}

// deltaGradient is one run of a net, on the host.
type deltaGradient struct {
	*DeltaNet
	in, to [][]float64 // what is projected, and its gradients
	dRead  []float64
	rows   int

	conv, decay, bias, norm []float64
	before, state           []float64 // the run's first state
}

// partNumbers is n numbers of a part, of the projections or of their gradients.
func (b *deltaGradient) partNumbers(x [][]float64, p deltaPart, row, g, n int) []float64 {
	return headPart(x[p.in], b.In[p.in].Dim0(), row, g, n, p)
}

// headGradient is the gradient of all that belongs to key head g.
func (b *deltaGradient) headGradient(g int) {
	dk, dv, group, channels, kernel := b.KeyDim, b.ValueDim, b.group(), b.channels(), b.Kernel
	tap, parts := make([][]float64, channels), []deltaPart{b.query, b.key, b.value}
	for i, c, n := 0, 0, []int{dk, dk, group * dv}; i < 3; i++ {
		for j := range n[i] {
			tap[c] = b.conv[(b.channel(g)[i]+j)*kernel:][:kernel]
			c++
		}
	}
	widths := []int{dk, dk, group * dv}
	// Inputs of the convolution from those before the run on, what it gives, and the gradient of that.
	seen, mixed := make([][]float64, kernel-1+b.rows), make([][]float64, b.rows)
	for i := range kernel - 1 {
		seen[i] = b.before[(g*(kernel-1)+i)*channels:][:channels]
	}
	for t := range b.rows {
		var now []float64
		for i, p := range parts {
			now = append(now, b.partNumbers(b.in, p, t, g, widths[i])...)
		}
		seen[kernel-1+t] = now
		mixed[t] = make([]float64, channels)
		for c := range channels {
			for j, w := range tap[c] {
				mixed[t][c] += w * seen[t+j][c]
			}
		}
	}
	dMixed := make([][]float64, b.rows) // behind SiLU at first
	x := make([][]float64, b.rows)      // mixed behind SiLU, queries and keys normalised
	lengths := make([][2]float64, b.rows)
	for t := range b.rows {
		dMixed[t], x[t] = make([]float64, channels), make([]float64, channels)
		for c, m := range mixed[t] {
			x[t][c] = silu(m)
		}
		for i := range 2 {
			v := x[t][i*dk:][:dk]
			lengths[t][i] = 1 / math.Sqrt(plainVectors.dot(v, v)+deltaEps)
			plainVectors.scale(lengths[t][i]*b.unit(i), v)
		}
	}
	for i := range group {
		b.valueHead(g, i, x, dMixed)
	}
	for t := range b.rows {
		for i := range 2 { // normalised is v·s·unit with s = (|v|² + ε)^−1/2
			n, dn, s, u := x[t][i*dk:][:dk], dMixed[t][i*dk:][:dk], lengths[t][i], b.unit(i)
			along := plainVectors.dot(n, dn) / (u * u)
			for j := range dn {
				dn[j] = s * u * (dn[j] - n[j]*along)
			}
		}
		for c, m := range mixed[t] {
			s := kernels.Logistic(m)
			dMixed[t][c] *= s * (1 + m*(1-s))
		}
	}
	for t := range b.rows {
		c := 0
		for i, p := range parts {
			to := b.partNumbers(b.to, p, t, g, widths[i])
			for k := range to {
				for j, w := range tap[c] { // row t is input j of row t + kernel − 1 − j
					if of := t + kernel - 1 - j; of < b.rows {
						to[k] += w * dMixed[of][c]
					}
				}
				c++
			}
		}
	}
}

// unit is the length of normalised queries (0) and keys (1).
func (b *deltaGradient) unit(i int) float64 {
	if i == 0 {
		return 1 / math.Sqrt(float64(b.KeyDim))
	}
	return 1
}

// valueHead runs value head i of key head g over rows x, and adds to dx the gradients of its queries, keys and values.
func (b *deltaGradient) valueHead(g, i int, x, dx [][]float64) {
	v := plainVectors
	dk, dv, group := b.KeyDim, b.ValueDim, b.group()
	head, size := g*group+i, dk*dv
	query := func(x [][]float64, t int) []float64 { return x[t][:dk] }
	key := func(x [][]float64, t int) []float64 { return x[t][dk:][:dk] }
	value := func(x [][]float64, t int) []float64 { return x[t][2*dk+i*dv:][:dv] }
	rate := -math.Exp(b.decay[head])
	decay := func(t int) (by, a float64) {
		a = b.partNumbers(b.in, b.rate, t, g, group)[i] + b.bias[head]
		return math.Exp(rate * softplus(a)), a
	}
	states := [][]float64{b.state[head*size:][:size]} // before every row, and after the last one
	wrong := make([][]float64, b.rows)                // what the decayed state lacks of a row's value
	for t := range b.rows {
		by, _ := decay(t)
		s, e, beta := append([]float64(nil), states[t]...), append([]float64(nil), value(x, t)...), kernels.Logistic(b.partNumbers(b.in, b.beta, t, g, group)[i])
		v.scale(by, s)
		for j, k := range key(x, t) {
			v.axpy(-k, s[j*dv:][:dv], e)
		}
		for j, k := range key(x, t) {
			v.axpy(k*beta, e, s[j*dv:][:dv])
		}
		states, wrong[t] = append(states, s), e
	}
	ds, decayed := make([]float64, size), make([]float64, size)
	out, do, dWrong := make([]float64, dv), make([]float64, dv), make([]float64, dv)
	for t := b.rows - 1; t >= 0; t-- {
		q, k, after := query(x, t), key(x, t), states[t+1]
		clear(out)
		for j := range dk {
			v.axpy(q[j], after[j*dv:][:dv], out)
		}
		// What is read is out · unit · norm · silu(gate).
		unit := 1 / math.Sqrt(v.dot(out, out)/float64(dv)+b.Norm.Eps)
		gate, dGate := b.partNumbers(b.in, b.gate, t, g, group*dv)[i*dv:][:dv], b.partNumbers(b.to, b.gate, t, g, group*dv)[i*dv:][:dv]
		dy, along := b.dRead[t*b.values()+head*dv:][:dv], 0.0
		for j, z := range gate {
			s := kernels.Logistic(z)
			dGate[j] = dy[j] * out[j] * unit * b.norm[j] * s * (1 + z*(1-s))
			do[j] = dy[j] * b.norm[j] * silu(z)
			along += do[j] * out[j]
		}
		for j := range do {
			do[j] = unit*do[j] - out[j]*along*unit*unit*unit/float64(dv)
		}
		for j := range dk {
			query(dx, t)[j] += v.dot(after[j*dv:][:dv], do)
			v.axpy(q[j], do, ds[j*dv:][:dv])
		}
		// The state is the decayed one and k · (beta · wrong)ᵀ, wrong is value − decayedᵀ · k.
		beta := kernels.Logistic(b.partNumbers(b.in, b.beta, t, g, group)[i])
		clear(dWrong)
		for j := range dk {
			row := ds[j*dv:][:dv]
			key(dx, t)[j] += beta * v.dot(row, wrong[t])
			v.axpy(k[j], row, dWrong)
		}
		b.partNumbers(b.to, b.beta, t, g, group)[i] = v.dot(dWrong, wrong[t]) * beta * (1 - beta)
		v.scale(beta, dWrong)
		v.axpy(1, dWrong, value(dx, t))
		copy(decayed, states[t])
		by, a := decay(t)
		v.scale(by, decayed)
		for j := range dk {
			key(dx, t)[j] -= v.dot(decayed[j*dv:][:dv], dWrong)
			v.axpy(-k[j], dWrong, ds[j*dv:][:dv])
		}
		b.partNumbers(b.to, b.rate, t, g, group)[i] = v.dot(ds, decayed) * rate * kernels.Logistic(a)
		v.scale(by, ds)
	}
}

// MulLogisticGrad writes the gradients of both inputs of MulLogistic, dx and dGate, from that of its product.
func MulLogisticGrad(dx, dGate, x, gate, dy *kernels.Tensor) {
	a, g, d := x.Float64s(), gate.Float64s(), dy.Float64s()
	for i := range d {
		s := kernels.Logistic(g[i])
		a[i], g[i] = d[i]*s, d[i]*a[i]*s*(1-s)
	}
	kernels.Convert(dx, kernels.FromF64(a, dx.Shape...))
	kernels.Convert(dGate, kernels.FromF64(g, dGate.Shape...))
}
