package kernels

import "fmt"

// maxFewRows is the most rows of a product that waits for its weights alone, whatever the
// device multiplies with: with more, tensor cores are worth splitting the rows for.
const maxFewRows = 8

// maxLinears is the most products of the same rows that are computed at once.
const maxLinears = 3

// FewRows is a Backend that computes what follows each other in decoding steps at once,
// with the bits that the operations have one by one.
type FewRows interface {
	Backend
	// TakesFew tells whether Linears and GatedLinear take so many rows and these weights,
	// all with the same number of columns. Otherwise single operations do.
	TakesFew(x *Tensor, linears ...LinearRows) bool
	// Linears computes up to three linear layers of the same few rows x [rows, k].
	Linears(x *Tensor, linears ...LinearRows)
	// GatedLinear writes SiLUMul of two linear layers of rows x [rows, k] to gate.Y [rows,
	// n]; up.Y is not used.
	GatedLinear(x *Tensor, gate, up LinearRows)
	// TakesHeads tells whether RotateHeads and StepHeads are there.
	TakesHeads() bool
	// RotateHeads is RMSNorm of every head of q [rows, heads, headDim] and k [rows, kvHeads,
	// headDim] where norms has a weight [headDim], and RoPE.
	RotateHeads(q, k *Tensor, norms HeadNorms, pos []int32, table *RoPETable)
}

// LinearRows is a linear layer and its output: Y [rows, n], Weight [n, k] as stored, Bias
// [n] or nil.
type LinearRows struct {
	Y, Weight, Bias *Tensor
}

// HeadNorms are the weights [headDim] of RMSNorm of queries and keys, or nil.
type HeadNorms struct {
	Query, Key *Tensor
	Eps        float64
}

// StepHeads is a Stepper that prepares queries, keys and values of a step at once.
type StepHeads interface {
	Stepper
	FewRows
	// StepHeads is RotateHeads at the step's positions, and appends the pairs k, v [rows,
	// kvHeads, headDim] of the first sequences to their heads of a layer, which have room
	// for them. StepAttention is then told that they are Appended.
	StepHeads(q, k, v *Tensor, norms HeadNorms, table *RoPETable, s Steps, sequences, layer int, pairs DType)
	// StepAttentions is StepAttention of all sequences, out and q having a row of each,
	// after StepHeads: at.Longest is that of any, at.Sequence counts for nothing. It returns
	// false where it computes one sequence after the other only, and then nothing has
	// happened.
	StepAttentions(out, q *Tensor, s Steps, at StepLayer) bool
}

// fewRows tells that m rows meet a weight [n, k] without products of cuBLASLt: every row of
// the weight begins at 16 bytes.
func fewRows(m, k int, w *Tensor) bool {
	return m <= maxFewRows && k > 0 && k*w.DType.Size()%16 == 0 && (w.DType == F32 || w.DType == BF16 || w.DType == F16)
}

func takesFew(x *Tensor, linears []LinearRows) bool {
	if x.DType == BF16 || len(linears) == 0 || len(linears) > maxLinears {
		return false
	}
	for _, l := range linears {
		if !fewRows(x.Dim0(), x.Width(), l.Weight) || l.Weight.DType != linears[0].Weight.DType {
			return false
		}
	}
	return true
}

// checkFew panics unless the backend takes the layers and their parts fit each other.
func checkFew(op string, x *Tensor, linears []LinearRows) {
	if !takesFew(x, linears) {
		panic(fmt.Sprintf("kernels: %s of %v with %d weights, want up to %d rows and up to %d weights of a type", op, x.Shape, len(linears), maxFewRows, maxLinears))
	}
	for _, l := range linears {
		m, k, n := x.Dim0(), x.Width(), l.Weight.Dim0()
		if l.Weight.Width() != k || l.Y == nil || l.Y.Len() != m*n || l.Bias != nil && l.Bias.Len() != n {
			panic(fmt.Sprintf("kernels: %s of %v with weight %v", op, x.Shape, l.Weight.Shape))
		}
	}
}

// gatedLayers are the two layers of a GatedLinear, whose output is gate.Y.
func gatedLayers(op string, x *Tensor, gate, up LinearRows) []LinearRows {
	up.Y = gate.Y // of the same shape
	both := []LinearRows{gate, up}
	checkFew(op, x, both)
	return both
}

func checkHeads(op string, q, k *Tensor, norms HeadNorms, pos []int32, table *RoPETable) {
	for _, t := range []struct{ x, w *Tensor }{{q, norms.Query}, {k, norms.Key}} {
		if len(t.x.Shape) != 3 || t.x.Shape[0] != len(pos) || t.x.Shape[2] != 2*table.Cos.Width() || t.w != nil && t.w.Len() != t.x.Shape[2] {
			panic(fmt.Sprintf("kernels: %s of queries %v, keys %v: %d positions, table %v, norms %v", op, q.Shape, k.Shape, len(pos), table.Cos.Shape, norms))
		}
	}
	for _, p := range pos {
		if p < 0 || int(p) >= table.Positions() {
			panic(fmt.Sprintf("kernels: %s at position %d, table has %d", op, p, table.Positions()))
		}
	}
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
