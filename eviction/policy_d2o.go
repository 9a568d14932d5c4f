package eviction

import (
	"math"
	"slices"

	"glimpse/kernels"
	"glimpse/model"
)

func init() {
	Policies.Add("d2o", Policy{
		Kind: "prefill + decode", Doc: "accumulated attention under layer budgets by its variance; what is evicted is merged into the most similar key that is kept", Source: "D2O (Wan et al. 2025, arXiv:2406.13035) §4, eq. 4–12",
		Options: []Option{
			{Name: "sink", Default: 4, Min: 0, Max: 1 << 20, Whole: true, Doc: "first entries kept, T"},
			{Name: "beta", Default: 0.7, Min: 0, Max: 1, Doc: "weight of the current similarity in the merge threshold"},
			{Name: "normalise", Choices: choices("heads", "layers", "none"), Doc: "variances between 0 and 1 among the heads of a layer; divided by their sum over layers, which many layers make uniform; or as they are, and then one layer gets almost everything"},
			{Name: "dense", Default: 0, Min: 0, Max: 1, Whole: true, Doc: "1 leaves the first two layers and the last whole, on top of the budget"},
			kernelOption(1),
		},
		New: func(s Settings, _ model.Adapter) (Method, error) {
			return d2o{sink: s.Int("sink"), beta: s.Float("beta"), normalise: s.Text("normalise"), dense: s.Int("dense") == 1, kernel: s.Int("kernel")}, nil
		},
	})
}

// d2o (D2O: Dynamic Discriminative Operations for Efficient Long-Context Inference of
// Large Language Models, Wan et al., ICLR 2025, arXiv:2406.13035) keeps T first entries, the N with the most accumulated attention and the M
// most recent of every head, N:M = 3:1 (eq. 6–8), under layer budgets of
// [D2OBudgets]. Every evicted key i finds its most similar kept key j by cosine
// u_ij (eq. 9). Below the threshold τ it is dropped, else merged: with
// z_j = e + Σ_i exp(u_ij), k_j becomes (e·k_j + Σ_i exp(u_ij)·k_i) / z_j, and v_j
// likewise (eq. 11–12; the sum in the printed numerator of w_ei is a misprint). τ
// is the mean best similarity of the prompt's evicted keys, and then β·u + (1−β)·τ
// with every entry that decoding evicts (eq. 10).
type d2o struct {
	sink      int
	beta      float64
	normalise string
	dense     bool
	kernel    int
}

func (d2o) Capture(Prompt) model.Capture { return model.Capture{AllRows: true} }

func (d2o) Score(s *Scores, p Prompt, o *model.Observation) error { return h2o{}.Score(s, p, o) }

// Protect: M is a quarter of what the sinks leave of the budget.
func (m d2o) Protect(p Prompt) (sink, recent int) {
	sink = min(m.sink, p.Budget)
	return sink, (p.Budget - sink) / 4
}

// Pooling: the sums are pooled where a layer's entries are ranked, by its own budget.
func (m d2o) Pooling(p Prompt) Pooling {
	_, recent := m.Protect(p)
	return Pooling{m.kernel, recent}
}

// LayerStatistics implements CrossLayerAllocator: the variances, by query head, of the
// attention summed over the rows of the prompt (eq. 4, 20), in a conversation of the turn's
// prompt. A prompt within the budget needs none.
func (m d2o) LayerStatistics(p Prompt, o *model.Observation) []float64 {
	if p.Entries <= p.Budget {
		return nil
	}
	heads := o.AllRows.Dim0()
	entries := make([]int, heads)
	for h := range entries {
		entries[h] = o.Cache.Entries(o.Layer, h*o.Cache.KVHeads()/heads)
	}
	return o.Cache.Backend().Selector().AttentionVariances(o.AllRows, entries, len(p.Tokens))
}

// CrossLayerBudgets implements CrossLayerAllocator. A prompt within the budget is
// left alone, and all layers may then grow up to it.
func (m d2o) CrossLayerBudgets(p Prompt, variances [][]float64) []int {
	if p.Entries <= p.Budget {
		return slices.Repeat([]int{p.Budget}, len(variances))
	}
	return D2OBudgets(variances, p.Entries, p.Budget, m.normalise, m.dense)
}

// D2OBudgets are the layers' budgets S_l for n entries and a budget of B on average
// (eq. 5), from the variances F_lh of the attention of a layer's query heads, summed over
// rows: α_l = L·ρ·exp(−F_l) / Σ exp(−F) with ρ = B/n, clamped to [0.01, 1], and S_l = α_l·n.
// How F_l comes from F_lh is what normalise says:
//
//   - "heads": the mean over heads of (F_lh − min_h F) / (max_h F − min_h F + 1e-6), between
//     0 and 1. It is what the authors' code does, and so what the paper's tables are made of.
//   - "layers": the mean over heads, divided by its sum over layers: 1/L on average, so that
//     the budgets of many layers hardly differ.
//   - "none": the mean over heads, eq. 4 to the letter. It grows with the prompt, which makes
//     the softmax all or nothing.
//
// Rounding is down; what the lower clamp adds comes off the largest budgets, so that the sum
// stays at most L·B, as the paper has it (eq. 13) and as a comparison at equal budgets needs.
// The authors' code leaves the first two layers and the last whole beside it: that is dense,
// which shares out L·B among the other layers, whose number L then is. Of 32 layers it keeps
// 27.5% where 20% are asked for.
func D2OBudgets(variances [][]float64, n, budget int, normalise string, dense bool) []int {
	layers := len(variances)
	out := make([]int, layers)
	var free []int // layers with budgets
	for l := range out {
		if dense && (l < 2 || l == layers-1) {
			out[l] = n
		} else {
			free = append(free, l)
		}
	}
	f, sum, lowest := make([]float64, layers), 0.0, math.Inf(1)
	for _, l := range free {
		f[l] = layerVariance(variances[l], normalise == "heads")
		sum += f[l]
	}
	for _, l := range free {
		if normalise == "layers" && sum > 0 {
			f[l] /= sum
		}
		lowest = min(lowest, f[l])
	}
	z := 0.0
	for _, l := range free {
		z += math.Exp(lowest - f[l])
	}
	ratio := float64(budget) / float64(n)
	left := len(free) * budget
	for _, l := range free {
		alpha := math.Exp(lowest-f[l]) / z * float64(len(free)) * ratio
		alpha = min(1, max(alpha, min(0.01, ratio)))
		out[l] = max(1, int(alpha*float64(n)+1e-9))
		left -= out[l]
	}
	for ; left < 0; left++ {
		largest := free[0]
		for _, l := range free {
			if out[l] >= out[largest] {
				largest = l
			}
		}
		out[largest]--
	}
	return out
}

// layerVariance is the mean of the variances of a layer's heads, each as its place in their
// range where spread is set.
func layerVariance(heads []float64, spread bool) float64 {
	low, high, mean := slices.Min(heads), slices.Max(heads), 0.0
	for _, v := range heads {
		if spread {
			v = (v - low) / (high - low + 1e-6)
		}
		mean += v / float64(len(heads))
	}
	return mean
}

// Merge implements Merger.
func (d2o) Merge(c *model.Cache, layer int, keep *kernels.Selection) (thresholds *kernels.Tensor) {
	return c.Backend().Selector().MergeEvicted(c.View(layer), keep)
}

func (m d2o) StartDecode(s *Session) DecodeState {
	return &d2oState{NewAccumulated(s), m, s.budgets, s.thresholds}
}

type d2oState struct {
	*Accumulated
	method     d2o
	budgets    []int
	thresholds []*kernels.Tensor // by layer; NaN before the first eviction
}

func (s *d2oState) Step(o *model.Observation) (*kernels.Selection, error) {
	sums, budget := s.Add(o), s.budgets[o.Layer]
	if sums.Most() <= budget {
		return nil, nil
	}
	sink, recent := s.method.Protect(Prompt{Budget: budget})
	keep := Pooling{s.method.kernel, recent}.Of(sums).Select(sums.Uniform(budget), sink, recent)
	s.ops.MergeStep(o.Cache.View(o.Layer), keep, s.thresholds[o.Layer], s.method.beta)
	s.Retain(o.Layer, keep)
	return keep, nil
}
