package runner

import (
	"context"

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
	if !model.VProj.ReachesScores(l, r.Model.Config.Layers) {
		s.onward = 0
	}
	return model.RunLayer(r, r.Model, l)
}

// runProbe runs rows after what a cache holds through all layers. Done gets what was observed in each, of peaks the largest probabilities;
// vectors, where it is not nil, takes the queries.
func (r *Runner) runProbe(ctx context.Context, cache *kvcache.Cache, rows model.QueryRows, peak bool, vectors *QueryVectors, done func(r *layerRows, o *Observation) error) (err error) {
	defer kernels.CatchDevice(&err)
	r.release()
	defer r.release()
	s := r.probeSegment(cache, rows, cache.Next())
	s.peak, s.vectors = peak, vectors
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
	return r.runProbe(ctx, cache, probe, peak, nil, func(rows *layerRows, o *Observation) error {
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
	err = r.runProbe(ctx, cache, rows, false, &v, func(*layerRows, *Observation) error {
		if v.Unrotated == nil { // a layer without positions
			v.Unrotated = v.Rotated
		}
		out, v = append(out, v), QueryVectors{}
		return nil
	})
	return out, err
}
