package cuda

import (
	"slices"

	"glimpse/kernels"
)

// mostExperts is as in experts.cu.
const mostExperts = 512

// ExpertInts is the size of struct Expert of experts.cu in int32.
const ExpertInts = 14

// maxExpertRows is the most rows of FewExperts; each reads its experts by itself.
const maxExpertRows = 16

// expertTypes are the types of experts' weights that experts.cu has kernels for.
var expertTypes = []string{"f32", "bf16", "e4m3_bf16", "e2m1_e8m0", "i4", "q4_k", "q5_k", "q6_k", "q8_0"}

func hasExperts(d kernels.DType) bool {
	name, _ := blockKernel(d.String())
	return slices.Contains(expertTypes, name)
}

// TakesExperts tells that so many rows go through experts of such weights in few launches: of one type, what comes down from them
// perhaps of another, numbers in rows of whole 16 bytes, chosen from up to mostExperts.
func TakesExperts(rows int, e *kernels.FewExperts) bool {
	if rows < 1 || rows > maxExpertRows || e.Experts() > mostExperts {
		return false
	}
	of := e.Each[0]
	for _, l := range e.Each {
		for i, w := range []*kernels.Tensor{l.Gate.Weight, l.Up.Weight, l.Down.Weight} {
			first := of.Up.Weight
			if i == 2 {
				first = of.Down.Weight
			}
			if w == nil || w.DType != first.DType || !hasExperts(w.DType) || w.Order() != nil {
				return false
			}
			if _, blocks := w.DType.Format(); !blocks && w.Width()*w.DType.Size()%16 != 0 {
				return false
			}
		}
	}
	return true
}

// ExpertsTemporary are what an operation leaves between its launches: what gates let through, and choices with their weights.
func ExpertsTemporary(rows int, e *kernels.FewExperts, temp kernels.Allocator) (act, routed *kernels.Tensor) {
	slots, width := e.TopK, 0
	if e.Shared {
		slots++
	}
	for _, l := range e.Each {
		width = max(width, l.Up.Weight.Dim0())
	}
	return temp.Alloc(kernels.F32, rows, slots, width), temp.Alloc(kernels.F32, 2, rows*slots)
}
