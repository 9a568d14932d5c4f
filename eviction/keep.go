package eviction

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"glimpse/kernels"
	"glimpse/model/kvcache"
)

// Span is a range of a conversation's tokens, counted from its first: From up to To, without To.
type Span struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// Keep says what of a conversation stays, whatever a policy says: rules of a system prompt, schemas of tools, figures. Eviction
// forgets them unevenly (Chen et al. 2025, arXiv:2510.00231).
type Keep struct {
	// Spans stay in every head that the policy decides about. The budget counts them.
	Spans []Span `json:"spans,omitempty"`
	// Fair, where it is set, are the first tokens of messages, in their order. What a head keeps beside the spans and its first and last
	// entries is then shared out over the messages, by how many entries each has of those that may go.
	Fair []int `json:"fair,omitempty"`
}

// IsZero tells that nothing stays.
func (k Keep) IsZero() bool { return len(k.Spans) == 0 && len(k.Fair) == 0 }

// Up is what of it lies before a token, the spans in order and apart.
func (k Keep) Up(to int) (out Keep) {
	spans := slices.Clone(k.Spans)
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	end := 0
	for _, s := range spans {
		if s.From, s.To = max(s.From, end), min(s.To, to); s.From < s.To {
			out.Spans, end = append(out.Spans, s), s.To
		}
	}
	for _, first := range k.Fair {
		if first < to {
			out.Fair = append(out.Fair, first)
		}
	}
	return out
}

// Tokens is how many of the first tokens up to one stay.
func (k Keep) Tokens(to int) (n int) {
	for _, s := range k.Up(to).Spans {
		n += s.To - s.From
	}
	return n
}

// between is how many tokens from one up to another stay.
func (k Keep) between(from, to int) int { return k.Tokens(max(from, to)) - k.Tokens(from) }

// equal compares what stays of the first tokens up to one.
func (k Keep) equal(other Keep, to int) bool {
	a, b := k.Up(to), other.Up(to)
	return slices.Equal(a.Spans, b.Spans) && slices.Equal(a.Fair, b.Fair)
}

// restShare is what a budget leaves the policy beside what stays, at least: one of so many parts. At a tenth of the cache SmolLM2
// answers 28% of questions about figures that stay with a quarter, and 68% with half (lab/results/keep.md).
const restShare = 2

// Beside is the budget in pairs for a prompt of so many tokens. Where less than half of it would be left beside those that stay, it
// grows: to what stays and the half, but to no more than the prompt.
func (b Budget) Beside(tokens, stays int) (pairs int, grown bool) {
	pairs = b.Of(tokens)
	most := min(tokens, stays+max(1, pairs/restShare))
	if stays == 0 || pairs >= most {
		return pairs, false
	}
	return most, true
}

// CheckBeside is an error where Beside grows the budget.
func (b Budget) CheckBeside(tokens, stays int) error {
	if pairs, grown := b.Beside(tokens, stays); grown {
		return fmt.Errorf("budget: got %s for %d tokens of which %d stay, want at least %d: half is for the rest", b.Describe(tokens), tokens, stays, pairs)
	}
	return nil
}

// CheckFair is an error where the policy cannot share what it keeps out over messages.
func (n *Configured) CheckFair() error {
	if plan := n.smallest(); plan.Score == nil || plan.Select != nil {
		return fmt.Errorf("policy %s: it keeps entries by more than a score, or by none: what it keeps cannot be shared out over messages", n.Name)
	}
	return nil
}

// staying are the entries of a layer that stay, and what its heads have for them.
type staying struct {
	indices [][]int32 // per KV head, ascending
	parts   [][]int32 // per KV head the first entries of messages, ascending; nil: nothing is shared out
	beside  int       // entries of a head that its budget has beside the plan's
}

// in finds what stays of a layer, whose entries have positions; nil where nothing does.
func (k *Keep) in(c *kvcache.Cache, layer, beside int) *staying {
	if k.IsZero() {
		return nil
	}
	s, spans := &staying{beside: beside}, k.Up(math.MaxInt).Spans
	for h := range c.LayerKVHeads(layer) {
		positions := c.Positions(layer, h)
		at := func(position int) int {
			i, _ := slices.BinarySearch(positions, int32(position))
			return i
		}
		var stay, first []int32
		for _, span := range spans {
			for j := at(span.From); j < at(span.To); j++ {
				stay = append(stay, int32(j))
			}
		}
		for _, token := range k.Fair {
			first = append(first, int32(at(token)))
		}
		s.indices, s.parts = append(s.indices, stay), append(s.parts, first)
	}
	if len(k.Fair) == 0 {
		s.parts = nil
	}
	return s
}

// most is how many entries stay in the head where most do.
func (s *staying) most() (n int) {
	for _, idx := range s.indices {
		n = max(n, len(idx))
	}
	return n
}

// with is a selection with what stays besides.
func (s *staying) with(keep *kernels.Selection) *kernels.Selection {
	if s == nil || keep.Counted != nil {
		return keep
	}
	all := slices.Clone(keep.Indices())
	for h, stay := range s.indices {
		all[h] = union(all[h], stay)
	}
	return kernels.Chosen(all, keep.Spans)
}

// union joins ascending indices.
func union(a, b []int32) []int32 {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

// chosen are the entries of a head that stay under a budget which counts them: what stays, the first sink, the last recent, and the
// highest scores.
func (s *staying) chosen(head int, scores []float32, budget, sink, recent int) []int32 {
	n := len(scores)
	if n <= budget {
		return upTo(0, n)
	}
	sink = min(sink, budget)
	recent = min(recent, budget-sink)
	stays := make([]bool, n)
	for _, j := range s.indices[head] {
		stays[j] = true
	}
	var keep, free []int32
	for j := range stays {
		if stays[j] || j < sink || j >= n-recent {
			keep = append(keep, int32(j))
		} else {
			free = append(free, int32(j))
		}
	}
	if rest := budget - len(keep); rest > 0 {
		for _, part := range s.share(head, free, rest) {
			of := make([]float32, len(part.free))
			for i, j := range part.free {
				of[i] = scores[j]
			}
			for _, i := range kernels.TopK(of, part.budget) {
				keep = append(keep, part.free[i])
			}
		}
		slices.Sort(keep)
	}
	return keep
}

// fairPart are the entries of a message that may go, and how many of them stay.
type fairPart struct {
	free   []int32
	budget int
}

// share shares what is left of a head out over the messages, by how many of the entries that may go each has.
func (s *staying) share(head int, free []int32, rest int) []fairPart {
	if s.parts == nil {
		return []fairPart{{free, rest}}
	}
	var parts []fairPart
	var shares []float64
	for i, at := 0, 0; at < len(free); i++ {
		end := len(free)
		if i < len(s.parts[head]) {
			end, _ = slices.BinarySearch(free, s.parts[head][i])
		}
		if end > at {
			parts, shares = append(parts, fairPart{free: free[at:end]}), append(shares, float64(rest)*float64(end-at)/float64(len(free)))
			at = end
		}
	}
	for i, n := range apportion(shares) {
		parts[i].budget = n
	}
	return parts
}

// hidden are scores on the host by which nothing that stays is chosen: it is there in any case. Where numbers are counted alone there is
// nothing to hide.
func (s *Scores) hidden() *Scores {
	if s.stay == nil || s.Rows() == nil {
		return s
	}
	hide := func(t *kernels.Tensor) *kernels.Tensor {
		if t == nil {
			return nil
		}
		own := kernels.NewTensor(kernels.F32, t.Shape...)
		copy(own.F32(), t.OnHost().F32())
		group := t.Dim0() / len(s.Entries)
		for r := range t.Dim0() {
			for _, j := range s.stay.indices[r/group] {
				own.F32()[r*t.Width()+int(j)] = float32(math.Inf(-1))
			}
		}
		return own
	}
	out := *s
	out.Ops, out.Values, out.Spread = s.Ops.HostSelector(), hide(s.Values), hide(s.Spread)
	return &out
}

// restBudget is what a plan's budget comes to beside what stays of these scores.
func (s *Scores) restBudget(budget int) int {
	if s.stay == nil {
		return budget
	}
	return max(1, budget+s.stay.beside-s.stay.most())
}

// withStaying are the budgets of heads with what they have for entries that stay.
func (s *Scores) withStaying(budgets []int) []int {
	if s.stay == nil {
		return budgets
	}
	out := make([]int, len(budgets))
	for h, n := range budgets {
		out[h] = n + s.stay.beside
	}
	return out
}

// all tells that all entries [from, to) of a head stay.
func (s *staying) all(head, from, to int) bool {
	low, _ := slices.BinarySearch(s.indices[head], int32(from))
	high, _ := slices.BinarySearch(s.indices[head], int32(to))
	return high-low == to-from
}

// next is an entry of [from, to) that may go, not all of which stay: the one that was chosen, or the next one after it, in a circle.
func (s *staying) next(head, chosen, from, to int) int {
	for {
		if _, stays := slices.BinarySearch(s.indices[head], int32(chosen)); !stays {
			return chosen
		}
		if chosen++; chosen == to {
			chosen = from
		}
	}
}
