package model

import "glimpse/kernels"

// What a decoding step computes at once: the projections of the same rows, and a gate with
// what it gates. The bits are those of the single operations.

// linearRows is a module of layer l with new memory for its output of rows x.
func (r *Runner) linearRows(l int, m Module, x *kernels.Tensor) kernels.LinearRows {
	lin := r.Model.Network.Layers[l].Linear(m)
	return kernels.LinearRows{Y: r.alloc(x.Dim0(), lin.Weight.Dim0()), Weight: lin.Weight, Bias: lin.Bias}
}

// attentionRows projects normalised rows h to queries [rows, heads, headDim], keys and
// values [rows, kvHeads, headDim], without norms of heads and without rotation.
func (r *Runner) attentionRows(l int, h *kernels.Tensor) (q, k, v *kernels.Tensor) {
	c := &r.Model.Config
	all := make([]kernels.LinearRows, 0, 3)
	for _, m := range []Module{QProj, KProj, VProj} {
		all = append(all, r.linearRows(l, m, h))
	}
	r.Model.Backend.LinearGroup(h, all...)
	heads := func(i, n int) *kernels.Tensor { return all[i].Y.Reshape(h.Dim0(), n, c.HeadDim) }
	return heads(0, c.Heads), heads(1, c.KVHeads), heads(2, c.KVHeads)
}

// headNorms are the norms of the heads of layer l; false where they are no RMSNorm.
func (r *Runner) headNorms(l int) (kernels.HeadNorms, bool) {
	q, k := r.Model.Network.Layers[l].QueryNorm, r.Model.Network.Layers[l].KeyNorm
	return kernels.HeadNorms{Query: q.Weight, Key: k.Weight, Eps: r.Model.Config.RMSNormEps}, q.Bias == nil && k.Bias == nil
}

// stepRows is the most rows that are taken for a step's, of one sequence or of several.
const stepRows = 8

// projections are query, key and value of normalised rows h.
func (r *Runner) projections(l int, h *kernels.Tensor, at places, low func(Module) *LowRank) (q, k, v *kernels.Tensor) {
	norms, rms := r.headNorms(l)
	if len(at.pos) > stepRows || !rms || !r.Model.Config.rotatesHeads(l) || at.run(0) < len(at.pos) ||
		low(QProj) != nil || low(KProj) != nil || low(VProj) != nil {
		return r.query(l, h, at, low), r.key(l, h, at, low), r.value(l, h, low)
	}
	q, k, v = r.attentionRows(l, h)
	r.Model.Backend.RotateHeads(q, k, norms, at.pos, r.Model.rope(at.pos, at.long(0)))
	return q, k, v
}

// rotatesHeads tells whether layer l rotates all of its queries and keys, as the kernels
// that do more than that at once expect.
func (c *Config) rotatesHeads(l int) bool { return c.Rotates(l) && 2*len(c.RoPEFreqs) == c.HeadDim }

// stepHeads are the queries, keys and values of layer l in a step that is recorded; appended
// tells that the pairs of the first n rows are in the caches.
func (p *replayer) stepHeads(l, n int, h *kernels.Tensor, to *recordedSteps) (q, k, v *kernels.Tensor, appended bool) {
	r := p.run
	q, k, v = r.attentionRows(l, h)
	if norms, rms := r.headNorms(l); rms && r.Model.Config.rotatesHeads(l) {
		return q, k, v, p.step.StepHeads(q, k, v, norms, to.rope, p.steps, n, l, to.pairs)
	}
	layer := &r.Model.Network.Layers[l]
	q, k = r.headNorm(q, layer.QueryNorm), r.headNorm(k, layer.KeyNorm)
	if r.Model.Config.Rotates(l) {
		p.step.StepRoPE(q, p.steps, to.rope)
		p.step.StepRoPE(k, p.steps, to.rope)
	}
	return q, k, v, false
}

// stepAttention lets n sequences of a step that is recorded attend in layer l, whose longest
// heads have so many entries.
func (p *replayer) stepAttention(l int, longest [][]int, q, k, v, out *kernels.Tensor, appended bool, to *recordedSteps) {
	r, n := p.run, len(longest)
	at := kernels.StepLayer{Layer: l, Pairs: to.pairs, Windowed: r.Model.Config.Window(l) > 0, Appended: appended, Scale: r.scale(), Scores: p.layerScores(l)}
	entries := make([]int, n)
	for i := range n {
		entries[i] = longest[i][l]
	}
	p.step.StepAttentions(out, q, k, v, p.steps, at, entries)
}

// gated is the activation of an MLP with a gate, silu(gate) · up, of rows h; nil where there
// is no gate, or one with a low-rank update.
func (r *Runner) gated(l int, h *kernels.Tensor, low func(Module) *LowRank) *kernels.Tensor {
	layer := &r.Model.Network.Layers[l]
	if layer.Linear(GateProj) == nil || low(GateProj) != nil || low(UpProj) != nil {
		return nil
	}
	gate, up := layer.Linear(GateProj), layer.Linear(UpProj)
	act := r.input(l, h.Dim0(), up.Weight.Dim0(), DownProj)
	r.Model.Backend.GatedLinear(act, h, kernels.LinearRows{Weight: gate.Weight, Bias: gate.Bias}, kernels.LinearRows{Weight: up.Weight, Bias: up.Bias}, r.arena)
	return act
}
