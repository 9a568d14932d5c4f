package runner

import (
	"glimpse/internal/parallel"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
)

// Attend lets every segment take its pairs in and attend. Where some rows end here, the layer goes on with the others.
func (r *layerRows) Attend(q, k, v *kernels.Tensor) (*kernels.Tensor, bool, error) {
	onward := totalRows(r.segments, model.OProj)
	var out *kernels.Tensor
	if onward > 0 {
		fill := len(r.pos) - totalRows(r.segments, model.KProj)
		if out = r.alloc(onward+fill, r.Model.Config.Heads*r.headDim()); fill > 0 {
			r.on.Fill(out.Rows(onward, onward+fill), 0)
		}
	}
	attend := func(i int) {
		if s := &r.segments[i]; s.err == nil {
			s.err = r.attendSegment(i, q, k, v, out)
		} else if out != nil {
			r.on.Fill(out.Rows(i, i+1), 0)
		}
	}
	if r.batch && !r.on.OwnMemory() { // else operations follow each other anyway
		parallel.For(len(r.segments), attend)
	} else {
		for i := range r.segments {
			if attend(i); r.segments[i].err != nil && !r.batch {
				return nil, false, r.segments[i].err
			}
		}
	}
	if onward > 0 && !allWhole(r.segments) {
		r.narrow()
	}
	return out, onward > 0, nil
}

// narrow leaves the rows of the first segment that go on.
func (r *layerRows) narrow() {
	s := &r.segments[0]
	from, to := s.Rows()-s.onward, s.Rows()
	r.x, r.pos = r.x.Rows(from, to), r.pos[from:to]
	if layer := &r.Model.Network.Layers[r.l]; layer.Shared() || layer.OutputGate.Weight != nil { // which read them once more
		r.h = r.normInto(r.input(r.l, s.onward, r.x.Width(), attentionReaders(r.Model, r.l)...), r.x, layer.AttentionNorm)
	}
	r.segments = []segment{{QueryRows: model.TokenRows(s.Tokens()[from:]), cache: s.cache, pos: r.pos, appends: true, queries: s.onward, onward: s.onward}}
}

// attendSegment is Attend for one segment.
func (r *layerRows) attendSegment(i int, q, k, v, out *kernels.Tensor) error {
	s, run := &r.segments[i], r.Runner
	views := s.views
	if views == nil {
		views = new(segmentViews)
	}
	q, k = r.segmentPart(i, q, model.QProj, &views.q), r.segmentPart(i, k, model.KProj, &views.k)
	v, out = r.segmentPart(i, v, model.VProj, &views.v), r.segmentPart(i, out, model.OProj, &views.out)
	if s.scratch != nil {
		run = s.scratch.layerRunner(r.l)
	}
	if !s.appends {
		a := run.attention(s.past(r), r.l, q, s.pos)
		a.K, a.V = s.pairs.layerPairs(run, r.l, k, v)
		if s.vectors != nil {
			s.vectors.Rotated = kernels.FromF64(q.Float64s(), q.Shape...)
		}
		if s.refers {
			if out != nil {
				run.on.Attention(out, nil, &a)
			}
			s.o.References = append(s.o.References, q)
			return nil
		}
		from := 0
		for j := range i {
			from += r.segments[j].Rows()
		}
		scores, lse := run.observeProbe(s, out, &a, r.h.Rows(from, from+s.Rows()))
		s.o.addProbe(scores, lse, s.peak)
		return nil
	}
	if k != nil {
		s.cache.Append(r.l, k, v, s.pos)
		if len(s.o.Gates) > 0 {
			first := 0 // probes follow the prompt
			if r.batch {
				first = i
			}
			run.gates(s, r.h.Rows(first, first+s.Rows()))
		}
	}
	if s.observed.AllRows && s.onward < s.Rows() {
		r.observeAllRows(s)
	}
	if q == nil {
		return nil
	}
	a := run.attention(s.past(r), r.l, q, s.pos[len(s.pos)-s.queries:])
	if k != nil {
		r.Model.MeasureKeys(r.l, r.on, &a, k, v)
	}
	run.keepQueries(s, q, k)
	return run.attendRows(s, out, &a)
}

// segmentPart is the rows of segment i in what a module gives, or nil.
func (r *layerRows) segmentPart(i int, x *kernels.Tensor, m model.Module, view *kernels.Tensor) *kernels.Tensor {
	n := r.segments[i].moduleRows(m)
	if x == nil || n == 0 {
		return nil
	}
	from := i
	if !r.batch {
		from = totalRows(r.segments[:i], m)
	}
	return x.RowsInto(view, from, from+n)
}

// past is the pairs that rows of a layer attend to in the cache. Where another layer has appended the pairs, rows that
// run later have theirs there, too: they are left out.
func (s *segment) past(r *layerRows) []kernels.KV {
	from := r.Model.Config.KVLayer(r.l)
	if s.views != nil {
		past := s.views.past[:s.cache.LayerKVHeads(from)]
		for h := range past {
			past[h] = s.cache.PairInto(from, h, &s.views.pairs[2*h], &s.views.pairs[2*h+1])
		}
		return past
	}
	past := s.cache.View(from)
	if s.appends && r.shares() {
		past = withoutLast(past, s.of-s.before-s.Rows())
	}
	return past
}

// observeAllRows observes all rows of a segment that do not all go on after attention.
func (r *layerRows) observeAllRows(s *segment) {
	n := s.Rows()
	all := &layerRows{Runner: r.Runner, l: r.l, pos: s.pos, segments: []segment{{QueryRows: s.QueryRows, cache: s.cache, queries: n}}}
	q := model.NormRotate(all, r.Model, r.l, model.QProj, all.project(model.QProj, firstRows(r.h, n)))
	a := r.attention(s.past(r), r.l, q, s.pos)
	lse := r.alloc(a.Heads(), n)
	r.on.Attention(nil, lse, &a)
	r.allRows(s, &a, lse)
}

// attend lets rotated queries at positions pos attend to a layer of the cache.
func (r *Runner) attend(cache *kvcache.Cache, layer int, q *kernels.Tensor, pos []int32) *kernels.Attend {
	a := r.attention(cache.View(r.Model.Config.KVLayer(layer)), layer, q, pos)
	return &a
}

// attention lets rotated queries at positions pos attend to the past.
func (r *Runner) attention(past []kernels.KV, layer int, q *kernels.Tensor, pos []int32) kernels.Attend {
	c := &r.Model.Config
	return kernels.Attend{
		Q: q, Past: past, Scale: c.AttentionScale(), SoftCap: c.AttentionCap, Sinks: r.Model.Network.Layers[layer].Sinks,
		Window: c.Window(layer), Positions: pos,
	}
}

// attendRows lets the queries of a segment attend, as far as somebody reads what they give, and observes them.
func (r *Runner) attendRows(s *segment, out *kernels.Tensor, a *kernels.Attend) error {
	var lse *kernels.Tensor
	all := s.observed.AllRows && s.onward == s.Rows()
	if all {
		lse = r.alloc(a.Heads(), a.Rows())
	}
	if s.onward > 0 {
		going := a
		if s.onward < s.queries {
			going = rowsOfAttend(a, s.queries-s.onward, s.queries)
		}
		if err := r.output(s, out, lse, going); err != nil {
			return err
		}
	}
	if all {
		r.allRows(s, a, lse)
	}
	if s.before+s.Rows() == s.of {
		r.windows(s, a)
	}
	return nil
}

// output computes what rows that attend give. A decoding step is observed by the same operation, whatever the width of
// the windows.
func (r *Runner) output(s *segment, out, lse *kernels.Tensor, a *kernels.Attend) error {
	b, windows := r.on, len(s.observed.Windows)
	if s.of == 1 && windows > 0 && s.sparse == nil {
		if lse == nil {
			lse = r.alloc(a.Heads(), 1)
		}
		scores := r.scores(a, r.arena)
		b.ObserveAttention(out, lse, scores, a)
		for range windows {
			s.o.Windows = append(s.o.Windows, scores)
		}
		return nil
	}
	attended, chosen, after, err := r.restrict(s.sparse, s.cache, s.o.Layer, a)
	if err != nil {
		return err
	}
	if chosen != nil {
		b.AttentionSelected(out, lse, attended, chosen, r.arena)
	} else {
		b.Attention(out, lse, attended)
	}
	if after != nil {
		after(out)
	}
	return nil
}
