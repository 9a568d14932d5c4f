package confidence

import "math"

// levels are the means that a Sequence bounds from below by.
const levels = 400

// Sequence tests while losses come that their mean is at most Bound. It takes the memory of no loss. Losses are in [Floor, 1]. They may
// depend on each other as long as none is expected to be above Bound, given those before it.
type Sequence struct {
	Bound, Floor float64
	Delta        float64 // 1 − confidence

	n       int
	sum     float64
	of      capital // against Bound
	grid    []capital
	lower   int // how many levels are refuted
	refuted bool
}

// NewTest is NewSequence without bounds from below: it tests the one mean alone, which is faster.
func NewTest(bound, floor, delta float64) *Sequence {
	return &Sequence{Bound: bound, Floor: floor, Delta: delta}
}

// NewSequence begins a test. Floor < bound < 1 and 0 < delta < 1.
func NewSequence(bound, floor, delta float64) *Sequence {
	return &Sequence{Bound: bound, Floor: floor, Delta: delta, grid: make([]capital, levels)}
}

// level is the mean of a place in the grid, from Floor to 1.
func (s *Sequence) level(i int) float64 { return s.Floor + (1-s.Floor)*float64(i+1)/(levels+1) }

// mirrored is a loss or a mean as a bettor sees it who doubts that the mean is so low: in units of the range below 1, and negative.
func (s *Sequence) mirrored(x float64) float64 { return (1 - x) / (1 - s.Floor) }

// Add takes a loss.
func (s *Sequence) Add(loss float64) {
	loss = min(1, max(s.Floor, loss))
	s.n++
	s.sum += loss
	passes := math.Log(1 / s.Delta)
	s.of.bet(s.mirrored(loss), s.mirrored(s.Bound))
	s.refuted = s.refuted || s.of.log() >= passes
	for i := range s.grid {
		s.grid[i].bet(s.mirrored(loss), s.mirrored(s.level(i)))
	}
	for s.lower < len(s.grid) && s.grid[s.lower].log() >= passes {
		s.lower++
	}
}

// Count is how many losses there were.
func (s *Sequence) Count() int { return s.n }

// Mean is that of the losses so far, 0 before the first.
func (s *Sequence) Mean() float64 { return s.sum / float64(max(1, s.n)) }

// Lower is what the mean is above with the confidence asked for, at every moment at once.
func (s *Sequence) Lower() float64 {
	low := s.Floor
	if s.lower > 0 {
		low = s.level(s.lower - 1)
	}
	if s.refuted { // which the grid may not have come to
		low = max(low, s.Bound)
	}
	return low
}

// Refuted tells that the mean was shown to be above Bound. It stays so.
func (s *Sequence) Refuted() bool { return s.refuted }
