package costmodel

import (
	"slices"

	"glimpse/eviction"
)

// Run is a prompt and a response.
type Run struct {
	Tokens int // of the prompt
	Budget int // entries per KV head and layer
	MaxNew int // tokens of the response
}

// Part is one thing that the time to the first token is spent on.
type Part struct {
	Name string `json:"name"`
	Cost
}

// Estimate is what a policy costs.
type Estimate struct {
	Count  string `json:"count"` // name of the conventions
	Policy string `json:"policy"`
	Tokens int    `json:"tokens"`
	Budget int    `json:"budget"`
	MaxNew int    `json:"max_new"`

	// Plain is the pass over the prompt alone, TTFT all that is done before the first
	// token, Overhead the seconds between the two. Parts sum to TTFT.
	Plain    Cost    `json:"plain"`
	TTFT     Cost    `json:"ttft"`
	Overhead float64 `json:"overhead_s"`
	Parts    []Part  `json:"parts"`

	// Step is the mean decoding step of one sequence.
	Step Cost `json:"step"`
	// HeldBytes is the cache after the prompt, EndBytes after the response, PeakBytes the
	// most that caches take at once on the way.
	HeldBytes float64 `json:"held_bytes"`
	EndBytes  float64 `json:"end_bytes"`
	PeakBytes float64 `json:"peak_bytes"`
}

// Estimate is what a policy costs on a prompt and its response.
func (m Model) Estimate(p *eviction.Configured, r Run) Estimate {
	w := p.Workload(m.config, r.Tokens, r.Budget, r.MaxNew)
	e := Estimate{Count: m.as.Name, Policy: p.Name, Tokens: r.Tokens, Budget: r.Budget, MaxNew: r.MaxNew, Plain: m.Prefill(r.Tokens)}
	e.Parts = m.costParts(w)
	for _, part := range e.Parts {
		e.TTFT = e.TTFT.plus(part.Cost)
	}
	e.Overhead = e.TTFT.Seconds - e.Plain.Seconds
	steps := max(1, w.MaxNew-1) // the last token is not run
	for i := range steps {
		e.Step = e.Step.plus(m.Step(w, i, 1))
	}
	e.Step = Cost{e.Step.FLOPs / float64(steps), e.Step.Bytes / float64(steps), e.Step.Seconds / float64(steps)}
	e.HeldBytes, e.EndBytes = m.states(), m.states()
	for l := range m.layers {
		e.HeldBytes += float64(w.Held[l]) * m.layers[l].held
		end := w.Held[l] + max(0, w.MaxNew-1)
		if w.Limit != nil {
			end = min(end, max(w.Held[l], w.Limit[l]))
		}
		e.EndBytes += float64(end) * m.layers[l].held
	}
	e.PeakBytes = max(m.peak(w), e.EndBytes)
	return e
}

// LargestBatch is how many sequences of a run fit so many bytes beside the weights, once all
// of them have their prompts behind them (D2O, Wan et al. 2025, arXiv:2406.13035, table 5).
// Activations are left out.
func (m Model) LargestBatch(p *eviction.Configured, r Run, memory int64) int {
	return max(0, int((float64(memory)-m.weights)/m.Estimate(p, r).EndBytes))
}

// TokensPerSecond is the throughput of decoding so many sequences at once.
func (m Model) TokensPerSecond(p *eviction.Configured, r Run, batch int) float64 {
	w, seconds := p.Workload(m.config, r.Tokens, r.Budget, r.MaxNew), 0.0
	steps := max(1, r.MaxNew-1)
	for i := range steps {
		seconds += m.Step(w, i, batch).Seconds
	}
	return float64(batch*steps) / seconds
}

// evicts tells that less than the prompt is kept.
func (m Model) evicts(w eviction.Workload) bool {
	for l, n := range w.Held {
		if n < w.Tokens && m.layers[l].recurrent == nil {
			return true
		}
	}
	return false
}

// costParts are what the time to the first token is spent on.
func (m Model) costParts(w eviction.Workload) []Part {
	out := []Part{{"prompt", m.Prefill(w.Tokens)}}
	add := func(name string, c Cost) {
		if c != (Cost{}) {
			out = append(out, Part{name, c})
		}
	}
	if w.Draft > 0 && !w.OnEvicted {
		m.speculate(w, add)
	}
	add("observed rows", m.pass(w).minus(m.pass(eviction.Workload{Tokens: w.Tokens})))
	if w.Draft > 0 && w.OnEvicted {
		m.draft(w, add)
	}
	if w.Merges && m.as.Runtime {
		add("merging", m.mergeCost(w))
	}
	if m.evicts(w) {
		c := m.storeEach(w.Held)
		if m.as.Runtime { // read and written
			c = c.plus(c)
		}
		add("kept", c)
	}
	return out
}

// speculate is what a draft model does before the prompt runs.
func (m Model) speculate(w eviction.Workload, add func(string, Cost)) {
	d := m
	if w.DraftModel != nil {
		d.shape = shapeOf(w.DraftModel)
	}
	prompt := d.Prefill(w.Tokens)
	steps := w.Draft - 1
	if !m.as.Runtime {
		prompt, steps = prompt.plus(d.storeAll(w.Tokens)), w.Draft
	}
	add("draft model: prompt", prompt)
	add("draft model: steps", d.stepsCost(slices.Repeat([]int{w.Tokens}, len(d.layers)), steps))
}

// draft is what is done after the prompt by a policy that drafts on what it has kept.
func (m Model) draft(w eviction.Workload, add func(string, Cost)) {
	if m.as.Runtime {
		kept := m.storeEach(w.Held) // a copy
		add("draft", kept.plus(kept, m.stepsCost(w.Held, w.Draft)))
		var look Cost
		for l := range m.layers {
			if w.Spares(l) {
				continue
			}
			look = look.plus(m.productCost(l, 1, m.causal(l, w.Draft, w.Tokens), w.Tokens))
		}
		add("second look", look)
		return
	}
	full := m.storeAll(w.Tokens)
	add("full cache", full)
	add("draft", m.stepsCost(w.Held, w.Draft))
	look := full
	for l := range m.layers {
		look = look.plus(m.linears(l, eviction.Workload{Tokens: w.Draft}, nil))
		if m.layers[l].recurrent == nil {
			look = look.plus(m.productCost(l, 4, m.causal(l, w.Draft, w.Tokens), w.Tokens))
		}
	}
	add("second look", look)
}

// mergeCost is the cost of the similarities of evicted and kept entries.
func (m Model) mergeCost(w eviction.Workload) Cost {
	var total Cost
	for l := range m.layers {
		if !w.Spares(l) && m.layers[l].from == l {
			total = total.plus(m.similarities(l, w.Held[l], w.Tokens-w.Held[l]))
		}
	}
	return total
}

// peak is the most that caches of a prompt take at once: one layer whole and what is kept of
// those before it, or all layers whole and what a draft is decoded on besides.
func (m Model) peak(w eviction.Workload) float64 {
	bytes, kept, all := 0.0, m.heldBytes(w.Held), m.heldBytes(slices.Repeat([]int{w.Tokens}, len(m.layers)))
	for l := range m.layers {
		now := 0.0
		for before, of := range m.layers[:l+1] {
			entries := w.Held[before]
			if before == l || of.until >= l && of.until > before { // it has yet to be read
				entries = w.Tokens
			}
			now += float64(entries) * of.held
		}
		bytes = max(bytes, now)
	}
	if w.Waits {
		bytes = all
	}
	if w.OnEvicted {
		bytes = all + kept + m.heldBytes(slices.Repeat([]int{w.Draft}, len(m.layers)))
	}
	bytes += m.states()
	if w.OnEvicted {
		bytes += m.states() // of the copy
	}
	if w.Draft > 0 && !w.OnEvicted {
		d := m.shape
		if w.DraftModel != nil {
			d = shapeOf(w.DraftModel)
		}
		bytes = max(bytes, d.heldBytes(slices.Repeat([]int{w.Tokens + w.Draft - 1}, len(d.layers)))+d.states())
	}
	return bytes
}
