package kernels

import "slices"

// Grouping is how the scores of the query heads that share a KV head become one.
type Grouping int

// The groupings.
const (
	GroupMean Grouping = iota
	GroupMax
	GroupSum
	// GroupLogMean is the logarithm of GroupMean: where all probabilities are too small
	// for a float32 it still tells which is larger. Of no probability at all it is
	// −MaxFloat32. A term of it has no factor, and no other term beside it.
	GroupLogMean
)

// ScoreTerm is how one observation becomes a score per KV head and entry: the
// probabilities, reduced over the query heads of a group, times Factor, max-pooled.
type ScoreTerm struct {
	LogScore *Tensor // [heads, width], logarithms of probabilities
	Group    Grouping
	Factor   float32 // 0 counts as 1
	Kernel   int     // odd width of the max-pool along the entries, up to MaxPoolWidth; 0 and 1: none
	Tail     int     // so many last entries are neither pooled nor pooled in
}

// Selector is a Backend that selects in its own memory, so that the host sees neither
// scores nor, unless it asks, what was selected. Scores are F32 [kvHeads, width], of
// whose row h the first entries[h] columns are in use; in them NaN counts as −Inf and
// of equal scores the lower index is kept, as [TopK] does it. For equal scores the
// selections are as by TopK.
type Selector interface {
	Backend
	RunningStatistics
	Merger

	// Scores writes the mean of one or two terms, each over all heads of its KV head; with
	// allHeads each is, before it is pooled, the mean over all KV heads, which must have the
	// same entries.
	Scores(scores *Tensor, entries []int, terms []ScoreTerm, allHeads bool)
	// MeanScores makes every row the mean of the so many rows that it is one of: of the
	// KV heads of a layer, where there are rows of several. They must have the same
	// entries. Of logarithms it is the logarithm of the mean.
	MeanScores(scores *Tensor, entries []int, heads int, logarithms bool)
	// PoolScores max-pools from, of the same shape as to, as a [ScoreTerm] with so wide a
	// kernel and tail is pooled.
	PoolScores(to, from *Tensor, entries []int, kernel, tail int)
	// KeyScores writes 1 / (1 + ‖k‖₂) of every key.
	KeyScores(scores *Tensor, past []KV)
	// AddScores adds the mean probabilities of a group to sums [kvHeads, width], in
	// which the first known entries of every head have a sum and the others start at 0.
	AddScores(sums *Tensor, entries, known []int, logScore *Tensor)
	// CarryScores adds sums to the first known entries of every head of scores.
	CarryScores(scores, sums *Tensor, known []int)
	// MaxScores computes acc = max(acc, other) of observations or scores.
	MaxScores(acc, other *Tensor)

	// Select keeps, of every head, the first sink and the last recent entries and the
	// highest scores between them, budgets[h] in all; everything where that is no less
	// than entries[h]. A smaller budget than sink + recent keeps the first sinks, then the
	// last recent ones.
	Select(scores *Tensor, entries, budgets []int, sink, recent int) *Selection
	// ShareBudget counts, per head, the candidates among the pool highest of all heads:
	// a head's candidates are its scores between sink and recent but for the own[h]
	// highest. Ties go to the lower head.
	ShareBudget(scores *Tensor, entries, own []int, sink, recent, pool int) []int

	// Compact copies the selected pairs of src[h] to the first rows of dst[h], of the
	// same type, which may be the same memory.
	Compact(dst, src []KV, s *Selection)
	// Pick copies the selected columns of from, scores [kvHeads, n] or moments, to the first columns
	// of to.
	Pick(to, from *Tensor, s *Selection)
	// Compose is what s selects of the entries that before has left, where more have come
	// since: of head h, what follows the before.Len(h) first counts on from base[h].
	Compose(before, s *Selection, base []int) *Selection

	// PageBounds computes the bounds of the keys of every head's pages from page from[h] on.
	PageBounds(pages *PageHeads, keys []KV, from []int)
	// EstimatePages estimates the attention of one row's queries q [1, heads, headDim]
	// in the heads that have more to see than Want. probabilities [heads, width] are the
	// queries' over the pages of the positions that are seen, or their logarithms, as
	// ShareMean takes them; scores [kvHeads, width] the
	// logarithms of their means over the group: probabilities themselves sink to 0, and
	// pages that are equally 0 are no ranking. reads [1], I32, is increased by the numbers
	// of the bounds that EstimateBound has read; it may be nil.
	EstimatePages(scores, probabilities, q *Tensor, pages *PageHeads, how Estimate, reads *Tensor)
	// SelectPages chooses, of every head, Want of the positions that are seen, or all of
	// them where that is not less: the last Recent ones, and before them the positions of the best
	// pages by scores [kvHeads, width], of equal ones the first; the worst is cut
	// at its end. It writes to ids, I32 [kvHeads, at least Want], in which the selection
	// lies.
	SelectPages(ids, scores *Tensor, pages *PageHeads) *Selection
	// AddValues adds to sums, F64 [kvHeads, headDim], the values of the positions from
	// from[h] up to Entries.
	AddValues(sums *Tensor, pages *PageHeads, values []KV, from []int)
	// ShareMean gives the attention that is estimated to be missing to the mean value: in
	// heads that have more to see than Want, out [1, heads·headDim] becomes
	// α·out + (1−α)·sums/Entries, where α is the sum of a query's probabilities of the
	// positions in s. Pages have one position.
	ShareMean(out, probabilities *Tensor, s *Selection, sums *Tensor, pages *PageHeads)
}

// Estimate is how the attention to a page is estimated from the bounds of its keys.
type Estimate int

// The estimates.
const (
	EstimateBound   Estimate = iota // the largest product that they allow, divided by √headDim
	EstimateSigned                  // of the query's largest components, with bounds by the sign of the group's sum
	EstimatePartial                 // of the query's largest components, with the lower bounds
)

// PageHead is what a decoding step chooses from in a KV head: positions, which are
// counted without what is not in the pool.
type PageHead struct {
	From, Entries int     // positions that are seen
	Want          int     // of them to choose, at least 1
	Recent        int     // of these the last, which SelectPages chooses whatever their scores
	Size          int     // positions per page
	Known         int     // positions that Bounds hold: PageBounds may start after them
	Components    int     // that an estimate reads; EstimateBound reads all
	Bounds        *Tensor // F32 [2, headDim, capacity]: minima and maxima, or [1, headDim, capacity]; nil without an estimate
}

// Pages is the number of pages up to Entries.
func (p *PageHead) Pages() int { return (p.Entries + p.Size - 1) / p.Size }

// Chooses tells that not all positions are wanted.
func (p *PageHead) Chooses() bool { return p.Want < p.Entries-p.From }

// PageHeads are the heads of a layer. Where there is a pool, its rows are the first positions,
// and base[h] is the row of the first position after them.
type PageHeads struct {
	Heads []PageHead
	Pool  *Selection
	Base  []int
	Logits
}

// Logits are what an estimate knows of attention besides, as in an Attend: Scale is 1/√headDim where it is 0.
type Logits struct {
	Scale, SoftCap float64
	Sinks          *Tensor
}

// Selection is ascending indices of kept entries per KV head: on the host, or in a
// device's memory and on the host once they were asked for.
type Selection struct {
	Lens    []int     // entries that each head keeps
	Spans   []int     // of how many entries each head's were selected, or the last of them
	Device  *Tensor   // I32 [kvHeads, width], whose device writes it; nil on the host
	indices [][]int32 // on the host
	Counted *Tensor   // of a backend that only counts memory: what the indices would take
}

// HostSelection wraps indices.
func HostSelection(indices [][]int32) *Selection {
	s := &Selection{indices: indices}
	for _, idx := range indices {
		s.Lens = append(s.Lens, len(idx))
		span := 0
		if len(idx) > 0 {
			span = int(idx[len(idx)-1]) + 1
		}
		s.Spans = append(s.Spans, span)
	}
	return s
}

// OnDevice tells that the indices lie in a device's memory.
func (s *Selection) OnDevice() bool { return s.Device != nil }

// Heads is the number of KV heads.
func (s *Selection) Heads() int { return len(s.Lens) }

// Len is the number of entries that a head keeps.
func (s *Selection) Len(head int) int { return s.Lens[head] }

// HeadRange are the heads [from, to) of a selection on a device, in the same memory.
func (s *Selection) HeadRange(from, to int) *Selection {
	return &Selection{Lens: s.Lens[from:to], Spans: s.Spans[from:to], Device: s.Device.Rows(from, to)}
}

// JoinSelections are selections of several layers as one, in memory of its own; nil where
// they do not all lie on the device in rows of the same length.
func JoinSelections(b Backend, parts []*Selection) *Selection {
	s := &Selection{}
	for _, p := range parts {
		if p.Device == nil || p.Device.Width() != parts[0].Device.Width() {
			return nil
		}
		s.Lens, s.Spans = append(s.Lens, p.Lens...), append(s.Spans, p.Spans...)
	}
	s.Device = b.Alloc(I32, len(s.Lens), parts[0].Device.Width())
	at := 0
	for _, p := range parts {
		b.Copy(s.Device.Rows(at, at+p.Heads()), p.Device)
		at += p.Heads()
	}
	return s
}

// Indices are the indices per head, read from the device at the first call.
func (s *Selection) Indices() [][]int32 {
	if s.indices == nil {
		host, width := s.Device.OnHost().I32(), s.Device.Width()
		s.indices = make([][]int32, len(s.Lens))
		for h, n := range s.Lens {
			s.indices[h] = slices.Clone(host[h*width:][:n])
		}
	}
	return s.indices
}
