package costmodel

import "glimpse/eviction"

// Step is the cost of one decoding step of batch sequences at once, after so many before it:
// the weights are read once, every sequence has a cache of its own.
func (m Model) Step(w eviction.Workload, before, batch int) Cost {
	total := m.stepCost(func(l int) int { return m.entries(w, l, before) }, w.Read, batch)
	for l := range m.layers {
		if n := m.entries(w, l, before); m.layers[l].recurrent == nil && m.layers[l].from == l && w.Merges && m.as.Runtime && w.Limit != nil && n > w.Limit[l] {
			merged := m.similarities(l, n, 1) // the evicted pair is among those that it is compared with
			total = total.plus(Cost{float64(batch) * merged.FLOPs, float64(batch) * merged.Bytes, float64(batch) * merged.Seconds})
		}
	}
	return total
}

// similarities are the products of the keys that a layer keeps and those that it evicts.
func (m Model) similarities(l, kept, evicted int) Cost {
	return m.chip.operation(2*float64(kept)*float64(evicted)*m.layers[l].keys, float64(kept+evicted)*m.layers[l].pair)
}

// entries is what a layer holds per KV head, the step's own pair included, after so many
// steps before it.
func (m Model) entries(w eviction.Workload, l, before int) int {
	n := w.Held[l]
	if m.as.Runtime {
		n += before + 1
	}
	if w.Limit != nil { // evicted after the step
		n = min(n, max(w.Held[l], w.Limit[l])+1)
	}
	return n
}

// stepCost is the cost of a step with so many entries in every layer; it reads at most read of them where
// that is not 0.
func (m Model) stepCost(entries func(l int) int, read, batch int) Cost {
	var total Cost
	for l := range m.layers {
		for _, mod := range m.layers[l].modules {
			total = total.plus(m.through(mod, batch))
		}
		if m.layers[l].recurrent != nil {
			total = total.plus(m.recurrence(l, 1, batch))
			continue
		}
		n := entries(m.layers[l].from)
		if m.as.Causal {
			n = int(pairsSeen(1, n-1, m.layers[l].window))
		}
		if read > 0 {
			n = min(n, read)
		}
		at, stored := m.productCost(l, 2, float64(n), n), n
		if m.as.Runtime {
			stored = 1
		}
		at = at.plus(m.chip.operation(0, float64(stored)*m.layers[l].held))
		b := float64(batch)
		total = total.plus(Cost{b * at.FLOPs, b * at.Bytes, b * at.Seconds})
	}
	if m.as.Runtime {
		total = total.plus(m.chip.operation(2*m.head*float64(batch), m.head*m.weight))
	}
	return total
}

// stepsCost is the cost of n steps one after the other on caches of so many entries at first.
func (m Model) stepsCost(held []int, n int) Cost {
	var total Cost
	for i := range n {
		total = total.plus(m.stepCost(func(l int) int {
			if !m.as.Runtime {
				return held[l]
			}
			return held[l] + i + 1
		}, 0, 1))
	}
	return total
}
