package training

import (
	"context"
	"time"

	"glimpse/kernels"
	"glimpse/model"
)

// Pieces are small enough to be quick and large enough to run as the whole does.
const (
	pieceRows    = 256
	pieceWidth   = 4096
	pieceNumbers = 1 << 21 // of a weight: the processor rounds activations for weights of half as many
	pieceEntries = 4096
	pieceTerms   = 1 << 27 // multiply-adds of a piece of attention, about
	pieceTime    = 40 * time.Millisecond
	quickPiece   = 100 * time.Microsecond // larger ones are measured where one takes less
)

// pieces measures a model's operations by pieces. Rates are multiply-adds a second.
type pieces struct {
	ctx    context.Context
	b      kernels.Backend
	m      *model.Model
	weight *kernels.Tensor // the largest of a layer, which has no memory
	tile   []float32
	held   map[[3]int]*kernels.Tensor
}

func newPieces(ctx context.Context, m *model.Model) *pieces {
	p := &pieces{ctx: ctx, b: m.Backend, m: m, held: make(map[[3]int]*kernels.Tensor)}
	for _, module := range model.Modules {
		if lin := m.Network.Layers[m.Config.FirstAttention()].Linear(module); lin != nil && (p.weight == nil || lin.Weight.Len() > p.weight.Len()) {
			p.weight = lin.Weight
		}
	}
	p.tile = make([]float32, 1<<16)
	state := uint32(1)
	for i := range p.tile {
		state = state*1664525 + 1013904223
		p.tile[i] = float32(int32(state)) / (1 << 36)
	}
	return p
}

// randomTensor holds random numbers, and is the same one for the same type and shape.
func (p *pieces) randomTensor(d kernels.DType, rows, width int) *kernels.Tensor {
	key := [3]int{int(d), rows, width}
	if p.held[key] == nil {
		host := kernels.NewTensor(kernels.F32, rows, width)
		for x := host.F32(); len(x) > 0; {
			x = x[copy(x, p.tile):]
		}
		stored := kernels.NewTensor(d, rows, width)
		kernels.Convert(stored, host)
		p.held[key] = p.b.Place(stored)
	}
	return p.held[key]
}

func (p *pieces) randomNumbers(shape ...int) *kernels.Tensor {
	t := p.b.Alloc(p.b.Compute(), shape...)
	p.b.Fill(t, 0.01)
	return t
}

// freeAll lets go of all memory.
func (p *pieces) freeAll() { p.held, p.tile = nil, nil }

// seconds is what f takes on average, after once that is not counted. The shortest time would
// be that of moments in which other programs leave the machine alone.
func (p *pieces) seconds(f func()) float64 {
	f()
	p.b.Wait()
	begin := time.Now()
	for done, n := 0, 1; p.ctx.Err() == nil; n *= 2 {
		for range n {
			f()
		}
		p.b.Wait()
		done += n
		if took := time.Since(begin); took > pieceTime/2 {
			return took.Seconds() / float64(done)
		}
	}
	return 1
}

// rate is that of a product of so many rows with a piece of the largest weight. A single
// row waits for memory: its piece must not stay in the processor's caches.
func (p *pieces) rate(rows int, product func(rows, in, out int) (run func())) float64 {
	width, height := p.weight.Width(), p.weight.Dim0()
	n := pieceNumbers
	if rows < 8 {
		n <<= 3
	}
	for {
		in := min(width, pieceWidth)
		out := min(height, max(1, n/in))
		s := p.seconds(product(rows, in, out))
		if s > quickPiece.Seconds() || out == height || n >= pieceNumbers<<4 {
			return float64(rows*in*out) / s
		}
		n <<= 2
	}
}

// productRate is the rate of rows through a weight.
func (p *pieces) productRate(rows int) float64 {
	return p.rate(rows, func(rows, in, out int) func() {
		w, x, y := p.randomTensor(p.weight.DType, out, in), p.randomNumbers(rows, in), p.randomNumbers(rows, out)
		return func() { p.b.Linear(y, x, w, nil, 1, 0) }
	})
}

// gradient is that of gradients through a weight.
func (p *pieces) gradient(rows int) float64 {
	return p.rate(rows, func(rows, in, out int) func() {
		w, dy, dx := p.randomTensor(p.weight.DType, out, in), p.randomNumbers(rows, out), p.randomNumbers(rows, in)
		return func() { p.b.MatMul(dx, dy, w, 1, 0) }
	})
}

// attend is a piece of attention: some of the heads over some of the entries. terms are
// its multiply-adds.
func (p *pieces) attend(rows, entries int) (a *kernels.Attend, terms float64) {
	c := &p.m.Config
	group := c.Heads / c.KVHeads
	entries = min(entries, pieceEntries)
	kvHeads := min(c.KVHeads, max(1, pieceTerms/(2*rows*group*c.HeadDim*entries)), 8)
	kvHeads = max(kvHeads, min(2, c.KVHeads))
	a = &kernels.Attend{
		Q: p.randomNumbers(rows, kvHeads*group, c.HeadDim), K: p.randomNumbers(rows, kvHeads, c.HeadDim), V: p.randomNumbers(rows, kvHeads, c.HeadDim),
		Scale: 1 / float64(c.HeadDim), Positions: make([]int32, rows),
	}
	for i := range a.Positions {
		a.Positions[i] = int32(entries + i)
	}
	past := p.randomTensor(p.m.CacheDType(), entries, c.HeadDim)
	for range kvHeads {
		a.Past = append(a.Past, kernels.KV{K: past, V: past})
	}
	return a, 2 * float64(rows*kvHeads*group*c.HeadDim*entries)
}

// rowsOfAttention are few enough for a piece.
func (p *pieces) rowsOfAttention(rows, entries int) int {
	c := &p.m.Config
	group := c.Heads / c.KVHeads
	return max(1, min(rows, max(16, pieceTerms/(4*group*c.HeadDim*min(entries, pieceEntries)))))
}

// attentionRate is the rate of a prompt's rows.
func (p *pieces) attentionRate(rows, entries int) float64 {
	a, terms := p.attend(p.rowsOfAttention(rows, entries), entries)
	out := p.randomNumbers(a.Rows(), a.Heads()*a.HeadDim())
	return terms / p.seconds(func() { p.b.Attention(out, nil, a) })
}

// observed is that of rows whose scores are the target.
func (p *pieces) observed(rows, entries int) float64 {
	a, terms := p.attend(p.rowsOfAttention(rows, entries), entries)
	out, lse, scores := p.randomNumbers(a.Rows(), a.Heads()*a.HeadDim()), p.randomNumbers(a.Heads(), a.Rows()), p.randomNumbers(a.Heads(), a.Past[0].Entries())
	return terms / p.seconds(func() { p.b.ObserveAttention(out, lse, scores, a) })
}

// attentionAndGradient is that of learned rows, forward and backward.
func (p *pieces) attentionAndGradient(rows, entries int) float64 {
	a, terms := p.attend(rows, entries)
	a.Kept = new(kernels.Kept)
	shape := []int{a.Rows(), a.Heads() * a.HeadDim()}
	out, dOut, dq := p.randomNumbers(shape...), p.randomNumbers(shape...), p.randomNumbers(a.Q.Shape...)
	dk, dv := p.randomNumbers(a.K.Shape...), p.randomNumbers(a.V.Shape...)
	lse, scores, dScores := p.randomNumbers(a.Heads(), a.Rows()), p.randomNumbers(a.Heads(), a.Past[0].Entries()), p.randomNumbers(a.Heads(), a.Past[0].Entries())
	return 2 * terms / p.seconds(func() {
		p.b.ObserveAttention(out, lse, scores, a)
		p.b.AttentionGrad(dq, dk, dv, a, out, lse, scores, dOut, dScores)
	})
}

// perRow is the seconds that a row takes in all layers besides products and attention: norms,
// activations and sums.
func (p *pieces) perRow(rows int) float64 {
	c := &p.m.Config
	hidden, inner := min(c.Hidden, pieceWidth), min(c.Intermediate, pieceWidth)
	x, y, w := p.randomNumbers(rows, hidden), p.randomNumbers(rows, hidden), p.randomNumbers(hidden)
	gate, up := p.randomNumbers(rows, inner), p.randomNumbers(rows, inner)
	norm := p.seconds(func() { p.b.RMSNorm(y, x, w, 1e-5) }) / float64(rows*hidden)
	act := p.seconds(func() { p.b.SiLUMul(gate, gate, up) }) / float64(rows*inner)
	// Two norms and sums of a row's width, and the rotation of queries and keys.
	return float64(c.Layers) * (norm*float64(4*c.Hidden+(c.Heads+c.KVHeads)*c.HeadDim) + act*float64(c.Intermediate))
}
