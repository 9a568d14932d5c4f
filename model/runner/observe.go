package runner

import (
	"math"
	"slices"

	"glimpse/kernels"
	"glimpse/model"
)

// windows observes the last rows of a, in the sequence's last segment, unless that is done.
func (r *Runner) windows(s *segment, a *kernels.Attend, k *kernels.Tensor) {
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
	if s.observed.Queries {
		o.Queries, o.Keys = []*kernels.Tensor{a.Q}, k
	}
}

// startAllRows makes room for the scores of all rows of a sequence on all entries that the
// layer will hold; no column is seen yet.
func (r *Runner) startAllRows(s *segment) {
	if !s.observed.AllRows {
		return
	}
	o := s.o
	layer, width := r.Model.Config.KVLayer(o.Layer), 0
	if s.of > 1 { // whose chunks add to the columns of those before
		s.cache.HoldWindow(layer)
	}
	for h := range s.cache.LayerKVHeads(layer) {
		width = max(width, s.cache.Entries(layer, h))
	}
	if layer == o.Layer { // the rows' own pairs are to come
		width += s.of
	}
	o.AllRows = r.alloc(r.Model.Config.Heads, width)
	r.on.Fill(o.AllRows, math.Inf(-1))
	if s.observed.Squares {
		o.Squares = r.alloc(o.AllRows.Shape...)
		r.on.Fill(o.Squares, math.Inf(-1))
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

// observeProbe attends with the rows of a probe, out being nil or their output, and returns their scores and lse.
func (r *Runner) observeProbe(out *kernels.Tensor, a *kernels.Attend, peak bool, rows model.QueryRows) (scores, lse *kernels.Tensor) {
	if s, ok := rows.(model.RepeatedTokens); ok && (s.Sinks < s.From || s.To < a.MostEntries()) {
		return r.observeRepetition(out, a, peak, s)
	}
	return r.observeAttention(out, a, peak, r.arena)
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

// observeRepetition is observeProbe among some entries alone, which are gathered.
func (r *Runner) observeRepetition(out *kernels.Tensor, a *kernels.Attend, peak bool, s model.RepeatedTokens) (scores, lse *kernels.Tensor) {
	b := r.on
	if out != nil {
		b.Attention(out, nil, a)
	}
	scores, lse = r.scores(a, r.arena), r.alloc(a.Heads(), a.Rows())
	b.Fill(scores, math.Inf(-1))
	mark := r.arena.Mark()
	ids := make([]int32, 0, s.Sinks+s.To-s.From)
	for j := range s.To {
		if j < s.Sinks || j >= s.From {
			ids = append(ids, int32(j))
		}
	}
	part := *a
	part.Past = kernels.GatherPairs(b, a.Past, slices.Repeat([][]int32{ids}, len(a.Past)), a.Window > 0, r.arena)
	b.Attention(nil, lse, &part)
	seen := r.scores(&part, r.arena)
	if peak {
		b.ObservedPeaks(seen, lse, &part, r.arena)
	} else {
		b.ObservedScores(seen, lse, &part)
	}
	width, of := scores.Width(), seen.Width()
	all, some := scores.Reshape(scores.Len()), seen.Reshape(seen.Len())
	for h := range a.Heads() {
		b.Copy(all.Rows(h*width+s.From, h*width+s.To), some.Rows(h*of+s.Sinks, h*of+len(ids)))
	}
	r.arena.Release(mark)
	return scores, lse
}

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
