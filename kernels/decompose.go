package kernels

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Decomposed has every operation that others can stand in for, correct on any backend, and
// what a backend is that computes on host memory. A backend embeds the Decomposed of itself,
// so that the operations which it has itself are used, and overrides what it does better.
type Decomposed struct{ on Backend }

// Decompose returns the operations that b's simple ones can stand in for.
func Decompose(b Backend) Decomposed { return Decomposed{b} }

// What a backend on host memory is.

func (d Decomposed) Device() string               { return d.on.Name() }
func (Decomposed) Model() string                  { return "" }
func (Decomposed) Traits() Traits                 { return Traits{} }
func (Decomposed) SameRows(rows int) int          { return rows }
func (Decomposed) OwnMemory() bool                { return false }
func (Decomposed) Place(t *Tensor) *Tensor        { return t }
func (Decomposed) Placed(d DType) DType           { return d }
func (Decomposed) ArenaLayout() ArenaLayout       { return ArenaLayout{Align: 64} } // whole cache lines
func (Decomposed) Free([]*Tensor)                 {}
func (Decomposed) KeptBytes(_, _, _, _ int) int64 { return 0 }
func (Decomposed) Wait()                          {}
func (Decomposed) Memory() MemoryUse              { return MemoryUse{} }
func (Decomposed) ResetPeak()                     {}
func (Decomposed) LimitMemory(int64) func()       { return func() {} }
func (Decomposed) RoundsToBF16(int, *Tensor) bool { return false }
func (Decomposed) DrawsInPlace() bool             { return false }
func (Decomposed) TakesBias() error               { return nil }
func (Decomposed) NewGraph() Graph                { return nil }

// Exact refuses.
func (d Decomposed) Exact() (Backend, error) {
	return nil, fmt.Errorf("device %s rounds for its products: got exact arithmetic, want device cpu for it", d.on.Device())
}

// Selector selects on the host.
func (d Decomposed) Selector() Selector { return d.on.HostSelector() }

// Alloc allocates on the host.
func (Decomposed) Alloc(t DType, shape ...int) *Tensor { return NewTensor(t, shape...) }

// Time is by the clock of the host.
func (d Decomposed) Time(f func() error) (time.Duration, error) {
	d.on.Wait()
	start := time.Now()
	err := f()
	d.on.Wait()
	return time.Since(start), err
}

// LinearGroup is one product after the other.
func (d Decomposed) LinearGroup(x *Tensor, layers ...LinearRows) {
	CheckLinearGroup("LinearGroup", x, layers...)
	for _, l := range layers {
		d.on.Linear(l.Y, x, l.Weight, l.Bias, 1, 0)
	}
}

// GatedLinear is two products and SiLUMul.
func (d Decomposed) GatedLinear(y, x *Tensor, gate, up LinearRows, temp Allocator) {
	CheckGatedLinear(y, x, gate, up)
	up.Y = temp.Alloc(d.on.Compute(), x.Dim0(), up.Weight.Dim0())
	gate.Y = temp.Alloc(d.on.Compute(), x.Dim0(), gate.Weight.Dim0())
	d.on.Linear(up.Y, x, up.Weight, up.Bias, 1, 0)
	d.on.Linear(gate.Y, x, gate.Weight, gate.Bias, 1, 0)
	d.on.SiLUMul(y, gate.Y, up.Y)
}

// TakesExperts is false: rows are grouped by expert.
func (d Decomposed) TakesExperts(rows int, e *FewExperts) bool { return false }

// FewExperts is row after row, and expert after expert.
func (d Decomposed) FewExperts(y, x, logits, gates *Tensor, e *FewExperts, rows int, scale float64, temp Allocator) {
	CheckFewExperts(y, x, logits, gates, e, rows)
	scores, correction, shares := logits.Float64s(), []float64(nil), []float64(nil)
	if e.Correction != nil {
		correction = e.Correction.Float64s()
	}
	if gates != nil {
		shares = gates.Float64s()
	}
	d.on.Fill(y, 0)
	n := e.Experts()
	for r := range rows {
		c := e.Choose(scores[r*n:][:n], correction)
		if e.Shared {
			w := 1.0
			if shares != nil {
				w = Logistic(shares[r])
			}
			c.Experts, c.Weights = append(c.Experts, n), append(c.Weights, w)
		}
		for i, at := range c.Experts {
			l := e.Each[at]
			width := l.Up.Weight.Dim0()
			gate, up, out := temp.Alloc(d.on.Compute(), 1, width), temp.Alloc(d.on.Compute(), 1, width), temp.Alloc(d.on.Compute(), 1, y.Width())
			d.on.Linear(gate, x.Rows(r, r+1), l.Gate.Weight, l.Gate.Bias, 1, 0)
			d.on.Linear(up, x.Rows(r, r+1), l.Up.Weight, l.Up.Bias, 1, 0)
			d.on.GateMul(e.Act, gate, gate, up)
			d.on.Linear(out, gate, l.Down.Weight, l.Down.Bias, scale, 0)
			d.on.AddRows(y.Rows(r, r+1), out, []int32{0}, c.Weights[i:i+1])
		}
	}
}

// AddLowRank is two products.
func (d Decomposed) AddLowRank(y, x, a, b *Tensor, scale float64, temp Allocator) {
	CheckAddLowRank(y, x, a, b)
	low := temp.Alloc(d.on.Compute(), x.Dim0(), a.Dim0())
	d.on.Linear(low, x, a, nil, 1, 0)
	d.on.Linear(y, low, b, nil, scale, 1)
}

// LowRank is three products.
func (d Decomposed) LowRank(y, low, x, w, bias, a, up *Tensor, scale float64) {
	CheckLowRank("LowRank", y, low, x, w, a, up)
	d.on.Linear(y, x, w, bias, 1, 0)
	d.on.Linear(low, x, a, nil, 1, 0)
	d.on.Linear(y, low, up, nil, scale, 1)
}

// LowRankGrad is five products.
func (d Decomposed) LowRankGrad(dx, dLow, da, dup, dy, x, low, w, a, up *Tensor, scale float64) {
	CheckLowRankGrad(dx, dLow, da, dup, dy, x, low, w, a, up)
	d.on.MatMul(dLow, dy, up, scale, 0)
	d.on.MatMul(dx, dy, w, 1, 0)
	d.on.MatMul(dx, dLow, a, 1, 1)
	d.on.MatMulTA(da, dLow, x, 1, 0)
	d.on.MatMulTA(dup, dy, low, scale, 0)
}

// CopyPairs is one head after the other.
func (d Decomposed) CopyPairs(dst []KV, k, v *Tensor) {
	CheckCopyPairs(dst, k, v)
	for h, kv := range dst {
		d.on.CopyHead(kv.K, k, h)
		d.on.CopyHead(kv.V, v, h)
	}
}

// RotateHeads is RMSNorm and RoPE, of queries and of keys.
func (d Decomposed) RotateHeads(q, k *Tensor, norms HeadNorms, pos []int32, table *RoPETable) {
	CheckHeads("RotateHeads", q, k, norms, pos, table)
	for _, t := range []struct{ x, w *Tensor }{{q, norms.Query}, {k, norms.Key}} {
		if t.w != nil {
			heads := t.x.Reshape(t.x.Dim0()*t.x.Shape[1], t.x.Shape[2])
			d.on.Norm(heads, heads, nil, Norm{Weight: t.w, Eps: norms.Eps})
		}
		d.on.RoPE(t.x, t.x, pos, table, false)
	}
}

// RoPETable computes on the host.
func (d Decomposed) RoPETable(freqs []float32, positions int, scale float64) *RoPETable {
	half := len(freqs)
	cosines, sines := NewTensor(d.on.Compute(), positions, half), NewTensor(d.on.Compute(), positions, half)
	for p := range positions {
		for i, f := range freqs {
			sin, cos := math.Sincos(float64(float32(p) * f))
			cosines.Set(p*half+i, cos*scale)
			sines.Set(p*half+i, sin*scale)
		}
	}
	return &RoPETable{Cos: d.on.Place(cosines), Sin: d.on.Place(sines)}
}

// ObserveAttention is Attention and ObservedScores.
func (d Decomposed) ObserveAttention(out, lse, logScore *Tensor, a *Attend) {
	d.on.Attention(out, lse, a)
	d.on.ObservedScores(logScore, lse, a)
}

// ObservedPeaks is one observation per row.
func (d Decomposed) ObservedPeaks(logScore, lse *Tensor, a *Attend, temp Allocator) {
	CheckObservedScores("ObservedPeaks", logScore, lse, a)
	heads, rows, selector := a.Heads(), a.Rows(), d.on.Selector()
	row, rowLSE := temp.Alloc(logScore.DType, logScore.Shape...), temp.Alloc(lse.DType, heads, 1)
	d.on.Fill(logScore, math.Inf(-1))
	for at := range rows {
		one := *a
		if one.Q = a.Q.Rows(at, at+1); a.Positions != nil {
			one.Positions = a.Positions[at : at+1]
		}
		if a.K == nil { // the rows' own pairs are the last of the past: this row does not see the later ones
			one.Past = make([]KV, len(a.Past))
			for h, kv := range a.Past {
				one.Past[h] = kv.First(kv.Entries() - (rows - 1 - at))
			}
		}
		if a.K != nil { // its own pair, which is not observed: a head of the past may be empty
			one.K = a.K.Rows(at, at+1)
		}
		one.V = nil
		d.on.CopyHead(rowLSE, lse.Reshape(heads, rows, 1), at)
		d.on.Fill(row, math.Inf(-1))
		d.on.ObservedScores(row, rowLSE, &one)
		selector.MaxScores(logScore, row)
	}
}

// AttentionSelected gathers the selected entries.
func (d Decomposed) AttentionSelected(out, lse *Tensor, a *Attend, s *Selection, temp Allocator) {
	const op = "AttentionSelected"
	CheckAttention(op, out, lse, a)
	CheckSelected(op, a, s)
	part := *a
	part.Past = GatherPairs(d.on, a.Past, s.Indices(), a.Window > 0, temp)
	d.on.Attention(out, lse, &part)
}

// GatherPairs copies the pairs with the given ascending indices of every head and their biases, with their positions if asked for.
func GatherPairs(b Backend, past []KV, ids [][]int32, positions bool, temp Allocator) []KV {
	out := make([]KV, len(past))
	for h, ids := range ids {
		from := past[h]
		dtype := from.K.DType
		if dtype.Grouped() { // which are read as they are: others in other groups
			dtype = b.Compute()
		}
		kv := KV{K: temp.Alloc(dtype, len(ids), from.K.Width()), V: temp.Alloc(dtype, len(ids), from.V.Width())}
		b.Gather(kv.K, from.K, ids)
		b.Gather(kv.V, from.V, ids)
		if positions {
			kv.Positions = make([]int32, len(ids))
			for i, j := range ids {
				if kv.Positions[i] = j; from.Positions != nil {
					kv.Positions[i] = from.Positions[j]
				}
			}
		}
		if n := from.BiasedAmong(ids); n > 0 {
			kv.Bias = temp.Alloc(b.Compute(), n)
			b.Gather(kv.Bias.Reshape(n, 1), from.Bias.Reshape(from.Biased(), 1), ids[:n])
		}
		out[h] = kv
	}
	return out
}

// MultiFill is one tensor after the other.
func (d Decomposed) MultiFill(ts []*Tensor, value float64) {
	for _, t := range ts {
		d.on.Fill(t, value)
	}
}

// AddRows is one row after the other.
func (d Decomposed) AddRows(y, x *Tensor, rows []int32, weights []float64) {
	CheckAddRows(y, x, rows, weights)
	for i, row := range rows {
		d.on.Axpy(y.Rows(int(row), int(row)+1), weights[i], x.Rows(i, i+1))
	}
}

// MultiAxpy is one tensor after the other.
func (d Decomposed) MultiAxpy(ys []*Tensor, alpha float64, xs []*Tensor) {
	CheckEach("MultiAxpy", ys, xs)
	for i, y := range ys {
		d.on.Axpy(y, alpha, xs[i])
	}
}

// MultiSumSquares is one tensor after the other.
func (d Decomposed) MultiSumSquares(sum float64, ts []*Tensor) float64 {
	for _, t := range ts {
		sum += d.on.SumSquares(t)
	}
	return sum
}

// MultiAdamW is one tensor after the other.
func (d Decomposed) MultiAdamW(ps, gs, ms, vs []*Tensor, step AdamWStep) {
	CheckEach("MultiAdamW", ps, gs, ms, vs)
	for i, p := range ps {
		d.on.AdamW(p, gs[i], ms[i], vs[i], step)
	}
}

// Draw samples on the host.
func (d Decomposed) Draw(logits *Tensor, draws []Draw) []int32 {
	CheckDraws(logits, draws)
	ids, host, vocab := make([]int32, len(draws)), logits.Float32s(), logits.Width()
	for i, draw := range draws {
		row := host[i*vocab:][:vocab]
		if ids[i] = -1; !slices.ContainsFunc(row, func(v float32) bool { return v-v != 0 }) {
			ids[i] = draw.Token(row)
		}
	}
	return ids
}
