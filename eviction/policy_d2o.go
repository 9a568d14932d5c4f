package eviction

import (
	"math"
	"slices"

	"glimpse/kernels"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

func init() {
	Policies.Add("d2o", Policy{
		Kind: "prefill + decode", Doc: "accumulated attention under layer budgets by its variance; what is evicted is merged into the most similar key that is kept", Source: "D2O (Wan et al. 2025, arXiv:2406.13035) §4, eq. 4–12",
		Options: []Option{
			{Name: "sink", Default: 4, Min: 0, Max: 1 << 20, Whole: true, Doc: "first entries kept, T"},
			{Name: "heavy", Default: 3, Min: 0, Max: 1 << 20, Whole: true, Doc: "N of the ratio N:M by which the entries with the most attention and the most recent ones share what the sinks leave of the budget (tables 9 and 10)"},
			{Name: "recent", Default: 1, Min: 0, Max: 1 << 20, Whole: true, Doc: "M of that ratio"},
			{Name: "beta", Default: 0.7, Min: 0, Max: 1, Doc: "weight of the current similarity in the merge threshold (eq. 10, table 11)"},
			{Name: "allocation", Choices: choices("softmax", "uniform", "reciprocal", "exponential"), Doc: "budgets of layers by their variances: eq. 5; all the same, which is D2O without its operation on layers (table 6); by 1/F; or exp(−F) of the prompt (§5.4, table 4)"},
			{Name: "normalise", Choices: choices("heads", "layers", "none"), Doc: "variances between 0 and 1 among the heads of a layer; divided by their sum over layers, which many layers make uniform; or as they are, and then one layer gets almost everything"},
			{Name: "dense", Default: 0, Min: 0, Max: 1, Whole: true, Doc: "1 leaves the first two layers and the last whole, on top of the budget"},
			{Name: "merge", Choices: choices("weighted", "average", "none"), Doc: "what becomes of evicted entries: merged with weights by similarity, merged with equal weights (table 8), or dropped"},
			{Name: "threshold", Choices: choices("ema", "none"), Doc: "none also merges what is less similar than the threshold (table 6)"},
			{Name: "feature", Choices: choices("key", "value", "both"), Doc: "what similarity is of: keys; values; or keys and values each for themselves, which merges the two halves of an entry into different ones (table 7)"},
			kernelOption(1),
		},
		New: func(s Settings) (Method, error) {
			return d2o{
				sink: s.Int("sink"), heavy: s.Int("heavy"), recent: s.Int("recent"), beta: s.Float("beta"), kernel: s.Int("kernel"),
				allocation: D2OAllocation{Rule: s.OptionText("allocation"), Normalise: s.OptionText("normalise"), Dense: s.Int("dense") == 1},
				drops:      s.OptionText("merge") == "none", feature: s.OptionText("feature"),
				merging: kernels.Merging{Average: s.OptionText("merge") == "average", All: s.OptionText("threshold") == "none"},
			}, nil
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
// with every entry that decoding evicts (eq. 10). The parts that the paper takes out or
// replaces in its ablations are options.
type d2o struct {
	sink, heavy, recent int
	beta                float64
	kernel              int
	allocation          D2OAllocation
	drops               bool // instead of merging
	feature             string
	merging             kernels.Merging
}

// Plan waits for all layers, whose budgets depend on each other. A layer's entries are ranked
// under its own budget. A prompt within the budget is left alone, and all layers may then grow
// up to it.
func (m d2o) Plan(p Prompt) Plan {
	plan := accumulated(p)
	plan.Sink, plan.Recent = m.ends(p.Budget)
	plan.Pooling = Pooling{m.kernel, plan.Recent}
	plan.CrossLayer = &CrossLayer{
		Statistics: func(o *runner.Observation) []float64 { return m.variances(p, o) },
		Budgets: func(variances [][]float64) []int {
			if p.fits() {
				return slices.Repeat([]int{p.Budget}, len(variances))
			}
			return D2OBudgets(variances, p.Entries, p.Budget, m.allocation)
		},
	}
	plan.Merge = m.mergePairs
	plan.Decode = func(s *Session) *Decoding {
		st := &d2oState{NewAccumulated(s), m, p.beside, s.budgets, s.thresholds}
		d := st.Decoding()
		d.Step = st.step
		return d
	}
	return plan
}

// ends: M is its part, by default a quarter, of the budget without the sinks.
func (m d2o) ends(budget int) (sink, recent int) {
	sink = min(m.sink, budget)
	return sink, (budget - sink) * m.recent / max(1, m.heavy+m.recent)
}

// variances are, by query head, the variances of the attention summed over the rows of the prompt
// (eq. 4, 20), in a conversation of the turn's prompt. A prompt within the budget needs none.
func (m d2o) variances(p Prompt, o *runner.Observation) []float64 {
	if p.fits() {
		return nil
	}
	heads := o.AllRows.Dim0()
	entries := make([]int, heads)
	for h := range entries {
		entries[h] = o.Cache.Entries(o.Layer, h*o.Cache.KVHeads()/heads)
	}
	return o.Cache.On(o.Layer).Selector().AttentionVariances(o.AllRows, entries, len(p.Tokens))
}

// D2OAllocation says how D2O's layers share their budget.
type D2OAllocation struct {
	Rule      string // "softmax", "uniform", "reciprocal" or "exponential"
	Normalise string // "heads", "layers" or "none"
	Dense     bool   // the first two layers and the last keep everything
}

// shares are the α_l of layers with variances f, before they are clamped; ρ is B/n.
func (a D2OAllocation) shares(f []float64, rho float64) []float64 {
	const least = 1e-12 // a variance of 0 has no reciprocal
	out, z, lowest := make([]float64, len(f)), 0.0, math.Inf(1)
	for _, v := range f {
		lowest = min(lowest, v)
	}
	for l, v := range f {
		switch a.Rule {
		case "uniform":
			out[l] = 1
		case "reciprocal":
			out[l] = 1 / max(least, v)
		case "exponential":
			out[l] = math.Exp(-v)
		default:
			out[l] = math.Exp(lowest - v)
		}
		z += out[l]
	}
	for l := range out {
		if a.Rule != "exponential" {
			out[l] = out[l] / z * float64(len(f)) * rho
		}
	}
	return out
}

// D2OBudgets are the layers' budgets S_l for n entries and a budget of B on average
// (eq. 5), from the variances F_lh of the attention of a layer's query heads, summed over
// rows: α_l = L·ρ·exp(−F_l) / Σ exp(−F) with ρ = B/n, clamped to [0.01, 1], and S_l = α_l·n.
// The other rules are from §5.4: α_l = ρ, α_l = L·ρ·(1/F_l) / Σ (1/F), and α_l = exp(−F_l)
// to the letter, which knows no ρ, so that it is the sum's bound alone that keeps it.
// How F_l comes from F_lh is what Normalise says:
//
//   - "heads": the mean over heads of (F_lh − min_h F) / (max_h F − min_h F + 1e-6), between
//     0 and 1. It is what the authors' code does, and so what the paper's tables are made of.
//   - "layers": the mean over heads, divided by its sum over layers: 1/L on average, so that
//     the budgets of many layers hardly differ.
//   - "none": the mean over heads, eq. 4 to the letter. It grows with the prompt, which makes
//     the softmax all or nothing.
//
// What rounding down leaves goes to the layers with the largest fractions, so that the sum is L·B where
// nothing is clamped; what the upper clamp leaves stays unused, and what the lower one adds
// comes off the largest budgets, so that the sum stays at most L·B, as the paper has it (eq. 13) and as a comparison at equal budgets needs.
// The authors' code leaves the first two layers and the last whole beside it: that is Dense,
// which shares out L·B among the other layers, whose number L then is. Of 32 layers it keeps
// 27.5% where 20% are asked for.
func D2OBudgets(variances [][]float64, n, budget int, a D2OAllocation) []int {
	layers := len(variances)
	out := make([]int, layers)
	var free []int // layers with budgets
	for l := range out {
		if a.Dense && (l < 2 || l == layers-1) {
			out[l] = n
		} else {
			free = append(free, l)
		}
	}
	f, sum := make([]float64, len(free)), 0.0
	for i, l := range free {
		f[i] = layerVariance(variances[l], a.Normalise == "heads")
		sum += f[i]
	}
	if a.Normalise == "layers" && sum > 0 {
		for i := range f {
			f[i] /= sum
		}
	}
	ratio := float64(budget) / float64(n)
	left := len(free) * budget
	shares := a.shares(f, ratio)
	for i, alpha := range shares {
		shares[i] = min(1, max(alpha, min(0.01, ratio))) * float64(n)
	}
	for i, budget := range apportion(shares) {
		out[free[i]] = max(1, budget)
		left -= out[free[i]]
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

// mergePairs is a Plan's Merge. There are thresholds for keys and for values where the two are
// merged apart, and none where nothing is merged.
func (m d2o) mergePairs(c *kvcache.Cache, layer int, keep *kernels.Selection) (thresholds *kernels.Tensor) {
	pairs := c.View(layer)
	switch {
	case m.drops:
		return nil
	case m.onDevice(keep):
		return c.On(layer).Selector().MergeEvicted(m.compared(pairs), keep)
	case m.feature != "both":
		return m.merging.Evicted(c.On(layer), m.compared(pairs), keep)
	}
	keys, values := halves(pairs)
	return kernels.FromF64(slices.Concat(m.merging.Evicted(c.On(layer), keys, keep).F64(), m.merging.Evicted(c.On(layer), values, keep).F64()), 2*len(pairs))
}

// onDevice tells that the backend's own operations merge. What only counts memory counts
// theirs.
func (m d2o) onDevice(keep *kernels.Selection) bool {
	return m.merging == kernels.Merging{} && m.feature != "both" || keep.Counted != nil
}

// compared are pairs with what similarity is of in place of the keys.
func (m d2o) compared(pairs []kernels.KV) []kernels.KV {
	if m.feature != "value" {
		return pairs
	}
	out := slices.Clone(pairs)
	for h := range out {
		out[h].K, out[h].V = pairs[h].V, pairs[h].K
	}
	return out
}

// halves are the keys of pairs without values, and the values in place of keys.
func halves(pairs []kernels.KV) (keys, values []kernels.KV) {
	for _, kv := range pairs {
		keys, values = append(keys, kernels.KV{K: kv.K}), append(values, kernels.KV{K: kv.V})
	}
	return keys, values
}

type d2oState struct {
	*Accumulated
	method     d2o
	beside     int // entries of a layer's heads that its budget has for what stays
	budgets    []int
	thresholds []*kernels.Tensor // by layer, of mergePairs; NaN before the first eviction
}

func (s *d2oState) step(o *runner.Observation) (*kernels.Selection, error) {
	sums, budget := s.Add(o), s.budgets[o.Layer]
	if sums.Most() <= budget+s.beside {
		return nil, nil
	}
	sink, recent := s.method.ends(budget)
	keep := Pooling{s.method.kernel, recent}.Of(sums).Select(sums.Uniform(budget+s.beside), sink, recent)
	s.method.mergeStep(o.Cache, o.Layer, keep, s.thresholds[o.Layer])
	s.Retain(o.Layer, keep)
	return keep, nil
}

// mergeStep merges what a step evicts.
func (m d2o) mergeStep(c *kvcache.Cache, layer int, keep *kernels.Selection, thresholds *kernels.Tensor) {
	pairs := c.View(layer)
	switch {
	case m.drops:
	case m.onDevice(keep):
		c.On(layer).Selector().MergeStep(m.compared(pairs), keep, thresholds, m.beta)
	case m.feature != "both":
		m.merging.Step(c.On(layer), m.compared(pairs), keep, thresholds, m.beta)
	default:
		keys, values := halves(pairs)
		m.merging.Step(c.On(layer), keys, keep, thresholds.Rows(0, len(pairs)), m.beta)
		m.merging.Step(c.On(layer), values, keep, thresholds.Rows(len(pairs), 2*len(pairs)), m.beta)
	}
}
