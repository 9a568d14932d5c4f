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

// newProbePass prepares rows after what a cache holds; next is the position that follows it.
func (r *Runner) newProbePass(cache *kvcache.Cache, rows model.QueryRows, next int32) *probePass {
	x := r.alloc(rows.Rows(), r.Model.Config.Hidden)
	rows.Embeddings(r.Model, x)
	h := r.norm(x, r.Model.Network.Layers[0].AttentionNorm)
	s := r.probeSegment(cache, rows, next)
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

// runRows runs the rows through all layers; done, which may be nil, gets what was observed in each.
func (p *probePass) runRows(ctx context.Context, done func(o *Observation) error) error {
	for l := range p.Model.Config.Layers {
		if err := ctx.Err(); err != nil {
			return err
		}
		p.enter(l)
		arena := p.arena
		mark := arena.Mark()
		o := &Observation{Layer: l, Cache: p.segments[0].cache}
		if err := p.layer(l, o); err != nil {
			return err
		}
		if err := done(o); err != nil {
			return err
		}
		arena.Release(mark)
	}
	return nil
}

// Probe runs rows after what the cache holds, which it does not change, and
// observes them; observations have one entry in Probes.
func (r *Runner) Probe(ctx context.Context, cache *kvcache.Cache, probe model.QueryRows, observe Observer) (err error) {
	defer kernels.CatchDevice(&err)
	r.release()
	defer r.release()
	p := r.newProbePass(cache, probe, cache.Next())
	return p.runRows(ctx, func(o *Observation) error {
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
	defer kernels.CatchDevice(&err)
	r.release()
	defer r.release()
	p := r.newProbePass(cache, rows, cache.Next())
	s := &p.segments[0]
	s.vectors = new(QueryVectors)
	err = p.runRows(ctx, func(*Observation) error {
		if s.vectors.Unrotated == nil { // a layer without positions
			s.vectors.Unrotated = s.vectors.Rotated
		}
		out, s.vectors = append(out, *s.vectors), new(QueryVectors)
		return nil
	})
	return out, err
}
