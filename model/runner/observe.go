package runner

import (
	"math"

	"glimpse/kernels"
)

// attendRows lets rows of the pass, whose keys are k, attend after so many that were seen
// before, and adds to o what is observed of them; last tells that no more rows follow.
func (p *prefillPass) attendRows(o *Observation, out *kernels.Tensor, a *kernels.Attend, k *kernels.Tensor, seen int, last bool) error {
	var lse *kernels.Tensor
	if p.observed.AllRows {
		lse = p.alloc(a.Heads(), a.Rows())
	}
	if err := p.attention(o.Layer, o, out, lse, a); err != nil {
		return err
	}
	if lse != nil {
		p.allRows(o, a, lse, seen)
	}
	if last {
		p.windows(o, a, a.Q, k)
	}
	return nil
}

// attention computes the output of rows that attend. A decoding step is observed
// by the same operation, whatever the width of the windows.
func (p *prefillPass) attention(l int, o *Observation, out, lse *kernels.Tensor, a *kernels.Attend) error {
	b, windows := p.on, len(p.observed.Windows)
	if len(p.pos) == 1 && windows > 0 && p.opt.Sparse == nil {
		if lse == nil {
			lse = p.alloc(a.Heads(), 1)
		}
		scores := p.scores(a, p.arena)
		b.ObserveAttention(out, lse, scores, a)
		for range windows {
			o.Windows = append(o.Windows, scores)
		}
		return nil
	}
	attended, chosen, after, err := p.restrict(p.opt.Sparse, p.cache, l, a)
	if err != nil {
		return err
	}
	if chosen != nil {
		b.AttentionSelected(out, lse, attended, chosen, p.arena)
	} else {
		b.Attention(out, lse, attended)
	}
	if after != nil {
		after(out)
	}
	return nil
}

// windows observes the last rows of q, the queries of the last chunk, unless that
// is done.
func (p *prefillPass) windows(o *Observation, a *kernels.Attend, q, k *kernels.Tensor) {
	rows := q.Dim0()
	for _, w := range p.observed.Windows[len(o.Windows):] {
		window := rowsOf(a, rows-min(w, rows), rows)
		o.Windows = append(o.Windows, p.Runner.observe(window, p.arena))
	}
	for _, w := range p.observed.PeakWindows {
		window := rowsOf(a, rows-min(w, rows), rows)
		lse := p.alloc(window.Heads(), window.Rows())
		p.on.Attention(nil, lse, window)
		o.PeakWindows = append(o.PeakWindows, p.peaks(window, lse))
	}
	if p.observed.Queries {
		o.Queries, o.Keys = []*kernels.Tensor{q}, k
	}
}

// startAllRows makes room for the scores of all rows on all entries that the
// layer will hold; no column is seen yet.
func (p *prefillPass) startAllRows(o *Observation) {
	if !p.observed.AllRows {
		return
	}
	layer, width := p.Model.Config.KVLayer(o.Layer), 0
	if len(p.pos) > 1 { // whose chunks add to the columns of those before
		p.cache.HoldWindow(layer)
	}
	for h := range p.cache.LayerKVHeads(layer) {
		width = max(width, p.cache.Entries(layer, h))
	}
	if layer == o.Layer { // the rows' own pairs are to come
		width += len(p.pos)
	}
	o.AllRows = p.alloc(p.Model.Config.Heads, width)
	p.on.Fill(o.AllRows, math.Inf(-1))
	if p.observed.Squares {
		o.Squares = p.alloc(o.AllRows.Shape...)
		p.on.Fill(o.Squares, math.Inf(-1))
	}
}

// allRows merges the scores of one chunk's rows into those of the seen rows
// before it.
func (p *prefillPass) allRows(o *Observation, a *kernels.Attend, lse *kernels.Tensor, seen int) {
	p.mergeRows(o.AllRows, a, lse, seen)
	if o.Squares == nil {
		return
	}
	// The square of a probability is exp(2·logit − 2·lse): the same reduction of
	// doubled logits.
	b, twice, lse2 := p.on, *a, p.alloc(lse.Shape...)
	b.Add(lse2, lse, lse)
	twice.Scale *= 2
	twice.SoftCap *= 2
	p.mergeRows(o.Squares, &twice, lse2, seen)
}

func (p *prefillPass) mergeRows(acc *kernels.Tensor, a *kernels.Attend, lse *kernels.Tensor, seen int) {
	b := p.on
	if seen == 0 {
		b.ObservedScores(acc, lse, a)
		return
	}
	scores := p.alloc(acc.Shape...)
	b.Fill(scores, math.Inf(-1))
	b.ObservedScores(scores, lse, a)
	b.MergeScores(acc, scores, float64(seen), float64(a.Rows()))
}

// observeProbe attends with rows a, out being nil or their output, and returns their
// scores and lse.
func (r *Runner) observeProbe(out *kernels.Tensor, a *kernels.Attend, peak bool) (scores, lse *kernels.Tensor) {
	b := r.on
	lse = r.alloc(a.Heads(), a.Rows())
	if peak {
		b.Attention(out, lse, a)
		return r.peaks(a, lse), lse
	}
	scores = r.scores(a, r.arena)
	b.ObserveAttention(out, lse, scores, a)
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

// rowsOf is a for its rows [from, to).
func rowsOf(a *kernels.Attend, from, to int) *kernels.Attend {
	part := *a
	part.Q, part.Positions = a.Q.Rows(from, to), a.Positions[from:to]
	return &part
}

// observe computes the scores of rows that attend; the result is allocated by
// out.
func (r *Runner) observe(a *kernels.Attend, out kernels.Allocator) *kernels.Tensor {
	scores := r.scores(a, out)
	r.on.ObserveAttention(nil, r.alloc(a.Heads(), a.Rows()), scores, a)
	return scores
}

// scores allocates a score tensor for all entries of the past.
func (r *Runner) scores(a *kernels.Attend, out kernels.Allocator) *kernels.Tensor {
	width := 0
	for _, kv := range a.Past {
		width = max(width, kv.Entries())
	}
	return out.Alloc(r.on.Compute(), a.Heads(), width)
}

// peaks computes, for every entry of the past, the logarithm of the largest
// attention probability of any of the rows, whose softmax denominators lse [heads,
// rows] are given. There is no kernel for it: it is one observation per row, for
// policies that observe a few dozen rows.
func (r *Runner) peaks(a *kernels.Attend, lse *kernels.Tensor) *kernels.Tensor {
	b := r.on
	selector := b.Selector()
	out := r.scores(a, r.arena)
	mark := r.arena.Mark()
	row, rowLSE := r.scores(a, r.arena), r.alloc(a.Heads(), 1)
	b.Fill(out, math.Inf(-1))
	for at := range a.Rows() {
		one := rowsOf(a, at, at+1)
		if a.K == nil { // the rows' own pairs are the last of the past: this row does not see the later ones
			one.Past = withoutLast(a.Past, a.Rows()-1-at)
		}
		one.K, one.V = nil, nil
		b.CopyHead(rowLSE, lse.Reshape(a.Heads(), a.Rows(), 1), at)
		b.Fill(row, math.Inf(-1))
		b.ObservedScores(row, rowLSE, one)
		selector.MaxScores(out, row)
	}
	r.arena.Release(mark)
	return out
}
