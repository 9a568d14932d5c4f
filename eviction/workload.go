package eviction

import (
	"slices"

	"glimpse/model"
)

// Workload is what a policy has the pass over a prompt do, and the decoding after it, in
// shapes: what a cost model counts. Tokens of drafts and responses in it are zeros.
type Workload struct {
	Tokens, MaxNew int
	// Capture is what the pass observes and the rows that run beside the prompt; nothing
	// where the prompt fits the budget.
	Capture model.Capture
	// Held [layers] are the entries per KV head, the mean over heads, that are kept of the
	// prompt.
	Held []int
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
	full := Prompt{Tokens: make([]int32, tokens), Entries: tokens, Budget: budget, MaxNew: maxNew, Config: c}
	w := Workload{Tokens: tokens, MaxNew: maxNew, Held: slices.Repeat([]int{tokens}, c.Layers)}
	if _, ok := n.Method.(SparseDecoder); ok || n.Second != nil {
		w.Read = budget
	}
	_, bounded := n.Method.(DecodeEvicter)
	p := firstStage(full, n.Second)
	idle := tokens <= p.Budget
	if spec, ok := as[Speculator](n.Method); ok && !idle {
		w.Draft, w.DraftModel = spec.DraftTokens(), spec.DraftModel()
		p.Draft = make([]int32, w.Draft)
	}
	if d, ok := as[Drafter](n.Method); ok && !idle {
		w.Draft, w.OnEvicted, w.Waits = d.DraftTokens(), true, true
	}
	if _, ok := as[Responder](n.Method); ok {
		p.Response = make([]int32, max(1, maxNew))
	}
	if !idle || bounded {
		w.Capture = n.Method.Capture(p)
	}
	limits := n.limits(p)
	if bounded {
		w.Limit = limits
	}
	if idle {
		return w
	}
	_, crosses := n.Method.(CrossLayerAllocator)
	_, keepsAll := n.Method.(PoolKeeper)
	_, w.Merges = n.Method.(Merger)
	w.Waits = w.Waits || crosses || keepsAll
	for l := range w.Held {
		if !keepsAll {
			w.Held[l] = min(tokens, limits[l])
		}
	}
	return w
}

// limits are the layers' budgets; where they depend on what is observed, those of layers
// that are all alike.
func (n *Configured) limits(p Prompt) []int {
	if a, ok := n.Method.(CrossLayerAllocator); ok {
		alike := make([][]float64, p.Config.Layers)
		for l := range alike {
			alike[l] = make([]float64, p.Config.Heads)
		}
		return a.CrossLayerBudgets(p, alike)
	}
	out := make([]int, p.Config.Layers)
	for l := range out {
		out[l], _, _ = layerBudget(n.Method, p, l)
	}
	return out
}
