package runner

import (
	"slices"

	"glimpse/kernels"
	"glimpse/model"
)

// layerRows are the rows of a pass that go through a layer together, on a backend. What a backend computes at once has the
// bits of the single operations.
type layerRows struct {
	*Runner
	l        int
	x        *kernels.Tensor // residual stream [rows, hidden]
	h        *kernels.Tensor // x through AttentionNorm
	next     *kernels.Tensor // takes what leaves the layer through the norm that follows, and may be h; nil leaves it to others
	pos      []int32         // of the rows
	segments []segment       // of the rows, but for those at the end that fill up a batch
	batch    bool            // each segment is a sequence of its own, fails alone, and attends beside the others on the host

	group [3]kernels.LinearRows // argument of the backend
}

// decodeRows is the most rows that are taken for a decoding step, of one sequence or
// of several.
const decodeRows = 8

// shares tells that the layer attends to the keys and values of another.
func (r *layerRows) shares() bool { return r.Model.Config.KVLayer(r.l) != r.l }

func (r *layerRows) Projections() (q, k, v *kernels.Tensor) {
	if !allWhole(r.segments) {
		return r.neededProjections()
	}
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

// neededProjections are the projections of the rows that have them.
func (r *layerRows) neededProjections() (q, k, v *kernels.Tensor) {
	if !r.shares() {
		k = r.project(model.KProj, r.h)
		if n := totalRows(r.segments, model.VProj); n > 0 {
			v = r.values(firstRows(k, n), firstRows(r.h, n))
		}
	}
	if n := totalRows(r.segments, model.QProj); n > 0 {
		q = r.project(model.QProj, r.queryInput(r.h.Dim0()-n, r.h.Dim0()))
		if s := &r.segments[0]; 0 < s.onward && s.onward < s.queries { // with the bits that they have alone, whatever is observed
			own := r.module(model.QProj)
			own.Y = r.alloc(s.onward, own.Weight.Dim0())
			r.on.Linear(own.Y, r.queryInput(s.Rows()-s.onward, s.Rows()), own.Weight, own.Bias, 1, 0) // tokens of a prompt have no updates
			r.on.Copy(q.Rows(s.queries-s.onward, s.queries), r.heads(own.Y))
		}
	}
	return q, k, v
}

// queryInput is rows [from, to) of h as the module of so many queries reads them.
func (r *layerRows) queryInput(from, to int) *kernels.Tensor {
	t := inputType(r.Model, r.l, to-from, model.QProj)
	switch {
	case to-from == r.h.Dim0():
		return r.h
	case t == r.h.DType:
		return r.h.Rows(from, to)
	}
	x := r.x.Rows(from, to)
	return r.normInto(r.arena.Alloc(t, x.Shape...), x, r.Model.Network.Layers[r.l].AttentionNorm)
}

// values are the values of rows h, whose keys are k before they are normalised and rotated in place.
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
	n := len(r.pos)
	if n > decodeRows || q == nil || q.Dim0() < n || !rms || !rotatesHeads(&r.Model.Config, r.l) || r.segments[0].vectors != nil || r.alike(0, n) < n {
		return false
	}
	r.on.RotateHeads(q, k, norms, r.pos, r.Model.RoPE(r.on, r.l, model.KProj, r.pos, r.long(0)))
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
	if x == nil {
		return nil
	}
	if v := r.segments[0].vectors; v != nil && m == model.QProj {
		v.Unrotated = kernels.FromF64(x.Float64s(), x.Shape...)
	}
	r.rotate(m, x)
	return x
}

// Linear computes in new memory. The bias is not scaled.
func (r *layerRows) Linear(m model.Module, x *kernels.Tensor, scale float64) *kernels.Tensor {
	lin := r.Model.Network.Layers[r.l].Linear(m)
	y := r.alloc(x.Dim0(), lin.Weight.Dim0())
	r.on.Linear(y, x, lin.Weight, lin.Bias, scale, 0)
	for _, u := range r.low(m) {
		x, y := u.RowsOf(x), u.RowsOf(y)
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
	pass := model.Pass{On: r.on, Arena: r.arena, H: h, Low: r.low}
	if r.batch { // a row has what it has in any batch of as many rows, and rows that fill it up read no expert
		pass.Rows, pass.Least = len(r.segments), r.on.SameRows(h.Dim0())
	}
	y := r.alloc(h.Shape...)
	e.Forward(y, pass, scale)
	return y
}

func (r *layerRows) Sum(a, b *kernels.Tensor) *kernels.Tensor {
	r.on.Add(a, a, b)
	return a
}

// Input is that of the rows that go on after attention.
func (r *layerRows) Input(in *model.LayerInput) *kernels.Tensor {
	y := r.alloc(r.x.Dim0(), in.Projection.Dim0())
	mark := r.arena.Mark()
	defer r.arena.Release(mark)
	e, tokens := r.alloc(r.x.Shape...), make([]int32, 0, r.x.Dim0())
	embed := func(rows model.QueryRows) {
		from, own := len(tokens), rows.Tokens()
		rows.Embeddings(r.Model, e.Rows(from, from+rows.Rows()))
		if own == nil {
			own = slices.Repeat([]int32{in.Padding}, rows.Rows())
		}
		tokens = append(tokens, own...)
	}
	for i := range r.segments {
		embed(r.segments[i].QueryRows)
	}
	if fill := r.x.Dim0() - len(tokens); fill > 0 {
		embed(make(model.TokenRows, fill))
	}
	in.Rows(r.on, r.arena, y, e, tokens)
	return y
}

// Recur moves the states of sequences on by their rows, and leaves them as they are where rows leave no trace.
func (r *layerRows) Recur(mixer model.Recurrent, scale float64) (*kernels.Tensor, bool, error) {
	if totalRows(r.segments, model.OProj) == 0 { // of a probe in the last layer
		return nil, false, nil
	}
	runs := make([]model.Run, len(r.segments))
	for i := range runs {
		s := &r.segments[i]
		if runs[i] = (model.Run{Rows: s.Rows(), State: s.cache.State(r.l)}); !s.appends {
			runs[i].From, runs[i].State = runs[i].State, model.NewState(r.on, r.arena, mixer, false)
		}
	}
	y := r.alloc(r.h.Shape...)
	mixer.Forward(y, model.MixerPass{On: r.on, Arena: r.arena, H: r.h, Runs: runs, Counts: r.Model.Counts()}, scale)
	return y, true, nil
}

func (r *layerRows) OutputGate(gate model.Linear, x *kernels.Tensor) *kernels.Tensor {
	g := r.alloc(x.Shape...)
	r.on.Linear(g, r.h, gate.Weight, gate.Bias, 1, 0)
	if !r.Model.Counts() {
		model.MulLogistic(x, g)
	}
	return x
}
