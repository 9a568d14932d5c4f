package runner

import (
	"math"
	"slices"

	"glimpse/internal/parallel"
	"glimpse/internal/simd"
	"glimpse/kernels"
	"glimpse/model"
)

// windows observes the last rows of a, in the sequence's last segment, unless that is done.
func (r *Runner) windows(s *segment, a *kernels.Attend) {
	o, rows := s.o, a.Rows()
	last := func(w int, peak bool) *kernels.Tensor {
		scores, _ := r.observeAttention(nil, rowsOfAttend(a, rows-min(w, rows), rows), peak, r.arena)
		return scores
	}
	for _, w := range s.observed.Windows[len(o.Windows):] {
		o.Windows = append(o.Windows, last(w, false))
	}
	for _, w := range s.observed.PeakWindows {
		o.PeakWindows = append(o.PeakWindows, last(w, true))
	}
}

// startQueries makes room for the queries and own keys of a sequence whose rows come in chunks.
func (r *Runner) startQueries(s *segment) {
	if !s.observed.Queries {
		return
	}
	c, o := &r.Model.Config, s.o
	kv := c.KV(o.Layer)
	o.Queries = []*kernels.Tensor{r.alloc(s.of, c.Heads, kv.Dim)}
	if c.KVLayer(o.Layer) == o.Layer {
		o.Keys = r.alloc(s.of, kv.Heads, kv.Dim)
	}
}

// keepQueries takes in the queries and own keys of a segment, as they are where it is the whole sequence; k is nil where the layer has none.
func (r *Runner) keepQueries(s *segment, q, k *kernels.Tensor) {
	o, from, to := s.o, s.before, s.before+s.Rows()
	if !s.observed.Queries {
		return
	}
	if s.Rows() == s.of {
		o.Queries, o.Keys = []*kernels.Tensor{q}, k
		return
	}
	r.on.Copy(o.Queries[0].Rows(from, to), q)
	if k != nil {
		r.on.Copy(o.Keys.Rows(from, to), k)
	}
}

// startAllRows makes room for the scores of all rows of a sequence on all entries that the
// layer will hold; no column is seen yet.
func (r *Runner) startAllRows(s *segment) {
	if !s.observed.AllRows {
		return
	}
	o := s.o
	o.AllRows = r.alloc(r.Model.Config.Heads, r.widthAfter(s))
	r.on.Fill(o.AllRows, math.Inf(-1))
	if s.observed.Squares {
		o.Squares = r.alloc(o.AllRows.Shape...)
		r.on.Fill(o.Squares, math.Inf(-1))
	}
}

// widthAfter is the most entries of a head that the layer will hold once all rows of a sequence are in.
func (r *Runner) widthAfter(s *segment) (width int) {
	layer := r.Model.Config.KVLayer(s.o.Layer)
	if s.of > 1 { // whose chunks add to the columns of those before
		s.cache.HoldWindow(layer)
	}
	for h := range s.cache.LayerKVHeads(layer) {
		width = max(width, s.cache.Entries(layer, h))
	}
	if layer == s.o.Layer { // the rows' own pairs are to come
		width += s.of
	}
	return width
}

// startGates makes room for the scores that gates give to the entries of a sequence, in the layer that holds them.
func (r *Runner) startGates(s *segment) {
	layer := s.o.Layer
	if len(s.observed.Gates) == 0 || r.Model.Config.KVLayer(layer) != layer {
		return
	}
	width := r.widthAfter(s)
	for range s.observed.Gates {
		scores := r.alloc(s.cache.LayerKVHeads(layer), width)
		r.on.Fill(scores, math.Inf(-1))
		s.o.Gates = append(s.o.Gates, scores)
	}
}

// gates scores the entries of rows h [rows, hidden] of a segment, which are the last that the cache holds.
func (r *Runner) gates(s *segment, h *kernels.Tensor) {
	for i, scores := range s.o.Gates {
		mark := r.arena.Mark()
		heads, width, rows := scores.Dim0(), scores.Width(), h.Dim0()
		own := r.alloc(heads, rows)
		s.observed.Gates[i].Score(r.Model, s.o.Layer, own, h, r.arena)
		to, from := scores.Reshape(scores.Len()), own.Reshape(own.Len())
		for g := range heads {
			end := g*width + s.cache.Entries(s.o.Layer, g)
			r.on.Copy(to.Rows(end-rows, end), from.Rows(g*rows, (g+1)*rows))
		}
		r.arena.Release(mark)
	}
}

// allRows merges the scores of a segment's rows into the scores of the rows before it.
func (r *Runner) allRows(s *segment, a *kernels.Attend, lse *kernels.Tensor) {
	o := s.o
	r.mergeRows(o.AllRows, a, lse, s.before)
	if o.Squares == nil {
		return
	}
	// The square of a probability is exp(2·logit − 2·lse): the same reduction of
	// doubled logits.
	b, twice, lse2 := r.on, *a, r.alloc(lse.Shape...)
	b.Add(lse2, lse, lse)
	twice.Scale *= 2
	twice.SoftCap *= 2
	r.mergeRows(o.Squares, &twice, lse2, s.before)
}

func (r *Runner) mergeRows(acc *kernels.Tensor, a *kernels.Attend, lse *kernels.Tensor, seen int) {
	b := r.on
	if seen == 0 {
		b.ObservedScores(acc, lse, a)
		return
	}
	scores := r.alloc(acc.Shape...)
	b.Fill(scores, math.Inf(-1))
	b.ObservedScores(scores, lse, a)
	b.MergeScores(acc, scores, float64(seen), float64(a.Rows()))
}

// observeProbe attends with the rows of a probe, out being nil or their output, and returns their scores and lse. h is what QProj
// has read of them.
func (r *Runner) observeProbe(s *segment, out *kernels.Tensor, a *kernels.Attend, h *kernels.Tensor) (scores, lse *kernels.Tensor) {
	if rows, ok := s.QueryRows.(model.RepeatedTokens); ok && (rows.Weighed || rows.Sinks < rows.From || rows.To < a.MostEntries()) {
		return r.observeRepetition(s, rows, out, a, h)
	}
	return r.observeAttention(out, a, s.peak, r.arena)
}

// observeAttention attends with rows a, out being nil or their output, and returns their scores, allocated by memory, and lse.
func (r *Runner) observeAttention(out *kernels.Tensor, a *kernels.Attend, peak bool, memory kernels.Allocator) (scores, lse *kernels.Tensor) {
	b := r.on
	lse = r.alloc(a.Heads(), a.Rows())
	if peak {
		b.Attention(out, lse, a)
		return r.peaks(a, lse), lse
	}
	scores = r.scores(a, memory)
	b.ObserveAttention(out, lse, scores, a)
	return scores, lse
}

// observeRepetition is observeProbe among some entries alone, which are gathered, or of weighed rows.
func (r *Runner) observeRepetition(s *segment, rows model.RepeatedTokens, out *kernels.Tensor, a *kernels.Attend, h *kernels.Tensor) (scores, lse *kernels.Tensor) {
	b := r.on
	scores, lse = r.scores(a, r.arena), r.alloc(a.Heads(), a.Rows())
	if rows.Weighed && s.o.outputNorms == nil {
		s.o.outputNorms = r.outputNorms(s.o.Layer, a)
	}
	mark := r.arena.Mark()
	defer r.arena.Release(mark)
	part, seen, ids := *a, scores, []int32(nil)
	if rows.Sinks < rows.From || rows.To < a.MostEntries() {
		if out != nil {
			b.Attention(out, nil, a)
		}
		for j := range rows.To {
			if j < rows.Sinks || j >= rows.From {
				ids = append(ids, int32(j))
			}
		}
		part.Past = kernels.GatherPairs(b, a.Past, slices.Repeat([][]int32{ids}, len(a.Past)), a.Window > 0, r.arena)
		out, seen = nil, r.scores(&part, r.arena)
	}
	b.Attention(out, lse, &part)
	divided := lse
	if rows.Weighed {
		divided = r.alloc(lse.Shape...)
		r.rowNorms(divided, h)
		b.Add(divided, divided, lse)
	}
	if s.peak {
		b.ObservedPeaks(seen, divided, &part, r.arena)
	} else {
		b.ObservedScores(seen, divided, &part)
	}
	if seen != scores {
		b.Fill(scores, math.Inf(-1))
		width, of := scores.Width(), seen.Width()
		all, some := scores.Reshape(scores.Len()), seen.Reshape(seen.Len())
		for h := range a.Heads() {
			b.Copy(all.Rows(h*width+rows.From, h*width+rows.To), some.Rows(h*of+rows.Sinks, h*of+len(ids)))
		}
	}
	if rows.Weighed {
		b.Add(scores, scores, s.o.outputNorms)
	}
	return scores, lse
}

// rowNorms writes the logarithms of the norms of rows h [rows, hidden] to every row of y [heads, rows].
func (r *Runner) rowNorms(y, h *kernels.Tensor) {
	if r.Model.Counts() {
		return
	}
	host, wide := kernels.NewTensor(y.DType, y.Shape...), h.Float32s()
	for row := range h.Dim0() {
		norm := logNorm(float64(simd.SumSquares(wide[row*h.Width():][:h.Width()])))
		for head := range y.Dim0() {
			host.Set(head*h.Dim0()+row, norm)
		}
	}
	r.on.Copy(y, host)
}

// outputNorms are the logarithms [heads, entries] of the norms of what OProj makes of the value of every entry, by each query head.
func (r *Runner) outputNorms(layer int, a *kernels.Attend) *kernels.Tensor {
	y := r.scores(a, r.arena)
	if r.Model.Counts() {
		return y
	}
	host, weight := kernels.NewTensor(y.DType, y.Shape...), r.Model.Network.Layers[layer].Linear(model.OProj).Weight
	wide, values := weight.Float32s(), make([][]float32, len(a.Past))
	for g, kv := range a.Past {
		values[g] = kv.V.Float32s()
	}
	parallel.For(a.Heads(), func(h int) { // ‖W v‖² is vᵀ(WᵀW)v
		dim, all, v := a.HeadDim(), a.Heads()*a.HeadDim(), values[h/a.Group()]
		square, products := make([]float32, dim*dim), make([]float32, len(v))
		own := wide[h*dim:]
		simd.GemmTN(dim, dim, weight.Dim0(), 1, own, all, own, all, 0, square, dim)
		simd.GemmNN(len(v)/dim, dim, dim, 1, v, dim, square, dim, 0, products, dim)
		for j := range len(v) / dim {
			host.Set(h*y.Width()+j, logNorm(float64(simd.Dot(products[j*dim:][:dim], v[j*dim:][:dim]))))
		}
	})
	r.on.Copy(y, host)
	return y
}

// logNorm is the logarithm of a norm whose square is given, which is a number where that is 0.
func logNorm(square float64) float64 { return math.Log(max(square, math.SmallestNonzeroFloat32)) / 2 }

// addProbe takes in one probe's scores.
func (o *Observation) addProbe(scores, lse *kernels.Tensor, peak bool) {
	if peak {
		o.PeakProbes, o.PeakProbeLSE = append(o.PeakProbes, scores), append(o.PeakProbeLSE, lse)
	} else {
		o.Probes, o.ProbeLSE = append(o.Probes, scores), append(o.ProbeLSE, lse)
	}
}

// rowsOfAttend is a for its rows [from, to).
func rowsOfAttend(a *kernels.Attend, from, to int) *kernels.Attend {
	part := *a
	part.Q, part.Positions = a.Q.Rows(from, to), a.Positions[from:to]
	return &part
}

// scores allocates a score tensor for all entries of the past.
func (r *Runner) scores(a *kernels.Attend, out kernels.Allocator) *kernels.Tensor {
	width := 0
	for _, kv := range a.Past {
		width = max(width, kv.Entries())
	}
	return out.Alloc(r.on.Compute(), a.Heads(), width)
}

// peaks are the logarithms of the largest attention probabilities of any of the rows, whose softmax denominators lse
// [heads, rows] are given.
func (r *Runner) peaks(a *kernels.Attend, lse *kernels.Tensor) *kernels.Tensor {
	out := r.scores(a, r.arena)
	mark := r.arena.Mark()
	r.on.ObservedPeaks(out, lse, a, r.arena)
	r.arena.Release(mark)
	return out
}
