package kernels

import "fmt"

// The checks below are what every backend does before it touches memory: shapes
// that do not fit panic, rather than compute something else.

// checkLengths panics unless all tensors have as many elements as x; nil ones are
// passed over.
func checkLengths(op string, x *Tensor, others ...*Tensor) {
	for _, t := range others {
		if t != nil && t.Len() != x.Len() {
			panic(fmt.Sprintf("kernels: %s of %v with %v", op, x.Shape, t.Shape))
		}
	}
}

// checkNorm panics unless w fits the rows of x and the others the whole of it.
func checkNorm(op string, x, w *Tensor, others ...*Tensor) {
	if w.Len() != x.Width() {
		panic(fmt.Sprintf("kernels: %s of %v with weight %v", op, x.Shape, w.Shape))
	}
	checkLengths(op, x, others...)
}

// checkGather panics unless y has room for the rows and the table has them.
func checkGather(y, table *Tensor, ids []int32) {
	if y.Len() != len(ids)*table.Width() {
		panic(fmt.Sprintf("kernels: Gather %d rows of %v into %v", len(ids), table.Shape, y.Shape))
	}
	for _, id := range ids {
		if id < 0 || int(id) >= table.Dim0() {
			panic(fmt.Sprintf("kernels: Gather row %d of %v", id, table.Shape))
		}
	}
}

func checkCopyHead(y, x *Tensor, h int) {
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
	}
	if a.Window > 0 && len(a.Positions) != a.Rows() {
		panic(fmt.Sprintf("kernels: %s: %d positions of %d rows", op, len(a.Positions), a.Rows()))
	}
	own := a.Rows() * a.KVHeads() * a.HeadDim()
	if a.K != nil && a.K.Len() != own {
		bad("own keys", a.K)
	}
	if a.K != nil && values && a.V.Len() != own {
		bad("own values", a.V)
	}
}

func checkAttention(op string, out, lse *Tensor, a *Attend) {
	checkAttend(op, a, out != nil)
	checkLengths(op, a.Q, out)
	checkLSE(op, lse, a)
}

func checkLSE(op string, lse *Tensor, a *Attend) {
	if lse != nil && lse.Len() != a.Heads()*a.Rows() {
		panic(fmt.Sprintf("kernels: %s of queries %v with lse %v", op, a.Q.Shape, lse.Shape))
	}
}

// checkScores panics unless scores has a row per head and a column per entry.
func checkScores(op string, scores *Tensor, a *Attend) {
	entries := 0
	for _, kv := range a.Past {
		entries = max(entries, kv.Entries())
	}
	if scores.Dim0() != a.Heads() || scores.Width() < entries {
		panic(fmt.Sprintf("kernels: %s of %d heads on %d entries with scores %v", op, a.Heads(), entries, scores.Shape))
	}
}

func checkObservedScores(op string, logScore, lse *Tensor, a *Attend) {
	checkAttend(op, a, false)
	checkLSE(op, lse, a)
	checkScores(op, logScore, a)
}

func checkAttentionGrad(dq, dk, dv *Tensor, a *Attend, out, lse, logScore, dOut, dLogScore *Tensor) {
	const op = "AttentionGrad"
	checkAttend(op, a, dOut != nil)
	checkLengths(op, a.Q, dq, out, dOut)
	checkLengths(op, a.K, dk, dv)
	checkLSE(op, lse, a)
	if dLogScore != nil {
		checkScores(op, logScore, a)
		checkLengths(op, logScore, dLogScore)
	}
}

func checkLoss(op string, dLogScore, logScore, logTarget *Tensor) {
	checkLengths(op, logTarget, dLogScore, logScore)
}
