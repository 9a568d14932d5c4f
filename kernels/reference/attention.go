package reference

import (
	"math"

	"glimpse/kernels"
	"glimpse/kernels/internal/host"
)

// logits fills row [visible (+ own)] with the logits of query (r, h),
// −Inf before the window, and returns how many entries of Past it holds.
func (b *reference[T]) logits(row []T, a *kernels.Attend, r, h int) (_, all int) {
	g, dim := h/a.Group(), a.HeadDim()
	q := host.Of[T](a.Q)[(r*a.Heads()+h)*dim:][:dim]
	from, past := a.Visible(g, r)
	K := host.Of[T](a.Past[g].K)
	dot := func(k []T) T {
		var s T
		for i := range q {
			s += q[i] * k[i]
		}
		if s *= T(a.Scale); a.SoftCap > 0 {
			s = T(a.SoftCap * math.Tanh(float64(s)/a.SoftCap))
		}
		return s
	}
	for j := range past {
		if row[j] = T(math.Inf(-1)); j >= from {
			row[j] = dot(K[j*dim:][:dim])
			if j < a.Past[g].Biased() {
				row[j] += host.Of[T](a.Past[g].Bias)[j]
			}
		}
	}
	from, own := a.VisibleOwn(r)
	for j := range own {
		if row[past+j] = T(math.Inf(-1)); j >= from {
			row[past+j] = dot(host.Of[T](a.K)[(j*a.KVHeads()+g)*dim:][:dim])
		}
	}
	return past, past + own
}

// valueVector is the value vector of column j of a row whose first past columns are
// in Past.
func (b *reference[T]) valueVector(a *kernels.Attend, g, j, past int) []T {
	dim := a.HeadDim()
	if j < past {
		return host.Of[T](a.Past[g].V)[j*dim:][:dim]
	}
	return host.Of[T](a.V)[((j-past)*a.KVHeads()+g)*dim:][:dim]
}

func (b *reference[T]) Attention(out, lse *kernels.Tensor, a *kernels.Attend) {
	kernels.CheckAttention("Attention", out, lse, a)
	a = host.Widened(a, b.Compute(), out != nil)
	dim, row := a.HeadDim(), make([]T, a.MostEntries()+a.Rows())
	for h := range a.Heads() {
		for r := range a.Rows() {
			past, all := b.logits(row, a, r, h)
			z := host.LogSumExp(row[:all])
			if a.Sinks != nil {
				z = host.LogSumExp([]float64{z, float64(host.Of[T](a.Sinks)[h])})
			}
			if lse != nil {
				host.Of[T](lse)[h*a.Rows()+r] = T(z)
			}
			if out == nil {
				continue
			}
			o := host.Of[T](out)[(r*a.Heads()+h)*dim:][:dim]
			clear(o)
			for j := range all {
				p := T(math.Exp(float64(row[j]) - z))
				for i, v := range b.valueVector(a, h/a.Group(), j, past) {
					o[i] += p * v
				}
			}
		}
	}
}

func (b *reference[T]) ObservedScores(logScore, lse *kernels.Tensor, a *kernels.Attend) {
	kernels.CheckObservedScores("ObservedScores", logScore, lse, a)
	a = host.Widened(a, b.Compute(), false)
	row, width := make([]T, a.MostEntries()+a.Rows()), logScore.Width()
	L, S := host.Of[T](lse), host.Of[T](logScore)
	for h := range a.Heads() {
		n := a.Past[h/a.Group()].Entries()
		columns := make([][]T, n) // the log-probabilities of each column
		for r := range a.Rows() {
			past, _ := b.logits(row, a, r, h)
			for j := range past {
				columns[j] = append(columns[j], row[j]-L[h*a.Rows()+r])
			}
		}
		for j := range n {
			S[h*width+j] = T(host.LogSumExp(columns[j]) - math.Log(float64(a.Rows())))
		}
	}
}

func (b *reference[T]) ObservedPeaks(logScore, lse *kernels.Tensor, a *kernels.Attend, _ kernels.Allocator) {
	kernels.CheckObservedScores("ObservedPeaks", logScore, lse, a)
	a = host.Widened(a, b.Compute(), false)
	row, width := make([]T, a.MostEntries()+a.Rows()), logScore.Width()
	L, S := host.Of[T](lse), host.Of[T](logScore)
	for i := range S {
		S[i] = T(math.Inf(-1))
	}
	for h := range a.Heads() {
		for r := range a.Rows() {
			past, _ := b.logits(row, a, r, h)
			for j, x := range row[:past] {
				S[h*width+j] = max(S[h*width+j], x-L[h*a.Rows()+r])
			}
		}
	}
}

func (b *reference[T]) AttentionGrad(dq, dk, dv *kernels.Tensor, a *kernels.Attend, out, lse, logScore, dOut, dLogScore *kernels.Tensor) {
	kernels.CheckAttentionGrad(dq, dk, dv, a, out, lse, logScore, dOut, dLogScore)
	a = host.Widened(a, b.Compute(), dOut != nil)
	rows, heads, kvHeads, dim := a.Rows(), a.Heads(), a.KVHeads(), a.HeadDim()
	DQ, DK := host.Of[T](dq), host.Of[T](dk)
	clear(DQ)
	clear(DK)
	if dv != nil {
		clear(host.Of[T](dv))
	}
	row, dp := make([]T, a.MostEntries()+a.Rows()), make([]T, a.MostEntries()+a.Rows())
	for h := range heads {
		g := h / a.Group()
		for r := range rows {
			past, all := b.logits(row, a, r, h)
			z := float64(host.Of[T](lse)[h*rows+r])
			// dLoss/dlogit_j = p_j (dp_j − Σ p dp) + dL'_j − p_j Σ dL', where
			// L' = logit − lse enters the scores.
			var dot, scoreSum T
			for j := range all {
				p := T(math.Exp(float64(row[j]) - z))
				dp[j] = 0
				if dOut != nil {
					do := host.Of[T](dOut)[(r*heads+h)*dim:][:dim]
					for i, v := range b.valueVector(a, g, j, past) {
						dp[j] += do[i] * v
					}
					if j >= past {
						d := host.Of[T](dv)[((j-past)*kvHeads+g)*dim:][:dim]
						for i := range d {
							d[i] += p * do[i]
						}
					}
				}
				dot += p * dp[j]
			}
			score := make([]T, all)
			if dLogScore != nil {
				width := logScore.Width()
				for j := range past {
					if math.IsInf(float64(row[j]), -1) { // not seen, perhaps by no row
						continue
					}
					share := math.Exp(float64(row[j]) - z - float64(host.Of[T](logScore)[h*width+j]))
					score[j] = host.Of[T](dLogScore)[h*width+j] * T(share) / T(rows)
					scoreSum += score[j]
				}
			}
			q := host.Of[T](a.Q)[(r*heads+h)*dim:][:dim]
			for j := range all {
				p := T(math.Exp(float64(row[j]) - z))
				d := (p*(dp[j]-dot) + score[j] - p*scoreSum) * T(a.Scale)
				if a.SoftCap > 0 && !math.IsInf(float64(row[j]), -1) {
					d *= 1 - row[j]*row[j]/T(a.SoftCap*a.SoftCap)
				}
				k := []T(nil)
				if j < past {
					k = host.Of[T](a.Past[g].K)[j*dim:][:dim]
				} else {
					at := ((j-past)*kvHeads + g) * dim
					k = host.Of[T](a.K)[at:][:dim]
					for i := range q {
						DK[at+i] += d * q[i]
					}
				}
				for i := range q {
					DQ[(r*heads+h)*dim+i] += d * k[i]
				}
			}
		}
	}
}

func (b *reference[T]) ScoreKL(loss, dLogScore, logScore, logTarget *kernels.Tensor, weight float64) {
	kernels.CheckLoss("ScoreKL", dLogScore, logScore, logTarget)
	heads, n := logTarget.Dim0(), logTarget.Width()
	S, D, targets := host.Of[T](logScore), host.Of[T](dLogScore), host.Of[T](logTarget)
	for h := range heads {
		s, d, t := S[h*n:][:n], D[h*n:][:n], targets[h*n:][:n]
		sum := host.LogSumExp(t)
		if math.IsInf(sum, -1) {
			clear(d)
			continue
		}
		z, kl := host.LogSumExp(s), 0.0
		for j := range n {
			logQ, logS := float64(t[j])-sum, float64(s[j])-z
			q := math.Exp(logQ)
			if q > 0 {
				kl += q * (logQ - logS)
			}
			d[j] = T(weight * (math.Exp(logS) - q))
		}
		loss.F64()[0] += weight * kl
	}
}

func (b *reference[T]) ScoreMSE(loss, dLogScore, logScore, logTarget *kernels.Tensor, weight float64) {
	kernels.CheckLoss("ScoreMSE", dLogScore, logScore, logTarget)
	S, D, targets := host.Of[T](logScore), host.Of[T](dLogScore), host.Of[T](logTarget)
	sum := 0.0
	for i, t := range targets {
		s := math.Exp(float64(S[i]))
		e := s - math.Exp(float64(t))
		sum += e * e
		D[i] = T(2 * weight * e * s)
	}
	loss.F64()[0] += weight * sum
}
