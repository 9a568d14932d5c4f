package runner

import (
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
)

// probePass is rows that are run after a prompt and leave no trace.
type probePass struct {
	layerRows
	cache       *kvcache.Cache
	probe       model.QueryRows
	peak        bool // the largest probability of any row instead of the mean
	pairs       sharedPairs
	joint       jointObservations
	scores, lse *kernels.Tensor // on the cache, in the layer that has run
}

func (r *Runner) newProbePass(cache *kvcache.Cache, probe model.QueryRows, from int32) *probePass {
	n := probe.Rows()
	x := r.alloc(n, r.Model.Config.Hidden)
	probe.Embeddings(r.Model, x)
	h := r.norm(x, r.Model.Network.Layers[0].AttentionNorm)
	rows := []embeddedRows{{learned: probe}}
	return &probePass{layerRows: layerRows{Runner: r, x: x, h: h, rows: rows, at: at(cache, kvcache.Positions(firstPosition(probe, from), n))}, cache: cache, probe: probe, pairs: r.newSharedPairs(n)}
}

// layer runs the rows, which have entered layer l or the one before, through it and returns their scores on the cache, and
// their lse; nil where the layer is recurrent.
func (p *probePass) layer(l int) (scores, lse *kernels.Tensor, err error) {
	p.enter(l)
	p.low, p.scores, p.lse = ofAll(p.probe, l), nil, nil
	err = model.RunLayer(p, p.Model, l)
	return p.scores, p.lse, err
}

// reach tells that there is more of the network to run than the queries and keys of its
// last layer: values and outputs of that layer reach no score.
func (p *probePass) reach() bool { return model.VProj.ReachesScores(p.l, p.Model.Config.Layers) }

func (p *probePass) Projections() (q, k, v *kernels.Tensor) {
	if p.reach() {
		return p.layerRows.Projections()
	}
	if p.shares() {
		return p.project(model.QProj, p.h), nil, nil
	}
	return p.project(model.QProj, p.h), p.project(model.KProj, p.h), nil
}

// DeltaNet leaves the cache's state as it is.
func (p *probePass) DeltaNet(d *model.DeltaNet, scale float64) (*kernels.Tensor, bool, error) {
	if !p.reach() {
		return nil, false, nil
	}
	return p.deltaNet(d, scale, p.copiedState(p.cache, p.h.Dim0()))
}

func (p *probePass) Attend(q, k, v *kernels.Tensor) (out *kernels.Tensor, ok bool, err error) {
	a := p.attend(p.cache, p.l, q, p.at.pos)
	a.K, a.V = p.pairs.of(p.Runner, p.l, k, v)
	if p.reach() {
		out = p.alloc(len(p.at.pos), p.Model.Config.Heads*p.headDim())
	}
	p.scores, p.lse = p.observeProbe(out, a, p.peak)
	return out, out != nil, nil
}
