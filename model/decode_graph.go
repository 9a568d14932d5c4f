package model

import (
	"context"
	"slices"

	"glimpse/kernels"
)

// decodeGraph runs decoding steps as one recorded graph: what changes from token to token
// is in device memory (kernels.Steps), so that a step costs one launch, for one sequence
// or for several. It is recorded anew only when the entries of a layer outgrow the cut of
// its attention, the positions the table of angles, or when the number of sequences
// changes.
//
// Observers run when the whole step is queued, layer by layer: no layer reads the cache of
// another, so they may change it as they may in a step that is not recorded.
//
// Who chooses what a step attends to does so before it starts, on queries at a place that
// is always the same: the choice of a layer, and the attention to it, is a segment of the
// graph (kernels.Graph) whose lists are sent anew for every token. It is recorded anew
// when more than lists has changed.
//
// The first step of a runner, and of so many rows, is not recorded: it loads what the
// device needs.
type decodeGraph struct {
	graph  kernels.Graph
	step   kernels.Stepper
	steps  kernels.Steps
	run    *Runner         // records: its operations go into graph
	logits *kernels.Tensor // [rows, vocab], of the last step

	scores     *kernels.Tensor // of a step that is observed, [layers·heads, width]; else nil
	choose     *Runner         // prepares the segments of sparse steps; nil before the first
	query, out *kernels.Tensor // of these segments: [1, heads, headDim], [1, heads·headDim]

	rows     int // of the step; those after the sequences only fill it up
	recorded *recording
	synced   []uint64 // the versions of the caches that steps holds
}

// recording is what a recorded step serves for.
type recording struct {
	rope    *kernels.RoPETable
	pairs   kernels.DType
	buckets [][]int // per sequence and layer

	observed, sparse bool
}

// newDecodeGraph returns nil where the device has no graphs, or the layers are on several.
func newDecodeGraph(m *Model, rows int) *decodeGraph {
	if len(m.placed()) > 1 {
		return nil
	}
	g := m.Backend.NewGraph()
	if g == nil {
		return nil
	}
	step := g.Backend().Stepper()
	if step == nil {
		g.Close()
		return nil
	}
	view := &Model{Name: m.Name, Config: m.Config, Network: m.Network, Backend: step, cacheDType: m.cacheDType, cut: true}
	return &decodeGraph{
		graph: g, step: step, steps: step.NewSteps(rows, m.Config.Layers, m.Config.KVHeads), run: view.NewRunner(),
		rows: rows, synced: make([]uint64, rows),
	}
}

// recordable tells whether a pass over n tokens is a step that can be replayed: of which
// nothing is observed but where its pairs are and the scores of its row, or whose choice
// is made on the device.
func (o *PrefillOptions) recordable(n int) bool {
	c := &o.Capture
	return n == 1 && !o.CacheOnly && !c.AllRows && !c.Squares && !c.Queries && len(c.Probes)+len(c.PeakWindows)+len(c.PeakProbes) == 0 &&
		(o.Sparse == nil || o.SparseOnDevice && len(c.Windows) == 0)
}

// graphStep runs a step of each sequence on the recorded graph and returns the logits [rows,
// vocab], valid until the next step; nil where it cannot be recorded, and then
// nothing has happened. What is chosen sparsely, and scores that are observed, are those of
// an only sequence.
func (r *Runner) graphStep(ctx context.Context, sequences []*batchStep, rows int) (*kernels.Tensor, error) {
	caches, tokens := make([]*Cache, len(sequences)), make([]int32, len(sequences))
	for i, s := range sequences {
		caches[i], tokens[i] = s.cache, s.token
	}
	opt := &sequences[0].opt
	switch {
	case r.noGraph || !rotatedAlike(caches):
		return nil, nil
	case r.stepped != rows:
		r.stepped = rows
		return nil, nil
	case r.decodeGraph == nil || r.decodeGraph.rows != rows:
		r.decodeGraph = newDecodeGraph(r.Model, rows)
	}
	p := r.decodeGraph
	if p == nil {
		r.noGraph = true
		return nil, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	next, longest := p.room(r.Model, caches)
	next.sparse, next.observed = opt.Sparse != nil, len(opt.Capture.Windows) > 0
	if !next.sparse && !p.serves(next, longest) {
		r.decodeGraph, r.noGraph = nil, true
		return nil, nil
	}
	var first []int32
	for i, cache := range caches {
		if p.synced[i] != cache.version.Load() {
			past := make([][]kernels.KV, len(cache.heads))
			for l := range past {
				past[l] = cache.View(l)
			}
			p.step.SetSteps(p.steps, i, cache.next, past)
		}
		first = appendFirst(first, &r.Model.Config, cache)
	}
	p.step.SetStep(p.steps, tokens, first)
	for _, cache := range caches {
		for l := range cache.heads {
			for j := range cache.heads[l] {
				h := &cache.heads[l][j]
				h.pos = append(h.pos, cache.next)
			}
		}
	}
	if next.sparse {
		if err := p.prepare(caches[0], opt.Sparse); err != nil {
			return nil, err
		}
		if !p.serves(next, longest) { // the choice is made: it goes on without a graph
			r.noGraph = true
			p.record(next, longest)
			r.decodeGraph = nil
		}
	}
	if !r.noGraph {
		p.graph.Replay()
	}
	for i, s := range sequences {
		s.cache.changed()
		p.synced[i] = s.cache.version.Load()
		s.err = p.observe(s)
		s.cache.next++
	}
	return p.logits, nil
}

// observe tells the observer of a sequence of all layers of a step that is queued.
func (p *decodeGraph) observe(s *batchStep) error {
	if s.opt.Observe == nil {
		return nil
	}
	for l := range s.cache.heads {
		o := &Observation{Layer: l, Cache: s.cache, StepDone: true, Joint: p.scores}
		for range s.opt.Capture.Windows {
			o.Windows = append(o.Windows, p.layerScores(l))
		}
		if err := s.opt.Observe(o); err != nil {
			return err
		}
	}
	return nil
}

// room makes room in the caches for a step, and returns what a recorded step must serve
// for, and the entries of the longest heads per sequence and layer.
func (p *decodeGraph) room(m *Model, caches []*Cache) (next *recording, longest [][]int) {
	next = &recording{pairs: caches[0].dtype}
	pos := make([]int32, len(caches))
	for i, cache := range caches {
		pos[i] = cache.next
		entries, buckets := make([]int, len(cache.heads)), make([]int, len(cache.heads))
		for l := range cache.heads {
			for j := range cache.heads[l] {
				h := &cache.heads[l][j]
				cache.makeRoom(l, h, 1)
				entries[l] = max(entries[l], len(h.pos)+1)
			}
			buckets[l] = kernels.EntryBucket(entries[l])
		}
		longest, next.buckets = append(longest, entries), append(next.buckets, buckets)
	}
	next.rope = m.rope(m.Backend, pos, caches[0].long)
	return next, longest
}

// prepare lets choose prepare the attention of every layer of a step whose pairs will be
// in the cache.
func (p *decodeGraph) prepare(cache *Cache, choose SparseAttention) error {
	r, c := p.choose, &p.run.Model.Config
	if r == nil {
		r = p.run.Model.NewRunner()
		r.prepares = true
		p.choose = r
		p.query, p.out = p.step.Alloc(p.step.Compute(), 1, c.Heads, c.HeadDim), p.step.Alloc(p.step.Compute(), 1, c.Heads*c.HeadDim)
	}
	pass := &prefillPass{Runner: r, cache: cache, opt: PrefillOptions{Sparse: choose}, pos: []int32{cache.next}}
	for l := range cache.heads {
		err := p.graph.Prepare(l, func() error {
			return pass.attention(l, nil, p.out, nil, r.attend(cache, l, p.query, pass.pos))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// serves records the step where what is recorded does not serve, and reports whether
// there is something to replay.
func (p *decodeGraph) serves(next *recording, longest [][]int) bool {
	last := p.recorded
	if last != nil && last.rope == next.rope && last.pairs == next.pairs && last.observed == next.observed && last.sparse == next.sparse &&
		(next.sparse && p.graph.Prepared() || !next.sparse && slices.EqualFunc(last.buckets, next.buckets, slices.Equal[[]int])) {
		return true
	}
	p.recorded = nil
	if p.graph.Record(func() { p.record(next, longest) }) {
		p.recorded = next
	}
	return p.recorded != nil
}

// record is one decoding step: the operations of prefillPass for one row, or those of
// StepBatch.
func (p *decodeGraph) record(to *recording, longest [][]int) {
	r, b, m := p.run, p.step, p.run.Model
	c, n := &m.Config, len(longest)
	r.arena.Release(nil)
	b.StartStep(p.steps, n)
	x := r.alloc(p.rows, c.Hidden)
	b.StepGather(x, m.Network.Embedding, p.steps)
	h := r.norm(x, m.Network.Layers[0].AttentionNorm)
	p.scores = nil
	if to.observed { // all layers' are there until the observers have run
		p.scores = r.alloc(c.Layers*c.Heads, slices.Max(to.buckets[0]))
	}
	rows := &recordedRows{layerRows: layerRows{Runner: r, x: x, h: h, next: h, low: noLowRank}, decodeGraph: p, to: to, longest: longest}
	for rows.l = range m.Network.Layers {
		mark := r.arena.Mark()
		if err := RunLayer(rows, m, rows.l); err != nil {
			panic(err) // of Attend, which returns none
		}
		r.arena.Release(mark)
	}
	p.logits = r.alloc(p.rows, c.Vocab)
	m.head(b, p.logits, h)
}

// layerScores are those of a layer; nil where nobody observes.
func (p *decodeGraph) layerScores(l int) *kernels.Tensor {
	if p.scores == nil {
		return nil
	}
	heads := p.run.Model.Config.Heads
	return p.scores.Rows(l*heads, (l+1)*heads)
}

// recordedRows are the rows of a step that is recorded.
type recordedRows struct {
	layerRows
	*decodeGraph
	to            *recording
	longest       [][]int // entries of the longest heads per sequence and layer
	v             *kernels.Tensor
	pairsAppended bool // the layer's pairs are in the caches
}

func (p *recordedRows) Projections() (q, k, v *kernels.Tensor) {
	q, k, v = p.layerRows.Projections()
	p.v = v
	return q, k, v
}

// NormRotate appends the pairs, too, where the device does that at once.
func (p *recordedRows) NormRotate(q, k *kernels.Tensor) bool {
	norms, rms := p.Model.headNorms(p.l)
	ok := rms && p.Model.Config.rotatesHeads(p.l)
	p.pairsAppended = ok && p.step.StepHeads(q, k, p.v, norms, p.to.rope, p.steps, len(p.longest), p.l, p.to.pairs)
	return ok
}

func (p *recordedRows) Rotate(_ Module, x *kernels.Tensor) *kernels.Tensor {
	p.step.StepRoPE(x, p.steps, p.to.rope)
	return x
}

// Attend lets every sequence attend to all that a layer of its cache holds, or leaves it to
// a segment of the graph.
func (p *recordedRows) Attend(q, k, v *kernels.Tensor) (*kernels.Tensor, bool, error) {
	c, n, steps := &p.Model.Config, len(p.longest), p.steps
	at := kernels.StepLayer{Layer: p.l, Pairs: p.to.pairs, Appended: p.pairsAppended}
	if p.to.sparse {
		p.step.StepAppend(p.query, q, k, v, steps, at)
		p.graph.Segment(p.l)
		return p.out, true, nil
	}
	out := p.alloc(p.decodeGraph.rows, c.Heads*c.HeadDim)
	if n < p.decodeGraph.rows {
		p.step.Fill(out.Rows(n, p.decodeGraph.rows), 0)
	}
	at.Windowed, at.Scale, at.Scores = c.Window(p.l) > 0, c.AttentionScale(), p.layerScores(p.l)
	entries := make([]int, n)
	for i := range entries {
		entries[i] = p.longest[i][p.l]
	}
	p.step.StepAttentions(out, q, k, v, steps, at, entries)
	return out, true, nil
}

// appendFirst appends, for a model with sliding windows, the first entries of all
// heads that the next position sees.
func appendFirst(first []int32, c *Config, cache *Cache) []int32 {
	if c.Windows == nil {
		return nil
	}
	for l := range cache.heads {
		for i := range cache.heads[l] {
			first = append(first, int32(firstSeen(cache.heads[l][i].pos, cache.next, c.Window(l))))
		}
	}
	return first
}
