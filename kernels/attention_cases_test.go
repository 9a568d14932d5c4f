package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"glimpse/kernels"
)

// attendShape describes rows that attend to a cache.
type attendShape struct {
	name             string
	rows, heads, dim int
	entries          []int // of every KV head
	own              bool  // the rows' own pairs are given; otherwise they are the last entries
	logits           float64
	tol              float64
	extraWidth       int
	window           int  // sliding window; 0: none
	evicted          bool // with a window: the past has gaps, other ones in every head
}

// attendShapes: grouping of heads, ragged pasts, tails, and more entries and rows
// than one tile of any backend holds.
var attendShapes = []attendShape{
	{name: "one entry", rows: 1, heads: 1, dim: 4, entries: []int{1}},
	{name: "one row", rows: 1, heads: 4, dim: 8, entries: []int{19, 19}},
	{name: "one row, ragged", rows: 1, heads: 6, dim: 16, entries: []int{1, 40, 7}},
	{name: "rows are the whole past", rows: 9, heads: 2, dim: 5, entries: []int{9, 9}},
	{name: "MHA", rows: 17, heads: 3, dim: 12, entries: []int{33, 33, 33}},
	{name: "GQA", rows: 5, heads: 8, dim: 32, entries: []int{70, 70}},
	{name: "MQA", rows: 12, heads: 7, dim: 16, entries: []int{50}},
	{name: "MQA with a group beyond a tile", rows: 3, heads: 71, dim: 8, entries: []int{20}},
	{name: "window inside an evicted past", rows: 6, heads: 4, dim: 8, entries: []int{6, 31}},
	{name: "entries beyond a tile", rows: 3, heads: 4, dim: 16, entries: []int{513, 511}},
	{name: "entries beyond two tiles, ragged", rows: 33, heads: 4, dim: 8, entries: []int{1100, 200}},
	{name: "16 queries of 16 numbers, tiles deep enough to be split", rows: 16, heads: 1, dim: 16, entries: []int{1100}},
	{name: "rows beyond a tile", rows: 150, heads: 2, dim: 16, entries: []int{151, 300}},
	{name: "rows beyond a tile across entry tiles", rows: 130, heads: 2, dim: 8, entries: []int{640}},
	{name: "wide vectors", rows: 4, heads: 2, dim: 128, entries: []int{30, 12}},
	{name: "sharp logits", rows: 40, heads: 2, dim: 8, entries: []int{90, 90}, logits: 40, tol: 1e-4},
	{name: "extreme logits", rows: 20, heads: 2, dim: 8, entries: []int{600, 90}, logits: 1e4, tol: 2e-2},
	{name: "sharp logits, rows beyond a tile", rows: 140, heads: 2, dim: 8, entries: []int{150, 190}, logits: 400, tol: 1e-3},
	{name: "extreme logits, rows beyond a tile", rows: 140, heads: 2, dim: 8, entries: []int{150, 600}, logits: 1e4, tol: 2e-2},
	{name: "own pairs", rows: 8, heads: 4, dim: 16, entries: []int{30, 30}, own: true},
	{name: "one own pair", rows: 1, heads: 4, dim: 16, entries: []int{30, 7}, own: true},
	{name: "own pairs and no past", rows: 8, heads: 4, dim: 16, entries: []int{0, 0}, own: true},
	{name: "own pairs, one past empty", rows: 5, heads: 6, dim: 8, entries: []int{0, 3, 44}, own: true},
	{name: "own pairs, MHA", rows: 32, heads: 2, dim: 8, entries: []int{257, 256}, own: true},
	{name: "own pairs, MQA", rows: 7, heads: 5, dim: 8, entries: []int{19}, own: true},
	{name: "own pairs beyond a tile", rows: 140, heads: 2, dim: 8, entries: []int{1100, 1}, own: true},
	{name: "own pairs, one past beyond two tiles", rows: 32, heads: 4, dim: 16, entries: []int{12, 1030}, own: true},
	{name: "own pairs, sharp logits", rows: 12, heads: 2, dim: 8, entries: []int{60, 60}, own: true, logits: 40, tol: 1e-4},
	{name: "own pairs, extreme logits", rows: 12, heads: 2, dim: 8, entries: []int{60, 530}, own: true, logits: 1e4, tol: 2e-2},
	{name: "window", rows: 40, heads: 4, dim: 8, entries: []int{40, 40}, window: 7},
	{name: "window of one", rows: 9, heads: 2, dim: 8, entries: []int{30}, window: 1},
	{name: "window beyond everything", rows: 9, heads: 2, dim: 8, entries: []int{30}, window: 31},
	{name: "window of one row", rows: 1, heads: 4, dim: 8, entries: []int{700, 700}, window: 20},
	{name: "window across tiles", rows: 70, heads: 2, dim: 8, entries: []int{1300}, window: 530},
	{name: "window in later tiles", rows: 200, heads: 2, dim: 8, entries: []int{1500, 1500}, window: 30},
	{name: "window, evicted", rows: 12, heads: 6, dim: 8, entries: []int{50, 13, 24}, window: 20, evicted: true},
	{name: "window, evicted, one row", rows: 1, heads: 6, dim: 8, entries: []int{50, 1, 9}, window: 6, evicted: true},
	{name: "window, own pairs", rows: 12, heads: 4, dim: 8, entries: []int{50, 50}, own: true, window: 20},
	{name: "window within the own pairs", rows: 30, heads: 4, dim: 8, entries: []int{20, 20}, own: true, window: 5},
	{name: "window, own pairs, evicted", rows: 12, heads: 6, dim: 8, entries: []int{50, 0, 600}, own: true, window: 40, evicted: true, extraWidth: 3},
	{name: "widths beyond the entries", rows: 12, heads: 4, dim: 8, entries: []int{60, 13}, extraWidth: 5},
	{name: "own pairs, widths beyond the entries", rows: 4, heads: 4, dim: 8, entries: []int{6, 300}, own: true, extraWidth: 37},
}

// randomShapes are further shapes.
func randomShapes(n int) []attendShape {
	rng := rand.New(rand.NewPCG(11, 13))
	var out []attendShape
	for i := range n {
		s := attendShape{rows: 1 + rng.IntN(70), dim: 2 * (1 + rng.IntN(20)), own: rng.IntN(2) == 0, extraWidth: rng.IntN(4)}
		kvHeads := 1 + rng.IntN(4)
		s.heads = kvHeads * (1 + rng.IntN(5))
		for range kvHeads {
			s.entries = append(s.entries, rng.IntN(180))
		}
		if !s.own {
			for h := range s.entries {
				s.entries[h] += s.rows
			}
		}
		if i%3 == 0 {
			s.window, s.evicted = 1+rng.IntN(100), true
		}
		s.name = fmt.Sprintf("random %d: rows=%d/heads=%d/dim=%d/entries=%v/own=%v/window=%d", i, s.rows, s.heads, s.dim, s.entries, s.own, s.window)
		out = append(out, s)
	}
	return out
}

// attend draws the operands. Past lies in larger tensors, as in a cache, whose
// unused part is not clean.
func (s attendShape) attend(d device, rng *rand.Rand) *kernels.Attend {
	scale := 1.0
	if s.logits > 0 {
		scale = math.Sqrt(s.logits)
	}
	kvHeads := len(s.entries)
	a := &kernels.Attend{Q: d.tensor(random(rng, s.rows*s.heads*s.dim, scale), s.rows, s.heads, s.dim), Scale: 1 / math.Sqrt(float64(s.dim))}
	for _, n := range s.entries {
		spare := func() *kernels.Tensor {
			t := d.garbage(n+5, s.dim)
			d.b.Copy(t.Rows(0, n), d.tensor(random(rng, n*s.dim, scale), n, s.dim))
			return t.Rows(0, n)
		}
		a.Past = append(a.Past, kernels.KV{K: spare(), V: spare()})
	}
	if s.own {
		a.K = d.tensor(random(rng, s.rows*kvHeads*s.dim, scale), s.rows, kvHeads, s.dim)
		a.V = d.tensor(random(rng, s.rows*kvHeads*s.dim, scale), s.rows, kvHeads, s.dim)
	}
	if s.window > 0 {
		s.place(a, rng)
	}
	return a
}

// place gives rows and entries positions.
func (s attendShape) place(a *kernels.Attend, rng *rand.Rand) {
	a.Window = s.window
	next := slices.Max(s.entries) // of the rows, at first of what follows them
	if s.evicted {
		next *= 3
	}
	for g, n := range s.entries {
		if !s.evicted { // positions are indices, which need not be said
			continue
		}
		pos, at := make([]int32, n), next
		for i := n - 1; i >= 0; i-- {
			if at--; s.own || n-i > s.rows {
				at -= rng.IntN(3)
			}
			pos[i] = int32(at)
		}
		a.Past[g].Positions = pos
	}
	if !s.own {
		next -= s.rows
	}
	for r := range s.rows {
		a.Positions = append(a.Positions, int32(next+r))
	}
}

// unwritten marks columns that a kernel has to leave alone.
const unwritten = -12345

// observe runs Attention and ObservedScores.
func (s attendShape) observe(d device, a *kernels.Attend) (out, lse, scores *kernels.Tensor) {
	out, lse = d.garbage(s.rows, s.heads*s.dim), d.garbage(s.heads, s.rows)
	d.b.Attention(out, lse, a)
	scores = d.garbage(s.heads, slices.Max(s.entries)+s.extraWidth)
	d.b.Fill(scores, unwritten)
	d.b.ObservedScores(scores, lse, a)
	return out, lse, scores
}

// attentionCases are attention, observation and their gradient.
func attentionCases(shapes []attendShape) []conformance {
	var cases []conformance
	for _, s := range shapes {
		cases = append(cases, conformance{op: "Attention", name: s.name, tol: s.tol, run: func(d device, rng *rand.Rand) []output {
			a := s.attend(d, rng)
			out, lse, _ := s.observe(d, a)
			onlyLSE, onlyOut := d.garbage(s.heads, s.rows), d.garbage(s.rows, s.heads*s.dim)
			d.b.Attention(onlyOut, nil, a)
			a.V = nil // not needed where no output is asked for
			d.b.Attention(nil, onlyLSE, a)
			return []output{{name: "out", values: out.Float64s()}, {"lse", lse.Float64s(), s.logits + 1},
				{name: "out alone", values: onlyOut.Float64s()}, {"lse alone", onlyLSE.Float64s(), s.logits + 1}}
		}}, conformance{op: "ObservedScores", name: s.name, tol: s.tol, run: func(d device, rng *rand.Rand) []output {
			a := s.attend(d, rng)
			_, _, scores := s.observe(d, a)
			return []output{{"logScore", scores.Float64s(), s.logits + 1}}
		}}, conformance{op: "ObserveAttention", name: s.name, tol: s.tol, run: func(d device, rng *rand.Rand) []output {
			a := s.attend(d, rng)
			var outs []output
			for _, out := range []*kernels.Tensor{d.garbage(s.rows, s.heads*s.dim), nil} {
				lse, scores := d.garbage(s.heads, s.rows), d.garbage(s.heads, slices.Max(s.entries)+s.extraWidth)
				d.b.Fill(scores, unwritten)
				if out == nil {
					a.V = nil // not needed where no output is asked for
				}
				d.b.ObserveAttention(out, lse, scores, a)
				outs = append(outs, output{"lse", lse.Float64s(), s.logits + 1}, output{"logScore", scores.Float64s(), s.logits + 1})
				if out != nil {
					outs = append(outs, output{name: "out", values: out.Float64s()})
				}
			}
			return outs
		}})
		if !s.own {
			continue
		}
		for _, v := range []struct {
			name          string
			out, logScore bool
		}{{"dOut", true, false}, {"dLogScore", false, true}, {"both", true, true}, {"neither", false, false}} {
			cases = append(cases, conformance{op: "AttentionGrad", name: s.name + ", " + v.name, tol: max(s.tol, 3e-5), run: func(d device, rng *rand.Rand) []output {
				a := s.attend(d, rng)
				dOut, dScore := s.gradients(d, rng, v.out, v.logScore)
				return s.grad(d, a, dOut, dScore)
			}}, conformance{op: "AttentionGrad", name: s.name + ", " + v.name + ", kept", tol: max(s.tol, 3e-5), run: func(d device, rng *rand.Rand) []output {
				a := s.attend(d, rng)
				dOut, dScore := s.gradients(d, rng, v.out, v.logScore)
				a.Kept = new(kernels.Kept)
				for range 2 { // its memory is used again
					lse, scores := d.garbage(s.heads, s.rows), d.garbage(s.heads, slices.Max(s.entries)+s.extraWidth)
					d.b.ObserveAttention(d.garbage(s.rows, s.heads*s.dim), lse, scores, a)
				}
				return s.grad(d, a, dOut, dScore)
			}})
		}
	}
	return cases
}

// gradients draws upstream gradients; columns past a head's entries are not clean.
func (s attendShape) gradients(d device, rng *rand.Rand, out, logScore bool) (dOut, dScore *kernels.Tensor) {
	if out {
		dOut = d.tensor(random(rng, s.rows*s.heads*s.dim, 1), s.rows, s.heads*s.dim)
	}
	if logScore {
		width := slices.Max(s.entries) + s.extraWidth
		values := random(rng, s.heads*width, 1)
		for h := range s.heads {
			for j := s.entries[h/(s.heads/len(s.entries))]; j < width; j++ {
				values[h*width+j] = math.NaN()
			}
		}
		dScore = d.tensor(values, s.heads, width)
	}
	return dOut, dScore
}

// grad runs AttentionGrad on what the forward operations gave.
func (s attendShape) grad(d device, a *kernels.Attend, dOut, dScore *kernels.Tensor) []output {
	kvHeads := len(s.entries)
	out, lse, scores := s.observe(d, a)
	dq, dk := d.garbage(s.rows, s.heads, s.dim), d.garbage(s.rows, kvHeads, s.dim)
	var dv *kernels.Tensor
	if dOut != nil || s.rows%2 == 0 { // it may be asked for although it is zero
		dv = d.garbage(s.rows, kvHeads, s.dim)
	}
	if dOut == nil {
		out, a.V = nil, nil
	}
	d.b.AttentionGrad(dq, dk, dv, a, out, lse, scores, dOut, dScore)
	// Where the softmax is one-hot the gradient vanishes, but its terms do not.
	result := func(name string, t *kernels.Tensor) output {
		values := t.Float64s()
		return output{name, values, max(1, magnitude(values))}
	}
	results := []output{result("dq", dq), result("dk", dk)}
	if dv != nil {
		results = append(results, result("dv", dv))
	}
	return results
}

// halved rounds the past of a to bf16: in bf16 tensors for a device, and the same
// numbers in the compute type for the reference.
func halved(d device, a *kernels.Attend, bf16 bool) *kernels.Attend {
	h := *a
	h.Past = slices.Clone(a.Past)
	convert := func(t *kernels.Tensor) *kernels.Tensor {
		narrow := d.b.Alloc(kernels.BF16, t.Shape...)
		kernels.Convert(narrow, t)
		if bf16 {
			return narrow
		}
		wide := d.b.Alloc(d.b.Compute(), t.Shape...)
		kernels.Convert(wide, narrow)
		return wide
	}
	for g, kv := range a.Past {
		h.Past[g].K, h.Past[g].V = convert(kv.K), convert(kv.V)
	}
	return &h
}
