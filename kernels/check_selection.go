package kernels

import (
	"fmt"
	"slices"
)

// CheckEntries panics unless scores has a row per head, long enough.
func CheckEntries(op string, scores *Tensor, entries []int) {
	if len(scores.Shape) != 2 || scores.Dim0() != len(entries) || len(entries) == 0 {
		panic(fmt.Sprintf("kernels: %s: scores %v of %d KV heads", op, scores.Shape, len(entries)))
	}
	for h, n := range entries {
		if n < 0 || n > scores.Width() {
			panic(fmt.Sprintf("kernels: %s: %d entries of head %d in scores %v", op, n, h, scores.Shape))
		}
	}
}

// CheckGrouped panics unless logScore has a whole number of query heads for every KV
// head, with columns for the entries.
func CheckGrouped(op string, logScore *Tensor, entries []int) {
	if len(entries) == 0 {
		panic(fmt.Sprintf("kernels: %s: observation %v for no KV heads", op, logScore.Shape))
	}
	heads := 0
	if len(logScore.Shape) > 0 {
		heads = logScore.Dim0()
	}
	if len(logScore.Shape) != 2 || heads == 0 || heads%len(entries) != 0 || slices.Min(entries) < 0 || logScore.Width() < slices.Max(entries) {
		panic(fmt.Sprintf("kernels: %s: observation %v for %d KV heads with %d to %d entries", op, logScore.Shape, len(entries), slices.Min(entries), slices.Max(entries)))
	}
}

func CheckTerms(scores *Tensor, entries []int, terms []ScoreTerm, allHeads bool) {
	const op = "Scores"
	CheckEntries(op, scores, entries)
	if len(terms) < 1 || len(terms) > 2 {
		panic(fmt.Sprintf("kernels: %s of %d terms, want 1 or 2", op, len(terms)))
	}
	for _, t := range terms {
		CheckGrouped(op, t.LogScore, entries)
		CheckPool(op, t.Kernel, t.Tail)
		if t.Group < GroupMean || t.Group > GroupLogMean || t.Group == GroupLogMean && (len(terms) > 1 || t.Factor != 0) {
			panic(fmt.Sprintf("kernels: %s: grouping %d of %d terms, factor %v", op, t.Group, len(terms), t.Factor))
		}
	}
	if allHeads && slices.Min(entries) != slices.Max(entries) {
		panic(fmt.Sprintf("kernels: %s: mean over heads with %v entries", op, entries))
	}
}

// CheckPool panics unless kernel is 0 or one that MaxPool takes.
func CheckPool(op string, kernel, tail int) {
	if kernel != 0 && CheckPoolWidth(kernel) != nil || tail < 0 {
		panic(fmt.Sprintf("kernels: %s: pool of %d but for the last %d", op, kernel, tail))
	}
}

// CheckSums panics unless sums has room for the known entries of every head, which are
// no more than there are.
func CheckSums(op string, sums *Tensor, entries, known []int) {
	CheckEntries(op, sums, known)
	for h, n := range known {
		if len(entries) != len(known) || n > entries[h] {
			panic(fmt.Sprintf("kernels: %s: sums of %v of %v entries", op, known, entries))
		}
	}
}

func CheckSelect(op string, scores *Tensor, entries, budgets []int, sink, recent int) {
	CheckEntries(op, scores, entries)
	if len(budgets) != len(entries) || sink < 0 || recent < 0 {
		panic(fmt.Sprintf("kernels: %s: budgets %v of %d heads with %d sinks and %d recent entries", op, budgets, len(entries), sink, recent))
	}
	for h, b := range budgets {
		if b < 0 {
			panic(fmt.Sprintf("kernels: %s: budget %d of head %d", op, b, h))
		}
	}
}

// CheckShare is for ShareBudget: a head may keep all of its entries anyway.
func CheckShare(op string, scores *Tensor, entries, own []int, sink, recent, pool int) {
	CheckEntries(op, scores, entries)
	if len(own) != len(entries) || sink < 0 || recent < 0 || pool < 0 || slices.Min(own) < 0 {
		panic(fmt.Sprintf("kernels: %s: %v own entries of %d heads with %d sinks and %d recent entries, pool %d", op, own, len(entries), sink, recent, pool))
	}
}

func CheckCompact(op string, dst, src []KV, s *Selection) {
	if len(dst) != s.Heads() || len(src) != s.Heads() {
		panic(fmt.Sprintf("kernels: %s: %d KV heads of %d with a selection of %d", op, len(dst), len(src), s.Heads()))
	}
	for h := range dst {
		for _, p := range [][2]*Tensor{{dst[h].K, src[h].K}, {dst[h].V, src[h].V}} {
			if p[0].DType != p[1].DType || p[0].DType.OfValues() != dst[0].K.DType.OfValues() {
				panic(fmt.Sprintf("kernels: %s: %s into %s", op, p[1].DType, p[0].DType))
			}
			if p[0].Width() != p[1].Width() || p[0].Width() != dst[0].K.Width() || p[0].Dim0() < s.Len(h) || p[1].Dim0() < s.Spans[h] {
				panic(fmt.Sprintf("kernels: %s: %d of %d rows of %v into %v", op, s.Len(h), s.Spans[h], p[1].Shape, p[0].Shape))
			}
		}
	}
}

// CheckPick panics unless to has room for the selected columns of from, of scores or of moments.
func CheckPick(to, from *Tensor, s *Selection) {
	dims := len(from.Shape)
	if len(to.Shape) != dims || dims != 2 && (dims != 3 || to.Shape[0] != 3 || from.Shape[0] != 3) || s.Heads() == 0 || to.Shape[dims-2] != s.Heads() || from.Shape[dims-2] != s.Heads() ||
		to.Shape[dims-1] < slices.Max(s.Lens) || from.Shape[dims-1] < slices.Max(s.Spans) {
		panic(fmt.Sprintf("kernels: Pick: %v of %v columns of %v into %v", s.Lens, s.Spans, from.Shape, to.Shape))
	}
}
