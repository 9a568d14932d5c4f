package gates

import (
	"math"
	"math/rand/v2"
	"slices"

	"glimpse/internal/simd"
)

// Rows are rows that a gate learns from by steps, on the host.
type Rows struct {
	columns, heads int
	inputs         []uint16  // [n, columns] that the attention reads, in bfloat16
	logs           []float32 // [n, heads] logarithms of a label's scores
}

// Len is the number of rows.
func (r *Rows) Len() int { return len(r.logs) / r.heads }

// Read copies the rows at the given places to inputs [len(at), columns] and logs [len(at), kvHeads].
func (r *Rows) Read(inputs, logs []float32, at []int) {
	for i, row := range at {
		simd.WidenBF16(inputs[i*r.columns:][:r.columns], r.inputs[row*r.columns:][:r.columns])
		copy(logs[i*r.heads:][:r.heads], r.logs[row*r.heads:][:r.heads])
	}
}

func (r *Rows) add(input []float32, logs []float64) {
	n := len(r.inputs)
	r.inputs = slices.Grow(r.inputs, len(input))[:n+len(input)]
	simd.NarrowBF16(r.inputs[n:], input)
	for _, v := range logs {
		r.logs = append(r.logs, float32(v))
	}
}

// keptRows are the rows of a layer by their use, and what draws them.
type keptRows struct {
	of  [uses]Rows
	rng *rand.Rand
}

// Keep makes Observe keep rows: of a context that is learned from at most so many, drawn by the seed (KVzap's code draws 500), and all
// of the others.
func (f *Fit) Keep(most int, seed uint64) {
	f.most, f.kept = most, make([]keptRows, len(f.layers))
	for l := range f.kept {
		empty := Rows{columns: f.columns - 1, heads: len(f.layers[l].learned.squares)}
		f.kept[l] = keptRows{[uses]Rows{empty, empty, empty}, rand.New(rand.NewPCG(seed, 0x726f7773+uint64(l)))}
	}
}

// Kept are the rows of a layer of one use that Keep has asked for.
func (f *Fit) Kept(layer int, use Use) *Rows { return &f.kept[layer].of[use] }

// keep keeps some of the rows [n, columns] of a context and their logarithms [n, kvHeads].
func (k *keptRows) keep(rows []float32, logs []float64, use Use, most int) {
	to := &k.of[use]
	n := len(logs) / to.heads
	chosen := make([]int, n)
	for i := range chosen {
		chosen[i] = i
	}
	if use == Learn && n > most {
		chosen = k.rng.Perm(n)[:most]
		slices.Sort(chosen)
	}
	for _, i := range chosen {
		to.add(rows[i*to.columns:][:to.columns], logs[i*to.heads:][:to.heads])
	}
}

// Moments are the mean and the standard deviation of each input of a layer, over the rows that were learned from. A deviation is a
// thousandth of their mean at least.
func (f *Fit) Moments(layer int) (mean, deviation []float64) {
	e, in := f.layers[layer].learned, f.columns-1
	n := max(1, e.gram[len(e.gram)-1])
	mean, deviation = make([]float64, in), make([]float64, in)
	sum := 0.0
	for i := range in {
		mean[i] = e.gram[in*f.columns+i] / n
		deviation[i] = math.Sqrt(max(0, e.gram[i*f.columns+i]/n-mean[i]*mean[i]))
		sum += deviation[i] / float64(in)
	}
	for i, v := range deviation {
		if deviation[i] = max(v, sum/1000); sum == 0 {
			deviation[i] = 1
		}
	}
	return mean, deviation
}
