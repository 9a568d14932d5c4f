package runner

import (
	"context"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
)

// probePass is one probe that runs by itself.
type probePass struct {
	layerRows
	joint jointObservations
}

// newProbePass prepares a probe for the first layer.
func (r *Runner) newProbePass(s segment) *probePass {
	x := r.alloc(s.Rows(), r.Model.Config.Hidden)
	s.Embeddings(r.Model, x)
	h := r.norm(x, r.Model.Network.Layers[0].AttentionNorm)
	return &probePass{layerRows: layerRows{Runner: r, x: x, h: h, pos: s.pos, segments: []segment{s}}}
}

// layer runs the rows, which have entered layer l or the one before, through it, and adds to o what they pay to the cache:
// nothing where the layer is recurrent. Values and outputs of the last layer reach no score.
func (p *probePass) layer(l int, o *Observation) error {
	p.enter(l)
	s := &p.segments[0]
	s.o, s.queries, s.onward = o, s.Rows(), s.Rows()
	if !model.VProj.ReachesScores(l, p.Model.Config.Layers) {
		s.onward = 0
	}
	return model.RunLayer(&p.layerRows, p.Model, l)
}

// runProbe runs rows after what a cache holds through all layers. Done gets what was observed in each; vectors, where it is not nil,
// takes the queries.
func (r *Runner) runProbe(ctx context.Context, cache *kvcache.Cache, rows model.QueryRows, vectors *QueryVectors, done func(p *probePass, o *Observation) error) (err error) {
	defer kernels.CatchDevice(&err)
	r.release()
	defer r.release()
	s := r.probeSegment(cache, rows, cache.Next())
	s.vectors = vectors
	p := r.newProbePass(s)
	for l := range p.Model.Config.Layers {
		if err := ctx.Err(); err != nil {
			return err
		}
		p.enter(l)
		arena := p.arena
		mark := arena.Mark()
		o := &Observation{Layer: l, Cache: cache}
		if err := p.layer(l, o); err != nil {
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
// observes them; observations have one entry in Probes.
func (r *Runner) Probe(ctx context.Context, cache *kvcache.Cache, probe model.QueryRows, observe Observer) error {
	return r.runProbe(ctx, cache, probe, nil, func(p *probePass, o *Observation) error {
		if o = p.joint.joinLayer(p.Runner, o); o != nil {
			if err := observe(o); err != nil {
				return err
			}
		}
		return r.pause()
	})
}

// QueryVectors are the queries of rows in a layer, [rows, heads, headDim] on the host: as
// they attend, and before their rotation to the rows' positions.
type QueryVectors struct{ Rotated, Unrotated *kernels.Tensor }

// Queries runs rows after what the cache holds, which it does not change, and returns
// their queries by layer; none of recurrent layers.
func (r *Runner) Queries(ctx context.Context, cache *kvcache.Cache, rows model.QueryRows) (out []QueryVectors, err error) {
	var v QueryVectors
	err = r.runProbe(ctx, cache, rows, &v, func(*probePass, *Observation) error {
		if v.Unrotated == nil { // a layer without positions
			v.Unrotated = v.Rotated
		}
		out, v = append(out, v), QueryVectors{}
		return nil
	})
	return out, err
}
