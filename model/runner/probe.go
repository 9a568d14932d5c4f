package runner

import (
	"context"
	"fmt"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
)

// newProbe prepares a probe that runs by itself for the first layer.
func (r *Runner) newProbe(s segment) *layerRows {
	x := r.alloc(s.Rows(), r.Model.Config.Hidden)
	s.Embeddings(r.Model, x)
	h := r.norm(x, r.Model.Network.Layers[0].AttentionNorm)
	return &layerRows{Runner: r, x: x, h: h, pos: s.pos, segments: []segment{s}}
}

// runLayer runs the rows of a probe, which have entered layer l or the one before, through it, and adds to o what they pay to the cache:
// nothing where the layer is recurrent. Values and outputs of the last layer reach no score.
func (r *layerRows) runLayer(l int, o *Observation) error {
	r.enter(l)
	s := &r.segments[0]
	s.o, s.queries, s.onward = o, s.Rows(), s.Rows()
	if !s.whole && !model.VProj.ReachesScores(l, r.Model.Config.Layers) {
		if s.onward = 0; s.appends {
			s.queries = 0
		}
	}
	return model.RunLayer(r, r.Model, l)
}

// runProbe runs rows after what a cache holds through all layers, as the segment says. Done gets what was observed in each.
func (r *Runner) runProbe(ctx context.Context, cache *kvcache.Cache, rows model.QueryRows, as func(s *segment), done func(r *layerRows, o *Observation) error) (err error) {
	defer kernels.CatchDevice(&err)
	r.release()
	defer r.release()
	s := r.probeSegment(cache, rows, cache.Next())
	as(&s)
	p := r.newProbe(s)
	for l := range p.Model.Config.Layers {
		if err := ctx.Err(); err != nil {
			return err
		}
		p.enter(l)
		arena := p.arena
		mark := arena.Mark()
		o := &Observation{Layer: l, Cache: cache}
		if err := p.runLayer(l, o); err != nil {
			return err
		}
		if err := done(p, o); err != nil {
			return err
		}
		arena.Release(mark)
	}
	return nil
}

// Probe runs rows after what the cache holds, which it does not change, and
// observes them; observations have one entry in Probes or, where the largest probabilities are asked for, in PeakProbes.
func (r *Runner) Probe(ctx context.Context, cache *kvcache.Cache, probe model.QueryRows, peak bool, observe Observer) error {
	var joint jointObservations
	return r.runProbe(ctx, cache, probe, func(s *segment) { s.peak = peak }, func(rows *layerRows, o *Observation) error {
		if o = joint.joinLayer(rows.Runner, o); o != nil {
			if err := observe(o); err != nil {
				return err
			}
		}
		return Pause(ctx)
	})
}

// QueryVectors are the queries of rows in a layer, [rows, heads, headDim] on the host: as
// they attend, and before their rotation to the rows' positions.
type QueryVectors struct{ Rotated, Unrotated *kernels.Tensor }

// Queries runs rows after what the cache holds, which it does not change, and returns
// their queries by layer; none of recurrent layers.
func (r *Runner) Queries(ctx context.Context, cache *kvcache.Cache, rows model.QueryRows) (out []QueryVectors, err error) {
	var v QueryVectors
	err = r.runProbe(ctx, cache, rows, func(s *segment) { s.vectors = &v }, func(*layerRows, *Observation) error {
		if v.Unrotated == nil { // a layer without positions
			v.Unrotated = v.Rotated
		}
		out, v = append(out, v), QueryVectors{}
		return nil
	})
	return out, err
}

// Append runs rows after what the cache holds, which takes in their keys and values: what follows stands behind them and attends to them.
// Of recurrent layers they move the state on.
func (r *Runner) Append(ctx context.Context, cache *kvcache.Cache, rows model.QueryRows) error {
	n := rows.Rows()
	if end := int(cache.Next()) + n; end > r.Model.Config.MaxPositions {
		return fmt.Errorf("append: %d rows at position %d, want at most %d: %w", n, cache.Next(), r.Model.Config.MaxPositions, model.ErrContext)
	}
	cache.BeginPrefill()
	defer cache.EndPrefill()
	err := r.runProbe(ctx, cache, rows, func(s *segment) { s.appends, s.of = true, n }, func(*layerRows, *Observation) error { return Pause(ctx) })
	if err == nil {
		cache.Advance(n)
	}
	return err
}

// Hidden runs rows after what the cache holds, which it does not change, and returns their last states through the final norm [rows, hidden],
// which the head reads. They are the caller's.
func (r *Runner) Hidden(ctx context.Context, cache *kvcache.Cache, rows model.QueryRows) (out *kernels.Tensor, err error) {
	last := r.Model.Config.Layers - 1
	err = r.runProbe(ctx, cache, rows, func(s *segment) { s.whole = true }, func(p *layerRows, o *Observation) error {
		if o.Layer == last {
			out = p.on.Alloc(p.on.Compute(), p.x.Shape...)
			p.normInto(out, p.x, r.Model.Network.FinalNorm)
		}
		return Pause(ctx)
	})
	return out, err
}
