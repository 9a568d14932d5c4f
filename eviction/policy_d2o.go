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

func (d2o) Score(dst [][]float32, p Prompt, o *model.Observation) error {
	return h2o{}.Score(dst, p, o)
}

func (d2o) formula(p Prompt, o *model.Observation) (formula, bool) { return h2o{}.formula(p, o) }

// Protect: M is a quarter of what the sinks leave of the budget.
func (m d2o) Protect(p Prompt) (sink, recent int) {
	sink = min(m.sink, p.Budget)
	return sink, (p.Budget - sink) / 4
}

// pooling: the sums are pooled where a layer's entries are ranked, by its own budget.
func (m d2o) pooling(p Prompt) pooling {
	_, recent := m.Protect(p)
	return pooling{m.kernel, recent}
}

// LayerStatistics implements CrossLayerAllocator: the variances, by query head, of the
// attention summed over the rows of the prompt (eq. 4, 20), in a conversation of the turn's
// prompt. A prompt within the budget needs none.
func (m d2o) LayerStatistics(p Prompt, o *model.Observation) []float64 {
	if p.Entries <= p.Budget {
		return nil
	}
	heads, width, rows := o.AllRows.Dim0(), o.AllRows.Width(), len(p.Tokens)
	entries := make([]int, heads)
	for h := range entries {
		entries[h] = o.Cache.Entries(o.Layer, h*o.Cache.KVHeads()/heads)
	}
	if d := deviceOf(o.Cache); d != nil {
		term := kernels.ScoreTerm{LogScore: o.AllRows, Factor: float32(rows)}
		sums := d.Alloc(kernels.F32, heads, width)
		d.Scores(sums, entries, []kernels.ScoreTerm{term}, false)
		var tensors []*kernels.Tensor
		var lengths [][]int
		for h, n := range entries {
			tensors, lengths = append(tensors, sums.Rows(h, h+1)), append(lengths, []int{n})
		}
		return d.Variances(tensors, lengths)
	}
	out, logs := make([]float64, heads), o.AllRows.Float64s()
	for h, n := range entries {
		columns := logs[h*width:][:n]
		for j, v := range columns {
			columns[j] = float64(rows) * math.Exp(v)
		}
		out[h] = variance(columns)
	}
	return out
}

// CrossLayerBudgets implements CrossLayerAllocator. A prompt within the budget is
// left alone, and all layers may then grow up to it.
func (m d2o) CrossLayerBudgets(p Prompt, variances [][]float64) []int {
	if p.Entries <= p.Budget {
		return slices.Repeat([]int{p.Budget}, len(variances))
	}
	return D2OBudgets(variances, p.Entries, p.Budget, m.normalise, m.dense)
}

func variance(x []float64) float64 {
	mean, sum := 0.0, 0.0
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		sum += (v - mean) * (v - mean)
	}
	return sum / float64(len(x))
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

// mergeRows is how many evicted keys are compared at once.
const mergeRows = 512

// Merge implements Merger.
func (m d2o) Merge(c *model.Cache, layer int, keep [][]int32) []float64 {
	thresholds := make([]float64, len(keep))
	for h, kept := range keep {
		thresholds[h] = mergeHead(c, layer, h, kept)
	}
	return thresholds
}

// mergeOn implements deviceMerger.
func (d2o) mergeOn(d kernels.Selector, c *model.Cache, layer int, keep *kernels.Selection) *kernels.Tensor {
	return d.MergeEvicted(c.View(layer), keep)
}

// mergeHead merges the entries of a head that are not kept and returns their mean
// best similarity.
func mergeHead(c *model.Cache, layer, head int, kept []int32) float64 {
	var evicted []int32
	at := 0
	for j := range int32(c.Entries(layer, head)) {
		if at < len(kept) && kept[at] == j {
			at++
		} else {
			evicted = append(evicted, j)
		}
	}
	if len(evicted) == 0 || len(kept) == 0 {
		return math.NaN()
	}
	b, kv := c.Backend(), c.View(layer)[head]
	dim, compute := kv.K.Width(), b.Compute()
	conserved := b.Alloc(compute, len(kept), dim)
	b.Gather(conserved, kv.K, kept)
	norms := rowNorms(kv.K)
	nearest, similar, mean := make([]int, len(evicted)), make([]float64, len(evicted)), 0.0
	for from := 0; from < len(evicted); from += mergeRows {
		part := evicted[from:min(len(evicted), from+mergeRows)]
		keys, products := b.Alloc(compute, len(part), dim), b.Alloc(compute, len(part), len(kept))
		b.Gather(keys, kv.K, part)
		b.Linear(products, keys, conserved, nil, 1, 0)
		u := products.Float64s()
		for i, e := range part {
			nearest[from+i], similar[from+i] = mostSimilar(u[i*len(kept):][:len(kept)], norms[e], func(j int) float64 { return norms[kept[j]] })
			mean += similar[from+i] / float64(len(evicted))
		}
	}
	merges := make(map[int][]int) // by kept entry, in order
	for i, u := range similar {
		if u >= mean {
			merges[nearest[i]] = append(merges[nearest[i]], i)
		}
	}
	for j, group := range merges {
		var rows []int
		var u []float64
		for _, i := range group {
			rows, u = append(rows, int(evicted[i])), append(u, similar[i])
		}
		mergeInto(c, layer, head, int(kept[j]), rows, u)
	}
	return mean
}

// mostSimilar is the highest cosine of a key with others, given their products.
func mostSimilar(products []float64, norm float64, norms func(j int) float64) (at int, u float64) {
	u = math.Inf(-1)
	for j, p := range products {
		cosine := 0.0
		if n := norm * norms(j); n > 0 {
			cosine = p / n
		}
		if cosine > u {
			at, u = j, cosine
		}
	}
	return at, u
}

// mergeInto merges the pairs of rows with similarities u into entry j.
func mergeInto(c *model.Cache, layer, head, j int, rows []int, u []float64) {
	kv := c.View(layer)[head]
	z := math.E
	for _, s := range u {
		z += math.Exp(s)
	}
	merged := func(t *kernels.Tensor) []float64 {
		x := t.Rows(j, j+1).Float64s()
		for i := range x {
			x[i] *= math.E / z
		}
		for n, r := range rows {
			w := math.Exp(u[n]) / z
			for i, v := range t.Rows(r, r+1).Float64s() {
				x[i] += w * v
			}
		}
		return x
	}
	c.SetPair(layer, head, j, merged(kv.K), merged(kv.V))
}

func rowNorms(t *kernels.Tensor) []float64 {
	flat, w := t.Float64s(), t.Width()
	out := make([]float64, t.Dim0())
	for i := range out {
		out[i] = norm(flat[i*w:][:w])
	}
	return out
}

func norm(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	return math.Sqrt(sum)
}

func (m d2o) StartDecode(s *Session) DecodeState {
	if sums := newDeviceSums(s); sums != nil {
		return &d2oDeviceState{sums, m, s.budgets, s.deviceThresholds}
	}
	kept := s.Kept()
	st := &d2oState{d2o: m, accumulated: newAccumulated(s), budgets: s.budgets, thresholds: make([][]float64, len(kept))}
	for l := range kept {
		norms := make([][]float64, len(kept[l]))
		for h := range norms {
			norms[h] = rowNorms(s.Cache.View(l)[h].K)
		}
		st.norms = append(st.norms, norms)
		for h := range norms {
			t := math.NaN()
			if s.thresholds != nil {
				t = s.thresholds[l][h]
			}
			st.thresholds[l] = append(st.thresholds[l], t)
		}
	}
	return st
}

type d2oState struct {
	d2o
	accumulated
	budgets    []int
	thresholds [][]float64   // [layer][kvHead]; NaN before the first eviction
	norms      [][][]float64 // of the keys, [layer][kvHead][entry]
}

func (s *d2oState) Capture() model.Capture { return s.accumulated.Capture() }

func (s *d2oState) Step(o *model.Observation) ([][]int32, error) {
	s.add(o)
	l := o.Layer
	budget := s.budgets[l]
	sink, recent := s.Protect(Prompt{Budget: budget})
	var keep [][]int32
	for h, sums := range s.accumulated[l] {
		keys := o.Cache.View(l)[h].K
		n := keys.Dim0()
		s.norms[l][h] = append(s.norms[l][h], norm(keys.Rows(n-1, n).Float64s()))
		if n <= budget {
			continue
		}
		idx := selectHead(pooling{s.kernel, recent}.head(sums), budget, sink, recent)
		out := 0 // the one that goes
		for out < len(idx) && int(idx[out]) == out {
			out++
		}
		s.merge(o.Cache, l, h, out)
		s.keep(l, h, idx)
		s.norms[l][h] = append(s.norms[l][h][:out], s.norms[l][h][out+1:]...)
		keep = append(keep, idx)
	}
	return keep, nil
}

// merge merges or drops one entry.
func (s *d2oState) merge(c *model.Cache, layer, head, out int) {
	b, keys, norms := c.Backend(), c.View(layer)[head].K, s.norms[layer][head]
	n := keys.Dim0()
	products := b.Alloc(b.Compute(), 1, n)
	key := b.Alloc(b.Compute(), 1, keys.Width())
	b.Gather(key, keys, []int32{int32(out)})
	b.Linear(products, key, keys, nil, 1, 0)
	u := products.Float64s()
	if n == 1 {
		return
	}
	others := append(append(make([]float64, 0, n), u[:out]...), u[out+1:]...)
	index := func(j int) int {
		if j >= out {
			return j + 1
		}
		return j
	}
	j, best := mostSimilar(others, norms[out], func(j int) float64 { return norms[index(j)] })
	j = index(j)
	t := &s.thresholds[layer][head]
	if math.IsNaN(*t) {
		*t = best
	} else {
		*t = s.beta*best + (1-s.beta)*(*t)
	}
	if best < *t {
		return
	}
	mergeInto(c, layer, head, j, []int{out}, []float64{best})
	norms[j] = norm(keys.Rows(j, j+1).Float64s())
}

// d2oDeviceState is d2oState on a device, which keeps no norms: a step reads every key
// once and has its norm, too.
type d2oDeviceState struct {
	*deviceSums
	method     d2o
	budgets    []int
	thresholds []*kernels.Tensor // by layer
}

// stepOn implements deviceState.
func (s *d2oDeviceState) stepOn(d kernels.Selector, o *model.Observation) (*kernels.Selection, error) {
	sums, budget := s.add(d, o), s.budgets[o.Layer]
	if slices.Max(sums.entries) <= budget {
		return nil, nil
	}
	sink, recent := s.method.Protect(Prompt{Budget: budget})
	ranked := pooling{s.method.kernel, recent}.tensor(d, sums.device, sums.entries)
	keep := d.Select(ranked, sums.entries, slices.Repeat([]int{budget}, len(sums.entries)), sink, recent)
	d.MergeStep(o.Cache.View(o.Layer), keep, s.thresholds[o.Layer], s.method.beta)
	s.keep(d, o.Layer, keep)
	return keep, nil
}
