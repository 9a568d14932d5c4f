package runner

import (
	"context"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
)

// QueryVectors are the queries of rows in a layer, [rows, heads, headDim] on the host: as
// they attend, and before their rotation to the rows' positions.
type QueryVectors struct{ Rotated, Unrotated *kernels.Tensor }

// Queries runs rows after what the cache holds, which it does not change, and returns
// their queries by layer; none of recurrent layers.
func (r *Runner) Queries(ctx context.Context, cache *kvcache.Cache, rows model.QueryRows) (out []QueryVectors, err error) {
	defer kernels.CatchDevice(&err)
	r.release()
	defer r.release()
	p := &queryPass{probePass: r.newProbePass(cache, rows, cache.Next())}
	for l := range r.Model.Config.Layers {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p.enter(l)
		mark := p.arena.Mark()
		p.low, p.vectors = ofAll(rows, l), QueryVectors{}
		if err := model.RunLayer(p, r.Model, l); err != nil {
			return nil, err
		}
		if p.vectors.Unrotated == nil { // a layer without positions
			p.vectors.Unrotated = p.vectors.Rotated
		}
		out = append(out, p.vectors)
		p.arena.Release(mark)
	}
	return out, nil
}

// queryPass is a probe whose queries are read.
type queryPass struct {
	*probePass
	vectors QueryVectors // of the layer that runs
}

// NormRotate leaves what is between the two to Rotate.
func (*queryPass) NormRotate(_, _ *kernels.Tensor) bool { return false }

func (p *queryPass) Rotate(m model.Module, x *kernels.Tensor) *kernels.Tensor {
	if m == model.QProj {
		p.vectors.Unrotated = kernels.FromF64(x.Float64s(), x.Shape...)
	}
	return p.probePass.Rotate(m, x)
}

func (p *queryPass) Attend(q, k, v *kernels.Tensor) (out *kernels.Tensor, ok bool, err error) {
	p.vectors.Rotated = kernels.FromF64(q.Float64s(), q.Shape...)
	return p.probePass.Attend(q, k, v)
}
