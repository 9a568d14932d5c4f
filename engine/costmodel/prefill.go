package costmodel

import (
	"math"
	"slices"

	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/kvcache"
)

// Model counts the costs of one model on one chip. It is immutable.
type Model struct {
	shape
	config *model.Config
	chip   Chip
	as     Conventions
}

// New is the cost model of m, whose weights need not be loaded, on a chip.
func New(m *model.Model, chip Chip, as Conventions) Model {
	if !as.Runtime {
		chip = chip.binary()
	}
	return Model{shapeOf(m), &m.Config, chip, as}
}

// Prefill is the cost of a pass over a prompt that evicts nothing.
func (m Model) Prefill(tokens int) Cost {
	c := m.pass(eviction.Workload{Tokens: tokens})
	if m.as.Runtime {
		c = c.plus(m.storeAll(tokens))
	}
	return c
}

// pass is the cost of a prompt's pass with what is observed of it, but for what the cache
// takes in.
func (m Model) pass(w eviction.Workload) Cost {
	probes := slices.Concat(w.Capture.Probes, w.Capture.PeakProbes, w.Capture.References)
	var total Cost
	for l := range m.layers {
		if m.as.Runtime && l == len(m.layers)-1 && m.layers[l].recurrent != nil {
			probes = nil // which nothing reads there
		}
		total = total.plus(m.linears(l, w, probes), m.updates(l, probes, model.FactorModules), m.attentionCost(l, w, probes))
		if m.as.Runtime {
			total = total.plus(m.scores(l, w))
		}
	}
	return total.plus(m.staying(w), m.lmHead())
}

// staying is the cost of rows that run once more behind the whole cache, to stay in it.
func (m Model) staying(w eviction.Workload) Cost {
	var total Cost
	if w.Stay == nil {
		return total
	}
	n := w.Stay.Rows()
	for l := range m.layers {
		names := model.FactorModules
		last := m.economical(l) // its outputs are not computed, only keys and values
		if last {
			names = []model.Module{model.KProj, model.VProj}
		}
		for _, mod := range m.layers[l].modules {
			if !last || slices.Contains(names, mod.name) {
				total = total.plus(m.through(mod, n))
			}
		}
		switch total = total.plus(m.updates(l, []model.QueryRows{w.Stay}, names)); {
		case m.layers[l].recurrent != nil:
			total = total.plus(m.recurrence(l, n, 1))
		case !last:
			total = total.plus(m.productCost(l, 2, m.causal(l, n, w.Tokens), w.Tokens))
		}
	}
	return total
}

// economical tells that of a layer only that is computed which is read.
func (m Model) economical(l int) bool {
	return m.as.Runtime && l == len(m.layers)-1 && m.layers[l].recurrent == nil
}

// tail is the number of last rows whose queries the last layer computes.
func tail(w eviction.Workload) int {
	n := 1
	for _, window := range slices.Concat(w.Capture.Windows, w.Capture.PeakWindows) {
		n = max(n, window)
	}
	return min(n, w.Tokens)
}

// promptRows are the prompt's rows that a layer runs: after the last layer with keys and values of its own, only the rows that are read at the end.
func (m Model) promptRows(l int, w eviction.Workload) int {
	if !m.as.Runtime || l <= m.config.LastHolder() || w.Capture.AllRows || w.Capture.Queries {
		return w.Tokens
	}
	from := max(0, w.Tokens-max(kvcache.MinRows, tail(w)))
	return w.Tokens - from + from%kvcache.BlockRows(m.config)
}

// linears are a layer's linear modules, of prompt and probes at once.
func (m Model) linears(l int, w eviction.Workload, probes []model.QueryRows) Cost {
	beside := 0
	for _, p := range probes {
		beside += p.Rows()
	}
	var total Cost
	for _, mod := range m.layers[l].modules {
		n := m.promptRows(l, w) + beside
		if m.economical(l) && n > 1 {
			switch mod.name {
			case model.KProj:
			case model.VProj:
				n = w.Tokens
			case model.QProj:
				n = tail(w)
				if w.Capture.Queries && !w.Spares(l) {
					n = w.Tokens
				}
				if n > 1 { // the last row's alone, too
					n++
				}
				if n += beside; w.Capture.AllRows && !w.Spares(l) {
					n += w.Tokens
				}
			default:
				n = 1
			}
		}
		total = total.plus(m.through(mod, n))
	}
	return total
}

// updates are the low-rank updates of some of a layer's modules that probes have.
func (m Model) updates(l int, probes []model.QueryRows, modules []model.Module) Cost {
	var total Cost
	for _, p := range probes {
		for _, name := range modules {
			u := p.LowRank(l, name)
			if u == nil {
				continue
			}
			weights, size := float64(u.A.Len()+u.B.Len()), m.weight
			if m.as.Runtime {
				size = float64(u.A.DType.Size())
			}
			through, read := weights, weights // of experts: a row's, and the ones that rows are expected to choose
			if slices.Contains(model.ExpertModules, name) {
				for _, mod := range m.layers[l].modules {
					if e := mod.experts; e != nil {
						share := float64(e.TopK) / float64(len(e.Each))
						through, read = weights*share, weights*(1-math.Pow(1-share, float64(p.Rows())))
					}
				}
			}
			total = total.plus(m.chip.operation(2*through*float64(p.Rows()), read*size))
		}
	}
	return total
}

// productCost is the cost in a layer of n products of each of so many pairs of query and key, with keys and
// values of so many entries.
func (m Model) productCost(l, n int, pairs float64, entries int) Cost {
	flops := 2 * float64(n) * pairs * m.layers[l].queries
	if !m.as.Runtime {
		return m.chip.operation(flops, 0)
	}
	return m.chip.operation(flops, float64(min(n, 2))/2*float64(entries)*m.layers[l].pair)
}

// causal are the pairs of n rows after past entries.
func (m Model) causal(l, n, past int) float64 {
	if !m.as.Causal {
		return float64(n) * float64(past+n)
	}
	return pairsSeen(n, past, m.layers[l].window)
}

// attentionCost is that of a layer's prompt and probes.
func (m Model) attentionCost(l int, w eviction.Workload, probes []model.QueryRows) Cost {
	n := w.Tokens
	var total Cost
	if m.layers[l].recurrent != nil {
		total = m.recurrence(l, n, 1)
		for _, p := range probes {
			total = total.plus(m.recurrence(l, p.Rows(), 1))
		}
		return total
	}
	if m.economical(l) && n > 1 {
		total = m.productCost(l, 2, pairsSeen(1, n-1, m.layers[l].window), n)
	} else {
		rows := m.promptRows(l, w)
		total = m.productCost(l, 2, m.causal(l, rows, n-rows), n)
	}
	for _, p := range probes {
		products := 2
		if m.economical(l) {
			products = 1
		}
		total = total.plus(m.productCost(l, products, m.causal(l, p.Rows(), n), n))
	}
	return total
}

// scores are what a layer computes for nothing but what is observed.
func (m Model) scores(l int, w eviction.Workload) Cost {
	n, c := w.Tokens, w.Capture
	var total Cost
	if m.layers[l].recurrent != nil {
		return total
	}
	for _, p := range c.PeakProbes { // of the prompt's entries alone
		total = total.plus(m.productCost(l, 1, m.causal(l, p.Rows(), n)-m.causal(l, p.Rows(), 0), n))
	}
	if w.Spares(l) {
		return total
	}
	window := func(rows int) float64 {
		rows = min(rows, n)
		return m.causal(l, rows, n-rows)
	}
	for _, rows := range c.Windows {
		total = total.plus(m.productCost(l, 1, window(rows), n))
	}
	for _, rows := range c.PeakWindows {
		total = total.plus(m.productCost(l, 2, window(rows), n))
	}
	for _, g := range c.Gates {
		if m.config.HoldsKV(l) {
			weights := float64(g.Weights(l))
			total = total.plus(m.chip.operation(2*weights*float64(n), weights*m.weight))
		}
	}
	if c.AllRows {
		products := 1
		if c.Squares {
			products++
		}
		if m.economical(l) { // the rows' attention has no output there
			products++
		}
		total = total.plus(m.productCost(l, products, m.causal(l, n, 0), n))
	}
	return total
}

// lmHead is the cost of the logits of one row.
func (m Model) lmHead() Cost {
	if !m.as.Runtime {
		return Cost{}
	}
	return m.chip.operation(2*m.head, m.head*m.weight)
}

// storeAll moves so many entries of every layer.
func (m Model) storeAll(entries int) Cost {
	return m.storeEach(slices.Repeat([]int{entries}, len(m.layers)))
}

// storeEach moves so many entries of each layer.
func (m Model) storeEach(entries []int) Cost {
	return m.chip.operation(0, m.heldBytes(entries))
}

// heldBytes are the bytes of so many entries of each layer.
func (s shape) heldBytes(entries []int) (sum float64) {
	for l, n := range entries {
		sum += float64(n) * s.layers[l].held
	}
	return sum
}
