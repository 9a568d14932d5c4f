package kernels

// dryGraph is a Graph that counts what one of the device would hold.
type dryGraph struct {
	session   *Dry
	recording bool
	keep      []*dryBlock // of what is recorded
	scratch   *Tensor
	size      int64     // of scratch
	old       []*Tensor // scratch memory that operations of the recording refer to
}

// NewGraph returns nil where the backend that is counted for records none.
func (d *Dry) NewGraph() Graph {
	if !d.traits.Device || !d.traits.Graphs {
		return nil
	}
	g := &dryGraph{}
	session := *d
	session.graph = g
	g.session = newDry(session)
	return g
}

// Stepper is the backend itself.
func (d *Dry) Stepper() Stepper { return d }

func (g *dryGraph) Backend() Backend { return g.session }

func (g *dryGraph) Run(f func() error) error {
	err := g.record(f)
	g.keep = nil
	return err
}

func (g *dryGraph) Record(f func()) bool { return g.record(func() error { f(); return nil }) == nil }

func (g *dryGraph) record(f func() error) error {
	g.keep, g.old, g.recording = nil, nil, true
	defer func() { g.recording = false }()
	return f()
}

// take counts temporary memory of one operation, as graphMemory hands it out.
func (g *dryGraph) take(bytes int64) {
	if g.session.traits.Exact {
		g.old = append(g.old, g.alloc(bytes))
		return
	}
	if bytes <= g.size {
		return
	}
	if g.scratch != nil {
		g.old = append(g.old, g.scratch)
	}
	g.size = max(2*g.size, bytes, 1<<20)
	g.scratch = g.alloc(g.size)
}

// alloc is memory that belongs to the graph and not to what is recorded.
func (g *dryGraph) alloc(bytes int64) *Tensor {
	recording := g.recording
	g.recording = false
	defer func() { g.recording = recording }()
	return g.session.Alloc(BF16, int(bytes+1)/2)
}

func (g *dryGraph) Replay()                             {}
func (g *dryGraph) Prepare(_ int, f func() error) error { return f() }
func (g *dryGraph) Prepared() bool                      { return true }
func (g *dryGraph) Part(int)                            {}
func (g *dryGraph) Close()                              { *g = dryGraph{session: g.session} }

// The steps of a graph (Stepper) take memory, and count that of their operations.
type drySteps struct {
	rows, layers, kvHeads int
	header, past          *Tensor
}

func (s *drySteps) Tokens() *Tensor { return s.header.Rows(s.rows, 2*s.rows) }

// NewSteps implements Stepper, and so do the methods that follow.
func (d *Dry) NewSteps(rows, layers, kvHeads int) Steps {
	n := rows * layers * kvHeads
	return &drySteps{rows, layers, kvHeads, d.Alloc(I32, 2*rows+n), d.Alloc(I32, n, pastBytes/4)}
}

func (d *Dry) SetSteps(s Steps, sequence int, pos int32, past [][]KV) {}
func (d *Dry) SetStep(s Steps, tokens, first []int32)                 {}
func (d *Dry) StartStep(s Steps, sequences int)                       {}
func (d *Dry) StepGather(y, table *Tensor, s Steps) {
	MustFit(s.(*drySteps).rows*table.Width(), y.Shape)
}
func (d *Dry) StepRoPE(x *Tensor, s Steps, table *RoPETable) {
	checkRoPE(x, make([]int32, s.(*drySteps).rows), table)
}

func (d *Dry) StepAttention(out, q, k, v *Tensor, s Steps, at StepLayer) {
	a := &Attend{Q: q, Past: make([]KV, s.(*drySteps).kvHeads)}
	pairs := NewShape(at.Pairs, at.Longest, q.Shape[2])
	for g := range a.Past {
		a.Past[g] = KV{K: pairs, V: pairs}
	}
	d.temp(attendScratch(a, true, d.traits.Processors))
}

func (d *Dry) StepAppend(to, q, k, v *Tensor, s Steps, at StepLayer) {
	checkLengths("StepAppend", to, q)
}

// StepHeads takes nothing.
func (d *Dry) StepHeads(q, k, v *Tensor, norms HeadNorms, table *RoPETable, s Steps, sequences, layer int, pairs DType) (appended bool) {
	checkHeads("StepHeads", q, k, norms, make([]int32, s.(*drySteps).rows), table)
	return true
}

// StepAttentions takes what one sequence after the other does.
func (d *Dry) StepAttentions(out, q, k, v *Tensor, s Steps, at StepLayer, longest []int) {
	for i := range longest {
		at.Longest = longest[i]
		d.StepAttention(out.Rows(i, i+1), q.Rows(i, i+1), nil, nil, s, at)
	}
}
