package cuda

import "glimpse/kernels"

// mostExperts is as in experts.cu.
const mostExperts = 512

// ExpertInts is the size of struct Expert of experts.cu in int32.
const ExpertInts = 14

// maxExpertRows is the most rows of FewExperts, each of which reads its experts by itself.
const maxExpertRows = 16

// TakesExperts tells that so many rows go through experts of such weights in few launches: of one type, in rows of whole
// 16 bytes, chosen from up to mostExperts.
func TakesExperts(rows int, e *kernels.FewExperts) bool {
	if rows < 1 || rows > maxExpertRows || e.Experts() > mostExperts {
		return false
	}
	d := e.Each[0].Up.Weight.DType
	if d != kernels.F32 && d != kernels.BF16 {
		return false
	}
	for _, l := range e.Each {
		for _, w := range []*kernels.Tensor{l.Gate.Weight, l.Up.Weight, l.Down.Weight} {
			if w == nil || w.DType != d || w.Width()*d.Size()%16 != 0 {
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
