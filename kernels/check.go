package kernels

import "fmt"

// The checks are what every backend does before it touches memory: shapes
// that do not fit panic, rather than compute something else.

// CheckLengths panics unless all tensors have as many elements as x; nil ones are
// passed over.
func CheckLengths(op string, x *Tensor, others ...*Tensor) {
	for _, t := range others {
		if t != nil && t.Len() != x.Len() {
			panic(fmt.Sprintf("kernels: %s of %v with %v", op, x.Shape, t.Shape))
		}
	}
}

// CheckCopy panics unless x can be copied into y as it is.
func CheckCopy(y, x *Tensor) {
	CheckLengths("Copy", y, x)
	if y.DType != x.DType {
		panic(fmt.Sprintf("kernels: Copy of a %s tensor, want %s", x.DType, y.DType))
	}
}

// CheckNorm panics unless n fits the rows of x and the others the whole of it.
func CheckNorm(op string, x *Tensor, n Norm, others ...*Tensor) {
	if n.Weight.Len() != x.Width() {
		panic(fmt.Sprintf("kernels: %s of %v with weight %v", op, x.Shape, n.Weight.Shape))
	}
	CheckLengths(op, n.Weight, n.Bias)
	CheckLengths(op, x, others...)
}

// CheckGather panics unless y has room for the rows and the table has them.
func CheckGather(y, table *Tensor, ids []int32) {
	if y.Len() != len(ids)*table.Width() {
		panic(fmt.Sprintf("kernels: Gather %d rows of %v into %v", len(ids), table.Shape, y.Shape))
	}
	checkRows("Gather", table, ids)
}

func checkRows(op string, of *Tensor, rows []int32) {
	for _, row := range rows {
		if row < 0 || int(row) >= of.Dim0() {
			panic(fmt.Sprintf("kernels: %s row %d of %v", op, row, of.Shape))
		}
	}
}

// CheckAddRows panics unless y has all rows, and x a row and weights a number for each.
func CheckAddRows(y, x *Tensor, rows []int32, weights []float64) {
	if y.Width() != x.Width() || len(rows) > x.Dim0() || len(rows) != len(weights) {
		panic(fmt.Sprintf("kernels: AddRows %d rows of %v with %d weights to %v", len(rows), x.Shape, len(weights), y.Shape))
	}
	checkRows("AddRows", y, rows)
}

// CheckCopyHead panics unless y has room for head h of x.
func CheckCopyHead(y, x *Tensor, h int) {
	if len(x.Shape) != 3 || h < 0 || h >= x.Shape[1] || y.Len() != x.Shape[0]*x.Shape[2] {
		panic(fmt.Sprintf("kernels: CopyHead %d of %v into %v", h, x.Shape, y.Shape))
	}
}

// checkAttend panics unless the parts of a fit each other: every row must see at
// least itself. values tells that V is read.
func checkAttend(op string, a *Attend, values bool) {
	bad := func(what string, t *Tensor) {
		panic(fmt.Sprintf("kernels: %s: queries %v of %d KV heads with %s %v", op, a.Q.Shape, a.KVHeads(), what, t.Shape))
	}
	if a.KVHeads() == 0 || a.Heads()%a.KVHeads() != 0 {
		panic(fmt.Sprintf("kernels: %s: %d query heads on %d KV heads", op, a.Heads(), a.KVHeads()))
	}
	for _, kv := range a.Past {
		if kv.K.Width() != a.HeadDim() || a.K == nil && kv.Entries() < a.Rows() {
			bad("past keys", kv.K)
		}
		if a.Window > 0 && kv.Positions != nil && len(kv.Positions) != kv.Entries() {
			panic(fmt.Sprintf("kernels: %s: %d positions of %d entries", op, len(kv.Positions), kv.Entries()))
		}
		if values && kv.V.Len() != kv.K.Len() {
			bad("past values", kv.V)
		}
		if kv.Biased() > kv.Entries() {
			bad("past biases", kv.Bias)
		}
	}
	if a.Window > 0 && len(a.Positions) != a.Rows() {
		panic(fmt.Sprintf("kernels: %s: %d positions of %d rows", op, len(a.Positions), a.Rows()))
	}
	if a.Sinks != nil && a.Sinks.Len() != a.Heads() {
		bad("sinks", a.Sinks)
	}
	own := a.Rows() * a.KVHeads() * a.HeadDim()
	if a.K != nil && a.K.Len() != own {
		bad("own keys", a.K)
	}
	if a.K != nil && values && a.V.Len() != own {
		bad("own values", a.V)
	}
}

// CheckAttention panics unless out and lse fit a; either may be nil.
func CheckAttention(op string, out, lse *Tensor, a *Attend) {
	checkAttend(op, a, out != nil)
	CheckLengths(op, a.Q, out)
	checkLSE(op, lse, a)
}

func checkLSE(op string, lse *Tensor, a *Attend) {
	if lse != nil && lse.Len() != a.Heads()*a.Rows() {
		panic(fmt.Sprintf("kernels: %s of queries %v with lse %v", op, a.Q.Shape, lse.Shape))
	}
}

// checkScores panics unless scores has a row per head and a column per entry.
func checkScores(op string, scores *Tensor, a *Attend) {
	entries := a.MostEntries()
	if scores.Dim0() != a.Heads() || scores.Width() < entries {
		panic(fmt.Sprintf("kernels: %s of %d heads on %d entries with scores %v", op, a.Heads(), entries, scores.Shape))
	}
}

// CheckObservedScores panics unless logScore and lse fit a, whose values are not read.
func CheckObservedScores(op string, logScore, lse *Tensor, a *Attend) {
	checkAttend(op, a, false)
	checkLSE(op, lse, a)
	checkScores(op, logScore, a)
}

// CheckAttentionGrad panics unless the gradients and what they are computed from fit a.
func CheckAttentionGrad(dq, dk, dv *Tensor, a *Attend, out, lse, logScore, dOut, dLogScore *Tensor) {
	const op = "AttentionGrad"
	checkAttend(op, a, dOut != nil)
	for _, kv := range a.Past {
		if kv.Biased() > 0 {
			panic(fmt.Sprintf("kernels: %s: %d biased entries, want none", op, kv.Biased()))
		}
	}
	CheckLengths(op, a.Q, dq, out, dOut)
	CheckLengths(op, a.K, dk, dv)
	checkLSE(op, lse, a)
	if dLogScore != nil {
		checkScores(op, logScore, a)
		CheckLengths(op, logScore, dLogScore)
	}
}

// CheckLoss panics unless scores, targets and gradient have the same elements.
func CheckLoss(op string, dLogScore, logScore, logTarget *Tensor) {
	CheckLengths(op, logTarget, dLogScore, logScore)
}

// CheckLowRank panics unless the operands of LowRank fit each other.
func CheckLowRank(op string, y, low, x, w, a, up *Tensor) {
	m, r := x.Dim0(), a.Dim0()
	if a.Width() != x.Width() || w.Width() != x.Width() || up.Dim0() != w.Dim0() || up.Width() != r || low.Len() != m*r || y.Len() != m*w.Dim0() {
		panic(fmt.Sprintf("kernels: %s of %v with weight %v, factors %v and %v by %v into %v", op, x.Shape, w.Shape, a.Shape, up.Shape, low.Shape, y.Shape))
	}
}

// CheckLowRankGrad panics unless every gradient is like what it is of.
func CheckLowRankGrad(dx, dLow, da, dup, dy, x, low, w, a, up *Tensor) {
	CheckLowRank("LowRankGrad", dy, low, x, w, a, up)
	CheckEach("LowRankGrad", []*Tensor{x, low, a, up}, []*Tensor{dx, dLow, da, dup})
}

// CheckEach panics unless the lists have as many tensors, of as many elements.
func CheckEach(op string, xs []*Tensor, others ...[]*Tensor) {
	for _, ts := range others {
		if len(ts) != len(xs) {
			panic(fmt.Sprintf("kernels: %s of %d tensors with %d", op, len(xs), len(ts)))
		}
		for i, t := range ts {
			CheckLengths(op, xs[i], t)
		}
	}
}

// CheckSelected panics unless s chooses from a's past for its one row. The indices of a
// selection on a device are right by their making.
func CheckSelected(op string, a *Attend, s *Selection) {
	if a.Rows() != 1 || a.K != nil || s.Heads() != a.KVHeads() {
		panic(fmt.Sprintf("kernels: %s: %d rows (own pairs: %v) with entries of %d of %d KV heads, want one row of the past", op, a.Rows(), a.K != nil, s.Heads(), a.KVHeads()))
	}
	for g, n := range s.Lens {
		first, entries := a.Visible(g, 0)
		if n == 0 || s.Spans[g] <= first || s.Spans[g] > entries {
			panic(fmt.Sprintf("kernels: %s: %d entries below %d of KV head %d, want some from %d to %d", op, n, s.Spans[g], g, first, entries))
		}
		if s.OnDevice() {
			continue
		}
		last := int32(-1)
		for _, j := range s.Indices()[g] {
			if j <= last {
				panic(fmt.Sprintf("kernels: %s: entry %d after %d of KV head %d, want ascending", op, j, last, g))
			}
			last = j
		}
	}
}

// CheckLinearGroup panics unless the layers' parts fit each other.
func CheckLinearGroup(op string, x *Tensor, layers ...LinearRows) {
	if len(layers) == 0 {
		panic(fmt.Sprintf("kernels: %s of %v with no weight", op, x.Shape))
	}
	for _, l := range layers {
		m, k, n := x.Dim0(), x.Width(), l.Weight.Dim0()
		if l.Weight.Width() != k || l.Y == nil || l.Y.Len() != m*n || l.Bias != nil && l.Bias.Len() != n {
			panic(fmt.Sprintf("kernels: %s of %v with weight %v", op, x.Shape, l.Weight.Shape))
		}
	}
}

// CheckGatedLinear panics unless the layers fit x and y.
func CheckGatedLinear(y, x *Tensor, gate, up LinearRows) {
	gate.Y, up.Y = y, y // of the same shape
	CheckLinearGroup("GatedLinear", x, gate, up)
}

// CheckHeads panics unless the table rotates all of every head, whose norms fit it.
func CheckHeads(op string, q, k *Tensor, norms HeadNorms, pos []int32, table *RoPETable) {
	for _, t := range []struct{ x, w *Tensor }{{q, norms.Query}, {k, norms.Key}} {
		if len(t.x.Shape) != 3 || t.x.Shape[0] != len(pos) || t.x.Shape[2] != 2*table.Cos.Width() || t.w != nil && t.w.Len() != t.x.Shape[2] {
			panic(fmt.Sprintf("kernels: %s of queries %v, keys %v: %d positions, table %v, norms %v", op, q.Shape, k.Shape, len(pos), table.Cos.Shape, norms))
		}
	}
	checkPositions(op, pos, table)
}

// String names the shapes.
func (n HeadNorms) String() string {
	text := func(t *Tensor) string {
		if t == nil {
			return "none"
		}
		return fmt.Sprint(t.Shape)
	}
	return text(n.Query) + ", " + text(n.Key)
}

// CheckCopyPairs panics unless dst has a head for each of k and v, with so many rows.
func CheckCopyPairs(dst []KV, k, v *Tensor) {
	ok := len(k.Shape) == 3 && k.Shape[1] == len(dst) && len(dst) > 0 && v.Len() == k.Len()
	for _, kv := range dst {
		ok = ok && kv.K.Len()*len(dst) == k.Len() && kv.V.Len() == kv.K.Len()
	}
	if !ok {
		panic(fmt.Sprintf("kernels: CopyPairs of keys %v and values %v into %d heads", k.Shape, v.Shape, len(dst)))
	}
}

// CheckAddLowRank panics unless the operands of AddLowRank fit each other.
func CheckAddLowRank(y, x, a, b *Tensor) {
	if a.Width() != x.Width() || b.Width() != a.Dim0() || y.Len() != x.Dim0()*b.Dim0() {
		panic(fmt.Sprintf("kernels: AddLowRank of %v by %v and %v into %v", x.Shape, a.Shape, b.Shape, y.Shape))
	}
}

// CheckLinear panics unless y [m, out], x [m, in], w [out, in] and bias [out] or nil fit.
func CheckLinear(y, x, w, bias *Tensor) {
	m, in, out := x.Dim0(), x.Width(), w.Dim0()
	if w.Width() != in || y.Len() != m*out || (bias != nil && bias.Len() != out) {
		panic(fmt.Sprintf("kernels: Linear %v = %v · %vᵀ", y.Shape, x.Shape, w.Shape))
	}
}

// CheckProduct panics unless c is [m, n] and both operands have the depth k.
func CheckProduct(op string, c *Tensor, m, n, k, kb int) {
	if k != kb || c.Len() != m*n {
		panic(fmt.Sprintf("kernels: %s %v = [%d %d] · [%d %d]", op, c.Shape, m, k, kb, n))
	}
}

// CheckRoPE panics unless y is like x, and x has a row for each position, all of them in the table.
func CheckRoPE(y, x *Tensor, pos []int32, table *RoPETable) {
	CheckLengths("RoPE", x, y)
	if len(pos) != x.Shape[0] || table.Cos.Width()*2 > x.Shape[2] {
		panic(fmt.Sprintf("kernels: RoPE of %v with %d positions, table %v", x.Shape, len(pos), table.Cos.Shape))
	}
	checkPositions("RoPE", pos, table)
}

func checkPositions(op string, pos []int32, table *RoPETable) {
	for _, p := range pos {
		if p < 0 || int(p) >= table.Positions() {
			panic(fmt.Sprintf("kernels: %s at position %d, table has %d", op, p, table.Positions()))
		}
	}
}
