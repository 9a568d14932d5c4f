package memcount

import (
	"glimpse/kernels"
	"glimpse/kernels/cuda"
)

// graph is a Graph that counts what one of the device would hold.
type graph struct {
	session   *Counter
	recording bool
	keep      []*block // of the recording
	scratch   *kernels.Tensor
	size      int64             // of scratch
	old       []*kernels.Tensor // scratch memory that operations of the recording refer to
}

// NewGraph returns nil where the backend that is counted for records none.
func (d *Counter) NewGraph() kernels.Graph {
	if !d.traits.Device || !d.traits.Graphs {
		return nil
	}
	g := &graph{}
	session := *d
	session.graph = g
	g.session = newCounter(session)
	return g
}

func (g *graph) Backend() kernels.Stepper { return g.session }

func (g *graph) Run(f func() error) error {
	err := g.recordOperation(f)
	g.keep = nil
	return err
}

func (g *graph) Record(f func()) bool {
	return g.recordOperation(func() error { f(); return nil }) == nil
}

func (g *graph) recordOperation(f func() error) error {
	g.keep, g.old, g.recording = nil, nil, true
	defer func() { g.recording = false }()
	return f()
}

// takeTemporary counts temporary memory of one operation, as graphMemory hands it out.
func (g *graph) takeTemporary(bytes int64) {
	if g.session.traits.Exact {
		g.old = append(g.old, g.allocTensor(bytes))
		return
	}
	if bytes <= g.size {
		return
	}
	if g.scratch != nil {
		g.old = append(g.old, g.scratch)
	}
	g.size = max(2*g.size, bytes, 1<<20)
	g.scratch = g.allocTensor(g.size)
}

// allocTensor is memory that belongs to the graph and not to what is recorded.
func (g *graph) allocTensor(bytes int64) *kernels.Tensor {
	recording := g.recording
	g.recording = false
	defer func() { g.recording = recording }()
	return g.session.Alloc(kernels.BF16, int(bytes+1)/2)
}

func (g *graph) Replay()                             {}
func (g *graph) Prepare(_ int, f func() error) error { return f() }
func (g *graph) Prepared() bool                      { return true }
func (g *graph) Segment(int)                         {}
func (g *graph) Close()                              { *g = graph{session: g.session} }

// The steps of a graph (Stepper) take memory, and count that of their operations.
type steps struct {
	rows, layers, kvHeads int
	header, past          *kernels.Tensor
}

func (s *steps) Tokens() *kernels.Tensor { return s.header.Rows(s.rows, 2*s.rows) }

// NewSteps implements Stepper, and so do the methods that follow.
func (d *Counter) NewSteps(rows, layers, kvHeads int) kernels.Steps {
	n := rows * layers * kvHeads
	return &steps{rows, layers, kvHeads, d.Alloc(kernels.I32, 2*rows+n), d.Alloc(kernels.I32, n, cuda.PastBytes/4)}
}

func (d *Counter) StepBuckets(longest [][]int, pairs kernels.DType, headDim int) [][]int {
	return cuda.StepBuckets(longest, cuda.StepFits(headDim, pairs))
}

func (d *Counter) SetSteps(s kernels.Steps, sequence int, pos int32, past [][]kernels.KV) {}
func (d *Counter) SetStep(s kernels.Steps, tokens, first []int32)                         {}
func (d *Counter) StartStep(s kernels.Steps, sequences int)                               {}
func (d *Counter) StepGather(y, table *kernels.Tensor, s kernels.Steps) {
	kernels.MustFit(s.(*steps).rows*table.Width(), y.Shape)
}
func (d *Counter) StepRoPE(x *kernels.Tensor, s kernels.Steps, table *kernels.RoPETable) {
	kernels.CheckRoPE(x, x, make([]int32, s.(*steps).rows), table)
}

// StepAttention takes what one sequence after the other does.
func (d *Counter) StepAttention(out, q, k, v *kernels.Tensor, s kernels.Steps, at kernels.StepLayer) {
	kernels.CheckLengths("StepAttention", out, q)
	for i, longest := range at.Longest {
		a := &kernels.Attend{Q: q.Rows(i, i+1), Past: make([]kernels.KV, s.(*steps).kvHeads), SoftCap: at.SoftCap, Sinks: at.Sinks}
		pairs := kernels.NewShape(at.Pairs, longest, q.Shape[2])
		for g := range a.Past {
			a.Past[g] = kernels.KV{K: pairs, V: pairs}
		}
		d.temp(cuda.AttendScratch(a, true, d.traits.Processors))
		d.countAttention(a, 2)
	}
}

// StepHeads takes nothing.
func (d *Counter) StepHeads(q, k, v *kernels.Tensor, norms kernels.HeadNorms, table *kernels.RoPETable, s kernels.Steps, sequences, layer int, pairs kernels.DType) {
	kernels.CheckHeads("StepHeads", q, k, norms, make([]int32, s.(*steps).rows), table)
}
