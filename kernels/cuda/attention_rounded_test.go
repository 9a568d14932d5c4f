//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/cuda"
	"glimpse/kernels/formats"
	"glimpse/kernels/kernelstest"
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
		scores[i] = kernelstest.Unwritten
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
				x := bounded(a, a.Scale*innerProduct(query, key))
				top = max(top, x)
				pairs = append(pairs, pair{x, value, entry})
			}
			from, to := cuda.Visible(a, g, r)
			for j := from; j < to; j++ {
				see(k[j*dim:][:dim], v[j*dim:][:dim], j)
			}
			if a.K != nil {
				from, to := cuda.VisibleOwn(a, r)
				for j := from; j < to; j++ {
					at := (j*len(a.Past) + g) * dim
					see(ownK[at:][:dim], ownV[at:][:dim], -1)
				}
			}
			sum, o := sinkShare(a, h, top), out[(r*heads+h)*dim:][:dim]
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

// TestCUDAObserveBF16: many observed rows, own pairs or not, lose at most twice what a
// plain implementation does that rounds what these kernels round; all that rows see of the
// past has together the probability 1; and the same twice.
func TestCUDAObserveBF16(t *testing.T) {
	d, exact := openCUDA(t), kernelstest.Open(t, "reference64")
	defer cuda.SetExactWork(0)()
	shapes := []kernelstest.AttendShape{
		{Name: "a response", Rows: 70, Heads: 4, Dim: 128, Entries: []int{220}, Own: true},
		{Name: "ragged, tail of rows", Rows: 65, Heads: 4, Dim: 64, Entries: []int{301, 128}, Own: true, ExtraWidth: 3},
		{Name: "one past empty", Rows: 67, Heads: 2, Dim: 8, Entries: []int{0, 5}, Own: true},
		{Name: "head between widths", Rows: 71, Heads: 2, Dim: 72, Entries: []int{200}, Own: true},
		{Name: "prompt's last rows", Rows: 130, Heads: 2, Dim: 16, Entries: []int{300, 131}},
		{Name: "rows are the whole past", Rows: 97, Heads: 1, Dim: 40, Entries: []int{97}},
		{Name: "window, evicted, own", Rows: 80, Heads: 4, Dim: 16, Entries: []int{500, 0}, Own: true, Window: 90, Evicted: true},
		{Name: "window within the own pairs", Rows: 100, Heads: 2, Dim: 16, Entries: []int{300}, Own: true, Window: 30},
		{Name: "window of a prompt", Rows: 90, Heads: 2, Dim: 16, Entries: []int{700}, Window: 120},
		{Name: "sinks", Rows: 70, Heads: 4, Dim: 64, Entries: []int{220, 9}, Own: true, Sinks: 1},
		{Name: "sharp logits", Rows: 70, Heads: 2, Dim: 16, Entries: []int{90, 90}, Own: true, Logits: 40},
		{Name: "logits far apart", Rows: 66, Heads: 2, Dim: 16, Entries: []int{70}, Own: true, Logits: 300},
		{Name: "extreme logits", Rows: 140, Heads: 2, Dim: 8, Entries: []int{150, 600}, Logits: 1e4},
	}
	rng := rand.New(rand.NewPCG(8, 88))
	for i := range 4 {
		s := kernelstest.AttendShape{Rows: 65 + rng.IntN(30), Dim: 8 * (1 + rng.IntN(12)), Own: i%2 == 0, ExtraWidth: rng.IntN(4)}
		kvHeads := 1 + rng.IntN(2)
		s.Heads = kvHeads * (1 + rng.IntN(3))
		for range kvHeads {
			n := rng.IntN(300)
			if !s.Own {
				n += s.Rows
			}
			s.Entries = append(s.Entries, n)
		}
		if i == 3 {
			s.Window, s.Evicted = 1+rng.IntN(200), true
		}
		s.Name = fmt.Sprintf("random %d: rows=%d/heads=%d/dim=%d/entries=%v/own=%v/window=%d", i, s.Rows, s.Heads, s.Dim, s.Entries, s.Own, s.Window)
		shapes = append(shapes, s)
	}
	bf16 := func(v float64) float64 { return float64(formats.BF16ToF32(formats.F32ToBF16(float32(v)))) }
	least := 0.0
	for _, s := range shapes {
		width := max(slices.Max(s.Entries), 1) + s.ExtraWidth
		e := kernelstest.Halved(exact, s.Attend(exact, rand.New(rand.NewPCG(5, 6))), false)
		wants, plains := [3][]float64{}, [3][]float64{}
		wants[0], wants[1], wants[2] = plainObserved(e, width, func(v float64) float64 { return v })
		plains[0], plains[1], plains[2] = plainObserved(e, width, bf16)
		observe := func(values bool) (outs [3][]float64) {
			a := kernelstest.Halved(d, s.Attend(d, rand.New(rand.NewPCG(5, 6))), true)
			var out *kernels.Tensor
			if values {
				out = d.Garbage(s.Rows, s.Heads*s.Dim)
			} else {
				a.V = nil
			}
			lse, scores := d.Garbage(s.Heads, s.Rows), d.Garbage(s.Heads, width)
			d.B.Fill(scores, kernelstest.Unwritten)
			d.B.ObserveAttention(out, lse, scores, a)
			if kernel := fmt.Sprint("rounded_scores_", max(64, observeWidth(s.Dim))); !cuda.Launched(d.B, kernel) {
				t.Errorf("%s: %s did not run", s.Name, kernel)
			}
			only := d.Garbage(s.Heads, width)
			d.B.Fill(only, kernelstest.Unwritten)
			d.B.ObservedScores(only, lse, a)
			compare.Close(t, s.Name+": scores alone", only.Float64s(), scores.Float64s(), 0, compare.EqualInf())
			if values {
				outs[0] = out.Float64s()
			}
			outs[1], outs[2] = lse.Float64s(), scores.Float64s()
			return outs
		}
		got, again, without := observe(true), observe(true), observe(false)
		for i, name := range []string{"out", "lse", "scores"} {
			floor := compare.Floor(s.Logits + 1)
			if i == 0 {
				floor = compare.Floor(kernelstest.Magnitude(wants[0]))
			} else {
				// lse alone is the portable kernel's work
				compare.Close(t, s.Name+": "+name+" without an output", without[i], got[i], 1e-5, floor, compare.EqualInf())
			}
			limit := compare.Compare(plains[i], wants[i], floor, compare.EqualInf()).Err
			compare.Close(t, s.Name+": "+name, got[i], wants[i], 2*limit+1e-5, floor, compare.EqualInf())
			compare.Close(t, s.Name+": "+name+" again", again[i], got[i], 0, compare.EqualInf())
			least = max(least, compare.Compare(got[i], wants[i], floor, compare.EqualInf()).Err)
		}
		learned := kernelstest.Halved(d, s.Attend(d, rand.New(rand.NewPCG(5, 6))), true)
		learned.Kept = new(kernels.Kept)
		d.B.ObserveAttention(nil, d.Garbage(s.Heads, s.Rows), d.Garbage(s.Heads, width), learned)
		if cuda.Launched(d.B, fmt.Sprint("rounded_scores_", max(64, observeWidth(s.Dim)))) {
			t.Errorf("%s: rows whose gradient follows are rounded", s.Name)
		}
		// Against the rounded numbers themselves scores are as exact as float32.
		compare.Close(t, s.Name+": scores of rounded queries", got[2], plains[2], 2e-5+1e-6*s.Logits, compare.Floor(s.Logits+1), compare.EqualInf())
		for h := range s.Heads {
			sum := 0.0
			for _, v := range got[2][h*width:][:s.Entries[h/(s.Heads/len(s.Entries))]] {
				sum += math.Exp(v)
			}
			if !s.Own && math.Abs(sum-1) > 1e-4+5e-7*s.Logits {
				t.Errorf("%s: probabilities of head %d sum to %v", s.Name, h, sum)
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
