package model

import (
	"math"

	"glimpse/internal/simd"
	"glimpse/kernels"
)

// deltaBlock is how many rows go through a net's recurrence at once, as in the reference of Yang et al. (arXiv:2406.06484).
const deltaBlock = 64

// deltaSolved is how many of them are solved for one by one.
const deltaSolved = 16

// vectors are operations on numbers of a type: on as many as the slices have, and products of row-major matrices c [m, n] with
// distances lda, ldb and ldc between rows.
type vectors[T kernels.Float] struct {
	dot   func(x, y []T) T
	axpy  func(a T, x, y []T) // y += a·x
	scale func(a T, x []T)
	mul   func(dst, x, y []T)
	add   func(dst, x, y []T)
	exp   func(dst, x []T)
	silu  func(dst, gate, up []T) // gate · logistic(gate) · up
	// c = alpha · a · b + beta · c, of a [m, k] and b [k, n], b [n, k] transposed, a [k, m] transposed.
	nn, nt, tn func(m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int)
}

var (
	simdVectors = vectors[float32]{
		simd.Dot, simd.Axpy, simd.Scale, simd.Mul, simd.Add, simd.Exp, simd.SiLUMul, simd.GemmNN, simd.GemmNT, simd.GemmTN,
	}
	plainVectors = vectors[float64]{
		dot: func(x, y []float64) (sum float64) {
			for i, v := range x {
				sum += v * y[i]
			}
			return sum
		},
		axpy: func(a float64, x, y []float64) {
			for i, v := range x {
				y[i] += a * v
			}
		},
		scale: func(a float64, x []float64) {
			for i := range x {
				x[i] *= a
			}
		},
		mul: func(dst, x, y []float64) {
			for i, v := range x {
				dst[i] = v * y[i]
			}
		},
		add: func(dst, x, y []float64) {
			for i, v := range x {
				dst[i] = v + y[i]
			}
		},
		exp: func(dst, x []float64) {
			for i, v := range x {
				dst[i] = math.Exp(v)
			}
		},
		silu: func(dst, gate, up []float64) {
			for i, v := range gate {
				dst[i] = silu(v) * up[i]
			}
		},
		nn: func(m, n, k int, alpha float64, a []float64, lda int, b []float64, ldb int, beta float64, c []float64, ldc int) {
			plainProduct(m, n, k, alpha, func(i, p int) float64 { return a[i*lda+p] }, func(p, j int) float64 { return b[p*ldb+j] }, beta, c, ldc)
		},
		nt: func(m, n, k int, alpha float64, a []float64, lda int, b []float64, ldb int, beta float64, c []float64, ldc int) {
			plainProduct(m, n, k, alpha, func(i, p int) float64 { return a[i*lda+p] }, func(p, j int) float64 { return b[j*ldb+p] }, beta, c, ldc)
		},
		tn: func(m, n, k int, alpha float64, a []float64, lda int, b []float64, ldb int, beta float64, c []float64, ldc int) {
			plainProduct(m, n, k, alpha, func(i, p int) float64 { return a[p*lda+i] }, func(p, j int) float64 { return b[p*ldb+j] }, beta, c, ldc)
		},
	}
)

func plainProduct(m, n, k int, alpha float64, a, b func(i, j int) float64, beta float64, c []float64, ldc int) {
	for i := range m {
		for j := range n {
			sum := 0.0
			for p := range k {
				sum += a(i, p) * b(p, j)
			}
			at := &c[i*ldc+j]
			if *at *= beta; beta == 0 {
				*at = 0
			}
			*at += alpha * sum
		}
	}
}

// deltaRows runs deltaBlock rows through a key head and the value heads that it serves by products of matrices, in the form of
// Yang et al. 2024 (arXiv:2412.06464, §3.3; arXiv:2406.06484, §3.2). Let d(t) be the decay of the state up to row t, S the
// state before the rows, and w(t) the correction that row t writes, so that after it the state is d(t)·S + Σ_{j≤t} d(t)/d(j) · k(j) w(j)ᵀ.
// Then w(t) = β(t) · (v(t) − d(t)·Sᵀk(t) − Σ_{j<t} d(t)/d(j) · (k(j)·k(t)) · w(j)), a triangular system, and what row t reads is
// d(t)·Sᵀq(t) + Σ_{j≤t} d(t)/d(j) · (k(j)·q(t)) · w(j).
type deltaRows[T kernels.Float] struct {
	*deltaHeads[T]
	g    int
	taps []T // [kernel, channels]

	seen, x, part, ones []T // inputs of the convolution [kernel − 1 + rows, channels], what it gives [rows, channels]
	q, k                []T // [rows, keyDim]
	kk, qk, ratio, low  []T // [rows, rows]: products of keys with keys and queries with keys, d(t)/d(j), the system
	w                   []T // [rows, valueDim]
	decays              []float64
}

func newDeltaRows[T kernels.Float](h *deltaHeads[T], g int, taps []T) *deltaRows[T] {
	const n = deltaBlock
	r := &deltaRows[T]{deltaHeads: h, g: g, taps: taps, decays: make([]float64, n), part: make([]T, h.channels()), ones: make([]T, n*h.channels())}
	for to, size := range map[*[]T]int{
		&r.seen: (h.Kernel - 1 + n) * h.channels(), &r.x: n * h.channels(), &r.q: n * h.KeyDim, &r.k: n * h.KeyDim,
		&r.kk: n * n, &r.qk: n * n, &r.ratio: n * n, &r.low: n * n, &r.w: n * h.ValueDim,
	} {
		*to = make([]T, size)
	}
	for i := range r.ones {
		r.ones[i] = 1
	}
	return r
}

// runRows runs rows from row on and moves their state on: conv [kernel − 1, channels] and states [group, keyDim, valueDim]. It
// writes what they read to out, whose rows are width apart.
func (r *deltaRows[T]) runRows(of func(p deltaPart, row, n int) []T, row int, conv, states, out []T, width int) {
	const n = deltaBlock
	dk, dv, group, channels := r.KeyDim, r.ValueDim, r.group(), r.channels()
	copy(r.seen, conv)
	for t := range n {
		now := r.seen[(r.Kernel-1+t)*channels:][:channels]
		copy(now, of(r.query, row+t, dk))
		copy(now[dk:], of(r.key, row+t, dk))
		copy(now[2*dk:], of(r.value, row+t, group*dv))
	}
	copy(conv, r.seen[n*channels:])
	for t := range n {
		x := r.x[t*channels:][:channels]
		r.mul(x, r.seen[t*channels:][:channels], r.taps[:channels])
		for j := 1; j < r.Kernel; j++ {
			r.mul(r.part, r.seen[(t+j)*channels:][:channels], r.taps[j*channels:][:channels])
			r.add(x, x, r.part)
		}
	}
	r.silu(r.x, r.x, r.ones)
	for t := range n {
		q, k := r.q[t*dk:][:dk], r.k[t*dk:][:dk]
		copy(q, r.x[t*channels:])
		copy(k, r.x[t*channels+dk:])
		r.scale(T(1/math.Sqrt((float64(r.dot(q, q))+deltaEps)*float64(dk))), q)
		r.scale(T(1/math.Sqrt(float64(r.dot(k, k))+deltaEps)), k)
	}
	r.nt(n, n, dk, 1, r.k, dk, r.k, dk, 0, r.kk, n)
	r.nt(n, n, dk, 1, r.q, dk, r.k, dk, 0, r.qk, n)
	for i := range group {
		r.valueHead(of, row, i, states[i*dk*dv:][:dk*dv], out[i*dv:], width)
	}
}

// valueHead is run of value head i.
func (r *deltaRows[T]) valueHead(of func(p deltaPart, row, n int) []T, row, i int, s, out []T, width int) {
	const n = deltaBlock
	dk, dv, group, channels := r.KeyDim, r.ValueDim, r.group(), r.channels()
	head, sum := r.g*group+i, 0.0
	for t := range n { // logarithms of d
		sum -= math.Exp(float64(r.decay[head])) * softplus(float64(of(r.rate, row+t, group)[i]+r.bias[head]))
		r.decays[t] = sum
	}
	for t := range n {
		for j := range n { // above the diagonal nothing reads it
			r.ratio[t*n+j] = T(min(0, r.decays[t]-r.decays[j]))
		}
	}
	r.exp(r.ratio, r.ratio)
	r.nn(n, dv, dk, 1, r.k, dk, s, dv, 0, r.w, dv)
	r.nn(n, dv, dk, 1, r.q, dk, s, dv, 0, out, width)
	for t := range n {
		w, d, beta := r.w[t*dv:][:dv], T(math.Exp(r.decays[t])), T(kernels.Logistic(float64(of(r.beta, row+t, group)[i])))
		r.scale(-d*beta, w)
		r.axpy(beta, r.x[t*channels+2*dk+i*dv:][:dv], w)
		r.scale(d, out[t*width:][:dv])
		low := r.low[t*n:][:n]
		r.mul(low, r.ratio[t*n:][:n], r.kk[t*n:][:n])
		r.scale(beta, low)
	}
	for from := 0; from < n; from += deltaSolved {
		if from > 0 {
			r.nn(deltaSolved, dv, from, -1, r.low[from*n:], n, r.w, dv, 1, r.w[from*dv:], dv)
		}
		for t := from + 1; t < from+deltaSolved; t++ {
			for j := from; j < t; j++ {
				r.axpy(-r.low[t*n+j], r.w[j*dv:][:dv], r.w[t*dv:][:dv])
			}
		}
	}
	r.mul(r.low, r.ratio, r.qk) // what rows read
	for t := range n {
		clear(r.low[t*n+t+1 : (t+1)*n])
	}
	r.nn(n, dv, n, 1, r.low, n, r.w, dv, 1, out, width)
	for t := range n {
		r.scale(r.ratio[(n-1)*n+t], r.w[t*dv:][:dv])
	}
	r.scale(T(math.Exp(r.decays[n-1])), s)
	r.tn(dk, dv, n, 1, r.k, dk, r.w, dv, 1, s, dv)
	for t := range n {
		o := out[t*width:][:dv]
		r.scale(T(1/math.Sqrt(float64(r.dot(o, o))/float64(dv)+float64(r.eps))), o)
		r.mul(o, o, r.norm)
		r.silu(o, of(r.gate, row+t, group*dv)[i*dv:][:dv], o)
	}
}
