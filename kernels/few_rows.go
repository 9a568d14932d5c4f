package kernels

import "fmt"

// maxFewRows is the most rows of a product that waits for its weights alone, whatever the
// device multiplies with: with more, tensor cores are worth splitting the rows for.
const maxFewRows = 8

// maxLinears is the most products of the same rows that are computed at once.
const maxLinears = 3

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

// checkLinearGroup panics unless the layers' parts fit each other.
func checkLinearGroup(op string, x *Tensor, layers ...LinearRows) {
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

// checkGatedLinear panics unless the layers fit x and y.
func checkGatedLinear(y, x *Tensor, gate, up LinearRows) {
	gate.Y, up.Y = y, y // of the same shape
	checkLinearGroup("GatedLinear", x, gate, up)
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
