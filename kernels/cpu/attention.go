package cpu

import (
	"math"

	"glimpse/internal/simd"
	"glimpse/kernels"

	"glimpse/internal/parallel"
)

// Tile sizes of attention: query vectors of one KV head that are worked on
// together, and cache entries per tile. A tile of logits (64·512 floats, 128 KB)
// stays in the second-level cache together with its keys.
const (
	tileQueries = 64
	tileEntries = kernels.WindowBlock
	maxParts    = 16 // of the entries that few rows see, for a task each
)

// stack copies the vectors of rows [from, to) of x [rows, heads, dim] that read
// KV head g, row by row, scaled.
func stack(dst []float32, x []float32, a *kernels.Attend, g, from, to int, scale float32) {
	group, dim, heads := a.Group(), a.HeadDim(), a.Heads()
	w := group * dim
	for r := from; r < to; r++ {
		d := dst[(r-from)*w:][:w]
		copy(d, x[(r*heads+g*group)*dim:][:w])
		if scale != 1 {
			simd.Scale(scale, d)
		}
	}
}

// unstack is the inverse of stack.
func unstack(x []float32, src []float32, a *kernels.Attend, g, from, to int) {
	group, dim, heads := a.Group(), a.HeadDim(), a.Heads()
	w := group * dim
	for r := from; r < to; r++ {
		copy(x[(r*heads+g*group)*dim:][:w], src[(r-from)*w:][:w])
	}
}

// softmaxState is the online softmax of stacked query vectors.
type softmaxState struct {
	cap      float64   // of the logits; 0 for none
	top, sum []float32 // running maximum and sum per query
	acc      []float32 // [queries, dim]; nil where no output is asked for
	dim      int
	started  bool
}

// newSoftmaxState is one of so many queries that has seen nothing, in memory of dim + 2 numbers for each.
func newSoftmaxState(a *kernels.Attend, queries int, values bool, memory []float32) (o softmaxState) {
	o = softmaxState{cap: a.SoftCap, dim: a.HeadDim(), top: memory[:queries], sum: memory[queries:][:queries]}
	if memory = memory[2*queries:]; values {
		o.acc = memory[:queries*o.dim]
	}
	fillBlock(o.top, float32(math.Inf(-1)))
	clear(o.sum)
	return o
}

// mergeState takes in what another one has seen.
func (o *softmaxState) mergeState(other *softmaxState) {
	if !other.started {
		return
	}
	if !o.started {
		copy(o.top, other.top)
		copy(o.sum, other.sum)
		copy(o.acc, other.acc)
		o.started = true
		return
	}
	for i, t := range other.top {
		if other.sum[i] == 0 { // it has seen nothing
			continue
		}
		top := max(o.top[i], t)
		own, others := float32(math.Exp(float64(o.top[i]-top))), float32(math.Exp(float64(t-top)))
		o.top[i], o.sum[i] = top, o.sum[i]*own+other.sum[i]*others
		if o.acc != nil {
			simd.Scale(own, o.acc[i*o.dim:][:o.dim])
			simd.Axpy(others, other.acc[i*o.dim:][:o.dim], o.acc[i*o.dim:][:o.dim])
		}
	}
}

// tile takes in a tile of logits s [queries, width], where query i sees what
// visible(i) gives, the biases of its first entries, and the values of all, in v from an element on (row stride ldv).
func (o *softmaxState) tile(s []float32, width int, visible func(i int) (from, to int), biases []float32, v *kernels.Tensor, at, ldv int) {
	for i := range o.top {
		row := s[i*width:][:width]
		from, to := visible(i)
		clear(row[:from])
		clear(row[to:])
		if from == to {
			continue
		}
		softCap(row[from:to], o.cap)
		addBiases(row[from:to], biases, from)
		top := max(o.top[i], simd.Max(row[from:to]))
		sum := simd.ExpWeights(row[from:to], row[from:to], top)
		if o.started {
			decay := float32(1)
			if top != o.top[i] {
				decay = float32(math.Exp(float64(o.top[i] - top)))
			}
			if decay != 1 && o.acc != nil {
				simd.Scale(decay, o.acc[i*o.dim:][:o.dim])
			}
			sum += o.sum[i] * decay
		}
		o.top[i], o.sum[i] = top, sum
	}
	if o.acc != nil {
		beta := float32(1)
		if !o.started {
			beta = 0
		}
		gemmNN(len(o.top), o.dim, width, 1, s, width, v, at, ldv, simd.Split, beta, o.acc, o.dim)
	}
	o.started = true
}

// sink takes in the sink of query i: a logit without a value.
func (o *softmaxState) sink(i int, logit float32) {
	top := max(o.top[i], logit)
	decay := float32(math.Exp(float64(o.top[i] - top)))
	if decay != 1 && o.acc != nil {
		simd.Scale(decay, o.acc[i*o.dim:][:o.dim])
	}
	o.top[i], o.sum[i] = top, o.sum[i]*decay+float32(math.Exp(float64(logit-top)))
}

// softCap bounds logits; 0 leaves them.
func softCap(x []float32, cap float64) {
	if cap > 0 {
		for i, v := range x {
			x[i] = float32(cap * math.Tanh(float64(v)/cap))
		}
	}
}

// capSlopes writes the derivatives of softCap where it gives the logits x + shift.
func capSlopes(dst, x []float32, shift float32, cap float64) {
	for i, v := range x {
		c := float64(v+shift) / cap
		dst[i] = float32(1 - c*c)
	}
}

func (b *cpu) Attention(out, lse *kernels.Tensor, a *kernels.Attend) {
	kernels.CheckAttention("Attention", out, lse, a)
	group, dim, rows, kvHeads := a.Group(), a.HeadDim(), a.Rows(), a.KVHeads()
	blockRows := max(1, tileQueries/group)
	blocks := (rows + blockRows - 1) / blockRows
	// Few rows are few tasks. Then a task's part of the entries is not all of them.
	part, parts := a.MostEntries(), 1
	if tiles := (part + tileEntries - 1) / tileEntries; blocks == 1 && tiles > 1 {
		part = (tiles + maxParts - 1) / maxParts * tileEntries
		parts = (tiles*tileEntries + part - 1) / part
	}
	work := (part + rows) * dim * min(rows, blockRows) * group
	// finish writes what the softmax of rows from … to of KV head g makes of them.
	finish := func(state *softmaxState, g, from, to int) {
		for i := range state.top {
			if a.Sinks != nil {
				state.sink(i, a.Sinks.F32()[g*group+i%group])
			}
			if out != nil {
				simd.Scale(1/state.sum[i], state.acc[i*dim:][:dim])
			}
			if lse != nil {
				h, r := g*group+i%group, from+i/group
				lse.F32()[h*rows+r] = state.top[i] + float32(math.Log(float64(state.sum[i])))
			}
		}
		if out != nil {
			unstack(out.F32(), state.acc, a, g, from, to)
		}
	}
	var states []softmaxState // of several parts
	size := 0                 // the numbers of one
	if parts > 1 {
		states, size = make([]softmaxState, kvHeads*parts), rows*group*(dim+2)
	}
	with(len(states)*size, func(kept *buffer) {
		memory := kept.takeFloats(len(states) * size)
		parallel.Tasks(kvHeads*blocks*parts, work, func(task int) {
			// The last rows see the most entries: starting with them evens out the end.
			head, n := task/parts, task%parts
			g, from := head%kvHeads, (blocks-1-head/kvHeads)*blockRows
			to := min(rows, from+blockRows)
			queries := (to - from) * group
			_, entries := a.Visible(g, to-1)
			first, _ := a.Visible(g, from)
			first, end := max(first, n*part), min(entries, (n+1)*part)
			own := a.K != nil && n == parts-1
			tile := min(entries, tileEntries)
			if own {
				tile = max(tile, rows)
			}
			with(queries*(2*dim+tile+2), func(s *buffer) {
				q, logits := s.takeFloats(queries*dim), s.takeFloats(queries*tile)
				var state softmaxState
				if parts > 1 {
					state = newSoftmaxState(a, queries, out != nil, memory[(g*parts+n)*size:])
				} else {
					state = newSoftmaxState(a, queries, out != nil, s.takeFloats(queries*(dim+2)))
				}
				stack(q, a.Q.F32(), a, g, from, to, float32(a.Scale))
				for c := first / tileEntries * tileEntries; c < end; c += tileEntries {
					n := min(tileEntries, entries-c)
					gemmNT(queries, n, dim, 1, q, dim, a.Past[g].K, c*dim, dim, simd.Split, 0, logits, n)
					state.tile(logits, n, func(i int) (int, int) {
						first, last := a.Visible(g, from+i/group)
						return clampRange(first-c, last-c, n)
					}, biasesOf(a.Past[g], c), a.Past[g].V, c*dim, dim)
				}
				if own {
					n := to // own pairs that any of the rows sees
					gemmNT(queries, n, dim, 1, q, dim, a.K, g*dim, kvHeads*dim, simd.Split, 0, logits, n)
					state.tile(logits, n, func(i int) (int, int) { return a.VisibleOwn(from + i/group) }, nil, a.V, g*dim, kvHeads*dim)
				}
				if parts == 1 {
					finish(&state, g, from, to)
				} else {
					states[g*parts+n] = state
				}
			})
		})
		if parts > 1 {
			parallel.Tasks(kvHeads, parts*rows*group*dim, func(g int) {
				state := &states[g*parts]
				for n := 1; n < parts; n++ {
					state.mergeState(&states[g*parts+n])
				}
				finish(state, g, 0, rows)
			})
		}
	})
}

// clampRange cuts the range [from, to) to [0, n); an empty range stays empty.
func clampRange(from, to, n int) (int, int) {
	from, to = max(0, min(n, from)), max(0, min(n, to))
	return min(from, to), to
}

func (b *cpu) ObservedScores(logScore, lse *kernels.Tensor, a *kernels.Attend) {
	kernels.CheckObservedScores("ObservedScores", logScore, lse, a)
	observeColumns(logScore, lse, a, false)
}

func (b *cpu) ObservedPeaks(logScore, lse *kernels.Tensor, a *kernels.Attend, _ kernels.Allocator) {
	kernels.CheckObservedScores("ObservedPeaks", logScore, lse, a)
	fillBlock(logScore.F32(), float32(math.Inf(-1)))
	observeColumns(logScore, lse, a, true)
}

// observeColumns reduces the probabilities of the rows on every entry to the logarithm of their mean, or of the largest.
func observeColumns(logScore, lse *kernels.Tensor, a *kernels.Attend, peaks bool) {
	group, dim, rows, heads := a.Group(), a.HeadDim(), a.Rows(), a.Heads()
	const block = 256 // entries per task
	width, blocks := logScore.Width(), (a.MostEntries()+block-1)/block
	logRows := float32(math.Log(float64(rows)))
	parallel.Tasks(heads*blocks, rows*block*(dim+8), func(task int) {
		h, c := task%heads, task/heads*block
		g := h / group
		n := min(block, a.Past[g].Entries()-c)
		if n <= 0 {
			return
		}
		biases := biasesOf(a.Past[g], c)
		with(tileQueries*(dim+n)+3*n, func(s *buffer) {
			q, logits := s.takeFloats(tileQueries*dim), s.takeFloats(tileQueries*n)
			top, sum, tileTop := s.takeFloats(n), s.takeFloats(n), s.takeFloats(n)
			fillBlock(top, float32(math.Inf(-1)))
			clear(sum)
			for from := 0; from < rows; from += tileQueries {
				to := min(rows, from+tileQueries)
				first, _ := a.Visible(g, from)
				if _, last := a.Visible(g, to-1); last <= c || first >= c+n {
					continue
				}
				seen := func(r int) (int, int) {
					first, last := a.Visible(g, r)
					return clampRange(first-c, last-c, n)
				}
				for r := from; r < to; r++ {
					d := q[(r-from)*dim:][:dim]
					copy(d, a.Q.F32()[(r*heads+h)*dim:][:dim])
					simd.Scale(float32(a.Scale), d)
				}
				gemmNT(to-from, n, dim, 1, q, dim, a.Past[g].K, c*dim, dim, simd.Split, 0, logits, n)
				// Log-sum-exp down the columns, continued from the tiles before.
				copy(tileTop, top)
				for r := from; r < to; r++ {
					first, last := seen(r)
					row := logits[(r-from)*n:][first:last]
					softCap(row, a.SoftCap)
					addBiases(row, biases, first)
					simd.AddScalar(-lse.F32()[h*rows+r], row)
					simd.MaxInto(tileTop[first:last], row)
				}
				if peaks {
					copy(top, tileTop)
					continue
				}
				for j, t := range tileTop {
					if t != top[j] && sum[j] != 0 {
						sum[j] *= float32(math.Exp(float64(top[j] - t)))
					}
				}
				copy(top, tileTop)
				for r := from; r < to; r++ {
					first, last := seen(r)
					simd.AddExpSub(sum[first:last], logits[(r-from)*n:][first:last], top[first:last])
				}
			}
			dst := logScore.F32()[h*width+c:][:n]
			if peaks {
				copy(dst, top)
				return
			}
			simd.Log(dst, sum)
			simd.Add(dst, dst, top)
			simd.AddScalar(-logRows, dst)
		})
	})
}

// fillBlock sets a block of elements, and copies it to the rest.
func fillBlock[T any](x []T, v T) {
	n := min(len(x), 1024)
	for i := range x[:n] {
		x[i] = v
	}
	for n < len(x) {
		n += copy(x[n:], x[:n])
	}
}

func (b *cpu) AttentionGrad(dq, dk, dv *kernels.Tensor, a *kernels.Attend, out, lse, logScore, dOut, dLogScore *kernels.Tensor) {
	kernels.CheckAttentionGrad(dq, dk, dv, a, out, lse, logScore, dOut, dLogScore)
	group, dim, rows, heads, kvHeads := a.Group(), a.HeadDim(), a.Rows(), a.Heads(), a.KVHeads()
	queries := rows * group
	var scale []float32 // dLogScore / rows
	if dLogScore != nil {
		scale = make([]float32, dLogScore.Len())
		copy(scale, dLogScore.F32())
		simd.Scale(1/float32(rows), scale)
	}
	if dv != nil && dOut == nil {
		clear(dv.F32())
	}
	parallel.Tasks(kvHeads, 6*queries*(a.Past[0].Entries()+rows)*dim, func(g int) {
		n := a.Past[g].Entries()
		K, KOwn := a.Past[g].K, a.K.F32()[g*dim:]
		with(queries*(3*dim+2*n+2*rows)+3*n+rows*dim+rows, func(s *buffer) {
			q, dS, dSOwn := s.takeFloats(queries*dim), s.takeFloats(queries*n), s.takeFloats(queries*rows)
			dQ, dO := s.takeFloats(queries*dim), s.takeFloats(queries*dim)
			dP, dPOwn := s.takeFloats(queries*n), s.takeFloats(queries*rows)
			shares, shift, own := s.takeFloats(n), s.takeFloats(n), s.takeFloats(rows*dim)
			var slopes, slopesOwn []float32 // of the soft cap
			if a.SoftCap > 0 {
				slopes, slopesOwn = s.takeFloats(n), s.takeFloats(rows)
			}
			stack(q, a.Q.F32(), a, g, 0, rows, float32(a.Scale))
			kept := keptLogits(a.Kept, a, g)
			if kept == nil {
				gemmNT(queries, n, dim, 1, q, dim, K, 0, dim, simd.Exact, 0, dS, n)
			}
			simd.GemmNT(queries, rows, dim, 1, q, dim, KOwn, kvHeads*dim, 0, dSOwn, rows)
			if dOut != nil {
				stack(dO, dOut.F32(), a, g, 0, rows, 1)
				gemmNT(queries, n, dim, 1, dO, dim, a.Past[g].V, 0, dim, simd.Exact, 0, dP, n)
				simd.GemmNT(queries, rows, dim, 1, dO, dim, a.V.F32()[g*dim:], kvHeads*dim, 0, dPOwn, rows)
			}
			for i := range queries {
				r, h := i/group, g*group+i%group
				p, pOwn := dS[i*n:][:n], dSOwn[i*rows:][:rows]
				from, _ := a.Visible(g, r) // the own pairs are given: rows see all that follows
				fromOwn, toOwn := a.VisibleOwn(r)
				z := lse.F32()[h*rows+r]
				logits, less := p, z // logits − less is the logarithm of a probability
				if kept != nil {
					logits, less = kept[i*n:][:n], 0
				}
				if a.SoftCap > 0 {
					if kept == nil {
						softCap(p[from:], a.SoftCap)
					}
					softCap(pOwn[fromOwn:toOwn], a.SoftCap)
					capSlopes(slopes[from:], logits[from:], z-less, a.SoftCap)
					capSlopes(slopesOwn[fromOwn:toOwn], pOwn[fromOwn:toOwn], 0, a.SoftCap)
				}
				// The part through the scores: L' = logit − lse has the gradient
				// dLogScore · exp(L' − logScore) / rows.
				var total float32
				if dLogScore != nil {
					w := logScore.Width()
					copy(shift, logScore.F32()[h*w:][:n])
					simd.AddScalar(less, shift)
					clear(shares)
					simd.AddExpSub(shares[from:], logits[from:], shift[from:])
					simd.Mul(shares, shares, scale[h*w:][:n])
					total = simd.Sum(shares)
				}
				simd.ExpWeights(p[from:], logits[from:], less)
				clear(p[:from])
				simd.ExpWeights(pOwn[fromOwn:toOwn], pOwn[fromOwn:toOwn], z)
				clear(pOwn[:fromOwn])
				clear(pOwn[toOwn:])
				if dOut == nil {
					simd.Scale(-total, p)
					simd.Scale(-total, pOwn)
				} else {
					o := (r*heads + h) * dim
					total += simd.Dot(dOut.F32()[o:][:dim], out.F32()[o:][:dim])
					d, dOwn := dP[i*n:][:n], dPOwn[i*rows:][:rows]
					simd.AddScalar(-total, d)
					simd.Mul(p, p, d)
					// dSOwn must keep the probabilities until dv is done.
					simd.AddScalar(-total, dOwn)
					simd.Mul(dOwn, dOwn, pOwn)
				}
				if dLogScore != nil {
					simd.Add(p, p, shares)
				}
				if a.SoftCap > 0 {
					dOwn := pOwn
					if dOut != nil {
						dOwn = dPOwn[i*rows:][:rows]
					}
					simd.Mul(p[from:], p[from:], slopes[from:])
					simd.Mul(dOwn[fromOwn:toOwn], dOwn[fromOwn:toOwn], slopesOwn[fromOwn:toOwn])
				}
			}
			if dOut != nil {
				simd.GemmTN(rows, dim, queries, 1, dSOwn, rows, dO, dim, 0, own, dim)
				for r := range rows {
					copy(dv.F32()[(r*kvHeads+g)*dim:][:dim], own[r*dim:][:dim])
				}
				dSOwn = dPOwn
			}
			gemmNN(queries, dim, n, float32(a.Scale), dS, n, K, 0, dim, simd.Exact, 0, dQ, dim)
			simd.GemmNN(queries, dim, rows, float32(a.Scale), dSOwn, rows, KOwn, kvHeads*dim, 1, dQ, dim)
			unstack(dq.F32(), dQ, a, g, 0, rows)
			simd.GemmTN(rows, dim, queries, 1, dSOwn, rows, q, dim, 0, own, dim)
			for r := range rows {
				copy(dk.F32()[(r*kvHeads+g)*dim:][:dim], own[r*dim:][:dim])
			}
		})
	})
}

// negligible is a difference of probabilities whose gradient is set to zero: all
// columns of a long prompt together would not change the sixth digit of the sum,
// and their products with small probabilities would be subnormal numbers, on which
// arithmetic is a hundred times slower.
const negligible = 1e-12

func (b *cpu) ScoreKL(loss, dLogScore, logScore, logTarget *kernels.Tensor, weight float64) {
	kernels.CheckLoss("ScoreKL", dLogScore, logScore, logTarget)
	heads, n := logTarget.Dim0(), logTarget.Width()
	parts := make([]float64, heads)
	parallel.Tasks(heads, 32*n, func(h int) {
		s, d, t := logScore.F32()[h*n:][:n], dLogScore.F32()[h*n:][:n], logTarget.F32()[h*n:][:n]
		if math.IsInf(float64(simd.Max(t)), -1) {
			clear(d)
			return
		}
		with(n, func(scratch *buffer) {
			q := scratch.takeFloats(n)
			z, zTarget, kl := normalise(d, s), normalise(q, t), 0.0
			for j, v := range q {
				if v > 0 {
					kl += float64(v) * (float64(t[j]) - zTarget - float64(s[j]) + z)
				}
				g := float64(d[j]) - float64(v)
				if math.Abs(g) < negligible {
					g = 0
				}
				d[j] = float32(weight * g)
			}
			parts[h] = kl
		})
	})
	for _, kl := range parts {
		loss.F64()[0] += weight * kl
	}
}

// normalise writes exp(x) / Σ exp(x) to p and returns the logarithm of the sum. That is
// one of float64: it is subtracted from every logarithm of a loss.
func normalise(p, x []float32) (logSum float64) {
	top := simd.Max(x)
	simd.ExpWeights(p, x, top)
	sum := 0.0
	for _, v := range p {
		sum += float64(v)
	}
	simd.Scale(float32(1/sum), p)
	return float64(top) + math.Log(sum)
}

func (b *cpu) ScoreMSE(loss, dLogScore, logScore, logTarget *kernels.Tensor, weight float64) {
	kernels.CheckLoss("ScoreMSE", dLogScore, logScore, logTarget)
	S, D, T := logScore.F32(), dLogScore.F32(), logTarget.F32()
	simd.ExpSum(D, S, 0)
	sum := 0.0
	with(len(T), func(scratch *buffer) {
		targets := scratch.takeFloats(len(T))
		simd.ExpSum(targets, T, 0)
		for i, t := range targets {
			e := float64(D[i]) - float64(t)
			sum += e * e
			g := e * float64(D[i])
			if math.Abs(g) < 1e-4*negligible {
				g = 0
			}
			D[i] = float32(2 * weight * g)
		}
	})
	loss.F64()[0] += weight * sum
}
