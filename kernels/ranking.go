package kernels

import (
	"math"
	"slices"

	"glimpse/internal/simd"
)

// ranking is the tokens of a row of logits, the likeliest first, of equal ones the lower id first. It is sorted as far as it
// is read: a draw mostly ends among the first few, and sorting all of a large vocabulary takes longer than all else that
// a draw does. Tokens of −Inf are banned, and not in it.
type ranking struct {
	logits      []float32
	temperature float64
	limit       int      // tokens in it at most
	most        float32  // the largest logit
	keys        []uint64 // of the tokens that are sorted: the order of the logit, then the id
	floor       float32  // all tokens of at least this logit are; NaN: none
	want        int      // tokens that are to be sorted next
	bounds      int      // how often drawBounds was called
	least, much float64  // bounds of the sum of all shares
}

const (
	// firstSorted is the number of tokens that are sorted first, and moreSorted how many times as many are when
	// these do not do.
	firstSorted, moreSorted = 64, 4
	// blocksOfWanted is the number of blocks that a row is cut into for each token that is wanted.
	blocksOfWanted = 4
	// leastOfBlock is the length of a block below which all tokens are sorted.
	leastOfBlock = 2
)

// newRanking ranks the limit likeliest tokens; 0: all of them.
func newRanking(logits []float32, temperature float64, limit int) *ranking {
	r := &ranking{logits: logits, temperature: temperature, limit: limit, most: simd.Max(logits), floor: float32(math.NaN()), want: firstSorted, much: math.Inf(1)}
	if limit == 0 {
		r.limit = len(logits)
	} else {
		r.want = max(r.want, limit)
	}
	return r
}

// tokenAt returns token i of the ranking and what its probability is proportional to: 1 for the first one.
func (r *ranking) tokenAt(i int) (id int32, share float64, ok bool) {
	for i >= len(r.keys) {
		if !r.extend() {
			return 0, 0, false
		}
	}
	if i >= r.limit {
		return 0, 0, false
	}
	id = int32(uint32(r.keys[i]))
	return id, r.tokenShare(r.logits[id]), true
}

// tokenShare is what the probability of a token with this logit is proportional to.
func (r *ranking) tokenShare(logit float32) float64 {
	return math.Exp(float64(logit-r.most) / r.temperature)
}

// orderKey is less for the token that comes first.
func orderKey(logit float32, id int) uint64 {
	order := math.Float32bits(logit + 0) // −0 is 0
	if order>>31 == 0 {
		order = ^order &^ (1 << 31)
	}
	return uint64(order)<<32 | uint64(id)
}

// extend sorts the tokens that come next, and tells whether there were any left.
//
// The largest logits of as many blocks as tokens are wanted are so many logits. So all wanted ones are at least as large as
// the least of these, and few others are, unless they are equal or lie together.
func (r *ranking) extend() bool {
	nothing := float32(math.Inf(-1))
	if r.floor == nothing {
		return false
	}
	floor, size := nothing, len(r.logits)/(blocksOfWanted*r.want)
	var largest []float32
	if size >= leastOfBlock {
		for block := range slices.Chunk(r.logits, size) {
			largest = append(largest, simd.Max(block))
		}
		floor = kthLargest(largest, r.want)
	} else {
		size = len(r.logits)
		largest = []float32{r.most}
	}
	sorted := len(r.keys)
	for i, l := range largest {
		if l < floor {
			continue
		}
		for id, end := i*size, min((i+1)*size, len(r.logits)); id < end; id++ {
			if l := r.logits[id]; l >= floor && !(l >= r.floor) && l > nothing {
				r.keys = append(r.keys, orderKey(l, id))
			}
		}
	}
	slices.Sort(r.keys[sorted:])
	r.floor, r.want = floor, max(r.want, len(r.keys))*moreSorted
	return true
}

// sumShares adds up the shares in the order of the ranking.
func (r *ranking) sumShares() (sum float64) {
	for i := 0; ; i++ {
		_, share, ok := r.tokenAt(i)
		if !ok {
			return sum
		}
		sum += share
	}
}

// sumExactly is the number of calls of drawBounds after which the bounds are the sum.
const sumExactly = 3

// drawBounds draws the bounds of the sum closer: the first ones take little time and do for most draws, the last
// ones are the sum.
func (r *ranking) drawBounds() {
	var sum, slack float64
	switch r.bounds++; {
	case r.bounds >= sumExactly, r.limit < len(r.logits):
		r.bounds, sum = sumExactly, r.sumShares()
	case r.bounds == 1 && r.temperature > 1e-30 && r.temperature < 1e30: // float32 has its inverse
		// An exponent, at least −87.4, is rounded twice and off by 2·2⁻²⁴ of itself, which is 1.1·10⁻⁵ of its exponential. That is off by two units more, and
		// the sum of a block by 2⁻²⁴ for each term: 1.6·10⁻⁵ more. Exponentials of less are left out, which is 10⁻³⁷ each.
		const block, most = 256, 4e-5
		var x [block]float32
		for some := range slices.Chunk(r.logits, block) {
			x := x[:copy(x[:], some)]
			simd.AddScalar(-r.most, x)
			simd.Scale(float32(1/r.temperature), x)
			sum += float64(simd.ExpSum(x, x, 0))
		}
		slack = most * sum
	default:
		// Numbers that are not negative are added up, in any order, with a relative error of 2⁻⁵³ for each at most.
		for _, l := range r.logits {
			sum += r.tokenShare(l)
		}
		slack = float64(len(r.logits)) * 0x1p-51 * sum
	}
	r.least, r.much = sum-slack, sum+slack
}

// token is where u of the sum of all shares lies, u in [0, 1). Rounded subtraction keeps the order of two numbers: what
// lies between two bounds that lead to one token leads to it, too.
func (r *ranking) token(u float64) (id int32) {
	for {
		r.drawBounds()
		least, much := u*r.least, u*r.much
		for i := 0; ; i++ {
			next, share, ok := r.tokenAt(i)
			if !ok {
				break
			}
			id = next
			if least, much = least-share, much-share; much < 0 {
				return id
			}
			if least < 0 {
				break
			}
		}
		if r.bounds == sumExactly {
			return id
		}
	}
}
