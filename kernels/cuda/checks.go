//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"glimpse/kernels"
	_ "glimpse/kernels/reference" // which checks are held against
)

// probe runs the check of a family on a backend of its own.
type probe struct {
	b        *cuda
	f        family
	launched map[string]bool // kernels
	err      error           // the first difference
}

// ran tells that kernels of the family were launched.
func (p *probe) ran() bool {
	for name := range p.launched {
		if slices.ContainsFunc(familyKernels[p.f], func(begin string) bool { return strings.HasPrefix(name, begin) }) {
			return true
		}
	}
	return false
}

// free gives the memory of the check back.
func (p *probe) free() {
	for _, m := range p.b.made {
		m.cleanup.Stop()
		p.b.giveBack("self-check", cudaMemory{m.at, m.size})
		p.b.live -= m.size
		p.b.blocks--
		m.at, m.size = 0, 0
	}
	for _, m := range []cudaMemory{{p.b.scratch, p.b.size}, {p.b.workspace, MaxWorkspace}} {
		if m.at != 0 {
			p.b.giveBack("self-check", m)
		}
	}
}

// side is one of the two backends that compute the same, with the same numbers.
type side struct {
	b   kernels.Backend
	rng *rand.Rand
}

func (s *side) numbers(n int, scale float32) *kernels.Tensor {
	t := kernels.NewTensor(kernels.F32, n)
	for i := range t.F32() {
		t.F32()[i] = scale * (2*s.rng.Float32() - 1)
	}
	return t
}

// random is a tensor of the compute type.
func (s *side) random(scale float32, shape ...int) *kernels.Tensor {
	t := s.b.Alloc(s.b.Compute(), shape...)
	kernels.Convert(t, s.numbers(kernels.ShapeLen(shape), scale).Reshape(shape...))
	return t
}

// weight is a tensor of a type that is rounded to first, F32 standing for the compute type.
func (s *side) weight(d kernels.DType, shape ...int) *kernels.Tensor {
	if d == kernels.F32 {
		return s.random(1, shape...)
	}
	t := kernels.NewTensor(d, shape...)
	if d == kernels.F16 { // ±[0.5, 1), since nothing is rounded to it
		for i := range t.U16() {
			t.U16()[i] = uint16(s.rng.Uint32())&0x83ff | 14<<10
		}
	} else {
		kernels.Convert(t, s.numbers(kernels.ShapeLen(shape), 1).Reshape(shape...))
	}
	return s.b.Place(t)
}

// blocks is a weight in blocks.
func (s *side) blocks(d kernels.DType, shape ...int) *kernels.Tensor {
	t := kernels.NewTensor(d, shape...)
	data, f := t.Blocks()
	f.Draw(data, s.rng)
	return s.b.Place(t)
}

// empty is a result that is NaN where nothing is written.
func (s *side) empty(shape ...int) *kernels.Tensor {
	t := s.b.Alloc(s.b.Compute(), shape...)
	s.b.Fill(t, math.NaN())
	return t
}

// past are keys and values of heads of so many entries each.
func (s *side) past(d kernels.DType, heads, entries, dim int) (all []kernels.KV) {
	for range heads {
		all = append(all, kernels.KV{K: s.weight(d, entries, dim), V: s.weight(d, entries, dim)})
	}
	return all
}

// compare runs f on both sides; results may differ by limit times the largest number.
func (p *probe) compare(what string, limit float64, f func(s *side) []*kernels.Tensor) {
	if p.err != nil {
		return
	}
	exact, err := kernels.Open("reference64")
	if err != nil {
		panic(err)
	}
	want := f(&side{exact, rand.New(rand.NewPCG(7, 90))})
	got := f(&side{p.b, rand.New(rand.NewPCG(7, 90))})
	for i := range want {
		p.equal(fmt.Sprintf("%s, result %d", what, i), limit, got[i].Float64s(), want[i].Float64s())
	}
}

func (p *probe) equal(what string, limit float64, got, want []float64) {
	if p.err != nil {
		return
	}
	if len(got) != len(want) {
		p.err = fmt.Errorf("%s: %d numbers, want %d", what, len(got), len(want))
		return
	}
	largest := 0.0
	for _, v := range want {
		largest = max(largest, math.Abs(v))
	}
	for i := range want {
		if d := math.Abs(got[i] - want[i]); !(d <= limit*largest) { // NaN is no result
			p.err = fmt.Errorf("%s: number %d is %g, want %g", what, i, got[i], want[i])
			return
		}
	}
}

func checkDecodeLinear(p *probe) {
	const k, n = 72, 37
	for _, c := range []struct {
		d    kernels.DType
		rows int
	}{{kernels.BF16, 1}, {kernels.BF16, 3}, {kernels.BF16, 7}, {kernels.F32, 2}, {kernels.F16, 2}} {
		p.compare(fmt.Sprintf("%d rows by %s weights", c.rows, c.d), 1e-4, func(s *side) []*kernels.Tensor {
			x, w, bias := s.random(1, c.rows, k), s.weight(c.d, n, k), s.random(1, n)
			gate, up := s.weight(c.d, n, k), s.weight(c.d, n, k)
			y, a := s.empty(c.rows, n), s.empty(c.rows, n)
			s.b.Linear(y, x, w, bias, 1, 0)
			s.b.GatedLinear(a, x, kernels.LinearRows{Weight: gate}, kernels.LinearRows{Weight: up}, s.b)
			return []*kernels.Tensor{y, a}
		})
	}
}

func checkDecodeNorm(p *probe) {
	const rows, width = 2, 640
	p.compare("norms", 1e-4, func(s *side) []*kernels.Tensor {
		x, delta, w := s.random(1, rows, width), s.random(1, rows, width), s.random(1, width)
		y, z := s.empty(rows, width), s.empty(rows, width)
		s.b.RMSNorm(y, x, w, 1e-5)
		s.b.AddRMSNorm(z, x, delta, w, 1e-5)
		return []*kernels.Tensor{y, z, x}
	})
}

func checkRotateHeads(p *probe) {
	const rows, heads, kvHeads, dim = 2, 4, 2, 16
	p.compare("heads", 1e-4, func(s *side) []*kernels.Tensor {
		q, k := s.random(1, rows, heads, dim), s.random(1, rows, kvHeads, dim)
		norms := kernels.HeadNorms{Query: s.random(1, dim), Key: s.random(1, dim), Eps: 1e-5}
		table, pos := kernels.NewRoPETable(s.b, []float32{1, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.001}, 8, 1), []int32{3, 5}
		s.b.RotateHeads(q, k, norms, pos, table)
		return []*kernels.Tensor{q, k}
	})
}

func checkAttendStep(p *probe) {
	for _, c := range []struct {
		d                   kernels.DType
		dim, group, entries int
		cap                 float64
	}{
		{kernels.F32, 64, 2, 300, 0}, {kernels.F32, 128, 2, 40, 0}, {kernels.F32, 256, 2, 40, 0}, {kernels.BF16, 64, 2, 300, 0}, {kernels.BF16, 128, 2, 40, 0}, {kernels.BF16, 256, 2, 40, 0},
		{kernels.BF16, 64, 8, 40, 0}, {kernels.BF16, 128, 8, 300, 0}, {kernels.BF16, 256, 8, 40, 0},
		{kernels.F32, 64, 2, 40, 0.5}, {kernels.F32, 128, 2, 300, 0.5}, {kernels.F32, 256, 2, 40, 0.5}, {kernels.BF16, 64, 2, 40, 0.5}, {kernels.BF16, 128, 2, 300, 0.5}, {kernels.BF16, 256, 8, 40, 0.5},
	} {
		const kvHeads = 2
		heads := kvHeads * c.group
		p.compare(fmt.Sprintf("%s heads of %d, %d queries each, cap %v", c.d, c.dim, c.group, c.cap), 1e-3, func(s *side) []*kernels.Tensor {
			a := &kernels.Attend{Q: s.random(1, 1, heads, c.dim), Past: s.past(c.d, kvHeads, c.entries, c.dim), Scale: 1 / math.Sqrt(float64(c.dim)), SoftCap: c.cap}
			out, lse, scores := s.empty(1, heads*c.dim), s.empty(heads, 1), s.empty(heads, c.entries)
			s.b.ObserveAttention(out, lse, scores, a)
			return []*kernels.Tensor{out, lse, scores}
		})
	}
}

// checkPrompt is a prompt's attention, more than a tile of queries and of entries, over keys
// and values in bf16, to which queries and probabilities are rounded, with a soft cap or 0 for none.
func checkPrompt(p *probe, rows, heads, entries int, softCap float64) {
	const kvHeads = 2
	for _, dim := range []int{64, 128, 256} {
		p.compare(fmt.Sprintf("heads of %d, cap %v", dim, softCap), 0.03, func(s *side) []*kernels.Tensor {
			a := &kernels.Attend{Q: s.random(2, rows, heads, dim), Past: s.past(kernels.BF16, kvHeads, entries, dim), Scale: 4 / math.Sqrt(float64(dim)), SoftCap: softCap}
			a.Past[1] = kernels.KV{K: a.Past[1].K.Rows(0, rows+1), V: a.Past[1].V.Rows(0, rows+1)}
			out, lse := s.empty(rows, heads*dim), s.empty(heads, rows)
			s.b.Attention(out, lse, a)
			return []*kernels.Tensor{out, lse}
		})
	}
}

// observed are rows with pairs of their own behind a past in bf16.
func (s *side) observed(rows, heads, kvHeads, entries, dim int) (a *kernels.Attend, out, lse, scores *kernels.Tensor) {
	a = &kernels.Attend{
		Q: s.random(1, rows, heads, dim), K: s.random(1, rows, kvHeads, dim), V: s.random(1, rows, kvHeads, dim),
		Past: s.past(kernels.BF16, kvHeads, entries, dim), Scale: 2 / math.Sqrt(float64(dim)),
	}
	out, lse, scores = s.empty(rows, heads*dim), s.empty(heads, rows), s.empty(heads, entries)
	s.b.ObserveAttention(out, lse, scores, a)
	return a, out, lse, scores
}

func checkObserve(p *probe, rows int, dims []int, limit float64) {
	for _, dim := range dims {
		p.compare(fmt.Sprintf("heads of %d", dim), limit, func(s *side) []*kernels.Tensor {
			_, out, lse, scores := s.observed(rows, 4, 2, 70, dim)
			return []*kernels.Tensor{out, lse, scores}
		})
	}
}

func checkGradient(p *probe) {
	const rows, heads, kvHeads, entries = 16, 4, 2, 70
	for _, dim := range []int{64, 128} {
		p.compare(fmt.Sprintf("heads of %d", dim), 1e-3, func(s *side) []*kernels.Tensor {
			a, out, lse, scores := s.observed(rows, heads, kvHeads, entries, dim)
			dOut, dScore := s.random(1, rows, heads*dim), s.random(1, heads, entries)
			dq, dk, dv := s.empty(rows, heads, dim), s.empty(rows, kvHeads, dim), s.empty(rows, kvHeads, dim)
			s.b.AttentionGrad(dq, dk, dv, a, out, lse, scores, dOut, dScore)
			return []*kernels.Tensor{dq, dk, dv}
		})
	}
}

func checkSplitK(p *probe) {
	const m, n, k = 5, 16, 4 * splitKDepth
	p.compare("products", 1e-4, func(s *side) []*kernels.Tensor {
		x, w, t, back := s.random(1, m, k), s.random(1, n, k), s.random(1, k, n), s.random(1, k, n)
		y, z, u := s.empty(m, n), s.empty(m, n), s.random(1, m, k)
		s.b.Linear(y, x, w, nil, 1, 0)
		s.b.MatMul(z, x, t, 1, 0)
		s.b.AddLowRank(u, x, w, back, 0.5, s.b)
		return []*kernels.Tensor{y, z, u}
	})
}
