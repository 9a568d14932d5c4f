package runner

import (
	"context"
	"slices"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
)

// recordedSteps runs the decoding steps of a runner as recorded graphs: what changes from token to token is in device
// memory (kernels.Steps), so that a step costs one launch, for one sequence or for several. A graph serves for a number
// of sequences, for what each of them attends to and is observed of, and up to so many entries of every layer
// (kernels.Stepper.StepBuckets). The graphs of the last few such steps are kept: sequences join, leave and grow.
//
// Observers run when the whole step is queued, layer by layer: no layer reads the cache of
// another, so they may change it as they may in a step that is not recorded.
//
// Who chooses what a sequence attends to does so before the step starts, on queries at a place that
// is always the same: the choice of a layer, and the attention to it, is a segment of the
// graph (kernels.Graph) whose lists are sent anew for every token. It is recorded anew
// when more than lists has changed, as any graph is whose sequences have outgrown it.
//
// The first step of a runner, and of so many rows, is not recorded: it loads what the
// device needs.
type recordedSteps struct {
	model  *model.Model
	device kernels.Stepper // of the first graph, outside of recordings
	steps  kernels.Steps
	arena  *kernels.Arena // of all graphs: their steps follow each other
	graphs []*decodeGraph // at most maxGraphs, the one used last first

	rows   int      // of a step; those after the sequences only fill it up
	synced []uint64 // the versions of the caches that steps holds
}

// maxGraphs is the most graphs of steps that are kept.
const maxGraphs = 8

// decodeGraph is a recorded step.
type decodeGraph struct {
	of     *recordedSteps
	graph  kernels.Graph
	step   kernels.Stepper
	run    *Runner         // records: its operations go into graph
	logits *kernels.Tensor // [rows, vocab], of the last step

	scores     []*kernels.Tensor // of a sequence that is observed, [layers·heads, width]; else nil
	choose     *Runner           // prepares the segments of sparse sequences; nil before the first
	query, out *kernels.Tensor   // of these segments: [rows, heads, headDim], [rows, heads·headDim]

	kinds    []stepKind // that it is for; nil: none yet
	recorded *recording // nil: nothing
}

// recording is what a recorded step serves for.
type recording struct {
	queryRoPE []*kernels.RoPETable // per layer
	keyRoPE   []*kernels.RoPETable
	pairs     kernels.DType
	kinds     []stepKind // per sequence
	buckets   [][]int    // per sequence and layer
}

// stepKind is how a sequence takes part in a step.
type stepKind uint8

const (
	plainStep    stepKind = iota
	observedStep          // the scores of its row are observed
	sparseStep            // it chooses what it attends to
)

func (s *batchStep) kind() stepKind {
	switch {
	case s.opt.Sparse != nil:
		return sparseStep
	case len(s.opt.Capture.Windows) > 0:
		return observedStep
	}
	return plainStep
}

// newRecordedSteps returns nil where the device has no graphs, the layers are on several, or the host decides in the
// middle of a step.
func newRecordedSteps(m *model.Model, rows int) *recordedSteps {
	if len(m.Stages()) > 1 || m.Network.OnHost(m.Backend, rows) {
		return nil
	}
	p := &recordedSteps{model: m, rows: rows, synced: make([]uint64, rows)}
	if m.Config.VariesKV() || p.newGraph() == nil { // its table is of as many KV heads in every layer
		return nil
	}
	p.device, p.arena = p.graphs[0].step, p.graphs[0].run.arena
	p.steps = p.device.NewSteps(rows, m.Config.Layers, m.Config.KVHeads)
	return p
}

// newGraph puts an empty graph before the others; nil where the device has none.
func (p *recordedSteps) newGraph() *decodeGraph {
	m := p.model
	g := m.Backend.NewGraph()
	if g == nil {
		return nil
	}
	made := &decodeGraph{of: p, graph: g, step: g.Backend(), run: New(m.Over(g.Backend()))}
	if p.arena != nil && !m.Backend.ArenaLayout().Apart { // or its memory would be freed when another is recorded
		made.run.arena = p.arena
	}
	p.graphs = slices.Insert(p.graphs, 0, made)
	return made
}

// graphFor is the graph that serves for a step, or one that is to be recorded for it: anew, where its sequences have
// outgrown it.
func (p *recordedSteps) graphFor(next *recording) *decodeGraph {
	i := slices.IndexFunc(p.graphs, func(g *decodeGraph) bool { return slices.Equal(g.kinds, next.kinds) })
	if i < 0 {
		i = slices.IndexFunc(p.graphs, func(g *decodeGraph) bool { return g.kinds == nil })
	}
	if i < 0 && len(p.graphs) < maxGraphs && p.newGraph() != nil {
		i = 0
	}
	if i < 0 {
		i = len(p.graphs) - 1
	}
	g := p.graphs[i]
	p.graphs = slices.Insert(slices.Delete(p.graphs, i, i+1), 0, g)
	g.kinds = next.kinds
	return g
}

// recordable tells whether steps can be replayed:
// nothing is observed of them but where their pairs are and the scores of their rows, or whose choice
// is made on the device.
func (o *GenerateOptions) recordable() bool {
	c := &o.Capture
	return !c.AllRows && !c.Squares && !c.Queries && len(c.Gates)+len(c.PeakWindows)+len(c.afterPrompt()) == 0 &&
		(o.Sparse == nil || o.SparseOnDevice && len(c.Windows) == 0)
}

// graphStep runs a step of each sequence on a recorded graph and returns the logits [rows,
// vocab], valid until the next step; nil where it cannot be recorded, and then
// nothing has happened. Errors of those that observe and choose are their sequences'.
func (r *Runner) graphStep(ctx context.Context, sequences []*batchStep, rows int) (*kernels.Tensor, error) {
	apart := func(s *batchStep) bool { return !s.opt.recordable() || s.cache.Long() != sequences[0].cache.Long() }
	switch {
	case r.noGraph || slices.ContainsFunc(sequences, apart): // or rotated by other frequencies
		return nil, nil
	case r.stepped != rows:
		r.stepped = rows
		return nil, nil
	case r.recorded == nil || r.recorded.rows != rows:
		r.recorded = newRecordedSteps(r.Model, rows)
	}
	p := r.recorded
	if p == nil {
		r.noGraph = true
		return nil, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	next := p.room(sequences)
	g := p.graphFor(next)
	sparse := slices.Contains(next.kinds, sparseStep)
	if !sparse && !g.serves(next) {
		return nil, nil
	}
	tokens := make([]int32, len(sequences))
	var first []int32
	for i, s := range sequences {
		cache := s.cache
		if p.synced[i] != cache.Version() {
			p.device.SetSteps(p.steps, i, cache.Next(), cache.Views())
		}
		tokens[i], first = s.token, appendFirst(first, &r.Model.Config, cache)
	}
	p.device.SetStep(p.steps, tokens, first)
	for _, s := range sequences {
		s.cache.Written()
	}
	if sparse {
		g.prepareStep(sequences, next)
	}
	if !sparse || g.serves(next) {
		g.graph.Replay()
	} else { // the choices are made: it goes on without a graph
		g.recordStep(next)
		g.recorded = nil
	}
	for i, s := range sequences {
		p.synced[i] = s.cache.Version()
		if s.err == nil {
			s.err = g.observeStep(i, s)
		}
		s.cache.Advance(1)
	}
	return g.logits, nil
}

// observeStep tells the observer of a sequence of all layers of a step that is queued.
func (g *decodeGraph) observeStep(i int, s *batchStep) error {
	if s.opt.Observe == nil {
		return nil
	}
	for l := range s.cache.Layers() {
		o := &Observation{Layer: l, Cache: s.cache, StepDone: true, Joint: g.scores[i]}
		for range s.opt.Capture.Windows {
			o.Windows = append(o.Windows, g.layerScores(i, l))
		}
		if err := s.opt.Observe(o); err != nil {
			return err
		}
	}
	return nil
}

// room makes room in the caches for a step, and returns what a recorded step must serve for.
func (p *recordedSteps) room(sequences []*batchStep) *recording {
	c := &p.model.Config
	next := &recording{pairs: sequences[0].cache.DType()}
	pos, longest := make([]int32, len(sequences)), make([][]int, len(sequences))
	for i, s := range sequences {
		cache := s.cache
		pos[i], longest[i] = cache.Next(), make([]int, cache.Layers())
		for l := range longest[i] {
			longest[i][l] = cache.Grow(l, 1)
		}
		next.kinds = append(next.kinds, s.kind())
		if s.kind() == sparseStep { // whose segments are prepared for what they read
			clear(longest[i])
		}
	}
	next.buckets = p.device.StepBuckets(longest, next.pairs, c.HeadDim)
	for l := range c.Layers {
		rope := func(m model.Module) *kernels.RoPETable {
			return p.model.RoPE(p.model.Backend, l, m, pos, sequences[0].cache.Long())
		}
		next.queryRoPE, next.keyRoPE = append(next.queryRoPE, rope(model.QProj)), append(next.keyRoPE, rope(model.KProj))
	}
	return next
}

// prepareStep lets those who choose prepare the attention of every layer of a step whose pairs will be
// in the cache. A sequence that fails attends to nothing.
func (g *decodeGraph) prepareStep(sequences []*batchStep, next *recording) {
	r, c := g.choose, &g.of.model.Config
	if r == nil {
		r = New(g.run.Model)
		r.prepares = true
		g.choose = r
		g.query, g.out = g.step.Alloc(g.step.Compute(), g.of.rows, c.Heads, c.HeadDim), g.step.Alloc(g.step.Compute(), g.of.rows, c.Heads*c.HeadDim)
	}
	at := 0
	for i, s := range sequences {
		if next.kinds[i] != sparseStep {
			continue
		}
		row := &segment{cache: s.cache, pos: []int32{s.cache.Next()}, of: 1, sparse: s.opt.Sparse}
		for l := range s.cache.Layers() {
			prepared := g.graph.Prepare(at, func() error {
				if s.err != nil {
					return s.err
				}
				row.o = &Observation{Layer: l, Cache: s.cache}
				return r.output(row, g.out.Rows(i, i+1), nil, r.attend(s.cache, l, g.query.Rows(i, i+1), row.pos))
			})
			if s.err == nil {
				s.err = prepared
			}
			at++
		}
	}
}

// serves records the step where what is recorded does not serve, and reports whether
// there is something to replay.
func (g *decodeGraph) serves(next *recording) bool {
	if r := g.recorded; r != nil && slices.Equal(r.queryRoPE, next.queryRoPE) && slices.Equal(r.keyRoPE, next.keyRoPE) && r.pairs == next.pairs && slices.Equal(r.kinds, next.kinds) &&
		slices.EqualFunc(r.buckets, next.buckets, slices.Equal[[]int]) && (!slices.Contains(next.kinds, sparseStep) || g.graph.Prepared()) {
		return true
	}
	g.recorded = nil
	if g.graph.Record(func() { g.recordStep(next) }) {
		g.recorded = next
	}
	return g.recorded != nil
}

// recordStep is one decoding step: the operations of StepBatch.
func (g *decodeGraph) recordStep(to *recording) {
	r, b, m := g.run, g.step, g.run.Model
	c, n := &m.Config, len(to.kinds)
	r.arena.Release(nil)
	b.StartStep(g.of.steps, n)
	x := r.alloc(g.of.rows, c.Hidden)
	b.StepGather(x, m.Network.Embedding, g.of.steps)
	h := r.norm(x, m.Network.Layers[0].AttentionNorm)
	g.scores = make([]*kernels.Tensor, n)
	for i, kind := range to.kinds {
		if kind == observedStep { // all layers' are there until the observers have run
			g.scores[i] = kept(r.alloc(c.Layers*c.Heads, slices.Max(to.buckets[i])))
		}
	}
	rows := &recordedRows{layerRows: layerRows{Runner: r, x: x, h: h, next: h}, g: g, to: to}
	for rows.l = range m.Network.Layers {
		mark := r.arena.Mark()
		if err := model.RunLayer(rows, m, rows.l); err != nil {
			panic(err) // of Attend, which returns none
		}
		r.arena.Release(mark)
	}
	g.logits = kept(r.alloc(g.of.rows, c.Vocab))
	headLogits(m, b, g.logits, h)
}

// kept is a tensor that stays what it is when another graph is recorded in the arena.
func kept(t *kernels.Tensor) *kernels.Tensor { return t.Rows(0, t.Dim0()) }

// layerScores are the scores of a sequence in a layer; nil where nobody observes.
func (g *decodeGraph) layerScores(i, l int) *kernels.Tensor {
	if g.scores[i] == nil {
		return nil
	}
	heads := g.of.model.Config.Heads
	return g.scores[i].Rows(l*heads, (l+1)*heads)
}

// recordedRows are the rows of a step that is recorded.
type recordedRows struct {
	layerRows
	g             *decodeGraph
	to            *recording
	v             *kernels.Tensor
	pairsAppended bool // the layer's pairs are in the caches
}

func (p *recordedRows) Projections() (q, k, v *kernels.Tensor) {
	q, k, v = p.layerRows.Projections()
	p.v = v
	return q, k, v
}

// Experts reads those that rows choose by tables in the device's memory; rows that fill up the batch read none.
func (p *recordedRows) Experts(e *model.Experts, h *kernels.Tensor, scale float64) *kernels.Tensor {
	y := p.alloc(h.Shape...)
	e.Forward(y, model.Pass{On: p.on, Arena: p.arena, H: h, Rows: len(p.to.kinds)}, scale)
	return y
}

// NormRotate appends the pairs, too.
func (p *recordedRows) NormRotate(q, k *kernels.Tensor) bool {
	norms, rms := headNorms(p.Model, p.l)
	ok := rms && rotatesHeads(&p.Model.Config, p.l)
	if p.pairsAppended = ok; ok {
		p.g.step.StepHeads(q, k, p.v, norms, p.to.keyRoPE[p.l], p.g.of.steps, len(p.to.kinds), p.l, p.to.pairs)
	}
	return ok
}

func (p *recordedRows) Rotate(m model.Module, x *kernels.Tensor) *kernels.Tensor {
	tables := p.to.keyRoPE
	if m == model.QProj {
		tables = p.to.queryRoPE
	}
	p.g.step.StepRoPE(x, p.g.of.steps, tables[p.l])
	return x
}

// Attend lets every sequence attend to all that a layer of its cache holds, neighbours that are not observed
// together, or leaves it to a segment of the graph.
func (p *recordedRows) Attend(q, k, v *kernels.Tensor) (*kernels.Tensor, bool, error) {
	c, n, steps, kinds := &p.Model.Config, len(p.to.kinds), p.g.of.steps, p.to.kinds
	out, segment := p.g.out, p.l
	if !slices.Contains(kinds, sparseStep) {
		out = p.alloc(p.g.of.rows, c.Heads*c.HeadDim)
	}
	if n < p.g.of.rows {
		p.g.step.Fill(out.Rows(n, p.g.of.rows), 0)
	}
	for i := 0; i < n; {
		at := kernels.StepLayer{Sequence: i, Layer: p.l, Pairs: p.to.pairs, Appended: p.pairsAppended}
		end := i + 1
		for kinds[i] == plainStep && end < n && kinds[end] == plainStep {
			end++
		}
		q, k, v := q.Rows(i, end), k.Rows(i, end), v.Rows(i, end)
		if kinds[i] == sparseStep {
			p.g.step.StepAttention(p.g.query.Rows(i, end), q, k, v, steps, at)
			p.g.graph.Segment(segment)
			segment += c.Layers
		} else {
			at.SoftCap, at.Sinks = c.AttentionCap, p.Model.Network.Layers[p.l].Sinks
			at.Windowed, at.Scale, at.Scores = c.Window(p.l) > 0, c.AttentionScale(), p.g.layerScores(i, p.l)
			for _, layers := range p.to.buckets[i:end] {
				at.Longest = append(at.Longest, layers[p.l])
			}
			p.g.step.StepAttention(out.Rows(i, end), q, k, v, steps, at)
		}
		i = end
	}
	return out, true, nil
}

// appendFirst appends, for a model with sliding windows, the first entries of all
// heads that the next position sees.
func appendFirst(first []int32, c *model.Config, cache *kvcache.Cache) []int32 {
	if !c.HasWindows() {
		return nil
	}
	for l := range cache.Layers() {
		for i := range cache.KVHeads() {
			first = append(first, int32(cache.Entries(l, i)-cache.Seen(l, i, cache.Next(), c.Window(l))))
		}
	}
	return first
}
