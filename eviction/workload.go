package eviction

import (
	"slices"

	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// Workload is what a policy has the pass over a prompt do, and the decoding after it, in
// shapes: what a cost model counts. Tokens of drafts and responses in it are zeros.
type Workload struct {
	Tokens, MaxNew int
	// Capture is what the pass observes and the rows that run beside the prompt; nothing
	// where the prompt fits the budget.
	Capture runner.Capture
	// Held [layers] are the entries per KV head, the mean over heads, that are kept of the
	// prompt.
	Held []int
	// Spared [layers] are those that read no cache that a policy decides about: those with a sliding window, which they hold alone, and recurrent ones, which hold no entry; nothing is
	// observed of them. nil: none.
	Spared []bool
	// Limit [layers] are the most that a layer holds while decoding; nil where every step
	// adds an entry.
	Limit []int
	// Read is the most entries per KV head and layer that a decoding step reads, what it
	// reads to choose them included; 0 is all that is held.
	Read int
	// Waits tells that no layer is evicted before the last one has run.
	Waits bool
	// Merges tells that what is evicted of the prompt is merged into what is kept.
	Merges bool
	// Stay are the rows that run once more behind the whole cache, and stay in it; nil: none do.
	Stay model.QueryRows
	// Draft is the tokens that are drafted before the prompt is evicted, 0 where there is no
	// draft: by DraftModel, nil for the model itself, with a full cache of its own, or, if
	// OnEvicted, by the model on a first eviction to Held, whose queries are then observed on
	// the full cache.
	Draft      int
	DraftModel *model.Model
	OnEvicted  bool
}

// Workload is the policy's work on a prompt of a model, and on a response of maxNew tokens.
// What a policy that knows the response does to get it is left out.
func (n *Configured) Workload(c *model.Config, tokens, budget, maxNew int) Workload {
	w := Workload{Tokens: tokens, MaxNew: maxNew, Held: slices.Repeat([]int{tokens}, c.Layers)}
	r := newObserver(n, Prompt{Tokens: make([]int32, tokens), Entries: tokens, Budget: budget, MaxNew: maxNew, Config: c, Windows: n.evictsWindows()})
	for l := range w.Held {
		w.Spared = append(w.Spared, !r.prompt.decides(c.KVLayer(l)))
		if !c.HoldsKV(l) {
			w.Held[l] = 0
		} else if w.Spared[l] {
			w.Held[l] = kvcache.WindowEntries(tokens, c.Window(l))
		}
	}
	if r.plan.Sparse != nil {
		w.Read = budget
	}
	fits := r.prompt.fits()
	if draft := r.plan.Draft; draft != nil && !fits {
		w.Draft, w.DraftModel = draft.Tokens, draft.Model
		r.know(func(p *Prompt) { p.Draft = make([]int32, w.Draft) })
	}
	if r.plan.Drafted > 0 && !fits {
		w.Draft, w.OnEvicted = r.plan.Drafted, true
	}
	if r.plan.NeedsResponse {
		r.know(func(p *Prompt) { p.Response = make([]int32, max(1, maxNew)) })
	}
	if !r.idle() {
		w.Capture = r.plan.Capture
	}
	limits := r.limits()
	if r.plan.Decode != nil {
		w.Limit = limits
		for l, spared := range w.Spared {
			if spared {
				w.Limit[l] = w.Held[l]
			}
		}
	}
	if fits {
		return w
	}
	w.Merges, w.Waits, w.Stay = r.plan.Merge != nil, r.plan.waits(), r.plan.Stay
	for l := range w.Held {
		if !r.plan.KeepsAll && !w.Spared[l] {
			w.Held[l] = min(w.Held[l], limits[l]+r.plan.Staying)
		}
	}
	return w
}

// Spares tells that a layer is left alone.
func (w *Workload) Spares(layer int) bool { return w.Spared != nil && w.Spared[layer] }

// limits are the layers' budgets; where they depend on what is observed, the budgets of layers
// that are all alike.
func (r *observer) limits() []int {
	c := r.prompt.Config
	if r.plan.CrossLayer != nil {
		alike := make([][]float64, len(r.prompt.layers()))
		for l := range alike {
			alike[l] = make([]float64, c.Heads)
		}
		return r.prompt.spread(r.plan.CrossLayer.Budgets(alike))
	}
	out := make([]int, c.Layers)
	for l := range out {
		out[l] = r.plan.layerBudget(l, r.prompt.Budget)
	}
	return out
}
