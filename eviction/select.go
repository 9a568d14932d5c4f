package eviction

import (
	"cmp"
	"math"
	"slices"
)

// upTo are the indices [from, to).
func upTo(from, to int) []int32 {
	out := make([]int32, 0, to)
	for j := from; j < to; j++ {
		out = append(out, int32(j))
	}
	return out
}

// apportion makes whole budgets of shares without losing any of their sum: the largest
// fractions are rounded up, among equals the lower layers or heads, and so
// larger shares never get less. It is the method of largest remainders.
func apportion(shares []float64) []int {
	sum, out, order, fractions := 0.0, make([]int, len(shares)), make([]int, len(shares)), make([]float64, len(shares))
	rest := 0
	for i, x := range shares {
		sum += x
		out[i] = int(x + 1e-9)
		rest -= out[i]
		order[i], fractions[i] = i, math.Round(1e9*(x-float64(out[i]))) // sums round
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(fractions[b], fractions[a]) })
	rest += int(sum + 1e-6)
	for _, i := range order[:max(0, rest)] {
		out[i]++
	}
	return out
}

// AnswerRecall is the share of the tokens that an answer is read from which a single KV head
// keeps, of the head that keeps most: max over layers and heads of |kept ∩ answer| / |answer|. The answer
// are positions of a prompt, at least one, each once. Heads that copy are few, and
// one that holds the whole answer can give it, whatever the others dropped: on the built-in model
// this tells right answers better than the mean over heads or the union of heads does.
func AnswerRecall(kept [][][]int32, answer []int32) float64 {
	most := 0
	for _, layer := range kept {
		for _, head := range layer {
			most = max(most, common(head, answer))
		}
	}
	return float64(most) / float64(len(answer))
}

// common is how many of the others are among the kept, which ascend.
func common(kept, others []int32) (n int) {
	for _, j := range others {
		if _, ok := slices.BinarySearch(kept, j); ok {
			n++
		}
	}
	return n
}

// HitRate is the critical-KV hit rate (Judge Q, arXiv:2509.10798, eq. 6): the mean over layers
// and KV heads of |kept ∩ critical| / |critical|, where critical are the oracle's
// choices under the same budget.
func HitRate(kept, critical [][][]int32) float64 {
	sum, heads := 0.0, 0
	for l := range critical {
		if kept[l] == nil { // which is left alone
			continue
		}
		for h, want := range critical[l] {
			if len(want) > 0 {
				sum += float64(common(kept[l][h], want)) / float64(len(want))
				heads++
			}
		}
	}
	if len(critical) > 0 && !slices.ContainsFunc(critical, func(layer [][]int32) bool { return layer != nil }) {
		return 1 // nothing is decided, and nothing critical lost
	}
	return sum / float64(max(1, heads))
}
