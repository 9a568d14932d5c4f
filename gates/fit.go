package gates

import (
	"fmt"
	"math"

	"glimpse/checkpoints"
	"glimpse/internal/parallel"
	"glimpse/internal/simd"
	"glimpse/kernels"
	"glimpse/model"

	"gonum.org/v1/gonum/mat"
)

// Fit learns linear gates by least squares (KVzap, arXiv:2601.07891, §3): of every layer the logarithms of a label's scores from
// what the attention reads. It holds the normal equations, whose size does not depend on how many rows they are of. As a gate it
// takes the rows of a pass, and scores nothing.
type Fit struct {
	layers  []fitLayer
	layer   int
	rows    []float32 // [rows, in] that the layer has read in this pass
	columns int       // in + 1: the last is 1, for the bias
	kept    []keptRows
	most    int // rows of a context that are kept
}

// Use is what a context is for.
type Use int

const (
	Learn   Use = iota // gates are learned from it
	Watch              // it tells how long to learn
	HoldOut            // it tells how well what was learned predicts
	uses
)

// fitLayer are the equations of a layer: of what is learned from, and of what is held out to tell how well it is predicted.
type fitLayer struct{ learned, held *equations }

// equations are XᵀX, XᵀY and YᵀY of rows X [n, columns] and logarithms of scores Y [n, kvHeads].
type equations struct {
	gram    []float64 // [columns, columns]
	mixed   []float64 // [kvHeads, columns]
	squares []float64 // [kvHeads]
}

var _ model.Gate = (*Fit)(nil)

// NewFit begins to learn gates of a model.
func NewFit(m *model.Model) *Fit {
	f := &Fit{layer: -1, columns: m.Config.Hidden + 1, layers: make([]fitLayer, m.Config.Layers)}
	for l := range f.layers {
		heads := m.Config.KV(l).Heads
		f.layers[l] = fitLayer{newEquations(f.columns, heads), newEquations(f.columns, heads)}
	}
	return f
}

func newEquations(columns, heads int) *equations {
	return &equations{make([]float64, columns*columns), make([]float64, heads*columns), make([]float64, heads)}
}

// Weights implements model.Gate.
func (*Fit) Weights(int) int { return 0 }

// Score implements model.Gate: it takes the rows, which are those of one sequence, layer by layer.
func (f *Fit) Score(m *model.Model, layer int, scores, h *kernels.Tensor, _ kernels.Allocator) {
	if layer != f.layer {
		f.layer, f.rows = layer, f.rows[:0]
	}
	f.rows = append(f.rows, h.Float32s()...)
	m.On(layer).Fill(scores, 0)
}

// leastScore is what lower scores are taken for: their logarithms have no end.
const leastScore = 1e-10

// rowsAtOnce are multiplied in float32, and their products added in float64.
const rowsAtOnce = 256

// Observe takes in the label's scores [kvHeads][entry] of the rows of a layer that the last pass has run. Entries
// that no head scores are left out.
func (f *Fit) Observe(layer int, scores [][]float32, use Use) error {
	in := f.columns - 1
	if layer != f.layer || len(f.rows) != len(scores[0])*in {
		return fmt.Errorf("fit: scores of %d entries of layer %d, but %d rows of layer %d", len(scores[0]), layer, len(f.rows)/in, f.layer)
	}
	scored, logs := make([]float32, 0, len(f.rows)), make([]float64, 0, len(scores)*len(scores[0]))
	for j := range scores[0] {
		most := float32(0)
		for _, s := range scores {
			most = max(most, s[j])
		}
		if most > 0 {
			scored = append(scored, f.rows[j*in:][:in]...)
			for _, s := range scores {
				logs = append(logs, math.Log(max(leastScore, float64(s[j]))))
			}
		}
	}
	switch use {
	case Learn:
		f.layers[layer].learned.add(scored, logs)
	case HoldOut:
		f.layers[layer].held.add(scored, logs)
	}
	if f.kept != nil {
		f.kept[layer].keep(scored, logs, use, f.most)
	}
	f.layer, f.rows = -1, f.rows[:0]
	return nil
}

// add takes in rows [n, columns-1] and logarithms [n, kvHeads].
func (e *equations) add(rows []float32, logs []float64) {
	heads := len(e.squares)
	columns := len(e.mixed) / heads
	x := make([]float32, 0, rowsAtOnce*columns)
	for n := len(logs) / heads; n > 0; n = len(logs) / heads {
		n = min(n, rowsAtOnce)
		for x = x[:0]; len(x) < n*columns; rows = rows[columns-1:] {
			x = append(append(x, rows[:columns-1]...), 1)
		}
		e.addProducts(x, logs[:n*heads], columns)
		logs = logs[n*heads:]
	}
}

// addProducts takes in rows x [n, columns] and logarithms y [n, kvHeads].
func (e *equations) addProducts(x []float32, y []float64, columns int) {
	n, heads := len(x)/columns, len(e.squares)
	const block = 64
	parallel.For((columns+block-1)/block, func(b int) {
		from := b * block
		m := min(block, columns-from)
		products := make([]float32, m*columns)
		simd.GemmTN(m, columns, n, 1, x[from:], columns, x, columns, 0, products, columns)
		for i, v := range products {
			e.gram[from*columns+i] += float64(v)
		}
	})
	for r := range n {
		for h := range heads {
			v, sums := y[r*heads+h], e.mixed[h*columns:][:columns]
			e.squares[h] += v * v
			for i, u := range x[r*columns:][:columns] {
				sums[i] += v * float64(u)
			}
		}
	}
}

// Fitted are learned gates.
type Fitted struct {
	Gates []checkpoints.GateLayer
	// Explained is the share of the variance of the held-out logarithms that each layer's gate predicts, the mean over its
	// heads; NaN where nothing was held out.
	Explained []float64
}

// Mean is the mean of what is explained over the layers that have scores; NaN of none.
func (f *Fitted) Mean() float64 {
	sum, n := 0.0, 0
	for _, x := range f.Explained {
		if !math.IsNaN(x) {
			sum, n = sum+x, n+1
		}
	}
	return sum / float64(n)
}

// Solve learns the gates. ridge times the mean square of the inputs is added to the squares of each, so that inputs which say the
// same share what they say.
func (f *Fit) Solve(ridge float64) (*Fitted, error) {
	out := &Fitted{Gates: make([]checkpoints.GateLayer, len(f.layers)), Explained: make([]float64, len(f.layers))}
	for l, layer := range f.layers {
		weights, err := layer.learned.solve(f.columns, ridge)
		if err != nil {
			return nil, fmt.Errorf("fit: layer %d: %w", l, err)
		}
		heads := len(weights)
		w, b := make([]float32, 0, heads*(f.columns-1)), make([]float32, 0, heads)
		for _, row := range weights {
			for _, v := range row[:f.columns-1] {
				w = append(w, float32(v))
			}
			b = append(b, float32(row[f.columns-1]))
		}
		out.Gates[l] = checkpoints.GateLayer{
			"weight": {Rows: heads, Cols: f.columns - 1, Data: w}, "bias": {Rows: 1, Cols: heads, Data: b},
		}
		out.Explained[l] = layer.held.explained(weights, f.columns)
	}
	return out, nil
}

// solve are the weights [kvHeads][columns] of the least squares; zeros of a layer of which there is nothing.
func (e *equations) solve(columns int, ridge float64) ([][]float64, error) {
	out, n := make([][]float64, len(e.squares)), e.gram[len(e.gram)-1]
	for h := range out {
		out[h] = make([]float64, columns)
	}
	if n == 0 {
		return out, nil
	}
	trace := 0.0
	for i := range columns - 1 {
		trace += e.gram[i*columns+i]
	}
	damped := mat.NewSymDense(columns, append([]float64(nil), e.gram...))
	for i := range columns - 1 {
		damped.SetSym(i, i, damped.At(i, i)+ridge*trace/float64(columns-1))
	}
	var c mat.Cholesky
	if !c.Factorize(damped) {
		return nil, fmt.Errorf("least squares of %.0f entries: the inputs of a row say the same as others, want a larger ridge than %v", n, ridge)
	}
	for h := range out {
		w := mat.NewVecDense(columns, nil)
		if err := c.SolveVecTo(w, mat.NewVecDense(columns, e.mixed[h*columns:][:columns])); err != nil {
			return nil, fmt.Errorf("least squares: %w", err)
		}
		copy(out[h], w.RawVector().Data)
	}
	return out, nil
}

// explained is the share of the variance that weights predict.
func (e *equations) explained(weights [][]float64, columns int) float64 {
	n, sum := e.gram[len(e.gram)-1], 0.0
	gram := mat.NewDense(columns, columns, e.gram)
	for h, w := range weights {
		v, r := mat.NewVecDense(columns, w), mat.NewVecDense(columns, e.mixed[h*columns:][:columns])
		left := e.squares[h] - 2*mat.Dot(v, r) + mat.Inner(v, gram, v)
		mean := e.mixed[h*columns+columns-1] / n
		sum += 1 - left/(e.squares[h]-n*mean*mean)
	}
	return sum / float64(len(weights))
}
