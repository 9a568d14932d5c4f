//go:build gpu && linux && amd64

package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
)

// plainObserved is ObserveAttention in float64, but that round is applied to queries, own
// keys and values, and the probabilities that weigh values.
func plainObserved(a *kernels.Attend, width int, round func(float64) float64) (out, lse, scores []float64) {
	rows, heads, dim := a.Rows(), a.Heads(), a.HeadDim()
	rounded := func(t *kernels.Tensor) []float64 {
		if t == nil {
			return nil
		}
		v := t.Float64s()
		for i := range v {
			v[i] = round(v[i])
		}
		return v
	}
	q, ownK, ownV := rounded(a.Q), rounded(a.K), rounded(a.V)
	out, lse, scores = make([]float64, rows*heads*dim), make([]float64, heads*rows), make([]float64, heads*width)
	for i := range scores {
		scores[i] = unwritten
	}
	for h := range heads {
		g := h / a.Group()
		k, v := a.Past[g].K.Float64s(), a.Past[g].V.Float64s()
		n := a.Past[g].Entries()
		logs := make([][]float64, n) // of the rows' probabilities
		for r := range rows {
			type pair struct {
				logit float64
				value []float64
				entry int
			}
			var pairs []pair
			query, top := q[(r*heads+h)*dim:][:dim], math.Inf(-1)
			see := func(key, value []float64, entry int) {
				x := a.Scale * innerProduct(query, key)
				top = max(top, x)
				pairs = append(pairs, pair{x, value, entry})
			}
			from, to := kernels.Visible(a, g, r)
			for j := from; j < to; j++ {
				see(k[j*dim:][:dim], v[j*dim:][:dim], j)
			}
			if a.K != nil {
				from, to := kernels.VisibleOwn(a, r)
				for j := from; j < to; j++ {
					at := (j*len(a.Past) + g) * dim
					see(ownK[at:][:dim], ownV[at:][:dim], -1)
				}
			}
			sum, o := 0.0, out[(r*heads+h)*dim:][:dim]
			for _, p := range pairs {
				e := math.Exp(p.logit - top)
				sum += e
				for i, x := range p.value {
					o[i] += round(e) * x
				}
			}
			for i := range o {
				o[i] /= sum
			}
			z := top + math.Log(sum)
			lse[h*rows+r] = z
			for _, p := range pairs {
				if p.entry >= 0 {
					logs[p.entry] = append(logs[p.entry], p.logit-z)
				}
			}
		}
		for j, x := range logs {
			s := math.Inf(-1)
			if len(x) > 0 {
				top, sum := slices.Max(x), 0.0
				for _, v := range x {
					sum += math.Exp(v - top)
				}
				s = top + math.Log(sum) - math.Log(float64(rows))
			}
			scores[h*width+j] = s
		}
	}
	return out, lse, scores
}

// TestCUDAObserveRounded: many observed rows, own pairs or not, lose at most twice what a
// plain implementation does that rounds what these kernels round; all that rows see of the
// past has together the probability 1; and the same twice.
func TestCUDAObserveRounded(t *testing.T) {
	d, exact := openCUDA(t), open(t, "reference64")
	defer kernels.SetExactWork(0)()
	shapes := []attendShape{
		{name: "a response", rows: 70, heads: 4, dim: 128, entries: []int{220}, own: true},
		{name: "ragged, tail of rows", rows: 65, heads: 4, dim: 64, entries: []int{301, 128}, own: true, extraWidth: 3},
		{name: "one past empty", rows: 67, heads: 2, dim: 8, entries: []int{0, 5}, own: true},
		{name: "head between widths", rows: 71, heads: 2, dim: 72, entries: []int{200}, own: true},
		{name: "prompt's last rows", rows: 130, heads: 2, dim: 16, entries: []int{300, 131}},
		{name: "rows are the whole past", rows: 97, heads: 1, dim: 40, entries: []int{97}},
		{name: "window, evicted, own", rows: 80, heads: 4, dim: 16, entries: []int{500, 0}, own: true, window: 90, evicted: true},
		{name: "window within the own pairs", rows: 100, heads: 2, dim: 16, entries: []int{300}, own: true, window: 30},
		{name: "window of a prompt", rows: 90, heads: 2, dim: 16, entries: []int{700}, window: 120},
		{name: "sharp logits", rows: 70, heads: 2, dim: 16, entries: []int{90, 90}, own: true, logits: 40},
		{name: "logits far apart", rows: 66, heads: 2, dim: 16, entries: []int{70}, own: true, logits: 300},
		{name: "extreme logits", rows: 140, heads: 2, dim: 8, entries: []int{150, 600}, logits: 1e4},
	}
	rng := rand.New(rand.NewPCG(8, 88))
	for i := range 4 {
		s := attendShape{rows: 65 + rng.IntN(30), dim: 8 * (1 + rng.IntN(12)), own: i%2 == 0, extraWidth: rng.IntN(4)}
		kvHeads := 1 + rng.IntN(2)
		s.heads = kvHeads * (1 + rng.IntN(3))
		for range kvHeads {
			n := rng.IntN(300)
			if !s.own {
				n += s.rows
			}
			s.entries = append(s.entries, n)
		}
		if i == 3 {
			s.window, s.evicted = 1+rng.IntN(200), true
		}
		s.name = fmt.Sprintf("random %d: rows=%d/heads=%d/dim=%d/entries=%v/own=%v/window=%d", i, s.rows, s.heads, s.dim, s.entries, s.own, s.window)
		shapes = append(shapes, s)
	}
	bf16 := func(v float64) float64 { return float64(kernels.BF16ToF32(kernels.F32ToBF16(float32(v)))) }
	least := 0.0
	for _, s := range shapes {
		width := max(slices.Max(s.entries), 1) + s.extraWidth
		e := halved(exact, s.attend(exact, rand.New(rand.NewPCG(5, 6))), false)
		wants, plains := [3][]float64{}, [3][]float64{}
		wants[0], wants[1], wants[2] = plainObserved(e, width, func(v float64) float64 { return v })
		plains[0], plains[1], plains[2] = plainObserved(e, width, bf16)
		observe := func(values bool) (outs [3][]float64) {
			a := halved(d, s.attend(d, rand.New(rand.NewPCG(5, 6))), true)
			var out *kernels.Tensor
			if values {
				out = d.garbage(s.rows, s.heads*s.dim)
			} else {
				a.V = nil
			}
			lse, scores := d.garbage(s.heads, s.rows), d.garbage(s.heads, width)
			d.b.Fill(scores, unwritten)
			d.b.ObserveAttention(out, lse, scores, a)
			if kernel := fmt.Sprint("rounded_scores_", max(64, observeWidth(s.dim))); !kernels.Launched(d.b, kernel) {
				t.Errorf("%s: %s did not run", s.name, kernel)
			}
			only := d.garbage(s.heads, width)
			d.b.Fill(only, unwritten)
			d.b.ObservedScores(only, lse, a)
			compare.Close(t, s.name+": scores alone", only.Float64s(), scores.Float64s(), 0, compare.EqualInf())
			if values {
				outs[0] = out.Float64s()
			}
			outs[1], outs[2] = lse.Float64s(), scores.Float64s()
			return outs
		}
		got, again, without := observe(true), observe(true), observe(false)
		for i, name := range []string{"out", "lse", "scores"} {
			floor := compare.Floor(s.logits + 1)
			if i == 0 {
				floor = compare.Floor(magnitude(wants[0]))
			} else {
				// lse alone is the portable kernel's work
				compare.Close(t, s.name+": "+name+" without an output", without[i], got[i], 1e-5, floor, compare.EqualInf())
			}
			limit := compare.Compare(plains[i], wants[i], floor, compare.EqualInf()).Err
			compare.Close(t, s.name+": "+name, got[i], wants[i], 2*limit+1e-5, floor, compare.EqualInf())
			compare.Close(t, s.name+": "+name+" again", again[i], got[i], 0, compare.EqualInf())
			least = max(least, compare.Compare(got[i], wants[i], floor, compare.EqualInf()).Err)
		}
		learned := halved(d, s.attend(d, rand.New(rand.NewPCG(5, 6))), true)
		learned.Kept = new(kernels.Kept)
		d.b.ObserveAttention(nil, d.garbage(s.heads, s.rows), d.garbage(s.heads, width), learned)
		if kernels.Launched(d.b, fmt.Sprint("rounded_scores_", max(64, observeWidth(s.dim)))) {
			t.Errorf("%s: rows whose gradient follows are rounded", s.name)
		}
		// Against the rounded numbers themselves scores are as exact as float32.
		compare.Close(t, s.name+": scores of rounded queries", got[2], plains[2], 2e-5+1e-6*s.logits, compare.Floor(s.logits+1), compare.EqualInf())
		for h := range s.heads {
			sum := 0.0
			for _, v := range got[2][h*width:][:s.entries[h/(s.heads/len(s.entries))]] {
				sum += math.Exp(v)
			}
			if !s.own && math.Abs(sum-1) > 1e-4+5e-7*s.logits {
				t.Errorf("%s: probabilities of head %d sum to %v", s.name, h, sum)
			}
		}
	}
	if least < 1e-4 {
		t.Errorf("the largest error is %v: nothing was rounded", least)
	}
}

func innerProduct(x, y []float64) (sum float64) {
	for i, v := range x {
		sum += v * y[i]
	}
	return sum
}
