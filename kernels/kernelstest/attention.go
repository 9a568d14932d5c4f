package kernelstest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"glimpse/kernels"
)

// AttendShape describes rows that attend to a cache.
type AttendShape struct {
	Name             string
	Rows, Heads, Dim int
	Entries          []int // of every KV head
	Own              bool  // the rows' own pairs are given; otherwise they are the last entries
	Logits           float64
	Tol              float64
	ExtraWidth       int
	Window           int  // sliding window; 0: none
	Evicted          bool // with a window: the past has gaps, other ones in every head
	SoftCap          float64
	Sinks            float64 // standard deviation of the sinks; 0: none
	Biased           int     // first entries of every head that have a bias, of those that there are
}

// AttendShapes: grouping of heads, ragged pasts, tails, and more entries and rows
// than one tile of any backend holds.
var AttendShapes = []AttendShape{
	{Name: "one entry", Rows: 1, Heads: 1, Dim: 4, Entries: []int{1}},
	{Name: "one row", Rows: 1, Heads: 4, Dim: 8, Entries: []int{19, 19}},
	{Name: "one row, ragged", Rows: 1, Heads: 6, Dim: 16, Entries: []int{1, 40, 7}},
	{Name: "rows are the whole past", Rows: 9, Heads: 2, Dim: 5, Entries: []int{9, 9}},
	{Name: "MHA", Rows: 17, Heads: 3, Dim: 12, Entries: []int{33, 33, 33}},
	{Name: "GQA", Rows: 5, Heads: 8, Dim: 32, Entries: []int{70, 70}},
	{Name: "MQA", Rows: 12, Heads: 7, Dim: 16, Entries: []int{50}},
	{Name: "MQA with a group beyond a tile", Rows: 3, Heads: 71, Dim: 8, Entries: []int{20}},
	{Name: "window inside an evicted past", Rows: 6, Heads: 4, Dim: 8, Entries: []int{6, 31}},
	{Name: "entries beyond a tile", Rows: 3, Heads: 4, Dim: 16, Entries: []int{513, 511}},
	{Name: "entries beyond two tiles, ragged", Rows: 33, Heads: 4, Dim: 8, Entries: []int{1100, 200}},
	{Name: "16 queries of 16 numbers, tiles deep enough to be split", Rows: 16, Heads: 1, Dim: 16, Entries: []int{1100}},
	{Name: "rows beyond a tile", Rows: 150, Heads: 2, Dim: 16, Entries: []int{151, 300}},
	{Name: "rows beyond a tile across entry tiles", Rows: 130, Heads: 2, Dim: 8, Entries: []int{640}},
	{Name: "wide vectors", Rows: 4, Heads: 2, Dim: 128, Entries: []int{30, 12}},
	{Name: "sharp logits", Rows: 40, Heads: 2, Dim: 8, Entries: []int{90, 90}, Logits: 40, Tol: 1e-4},
	{Name: "extreme logits", Rows: 20, Heads: 2, Dim: 8, Entries: []int{600, 90}, Logits: 1e4, Tol: 2e-2},
	{Name: "sharp logits, rows beyond a tile", Rows: 140, Heads: 2, Dim: 8, Entries: []int{150, 190}, Logits: 400, Tol: 1e-3},
	{Name: "extreme logits, rows beyond a tile", Rows: 140, Heads: 2, Dim: 8, Entries: []int{150, 600}, Logits: 1e4, Tol: 2e-2},
	{Name: "own pairs", Rows: 8, Heads: 4, Dim: 16, Entries: []int{30, 30}, Own: true},
	{Name: "one own pair", Rows: 1, Heads: 4, Dim: 16, Entries: []int{30, 7}, Own: true},
	{Name: "own pairs and no past", Rows: 8, Heads: 4, Dim: 16, Entries: []int{0, 0}, Own: true},
	{Name: "own pairs, one past empty", Rows: 5, Heads: 6, Dim: 8, Entries: []int{0, 3, 44}, Own: true},
	{Name: "own pairs, MHA", Rows: 32, Heads: 2, Dim: 8, Entries: []int{257, 256}, Own: true},
	{Name: "own pairs, MQA", Rows: 7, Heads: 5, Dim: 8, Entries: []int{19}, Own: true},
	{Name: "own pairs, sharp logits", Rows: 12, Heads: 2, Dim: 8, Entries: []int{60, 60}, Own: true, Logits: 40, Tol: 1e-4},
	{Name: "own pairs, extreme logits", Rows: 12, Heads: 2, Dim: 8, Entries: []int{60, 530}, Own: true, Logits: 1e4, Tol: 2e-2},
	{Name: "window", Rows: 40, Heads: 4, Dim: 8, Entries: []int{40, 40}, Window: 7},
	{Name: "window of one", Rows: 9, Heads: 2, Dim: 8, Entries: []int{30}, Window: 1},
	{Name: "window beyond everything", Rows: 9, Heads: 2, Dim: 8, Entries: []int{30}, Window: 31},
	{Name: "window of one row", Rows: 1, Heads: 4, Dim: 8, Entries: []int{700, 700}, Window: 20},
	{Name: "window across tiles", Rows: 70, Heads: 2, Dim: 8, Entries: []int{1300}, Window: 530},
	{Name: "window in later tiles", Rows: 200, Heads: 2, Dim: 8, Entries: []int{1500, 1500}, Window: 30},
	{Name: "window, evicted", Rows: 12, Heads: 6, Dim: 8, Entries: []int{50, 13, 24}, Window: 20, Evicted: true},
	{Name: "window, evicted, one row", Rows: 1, Heads: 6, Dim: 8, Entries: []int{50, 1, 9}, Window: 6, Evicted: true},
	{Name: "window, own pairs", Rows: 12, Heads: 4, Dim: 8, Entries: []int{50, 50}, Own: true, Window: 20},
	{Name: "window within the own pairs", Rows: 30, Heads: 4, Dim: 8, Entries: []int{20, 20}, Own: true, Window: 5},
	{Name: "window, own pairs, evicted", Rows: 12, Heads: 6, Dim: 8, Entries: []int{50, 0, 600}, Own: true, Window: 40, Evicted: true, ExtraWidth: 3},
	{Name: "widths beyond the entries", Rows: 12, Heads: 4, Dim: 8, Entries: []int{60, 13}, ExtraWidth: 5},
	{Name: "own pairs, widths beyond the entries", Rows: 4, Heads: 4, Dim: 8, Entries: []int{6, 300}, Own: true, ExtraWidth: 37},
	{Name: "own pairs beyond a tile", Rows: 130, Heads: 2, Dim: 8, Entries: []int{1030, 1}, Own: true},
	{Name: "own pairs, one past beyond two tiles", Rows: 32, Heads: 4, Dim: 16, Entries: []int{12, 1030}, Own: true},
}

// BoundedShapes have soft caps and sinks.
var BoundedShapes = []AttendShape{
	{Name: "sinks, one row", Rows: 1, Heads: 4, Dim: 8, Entries: []int{19, 7}, Sinks: 1},
	{Name: "sinks, GQA", Rows: 9, Heads: 6, Dim: 16, Entries: []int{40, 33}, Sinks: 1},
	{Name: "sinks far above the logits", Rows: 5, Heads: 4, Dim: 8, Entries: []int{30, 30}, Sinks: 300, Tol: 1e-4},
	{Name: "sinks and a window across tiles", Rows: 70, Heads: 2, Dim: 8, Entries: []int{1300}, Window: 530, Sinks: 2},
	{Name: "sinks, own pairs", Rows: 8, Heads: 4, Dim: 16, Entries: []int{30, 0}, Own: true, Sinks: 2},
	{Name: "sinks, own pairs, window, evicted", Rows: 12, Heads: 6, Dim: 8, Entries: []int{50, 0, 600}, Own: true, Window: 40, Evicted: true, Sinks: 1},
	{Name: "soft cap, one row", Rows: 1, Heads: 4, Dim: 8, Entries: []int{19, 7}, Logits: 8, SoftCap: 5},
	{Name: "soft cap, rows beyond a tile", Rows: 140, Heads: 2, Dim: 8, Entries: []int{150, 600}, Logits: 40, SoftCap: 20, Tol: 1e-4},
	{Name: "soft cap that nothing reaches", Rows: 6, Heads: 4, Dim: 8, Entries: []int{30, 31}, SoftCap: 5000},
	{Name: "soft cap, own pairs", Rows: 8, Heads: 4, Dim: 16, Entries: []int{30, 30}, Own: true, Logits: 8, SoftCap: 5},
	{Name: "soft cap, own pairs, window, evicted", Rows: 12, Heads: 6, Dim: 8, Entries: []int{50, 0, 600}, Own: true, Window: 40, Evicted: true, Logits: 8, SoftCap: 5},
	{Name: "soft cap and sinks, own pairs beyond a tile", Rows: 130, Heads: 2, Dim: 8, Entries: []int{1030, 1}, Own: true, Logits: 8, SoftCap: 5, Sinks: 1},
	{Name: "soft cap and sinks", Rows: 33, Heads: 4, Dim: 8, Entries: []int{1100, 200}, Logits: 8, SoftCap: 5, Sinks: 1, ExtraWidth: 3},
}

// BiasedShapes have biases of all entries or of the first ones, for backends that take some.
var BiasedShapes = []AttendShape{
	{Name: "biases, one row", Rows: 1, Heads: 6, Dim: 16, Entries: []int{1, 40, 7}, Biased: 40},
	{Name: "biases of the first entries", Rows: 9, Heads: 4, Dim: 8, Entries: []int{40, 12}, Biased: 20},
	{Name: "biases across tiles", Rows: 33, Heads: 4, Dim: 8, Entries: []int{1100, 200}, Biased: 700, ExtraWidth: 3},
	{Name: "biases, one row, entries beyond a tile", Rows: 1, Heads: 4, Dim: 8, Entries: []int{1700, 513}, Biased: 600},
	{Name: "biases, rows beyond a tile", Rows: 150, Heads: 2, Dim: 16, Entries: []int{151, 300}, Biased: 151},
	{Name: "biases, own pairs, one past empty", Rows: 8, Heads: 6, Dim: 8, Entries: []int{0, 3, 44}, Own: true, Biased: 30},
	{Name: "biases, soft cap and sinks", Rows: 6, Heads: 4, Dim: 8, Entries: []int{30, 600}, Logits: 8, SoftCap: 5, Sinks: 1, Biased: 520},
	{Name: "biases, window, evicted", Rows: 12, Heads: 6, Dim: 8, Entries: []int{50, 13, 24}, Window: 20, Evicted: true, Biased: 30},
}

// mostQueries bounds the rows of random shapes times their heads: many tiles of any backend,
// in a time that does not lie in the few shapes that have most of everything.
const mostQueries = 480

// RandomShapes are further shapes.
func RandomShapes(n int) []AttendShape {
	rng := rand.New(rand.NewPCG(11, 13))
	var out []AttendShape
	for i := range n {
		s := AttendShape{Rows: 1 + rng.IntN(70), Dim: 2 * (1 + rng.IntN(20)), Own: rng.IntN(2) == 0, ExtraWidth: rng.IntN(4)}
		kvHeads := 1 + rng.IntN(4)
		s.Heads = kvHeads * (1 + rng.IntN(5))
		s.Rows = min(s.Rows, mostQueries/s.Heads)
		for range kvHeads {
			s.Entries = append(s.Entries, rng.IntN(180))
		}
		if !s.Own {
			for h := range s.Entries {
				s.Entries[h] += s.Rows
			}
		}
		if i%3 == 0 {
			s.Window, s.Evicted = 1+rng.IntN(100), true
		}
		s.Name = fmt.Sprintf("random %d: rows=%d/heads=%d/dim=%d/entries=%v/own=%v/window=%d", i, s.Rows, s.Heads, s.Dim, s.Entries, s.Own, s.Window)
		out = append(out, s)
	}
	return out
}

// Attend draws the operands. Past lies in larger tensors, as in a cache, whose
// unused part is not clean.
func (s AttendShape) Attend(d Device, rng *rand.Rand) *kernels.Attend {
	scale := 1.0
	if s.Logits > 0 {
		scale = math.Sqrt(s.Logits)
	}
	kvHeads := len(s.Entries)
	a := &kernels.Attend{Q: d.Tensor(Random(rng, s.Rows*s.Heads*s.Dim, scale), s.Rows, s.Heads, s.Dim), Scale: 1 / math.Sqrt(float64(s.Dim))}
	for _, n := range s.Entries {
		spare := func() *kernels.Tensor {
			t := d.Garbage(n+5, s.Dim)
			d.B.Copy(t.Rows(0, n), d.Tensor(Random(rng, n*s.Dim, scale), n, s.Dim))
			return t.Rows(0, n)
		}
		a.Past = append(a.Past, kernels.KV{K: spare(), V: spare()})
	}
	if s.Own {
		a.K = d.Tensor(Random(rng, s.Rows*kvHeads*s.Dim, scale), s.Rows, kvHeads, s.Dim)
		a.V = d.Tensor(Random(rng, s.Rows*kvHeads*s.Dim, scale), s.Rows, kvHeads, s.Dim)
	}
	if s.Window > 0 {
		s.place(a, rng)
	}
	if a.SoftCap = s.SoftCap; s.Sinks > 0 {
		a.Sinks = d.Tensor(Random(rng, s.Heads, s.Sinks), s.Heads)
	}
	for g := range a.Past {
		if n := min(s.Biased, s.Entries[g]); n > 0 {
			a.Past[g].Bias = d.Tensor(Random(rng, n, 2), n)
		}
	}
	return a
}

// place gives rows and entries positions.
func (s AttendShape) place(a *kernels.Attend, rng *rand.Rand) {
	a.Window = s.Window
	next := slices.Max(s.Entries) // of the rows, at first of the entries that follow them
	if s.Evicted {
		next *= 3
	}
	for g, n := range s.Entries {
		if !s.Evicted { // positions are indices, which need not be said
			continue
		}
		pos, at := make([]int32, n), next
		for i := n - 1; i >= 0; i-- {
			if at--; s.Own || n-i > s.Rows {
				at -= rng.IntN(3)
			}
			pos[i] = int32(at)
		}
		a.Past[g].Positions = pos
	}
	if !s.Own {
		next -= s.Rows
	}
	for r := range s.Rows {
		a.Positions = append(a.Positions, int32(next+r))
	}
}

// Unwritten marks columns that a kernel has to leave alone.
const Unwritten = -12345

// Observe runs Attention and ObservedScores.
func (s AttendShape) Observe(d Device, a *kernels.Attend) (out, lse, scores *kernels.Tensor) {
	out, lse = d.Garbage(s.Rows, s.Heads*s.Dim), d.Garbage(s.Heads, s.Rows)
	d.B.Attention(out, lse, a)
	scores = d.Garbage(s.Heads, slices.Max(s.Entries)+s.ExtraWidth)
	d.B.Fill(scores, Unwritten)
	d.B.ObservedScores(scores, lse, a)
	return out, lse, scores
}

// AttentionCases are attention, observation and their gradient.
func AttentionCases(shapes []AttendShape) []Conformance {
	var cases []Conformance
	for _, s := range shapes {
		cases = append(cases, Conformance{Op: "Attention", Name: s.Name, tol: s.Tol, run: func(d Device, rng *rand.Rand) []Output {
			a := s.Attend(d, rng)
			out, lse, _ := s.Observe(d, a)
			onlyLSE, onlyOut := d.Garbage(s.Heads, s.Rows), d.Garbage(s.Rows, s.Heads*s.Dim)
			d.B.Attention(onlyOut, nil, a)
			a.V = nil // not needed where no output is asked for
			d.B.Attention(nil, onlyLSE, a)
			return []Output{{Name: "out", Values: out.Float64s()}, {"lse", lse.Float64s(), s.Logits + 1},
				{Name: "out alone", Values: onlyOut.Float64s()}, {"lse alone", onlyLSE.Float64s(), s.Logits + 1}}
		}}, Conformance{Op: "ObservedScores", Name: s.Name, tol: s.Tol, run: func(d Device, rng *rand.Rand) []Output {
			a := s.Attend(d, rng)
			_, _, scores := s.Observe(d, a)
			return []Output{{"logScore", scores.Float64s(), s.Logits + 1}}
		}}, Conformance{Op: "ObservedPeaks", Name: s.Name, tol: s.Tol, run: func(d Device, rng *rand.Rand) []Output {
			a := s.Attend(d, rng)
			_, lse, scores := s.Observe(d, a)
			d.B.ObservedPeaks(scores, lse, a, d.B)
			return []Output{{"logScore", scores.Float64s(), s.Logits + 1}}
		}}, Conformance{Op: "ObserveAttention", Name: s.Name, tol: s.Tol, run: func(d Device, rng *rand.Rand) []Output {
			a := s.Attend(d, rng)
			var outs []Output
			for _, out := range []*kernels.Tensor{d.Garbage(s.Rows, s.Heads*s.Dim), nil} {
				lse, scores := d.Garbage(s.Heads, s.Rows), d.Garbage(s.Heads, slices.Max(s.Entries)+s.ExtraWidth)
				d.B.Fill(scores, Unwritten)
				if out == nil {
					a.V = nil // not needed where no output is asked for
				}
				d.B.ObserveAttention(out, lse, scores, a)
				outs = append(outs, Output{"lse", lse.Float64s(), s.Logits + 1}, Output{"logScore", scores.Float64s(), s.Logits + 1})
				if out != nil {
					outs = append(outs, Output{Name: "out", Values: out.Float64s()})
				}
			}
			return outs
		}})
		if !s.Own || s.Biased > 0 { // which have no gradient
			continue
		}
		for _, v := range []struct {
			name          string
			out, logScore bool
		}{{"dOut", true, false}, {"dLogScore", false, true}, {"both", true, true}, {"neither", false, false}} {
			cases = append(cases, Conformance{Op: "AttentionGrad", Name: s.Name + ", " + v.name, tol: max(s.Tol, 3e-5), run: func(d Device, rng *rand.Rand) []Output {
				a := s.Attend(d, rng)
				dOut, dScore := s.Gradients(d, rng, v.out, v.logScore)
				return s.Grad(d, a, dOut, dScore)
			}}, Conformance{Op: "AttentionGrad", Name: s.Name + ", " + v.name + ", kept", tol: max(s.Tol, 3e-5), run: func(d Device, rng *rand.Rand) []Output {
				a := s.Attend(d, rng)
				dOut, dScore := s.Gradients(d, rng, v.out, v.logScore)
				a.Kept = new(kernels.Kept)
				for range 2 { // its memory is used again
					lse, scores := d.Garbage(s.Heads, s.Rows), d.Garbage(s.Heads, slices.Max(s.Entries)+s.ExtraWidth)
					d.B.ObserveAttention(d.Garbage(s.Rows, s.Heads*s.Dim), lse, scores, a)
				}
				return s.Grad(d, a, dOut, dScore)
			}})
		}
	}
	return cases
}

// Gradients draws upstream gradients; columns past a head's entries are not clean.
func (s AttendShape) Gradients(d Device, rng *rand.Rand, out, logScore bool) (dOut, dScore *kernels.Tensor) {
	if out {
		dOut = d.Tensor(Random(rng, s.Rows*s.Heads*s.Dim, 1), s.Rows, s.Heads*s.Dim)
	}
	if logScore {
		width := slices.Max(s.Entries) + s.ExtraWidth
		values := Random(rng, s.Heads*width, 1)
		for h := range s.Heads {
			for j := s.Entries[h/(s.Heads/len(s.Entries))]; j < width; j++ {
				values[h*width+j] = math.NaN()
			}
		}
		dScore = d.Tensor(values, s.Heads, width)
	}
	return dOut, dScore
}

// Grad runs AttentionGrad on what the forward operations gave.
func (s AttendShape) Grad(d Device, a *kernels.Attend, dOut, dScore *kernels.Tensor) []Output {
	kvHeads := len(s.Entries)
	out, lse, scores := s.Observe(d, a)
	dq, dk := d.Garbage(s.Rows, s.Heads, s.Dim), d.Garbage(s.Rows, kvHeads, s.Dim)
	var dv *kernels.Tensor
	if dOut != nil || s.Rows%2 == 0 { // it may be asked for although it is zero
		dv = d.Garbage(s.Rows, kvHeads, s.Dim)
	}
	if dOut == nil {
		out, a.V = nil, nil
	}
	d.B.AttentionGrad(dq, dk, dv, a, out, lse, scores, dOut, dScore)
	// Where the softmax is one-hot the gradient vanishes, but its terms do not.
	result := func(name string, t *kernels.Tensor) Output {
		values := t.Float64s()
		return Output{name, values, max(1, Magnitude(values))}
	}
	results := []Output{result("dq", dq), result("dk", dk)}
	if dv != nil {
		results = append(results, result("dv", dv))
	}
	return results
}

// Halved rounds the past of a to bf16: in bf16 tensors for a device, and the same
// numbers in the compute type for the reference.
func Halved(d Device, a *kernels.Attend, bf16 bool) *kernels.Attend {
	return HeldIn(d, a, kernels.BF16, bf16)
}

// HeldIn rounds the past of a to a type: in tensors of that, or the same numbers in the compute type.
func HeldIn(d Device, a *kernels.Attend, stored kernels.DType, so bool) *kernels.Attend {
	h := *a
	h.Past = slices.Clone(a.Past)
	convert := func(t *kernels.Tensor, stored kernels.DType) *kernels.Tensor {
		narrow := d.B.Alloc(stored, t.Shape...)
		kernels.Convert(narrow, t)
		if so {
			return narrow
		}
		wide := d.B.Alloc(d.B.Compute(), t.Shape...)
		kernels.Convert(wide, narrow)
		return wide
	}
	for g, kv := range a.Past {
		h.Past[g].K, h.Past[g].V = convert(kv.K, stored), convert(kv.V, stored.OfValues())
	}
	return &h
}
