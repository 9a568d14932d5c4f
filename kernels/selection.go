package kernels

import "slices"

// Grouping is how the scores of the query heads that share a KV head become one.
type Grouping int

// The groupings.
const (
	GroupMean Grouping = iota
	GroupMax
	GroupSum
)

// ScoreTerm is how one observation becomes a score per KV head and entry: the
// probabilities, reduced over the query heads of a group, times Factor, max-pooled.
type ScoreTerm struct {
	LogScore *Tensor // [heads, width], logarithms of probabilities
	Group    Grouping
	Factor   float32 // 0 counts as 1
	Kernel   int     // odd width of the max-pool along the entries; 0 and 1: none
	Tail     int     // so many last entries are neither pooled nor pooled in
}

// Selector is a Backend that selects in its own memory, so that the host sees neither
// scores nor, unless it asks, what was selected. Scores are F32 [kvHeads, width], of
// whose row h the first entries[h] columns are in use; in them NaN counts as −Inf and
// of equal scores the lower index is kept, as [TopK] does it. For equal scores the
// selections are those of TopK.
type Selector interface {
	Backend

	// Scores writes the mean of one or two terms, each over all heads of its KV head;
	// with allHeads the mean over all KV heads, which must have the same entries.
	Scores(scores *Tensor, entries []int, terms []ScoreTerm, allHeads bool)
	// KeyScores writes 1 / (1 + ‖k‖₂) of every key.
	KeyScores(scores *Tensor, past []KV)
	// AddScores adds the mean probabilities of a group to sums [kvHeads, width], in
	// which the first known entries of every head have a sum and the others start at 0.
	AddScores(sums *Tensor, entries, known []int, logScore *Tensor)
	// CarryScores adds sums to the first known entries of every head of scores.
	CarryScores(scores, sums *Tensor, known []int)
	// MaxScores computes acc = max(acc, other).
	MaxScores(acc, other *Tensor)

	// Select keeps, of every head, the first sink and the last recent entries and the
	// highest scores between them, budgets[h] in all; everything where that is no less
	// than entries[h]. sink + recent is at most every budget.
	Select(scores *Tensor, entries, budgets []int, sink, recent int) *Selection
	// ShareBudget counts, per head, the candidates among the pool highest of all heads:
	// a head's candidates are its scores between sink and recent but for the own[h]
	// highest. Ties go to the lower head.
	ShareBudget(scores *Tensor, entries, own []int, sink, recent, pool int) []int

	// Compact copies the selected pairs of src[h] to the first rows of dst[h], of the
	// same type, which may be the same memory.
	Compact(dst, src []KV, s *Selection)
	// PickScores copies the selected columns of from [kvHeads, n] to the first columns
	// of to.
	PickScores(to, from *Tensor, s *Selection)
	// Compose is what s selects of what before selected, where more entries have come
	// since: of head h, what follows the before.Len(h) first counts on from base[h].
	Compose(before, s *Selection, base []int) *Selection
}

// Drawer is a Backend that samples where the logits lie.
type Drawer interface {
	// Draw chooses a token from each row of logits [rows, vocab]; −1 stands for a row
	// that is not finite.
	Draw(logits *Tensor, draws []Draw) []int32
}

// Draw are the settings of one row: the rules are those of sampling in package model.
type Draw struct {
	Temperature float64 // 0: the largest logit, of equal ones the lowest id
	TopP        float64 // smallest set of tokens with this probability; 0 or 1: all
	U           float64 // drawn from [0, 1)
	TopK        int     // most likely tokens considered; 0: all
}

// Selection is ascending indices of kept entries per KV head: on the host, or in a
// device's memory and on the host once they were asked for.
type Selection struct {
	lens    []int
	spans   []int // of how many entries each head's were selected, or the last of them
	indices [][]int32
	device  *Tensor // I32 [kvHeads, width]
}

// HostSelection wraps indices.
func HostSelection(indices [][]int32) *Selection {
	s := &Selection{indices: indices}
	for _, idx := range indices {
		s.lens = append(s.lens, len(idx))
		span := 0
		if len(idx) > 0 {
			span = int(idx[len(idx)-1]) + 1
		}
		s.spans = append(s.spans, span)
	}
	return s
}

// OnDevice tells that the indices lie in a device's memory.
func (s *Selection) OnDevice() bool { return s.device != nil }

// Heads is the number of KV heads.
func (s *Selection) Heads() int { return len(s.lens) }

// Len is the number of entries that a head keeps.
func (s *Selection) Len(head int) int { return s.lens[head] }

// Indices are the indices per head, read from the device at the first call.
func (s *Selection) Indices() [][]int32 {
	if s.indices == nil {
		host, width := s.device.OnHost().I32(), s.device.Width()
		s.indices = make([][]int32, len(s.lens))
		for h, n := range s.lens {
			s.indices[h] = slices.Clone(host[h*width:][:n])
		}
	}
	return s.indices
}
