package runner

import (
	"slices"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
)

// layerRows are rows that go through a layer on a backend: LayerOps but for Attend, which
// the pass adds. What a backend computes at once has the bits of the single operations.
type layerRows struct {
	*Runner
	l    int
	x    *kernels.Tensor // residual stream [rows, hidden]
	h    *kernels.Tensor // x through AttentionNorm
	next *kernels.Tensor // takes x through the norm that follows, and may be h; nil leaves it to others
	at   rowPositions
	low  func(model.Module) []model.RowUpdate
	rows []embeddedRows // that x was made of, where layers have inputs of their own

	group [3]kernels.LinearRows // argument of the backend
}

// decodeRows is the most rows that are taken for those of a decoding step, of one sequence or
// of several.
const decodeRows = 8

// shares tells that the layer attends to the keys and values of another.
func (r *layerRows) shares() bool { return r.Model.Config.KVLayer(r.l) != r.l }

func (r *layerRows) Projections() (q, k, v *kernels.Tensor) {
	if r.shares() {
		return r.project(model.QProj, r.h), nil, nil
	}
	if keys := r.Model.Network.Layers[r.l].Linear(model.VProj) == nil; keys || len(r.low(model.QProj))+len(r.low(model.KProj))+len(r.low(model.VProj)) > 0 {
		q, k = r.project(model.QProj, r.h), r.project(model.KProj, r.h)
		return q, k, r.values(k, r.h)
	}
	for i, m := range model.Modules[:3] {
		r.group[i] = r.module(m)
		r.group[i].Y = r.alloc(r.h.Dim0(), r.group[i].Weight.Dim0())
	}
	r.on.LinearGroup(r.h, r.group[:]...)
	return r.heads(r.group[0].Y), r.heads(r.group[1].Y), r.heads(r.group[2].Y)
}

// values are those of rows h, whose keys are k before they are normalised and rotated in place.
func (r *layerRows) values(k, h *kernels.Tensor) *kernels.Tensor {
	if r.Model.Network.Layers[r.l].Linear(model.VProj) != nil {
		return r.project(model.VProj, h)
	}
	v := r.alloc(k.Shape...)
	r.on.Copy(v, k)
	return v
}

// headDim is the width of the layer's heads.
func (r *layerRows) headDim() int { return r.Model.Config.KV(r.l).Dim }

// module is a module of the layer without its output.
func (r *layerRows) module(m model.Module) kernels.LinearRows {
	lin := r.Model.Network.Layers[r.l].Linear(m)
	return kernels.LinearRows{Weight: lin.Weight, Bias: lin.Bias}
}

// project is a module's output for rows h by heads.
func (r *layerRows) project(m model.Module, h *kernels.Tensor) *kernels.Tensor {
	return r.heads(r.Linear(m, h, 1))
}

// heads is x as [rows, heads, headDim].
func (r *layerRows) heads(x *kernels.Tensor) *kernels.Tensor {
	dim := r.headDim()
	return x.Reshape(x.Dim0(), x.Width()/dim, dim)
}

func (r *layerRows) NormRotate(q, k *kernels.Tensor) bool {
	norms, rms := headNorms(r.Model, r.l)
	if len(r.at.pos) > decodeRows || !rms || !rotatesHeads(&r.Model.Config, r.l) || r.at.run(0) < len(r.at.pos) {
		return false
	}
	r.on.RotateHeads(q, k, norms, r.at.pos, r.Model.RoPE(r.on, r.l, model.KProj, r.at.pos, r.at.long(0)))
	return true
}

// headNorms are the norms of the heads of layer l; false where they are no RMSNorm of one head each.
func headNorms(m *model.Model, l int) (kernels.HeadNorms, bool) {
	q, k := m.Network.Layers[l].QueryNorm, m.Network.Layers[l].KeyNorm
	each := func(n model.Norm) bool {
		return n.Bias == nil && (n.Weight == nil || n.Weight.Len() == m.Config.KV(l).Dim)
	}
	return kernels.HeadNorms{Query: q.Weight, Key: k.Weight, Eps: m.Config.RMSNormEps}, each(q) && each(k)
}

// rotatesHeads tells whether layer l rotates all of its queries and keys by one table, as the kernels
// that do more than that at once expect.
func rotatesHeads(c *model.Config, l int) bool {
	of := c.RoPEOf(l)
	return 2*len(of.RoPEFreqs) == c.KV(l).Dim && of.PositionScale == nil
}

func (r *layerRows) Norm(x *kernels.Tensor, n model.Norm) *kernels.Tensor {
	if x == nil || n.Weight == nil {
		return x
	}
	width := n.Weight.Len()
	return r.norm(x.Reshape(x.Len()/width, width), n).Reshape(x.Shape...)
}

func (r *layerRows) Rotate(m model.Module, x *kernels.Tensor) *kernels.Tensor {
	r.rotate(r.l, m, x, r.at)
	return x
}

// Linear computes in new memory. The bias is not scaled.
func (r *layerRows) Linear(m model.Module, x *kernels.Tensor, scale float64) *kernels.Tensor {
	lin := r.Model.Network.Layers[r.l].Linear(m)
	y := r.alloc(x.Dim0(), lin.Weight.Dim0())
	r.on.Linear(y, x, lin.Weight, lin.Bias, scale, 0)
	for _, u := range r.low(m) {
		x, y := u.Of(x), u.Of(y)
		r.on.AddLowRank(y, x, u.A, u.B, u.Scale*scale, r.arena)
	}
	return y
}

func (r *layerRows) Normalised() *kernels.Tensor { return r.h }

func (r *layerRows) Read(n model.Norm, readers []model.Module) *kernels.Tensor {
	if n.Weight == nil {
		return r.x
	}
	return r.normInto(r.input(r.l, r.x.Dim0(), r.x.Width(), readers...), r.x, n)
}

func (r *layerRows) Add(delta *kernels.Tensor) { r.on.Add(r.x, r.x, delta) }

func (r *layerRows) AddRead(delta *kernels.Tensor, n model.Norm, readers []model.Module) *kernels.Tensor {
	h := r.input(r.l, r.x.Dim0(), r.x.Width(), readers...)
	r.addNorm(h, r.x, delta, n)
	return h
}

func (r *layerRows) Leave(delta *kernels.Tensor, next model.Norm) {
	if r.next == nil {
		r.Add(delta)
	} else {
		r.addNorm(r.next, r.x, delta, next)
	}
}

func (r *layerRows) Gated(h *kernels.Tensor) (*kernels.Tensor, bool) {
	if len(r.low(model.GateProj))+len(r.low(model.UpProj)) > 0 {
		return nil, false
	}
	gate, up := r.module(model.GateProj), r.module(model.UpProj)
	act := r.input(r.l, h.Dim0(), up.Weight.Dim0(), model.DownProj)
	r.on.GatedLinear(act, h, gate, up, r.arena)
	return act, true
}

func (r *layerRows) GateMul(how kernels.Gate, gate, up *kernels.Tensor, reader model.Module) *kernels.Tensor {
	act := r.input(r.l, up.Dim0(), up.Width(), reader)
	if how == kernels.SiLU {
		r.on.SiLUMul(act, gate, up)
	} else {
		r.on.GateMul(how, act, gate, up)
	}
	return act
}

func (r *layerRows) GELU(x *kernels.Tensor) *kernels.Tensor {
	act := r.input(r.l, x.Dim0(), x.Width(), model.DownProj)
	r.on.GELU(act, x)
	return act
}

func (r *layerRows) Experts(e *model.Experts, h *kernels.Tensor, scale float64) *kernels.Tensor {
	y := r.alloc(h.Shape...)
	e.Forward(y, model.Pass{On: r.on, Arena: r.arena, H: h, Low: r.low}, scale)
	return y
}

func (r *layerRows) Sum(a, b *kernels.Tensor) *kernels.Tensor {
	r.on.Add(a, a, b)
	return a
}

// embeddedRows are rows that were embedded together: of tokens, or of a probe.
type embeddedRows struct {
	tokens  []int32
	learned model.QueryRows // nil: of tokens
}

func (r *layerRows) Input(in *model.LayerInput) *kernels.Tensor {
	y := r.alloc(r.x.Dim0(), in.Projection.Dim0())
	mark := r.arena.Mark()
	defer r.arena.Release(mark)
	e, tokens := r.alloc(r.x.Shape...), make([]int32, 0, r.x.Dim0())
	for _, part := range r.rows {
		from, rows := len(tokens), model.QueryRows(model.TokenRows(part.tokens))
		if part.learned != nil {
			rows = part.learned
		}
		rows.Embeddings(r.Model, e.Rows(from, from+rows.Rows()))
		if own := rows.Tokens(); own != nil {
			tokens = append(tokens, own...)
		} else {
			tokens = append(tokens, slices.Repeat([]int32{in.Padding}, rows.Rows())...)
		}
	}
	in.Rows(r.on, r.arena, y, e, tokens)
	return y
}

// DeltaNet runs the rows of a cache's sequence, or the first ones each of a sequence of its own.
func (r *layerRows) DeltaNet(d *model.DeltaNet, scale float64) (*kernels.Tensor, bool, error) {
	if r.at.cache != nil {
		return r.deltaNet(d, scale, model.DeltaRun{Rows: r.h.Dim0(), State: r.at.cache.State(r.l)})
	}
	runs := make([]model.DeltaRun, len(r.at.caches))
	for i, c := range r.at.caches {
		runs[i] = model.DeltaRun{Rows: 1, State: c.State(r.l)}
	}
	return r.deltaNet(d, scale, runs...)
}

func (r *layerRows) deltaNet(d *model.DeltaNet, scale float64, runs ...model.DeltaRun) (*kernels.Tensor, bool, error) {
	y := r.alloc(r.h.Shape...)
	d.Forward(y, model.DeltaPass{On: r.on, Arena: r.arena, H: r.h, Runs: runs, Counts: r.Model.Counts()}, scale)
	return y, true, nil
}

// copiedState is a run of so many rows that leaves the state of a cache as it is.
func (r *layerRows) copiedState(cache *kvcache.Cache, rows int) model.DeltaRun {
	return model.DeltaRun{Rows: rows, State: model.NewDeltaState(r.on, r.arena, r.Model.Config.Delta, false), From: cache.State(r.l)}
}

func (r *layerRows) OutputGate(gate model.Linear, x *kernels.Tensor) *kernels.Tensor {
	g := r.alloc(x.Shape...)
	r.on.Linear(g, r.h, gate.Weight, gate.Bias, 1, 0)
	if !r.Model.Counts() {
		model.MulLogistic(x, g)
	}
	return x
}

// noLowRank are the updates of rows without an adapter.
func noLowRank(model.Module) []model.RowUpdate { return nil }

// ofAll are the updates of rows that are all those of a probe.
func ofAll(rows model.QueryRows, layer int) func(model.Module) []model.RowUpdate {
	return func(m model.Module) []model.RowUpdate {
		if u := rows.LowRank(layer, m); u != nil {
			return []model.RowUpdate{{LowRank: u}}
		}
		return nil
	}
}
