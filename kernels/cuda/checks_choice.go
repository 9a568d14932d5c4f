//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"glimpse/kernels"
)

func checkTraining(p *probe) {
	const m, in, out, rank = 5, 40, 24, 4
	for _, d := range []kernels.DType{kernels.F32, kernels.BF16} {
		p.compare(fmt.Sprintf("low-rank updates of %s weights", d), 1e-4, func(s *side) []*kernels.Tensor {
			x, w, a, up := s.random(1, m, in), s.weight(d, out, in), s.random(1, rank, in), s.random(1, out, rank)
			y, low, dy := s.empty(m, out), s.empty(m, rank), s.random(1, m, out)
			dx, dLow, da, dup := s.empty(m, in), s.empty(m, rank), s.empty(rank, in), s.empty(out, rank)
			s.b.LowRank(y, low, x, w, nil, a, up, 0.5)
			s.b.LowRankGrad(dx, dLow, da, dup, dy, x, low, w, a, up, 0.5)
			return []*kernels.Tensor{y, low, dx, dLow, da, dup}
		})
	}
	p.compare("all tensors", 1e-4, func(s *side) []*kernels.Tensor {
		var lists [4][]*kernels.Tensor // parameters, gradients and two moments
		for i := range lists {
			lists[i] = []*kernels.Tensor{s.random(1, 3, 7), s.random(1, 50)}
		}
		s.b.MultiFill(lists[3], 0.25)
		s.b.MultiAxpy(lists[1], 2, lists[0])
		sum := s.b.Alloc(s.b.Compute(), 1)
		s.b.Fill(sum, s.b.MultiSumSquares(0, lists[1]))
		s.b.MultiAdamW(lists[0], lists[1], lists[2], lists[3], kernels.AdamWStep{Beta1: 0.9, Beta2: 0.99, Correct1: 1, Correct2: 1, Epsilon: 1e-8, LearningRate: 0.1, WeightDecay: 0.01, GradScale: 1})
		x, y := s.random(1, 2, 3, 4), s.empty(2, 3, 4)
		s.b.Rotate(y, x, []int32{1, 3}, kernels.NewRoPETable(s.b, []float32{1, 0.25}, 8, 1), false)
		return append(slices.Concat(lists[:]...), sum, y)
	})
}

func checkPairCopies(p *probe) {
	const rows, heads, dim = 3, 2, 8
	for _, d := range []kernels.DType{kernels.F32, kernels.BF16} {
		p.compare(d.String()+" pairs", 0, func(s *side) []*kernels.Tensor {
			k, v := s.random(1, rows, heads, dim), s.random(1, rows, heads, dim)
			dst := s.past(d, heads, rows, dim)
			s.b.CopyPairs(dst, k, v)
			var out []*kernels.Tensor
			for _, kv := range dst {
				out = append(out, kv.K, kv.V)
			}
			return out
		})
	}
}

// checkSteps is a step of one sequence as it is recorded: its pair is appended, and its row
// attends.
func checkSteps(p *probe) {
	const heads, kvHeads, dim, entries = 4, 2, 16, 20
	p.compare("a step", 1e-4, func(s *side) []*kernels.Tensor {
		q, k, v := s.random(1, 1, heads, dim), s.random(1, 1, kvHeads, dim), s.random(1, 1, kvHeads, dim)
		past, out := s.past(kernels.F32, kvHeads, entries+1, dim), s.empty(1, heads*dim)
		if b, ok := s.b.(*cuda); ok {
			steps, before := b.NewSteps(1, 1, kvHeads), make([]kernels.KV, kvHeads)
			for g, kv := range past {
				before[g] = kernels.KV{K: kv.K.Rows(0, entries), V: kv.V.Rows(0, entries)}
			}
			b.SetSteps(steps, 0, entries, [][]kernels.KV{before})
			b.StartStep(steps, 1)
			b.StepAttention(out, q, k, v, steps, kernels.StepLayer{Longest: entries + 1, Pairs: kernels.F32, Scale: 0.25})
		} else {
			for g, kv := range past {
				s.b.CopyHead(kv.K.Rows(entries, entries+1), k, g)
				s.b.CopyHead(kv.V.Rows(entries, entries+1), v, g)
			}
			s.b.Attention(out, nil, &kernels.Attend{Q: q, Past: past, Scale: 0.25})
		}
		return []*kernels.Tensor{out, past[0].K, past[1].V}
	})
}

// checkSample draws from 0.1, 0.6 and 0.3 among tokens that are next to impossible.
func checkSample(p *probe) {
	const vocab = 3000
	row := kernels.NewTensor(kernels.F32, 1, vocab)
	for i := range row.F32() {
		row.F32()[i] = -100
	}
	for id, share := range map[int]float64{5: 0.1, 2900: 0.6, 77: 0.3} {
		row.F32()[id] = float32(math.Log(share))
	}
	logits := p.b.Alloc(kernels.F32, 1, vocab)
	kernels.Convert(logits, row)
	for _, c := range []struct {
		d    kernels.Draw
		want int32
	}{
		{kernels.Draw{}, 2900}, {kernels.Draw{Temperature: 1, U: 0.5}, 2900}, {kernels.Draw{Temperature: 1, U: 0.75}, 77}, {kernels.Draw{Temperature: 1, U: 0.95}, 5},
		{kernels.Draw{Temperature: 1, TopK: 2, U: 0.95}, 77}, {kernels.Draw{Temperature: 1, TopP: 0.5, U: 0.95}, 2900},
	} {
		if got := p.b.Draw(logits, []kernels.Draw{c.d}); p.err == nil && got[0] != c.want {
			p.err = fmt.Errorf("draw %+v: token %d, want %d", c.d, got[0], c.want)
		}
	}
}

// tensor is host data on the device.
func (p *probe) tensor(d kernels.DType, data []float64, shape ...int) *kernels.Tensor {
	t := p.b.Alloc(d, shape...)
	host := kernels.NewTensor(d, shape...)
	kernels.Convert(host, kernels.FromF64(data, shape...))
	kernels.Convert(t, host)
	return t
}

func (p *probe) indices(what string, got [][]int32, want [][]int32) {
	if p.err == nil && !slices.EqualFunc(got, want, slices.Equal[[]int32]) {
		p.err = fmt.Errorf("%s: %v, want %v", what, got, want)
	}
}

func randomNumbers(rng *rand.Rand, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = float64(float32(2*rng.Float64() - 1))
	}
	return out
}

func checkSelection(p *probe) {
	const heads, width, dim, long = 2, 700, 8, leastToSplit + 90
	rng := rand.New(rand.NewPCG(8, 90))
	many := randomNumbers(rng, long)
	for i := range many {
		many[i] = math.Round(20*many[i]) / 20
	}
	p.indices("selection from several blocks", p.b.Select(p.tensor(kernels.F32, many, 1, long), []int{long}, []int{61}, 0, 0).Indices(), [][]int32{kernels.TopK(many, 61)})
	scores, entries, budgets := randomNumbers(rng, heads*width), []int{width, 300}, []int{90, 41}
	for i := range scores {
		scores[i] = math.Round(20*scores[i]) / 20 // with ties
	}
	s := p.b.Select(p.tensor(kernels.F32, scores, heads, width), entries, budgets, 0, 0)
	var want [][]int32
	for h, n := range entries {
		want = append(want, kernels.TopK(scores[h*width:][:n], budgets[h]))
	}
	p.indices("selection", s.Indices(), want)
	var src, dst []kernels.KV
	var rows [][]float64
	for range heads {
		k := randomNumbers(rng, width*dim)
		rows = append(rows, k)
		src = append(src, kernels.KV{K: p.tensor(kernels.F32, k, width, dim), V: p.tensor(kernels.F32, k, width, dim)})
		dst = append(dst, kernels.KV{K: p.b.Alloc(kernels.F32, width, dim), V: p.b.Alloc(kernels.F32, width, dim)})
	}
	if p.err != nil {
		return // its indices may lie anywhere
	}
	p.b.Compact(dst, src, s)
	for h, kept := range want {
		var picked []float64
		for _, i := range kept {
			picked = append(picked, rows[h][int(i)*dim:][:dim]...)
		}
		p.equal("selected keys", 0, dst[h].K.Rows(0, len(kept)).Float64s(), picked)
		p.equal("selected values", 0, dst[h].V.Rows(0, len(kept)).Float64s(), picked)
	}
}

func checkSparse(p *probe) {
	const heads, entries, dim, size, want = 2, 90, 8, 16, 40
	rng := rand.New(rand.NewPCG(9, 90))
	const pages = (entries + size - 1) / size
	all := &kernels.PageHeads{}
	var keys []kernels.KV
	bounds := make([][]float64, heads)
	for h := range heads {
		k := randomNumbers(rng, entries*dim)
		t := p.tensor(kernels.F32, k, entries, dim)
		keys = append(keys, kernels.KV{K: t, V: t})
		all.Heads = append(all.Heads, kernels.PageHead{Entries: entries, Want: want, Size: size, Bounds: p.b.Alloc(kernels.F32, 2, dim, pages)})
		for side := range 2 {
			for d := range dim {
				for page := range pages {
					best := math.Inf(1 - 2*side)
					for i := page * size; i < min(entries, (page+1)*size); i++ {
						if v := k[i*dim+d]; side == 0 && v < best || side == 1 && v > best {
							best = v
						}
					}
					bounds[h] = append(bounds[h], best)
				}
			}
		}
	}
	p.b.PageBounds(all, keys, make([]int, heads))
	for h := range heads {
		p.equal("bounds of pages", 0, all.Heads[h].Bounds.Float64s(), bounds[h])
	}
	scores := []float64{0.1, 0.5, 0.2, 0.9, 0.3, 0, 0.7, 0.1, 0.6, 0.2, 0.3, 0.1} // 3, 1 and 8 of page 4; 0, 2 and 8 of page 4
	ids := p.b.Alloc(kernels.I32, heads, want)
	s := p.b.SelectPages(ids, p.tensor(kernels.F32, scores, heads, pages), all)
	var chosen [][]int32
	for _, best := range [][]int32{{1, 3, 4}, {0, 2, 4}} {
		var list []int32
		for i, page := range best {
			n := int32(size)
			if i == 2 { // the worst is cut
				n = want - 2*size
			}
			for j := range n {
				list = append(list, page*size+j)
			}
		}
		chosen = append(chosen, list)
	}
	p.indices("pages", s.Indices(), chosen)
}

func checkStartedMoments(p *probe) {
	const heads, n = 2, 40
	rng := rand.New(rand.NewPCG(10, 90))
	means, spreads := randomNumbers(rng, heads*n), randomNumbers(rng, heads*n)
	want := make([]float64, 3*heads*n)
	keep, seen := make([][]int32, heads), make([][]int32, heads)
	for i := range means {
		means[i], spreads[i] = math.Abs(means[i]), math.Abs(spreads[i])
		h, rows := i/n, i%7+1
		keep[h], seen[h] = append(keep[h], int32(i%n)), append(seen[h], int32(rows))
		want[i], want[heads*n+i] = float64(rows), float64(rows)*means[i]
		want[2*heads*n+i] = float64(rows) * (means[i]*means[i] + spreads[i]*spreads[i])
	}
	moments := p.b.Alloc(kernels.F64, 3, heads, n)
	p.b.StartMoments(moments, p.tensor(kernels.F32, means, heads, n), p.tensor(kernels.F32, spreads, heads, n), kernels.HostSelection(keep), seen)
	p.equal("moments", 1e-6, moments.Float64s(), want)
}

// checkMerge holds MergeEvicted against its formula.
func checkMerge(p *probe) {
	const entries, dim = 24, 8
	rng := rand.New(rand.NewPCG(11, 90))
	k, v := randomNumbers(rng, entries*dim), randomNumbers(rng, entries*dim)
	past := []kernels.KV{{K: p.tensor(kernels.F32, k, entries, dim), V: p.tensor(kernels.F32, v, entries, dim)}}
	var kept, evicted []int32
	for i := range int32(entries) {
		if i%3 == 0 {
			kept = append(kept, i)
		} else {
			evicted = append(evicted, i)
		}
	}
	dot := func(i, j int32) (sum float64) {
		for d := range int32(dim) {
			sum += k[i*dim+d] * k[j*dim+d]
		}
		return sum
	}
	nearest, similar, mean := make([]int32, len(evicted)), make([]float64, len(evicted)), 0.0
	for e, i := range evicted {
		similar[e] = math.Inf(-1)
		for _, j := range kept {
			if u := dot(i, j) / math.Sqrt(dot(i, i)*dot(j, j)); u > similar[e] {
				nearest[e], similar[e] = j, u
			}
		}
		mean += similar[e] / float64(len(evicted))
	}
	thresholds := p.b.MergeEvicted(past, kernels.HostSelection([][]int32{kept}))
	p.equal("threshold", 1e-5, thresholds.Float64s(), []float64{mean})
	for _, side := range []struct {
		x   []float64
		got *kernels.Tensor
	}{{k, past[0].K}, {v, past[0].V}} {
		want := slices.Clone(side.x)
		for _, j := range kept {
			weight := math.E
			for d := range int32(dim) {
				want[j*dim+d] *= math.E
			}
			for e, i := range evicted {
				if nearest[e] == j && similar[e] >= mean {
					weight += math.Exp(similar[e])
					for d := range int32(dim) {
						want[j*dim+d] += math.Exp(similar[e]) * side.x[i*dim+d]
					}
				}
			}
			for d := range int32(dim) {
				want[j*dim+d] /= weight
			}
		}
		all, got := side.got.Float64s(), []float64{}
		var rows []float64
		for _, j := range kept { // what is evicted may be anything
			got, rows = append(got, all[j*dim:][:dim]...), append(rows, want[j*dim:][:dim]...)
		}
		p.equal("merged pairs", 1e-4, got, rows)
	}
}
